//! One attempt to take a lock on several nodes.
//!
//! No I/O, no threads and no clock of its own: what the nodes said goes in, one at a time and in
//! any order, and what to do comes out, as soon as no answer that may still come could change it.
//! An answer that comes twice counts once.

use std::time::Duration;

pub(crate) use super::dialect::Said;
use crate::clock::Moment;
use crate::config::{drift, spoken_left};
use crate::error::{Error, ErrorKind};
use crate::store::Failure;

#[derive(Clone, Debug)]
pub(crate) struct Round {
    nodes: Vec<NodeState>,
    /// Once the others are told to raise: to which fence.
    raised_to: Option<u64>,
    /// It has succeeded, and only notes from then on where the lock stands.
    has_won: bool,
    /// The end of the validity that it would have.
    until: Moment,
    troubles: Vec<Error>,
}

/// What came from one node; `None` if it will not answer in time.
pub(crate) type Vote = Option<Result<Said, Failure>>;

/// What to do now.
#[derive(Debug)]
pub(crate) enum Step {
    /// Hear more nodes.
    Wait,
    /// Tell these nodes to raise to this fence, and go on with the round.
    Raise { fence: u64, nodes: Vec<usize> },
    /// The lock is ours under this fence. Its validity counts from before the first node was asked.
    Granted { fence: u64 },
    /// It is not ours, and never will be by this attempt, which has to be given up on these nodes:
    /// all that it was sent to, whether they have answered or not, but for those that said that
    /// another has it. These have nothing of ours but a place among the waiters.
    Refused { why: Why, give: Vec<usize> },
}

#[derive(Debug)]
pub(crate) enum Why {
    /// A majority voted, and not for us. Before `free_in` is over, counted from the first send, no
    /// majority is free, unless a holder gives the lock up. `contested`: nobody else was seen to have a
    /// majority. There may be no holder, so that every client that wants the lock must ask again, each
    /// after a delay of its own. `rank`: how many stand before us on the node where most do.
    Busy { free_in: Duration, contested: bool, rank: u32 },
    /// Too few nodes could vote.
    NoQuorum(Error),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NodeState {
    /// Nothing has come yet.
    Asked,
    /// The last that it said, and that counts.
    Heard(Said),
    /// It granted less than the fence, and was told to raise.
    Raising,
    /// Its answer does not count any more. `asked`: it may have done, or may do, what was asked.
    Out { asked: bool },
}

use NodeState::{Asked, Heard, Out, Raising};
use Said::{Busy, Filled, Granted, NotMine, Quarantined, Raised};

impl Round {
    /// An attempt for a lock with this ttl on `nodes` nodes, each of which either is asked, not
    /// before `sent`, or is said to have failed.
    pub(crate) fn new(nodes: usize, sent: Moment, ttl: Duration) -> Round {
        let until = sent.plus(ttl).minus(drift(ttl));
        let (raised_to, has_won, troubles) = Default::default();
        Round { nodes: vec![Asked; nodes], raised_to, has_won, until, troubles }
    }

    pub(crate) fn heard(&mut self, node: usize, vote: Vote, now: Moment) -> Step {
        let Some(state) = self.nodes.get(node).copied() else { return Step::Wait };
        self.nodes[node] = match (state, vote) {
            (Asked, Some(Ok(said @ (Granted { .. } | Busy { .. } | Quarantined { .. }))))
            | (Raising, Some(Ok(said @ (Raised | NotMine)))) => Heard(said),
            // One that has lost its data meanwhile knows nothing of us either.
            (Raising, Some(Ok(Quarantined { .. }))) => Heard(NotMine),
            (Asked | Raising, None) => Out { asked: true },
            (Asked | Raising, Some(Err(failure))) => {
                self.troubles.push(failure.error);
                Out { asked: state == Raising || failure.sent.is_some() }
            }
            // One that lacked a lock that was won, and was told to store it.
            (Heard(Busy { .. } | NotMine), Some(Ok(said @ Filled))) if self.has_won => Heard(said),
            // Said before, or too late: what came after the largest grant was chosen may be larger.
            _ => return Step::Wait,
        };
        match self.raised_to {
            _ if self.has_won => Step::Wait,
            None => self.gather(now),
            Some(fence) => self.confirm(fence, now),
        }
    }

