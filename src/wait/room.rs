//! Where the threads of a client wait: the queues of all names, and who listens.
//!
//! The first waiter of a queue sleeps by reading the client's wake-up connection itself, so that a
//! message wakes the very thread that it is for. There is one listener at a time, and the others
//! sleep until it, or a release, wakes them. Only a thread whose place is in the store's queue
//! listens: nobody but the store can give it a turn.

#[cfg(all(test, shuttle))]
#[path = "../explore/threads/room.rs"]
mod explored;
#[cfg(test)]
#[cfg(not(shuttle))]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::backoff::Pace;
use super::dating::Dating;
use super::local::LocalQueue;
use super::plan::{Ask, Effects, Ending, Limits, Next, Owe, Turn};
use crate::clock::{Deadline, Moment};
use crate::error::Error;
use crate::grant::{Legacy, Terms};
use crate::store::{Identity, Listener, Notice, Outcome, REFUSED, ServerId, Teller};
use crate::sync::{AtomicUsize, Condvar, Mutex, MutexGuard};
use crate::token::Token;

pub(crate) struct Room {
    limits: Limits,
    /// How many queues there are: a thread that meets nobody locks no mutex.
    occupied: AtomicUsize,
    waiters: Mutex<Waiters>,
    closed: AtomicBool,
    closing: Condvar,
}

#[derive(Default)]
struct Waiters {
    queues: HashMap<Arc<[u8]>, LocalQueue>,
    sleepers: HashMap<u64, Sleeper>,
    last_id: u64,
    listener: Option<u64>,
    opener: Option<u64>,
    /// Threads that sleep and could listen.
    able: BTreeSet<u64>,
    datings: BTreeMap<ServerId, Dating>,
    /// Names for which no wake-up connection could be opened when that was last tried. They hold up
    /// no other name, of which another server may tell.
    unheard: HashMap<Arc<[u8]>, Unheard>,
    /// The log has been told once that a server does not let us listen.
    has_warned: bool,
}

/// A name of which we cannot be told.
struct Unheard {
    /// Not to be tried before.
    again: Moment,
    /// Why the server does not let us listen, if that is what it said.
    refusal: Option<Error>,
}

struct Sleeper {
    condvar: Arc<Condvar>,
    /// Something has happened since it last looked.
    woken: bool,
    /// What comes with a turn that was passed on.
    legacy: Option<Legacy>,
}

/// After a wake-up connection could not be opened.
const REOPEN: Duration = Duration::from_millis(100);

/// A token to be given, with the name that it was for.
pub(crate) type Owing = (Arc<[u8]>, Owe);

/// One thread that waits. It has to leave in the end.
pub(crate) struct Waiter<'a> {
    room: &'a Room,
    name: Arc<[u8]>,
    id: u64,
    condvar: Arc<Condvar>,
}

impl Room {
    pub(crate) fn new(limits: Limits) -> Room {
        let (occupied, waiters, closed, closing) = Default::default();
        Room { limits, occupied, waiters, closed, closing }
    }

