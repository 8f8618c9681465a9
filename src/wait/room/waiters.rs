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

    /// When that may be tried again.
    pub(super) fn reopen(&self, name: &[u8]) -> Moment {
        self.unheard.get(name).map_or(Moment::ZERO, |unheard| unheard.again)
    }

    pub(super) fn refusal(&self, name: &[u8]) -> Option<&Error> {
        self.unheard.get(name)?.refusal.as_ref()
    }

    pub(super) fn wake(&mut self, id: Option<u64>) -> Option<Arc<Condvar>> {
        let sleeper = self.sleepers.get_mut(&id?)?;
        sleeper.woken = true;
        Some(Arc::clone(&sleeper.condvar))
    }

    /// Names another thread to listen, if none does.
    pub(super) fn nominate(&mut self) -> Option<Arc<Condvar>> {
        let able = self.able.first().copied().filter(|_| self.listener.is_none());
        self.wake(able)
    }

    /// Every waiter for one of those names has to ask.
    pub(super) fn reopened(
        &mut self,
        now: Moment,
        is_meant: impl Fn(&Arc<[u8]>) -> bool,
    ) -> Vec<Arc<Condvar>> {
        let queues = self.queues.iter_mut().filter(|(name, _)| is_meant(name));
        let effects: Vec<_> = queues.map(|(_, queue)| queue.reopened(now)).collect();
        effects.into_iter().filter_map(|effects| self.wake(effects.wake)).collect()
    }

    pub(super) fn notice(
        &mut self,
        by: Teller,
        notice: Notice,
        now: Moment,
    ) -> Option<Arc<Condvar>> {
        let mut date = |server| {
            let dating = self.datings.get_mut(&by.server)?;
            // The thread that opened the connection may not have come to say so yet.
            dating.restart_by(by.since);
            dating.date(server, now)
        };
        let effects = match notice {
            Notice::Granted { name, token, fence, block, server, span } => {
                let since = date(server);
                self.queues.get_mut(&*name)?.handed(token, (fence, block), since, span, now)
            }
            Notice::Free { name, token } => self.queues.get_mut(&*name)?.freed(token, now),
        };
        self.wake(effects.wake)
    }
}
