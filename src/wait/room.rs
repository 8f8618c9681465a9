//! Where the threads of a client wait: the lines of all names, and who listens.
//!
//! No thread of its own. Whoever stands first in a line sleeps by reading the client's wake-up
//! connection itself, so that a message wakes the very thread that it is for; there is one such
//! listener at a time, and the others sleep until it, or somebody who releases, wakes them. Only a
//! thread whose place is in the store's queue listens: nobody but the store can give it a turn.

#[cfg(all(test, shuttle))]
#[path = "../explore/threads/room.rs"]
mod explored;
mod hall;
#[cfg(test)]
#[cfg(not(shuttle))]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use self::hall::{Hall, Sleeper, Unheard};
use super::backoff::Pace;
use super::local::Line;
use super::plan::{Ask, Effects, Ending, Limits, Next, Owe, Turn};
use crate::clock::{Deadline, Moment};
use crate::error::Error;
use crate::grant::{Legacy, Terms};
use crate::store::{Identity, Listener, Outcome, REFUSED};
use crate::sync::{AtomicUsize, Condvar, Mutex, MutexGuard};
use crate::token::Token;

pub(crate) struct Room {
    limits: Limits,
    /// How many lines there are, so that those who meet nobody ask for no mutex.
    occupied: AtomicUsize,
    hall: Mutex<Hall>,
}

/// After a wake-up connection could not be opened.
const REOPEN: Duration = Duration::from_millis(100);

/// A token to be given, with the name that it was for.
pub(crate) type Owing = (Arc<[u8]>, Owe);

/// A waiter's seat, which it has to leave in the end.
pub(crate) struct Seat<'a> {
    room: &'a Room,
    name: Arc<[u8]>,
    id: u64,
    condvar: Arc<Condvar>,
}

impl Room {
    pub(crate) fn new(limits: Limits) -> Room {
        Room { limits, occupied: AtomicUsize::new(0), hall: Mutex::default() }
    }

    /// Whether anybody waits for the name or holds it under a grant that passes on turns.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        self.is_occupied() && self.hall.lock().lines.contains_key(name)
    }

    fn is_occupied(&self) -> bool {
        self.occupied.load(Ordering::Acquire) > 0
    }

    /// Joins the line of a name, at its end.
    pub(crate) fn sit(&self, name: &Arc<[u8]>, token: Token, terms: Terms, pace: Pace) -> Seat<'_> {
        let mut hall = self.hall.lock();
        hall.last_id += 1;
        let (id, condvar) = (hall.last_id, Arc::new(Condvar::default()));
        let line = hall.lines.entry(Arc::clone(name)).or_insert_with(|| Line::new(self.limits));
        line.join(id, token, terms, pace);
        self.occupied.store(hall.lines.len(), Ordering::Release);
        let sleeper = Sleeper { condvar: Arc::clone(&condvar), woken: false, legacy: None };
        hall.seats.insert(id, sleeper);
        Seat { room: self, name: Arc::clone(name), id, condvar }
    }

    /// A turn has ended; with its legacy, if it ended in time. Says what to send.
    pub(crate) fn end_turn(
        &self,
        identity: &Identity,
        legacy: Option<Legacy>,
        now: Moment,
    ) -> Ending {
        if !self.is_occupied() {
            return Ending::Alone;
        }
        let mut hall = self.hall.lock();
        let Some(line) = hall.lines.get_mut(&identity.name) else { return Ending::Alone };
        let ending = line.end_turn(identity.token, identity.fence, legacy.is_some(), now);
        let woken = match ending {
            Ending::Passed(id) => {
                if let Some(seat) = hall.seats.get_mut(&id) {
                    seat.legacy = legacy;
                }
                hall.wake(Some(id))
            }
            Ending::Give { take: None, .. } => {
                let head = line.standing_head();
                hall.wake(head)
            }
            _ => None,
        };
        self.tidy(&mut hall, &identity.name);
        drop(hall);
        notify(woken);
        ending
    }

    /// What came of a take.
    pub(crate) fn answered(
        &self,
        name: &Arc<[u8]>,
        ask: &Ask,
        outcome: &Outcome,
        now: Moment,
    ) -> Option<Owing> {
        let mut hall = self.hall.lock();
        if let Ok(answer) = outcome
            && let Some(dating) = hall.datings.get_mut(&answer.by)
        {
            dating.sample(answer.sent, answer.server);
        }
        self.on_line(hall, name, |line| match outcome {
            Ok(answer) => line.answered(ask, answer, now),
            Err(failure) => line.failed(ask, failure.sent, now),
        })
    }

    /// What a look at the lock brought that a token waits for. The thread that looked goes on.
    pub(crate) fn seen(&self, name: &[u8], token: Token, since: Moment, free_in: Duration) {
        if let Some(line) = self.hall.lock().lines.get_mut(name) {
            line.seen(token, since, free_in, Moment::now());
        }
    }

    /// The grant was lost while a turn was held.
    pub(crate) fn lost(&self, identity: &Identity, now: Moment) -> Option<Owing> {
        if !self.is_occupied() {
            return None;
        }
        let hall = self.hall.lock();
        self.on_line(hall, &identity.name, |line| line.lost(identity.token, now))
    }

    /// The turn is over and the lock stays taken.
    pub(crate) fn left_taken(&self, identity: &Identity) {
        if self.is_occupied() {
            let hall = self.hall.lock();
            self.on_line(hall, &identity.name, |line| line.left_taken(identity.token));
        }
    }

    /// Why waiters for the name cannot be told anything, if its server refused that when it was
    /// last asked.
    pub(crate) fn refusal(&self, name: &[u8]) -> Option<Error> {
        self.hall.lock().refusal(name).cloned()
    }

    /// Wakes everybody, for good.
    pub(crate) fn close(&self) {
        let mut hall = self.hall.lock();
        hall.closed = true;
        let all: Vec<_> = hall.seats.values().map(|seat| Arc::clone(&seat.condvar)).collect();
        drop(hall);
        notify(all);
    }

    fn on_line(
        &self,
        mut hall: MutexGuard<'_, Hall>,
        name: &Arc<[u8]>,
        act: impl FnOnce(&mut Line) -> Effects,
    ) -> Option<Owing> {
        let limits = self.limits;
        // Without a line: an answer that nobody waits for any more is undone all the same.
        let effects = match hall.lines.get_mut(name) {
            Some(line) => act(line),
            None => act(&mut Line::new(limits)),
        };
        let woken = hall.wake(effects.wake);
        self.tidy(&mut hall, name);
        drop(hall);
        notify(woken);
        effects.owe.map(|owe| (Arc::clone(name), owe))
    }

    fn tidy(&self, hall: &mut Hall, name: &[u8]) {
        if hall.lines.get(name).is_some_and(Line::is_empty) {
            hall.lines.remove(name);
            hall.unheard.remove(name);
            self.occupied.store(hall.lines.len(), Ordering::Release);
        }
    }
}

