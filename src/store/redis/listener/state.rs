//! What all threads know of the subscriptions, which only the thread that listens has.

use std::collections::{BTreeMap, BTreeSet};

use super::subscription::Subscription;
use crate::clock::Moment;
use crate::error::Error;
use crate::store::redis::wire::AT_ONCE;
use crate::store::{ServerId, Teller};

/// By this, closing reaches a thread that listens, or connects.
#[derive(Default)]
pub(super) struct State {
    pub(super) closed: bool,
    pub(super) open: BTreeMap<u32, Open>,
    /// Made, and not yet among the others.
    pub(super) made: Vec<Subscription>,
    /// A second handle on the socket of a subscription that is being made.
    pub(super) opening: Option<socket2::Socket>,
    /// Why a subscription has ended, if no thread that listens was told yet.
    pub(super) ended: Option<Error>,
    /// Channels to open on subscriptions that are there: the endpoint's key and the slot.
    pub(super) wanted: Vec<(u32, u16)>,
    /// Why they were not opened.
    pub(super) refused: BTreeMap<(u32, u16), Error>,
    /// Endpoints that are left alone until a moment, and why: their servers let nobody listen, or
    /// are silent. Else each name would find that out for itself, and the names of a silent server
    /// would hold up those of others all the time.
    pub(super) resting: BTreeMap<u32, (Moment, Error)>,
    /// Messages that came while a channel was waited for.
    pub(super) unheard: Vec<(Teller, Vec<u8>)>,
}

pub(super) struct Open {
    pub(super) server: ServerId,
    /// A second handle on its socket.
    pub(super) socket: Option<socket2::Socket>,
    /// The slots whose channels are open; none where it is the client's own.
    pub(super) slots: Option<BTreeSet<u16>>,
}

impl State {
    pub(super) fn server(&self, key: u32, slot: Option<u16>) -> Option<ServerId> {
        let open = self.open.get(&key)?;
        let is_open = match (slot, &open.slots) {
            (None, None) => true,
            (Some(slot), Some(slots)) => slots.contains(&slot),
            _ => false,
        };
        is_open.then_some(open.server)
    }

    /// So much came while a channel was waited for that it has to be heard before more is read.
    pub(super) fn is_full(&self) -> bool {
        self.unheard.iter().map(|(_, payload)| payload.len()).sum::<usize>() > AT_ONCE
    }

    /// Why an endpoint is left alone, if it is.
    pub(super) fn rests(&self, key: u32) -> Option<&Error> {
        let (until, error) = self.resting.get(&key)?;
        (Moment::now() < *until).then_some(error)
    }
}