    /// Whether a thread waits for the name, or holds it under a grant whose turns pass on.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        self.is_occupied() && self.waiters.lock().queues.contains_key(name)
    }

    fn is_occupied(&self) -> bool {
        self.occupied.load(Ordering::Acquire) > 0
    }

    pub(crate) fn join(
        &self,
        name: &Arc<[u8]>,
        token: Token,
        terms: Terms,
        pace: Pace,
    ) -> Waiter<'_> {
        let mut waiters = self.waiters.lock();
        waiters.last_id += 1;
        let (id, condvar) = (waiters.last_id, Arc::new(Condvar::default()));
        let queue =
            waiters.queues.entry(Arc::clone(name)).or_insert_with(|| LocalQueue::new(self.limits));
        queue.join(id, token, terms, pace);
        self.occupied.store(waiters.queues.len(), Ordering::Release);
        let sleeper = Sleeper { condvar: Arc::clone(&condvar), woken: false, legacy: None };
        waiters.sleepers.insert(id, sleeper);
        Waiter { room: self, name: Arc::clone(name), id, condvar }
    }

    /// A turn has ended; with its legacy, if it ended in time. Says what to send. `look` asks the
    /// store whether it is certain that nobody waits there.
    pub(crate) fn end_turn(
        &self,
        identity: &Identity,
        legacy: Option<Legacy>,
        look: impl FnOnce() -> bool,
        mut now: Moment,
    ) -> Ending {
        if !self.is_occupied() {
            return Ending::ALONE;
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
        let Some(queue) = waiters.queues.get_mut(name) else { return Ending::ALONE };
        let ending = queue.end_turn(*token, *fence, in_time, now);
        let head = queue.standing_head();
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

    /// Why the server of the name does not tell waiters anything, as it said when last asked.
    pub(crate) fn refusal(&self, name: &[u8]) -> Option<Error> {
        self.waiters.lock().refusal(name).cloned()
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

    /// Wakes everybody, for good.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // With the mutex, so that no thread is between reading the flag and sleeping.
        let waiters = self.waiters.lock();
        self.closing.notify_all();
        waiters.sleepers.values().for_each(|sleeper| sleeper.condvar.notify_one());
    }

    fn on_queue(
        &self,
        mut waiters: MutexGuard<'_, Waiters>,
        name: &Arc<[u8]>,
        act: impl FnOnce(&mut LocalQueue) -> Effects,
    ) -> Option<Owing> {
        // Without a queue: an answer that nobody waits for any more is undone all the same.
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
            waiters.unheard.remove(name);
            self.occupied.store(waiters.queues.len(), Ordering::Release);
        }
    }
}

impl Waiters {
    /// When an opening for a name may be tried.
    fn reopen(&self, name: &[u8]) -> Moment {
        self.unheard.get(name).map_or(Moment::ZERO, |unheard| unheard.again)
    }

    fn refusal(&self, name: &[u8]) -> Option<&Error> {
        self.unheard.get(name)?.refusal.as_ref()
    }

    fn wake(&mut self, id: Option<u64>) {
        if let Some(sleeper) = id.and_then(|id| self.sleepers.get_mut(&id)) {
            sleeper.woken = true;
            sleeper.condvar.notify_one();
        }
    }

