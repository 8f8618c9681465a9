//! The keeper: one thread a client, which renews grants and finishes what calls left undone.
//!
//! It never holds its book while it talks to the store, and is woken only for something that
//! falls due sooner than it would have looked: an uncontended cycle of taking and releasing does
//! not wake it.

mod book;
mod rounds;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use self::book::Book;
use crate::clock::{Deadline, Moment};
use crate::config::Config;
use crate::error::{Error, ErrorKind};
use crate::events::{Event, EventKind, Hub, LossReason};
use crate::fork::{self, Owned, Thread};
use crate::grant::{Ended, Grant};
use crate::metrics::Metrics;
pub(crate) use crate::store::Owed;
use crate::store::outbox::{Concern, Outbox};
use crate::store::{Identity, Lane, Look, Outcome, Reply, Request, Store, no_reply};
use crate::sync::{Condvar, Mutex};
use crate::wait::{Gate, Limits, Owe, Owing, Room, TURNS, look_span};

/// What a client, its locks and its leases share. Dropping the last of them lets the thread go.
pub(crate) struct Keeper {
    inside: Owned<Inside>,
}

struct Inside {
    core: Arc<Core>,
    thread: Mutex<Option<Thread>>,
    close_timeout: Duration,
    last_id: AtomicU64,
}

/// What the thread works on.
pub(crate) struct Core {
    pub(crate) store: Box<dyn Store>,
    pub(crate) metrics: Metrics,
    pub(crate) hub: Hub,
    pub(crate) gate: Gate,
    pub(crate) room: Room,
    /// The store has answered a take of this client at least once.
    pub(crate) answered: AtomicBool,
    io_timeout: Duration,
    max_ttl: Duration,
    prefix: Vec<u8>,
    outbox: Arc<Outbox>,
    book: Mutex<Book>,
    wake: Condvar,
    /// When the thread will look again by itself, in nanoseconds.
    asleep_until: AtomicU64,
}

/// How long a waiter that was closed may take to leave.
const LEAVE_WAIT: Duration = Duration::from_millis(50);

impl Keeper {
    pub(crate) fn start(
        store: Box<dyn Store>,
        outbox: Arc<Outbox>,
        config: &Config,
    ) -> Result<Keeper, Error> {
        let Config { io_timeout, max_ttl, close_timeout, .. } = *config;
        let (spread, look) = (store.abilities().spread, look_span(config.claim_window));
        let core = Arc::new(Core {
            store,
            metrics: Metrics::default(),
            hub: Hub::default(),
            gate: Gate::default(),
            room: Room::new(Limits { turns: TURNS, spread, look }),
            answered: AtomicBool::new(false),
            io_timeout,
            max_ttl,
            prefix: config.prefix.clone(),
            outbox,
            book: Mutex::new(Book::default()),
            wake: Condvar::default(),
            asleep_until: AtomicU64::new(0),
        });
        let thread = Thread::start(c"leasehold", {
            let core = Arc::clone(&core);
            move || rounds::run(&core)
        });
        let thread = thread.map_err(|error| {
            Error::new(ErrorKind::Exhausted, format!("the keeper's thread: {error}"))
        })?;
        let inside = Inside {
            core,
            thread: Mutex::new(Some(thread)),
            close_timeout,
            last_id: AtomicU64::new(0),
        };
        Ok(Keeper { inside: Owned::new(inside) })
    }

    /// The shared core, if this process may use it: asked first in every call, before any mutex.
    pub(crate) fn core(&self) -> Result<&Core, Error> {
        self.inside.birth().check()?;
        if self.inside.core.gate.is_closed() {
            return Err(Error::bare(ErrorKind::Closed));
        }
        Ok(&self.inside.core)
    }

    /// The same where a closed client still answers, as for counters and a lease's own end.
    pub(crate) fn core_even_closed(&self) -> Result<&Core, Error> {
        self.inside.birth().check()?;
        Ok(&self.inside.core)
    }

    pub(crate) fn is_here(&self) -> bool {
        self.inside.birth().is_here()
    }

