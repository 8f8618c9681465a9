//! One request to the store as a question to all nodes, and what they have answered so far.

use std::time::Duration;

use super::round::{Round, Step, Vote, Why, majority};
use super::tally::{Tally, Verdict};
use crate::clock::Moment;
use crate::store::redis::node::{Ballot, Said};
use crate::store::{
    Answer, Failure, Lane, Outcome, Place, Reach, Reply, Request, ServerId, no_reply,
};
use crate::token::Token;

pub(super) struct Question<'r> {
    request: Request<'r>,
    attempt: u64,
    state: State,
    nodes: usize,
    sent: Moment,
    /// On how many nodes the token waits behind a holder that will notify it.
    waits_on: usize,
    /// Where an attempt that failed has to be given up.
    leftover: Vec<usize>,
    /// Nodes that were asked in vain, since they have no vote.
    quarantined: usize,
    /// Where a give was carried out, or is under way.
    given: Vec<usize>,
    /// Nodes that have a vote, and do not have the lock for the token.
    lacking: Vec<usize>,
    /// How many have it, as they said to an extension or when they were told of it.
    having: usize,
}

enum State {
    /// `raise`: a fence, and the nodes that are to be told to raise to it.
    Attempt {
        round: Round,
        raise: Option<(u64, Vec<usize>)>,
    },
    Tally(Tally),
    Settled(Outcome),
}

impl<'r> Question<'r> {
    /// To `nodes` nodes, none of which was asked before `sent`.
    pub(super) fn new(request: Request<'r>, attempt: u64, nodes: usize, sent: Moment) -> Self {
        let state = match request {
            Request::Take { ttl, .. } => {
                State::Attempt { round: Round::new(nodes, sent, ttl), raise: None }
            }
            Request::Extend { .. } | Request::Give { .. } => State::Tally(Tally::new(nodes, sent)),
        };
        let (waits_on, leftover, quarantined, given, lacking, having) = Default::default();
        Question {
            request,
            attempt,
            state,
            nodes,
            sent,
            waits_on,
            leftover,
            quarantined,
            given,
            lacking,
            having,
        }
    }

