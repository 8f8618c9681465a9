//! The core of a client: everything that its calls share. Each of them asks the store here, and leaves
//! here what the keeper has to do later.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use super::book::Book;
use crate::clock::{Deadline, Moment};
use crate::config::Config;
use crate::error::Error;
use crate::events::{Event, EventKind, Hub, LossReason};
use crate::grant::{Ended, Grant};
use crate::metrics::Metrics;
use crate::store::outbox::{Concern, Outbox};
use crate::store::{Identity, Lane, Look, Outcome, Owed, Reply, Request, Store, no_reply};
use crate::sync::{Condvar, Mutex};
use crate::wait::{Limits, Owe, Owing, Room, TURNS, look_span};

pub(crate) struct Core {
    pub(crate) store: Box<dyn Store>,
    pub(crate) metrics: Metrics,
    pub(crate) hub: Hub,
    pub(crate) room: Room,
    /// The store has answered a take of this client at least once.
    pub(crate) answered: AtomicBool,
    pub(super) io_timeout: Duration,
    pub(super) max_ttl: Duration,
    pub(super) prefix: Vec<u8>,
    pub(super) outbox: Arc<Outbox>,
    pub(super) book: Mutex<Book>,
    pub(super) wake: Condvar,
    /// When the thread will look again by itself, in nanoseconds.
    pub(super) asleep_until: AtomicU64,
}

/// How long a waiter of a closed client may take to leave.
const LEAVE_WAIT: Duration = Duration::from_millis(50);

impl Core {
    pub(super) fn new(store: Box<dyn Store>, outbox: Arc<Outbox>, config: &Config) -> Core {
        let (spread, look) = (store.abilities().spread, look_span(config.claim_window));
        Core {
            store,
            metrics: Metrics::default(),
            hub: Hub::default(),
            room: Room::new(Limits { turns: TURNS, spread, look }),
            answered: AtomicBool::new(false),
            io_timeout: config.io_timeout,
            max_ttl: config.longest_ttl(),
            prefix: config.prefix.clone(),
            outbox,
            book: Mutex::new(Book::default()),
            wake: Condvar::default(),
            asleep_until: AtomicU64::new(0),
        }
    }

    /// Takes a grant into the book, or files it anew after its validity changed. False when the
    /// client was closed meanwhile: then the caller must give the grant.
    pub(crate) fn keep(&self, grant: &Arc<Grant>) -> bool {
        let mut book = self.book.lock();
        if book.closing().is_some() {
            return false;
        }
        if grant.is_older_than(book.lost_at) {
            // The keeper has ended every grant that it knew, and did not know this one.
            drop(book);
            if grant.end(Moment::now()) != Ended::Before {
                self.tell_lost(grant, LossReason::NotHeld);
            }
            return true;
        }
        let due = book.insert(Arc::clone(grant));
        drop(book);
        self.wake_by(due);
        true
    }

    /// Takes a grant out of the book.
    pub(crate) fn forget(&self, grant: &Grant) {
        self.book.lock().remove(grant);
    }

