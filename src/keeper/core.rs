//! The core of a client: everything that its calls share. Calls ask the store here, and leave here
//! what the keeper has to do later.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::book::Book;
use super::register::{KEPT, Register};
use crate::clock::{Deadline, Moment};
use crate::config::Config;
use crate::error::{Error, ErrorKind};
use crate::events::{Detail, Event, EventKind, Hub};
use crate::grant::{Ended, Grant};
use crate::metrics::{Group, Metrics, Series};
use crate::said::say;
use crate::store::breaking::Breach;
use crate::store::outbox::{Concern, Outbox};
use crate::store::{
    BLOCK, Holder, Identity, Lane, LockState, Outcome, Owed, Record, Reply, Request, Store,
    introduce, no_reply,
};
use crate::sync::{Condvar, Mutex};
use crate::token::ClientId;
use crate::wait::crew::Crew;
use crate::wait::{Limits, Owe, Owing, WaitingRoom, look_span};
use crate::who::Run;

pub(crate) struct Core {
    pub(crate) config: Config,
    pub(crate) store: Box<dyn Store>,
    /// Each of its tokens begins with this.
    pub(crate) client: ClientId,
    pub(crate) metrics: Metrics,
    pub(crate) hub: Hub,
    pub(crate) room: WaitingRoom,
    /// The store has answered a take of this client at least once, if only by "not now".
    pub(crate) answered: AtomicBool,
    /// How often the store was found to have lost what it granted.
    pub(crate) losses: AtomicU64,
    /// When the log is told next that waits do not get on, in nanoseconds.
    pub(crate) complain_at: AtomicU64,
    pub(super) outbox: Arc<Outbox>,
    pub(super) register: Register,
    pub(super) book: Mutex<Book>,
    pub(super) wake: Condvar,
    /// When the thread will look again by itself, in nanoseconds.
    pub(super) asleep_until: AtomicU64,
}

/// How long a thread of a closed client may take for a give.
const LEAVE_WAIT: Duration = Duration::from_millis(50);

impl Core {
    pub(super) fn new(
        store: Box<dyn Store>,
        outbox: Arc<Outbox>,
        config: Config,
    ) -> Result<Core, Error> {
        let (spread, look) = (store.abilities().spread, look_span(config.claim_window));
        let limits = Limits { turns: BLOCK, spread, look };
        // Beside those that ask the store: one that listens, and one that watches the clock.
        let crew = Crew::new(config.pool as usize + 2);
        Ok(Core {
            register: Register::new(config.registers, config.advises),
            metrics: Metrics::new(config.metrics_groups.len()),
            config,
            store,
            client: ClientId::draw()?,
            hub: Hub::default(),
            room: WaitingRoom::new(limits, crew),
            answered: AtomicBool::new(false),
            losses: AtomicU64::new(0),
            complain_at: AtomicU64::new(0),
            outbox,
            book: Mutex::new(Book::default()),
            wake: Condvar::default(),
            asleep_until: AtomicU64::new(0),
        })
    }

    /// Who has a lock and who waits for it, each with its client.
    pub(crate) fn inspect(&self, name: &[u8], by: Deadline) -> Result<LockState, Error> {
        self.look(name, false, by)
    }

    /// The holder alone.
    pub(crate) fn holder(&self, name: &[u8], by: Deadline) -> Result<Option<Holder>, Error> {
        Ok(self.look(name, true, by)?.holder)
    }

    fn look(&self, name: &[u8], only_holder: bool, by: Deadline) -> Result<LockState, Error> {
        self.with_store(|store| {
            let mut seen = store.inspect(name, by)?;
            if only_holder {
                seen.waiters.clear();
            }
            introduce(store, std::slice::from_mut(&mut seen), by);
            Ok(seen)
        })
    }

    /// Takes a grant into the book, or files it anew after its validity changed. If the client was
    /// closed meanwhile, the grant ends and is given.
    pub(crate) fn keep(&self, grant: &Arc<Grant>) -> Result<(), Error> {
        let mut book = self.book.lock();
        let (is_closing, is_lost) =
            (book.closing.is_some(), grant.is_older_than(book.store_lost_at));
        if !is_closing && !is_lost {
            let due = book.insert(Arc::clone(grant));
            drop(book);
            self.wake_by(due);
            self.note_use();
            return Ok(());
        }
        // The keeper has ended all grants in its book, and this one was not there.
        drop(book);
        let now = Moment::now();
        if !is_closing {
            self.not_held(std::slice::from_ref(grant), now, None);
            return Ok(());
        }
        if grant.end(now) != Ended::Before {
            self.observe_hold(grant, now);
            self.owe_or_give_by(grant.owed(now), Deadline::after(self.config.io_timeout));
        }
        Err(Error::bare(ErrorKind::Closed))
    }

