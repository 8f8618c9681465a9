//! One extension or one give of a lease on several nodes, counted. Pure, like [`round`](super::round).

use super::round::{majority, too_few};
use crate::clock::Moment;
use crate::error::Error;
use crate::store::Failure;

/// Whether a majority of all nodes had the lease.
///
/// For an extension that is plain. For a give one might say "given" as soon as one node had it,
/// since a node that is down, or that never granted it, need not have it. But then a lease that
/// had run out and that another holds on the other nodes could be called released; and with fewer
/// than a majority of answers nobody knows whether the lock is free. So both need a majority:
/// where one had it until now, nobody else can have had the lock meanwhile; where so many had it
/// not that no majority is left, somebody else can. What lies between is unknown, and is asked
/// again: the second time the nodes that gave it say that it is not ours any more, which the
/// release takes for its own doing if the lease's validity had not ended when it began.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    said: Vec<Option<Said>>,
    sent: Moment,
    troubles: Vec<Error>,
}

/// What one node said to an extension or to a give.
#[derive(Clone, Debug)]
pub(crate) enum Word {
    /// The lease was there, and it is done.
    Done,
    /// It was not.
    NotMine,
    /// It will not answer in time.
    Late,
    /// It did not do it, or nobody knows.
    Failed(Failure),
}

#[derive(Debug)]
pub(crate) enum Count {
    Wait(Tally),
    /// A majority did it.
    Done,
    /// The lease was lost: no majority can have had it.
    NotMine,
    Unknown(Failure),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Said {
    Done,
    NotMine,
    Out { asked: bool },
}

impl Tally {
    /// Of so many nodes, none of which was asked before `sent`.
    pub(crate) fn new(nodes: usize, sent: Moment) -> Tally {
        Tally { said: vec![None; nodes], sent, troubles: Vec::new() }
    }

    /// A node said something, or will not.
    pub(crate) fn heard(mut self, node: usize, word: Word) -> Count {
        let Some(said @ None) = self.said.get_mut(node) else { return Count::Wait(self) };
        *said = Some(match word {
            Word::Done => Said::Done,
            Word::NotMine => Said::NotMine,
            Word::Late => Said::Out { asked: true },
            Word::Failed(failure) => {
                self.troubles.push(failure.error);
                Said::Out { asked: failure.sent.is_some() }
            }
        });
        let count = |wanted| self.said.iter().filter(|said| **said == wanted).count();
        let (done, pending) = (count(Some(Said::Done)), count(None));
        let not_mine = count(Some(Said::NotMine));
        let (nodes, majority) = (self.said.len(), majority(self.said.len()));
        if done >= majority {
            Count::Done
        } else if nodes - not_mine < majority {
            Count::NotMine
        } else if done + pending >= majority || nodes - not_mine - pending < majority {
            Count::Wait(self)
        } else {
            let error = too_few(done + not_mine, nodes, &self.troubles);
            // Some may have done it: then the same request is answered in another way next time.
            let asked = |said: &Option<Said>| {
                matches!(said, None | Some(Said::Done | Said::Out { asked: true }))
            };
            let sent = self.said.iter().any(asked).then_some(self.sent);
            Count::Unknown(Failure { error, sent })
        }
    }
}

#[cfg(test)]
mod tests;
