//! One extension or one give of a lease on several nodes, counted. Pure, like [`round`](super::round).

use super::round::Said;
use super::round::{Vote, majority, too_few};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::store::Failure;

/// Whether a majority of all nodes had the lease.
///
/// For an extension that is plain. A give could count as done as soon as one node had the lease,
/// since a node that is down, or that never granted it, need not have it. But then a lease that had
/// run out, and that another client holds on the other nodes, could be called released; and with
/// fewer answers than a majority nobody knows whether the lock is free. So both need a majority.
/// Where a majority had the lease until now, no other client can have had the lock meanwhile. Where
/// no majority can have had it, another can. Between the two the outcome is unknown, and the
/// request is sent again. The nodes that gave the lease then say that it is not ours any more; the
/// release takes that for its own doing if the lease's validity had not ended when it began.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    nodes: Vec<NodeState>,
    sent: Moment,
    troubles: Vec<Error>,
}

#[derive(Debug)]
pub(crate) enum Verdict {
    /// A majority did it.
    Done,
    /// The lease was lost: no majority can have had it.
    NotMine,
    Unknown(Failure),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NodeState {
    /// Nothing has come yet.
    Asked,
    Done,
    NotMine,
    /// `asked`: it may have done what was asked, or may do it yet.
    Out {
        asked: bool,
    },
}

impl Tally {
    /// Of `nodes` nodes, none of which was asked before `sent`.
    pub(crate) fn new(nodes: usize, sent: Moment) -> Tally {
        Tally { nodes: vec![NodeState::Asked; nodes], sent, troubles: Vec::new() }
    }

    /// A node said something, or will not. Answers once that decides it.
    pub(crate) fn heard(&mut self, node: usize, vote: Vote) -> Option<Verdict> {
        let state = self.nodes.get_mut(node).filter(|state| **state == NodeState::Asked)?;
        *state = match vote {
            Some(Ok(Said::Extended | Said::Given)) => NodeState::Done,
            Some(Ok(Said::Quarantined { left })) => {
                let detail = format!("it lost its data, and has no vote for {left:?}");
                self.troubles.push(Error::new(ErrorKind::Unavailable, detail));
                NodeState::Out { asked: false }
            }
            Some(Ok(_)) => NodeState::NotMine,
            Some(Err(failure)) => {
                self.troubles.push(failure.error);
                NodeState::Out { asked: failure.sent.is_some() }
            }
            None => NodeState::Out { asked: true },
        };
        let count = |wanted| self.nodes.iter().filter(|state| **state == wanted).count();
        let (done, pending) = (count(NodeState::Done), count(NodeState::Asked));
        let not_mine = count(NodeState::NotMine);
        let (nodes, majority) = (self.nodes.len(), majority(self.nodes.len()));
        if done >= majority {
            return Some(Verdict::Done);
        }
        if nodes - not_mine < majority {
            return Some(Verdict::NotMine);
        }
        if done + pending >= majority || nodes - not_mine - pending < majority {
            return None;
        }
        let error = too_few(done + not_mine, nodes, &self.troubles);
        // Some may have done it: then the same request is answered in another way next time.
        let may_have = |state: &NodeState| {
            !matches!(state, NodeState::NotMine | NodeState::Out { asked: false })
        };
        let sent = self.nodes.iter().any(may_have).then_some(self.sent);
        Some(Verdict::Unknown(Failure { error, sent }))
    }
}

#[cfg(test)]
mod tests;
