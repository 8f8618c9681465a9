//! A term: the time for which one candidate leads, and how it ends.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::limits::Limits;
use super::rest::Rest;
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::events::{Event, EventKind, LossReason};
use crate::fork::Birth;
use crate::lease::Lease;
use crate::said::say;
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::system::Thread;

/// How often a term looks at its lease. Only a client that is closed, and a machine that was
/// suspended, end a term that nothing else tells.
const LOOK: Duration = Duration::from_millis(200);
/// How long it waits to be told why a lease is over. No event tells that of a client that was closed.
const REASON: Duration = Duration::from_secs(1);

/// Why a term has ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum TermEnd {
    /// The candidate resigned, or its election was stopped.
    Resigned,
    /// The lease could not be renewed, and only what the work needs to stop in is left.
    AtRisk,
    /// The lease was lost. `Expired` is also the end of a client that was closed.
    Lost(LossReason),
}

impl TermEnd {
    /// As the log calls it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            TermEnd::Resigned => "resigned",
            TermEnd::AtRisk => "at_risk",
            TermEnd::Lost(reason) => reason.word(),
        }
    }
}

/// What has become of a candidate, as [`Election::on_change`](super::Election::on_change) is told.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Leadership {
    /// It was elected.
    Elected {
        /// The fence of its term.
        fence: u64,
    },
    /// It leads no longer, and its work is told to stop.
    Ended {
        /// The fence of its term.
        fence: u64,
        /// Why.
        why: TermEnd,
    },
}

pub(super) type OnChange = Arc<dyn Fn(Leadership) + Send + Sync>;

/// One turn of leading, from [`Election::stand`](super::Election::stand) or in the hands of the work
/// of [`run_as_leader`](super::Election::run_as_leader). Dropping it resigns.
///
/// A term ends before its lease does: when only as much validity is left as the work
/// [needs to stop](super::Election::grace). A term that has ended does not begin again, even if the
/// lease could be renewed after all. The lock stays held until the term is dropped or resigned, so no
/// other candidate is elected while the work still stops, unless validity ends before.
#[must_use = "a term that is dropped is resigned at once"]
pub struct Term {
    inner: Arc<Inner>,
}

pub(super) struct Inner {
    name: Arc<[u8]>,
    fence: u64,
    limits: Limits,
    birth: Birth,
    state: Mutex<State>,
    changed: Condvar,
    rest: Arc<Rest>,
    on_change: Option<OnChange>,
}

struct State {
    /// None: it was resigned.
    lease: Option<Lease>,
    end: Option<TermEnd>,
    loss: Option<Event>,
    /// `on_change` has been told of the beginning: the end comes after that.
    is_announced: bool,
    /// `on_change` has been told of the end, or is being told.
    is_told: bool,
}

impl State {
    fn left(&self) -> Duration {
        self.lease.as_ref().map_or(Duration::ZERO, Lease::remaining)
    }
}

impl Term {
    /// Fails if nobody would watch over the lease; then it is released. [`announce`](Term::announce) is to
    /// follow, once the candidate knows the term.
    pub(super) fn begin(
        lease: Lease,
        limits: Limits,
        rest: Arc<Rest>,
        on_change: Option<OnChange>,
    ) -> Result<Term, Error> {
        let (name, fence) = (Arc::from(lease.name()), lease.fence());
        let (lease, is_announced, is_told) = (Some(lease), false, false);
        let state = State { lease, end: None, loss: None, is_announced, is_told };
        let inner = Arc::new(Inner {
            name,
            fence,
            limits,
            birth: Birth::here(),
            state: Mutex::new(state),
            changed: Condvar::default(),
            rest,
            on_change,
        });
        let term = Term { inner };
        let inner = &term.inner;
        let theirs = Arc::downgrade(inner);
        let lost = move |event: Event| theirs.upgrade().into_iter().for_each(|it| it.lost(&event));
        inner.state.lock().lease.as_ref().map_or(Ok(()), |lease| lease.on_lost(lost))?;
        let watched = Arc::clone(inner);
        Thread::start(c"leasehold-term", move || watched.watch())
            .map_err(|error| Error::new(ErrorKind::Exhausted, format!("a thread: {error}")))?;
        Ok(term)
    }

    /// Tells `on_change` that the candidate was elected, and then of the end, if that has come.
    pub(super) fn announce(&self) {
        let inner = &self.inner;
        say!(Info, "elected", lock = &*inner.name, fence = inner.fence);
        inner.tell(Leadership::Elected { fence: inner.fence });
        let mut state = inner.state.lock();
        state.is_announced = true;
        inner.told(state);
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// The fencing token of this term: larger than that of every earlier leader. Send it with each
    /// write, and let the resource reject a smaller one.
    pub fn fence(&self) -> u64 {
        self.inner.fence
    }

    /// The name of the election.
    pub fn name(&self) -> &[u8] {
        &self.inner.name
    }

    /// For how long no other candidate can be elected, by this lease; zero once it is over. Sends no
    /// request.
    pub fn remaining(&self) -> Duration {
        if self.inner.birth.is_here() { self.inner.state.lock().left() } else { Duration::ZERO }
    }

    /// Whether the work may go on. Sends no request.
    pub fn is_leader(&self) -> bool {
        self.end().is_none()
    }

    /// Why the term has ended; `None` while it lasts. Sends no request.
    pub fn end(&self) -> Option<TermEnd> {
        self.inner.end()
    }

    /// The event of the loss, if the lease was lost: its detail says who broke the lock, for example.
    pub fn loss(&self) -> Option<Event> {
        if self.inner.birth.is_here() { self.inner.state.lock().loss.clone() } else { None }
    }

    /// Sleeps until the term ends, for `limit` at most, and returns whether it has ended. So work
    /// that does something at intervals stops at once when it has to.
    pub fn ended_within(&self, limit: Duration) -> bool {
        self.inner.ended_within(limit)
    }

    /// Ends the term: releases the lock, and waits until the store confirms it. Another candidate is
    /// elected then.
    ///
    /// # Errors
    /// As for [`Lease::release`]: [`ErrorKind::Lost`] if another candidate may have led before.
    pub fn resign(self) -> Result<(), Error> {
        self.release()
    }

    /// Ends the term without waiting for the store, where others share it.
    pub(crate) fn let_go(&self) {
        // On a client that a forked child inherited, the lease is leaked: it is the parent's.
        drop(self.inner.close(Reason::Unasked));
    }

    /// As [`resign`](Term::resign), where others share the term. Whoever comes second finds nothing to release.
    pub(crate) fn release(&self) -> Result<(), Error> {
        self.inner.close(Reason::Awaited).map_or(Ok(()), Lease::release)
    }
}

impl Inner {
    fn lost(&self, event: &Event) {
        let EventKind::Lost(reason) = event.kind else { return };
        let mut state = self.state.lock();
        state.loss.get_or_insert_with(|| event.clone());
        state.end.get_or_insert(TermEnd::Lost(reason));
        self.told(state);
    }

