//! One extension or one give of a lease on several nodes, counted. Pure, like [`round`](super::round).

use super::round::NodeState::{self, Asked, Heard, Out};
use super::round::{Said, Vote, lasting, majority, too_few_because, too_few_votes};
use crate::clock::Moment;
use crate::config::spoken_left;
use crate::error::{Error, ErrorKind};
use crate::store::Failure;

/// Whether a majority of all nodes had the lease.
///
/// A give needs that too: if one node were enough, a lease that had run out, and that another client
/// holds on the other nodes, could be called released. Where the outcome is unknown the request is
/// sent again. The nodes that gave the lease then say that it is not ours any more; the release takes
/// that for its own doing if the lease's validity had not ended when it began.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    nodes: Vec<NodeState>,
    sent: Moment,
    troubles: Vec<Error>,
}

#[derive(Debug)]
pub(crate) enum Verdict {
    Done,
    /// No majority can have had it.
    NotMine,
    Unknown(Failure),
}

impl Tally {
    /// Of `nodes` nodes, none of which was asked before `sent`.
    pub(crate) fn new(nodes: usize, sent: Moment) -> Tally {
        Tally { nodes: vec![Asked; nodes], sent, troubles: Vec::new() }
    }

    /// Answers once that decides it.
    pub(crate) fn heard(&mut self, node: usize, vote: Vote) -> Option<Verdict> {
        let state = self.nodes.get_mut(node).filter(|state| **state == Asked)?;
        *state = match vote {
            Some(Ok(Said::Quarantined { left })) => {
                let left = spoken_left(left);
                let detail = format!("it lost its data, and has no vote for {left}");
                self.troubles.push(Error::new(ErrorKind::Unavailable, detail));
                Out { asked: false }
            }
            Some(Ok(said)) => Heard(said),
            Some(Err(failure)) => {
                self.troubles.push(failure.error);
                Out { asked: failure.sent.is_some() }
            }
            None => Out { asked: true },
        };
        let is_done = |state: &&NodeState| matches!(state, Heard(Said::Extended | Said::Given));
        let done = self.nodes.iter().filter(is_done).count();
        let pending = self.nodes.iter().filter(|state| **state == Asked).count();
        let voted = self.nodes.iter().filter(|state| matches!(state, Heard(_))).count();
        let (nodes, majority, not_mine) =
            (self.nodes.len(), majority(self.nodes.len()), voted - done);
        if done >= majority {
            return Some(Verdict::Done);
        }
        if nodes - not_mine < majority {
            return Some(Verdict::NotMine);
        }
        if done + pending >= majority || nodes - not_mine - pending < majority {
            return None;
        }
        let error = match lasting(nodes, &self.troubles) {
            Some(error) => error,
            // Most have voted, and not alike.
            None if voted >= majority => {
                let detail = format!(
                    "{done} of {nodes} servers had the lease, {not_mine} had not, and {} gave no \
                     vote; {majority} must have it",
                    nodes - voted
                );
                too_few_because(detail, &self.troubles)
            }
            None => too_few_votes(voted, nodes, &self.troubles),
        };
        // Some may have done it: then the same request is answered in another way next time.
        let may_have = |state| is_done(&state) || matches!(state, Asked | Out { asked: true });
        let sent = self.nodes.iter().any(may_have).then_some(self.sent);
        Some(Verdict::Unknown(Failure { error, sent }))
    }
}

#[cfg(test)]
mod tests;