    /// Wakes another thread to listen, if none does.
    fn nominate(&mut self) {
        if self.listener.is_none() {
            self.wake(self.able.first().copied());
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

impl Waiter<'_> {
    pub(crate) fn next(&self, now: Moment) -> (Next, Option<Legacy>) {
        let mut waiters = self.room.waiters.lock();
        let waiters = &mut *waiters;
        let (Some(queue), Some(sleeper)) =
            (waiters.queues.get_mut(&self.name), waiters.sleepers.get_mut(&self.id))
        else {
            return (Next::Sleep(Moment::NEVER), None);
        };
        sleeper.woken = false;
        let next = queue.next(self.id, now);
        let legacy = sleeper.legacy.take_if(|_| matches!(next, Next::Turn(_)));
        if !matches!(next, Next::Sleep(_)) {
            waiters.nominate();
        }
        (next, legacy)
    }

    /// This thread is about to be busy elsewhere: another one is to listen meanwhile.
    pub(crate) fn step_aside(&self) {
        self.room.waiters.lock().nominate();
    }

    /// Sleeps until a moment, or until there may be something to do; listens meanwhile, if no other
    /// thread does.
    pub(crate) fn sleep(&self, until: Moment, listener: Option<&dyn Listener>, open_by: Deadline) {
        let mut waiters = self.room.waiters.lock();
        let now = Moment::now();
        if self.room.is_closed()
            || waiters.sleepers.get(&self.id).is_none_or(|sleeper| sleeper.woken)
        {
            return;
        }
        let head = waiters.queues.get(&self.name).and_then(LocalQueue::standing_head);
        // Where there is nothing to hear, and will not be, no thread has to be woken to listen.
        let hears = |listener: &&dyn Listener| {
            listener.are_any_open() || waiters.refusal(&self.name).is_none()
        };
        let listener = listener.filter(|listener| head == Some(self.id) && hears(listener));
        let mut until = until;
        if let Some(listener) = listener {
            if !listener.are_open(&self.name) && waiters.opener.is_none() {
                let reopen = waiters.reopen(&self.name);
                if now >= reopen {
                    drop(waiters);
                    return self.open(listener, open_by);
                }
                until = until.min(reopen);
            }
            // Also to messages that are only for others here.
            if waiters.listener.is_none() && listener.are_any_open() {
                waiters.listener = Some(self.id);
                drop(waiters);
                return self.listen(listener, until);
            }
        }
        if listener.is_some() {
            waiters.able.insert(self.id);
        }
        let mut waiters = self.condvar.wait_for(waiters, until.since(now));
        waiters.able.remove(&self.id);
    }

    fn listen(&self, listener: &dyn Listener, until: Moment) {
        let heard = listener.hear(until);
        let mut waiters = self.room.waiters.lock();
        waiters.listener = None;
        let now = Moment::now();
        match heard {
            Ok(notices) => {
                notices.into_iter().for_each(|(by, notice)| waiters.notice(by, notice, now));
            }
            Err(error) => {
                // Waiters that are not told have to ask; so have those that counted on a connection
                // that has ended.
                waiters.reopened(now, |name| !listener.are_all_open(name));
                // With no mutex held: the program's logger may close this very client.
                drop(waiters);
                log::debug!("the wake-up connection: {error}");
            }
        }
    }

    /// Opens the connection on which waiters for the name are told, if that can be had now.
    pub(crate) fn open(&self, listener: &dyn Listener, open_by: Deadline) {
        let mut waiters = self.room.waiters.lock();
        let now = Moment::now();
        let is_early = waiters.opener.is_some() || now < waiters.reopen(&self.name);
        if is_early || self.room.is_closed() || listener.are_open(&self.name) {
            return;
        }
        waiters.opener = Some(self.id);
        let names = waiters.queues.keys().filter(|name| !listener.are_open(name));
        let deaf: HashSet<_> = names.cloned().collect();
        // It may take as long as a server is silent, and this thread was the listener perhaps.
        waiters.nominate();
        drop(waiters);
        let opened = listener.open(&self.name, open_by);
        let mut waiters = self.room.waiters.lock();
        waiters.opener = None;
        let now = Moment::now();
        waiters.nominate();
        match opened {
            Ok(by) => {
                waiters.datings.entry(by).or_default().restart(now);
                waiters.unheard.retain(|name, _| !listener.are_open(name));
                waiters.reopened(now, |name| deaf.contains(name) && listener.are_open(name));
            }
            Err(error) => {
                let is_refusal = !error.is_retriable() && !self.room.is_closed();
                let is_news = is_refusal && !waiters.has_warned;
                waiters.has_warned |= is_refusal;
                // The listener knows for how long it is believed; to ask it costs little.
                let again = now.plus(if is_refusal { REFUSED / 10 } else { REOPEN });
                let refusal = is_refusal.then(|| error.clone());
                waiters.unheard.insert(Arc::clone(&self.name), Unheard { again, refusal });
                drop(waiters);
                let level = if is_news { log::Level::Warn } else { log::Level::Debug };
                log::log!(
                    level,
                    "waiters cannot be told when a lock is theirs, so they ask again and again: {error}"
                );
            }
        }
    }

    /// Leaves the queue: with the turn, if one was given and not fetched.
    pub(crate) fn leave(&self, now: Moment) -> (Option<(Turn, Option<Legacy>)>, Option<Owing>) {
        let mut waiters = self.room.waiters.lock();
        let sleeper = waiters.sleepers.remove(&self.id);
        // It may have panicked as it listened.
        waiters.listener.take_if(|listener| *listener == self.id);
        waiters.opener.take_if(|opener| *opener == self.id);
        waiters.nominate();
        let mut turn = None;
        let owing = self.room.on_queue(waiters, &self.name, |queue| {
            let (left, effects) = queue.leave(self.id, now);
            turn = left;
            effects
        });
        (turn.map(|turn| (turn, sleeper.and_then(|sleeper| sleeper.legacy))), owing)
    }
}