    /// A lease or a wait has begun: the store is to know soon who this client is.
    pub(crate) fn note_use(&self) {
        if let Some(due) = self.register.note(Moment::now) {
            self.wake_by(due);
        }
    }

    /// Tells the store who this client is. Another thread that does so has the newest record. The
    /// keeper does not wait for it: renewals come after this.
    pub(super) fn introduce_client(&self, by: Deadline) -> Result<(), Error> {
        self.register.run.enter_now().map_or(Ok(()), |noted| self.introduce(noted.as_ref(), by))
    }

    fn introduce(&self, run: Option<&(Run, Moment)>, by: Deadline) -> Result<(), Error> {
        let left = run.map_or(Duration::ZERO, |(_, until)| until.since(Moment::now()));
        let text = self.config.introduction.record(self.register.started, run.map(|(run, _)| run));
        self.register.is_known.store(true, Ordering::Relaxed);
        self.store.register(
            Record {
                client: self.client,
                text: &text,
                ttl: left.max(KEPT),
                outlives: run.is_some(),
            },
            by,
        )
    }

    /// Keeps in the store for `span` what this client has run, also when the client is gone.
    pub(crate) fn note_run(&self, run: Run, span: Duration) {
        if !self.config.registers {
            return;
        }
        let (until, by) = (Moment::now().plus(span), Deadline::after(self.config.io_timeout));
        let Some(mut noted) = self.register.run.enter(by) else { return };
        *noted = Some((run, until));
        if let Err(error) = self.introduce(noted.as_ref(), by) {
            say!(Debug, "record-untold", error = error);
        }
    }

    /// Takes a grant out of the book.
    pub(crate) fn forget(&self, grant: &Grant) {
        self.book.lock().remove(grant);
    }

