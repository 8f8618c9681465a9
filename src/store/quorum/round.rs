//! One attempt to take a lock on several nodes.
//!
//! No I/O, no threads and no clock of its own: what the nodes said goes in, one at a time and in
//! any order, and what to do comes out. Each step consumes the round, so that nothing can be asked
//! of one that is decided. Whatever a node says twice counts once.
//!
//! A round is decided as soon as nothing that may still come could change its verdict. Feed what
//! has arrived already before waiting for more; nothing else is gained by waiting.

use std::time::Duration;

use crate::clock::Moment;
use crate::config::drift;
use crate::error::{Error, ErrorKind};
use crate::store::Failure;

/// One attempt.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    seats: Vec<Seat>,
    /// Once the others are told to raise: to which fence.
    raised_to: Option<u64>,
    sent: Moment,
    /// The end of the validity that it would have.
    until: Moment,
    troubles: Vec<Error>,
}

/// What one node said.
#[derive(Clone, Debug)]
pub(crate) enum Vote {
    /// The key is this attempt's there, under this fence.
    Granted { fence: u64 },
    /// Somebody else has it there, for so long at most. `holder` tells holders apart; `rank` stand
    /// before us in the node's own queue.
    Busy { free_in: Duration, holder: u64, rank: u32 },
    /// It lost its data, and grants nothing for so long.
    Quarantined { left: Duration },
    /// To a raise: done.
    Raised,
    /// To a raise: the key is not this attempt's any more, or a larger fence was stored.
    NotMine,
    /// It will not answer in time.
    Late,
    /// It did not do it, or nobody knows.
    Failed(Failure),
}

/// What to do now.
#[derive(Debug)]
pub(crate) enum Step {
    Wait(Round),
    /// Tell these nodes to raise to this fence, and go on with the round.
    Raise {
        round: Round,
        fence: u64,
        nodes: Vec<usize>,
    },
    Done(Verdict),
}

#[derive(Debug)]
pub(crate) enum Verdict {
    /// The lock is ours under this fence. Its validity counts from `sent`, before the first node
    /// was asked.
    Granted { fence: u64, sent: Moment },
    /// It is not, and never will be by this attempt. `give` are the nodes on which the attempt has
    /// to be given up: all that it was sent to, whether they have answered or not. Of these,
    /// `busy` have said that another has it, so that the only thing to give up there is a place
    /// among the waiters.
    Refused { why: Why, give: Vec<usize>, busy: Vec<usize> },
}

#[derive(Debug)]
pub(crate) enum Why {
    /// A majority voted, and not for us.
    Busy {
        /// Before this is over, counted from the first send, no majority is free, unless somebody
        /// gives up what he has.
        free_in: Duration,
        /// Nobody else was seen to have a majority. He may have none, so that those who want the
        /// lock must ask again, each after a delay of its own.
        contested: bool,
        /// How many stand before us on the node where most do.
        rank: u32,
    },
    /// Too few nodes could vote.
    NoQuorum(Error),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Seat {
    /// Nothing has come yet.
    Asked,
    Granted(u64),
    /// It granted less than the fence, and was told to raise.
    Raising,
    Raised,
    /// It granted, and then it was not ours any more.
    Gone,
    Busy {
        free_in: Duration,
        holder: u64,
        rank: u32,
    },
    Quarantined(Duration),
    /// What it has to say does not count any more. `asked`: it may have done what was asked, or may
    /// do it yet.
    Out {
        asked: bool,
    },
}

impl Round {
    /// An attempt for a lock with this ttl on so many nodes, each of which either is asked, not
    /// before `sent`, or is said to have [failed](Vote::Failed).
    pub(crate) fn new(nodes: usize, sent: Moment, ttl: Duration) -> Round {
        Round {
            seats: vec![Seat::Asked; nodes],
            raised_to: None,
            sent,
            until: sent.plus(ttl).minus(drift(ttl)),
            troubles: Vec::new(),
        }
    }

    /// A node said something, or will not.
    pub(crate) fn heard(mut self, node: usize, vote: Vote, now: Moment) -> Step {
        let Some(seat) = self.seats.get(node).copied() else { return Step::Wait(self) };
        let heard = match (seat, vote) {
            (Seat::Asked, Vote::Granted { fence }) => Seat::Granted(fence),
            (Seat::Asked, Vote::Busy { free_in, holder, rank }) => {
                Seat::Busy { free_in, holder, rank }
            }
            (Seat::Asked, Vote::Quarantined { left }) => Seat::Quarantined(left),
            (Seat::Raising, Vote::Raised) => Seat::Raised,
            // One that has lost its data meanwhile knows nothing of us either.
            (Seat::Raising, Vote::NotMine | Vote::Quarantined { .. }) => Seat::Gone,
            (Seat::Asked | Seat::Raising, Vote::Late) => Seat::Out { asked: true },
            (Seat::Asked | Seat::Raising, Vote::Failed(failure)) => {
                self.troubles.push(failure.error);
                Seat::Out { asked: seat == Seat::Raising || failure.sent.is_some() }
            }
            // Said before, or too late: what came after the largest grant was chosen may be larger.
            _ => return Step::Wait(self),
        };
        self.seats[node] = heard;
        match self.raised_to {
            None => self.gather(now),
            Some(fence) => self.confirm(fence, now),
        }
    }