impl Seat<'_> {
    /// What this thread has to do now.
    pub(crate) fn next(&self, now: Moment) -> (Next, Option<Legacy>) {
        let mut hall = self.room.hall.lock();
        let hall = &mut *hall;
        let (Some(line), Some(seat)) =
            (hall.lines.get_mut(&self.name), hall.seats.get_mut(&self.id))
        else {
            return (Next::Sleep(Moment::NEVER), None);
        };
        seat.woken = false;
        let next = line.next(self.id, now);
        let legacy = seat.legacy.take_if(|_| matches!(next, Next::Turn(_)));
        let nominated = match next {
            Next::Sleep(_) => None,
            _ => hall.nominate(),
        };
        if let Some(condvar) = nominated {
            condvar.notify_one();
        }
        (next, legacy)
    }

    /// This thread is about to be busy elsewhere: somebody else is to listen meanwhile.
    pub(crate) fn step_aside(&self) {
        let woken = self.room.hall.lock().nominate();
        notify(woken);
    }

    /// Sleeps until a moment, or until there may be something to do; listens meanwhile, if nobody
    /// else does and there are listener.
    pub(crate) fn sleep(&self, until: Moment, listener: Option<&dyn Listener>, open_by: Deadline) {
        let mut hall = self.room.hall.lock();
        let now = Moment::now();
        if hall.closed || hall.seats.get(&self.id).is_none_or(|seat| seat.woken) {
            return;
        }
        let stands = hall.lines.get(&self.name).is_some_and(|line| line.is_standing(self.id));
        // Where there is nothing to hear, and will not be, nobody has to be woken to listen.
        let hears = |listener: &&dyn Listener| {
            listener.are_any_open() || hall.refusal(&self.name).is_none()
        };
        let listener = listener.filter(|listener| stands && hears(listener));
        let mut until = until;
        if let Some(listener) = listener {
            if !listener.are_open(&self.name) && hall.opener.is_none() {
                if hall.may_open(&self.name, now) {
                    drop(hall);
                    self.open(listener, open_by);
                    return;
                }
                until = until.min(hall.reopen(&self.name));
            }
            // Also to what is only for others here.
            if hall.listener.is_none() && listener.are_any_open() {
                hall.listener = Some(self.id);
                drop(hall);
                return self.listen(listener, until);
            }
        }
        if listener.is_some() {
            hall.able.insert(self.id);
        }
        // Far moments overflow the clock of the condition variable.
        let slice = until.since(now).min(Duration::from_secs(3600));
        let mut hall = self.condvar.wait_for(hall, slice);
        hall.able.remove(&self.id);
    }

    fn listen(&self, listener: &dyn Listener, until: Moment) {
        let heard = listener.hear(until);
        let mut hall = self.room.hall.lock();
        hall.listener = None;
        let now = Moment::now();
        let mut woken = Vec::new();
        let mut trouble = None;
        match heard {
            Ok(notices) => {
                for (by, notice) in notices {
                    woken.extend(hall.notice(by, notice, now));
                }
            }
            Err(error) => {
                trouble = Some(error);
                // Who is not told has to ask; and who may have counted on what has ended.
                woken = hall.reopened(now, |name| !listener.are_all_open(name));
            }
        }
        drop(hall);
        notify(woken);
        // With no mutex held: a logger of the host's may close this very client.
        if let Some(error) = trouble {
            log::debug!("the wake-up connection: {error}");
        }
    }

    /// Sees to it that waiters for the name are told, if that can be had now.
    pub(crate) fn open(&self, listener: &dyn Listener, open_by: Deadline) {
        let mut hall = self.room.hall.lock();
        let now = Moment::now();
        if !hall.may_open(&self.name, now) || hall.closed || listener.are_open(&self.name) {
            return;
        }
        hall.opener = Some(self.id);
        let names = hall.lines.keys().filter(|name| !listener.are_open(name));
        let deaf: HashSet<_> = names.cloned().collect();
        // It may take as long as a server is silent, and whoever does it was the listener perhaps.
        let nominated = hall.nominate();
        drop(hall);
        notify(nominated);
        let opened = listener.open(&self.name, open_by);
        let mut hall = self.room.hall.lock();
        hall.opener = None;
        let now = Moment::now();
        let mut woken = Vec::new();
        let (mut trouble, mut is_news) = (None, false);
        match opened {
            Ok(by) => {
                hall.datings.entry(by).or_default().restart(now);
                hall.unheard.retain(|name, _| !listener.are_open(name));
                woken = hall.reopened(now, |name| deaf.contains(name) && listener.are_open(name));
            }
            Err(error) => {
                let is_refusal = !error.is_retriable() && !hall.closed;
                is_news = is_refusal && !hall.has_warned;
                hall.has_warned |= is_refusal;
                // The listener know for how long it is believed; to ask them costs little.
                let again = now.plus(if is_refusal { REFUSED / 10 } else { REOPEN });
                let refusal = is_refusal.then(|| error.clone());
                hall.unheard.insert(Arc::clone(&self.name), Unheard { again, refusal });
                trouble = Some(error);
            }
        }
        woken.extend(hall.nominate());
        drop(hall);
        notify(woken);
        match trouble {
            Some(error) if is_news => log::warn!(
                "waiters cannot be told when a lock is theirs, so they ask again and again: {error}"
            ),
            Some(error) => log::debug!("the wake-up connection: {error}"),
            None => {}
        }
    }

    /// Leaves the line: with the turn, if one was given and not fetched.
    pub(crate) fn leave(&self, now: Moment) -> (Option<(Turn, Option<Legacy>)>, Option<Owing>) {
        let mut hall = self.room.hall.lock();
        let seat = hall.seats.remove(&self.id);
        // It may have panicked as it listened.
        hall.listener.take_if(|listener| *listener == self.id);
        hall.opener.take_if(|opener| *opener == self.id);
        let mut left = (None, None);
        let mut woken = Vec::new();
        if let Some(line) = hall.lines.get_mut(&self.name) {
            let (turn, effects) = line.leave(self.id, now);
            woken.extend(hall.wake(effects.wake));
            left.0 = turn.map(|turn| (turn, seat.and_then(|seat| seat.legacy)));
            left.1 = effects.owe.map(|owe| (Arc::clone(&self.name), owe));
        }
        woken.extend(hall.nominate());
        self.room.tidy(&mut hall, &self.name);
        drop(hall);
        notify(woken);
        left
    }
}

fn notify(woken: impl IntoIterator<Item = Arc<Condvar>>) {
    for condvar in woken {
        condvar.notify_one();
    }
}