    /// No answer that may still come changes anything, or is to be waited for now.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self.state, State::Settled(_)) || self.has_raise()
    }

    /// What every node is asked.
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
            // Of the attempt under whose fence the lock was held. (A fence is not less than the
            // attempt that it was granted to, and a token that was granted one makes no further
            // attempt.)
            Request::Give { name, token, fence, ttl } => {
                let attempt = (fence != 0).then_some(fence);
                Ballot::Give { name, token, ttl, attempt, leaves: true, tells: true }
            }
        }
    }

    pub(super) fn has_raise(&self) -> bool {
        matches!(self.state, State::Attempt { raise: Some(_), .. })
    }

    /// The raise that a node is to be told, if any.
    pub(super) fn raise(&self, node: usize) -> Option<Ballot<'r>> {
        let Request::Take { name, token, block, .. } = self.request else { return None };
        let State::Attempt { raise: Some((fence, nodes)), .. } = &self.state else { return None };
        // The whole block is ours then.
        let fence = fence + u64::from(block.saturating_sub(1));
        let attempt = self.attempt;
        nodes.contains(&node).then_some(Ballot::Raise { name, token, attempt, fence })
    }

    /// The nodes are told to raise now.
    pub(super) fn raises(&mut self) {
        if let State::Attempt { raise, .. } = &mut self.state {
            *raise = None;
        }
    }

    /// A node answered, could not be asked, or is not waited for any longer.
    pub(super) fn heard(&mut self, node: usize, vote: Vote) {
        match &vote {
            Some(Ok(Said::Busy { ticket, ours, .. })) => {
                // A holder that uses another library notifies nobody.
                self.waits_on += usize::from(*ours && *ticket > 0);
                self.lacking.push(node);
            }
            Some(Ok(Said::NotMine)) => self.lacking.push(node),
            Some(Ok(Said::Extended | Said::Filled)) => self.having += 1,
            _ => {}
        }
        if matches!(self.request, Request::Give { .. }) && !matches!(vote, Some(Err(_))) {
            self.given.push(node);
        }
        let outcome = match &mut self.state {
            State::Attempt { round, raise } => match round.heard(node, vote, Moment::now()) {
                Step::Wait => return,
                Step::Raise { fence, nodes } => {
                    *raise = Some((fence, nodes));
                    return;
                }
                Step::Granted { fence } => {
                    let block = match self.request {
                        Request::Take { block, .. } => block,
                        Request::Extend { .. } | Request::Give { .. } => 1,
                    };
                    Ok(Reply::Granted { fence, block })
                }
                Step::Refused { why, give } => {
                    (self.leftover, self.quarantined) = (give, round.quarantined());
                    match why {
                        Why::Busy { free_in, contested, rank } => {
                            // A holder with a majority notifies a majority when it gives up the
                            // lock, and one of those nodes is one where we wait.
                            let ours = !contested && self.waits_on >= majority(self.nodes);
                            Ok(Reply::Busy { free_in, ticket: ours.into(), rank, ours })
                        }
                        Why::NoQuorum(error) => Err(Failure::not_done(error)),
                    }
                }
            },
            State::Tally(tally) => match (tally.heard(node, vote), self.request) {
                (None, _) => return,
                (Some(Verdict::Done), Request::Give { .. }) => Ok(Reply::Given),
                (Some(Verdict::Done), _) => Ok(Reply::Extended),
                (Some(Verdict::NotMine), _) => Ok(Reply::NotMine),
                (Some(Verdict::Unknown(failure)), _) => Err(failure),
            },
            State::Settled(_) => return,
        };
        let answer = |reply| Answer { reply, sent: self.sent, server: 0, by: ServerId::default() };
        self.state = State::Settled(outcome.map(answer));
    }

    pub(super) fn has_leftover(&self) -> bool {
        !self.leftover.is_empty()
    }

    /// How an attempt that failed is to be given up on a node, of those that were asked. Mostly no
    /// waiter is notified: waiters wait for another's lock, and clients that have split the votes
    /// would only call each other back at once. But where the attempt may have had most nodes,
    /// without an answer in time, others have seen that it did, and count on being notified.
    pub(super) fn leftover(&self, node: usize, asked: &[usize]) -> Option<Ballot<'r>> {
        let Request::Take { name, token, ttl, .. } = self.request else { return None };
        let was_asked = |node: &&usize| asked.contains(node);
        if !self.leftover.iter().filter(was_asked).any(|left| *left == node) {
            return None;
        }
        let may_have = self.leftover.iter().filter(was_asked).count();
        let tells = may_have.saturating_sub(self.quarantined) >= majority(self.nodes);
        Some(Ballot::Give { name, token, ttl, attempt: Some(self.attempt), leaves: false, tells })
    }

    /// The same give, for a node that was not told of it. A caller that gets no answer asks again,
    /// but only for a ttl, and places last longer: so the nodes are owed that, too. (Not the lock
    /// that a caller releases: when it asks again, it must find what it left.)
    pub(super) fn untold(&self, node: usize, lane: Lane) -> Option<Request<'r>> {
        let Request::Give { fence, .. } = self.request else { return None };
        let is_owed = self.is_done() || fence == 0 || lane == Lane::Keeper;
        let is_untold = is_owed && !self.given.contains(&node);
        is_untold.then(|| self.ballot().request()).flatten()
    }

    fn is_done(&self) -> bool {
        matches!(self.state, State::Settled(Ok(_)))
    }

    /// The token of a lease that a majority has, and the nodes that lack it, of those that were
    /// heard.
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

    /// Tells a node that lacks an extended lease to store it.
    pub(super) fn fill(&self, node: usize) -> Option<Ballot<'r>> {
        let Request::Extend { name, token, fence, ttl, .. } = self.request else { return None };
        let (_, lacking) = self.lacking()?;
        lacking.contains(&node).then_some(Ballot::Fill { name, token, fence, ttl })
    }

    /// A token that was given up or passed on.
    pub(super) fn given(&self) -> Option<(&'r [u8], Token, Duration)> {
        match self.request {
            Request::Give { name, token, ttl, .. } => Some((name, token, ttl)),
            // One that failed is asked for again, and finds the token then.
            Request::Extend { name, token, ttl, reach: Reach::Pass(_), .. } if self.is_done() => {
                Some((name, token, ttl))
            }
            Request::Extend { .. } | Request::Take { .. } => None,
        }
    }

    pub(super) fn is_on_all(&self) -> bool {
        self.having == self.nodes
    }

    pub(super) fn outcome(self) -> Outcome {
        match self.state {
            State::Settled(outcome) => outcome,
            State::Attempt { .. } | State::Tally(_) => no_reply(),
        }
    }
}

#[cfg(test)]
mod tests;
