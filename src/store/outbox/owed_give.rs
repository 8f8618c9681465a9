//! One owed give: what is known of it, and how its copies go out and are answered.

use super::{Concern, ConnectionId, GiveCopy};
use crate::clock::Moment;
use crate::store::{Failure, Outcome, Owed};

/// See [the life of an owed give](super).
pub(super) struct OwedGive {
    pub(super) id: u64,
    pub(super) owed: Owed,
    pub(super) concern: Concern,
    pub(super) delivery: Delivery,
    /// How often all of its copies were answered and nothing was confirmed.
    pub(super) tries: u32,
    /// A server said of the last answered copy that it did not carry it out, and may do so later or
    /// elsewhere.
    pub(super) was_not_done: bool,
    /// A server said that the token does not have the lock.
    pub(super) was_not_ours: bool,
}

pub(super) enum Delivery {
    /// It is to be sent, at this moment or in front of a take.
    Waiting { due: Moment },
    /// So many copies, one at least, were written and not answered; the last one on a connection, or
    /// by the keeper.
    Written { copies: u32, on: Option<ConnectionId> },
}

impl OwedGive {
    pub(super) fn new(owed: Owed, concern: Concern, delivery: Delivery) -> OwedGive {
        let (id, tries, was_not_done, was_not_ours) = Default::default();
        OwedGive { id, owed, concern, delivery, tries, was_not_done, was_not_ours }
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.delivery, Delivery::Waiting { .. })
    }

    /// When it is to be sent, if it waits for that.
    pub(super) fn due(&self) -> Moment {
        match self.delivery {
            Delivery::Waiting { due } => due,
            Delivery::Written { .. } => Moment::NEVER,
        }
    }

    /// The connection on which its last copy is unread.
    pub(super) fn last_on(&self) -> Option<ConnectionId> {
        match self.delivery {
            Delivery::Waiting { .. } => None,
            Delivery::Written { on, .. } => on,
        }
    }

    /// One copy was answered. Returns how many others are unread; `None` if none was under way.
    pub(super) fn copy_answered(
        &mut self,
        on: Option<ConnectionId>,
        outcome: &Outcome,
    ) -> Option<u32> {
        let Delivery::Written { copies, on: last_on } = &mut self.delivery else { return None };
        *copies -= 1;
        if *last_on == on {
            *last_on = None;
        }
        // Requests behind this copy found the lock taken, even if another copy releases it.
        self.was_not_done = matches!(outcome, Err(Failure { sent: None, error })
            if error.is_retriable() && (on.is_some() || error.kind().is_not_now()));
        Some(*copies)
    }

    /// The store has forgotten its token, and no outcome has to be told.
    pub(super) fn is_pointless(&self, now: Moment) -> bool {
        let is_one_of_several = matches!(self.concern, Concern::AnyReply | Concern::Part);
        let was_tried = self.tries > 0 || is_one_of_several;
        let is_told = self.concern != Concern::Release;
        self.is_waiting() && was_tried && is_told && self.owed.until <= now
    }

    pub(super) fn send(&mut self, on: Option<ConnectionId>) -> GiveCopy {
        let unread = match self.delivery {
            Delivery::Waiting { .. } => 0,
            Delivery::Written { copies, .. } => copies,
        };
        self.delivery = Delivery::Written { copies: unread + 1, on };
        self.was_not_done = false;
        GiveCopy { id: self.id, identity: self.owed.identity.clone() }
    }
}
