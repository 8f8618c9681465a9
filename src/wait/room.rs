//! Where the threads of a client wait: the queues of all names, and who listens.
//!
//! The first waiter of a queue sleeps by reading the client's wake-up connection itself, so that a
//! message wakes the very thread that it is for. There is one listener at a time, and the others
//! sleep until it, or a release, wakes them. Only a thread whose place is in the store's queue
//! listens: nobody but the store can give it a turn. For calls that are parked with the
//! [`crew`](super::crew), one of its threads listens.

mod listening;
#[cfg(test)]
mod tests;
mod waiter;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) use self::waiter::{Sleep, Waiter};
use super::backoff::Pace;
use super::crew::Crew;
use super::dating::Dating;
use super::local::LocalQueue;
use super::plan::{Ask, Effects, Ending, Limits, Owe};
use crate::clock::Moment;
use crate::error::Error;
use crate::grant::{StartingValidity, Terms};
use crate::store::{Identity, Notice, Outcome, ServerId, Teller};
use crate::sync::{AtomicUsize, Condvar, Mutex, MutexGuard};
use crate::token::Token;

pub(crate) struct WaitingRoom {
    limits: Limits,
    /// How many queues there are. Read without the mutex: a thread that meets no other one locks
    /// nothing.
    occupied: AtomicUsize,
    waiters: Mutex<Waiters>,
    closed: AtomicBool,
    closing: Condvar,
    /// The threads that go on with parked calls.
    pub(crate) crew: Arc<Crew>,
}

#[derive(Default)]
struct Waiters {
    queues: HashMap<Arc<[u8]>, LocalQueue>,
    sleepers: HashMap<u64, Sleeper>,
    last_id: u64,
    listener: Option<u64>,
    opener: Option<u64>,
    /// Waiters that sleep and could listen instead.
    could_listen: BTreeSet<u64>,
    datings: BTreeMap<ServerId, Dating>,
    /// Names for which the last try to open a wake-up connection failed. Other names are opened all
    /// the same: another server may tell of them.
    failed_openings: HashMap<Arc<[u8]>, FailedOpening>,
    /// The log has been told once that a server does not let us listen.
    has_warned: bool,
}

/// The last try to open the wake-up connection of a name.
struct FailedOpening {
    retry_at: Moment,
    /// The server's error, if it does not let us listen.
    refusal: Option<Error>,
}

struct Sleeper {
    bed: Bed,
    /// Something has happened since it last looked.
    woken: bool,
    /// The validity that comes with a turn that was passed on.
    legacy: Option<StartingValidity>,
}

/// Where a waiter sleeps.
#[derive(Clone)]
enum Bed {
    Thread(Arc<Condvar>),
    /// It is parked, under this number.
    Crew(Arc<Crew>, u64),
}

impl Bed {
    fn is_parked(&self) -> bool {
        matches!(self, Bed::Crew(..))
    }

    fn wake(&self) {
        match self {
            Bed::Thread(condvar) => condvar.notify_one(),
            Bed::Crew(crew, number) => drop(crew.wake(*number, false)),
        }
    }
}

/// A give that is owed, with its name.
pub(crate) type Owing = (Arc<[u8]>, Owe);

impl WaitingRoom {
    pub(crate) fn new(limits: Limits, crew: Crew) -> WaitingRoom {
        let (occupied, waiters, closed, closing) = Default::default();
        WaitingRoom { limits, occupied, waiters, closed, closing, crew: Arc::new(crew) }
    }

