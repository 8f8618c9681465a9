//! One request to the store as a question to all nodes, and what they have answered so far.

use std::time::Duration;

use super::dialect::{Asks, Ballot, LONGEST_BLOCK, Said};
use super::round::{Round, Step, Vote, Why, majority};
use super::tally::{Tally, Verdict};
use crate::clock::Moment;
use crate::store::{
    Answer, Failure, Lane, Outcome, Place, Reach, Reply, Request, ServerId, no_reply,
};
use crate::token::Token;

pub(super) struct Question<'r> {
    request: Request<'r>,
    attempt: u64,
    state: State,
    /// An attempt that has succeeded, for what comes after that.
    won: Option<Round>,
    nodes: usize,
    sent: Moment,
    /// All that came, from which node, in this order.
    votes: Vec<(usize, Vote)>,
    /// A fence, and the nodes that are still to be told to raise to it.
    raise: (u64, Vec<usize>),
    /// Where an attempt that failed has to be given up.
    leftover: Vec<usize>,
    /// Nodes that were told to store what was won and did not say in time whether they have. A copy that
    /// was delayed may still do so, whatever the node says to a later one.
    unsure: Vec<usize>,
}

enum State {
    Attempt(Round),
    Tally(Tally),
    Settled(Outcome),
}

impl<'r> Question<'r> {
    /// To `nodes` nodes, none of which was asked before `sent`.
    pub(super) fn new(request: Request<'r>, attempt: u64, nodes: usize, sent: Moment) -> Self {
        let state = match request {
            Request::Take { ttl, .. } => State::Attempt(Round::new(nodes, sent, ttl)),
            Request::Extend { .. } | Request::Give { .. } => State::Tally(Tally::new(nodes, sent)),
        };
        let (votes, (won, raise)) = (Vec::with_capacity(nodes), Default::default());
        let (leftover, unsure) = Default::default();
        Question { request, attempt, state, won, nodes, sent, votes, raise, leftover, unsure }
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
                let place = if place == Place::Try { place } else { Place::Join(0) };
                let asks = Asks::Take { ttl, place, attempt: self.attempt, block };
                Ballot { name, token, asks }
            }
            Request::Extend { name, token, fence, ttl, reach } => {
                Ballot { name, token, asks: Asks::Extend { fence, ttl, reach } }
            }
            // Of the attempt under whose fence the lock was held. (A fence is not less than its
            // attempt, and a token that was granted one makes no further attempt.)
            Request::Give { name, token, fence, ttl } => {
                let attempt = (fence != 0).then_some(fence);
                Ballot { name, token, asks: Asks::Give { ttl, attempt, leaves: true, tells: true } }
            }
        }
    }

    pub(super) fn has_raise(&self) -> bool {
        !self.raise.1.is_empty()
    }

    /// The raise that a node is to be told now, if any.
    pub(super) fn raise(&mut self, node: usize) -> Option<Ballot<'r>> {
        let Request::Take { name, token, block, .. } = self.request else { return None };
        let (fence, nodes) = &mut self.raise;
        nodes.swap_remove(nodes.iter().position(|told| *told == node)?);
        // The whole block is ours then.
        let fence = *fence + u64::from(block.saturating_sub(1));
        Some(Ballot { name, token, asks: Asks::Raise { attempt: self.attempt, fence } })
    }

    pub(super) fn heard(&mut self, node: usize, vote: Vote) {
        self.votes.push((node, vote.clone()));
        if let Some(round) = &mut self.won {
            // What a node is told after it has said that another has the lock is to store it.
            let may_store = matches!(vote, None | Some(Err(Failure { sent: Some(_), .. })));
            if may_store && round.lacking().any(|at| at == node) && !self.unsure.contains(&node) {
                self.unsure.push(node);
            }
            let _: Step = round.heard(node, vote, Moment::now());
            return;
        }
        let outcome = match &mut self.state {
            State::Attempt(round) => match round.heard(node, vote, Moment::now()) {
                Step::Wait => return,
                Step::Raise { fence, nodes } => {
                    self.raise = (fence, nodes);
                    return;
                }
                Step::Granted { fence } => {
                    let Request::Take { block, .. } = self.request else { return };
                    self.won = Some(round.clone());
                    Ok(Reply::Granted { fence, block })
                }
                Step::Refused { why, give } => {
                    self.leftover = give;
                    match why {
                        Why::Busy { free_in, contested, rank } => {
                            // A holder with a majority notifies a majority when it gives up the
                            // lock, and one of those nodes is one where we wait. (A holder that
                            // uses another library notifies nobody.)
                            let waits_on = self.count(|said| {
                                matches!(said, Said::Busy { ticket: 1.., ours: true, .. })
                            });
                            let ours = !contested && waits_on >= majority(self.nodes);
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
        let answer = |reply| Answer {
            reply,
            sent: self.sent,
            server: 0,
            by: ServerId::default(),
            again: None,
        };
        self.state = State::Settled(outcome.map(answer));
    }

    fn count(&self, wanted: impl Fn(&Said) -> bool) -> usize {
        let said = self.votes.iter().filter_map(|(_, vote)| vote.as_ref()?.as_ref().ok());
        said.filter(|said| wanted(said)).count()
    }

    /// How an attempt that failed is to be given up on a node, of those that were asked. Mostly no
    /// waiter is notified: waiters wait for another's lock, and clients that have split the votes
    /// would only call each other back at once. But where the attempt may have had most nodes,
    /// without an answer in time, others have seen that it did, and count on being notified.
    pub(super) fn leftover(&self, node: usize) -> Option<Ballot<'r>> {
        let Request::Take { name, token, ttl, .. } = self.request else { return None };
        let left = self.leftover.iter().filter(|left| self.first_of(**left).is_some());
        if !left.clone().any(|left| *left == node) {
            return None;
        }
        let has_vote = |vote: &Vote| !matches!(vote, Some(Ok(Said::Quarantined { .. })));
        let may_have = left.filter(|left| self.first_of(**left).is_some_and(has_vote)).count();
        let tells = may_have >= majority(self.nodes);
        let asks = Asks::Give { ttl, attempt: Some(self.attempt), leaves: false, tells };
        Some(Ballot { name, token, asks })
    }

    fn first_of(&self, node: usize) -> Option<&Vote> {
        self.votes.iter().find(|(at, _)| *at == node).map(|(_, vote)| vote)
    }

    /// The same give, for a node that was not told of it. A caller that gets no answer asks again,
    /// but only for a ttl, and places last longer: so the nodes are owed that, too. (Not the lock
    /// that a caller releases: when it asks again, it must find what it left.)
    pub(super) fn untold(&self, node: usize, lane: Lane) -> Option<Request<'r>> {
        let Request::Give { fence, .. } = self.request else { return None };
        let is_owed = self.is_done() || fence == 0 || lane == Lane::Keeper;
        let is_told = self.first_of(node).is_some_and(|vote| !matches!(vote, Some(Err(_))));
        (is_owed && !is_told).then(|| self.ballot().request()).flatten()
    }

    fn is_done(&self) -> bool {
        matches!(self.state, State::Settled(Ok(_)))
    }

    /// The token of a lease that a majority has, if some of the nodes that were heard lack it, or may
    /// store it later than it is given up there.
    pub(super) fn lacking(&self) -> Option<Token> {
        let token = match (self.request, &self.state) {
            (Request::Take { token, .. }, _) => {
                let is_noted = self.bare_on().next().is_some() || !self.unsure.is_empty();
                return is_noted.then_some(token);
            }
            (Request::Extend { token, reach, .. }, State::Settled(Ok(answer))) => {
                Some(reach.holder(token)).filter(|_| answer.reply == Reply::Extended)
            }
            _ => None,
        };
        token.filter(|_| self.votes.iter().any(|(_, vote)| lacks(vote)))
    }

    /// A take that was granted.
    pub(super) fn has_won(&self) -> bool {
        self.won.is_some()
    }

    /// The nodes on which another had the lock that was won, and still has as far as is known.
    pub(super) fn bare_on(&self) -> impl Iterator<Item = usize> {
        self.won.iter().flat_map(Round::lacking)
    }

    /// Who has it on a node, and for how long at most.
    pub(super) fn rival_on(&self, node: usize) -> Option<(u64, Duration)> {
        match self.first_of(node) {
            Some(Some(Ok(Said::Busy { holder, free_in, .. }))) => Some((*holder, *free_in)),
            _ => None,
        }
    }

    /// The nodes that were told to store a lease that was won, and may do so yet.
    pub(super) fn may_store(&self) -> &[usize] {
        &self.unsure
    }

    /// Tells a node to store a lease that a majority has and it lacks.
    pub(super) fn fill(&self, node: usize) -> Option<Ballot<'r>> {
        let (name, fence, ttl, block, is_lacking) = match (self.request, &self.state) {
            (Request::Extend { name, fence, ttl, .. }, _) => {
                let is_lacking = self.votes.iter().any(|(at, vote)| *at == node && lacks(vote));
                (name, fence, ttl, LONGEST_BLOCK, is_lacking)
            }
            (Request::Take { name, ttl, .. }, State::Settled(Ok(answer))) => {
                let Reply::Granted { fence, block } = answer.reply else { return None };
                (name, fence, ttl, block, self.bare_on().any(|at| at == node))
            }
            _ => return None,
        };
        let (token, asks) = (self.lacking()?, Asks::Fill { fence, ttl, block });
        is_lacking.then_some(Ballot { name, token, asks })
    }

    /// When the first part of the validity is over that it has if it was won now.
    pub(super) fn early(&self) -> Moment {
        match self.request {
            Request::Take { ttl, .. } => self.sent.plus(ttl / 4),
            Request::Extend { .. } | Request::Give { .. } => Moment::NEVER,
        }
    }

    /// A lease that was shortened, and is left to run out.
    pub(super) fn shortened(&self) -> Option<(&'r [u8], Token, Duration)> {
        match self.request {
            Request::Extend { name, token, ttl, reach: Reach::Set, .. } if self.is_extended() => {
                Some((name, token, ttl))
            }
            _ => None,
        }
    }

    fn is_extended(&self) -> bool {
        matches!(&self.state, State::Settled(Ok(answer)) if answer.reply == Reply::Extended)
    }

    /// A node that said so to an extension.
    pub(super) fn has_extended(&self, node: usize) -> bool {
        matches!(self.first_of(node), Some(Some(Ok(Said::Extended))))
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

    /// Every node has it, as it said to an extension or when it was told of it.
    pub(super) fn is_on_all(&self) -> bool {
        self.count(|said| matches!(said, Said::Extended | Said::Filled)) == self.nodes
    }

    pub(super) fn outcome(self) -> Outcome {
        if let State::Settled(outcome) = self.state { outcome } else { no_reply() }
    }
}

/// Of a node that has a vote.
fn lacks(vote: &Vote) -> bool {
    matches!(vote, Some(Ok(Said::Busy { .. } | Said::NotMine)))
}

#[cfg(test)]
mod tests;
