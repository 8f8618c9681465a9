//! One request to the store, as it stands while its nodes answer.

use std::time::Duration;

use super::driver::Share;
use super::round::{Round, Step, Verdict, Vote, Why, majority};
use super::tally::{Count, Tally, Word};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::store::redis::node::{self, Ballot, Said};
use crate::store::{
    Answer, Failure, Lane, Outcome, Place, Reach, Reply, Request, ServerId, no_reply,
};
use crate::token::Token;

pub(super) struct Inquiry<'r> {
    request: Request<'r>,
    attempt: u64,
    state: State,
    /// Nodes on which the token stands among the waiters for one who will tell it.
    stands_on: usize,
    nodes: usize,
    sent: Moment,
    /// Where an attempt that failed has to be given up.
    leftover: Vec<usize>,
    /// Those that have no vote, and so were asked in vain.
    quarantined: usize,
    /// Where a give was carried out, or is under way.
    told: Vec<usize>,
    /// Nodes that have a vote, and do not have the lock for the token.
    lacking: Vec<usize>,
    /// How many have it, as they said to an extension or when they were told of it.
    having: usize,
}

enum State {
    Attempt(Round),
    /// These nodes are to raise to this fence.
    ToRaise(Round, u64, Vec<usize>),
    Raising(Round),
    Count(Tally),
    Settled(Outcome),
    /// In the midst of a step.
    Moving,
}

impl<'r> Inquiry<'r> {
    /// Of so many nodes, none of which was asked before `sent`.
    pub(super) fn new(request: Request<'r>, attempt: u64, nodes: usize, sent: Moment) -> Self {
        let state = match request {
            Request::Take { ttl, .. } => State::Attempt(Round::new(nodes, sent, ttl)),
            Request::Extend { .. } | Request::Give { .. } => State::Count(Tally::new(nodes, sent)),
        };
        let (stands_on, leftover, quarantined, told, lacking, having) = Default::default();
        Inquiry {
            request,
            attempt,
            state,
            stands_on,
            nodes,
            sent,
            leftover,
            quarantined,
            told,
            lacking,
            having,
        }
    }