    fn gather(self, now: Moment) -> Step {
        let (granted, pending) = (self.count(Seat::is_granted), self.count(Seat::is_asked));
        if granted < self.majority() {
            return if granted + pending < self.majority() {
                self.refuse()
            } else {
                Step::Wait(self)
            };
        }
        let fence = self.seats.iter().filter_map(Seat::fence).max().unwrap_or(0);
        let confirmed = self.count(|seat| seat.fence() == Some(fence));
        if confirmed >= self.majority() {
            return self.succeed(fence, now);
        }
        // A fence that a majority has granted needs no second round trip. That can still be this
        // one, or a larger one that all the missing nodes grant; if there are too few of them for
        // that, waiting would only make the second round later. Safe is either: all that counts is
        // that nothing is added to the grants of which the largest was chosen.
        if confirmed + pending >= self.majority() {
            return Step::Wait(self);
        }
        self.raise(fence, now)
    }

    fn raise(mut self, fence: u64, now: Moment) -> Step {
        if now >= self.until {
            return self.too_late();
        }
        let mut nodes = Vec::new();
        for (node, seat) in self.seats.iter_mut().enumerate() {
            match seat {
                Seat::Granted(granted) if *granted < fence => {
                    *seat = Seat::Raising;
                    nodes.push(node);
                }
                Seat::Asked => *seat = Seat::Out { asked: true },
                _ => {}
            }
        }
        self.raised_to = Some(fence);
        Step::Raise { round: self, fence, nodes }
    }

    fn confirm(self, fence: u64, now: Moment) -> Step {
        let confirmed = self.count(|seat| matches!(seat, Seat::Granted(_) | Seat::Raised));
        if confirmed >= self.majority() {
            self.succeed(fence, now)
        } else if confirmed + self.count(|seat| *seat == Seat::Raising) < self.majority() {
            self.refuse()
        } else {
            Step::Wait(self)
        }
    }

    fn succeed(self, fence: u64, now: Moment) -> Step {
        if now >= self.until {
            return self.too_late();
        }
        Step::Done(Verdict::Granted { fence, sent: self.sent })
    }

    fn too_late(self) -> Step {
        let error = Error::new(ErrorKind::NoQuorum, "granted too late to rely on it");
        self.refused(Why::NoQuorum(error))
    }

    /// It cannot succeed any more. Whether the lock is taken or the nodes are down may still hang
    /// on those that have not answered: to the caller that is the difference between "not now" and
    /// an error, and worth the wait.
    fn refuse(self) -> Step {
        let (voted, pending) = (self.count(Seat::has_voted), self.count(Seat::is_asked));
        if voted >= self.majority() {
            let why = self.busy();
            self.refused(why)
        } else if voted + pending < self.majority() {
            let error = self.no_quorum(voted);
            self.refused(Why::NoQuorum(error))
        } else {
            Step::Wait(self)
        }
    }

    fn refused(self, why: Why) -> Step {
        let chosen = |wanted: fn(&Seat) -> bool| {
            let seats = self.seats.iter().enumerate();
            seats.filter(|(_, seat)| wanted(seat)).map(|(node, _)| node).collect()
        };
        let give = chosen(|seat| *seat != Seat::Out { asked: false });
        let busy = chosen(|seat| matches!(seat, Seat::Busy { .. }));
        Step::Done(Verdict::Refused { why, give, busy })
    }

    fn busy(&self) -> Why {
        let mut free: Vec<_> = self.seats.iter().map(Seat::free_in).collect();
        free.sort_unstable();
        let free_in = free.get(self.majority() - 1).copied().unwrap_or(Duration::MAX);
        let holders = || {
            self.seats.iter().filter_map(|seat| match seat {
                Seat::Busy { holder, rank, .. } => Some((*holder, *rank)),
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
        let left = self.seats.iter().filter_map(|seat| match seat {
            Seat::Quarantined(left) => Some(*left),
            _ => None,
        });
        let lost = left.clone().count();
        let mut troubles = self.troubles.clone();
        if let Some(longest) = left.max() {
            let detail = format!("data was lost on {lost}, which grant nothing for {longest:?}");
            let error = Error::new(ErrorKind::Unavailable, detail);
            if voted + lost >= majority(self.seats.len()) {
                // They are there, and it is only a matter of time.
                return error;
            }
            troubles.push(error);
        }
        too_few(voted, self.seats.len(), &troubles)
    }

    fn majority(&self) -> usize {
        majority(self.seats.len())
    }

    fn count(&self, wanted: impl Fn(&Seat) -> bool) -> usize {
        self.seats.iter().filter(|seat| wanted(seat)).count()
    }
}

impl Seat {
    fn is_asked(&self) -> bool {
        *self == Seat::Asked
    }

    fn is_granted(&self) -> bool {
        self.fence().is_some() || matches!(self, Seat::Raising | Seat::Raised)
    }

    fn fence(&self) -> Option<u64> {
        match self {
            Seat::Granted(fence) => Some(*fence),
            _ => None,
        }
    }

    /// For us or for another.
    fn has_voted(&self) -> bool {
        self.is_granted() || matches!(self, Seat::Busy { .. } | Seat::Gone)
    }

    /// What we have there is given up; where nothing is known of a node, it may never be free.
    fn free_in(&self) -> Duration {
        match self {
            Seat::Granted(_) | Seat::Raising | Seat::Raised | Seat::Gone => Duration::ZERO,
            Seat::Busy { free_in, .. } => *free_in,
            Seat::Quarantined(left) => *left,
            Seat::Asked | Seat::Out { .. } => Duration::MAX,
        }
    }
}

/// More than half of *all* nodes, whether they are there or not: any two majorities have a node in
/// common.
pub(super) fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// Why so few nodes had anything to say.
pub(super) fn too_few(voted: usize, nodes: usize, troubles: &[Error]) -> Error {
    let lasting = || troubles.iter().filter(|error| !error.is_retriable());
    if nodes - lasting().count() < majority(nodes)
        && let Some(error) = lasting().next()
    {
        // Whatever becomes of the others, there will never be a majority.
        return error.clone();
    }
    let mut detail = format!("{voted} of {nodes} nodes answered, {} must", majority(nodes));
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