    /// Tells the work to stop, as long as nothing else has ended the term.
    pub(super) fn ask_to_stop(&self) {
        let mut state = self.state.lock();
        state.end.get_or_insert(TermEnd::Resigned);
        self.told(state);
    }

    /// As much as is known without a thread that looks.
    fn end(&self) -> Option<TermEnd> {
        if !self.birth.is_here() {
            return Some(TermEnd::Lost(LossReason::NotRenewed));
        }
        self.look(&mut self.state.lock())
    }

    fn look(&self, state: &mut State) -> Option<TermEnd> {
        let left = state.left();
        if state.end.is_none() && left.is_zero() {
            // Not for good: the event of the loss may say more.
            return Some(TermEnd::Lost(LossReason::Expired));
        }
        if state.end.is_none() && left <= self.limits.stop {
            state.end = Some(TermEnd::AtRisk);
        }
        state.end
    }

    pub(super) fn ended_within(&self, limit: Duration) -> bool {
        let deadline = Deadline::after(limit);
        loop {
            if self.end().is_some() {
                return true;
            }
            let state = self.state.lock();
            let left = deadline.left();
            if left.is_zero() || state.end.is_some() {
                return state.end.is_some();
            }
            let next = state.left().saturating_sub(self.limits.stop);
            drop(self.changed.wait_for(state, left.min(next)));
        }
    }

    /// Until the term has ended, and those are told who want to know.
    fn watch(&self) {
        let mut over_since = None;
        let mut state = self.state.lock();
        loop {
            let end = self.look(&mut state);
            if state.end.is_some() {
                break;
            }
            if end.is_some() {
                let since = *over_since.get_or_insert_with(Moment::now);
                self.changed.notify_all();
                if Moment::now() >= since.plus(REASON) {
                    state.end = end;
                    break;
                }
            }
            let left = state.left().saturating_sub(self.limits.stop);
            let next = if end.is_some() { LOOK } else { left.min(LOOK) };
            state = self.changed.wait_for(state, next);
        }
        self.told(state);
    }

    /// Wakes those who wait for the end, and calls `on_change` once.
    fn told(&self, mut state: MutexGuard<'_, State>) {
        let Some(why) = state.end else { return };
        let is_first = state.is_announced && !std::mem::replace(&mut state.is_told, true);
        drop(state);
        self.changed.notify_all();
        if is_first {
            let fence = self.fence;
            say!(Info, "leadership-ended", lock = &*self.name, fence = fence, why = why.word());
            self.tell(Leadership::Ended { fence, why });
        }
    }

    fn tell(&self, what: Leadership) {
        if let Some(call) = &self.on_change {
            call(what);
        }
    }

    /// Whether the work runs although the lease has ended.
    pub(super) fn is_overdue(&self) -> bool {
        let state = self.state.lock();
        state.lease.as_ref().is_some_and(|lease| !lease.is_valid())
    }

    /// Whether it was not resigned.
    pub(super) fn is_open(&self) -> bool {
        self.state.lock().lease.is_some()
    }

    pub(super) fn is_leader(&self) -> bool {
        self.end().is_none()
    }

    pub(super) fn fence(&self) -> u64 {
        self.fence
    }

    /// Ends the term and hands out its lease, if that was not done.
    fn close(&self, reason: Reason) -> Option<Lease> {
        if !self.birth.is_here() {
            return None;
        }
        let mut state = self.state.lock();
        if reason == Reason::Awaited {
            state = self.with_reason(state);
        }
        // Why it has ended is known before the lease is gone: nobody sees one without the other.
        let end = self.look(&mut state).unwrap_or(TermEnd::Resigned);
        let lease = state.lease.take()?;
        state.end.get_or_insert(end);
        self.rest.begin();
        self.told(state);
        Some(lease)
    }

    /// Where the lease is over, why is told in a moment, and by nothing once the lease was released.
    fn with_reason<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if state.lease.is_none() || self.look(&mut state).is_none() {
            return state;
        }
        let deadline = Deadline::after(REASON);
        while state.end.is_none() && !deadline.has_passed() {
            state = self.changed.wait_for(state, deadline.left());
        }
        state.end.get_or_insert(TermEnd::Lost(LossReason::Expired));
        state
    }
}

/// Whether to wait until it is known why the lease is over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    Awaited,
    Unasked,
}

impl Drop for Term {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term")
            .field("name", &self.inner.name.escape_ascii().to_string())
            .field("fence", &self.inner.fence)
            .finish_non_exhaustive()
    }
}
