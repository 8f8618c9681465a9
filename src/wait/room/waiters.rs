//! What the threads of a client share while they wait.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::clock::Moment;
use crate::error::Error;
use crate::grant::Legacy;
use crate::store::{Notice, ServerId, Teller};
use crate::sync::Condvar;
use crate::wait::dating::Dating;
use crate::wait::local::LocalQueue;

#[derive(Default)]
pub(super) struct Waiters {
    pub(super) queues: HashMap<Arc<[u8]>, LocalQueue>,
    pub(super) sleepers: HashMap<u64, Sleeper>,
    pub(super) last_id: u64,
    /// The thread that reads the wake-up connections.
    pub(super) listener: Option<u64>,
    /// The thread that opens one.
    pub(super) opener: Option<u64>,
    /// Threads that sleep and could listen.
    pub(super) able: BTreeSet<u64>,
    pub(super) datings: BTreeMap<ServerId, Dating>,
    /// Names for which it could not be opened when that was last tried. They hold up no other name,
    /// which another server may tell of.
    pub(super) unheard: HashMap<Arc<[u8]>, Unheard>,
    /// The log has been told once that a server does not let us listen.
    pub(super) has_warned: bool,
    pub(super) closed: bool,
}

/// A name of which we cannot be told.
pub(super) struct Unheard {
    /// Not to be tried before.
    pub(super) again: Moment,
    /// Why the server does not let us listen, if that is what it said.
    pub(super) refusal: Option<Error>,
}

pub(super) struct Sleeper {
    pub(super) condvar: Arc<Condvar>,
    /// Something has happened since it last looked.
    pub(super) woken: bool,
    /// What comes with a turn that was passed on.
    pub(super) legacy: Option<Legacy>,
}

impl Waiters {
    /// Whether an opening for a name may be tried at this moment.
    pub(super) fn may_open(&self, name: &[u8], now: Moment) -> bool {
        self.opener.is_none() && now >= self.reopen(name)
    }

    pub(super) fn reopen(&self, name: &[u8]) -> Moment {
        self.unheard.get(name).map_or(Moment::ZERO, |unheard| unheard.again)
    }

    pub(super) fn refusal(&self, name: &[u8]) -> Option<&Error> {
        self.unheard.get(name)?.refusal.as_ref()
    }

    pub(super) fn wake(&mut self, id: Option<u64>) {
        if let Some(sleeper) = id.and_then(|id| self.sleepers.get_mut(&id)) {
            sleeper.woken = true;
            sleeper.condvar.notify_one();
        }
    }

    /// Wakes another thread to listen, if none does.
    pub(super) fn nominate(&mut self) {
        if self.listener.is_none() {
            self.wake(self.able.first().copied());
        }
    }

    /// Every waiter for one of those names has to ask.
    pub(super) fn reopened(&mut self, now: Moment, is_meant: impl Fn(&Arc<[u8]>) -> bool) {
        let queues = self.queues.iter_mut().filter(|(name, _)| is_meant(name));
        let heads: Vec<_> = queues.map(|(_, queue)| queue.reopened(now)).collect();
        heads.into_iter().for_each(|head| self.wake(head));
    }

    pub(super) fn notice(&mut self, by: Teller, notice: Notice, now: Moment) {
        let (Notice::Granted { name, .. } | Notice::Free { name, .. }) = &notice;
        let Some(queue) = self.queues.get_mut(&**name) else { return };
        let head = match notice {
            Notice::Granted { token, fence, block, server, span, .. } => {
                let since = self.datings.get_mut(&by.server).and_then(|dating| {
                    // The thread that opened the connection may not have come to say so yet.
                    dating.restart(by.since);
                    dating.date(server, now)
                });
                queue.handed(token, (fence, block), since, span, now)
            }
            Notice::Free { token, .. } => queue.freed(token, now),
        };
        self.wake(head);
    }
}