    /// Whether a thread waits for the name, or holds it under a grant whose turns pass on.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        self.is_occupied() && self.waiters.lock().queues.contains_key(name)
    }

    /// Whether a thread waits, or turns pass on.
    pub(crate) fn is_occupied(&self) -> bool {
        self.occupied.load(Ordering::Acquire) > 0
    }

    /// A thread joins the queue of a name, or a call that is parked under a number.
    pub(crate) fn join(
        &self,
        name: &Arc<[u8]>,
        token: Token,
        terms: Terms,
        pace: Pace,
        parked: Option<u64>,
    ) -> Waiter {
        let bed = match parked {
            None => Bed::Thread(Arc::default()),
            Some(number) => Bed::Crew(Arc::clone(&self.crew), number),
        };
        let mut waiters = self.waiters.lock();
        waiters.last_id += 1;
        let id = waiters.last_id;
        let queue =
            waiters.queues.entry(Arc::clone(name)).or_insert_with(|| LocalQueue::new(self.limits));
        queue.join(id, token, terms, pace);
        self.occupied.store(waiters.queues.len(), Ordering::Release);
        let sleeper = Sleeper { bed: bed.clone(), woken: false, legacy: None };
        waiters.sleepers.insert(id, sleeper);
        Waiter { name: Arc::clone(name), id, bed }
    }

    /// A turn has ended; with its legacy, if it ended in time. Says what to send. `look` asks the
    /// store whether it is certain that nobody waits there.
    pub(crate) fn end_turn(
        &self,
        identity: &Identity,
        legacy: Option<StartingValidity>,
        look: impl FnOnce() -> bool,
        mut now: Moment,
    ) -> Ending {
        if !self.is_occupied() {
            return Ending::TO_STORE;
        }
        let Identity { name, token, fence, .. } = identity;
        let in_time = legacy.is_some();
        let has_to_look = |queue: &LocalQueue| queue.has_to_look(*token, *fence, in_time);
        let mut waiters = self.waiters.lock();
        if waiters.queues.get(name).is_some_and(has_to_look) {
            drop(waiters);
            let nobody_waits = look();
            now = Moment::now();
            waiters = self.waiters.lock();
            if nobody_waits && let Some(queue) = waiters.queues.get_mut(name) {
                queue.nobody_waits(*token);
            }
        }
        let Some(queue) = waiters.queues.get_mut(name) else { return Ending::TO_STORE };
        let ending = queue.end_turn(*token, *fence, in_time, now);
        let head = queue.only_store_can_wake();
        match ending {
            Ending::Passed(id) => {
                if let Some(sleeper) = waiters.sleepers.get_mut(&id) {
                    sleeper.legacy = legacy;
                }
                waiters.wake(Some(id));
            }
            Ending::Give { .. } => waiters.wake(head),
        }
        self.tidy(&mut waiters, &identity.name);
        ending
    }

    pub(crate) fn answered(
        &self,
        name: &Arc<[u8]>,
        ask: &Ask,
        outcome: &Outcome,
        now: Moment,
    ) -> Option<Owing> {
        let mut waiters = self.waiters.lock();
        if let Ok(answer) = outcome
            && let Some(dating) = waiters.datings.get_mut(&answer.by)
        {
            dating.sample(answer.sent, answer.server);
        }
        self.on_queue(waiters, name, |queue| match outcome {
            Ok(answer) => queue.answered(ask, answer, now),
            Err(failure) => queue.failed(ask, failure.sent, now),
        })
    }

    /// What a look showed of the lock that a token waits for. The thread that looked goes on.
    pub(crate) fn seen(&self, name: &[u8], token: Token, since: Moment, free_in: Duration) {
        if let Some(queue) = self.waiters.lock().queues.get_mut(name) {
            queue.seen(token, since, free_in, Moment::now());
        }
    }

    pub(crate) fn lost(&self, identity: &Identity, now: Moment) -> Option<Owing> {
        let waiters = self.waiters.lock();
        self.on_queue(waiters, &identity.name, |queue| queue.lost(identity.token, now))
    }

    /// The turn is over and the lock stays taken.
    pub(crate) fn left_taken(&self, identity: &Identity) {
        let waiters = self.waiters.lock();
        self.on_queue(waiters, &identity.name, |queue| Effects {
            wake: queue.left_taken(identity.token),
            owe: None,
        });
    }

    /// How many wait for each name.
    pub(crate) fn count_waiters(&self) -> Vec<(Arc<[u8]>, usize)> {
        if !self.is_occupied() {
            return Vec::new();
        }
        let waiters = self.waiters.lock();
        waiters.queues.iter().map(|(name, queue)| (Arc::clone(name), queue.length())).collect()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Pauses until a moment, or until the client is closed.
    pub(crate) fn pause(&self, until: Moment) {
        let mut waiters = self.waiters.lock();
        loop {
            let left = until.since(Moment::now());
            if left.is_zero() || self.is_closed() {
                return;
            }
            waiters = self.closing.wait_for(waiters, left);
        }
    }

    /// Wakes all waiters, for good.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // With the mutex, so that no thread is between reading the flag and sleeping.
        let waiters = self.waiters.lock();
        self.closing.notify_all();
        waiters.sleepers.values().for_each(|sleeper| sleeper.bed.wake());
        drop(waiters);
        self.crew.close();
    }

    fn on_queue(
        &self,
        mut waiters: MutexGuard<'_, Waiters>,
        name: &Arc<[u8]>,
        act: impl FnOnce(&mut LocalQueue) -> Effects,
    ) -> Option<Owing> {
        // Without a queue: an answer for which no thread waits any more is undone all the same.
        let effects = match waiters.queues.get_mut(name) {
            Some(queue) => act(queue),
            None => act(&mut LocalQueue::new(self.limits)),
        };
        waiters.wake(effects.wake);
        self.tidy(&mut waiters, name);
        effects.owe.map(|owe| (Arc::clone(name), owe))
    }

    fn tidy(&self, waiters: &mut Waiters, name: &[u8]) {
        if waiters.queues.get(name).is_some_and(LocalQueue::is_empty) {
            waiters.queues.remove(name);
            waiters.failed_openings.remove(name);
            self.occupied.store(waiters.queues.len(), Ordering::Release);
        }
    }
}

impl Waiters {
    fn refusal(&self, name: &[u8]) -> Option<&Error> {
        self.failed_openings.get(name)?.refusal.as_ref()
    }

    fn wake(&mut self, id: Option<u64>) {
        if let Some(sleeper) = id.and_then(|id| self.sleepers.get_mut(&id)) {
            sleeper.woken = true;
            sleeper.bed.wake();
        }
    }

    /// Wakes another thread to listen, if none does.
    fn nominate(&mut self) {
        if self.listener.is_none() {
            self.wake(self.could_listen.first().copied());
        }
    }

    fn reopened(&mut self, now: Moment, is_meant: impl Fn(&Arc<[u8]>) -> bool) {
        let queues = self.queues.iter_mut().filter(|(name, _)| is_meant(name));
        let heads: Vec<_> = queues.map(|(_, queue)| queue.reopened(now)).collect();
        heads.into_iter().for_each(|head| self.wake(head));
    }

    fn notice(&mut self, by: Teller, notice: Notice, now: Moment) {
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