    /// Sends requests to the store, behind the gives that are owed for the names that they take.
    pub(crate) fn run(
        &self,
        group: Group,
        lane: Lane,
        requests: &[Request<'_>],
        by: Deadline,
    ) -> Vec<Outcome> {
        let outcomes = self.with_store(|store| {
            let mut owed = Vec::new();
            if !store.abilities().sends_owed {
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
        });
        if let Some(outcome) = outcomes.first() {
            self.measure(group, outcome, Moment::now());
        }
        outcomes
    }

    pub(crate) fn ask(
        &self,
        group: Group,
        lane: Lane,
        request: Request<'_>,
        deadline: Deadline,
    ) -> Outcome {
        if self.store.abilities().sends_owed || self.outbox.is_empty() {
            let outcome = self.with_store(|store| store.ask(lane, request, deadline));
            self.measure(group, &outcome, Moment::now());
            return outcome;
        }
        self.run(group, lane, &[request], deadline).pop().unwrap_or_else(no_reply)
    }

    /// Measures a request, if it was sent, that was answered or given up at `now`.
    pub(super) fn measure(&self, group: Group, outcome: &Outcome, now: Moment) {
        let sent = outcome.as_ref().map_or_else(|failure| failure.sent, |answer| Some(answer.sent));
        if let Some(sent) = sent {
            self.metrics.of(group).round_trip.observe(sent, now);
        }
    }

    /// The figures of a name, for callers without a lock that knows its group.
    pub(super) fn figures(&self, name: &[u8]) -> &Series {
        self.metrics.of(Group::of(&self.config.metrics_groups, name))
    }

    /// Measures how long a lease was held that is over.
    pub(crate) fn observe_hold(&self, grant: &Grant, now: Moment) {
        self.metrics.of(grant.terms.group).hold.observe(grant.since, now);
    }

    /// Asks the store, and wakes the keeper if that leaves something to do.
    pub(crate) fn with_store<T>(&self, ask: impl FnOnce(&dyn Store) -> T) -> T {
        let answer = ask(&*self.store);
        self.wake_by(self.due());
        answer
    }

    /// Leaves a give to the keeper; false if the keeper has ended.
    pub(crate) fn owe(&self, owed: Owed) -> bool {
        self.owe_as(owed, Concern::Doubt)
    }

    fn owe_as(&self, owed: Owed, concern: Concern) -> bool {
        let now = Moment::now();
        let will_be_sent = self.outbox.owe(owed, concern, now);
        self.wake_by(now);
        will_be_sent
    }

    /// Gives without waiting for the reply, where the store can do so.
    pub(crate) fn let_go(&self, owed: Owed, lane: Lane, deadline: Deadline) {
        let Identity { name, .. } = &owed.identity;
        match self.with_store(|store| store.let_go(&owed, lane, deadline)) {
            Some(Ok(answer)) if answer.reply == Reply::Given => {}
            Some(Ok(_)) => self.report_late(&owed.identity, None),
            Some(Err(failure)) => {
                say!(Debug, "release-unanswered", lock = &**name, error = failure.error);
                if failure.sent.is_none() && failure.error.is_retriable() {
                    // No connection was free soon enough; the keeper has one of its own.
                    if self.owe_as(owed.clone(), Concern::Release) {
                        return;
                    }
                } else {
                    self.owe(owed.clone());
                }
                if failure.sent.is_some() {
                    self.figures(name).unknown.add_one();
                }
                self.report_late(&owed.identity, None);
            }
            // The client was closed meanwhile, and no thread reads the reply. A give may be sent
            // twice.
            None if self.outbox.is_over() => self.owe_or_give_by(owed, deadline),
            None => {}
        }
    }

    /// Wakes the keeper's thread if it would sleep longer than until `due`.
    ///
    /// No wake-up is lost: the caller writes the work down before it reads the thread's time, and
    /// the thread sets its time before it looks for work.
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
        self.outbox.due().min(self.store.due()).min(self.register.due())
    }

    /// Tells that a release for which no caller waited came too late, or may not have come at all.
    pub(crate) fn report_late(&self, identity: &Identity, breach: Option<Breach>) {
        self.figures(&identity.name).released_late.add_one();
        let detail = breach.map(|breach| breach.to_string().into());
        self.raise_and_log(identity, 0, EventKind::ReleasedLate, detail);
    }

    /// Leaves a give to the keeper. If the keeper has ended, this thread sends it: waiters wait for
    /// it.
    pub(crate) fn owe_or_give(&self, owed: Owed) {
        self.owe_or_give_by(owed, Deadline::after(LEAVE_WAIT));
    }

    fn owe_or_give_by(&self, owed: Owed, deadline: Deadline) {
        let identity = owed.identity.clone();
        if self.owe(owed) {
            return;
        }
        let left = self.store.ask(Lane::Give(deadline), identity.give(), deadline);
        if let Err(failure) = left {
            say!(Debug, "release-unanswered", lock = &*identity.name, error = failure.error);
        }
    }

    /// Leaves to the keeper the gives that a queue asks for.
    pub(crate) fn owe_all(&self, owing: impl IntoIterator<Item = Owing>) {
        for (name, Owe { token, ttl, until }) in owing {
            self.owe_or_give(Owed { identity: Identity { name, token, fence: 0, ttl }, until });
        }
    }

    /// Raised first: the program's logger may panic.
    pub(super) fn raise_and_log(&self, of: &Identity, lease: u64, kind: EventKind, detail: Detail) {
        self.raise(of, lease, kind, detail.clone());
        warn(of, kind, detail.as_deref().unwrap_or(""));
    }

    pub(super) fn raise(&self, of: &Identity, lease: u64, kind: EventKind, detail: Detail) {
        let Identity { name, fence, .. } = of;
        self.hub.raise(&Event { kind, name: Arc::clone(name), fence: *fence, lease, detail });
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

pub(super) fn warn(identity: &Identity, kind: EventKind, why: &str) {
    let (lock, fence) = (&*identity.name, identity.fence);
    match kind {
        EventKind::AtRisk => say!(Warn, "at-risk", lock = lock, fence = fence, why = why),
        EventKind::Lost(reason) => {
            let reason = reason.word();
            say!(Warn, "lost", lock = lock, fence = fence, reason = reason, why = why);
        }
        EventKind::ReleasedLate => {
            say!(Warn, "released-late", lock = lock, fence = fence, why = why);
        }
    }
}