    fn gather(&mut self, now: Moment) -> Step {
        let (granted, pending) = (self.count(NodeState::is_granted), self.pending());
        if granted < self.majority() {
            return if granted + pending < self.majority() { self.refuse() } else { Step::Wait };
        }
        let fence = self.nodes.iter().filter_map(NodeState::fence).max().unwrap_or(0);
        let confirmed = self.count(|state| state.fence() == Some(fence));
        if confirmed >= self.majority() {
            return self.succeed(fence, now);
        }
        // A fence that a majority has granted needs no second round trip. That can still be this
        // one, or a larger one that all the missing nodes grant; if there are too few of them for
        // that, waiting would only make the second round later. Either is safe, as long as nothing
        // is added to the grants of which the largest was chosen.
        if confirmed + pending >= self.majority() {
            return Step::Wait;
        }
        self.raise(fence, now)
    }

    fn raise(&mut self, fence: u64, now: Moment) -> Step {
        if now >= self.until {
            return self.too_late();
        }
        let mut nodes = Vec::new();
        for (node, state) in self.nodes.iter_mut().enumerate() {
            match state {
                Heard(Granted { fence: granted }) if *granted < fence => {
                    *state = Raising;
                    nodes.push(node);
                }
                Asked => *state = Out { asked: true },
                _ => {}
            }
        }
        self.raised_to = Some(fence);
        Step::Raise { fence, nodes }
    }

    fn confirm(&mut self, fence: u64, now: Moment) -> Step {
        let confirmed = self.count(|state| matches!(state, Heard(Granted { .. } | Raised)));
        if confirmed >= self.majority() {
            self.succeed(fence, now)
        } else if confirmed + self.count(|state| *state == Raising) < self.majority() {
            self.refuse()
        } else {
            Step::Wait
        }
    }

    fn succeed(&mut self, fence: u64, now: Moment) -> Step {
        self.has_won = now < self.until;
        if self.has_won { Step::Granted { fence } } else { self.too_late() }
    }

    /// Once it has succeeded: the nodes where another had the lock, mostly for a moment, and still has,
    /// as far as is known. They are to be told to store it: without them, the loss of one node more
    /// is the loss of the lock. A node that says nothing, or has no vote, is none of them.
    pub(crate) fn lacking(&self) -> impl Iterator<Item = usize> {
        let lacks = |state: &NodeState| matches!(state, Heard(Busy { .. } | NotMine));
        let nodes = self.nodes.iter().enumerate().filter(|_| self.has_won);
        nodes.filter(move |(_, state)| lacks(state)).map(|(node, _)| node)
    }

    fn too_late(&self) -> Step {
        let error = Error::new(ErrorKind::NoQuorum, "granted too late to rely on it");
        self.refused(Why::NoQuorum(error))
    }

    /// It cannot succeed any more. Whether the lock is taken or too many nodes are down may depend
    /// on nodes that have not answered yet. To the caller that is the difference between "not now"
    /// and an error, and worth the wait.
    fn refuse(&self) -> Step {
        let voted = self.count(NodeState::has_voted);
        if voted >= self.majority() {
            self.refused(self.busy())
        } else if voted + self.pending() < self.majority() {
            self.refused(Why::NoQuorum(self.no_quorum(voted)))
        } else {
            Step::Wait
        }
    }

    fn refused(&self, why: Why) -> Step {
        let has_ours =
            |state: &NodeState| !matches!(state, Heard(Busy { .. }) | Out { asked: false });
        let states = self.nodes.iter().enumerate();
        let give = states.filter(|(_, state)| has_ours(state)).map(|(node, _)| node).collect();
        Step::Refused { why, give }
    }