    /// Asks the store, behind the gives that are owed for the names that are taken, and has the keeper
    /// look after what is left to do.
    pub(crate) fn run(
        &self,
        lane: Lane,
        requests: &[Request<'_>],
        deadline: Deadline,
    ) -> Vec<Outcome> {
        let mut owed = Vec::new();
        if !self.store.sends_owed() {
            owed = self.outbox.in_front(requests, None, None);
        }
        let outcomes = if owed.is_empty() {
            self.store.run(lane, requests, deadline)
        } else {
            let gives = owed.iter().map(|one| one.identity.give());
            let all: Vec<_> = gives.chain(requests.iter().copied()).collect();
            let mut outcomes = self.store.run(lane, &all, deadline);
            let asked = outcomes.split_off(owed.len().min(outcomes.len()));
            self.outbox.tried(&owed, &outcomes);
            asked
        };
        self.look_after();
        outcomes
    }

    pub(crate) fn ask(&self, lane: Lane, request: Request<'_>, deadline: Deadline) -> Outcome {
        self.run(lane, &[request], deadline).pop().unwrap_or_else(no_reply)
    }

    pub(crate) fn look(&self, name: &[u8], deadline: Deadline) -> Result<Look, Error> {
        let looked = self.store.look(name, deadline);
        self.look_after();
        looked
    }

    /// How long the lock of a name stays taken if nobody extends it; zero if it is free.
    pub(crate) fn free_in(&self, name: &[u8], deadline: Deadline) -> Result<Duration, Error> {
        let free_in = self.store.free_in(name, deadline);
        self.look_after();
        free_in
    }

    pub(crate) fn ping(&self, deadline: Deadline) -> Result<(), Error> {
        let reached = self.store.ping(deadline);
        self.look_after();
        reached
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
        match self.store.let_go(&owed, lane, deadline) {
            Some(outcome) => self.conclude(owed, outcome),
            // The client was closed meanwhile and nobody reads any more. A give may be sent twice,
            // so it is sent again and waited for; that it was carried out already is no news.
            None if self.outbox.is_over() => {
                drop(self.store.ask(lane, owed.identity.give(), deadline));
            }
            None => {}
        }
        self.look_after();
    }

    /// Has the keeper look after what was left of a request, where something was.
    fn look_after(&self) {
        let owed = if self.outbox.is_empty() { Moment::NEVER } else { self.outbox.due() };
        self.wake_by(owed.min(self.store.due()));
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

    /// Tells what became of a give that nobody waited for, and leaves to the keeper what is still
    /// to be done.
    fn conclude(&self, owed: Owed, outcome: Outcome) {
        let identity = owed.identity.clone();
        match outcome {
            Ok(answer) if answer.reply == Reply::Given => return,
            Ok(_) => {}
            Err(failure) => {
                log::debug!("letting go of '{}': {}", identity.name.escape_ascii(), failure.error);
                if failure.sent.is_some() {
                    self.metrics.unknown.add_one();
                }
                self.owe(owed);
            }
        }
        self.tell_late(&identity);
    }

    /// Says that a release, which nobody waited for, came too late or may not have come at all.
    pub(crate) fn tell_late(&self, identity: &Identity) {
        self.metrics.released_late.add_one();
        self.tell(identity, EventKind::ReleasedLate);
    }

    /// Leaves a place among the waiters. The keeper does it, or, when it has ended with its client,
    /// this thread: the waiters behind it would be held up.
    pub(crate) fn leave(&self, owed: Owed) {
        let identity = owed.identity.clone();
        if self.owe(owed) {
            return;
        }
        let deadline = Deadline::after(LEAVE_WAIT);
        let left = self.store.ask(Lane::Give(LEAVE_WAIT), identity.give(), deadline);
        if let Err(failure) = left {
            log::debug!("a waiter of a closed client did not leave: {}", failure.error);
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
        self.book.lock().grants().any(|grant| {
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
            self.owe(Owed { identity: grant.identity.clone(), until: now });
        } else if grant.is_unclaimed() {
            // A claim that was carried out and never answered would keep it for a ttl.
            self.owe(Owed { identity: grant.identity.clone(), until: grant.kept_until(now) });
        }
        self.tell(&grant.identity, EventKind::Lost(reason));
    }

    /// The store said of a turn that is over that its token does not have the lock. If the turn was
    /// released meanwhile, nothing is lost; if it was passed on, no turn goes on under that token.
    pub(crate) fn end_turns(&self, identity: &Identity, now: Moment) {
        let is_next =
            |grant: &&Arc<Grant>| grant.identity.token == identity.token && !grant.is_over();
        let next = self.book.lock().grants().find(is_next).cloned();
        match next.filter(|next| next.end(now) != Ended::Before) {
            Some(next) => self.tell_lost(&next, LossReason::NotHeld),
            None => self.owe_all(self.room.lost(identity, now)),
        }
    }

    /// Raised first: the program's logger may panic.
    pub(super) fn tell(&self, identity: &Identity, kind: EventKind) {
        self.raise(identity, kind);
        let Identity { name, fence, .. } = identity;
        log::warn!("{kind:?}: lease {fence} on '{}'", name.escape_ascii());
    }

    pub(super) fn raise(&self, identity: &Identity, kind: EventKind) {
        let Identity { name, fence, .. } = identity;
        self.hub.raise(&Event { kind, name: Arc::clone(name), fence: *fence });
    }

    pub(super) fn shut(&self, deadline: Deadline) {
        self.room.close();
        if let Some(listener) = self.store.listener() {
            listener.close();
        }
        self.book.lock().close(deadline);
        self.wake.notify_one();
    }
}