    pub(crate) fn io_timeout(&self) -> Duration {
        self.inside.core.io_timeout
    }

    /// The longest ttl that a lock may have.
    pub(crate) fn max_ttl(&self) -> Duration {
        self.inside.core.max_ttl
    }

    /// What stands before every name in the store.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.inside.core.prefix
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.inside.last_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Closes in order: waiters are woken, every lease becomes invalid and is released until the
    /// deadline, the thread is joined. A second call waits for the first.
    pub(crate) fn close(&self, timeout: Duration) -> Result<(), Error> {
        self.inside.birth().check()?;
        self.inside.core.shut(Deadline::after(timeout));
        // A logger that closes the client may be running on the thread itself, or on that of
        // another client while a logger there closes the other way round: such threads neither join
        // themselves nor one another.
        if fork::is_ours() {
            return Ok(());
        }
        if let Some(thread) = self.inside.thread.lock().take() {
            thread.join();
        }
        Ok(())
    }

    pub(crate) fn close_timeout(&self) -> Duration {
        self.inside.close_timeout
    }
}

impl Drop for Inside {
    /// Nobody can ask for anything any more. The thread finishes what is owed, bounded by the
    /// close timeout, and is not waited for: dropping a client does no I/O.
    fn drop(&mut self) {
        self.core.shut(Deadline::after(self.close_timeout));
    }
}

impl Core {
    /// Takes a grant into the book, or files it anew after its validity changed. False when the
    /// client was closed meanwhile: then the grant must be given by whoever has it.
    pub(crate) fn keep(&self, grant: &Arc<Grant>) -> bool {
        let mut book = self.book.lock();
        if book.closing().is_some() {
            return false;
        }
        if grant.is_older_than(book.lost_at) {
            // The keeper has ended all that it knew of, and did not know of this one.
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
            owed = self.outbox.in_front(requests, None, None, deadline);
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
            // The client was closed meanwhile and nobody reads any more. What may be sent twice is
            // now waited for; that it was done already is no news.
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
    /// Whoever comes here has written down before what there is to do, and the thread sets its time
    /// before it looks what that is.
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
    fn due(&self) -> Moment {
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
    /// this thread: whoever stands behind would be held up.
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
            // Who waits reckons with its ttl, and is told by this that it is free, where it is.
            self.owe(Owed { identity: grant.identity.clone(), until: now });
        } else if grant.is_unclaimed() {
            // A claim that was carried out and never answered would keep it for a ttl.
            self.owe(Owed { identity: grant.identity.clone(), until: grant.kept_until(now) });
        }
        self.tell(&grant.identity, EventKind::Lost(reason));
    }

    /// The store said of a turn that is over that its token does not have the lock. Where it was
    /// released meanwhile, that is nobody's loss; where it was passed on, no turn goes on under that
    /// token.
    pub(crate) fn end_turns(&self, identity: &Identity, now: Moment) {
        let is_next =
            |grant: &&Arc<Grant>| grant.identity.token == identity.token && !grant.is_over();
        let next = self.book.lock().grants().find(is_next).cloned();
        match next.filter(|next| next.end(now) != Ended::Before) {
            Some(next) => self.tell_lost(&next, LossReason::NotHeld),
            None => self.owe_all(self.room.lost(identity, now)),
        }
    }

    /// Raised first: a logger of the host's may panic.
    fn tell(&self, identity: &Identity, kind: EventKind) {
        self.raise(identity, kind);
        let Identity { name, fence, .. } = identity;
        log::warn!("{kind:?}: lease {fence} on '{}'", name.escape_ascii());
    }

    fn raise(&self, identity: &Identity, kind: EventKind) {
        let Identity { name, fence, .. } = identity;
        self.hub.raise(&Event { kind, name: Arc::clone(name), fence: *fence });
    }

    fn shut(&self, deadline: Deadline) {
        self.gate.close();
        self.room.close();
        if let Some(listener) = self.store.listener() {
            listener.close();
        }
        self.book.lock().close(deadline);
        self.wake.notify_one();
    }
}
