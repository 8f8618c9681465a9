//! One waiter: what it does next, how it sleeps, and whether it listens meanwhile.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::{Bed, FailedOpening, Owing, Waiters, WaitingRoom};
use crate::clock::{Deadline, Moment};
use crate::error::Error;
use crate::grant::StartingValidity;
use crate::said::say;
use crate::store::{Listener, REFUSED};
use crate::sync::MutexGuard;
use crate::wait::local::LocalQueue;
use crate::wait::plan::{Next, Turn};

/// The pause after a wake-up connection could not be opened.
pub(super) const REOPEN: Duration = Duration::from_millis(100);

/// How long a parked call may sleep, and whether a thread of the crew is to listen for it.
pub(crate) struct Sleep {
    pub(crate) until: Moment,
    /// No thread reads the wake-up connections.
    pub(crate) needs_listener: bool,
}

/// One thread that waits, or one call that is parked. It has to leave in the end.
pub(crate) struct Waiter {
    pub(super) name: Arc<[u8]>,
    pub(super) id: u64,
    pub(super) bed: Bed,
}

impl Waiter {
    pub(crate) fn next(&self, room: &WaitingRoom, now: Moment) -> (Next, Option<StartingValidity>) {
        let mut waiters = room.waiters.lock();
        let waiters = &mut *waiters;
        let (Some(queue), Some(sleeper)) =
            (waiters.queues.get_mut(&self.name), waiters.sleepers.get_mut(&self.id))
        else {
            return (Next::Sleep(Moment::NEVER), None);
        };
        sleeper.woken = false;
        if self.bed.is_parked() {
            waiters.could_listen.remove(&self.id);
        }
        let next = queue.next(self.id, now);
        let legacy = sleeper.legacy.take_if(|_| matches!(next, Next::Turn(_)));
        if !matches!(next, Next::Sleep(_)) {
            waiters.nominate();
        }
        (next, legacy)
    }

    /// Sleeps until a moment, or until there may be something to do. Meanwhile the first waiter of a
    /// queue opens the wake-up connection of its name, or reads it, if no other thread does. A call
    /// that is parked does not sleep here: it is told how to sleep with the crew.
    pub(crate) fn sleep(
        &self,
        room: &WaitingRoom,
        until: Moment,
        listener: Option<&dyn Listener>,
        open_by: Deadline,
    ) -> Option<Sleep> {
        let waiters = room.waiters.lock();
        let now = Moment::now();
        if room.is_closed() || waiters.is_awake(self.id) {
            return None;
        }
        let Some(listener) = listener.filter(|listener| self.may_hear(&waiters, *listener)) else {
            return self.sleep_in_bed(waiters, Sleep { until, needs_listener: false }, now);
        };
        let open_at = waiters.open_at(&self.name, listener);
        if now >= open_at {
            drop(waiters);
            self.open(room, listener, open_by);
            return None;
        }
        let until = until.min(open_at);
        // Also where the only open connections tell of other names: their waiters sleep.
        let needs_listener = waiters.listener.is_none() && listener.are_any_open();
        if needs_listener && !self.bed.is_parked() {
            self.listen(room, waiters, listener, until);
            return None;
        }
        let mut waiters = waiters;
        waiters.could_listen.insert(self.id);
        self.sleep_in_bed(waiters, Sleep { until, needs_listener }, now)
    }

    /// Whether the store tells this waiter anything: only the one with the place in the store's
    /// queue, and not where the server forbids listening and no other connection is open. A thread
    /// that would hear nothing is not to be woken to listen.
    fn may_hear(&self, waiters: &Waiters, listener: &dyn Listener) -> bool {
        let head = waiters.queues.get(&self.name).and_then(LocalQueue::only_store_can_wake);
        head == Some(self.id) && (listener.are_any_open() || waiters.refusal(&self.name).is_none())
    }

    /// Reads the wake-up connections, as the one listener of the client.
    fn listen(
        &self,
        room: &WaitingRoom,
        mut waiters: MutexGuard<'_, Waiters>,
        listener: &dyn Listener,
        until: Moment,
    ) {
        waiters.listener = Some(self.id);
        drop(waiters);
        room.hear(listener, until);
    }

