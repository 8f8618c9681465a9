//! What is known of the lines to whoever does not have them.

use std::collections::{BTreeMap, BTreeSet};

use super::line::Line;
use crate::clock::Moment;
use crate::error::Error;
use crate::store::redis::wire::AT_ONCE;
use crate::store::{ServerId, Teller};

/// What is known of the lines while somebody else has them. By this, closing reaches a thread that
/// listens, or connects.
#[derive(Default)]
pub(super) struct Board {
    pub(super) closed: bool,
    pub(super) open: BTreeMap<u32, Open>,
    /// Made, and not yet among the others.
    pub(super) arrivals: Vec<Line>,
    /// A second handle on the socket of a line that is being made.
    pub(super) opening: Option<socket2::Socket>,
    /// Why lines have ended of which nobody was told.
    pub(super) trouble: Option<Error>,
    /// Channels that are wanted on lines that somebody else has, or had: the line's key and the
    /// slot.
    pub(super) wishes: Vec<(u32, u16)>,
    /// Why there are none.
    pub(super) refused: Vec<(u32, u16, Error)>,
    /// Places that are left alone until a moment, and why: their servers let nobody listen, or are
    /// silent. Each name that is told there would have to find out for itself, and those of a
    /// silent one would keep the names of others waiting all the time.
    pub(super) resting: BTreeMap<u32, (Moment, Error)>,
    /// Messages that came while a channel was waited for.
    pub(super) early: Vec<(Teller, Vec<u8>)>,
}

pub(super) struct Open {
    pub(super) server: ServerId,
    /// A second handle on its socket.
    pub(super) socket: Option<socket2::Socket>,
    /// The slots whose channels are open; none where it is the client's own.
    pub(super) slots: Option<BTreeSet<u16>>,
}

impl Board {
    pub(super) fn server(&self, key: u32, slot: Option<u16>) -> Option<ServerId> {
        let open = self.open.get(&key)?;
        let is_open = match (slot, &open.slots) {
            (None, None) => true,
            (Some(slot), Some(slots)) => slots.contains(&slot),
            _ => false,
        };
        is_open.then_some(open.server)
    }

    /// So much came while a channel was waited for that somebody has to hear it before more is read.
    pub(super) fn is_full(&self) -> bool {
        self.early.iter().map(|(_, payload)| payload.len()).sum::<usize>() > AT_ONCE
    }

    /// Why a place is left alone, if it is.
    pub(super) fn rests(&self, key: u32) -> Option<&Error> {
        let (until, error) = self.resting.get(&key)?;
        (Moment::now() < *until).then_some(error)
    }
}
