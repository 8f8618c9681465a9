//! The core of a client: everything that its calls share. Each of them asks the store here, and leaves
//! here what the keeper has to do later.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use super::book::Book;
use crate::clock::{Deadline, Moment};
use crate::config::Config;
use crate::error::{Error, ErrorKind};
use crate::events::{Event, EventKind, Hub, LossReason};
use crate::grant::{Ended, Grant};
use crate::metrics::Metrics;
use crate::store::outbox::{Concern, Outbox};
use crate::store::{Identity, Lane, Outcome, Owed, Reply, Request, Store, no_reply};
use crate::sync::{Condvar, Mutex};
use crate::wait::crew::Crew;
use crate::wait::{Limits, Owe, Owing, Room, TURNS, look_span};

pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) store: Box<dyn Store>,
    pub(crate) metrics: Metrics,
    pub(crate) hub: Hub,
    pub(crate) room: Room,
    /// The store has answered a take of this client at least once, if only by "not now".
    pub(crate) answered: AtomicBool,
    /// When the log is told next that waits do not get on, in nanoseconds.
    pub(crate) complain_at: AtomicU64,
    pub(super) outbox: Arc<Outbox>,
    pub(super) book: Mutex<Book>,
    pub(super) wake: Condvar,
    /// When the thread will look again by itself, in nanoseconds.
    pub(super) asleep_until: AtomicU64,
}

/// How long a thread of a closed client may take to give.
const LEAVE_WAIT: Duration = Duration::from_millis(50);

impl Core {
    pub(super) fn new(store: Box<dyn Store>, outbox: Arc<Outbox>, config: Config) -> Core {
        let (spread, look) = (store.abilities().spread, look_span(config.claim_window));
        // Beside those that ask the store: one that listens, and one that watches the clock.
        let crew = Crew::new(config.pool as usize + 2);
        Core {
            config,
            store,
            metrics: Metrics::default(),
            hub: Hub::default(),
            room: Room::new(Limits { turns: TURNS, spread, look }, crew),
            answered: AtomicBool::new(false),
            complain_at: AtomicU64::new(0),
            outbox,
            book: Mutex::new(Book::default()),
            wake: Condvar::default(),
            asleep_until: AtomicU64::new(0),
        }
    }

    /// Takes a grant into the book, or files it anew after its validity changed. Where the client was
    /// closed meanwhile, the grant has ended and is given.
    pub(crate) fn keep(&self, grant: &Arc<Grant>) -> Result<(), Error> {
        let mut book = self.book.lock();
        let (is_closing, is_lost) = (book.closing.is_some(), grant.is_older_than(book.lost_at));
        if !is_closing && !is_lost {
            let due = book.insert(Arc::clone(grant));
            drop(book);
            self.wake_by(due);
            return Ok(());
        }
        // The keeper has ended every grant that it knew, and did not know this one.
        drop(book);
        let now = Moment::now();
        if !is_closing {
            self.not_held(grant, now);
            return Ok(());
        }
        if grant.end(now) != Ended::Before {
            self.leave_by(grant.owed(now), Deadline::after(self.config.io_timeout));
        }
        Err(Error::bare(ErrorKind::Closed))
    }

    /// Takes a grant out of the book.
    pub(crate) fn forget(&self, grant: &Grant) {
        self.book.lock().remove(grant);
    }