    /// Sleeps on the condition variable of its thread; a parked call is told how to sleep instead.
    fn sleep_in_bed(
        &self,
        waiters: MutexGuard<'_, Waiters>,
        sleep: Sleep,
        now: Moment,
    ) -> Option<Sleep> {
        let Bed::Thread(condvar) = &self.bed else { return Some(sleep) };
        let mut waiters = condvar.wait_for(waiters, sleep.until.since(now));
        waiters.could_listen.remove(&self.id);
        None
    }

    /// Opens the wake-up connection of the name, if it is not open and it is time to try.
    pub(crate) fn open(&self, room: &WaitingRoom, listener: &dyn Listener, open_by: Deadline) {
        let mut waiters = room.waiters.lock();
        if room.is_closed() || Moment::now() < waiters.open_at(&self.name, listener) {
            return;
        }
        waiters.opener = Some(self.id);
        let names = waiters.queues.keys().filter(|name| !listener.are_open(name));
        let deaf: HashSet<_> = names.cloned().collect();
        // Opening lasts as long as a server is silent, and this thread may have been the listener.
        waiters.nominate();
        drop(waiters);
        let opened = listener.open(&self.name, open_by);
        let mut waiters = room.waiters.lock();
        waiters.opener = None;
        let now = Moment::now();
        waiters.nominate();
        match opened {
            Ok(server) => {
                waiters.datings.entry(server).or_default().restart(now);
                waiters.failed_openings.retain(|name, _| !listener.are_open(name));
                waiters.reopened(now, |name| deaf.contains(name) && listener.are_open(name));
            }
            Err(error) => {
                let is_refusal = !error.is_retriable() && !room.is_closed();
                let is_news = waiters.opening_failed(&self.name, &error, is_refusal, now);
                // With no mutex held: the program's logger may close this very client.
                drop(waiters);
                if is_news {
                    say!(Warn, "waiters-untold", error = error);
                } else {
                    say!(Debug, "waiters-untold-still", error = error);
                }
            }
        }
    }

    /// Leaves the queue, with the turn that was given to it and not fetched, if any.
    pub(crate) fn leave(
        &self,
        room: &WaitingRoom,
        now: Moment,
    ) -> (Option<(Turn, Option<StartingValidity>)>, Option<Owing>) {
        let mut waiters = room.waiters.lock();
        let sleeper = waiters.sleepers.remove(&self.id);
        waiters.could_listen.remove(&self.id);
        // It may have panicked while it listened or opened.
        waiters.listener.take_if(|listener| *listener == self.id);
        waiters.opener.take_if(|opener| *opener == self.id);
        waiters.nominate();
        let mut turn = None;
        let owing = room.on_queue(waiters, &self.name, |queue| {
            let (left, effects) = queue.leave(self.id, now);
            turn = left;
            effects
        });
        (turn.map(|turn| (turn, sleeper.and_then(|sleeper| sleeper.legacy))), owing)
    }
}

impl Waiters {
    /// A wake-up came since the waiter last looked what to do, or it has left.
    fn is_awake(&self, id: u64) -> bool {
        self.sleepers.get(&id).is_none_or(|sleeper| sleeper.woken)
    }

    /// When a waiter for the name may open its wake-up connection: never while that is open, or while
    /// another thread opens one.
    pub(super) fn open_at(&self, name: &[u8], listener: &dyn Listener) -> Moment {
        if self.opener.is_some() || listener.are_open(name) {
            return Moment::NEVER;
        }
        self.failed_openings.get(name).map_or(Moment::ZERO, |failed| failed.retry_at)
    }

    /// Says whether this is the first refusal of all: the log warns of that once.
    fn opening_failed(
        &mut self,
        name: &Arc<[u8]>,
        error: &Error,
        is_refusal: bool,
        now: Moment,
    ) -> bool {
        // The listener itself remembers a refusal for `REFUSED`, so asking it again costs little.
        let retry_at = now.plus(if is_refusal { REFUSED / 10 } else { REOPEN });
        let refusal = is_refusal.then(|| error.clone());
        self.failed_openings.insert(Arc::clone(name), FailedOpening { retry_at, refusal });
        is_refusal && !std::mem::replace(&mut self.has_warned, true)
    }
}
