//! One waiter: what it does next, how it sleeps, and who listens meanwhile.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::{Bed, Owing, Room, Unheard, Waiters};
use crate::clock::{Deadline, Moment};
use crate::grant::Legacy;
use crate::said::say;
use crate::store::{Listener, REFUSED};
use crate::wait::local::LocalQueue;
use crate::wait::plan::{Next, Turn};

/// After a wake-up connection could not be opened.
pub(super) const REOPEN: Duration = Duration::from_millis(100);
/// The crew looks this often whether it still has to listen.
const LISTEN: Duration = Duration::from_secs(1);
/// Stands for the crew where a waiter's number could, which are counted from 1.
const THE_CREW: u64 = 0;

/// One thread that waits, or one call that is parked. It has to leave in the end.
pub(crate) struct Waiter {
    pub(super) name: Arc<[u8]>,
    pub(super) id: u64,
    pub(super) bed: Bed,
}

impl Waiter {
    pub(crate) fn next(&self, room: &Room, now: Moment) -> (Next, Option<Legacy>) {
        let mut waiters = room.waiters.lock();
        let waiters = &mut *waiters;
        let (Some(queue), Some(sleeper)) =
            (waiters.queues.get_mut(&self.name), waiters.sleepers.get_mut(&self.id))
        else {
            return (Next::Sleep(Moment::NEVER), None);
        };
        sleeper.woken = false;
        if self.bed.is_parked() {
            waiters.able.remove(&self.id);
        }
        let next = queue.next(self.id, now);
        let legacy = sleeper.legacy.take_if(|_| matches!(next, Next::Turn(_)));
        if !matches!(next, Next::Sleep(_)) {
            waiters.nominate();
        }
        (next, legacy)
    }

    /// Sleeps until a moment, or until there may be something to do; listens meanwhile, if no other
    /// thread does. One that is parked has to sleep where it is parked: until when, and whether
    /// somebody is to listen for it.
    pub(crate) fn sleep(
        &self,
        room: &Room,
        until: Moment,
        listener: Option<&dyn Listener>,
        open_by: Deadline,
    ) -> Option<(Moment, bool)> {
        let mut waiters = room.waiters.lock();
        let now = Moment::now();
        if room.is_closed() || waiters.sleepers.get(&self.id).is_none_or(|sleeper| sleeper.woken) {
            return None;
        }
        let head = waiters.queues.get(&self.name).and_then(LocalQueue::standing_head);
        // Where there is nothing to hear, and will not be, no thread has to be woken to listen.
        let hears = |listener: &&dyn Listener| {
            listener.are_any_open() || waiters.refusal(&self.name).is_none()
        };
        let listener = listener.filter(|listener| head == Some(self.id) && hears(listener));
        let (mut until, mut is_unheard) = (until, false);
        if let Some(listener) = listener {
            if !listener.are_open(&self.name) && waiters.opener.is_none() {
                let reopen = waiters.reopen(&self.name);
                if now >= reopen {
                    drop(waiters);
                    self.open(room, listener, open_by);
                    return None;
                }
                until = until.min(reopen);
            }
            // Also to messages that are only for others here.
            is_unheard = waiters.listener.is_none() && listener.are_any_open();
            if is_unheard && !self.bed.is_parked() {
                waiters.listener = Some(self.id);
                drop(waiters);
                room.hear(listener, until);
                return None;
            }
            waiters.able.insert(self.id);
        }
        let Bed::Thread(condvar) = &self.bed else { return Some((until, is_unheard)) };
        let mut waiters = condvar.wait_for(waiters, until.since(now));
        waiters.able.remove(&self.id);
        None
    }

    /// Opens the connection on which waiters for the name are told, if that can be had now.
    pub(crate) fn open(&self, room: &Room, listener: &dyn Listener, open_by: Deadline) {
        let mut waiters = room.waiters.lock();
        let now = Moment::now();
        let is_early = waiters.opener.is_some() || now < waiters.reopen(&self.name);
        if is_early || room.is_closed() || listener.are_open(&self.name) {
            return;
        }
        waiters.opener = Some(self.id);
        let names = waiters.queues.keys().filter(|name| !listener.are_open(name));
        let deaf: HashSet<_> = names.cloned().collect();
        // It may take as long as a server is silent, and this thread was the listener perhaps.
        waiters.nominate();
        drop(waiters);
        let opened = listener.open(&self.name, open_by);
        let mut waiters = room.waiters.lock();
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
                let is_refusal = !error.is_retriable() && !room.is_closed();
                let is_news = is_refusal && !waiters.has_warned;
                waiters.has_warned |= is_refusal;
                // The listener knows for how long it is believed; to ask it costs little.
                let again = now.plus(if is_refusal { REFUSED / 10 } else { REOPEN });
                let refusal = is_refusal.then(|| error.clone());
                waiters.unheard.insert(Arc::clone(&self.name), Unheard { again, refusal });
                drop(waiters);
                if is_news {
                    say!(Warn, "waiters-untold", error = error);
                } else {
                    say!(Debug, "waiters-untold-still", error = error);
                }
            }
        }
    }

    /// Leaves the queue: with the turn, if one was given and not fetched.
    pub(crate) fn leave(
        &self,
        room: &Room,
        now: Moment,
    ) -> (Option<(Turn, Option<Legacy>)>, Option<Owing>) {
        let mut waiters = room.waiters.lock();
        let sleeper = waiters.sleepers.remove(&self.id);
        waiters.able.remove(&self.id);
        // It may have panicked as it listened.
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

impl Room {
    /// This thread is about to be busy elsewhere: another one is to listen meanwhile.
    pub(crate) fn step_aside(&self) {
        self.waiters.lock().nominate();
    }

    /// Listens for those that are parked, as long as any of them could and nobody else does.
    pub(crate) fn listen(&self, listener: &dyn Listener) {
        let ends = Ends(self);
        while self.begins(listener) {
            self.hear(listener, Moment::now().plus(LISTEN));
        }
        drop(ends);
    }

    fn begins(&self, listener: &dyn Listener) -> bool {
        let mut waiters = self.waiters.lock();
        let Waiters { able, sleepers, .. } = &*waiters;
        let is_parked = |id: &u64| sleepers.get(id).is_some_and(|sleeper| sleeper.bed.is_parked());
        let begins = waiters.listener.is_none()
            && !self.is_closed()
            && able.iter().any(is_parked)
            && listener.are_any_open();
        if begins {
            waiters.listener = Some(THE_CREW);
        }
        begins
    }

    /// Takes in what the listener hears by then. Another one may listen afterwards.
    fn hear(&self, listener: &dyn Listener, until: Moment) {
        let heard = listener.hear(until);
        let mut waiters = self.waiters.lock();
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
                say!(Debug, "wake-up-ended", error = error);
            }
        }
    }
}

/// Whatever happened meanwhile, the crew listens no longer; somebody else does.
struct Ends<'a>(&'a Room);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        let mut waiters = self.0.waiters.lock();
        waiters.listener.take_if(|listener| *listener == THE_CREW);
        waiters.nominate();
    }
}