    /// Asks the store, behind the gives that are owed for the names that are taken.
    pub(crate) fn run(&self, lane: Lane, requests: &[Request<'_>], by: Deadline) -> Vec<Outcome> {
        self.with_store(|store| {
            let mut owed = Vec::new();
            if !store.sends_owed() {
                owed = self.outbox.in_front(requests.iter().copied(), None, None);
            }
            if owed.is_empty() {
                return store.run(lane, requests, by);
            }
            let gives = owed.iter().map(|one| one.identity.give());
            let all: Vec<_> = gives.chain(requests.iter().copied()).collect();
            let mut outcomes = store.run(lane, &all, by);
            let asked = outcomes.split_off(owed.len().min(outcomes.len()));
            self.outbox.tried(&owed, &outcomes);
            asked
        })
    }

    pub(crate) fn ask(&self, lane: Lane, request: Request<'_>, deadline: Deadline) -> Outcome {
        if self.store.sends_owed() || self.outbox.is_empty() {
            return self.with_store(|store| store.ask(lane, request, deadline));
        }
        self.run(lane, &[request], deadline).pop().unwrap_or_else(no_reply)
    }

    /// Has something asked, and the keeper look after what is left to do.
    pub(crate) fn with_store<T>(&self, ask: impl FnOnce(&dyn Store) -> T) -> T {
        let answer = ask(&*self.store);
        self.wake_by(self.due());
        answer
    }

    /// Leaves a give to the keeper, and tells whether there still is one.
    pub(crate) fn owe(&self, owed: Owed) -> bool {
        let now = Moment::now();
        let is_sent = self.outbox.owe(owed, Concern::Doubt, now);
        self.wake_by(now);
        is_sent
    }

    /// Gives without waiting for the reply, where the store can do so.
    pub(crate) fn let_go(&self, owed: Owed, lane: Lane, deadline: Deadline) {
        let Identity { name, .. } = &owed.identity;
        match self.with_store(|store| store.let_go(&owed, lane, deadline)) {
            Some(Ok(answer)) if answer.reply == Reply::Given => {}
            Some(Ok(_)) => self.tell_late(&owed.identity),
            Some(Err(failure)) => {
                log::debug!("letting go of '{}': {}", name.escape_ascii(), failure.error);
                if failure.sent.is_some() {
                    self.metrics.unknown.add_one();
                }
                self.owe(owed.clone());
                self.tell_late(&owed.identity);
            }
            // The client was closed meanwhile and nobody reads any more. A give may be sent twice.
            None if self.outbox.is_over() => self.leave_by(owed, deadline),
            None => {}
        }
    }

    /// Wakes the thread if it would look later than that.
    ///
    /// The caller has written down before what there is to do, and the thread sets its time before
    /// it looks at that: so neither misses the other.
    fn wake_by(&self, due: Moment) {
        let due = due.as_nanos();
        if due < self.asleep_until.load(Ordering::SeqCst)
            && due < self.asleep_until.fetch_min(due, Ordering::SeqCst)
        {
            let _book = self.book.lock();
            self.wake.notify_one();
        }
    }

    /// When something is to be done besides what the book says.
    pub(super) fn due(&self) -> Moment {
        self.outbox.due().min(self.store.due())
    }

    /// Says that a release, which nobody waited for, came too late or may not have come at all.
    pub(crate) fn tell_late(&self, identity: &Identity) {
        self.metrics.released_late.add_one();
        self.tell(identity, 0, EventKind::ReleasedLate, "");
    }

    /// Leaves a give to the keeper, or, when that has ended, to this thread: it holds waiters up.
    pub(crate) fn leave(&self, owed: Owed) {
        self.leave_by(owed, Deadline::after(LEAVE_WAIT));
    }

    fn leave_by(&self, owed: Owed, deadline: Deadline) {
        let identity = owed.identity.clone();
        if self.owe(owed) {
            return;
        }
        let left = self.store.ask(Lane::Give(deadline), identity.give(), deadline);
        if let Err(failure) = left {
            log::debug!("giving what a closed client left: {}", failure.error);
        }
    }

    /// Leaves to the keeper what waiting left undone.
    pub(crate) fn owe_all(&self, owing: impl IntoIterator<Item = Owing>) {
        for (name, Owe { token, ttl, until }) in owing {
            self.leave(Owed { identity: Identity { name, token, fence: 0, ttl }, until });
        }
    }

    /// Whether this thread took the name and still has a lease on it.
    pub(crate) fn is_held_by(&self, thread: ThreadId, name: &[u8]) -> bool {
        let now = Moment::now();
        self.book.lock().ends.values().any(|grant| {
            grant.taker == thread
                && *grant.identity.name == *name
                && !grant.remaining(now).is_zero()
        })
    }

    /// Says that a lease was lost: counted, logged and raised, once.
    pub(crate) fn tell_lost(&self, grant: &Grant, reason: LossReason) {
        self.metrics.lost.add_one();
        let now = Moment::now();
        self.owe_all(self.room.lost(&grant.identity, now));
        if reason == LossReason::NotHeld {
            // Waiters count on its ttl; this tells them that the lock is free, where it is.
            self.owe(Owed { until: now, ..grant.owed(now) });
        } else if grant.is_unclaimed() {
            // A claim that was carried out and never answered would keep it for a ttl.
            self.owe(grant.owed(now));
        }
        let why = grant.why_over(now, "");
        *grant.loss.lock() = Some(reason);
        self.tell(&grant.identity, grant.id, EventKind::Lost(reason), &why);
    }

    /// The store said that the grant's token does not have the lock. If the turn was released
    /// meanwhile, nothing is lost; if it was passed on, no turn goes on under that token.
    pub(super) fn not_held(&self, grant: &Grant, now: Moment) {
        if grant.end(now) != Ended::Before {
            return self.tell_lost(grant, LossReason::NotHeld);
        }
        let token = grant.identity.token;
        let is_next = |next: &&Arc<Grant>| next.identity.token == token && !next.is_over();
        let next = self.book.lock().ends.values().find(is_next).cloned();
        match next.filter(|next| next.end(now) != Ended::Before) {
            Some(next) => self.tell_lost(&next, LossReason::NotHeld),
            None => self.owe_all(self.room.lost(&grant.identity, now)),
        }
    }

    /// Raised first: the program's logger may panic.
    pub(super) fn tell(&self, identity: &Identity, lease: u64, kind: EventKind, why: &str) {
        self.raise(identity, lease, kind);
        let Identity { name, fence, .. } = identity;
        let why = if why.is_empty() { String::new() } else { format!(", {why}") };
        log::warn!("{kind:?}: lease {fence} on '{}'{why}", name.escape_ascii());
    }

    pub(super) fn raise(&self, identity: &Identity, lease: u64, kind: EventKind) {
        let Identity { name, fence, .. } = identity;
        self.hub.raise(&Event { kind, name: Arc::clone(name), fence: *fence, lease });
    }

    pub(super) fn shut(&self, deadline: Deadline) {
        self.room.close();
        if let Some(listener) = self.store.listener() {
            listener.close();
        }
        let mut book = self.book.lock();
        book.closing = Some(book.closing.map_or(deadline, |earlier| earlier.min(deadline)));
        self.wake.notify_one();
    }
}