    fn busy(&self) -> Why {
        let mut free: Vec<_> = self.nodes.iter().map(NodeState::free_in).collect();
        free.sort_unstable();
        let free_in = free.get(self.majority() - 1).copied().unwrap_or(Duration::MAX);
        let holders = || {
            self.nodes.iter().filter_map(|state| match state {
                Heard(Busy { holder, rank, .. }) => Some((*holder, *rank)),
                _ => None,
            })
        };
        let has_most = |holder| holders().filter(|(h, _)| *h == holder).count() >= self.majority();
        Why::Busy {
            free_in,
            contested: !holders().any(|(holder, _)| has_most(holder)),
            rank: holders().map(|(_, rank)| rank).max().unwrap_or(0),
        }
    }

    fn no_quorum(&self, voted: usize) -> Error {
        let left = self.nodes.iter().filter_map(|state| match state {
            Heard(Quarantined { left }) => Some(*left),
            _ => None,
        });
        let (lost, mut troubles) = (left.clone().count(), self.troubles.clone());
        if let Some(longest) = left.max() {
            let detail = format!(
                "{lost} of {} servers are new or have lost their data, and grant nothing for another \
                 {} (if they have never granted a lock, leasehold init --force ends the wait)",
                self.nodes.len(),
                spoken_left(longest)
            );
            let error = Error::new(ErrorKind::Unavailable, detail);
            if voted + lost >= self.majority() {
                // They are up, and will grant when their quarantine is over.
                return error;
            }
            troubles.push(error);
        }
        too_few_votes(voted, self.nodes.len(), &troubles)
    }

    fn majority(&self) -> usize {
        majority(self.nodes.len())
    }

    fn pending(&self) -> usize {
        self.count(|state| *state == Asked)
    }

    fn count(&self, wanted: impl Fn(&NodeState) -> bool) -> usize {
        self.nodes.iter().filter(|state| wanted(state)).count()
    }
}

impl NodeState {
    fn is_granted(&self) -> bool {
        matches!(self, Heard(Granted { .. } | Raised) | Raising)
    }

    fn fence(&self) -> Option<u64> {
        match self {
            Heard(Granted { fence }) => Some(*fence),
            _ => None,
        }
    }

    /// For us or for another.
    fn has_voted(&self) -> bool {
        self.is_granted() || matches!(self, Heard(Busy { .. } | NotMine))
    }

    /// A lock that is ours there is given up. A node of which nothing is known may never be free.
    fn free_in(&self) -> Duration {
        match self {
            Heard(Busy { free_in, .. }) => *free_in,
            Heard(Quarantined { left }) => *left,
            Heard(_) | Raising => Duration::ZERO,
            Asked | Out { .. } => Duration::MAX,
        }
    }
}

/// More than half of *all* nodes, there or not: any two majorities have a node in common.
pub(super) fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// The error of nodes with which there will never be a majority.
pub(super) fn lasting(nodes: usize, troubles: &[Error]) -> Option<Error> {
    let mut lasting = troubles.iter().filter(|error| !error.is_retriable());
    let is_majority_left = nodes - lasting.clone().count() >= majority(nodes);
    lasting.next().filter(|_| !is_majority_left).cloned()
}

/// Why too few nodes have voted, of those that answered too.
pub(super) fn too_few_votes(voted: usize, nodes: usize, troubles: &[Error]) -> Error {
    few(format!("{voted} of {nodes} servers gave a vote"), nodes, troubles)
}

/// Why too few nodes answered.
pub(super) fn too_few(answered: usize, nodes: usize, troubles: &[Error]) -> Error {
    few(format!("{answered} of {nodes} servers answered"), nodes, troubles)
}

fn few(how_many: String, nodes: usize, troubles: &[Error]) -> Error {
    if let Some(error) = lasting(nodes, troubles) {
        return error;
    }
    let detail = format!("{how_many}, {} must", majority(nodes));
    too_few_because(detail, troubles)
}

/// The same in other words, behind which stands what each server said.
pub(super) fn too_few_because(mut detail: String, troubles: &[Error]) -> Error {
    for (before, error) in troubles.iter().enumerate() {
        let said = |other: &Error| other.detail() == error.detail() && other.kind() == error.kind();
        if !troubles.iter().take(before).any(said) {
            detail += &format!("; {}: {}", error.kind().code(), error.detail());
        }
    }
    Error::new(ErrorKind::NoQuorum, detail)
}

#[cfg(test)]
mod tests;