    /// Nothing that a node may still say changes anything, or is to be waited for now.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self.state, State::Settled(_) | State::ToRaise(..))
    }

    pub(super) fn ballot(&self) -> Ballot<'r> {
        match self.request {
            Request::Take { name, token, ttl, place, block } => {
                // Each node has given it a ticket of its own, and finds it.
                let place = match place {
                    Place::Join(_) => Place::Join(0),
                    Place::Try => Place::Try,
                };
                Ballot::Take { name, token, ttl, place, attempt: self.attempt, block }
            }
            Request::Extend { name, token, fence, ttl, reach } => {
                Ballot::Extend { name, token, fence, ttl, reach }
            }
            Request::Give { name, token, fence, .. } => node::give(name, token, fence),
        }
    }

    /// The same as the connections know it, which send a give again that went astray: whatever it was
    /// of, the token is given up altogether, since nobody waits again under one that he has held.
    pub(super) fn request(&self) -> Request<'r> {
        match self.request {
            Request::Give { name, token, ttl, .. } => Request::Give { name, token, fence: 0, ttl },
            request => request,
        }
    }

    /// Begins the second scatter, if there is to be one. Adds it to what the nodes are asked.
    pub(super) fn raise(&mut self, index: usize, shares: &mut [Share<'r>]) -> bool {
        let Request::Take { name, token, block, .. } = self.request else { return false };
        let (fence, nodes) = match self.take() {
            State::ToRaise(round, fence, nodes) => {
                self.state = State::Raising(round);
                (fence, nodes)
            }
            state => {
                self.state = state;
                return false;
            }
        };
        // The whole block is ours then.
        let fence = fence + u64::from(block.saturating_sub(1));
        for node in nodes {
            if let Some(share) = shares.get_mut(node) {
                share.inquiries.push(index);
                share.ballots.push(Ballot::Raise { name, token, attempt: self.attempt, fence });
            }
        }
        true
    }

    /// A node answered, or could not be asked.
    pub(super) fn heard(&mut self, node: usize, said: Result<Said, Failure>) {
        // Who gives up a lock that is another library's tells nobody.
        if let Ok(Said::Busy { ticket: 1.., ours: true, .. }) = said {
            self.stands_on += 1;
        }
        if said.is_ok() {
            self.tells(node);
        }
        match said {
            Ok(Said::Busy { .. } | Said::NotMine) => self.lacking.push(node),
            Ok(Said::Extended | Said::Filled) => self.having += 1,
            _ => {}
        }
        self.step(node, vote(said.clone()), word(said));
    }

    /// A node is not waited for any longer.
    pub(super) fn is_late(&mut self, node: usize) {
        self.tells(node);
        self.step(node, Vote::Late, Word::Late);
    }

    fn tells(&mut self, node: usize) {
        if matches!(self.request, Request::Give { .. }) {
            self.told.push(node);
        }
    }

    fn step(&mut self, node: usize, vote: Vote, word: Word) {
        let now = Moment::now();
        match self.take() {
            State::Attempt(round) => {
                self.quarantined += usize::from(matches!(vote, Vote::Quarantined { .. }));
                self.follow(round.heard(node, vote, now), false);
            }
            State::Raising(round) => self.follow(round.heard(node, vote, now), true),
            State::Count(tally) => self.count(tally.heard(node, word)),
            state => self.state = state,
        }
    }

    fn take(&mut self) -> State {
        std::mem::replace(&mut self.state, State::Moving)
    }

    fn follow(&mut self, step: Step, raising: bool) {
        self.state = match step {
            Step::Wait(round) if raising => State::Raising(round),
            Step::Wait(round) => State::Attempt(round),
            Step::Raise { round, fence, nodes } => State::ToRaise(round, fence, nodes),
            Step::Done(Verdict::Granted { fence, sent }) => {
                let block = match self.request {
                    Request::Take { block, .. } => block,
                    Request::Extend { .. } | Request::Give { .. } => 1,
                };
                State::Settled(Ok(answer(Reply::Granted { fence, block }, sent)))
            }
            Step::Done(Verdict::Refused { why, give, busy }) => {
                // Those that another has it on keep our place among their waiters.
                self.leftover = give.into_iter().filter(|node| !busy.contains(node)).collect();
                State::Settled(self.refused(why))
            }
        };
    }

    fn refused(&self, why: Why) -> Outcome {
        match why {
            Why::Busy { free_in, contested, rank } => {
                // Whoever has a majority tells a majority when he gives it up, and that has a node in
                // common with those where we stand.
                let told = !contested && self.stands_on > self.nodes / 2;
                let reply = Reply::Busy { free_in, ticket: u64::from(told), rank, ours: told };
                Ok(answer(reply, self.sent))
            }
            Why::NoQuorum(error) => Err(Failure::not_done(error)),
        }
    }

    fn count(&mut self, count: Count) {
        let done = match self.request {
            Request::Give { .. } => Reply::Given,
            Request::Extend { .. } | Request::Take { .. } => Reply::Extended,
        };
        self.state = match count {
            Count::Wait(tally) => State::Count(tally),
            Count::Done => State::Settled(Ok(answer(done, self.sent))),
            Count::NotMine => State::Settled(Ok(answer(Reply::NotMine, self.sent))),
            Count::Unknown(failure) => State::Settled(Err(failure)),
        };
    }

    /// Where an attempt failed, of those that were asked, and how it is to be given up there.
    /// Mostly nobody is told: whoever waits for the lock waits for another's, and those who have
    /// split the votes would only call each other back at once. But where it may have had most of
    /// them, without hearing of it in time, others have seen that it did, and count on being told.
    pub(super) fn leftover(
        &self,
        asked: &[usize],
    ) -> impl Iterator<Item = (usize, Ballot<'r>, Request<'r>)> {
        let nodes: Vec<_> =
            self.leftover.iter().copied().filter(|node| asked.contains(node)).collect();
        let left = match self.request {
            Request::Take { name, token, ttl, .. } => {
                let attempt = Some(self.attempt);
                let may_have = nodes.len().saturating_sub(self.quarantined);
                let tells = may_have >= majority(self.nodes);
                let ballot = Ballot::Give { name, token, attempt, leaves: false, tells };
                Some((ballot, Request::Give { name, token, fence: self.attempt, ttl }))
            }
            _ => None,
        };
        left.into_iter().flat_map(move |(ballot, request)| {
            nodes.clone().into_iter().map(move |node| (node, ballot, request))
        })
    }

    /// A give, for a node that was not told of it. Whoever asked for one that is not done asks again,
    /// but only for a ttl, and places last longer: so the nodes are owed that, too. (Not what a caller
    /// releases: when he asks again, he must find what he left.)
    pub(super) fn untold(&self, node: usize, lane: Lane) -> Option<Request<'r>> {
        let Request::Give { fence, .. } = self.request else { return None };
        let is_done = matches!(self.state, State::Settled(Ok(_)));
        let is_owed = is_done || fence == 0 || lane == Lane::Keeper;
        (is_owed && !self.told.contains(&node)).then(|| self.request())
    }

    /// The nodes that lack a lease which a majority has, of those that were heard.
    pub(super) fn lacking(&self) -> Option<(Token, &[usize])> {
        let token = match self.request {
            Request::Take { token, .. } => token,
            Request::Extend { token, reach, .. } => reach.holder(token),
            Request::Give { .. } => return None,
        };
        let State::Settled(Ok(Answer { reply, .. })) = &self.state else { return None };
        let is_ours = matches!(reply, Reply::Granted { .. } | Reply::Extended);
        is_ours.then_some((token, &self.lacking))
    }

    /// A token that was given up or passed on.
    pub(super) fn given(&self) -> Option<(&'r [u8], Token, Duration)> {
        let is_done = matches!(self.state, State::Settled(Ok(_)));
        match self.request {
            Request::Give { name, token, ttl, .. } => Some((name, token, ttl)),
            // One that failed is asked for again, and finds the token then.
            Request::Extend { name, token, ttl, reach: Reach::Pass(_), .. } if is_done => {
                Some((name, token, ttl))
            }
            Request::Extend { .. } | Request::Take { .. } => None,
        }
    }

    pub(super) fn stands_on_all(&self) -> bool {
        self.having == self.nodes
    }

    pub(super) fn outcome(self) -> Outcome {
        match self.state {
            State::Settled(outcome) => outcome,
            _ => no_reply(),
        }
    }
}

fn answer(reply: Reply, sent: Moment) -> Answer {
    Answer { reply, sent, server: 0, by: ServerId::default() }
}

/// What was said to a take or a raise.
fn vote(said: Result<Said, Failure>) -> Vote {
    match said {
        Ok(Said::Granted { fence }) => Vote::Granted { fence },
        Ok(Said::Busy { free_in, holder, rank, .. }) => Vote::Busy { free_in, holder, rank },
        Ok(Said::Quarantined { left }) => Vote::Quarantined { left },
        Ok(Said::Raised) => Vote::Raised,
        Ok(Said::NotMine | Said::Extended | Said::Filled | Said::Given) => Vote::NotMine,
        Err(failure) => Vote::Failed(failure),
    }
}

/// What was said to an extension or a give.
fn word(said: Result<Said, Failure>) -> Word {
    match said {
        Ok(Said::Extended | Said::Given) => Word::Done,
        Ok(Said::Quarantined { left }) => {
            let detail = format!("it lost its data, and has no vote for {left:?}");
            Word::Failed(Failure::not_done(Error::new(ErrorKind::Unavailable, detail)))
        }
        Ok(_) => Word::NotMine,
        Err(failure) => Word::Failed(failure),
    }
}

#[cfg(test)]
mod tests;
