//! The election: one leader among the candidates for a name, over a lock.

mod candidate;
mod limits;
mod rest;
mod term;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::candidate::Candidate;
pub use self::limits::Limits;
use self::term::OnChange;
pub use self::term::{Leadership, Term, TermEnd};
use crate::client::Client;
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::fork::Birth;
use crate::lease::Lease;
use crate::lock::Lock;
use crate::said::say;
use crate::store::Holder;

/// How long work has to stop, unless an election says otherwise.
const GRACE: Duration = Duration::from_secs(10);

impl Client {
    /// An election for a name: one candidate leads, the others stand by. It is a [`Lock`] of that name
    /// underneath, so `leasehold show` shows the leader. Nothing is checked or sent before it is used.
    pub fn election(&self, name: impl AsRef<[u8]>) -> Election {
        Election::new(self.lock(name))
    }
}

/// One candidate for the leadership of a name. [`Client::election`] makes it. A clone is the same
/// candidate: one thread stands, and another one resigns, stops it, or asks whether it leads.
///
/// ```no_run
/// use std::time::Duration;
/// use leasehold::{Client, Error};
///
/// # fn collect(_fence: u64) {}
/// let client = Client::open("redis://127.0.0.1")?;
/// let election = client.election("collector").ttl(Duration::from_secs(15));
///
/// // Stands by, runs the work when elected, and stands again when the leadership was lost.
/// election.run_as_leader(|term| {
///     while !term.ended_within(Duration::from_secs(1)) {
///         collect(term.fence());      // the database rejects a smaller fence
///     }
///     Ok::<(), Error>(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone)]
#[must_use = "a candidate stands when it is told to"]
pub struct Election {
    lock: Lock,
    ttl: Duration,
    grace: Duration,
    stand_again: bool,
    on_change: Option<OnChange>,
    candidate: Arc<Candidate>,
    birth: Birth,
}

/// What a candidate does at this moment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ElectionState {
    /// It does not stand: it has not begun, its work has ended, or it was stopped.
    Idle,
    /// It waits to be elected, or rests first.
    Standby,
    /// It leads.
    Leading,
    /// Its leadership has ended and the work was told to stop. No other candidate can be elected yet.
    Stopping,
    /// Its lease is over, and the work has still not stopped: another candidate may lead beside it.
    Overdue,
}

impl Election {
    fn new(lock: Lock) -> Election {
        let lock = lock.renew(true).no_max_hold().wait_forever();
        // Machines that start together differ in the one, processes of one machine in the other.
        let seed = Moment::now().as_nanos() ^ u64::from(std::process::id()) << 32;
        Election {
            ttl: lock.ttl_of(),
            lock,
            grace: GRACE,
            stand_again: false,
            on_change: None,
            candidate: Arc::new(Candidate::new(seed)),
            birth: Birth::here(),
        }
    }

    /// How soon another candidate is elected after the leader died: 30 s by default, from 100 ms.
    pub fn ttl(mut self, ttl: Duration) -> Election {
        self.ttl = ttl;
        self.lock = self.lock.ttl(ttl);
        self
    }

    /// How long the work needs to stop: 10 s by default. If the lease cannot be renewed, the work is told
    /// to stop when that much validity is left and half a second more, or a third of the ttl if that is
    /// less.
    pub fn grace(mut self, grace: Duration) -> Election {
        self.grace = grace;
        self
    }

    /// Whether [`run_as_leader`](Election::run_as_leader) stands again when the work has returned by
    /// itself. By default it does not.
    pub fn stand_again(mut self, again: bool) -> Election {
        self.stand_again = again;
        self
    }

    /// Calls `call` when this candidate is elected, on the thread that stands, and when its leadership
    /// ends, on whichever thread notices. Why a lease was lost may be known up to a second later than that
    /// it was: the call comes then. It must be quick. It may resign or stop the election.
    pub fn on_change(mut self, call: impl Fn(Leadership) + Send + Sync + 'static) -> Election {
        self.on_change = Some(Arc::new(call));
        self
    }

    #[cfg(feature = "capi")]
    pub(crate) fn without_on_change(mut self) -> Election {
        self.on_change = None;
        self
    }

    /// The name of the election.
    pub fn name(&self) -> &[u8] {
        self.lock.name()
    }

    /// Waits until this candidate is elected, without limit. It waits through outages of the store, also
    /// where the store cannot be reached at the start. After a term of its own it rests for about a
    /// second first, so that others can be elected.
    ///
    /// # Errors
    /// - [`ErrorKind::Interrupted`]: the election was [stopped](Election::stop).
    /// - [`ErrorKind::WouldDeadlock`]: this thread leads already.
    /// - [`ErrorKind::Closed`], and others that waiting does not mend, such as
    ///   [`ErrorKind::BadArgument`] and [`ErrorKind::Auth`].
    pub fn stand(&self) -> Result<Term, Error> {
        self.campaign(None, &mut || false)
    }

    /// As [`stand`](Election::stand), for `limit` at most.
    ///
    /// # Errors
    /// As for [`stand`](Election::stand), and [`ErrorKind::Timeout`], or what was wrong with the store
    /// to the end.
    pub fn stand_within(&self, limit: Duration) -> Result<Term, Error> {
        self.campaign(Some(limit), &mut || false)
    }

    /// As [`stand`](Election::stand), and calls `stop` every 100 ms on this thread. If `stop` returns
    /// true, the wait ends.
    ///
    /// # Errors
    /// As for [`stand`](Election::stand), and [`ErrorKind::Interrupted`].
    pub fn stand_unless(&self, mut stop: impl FnMut() -> bool) -> Result<Term, Error> {
        self.campaign(None, &mut stop)
    }

    /// Stands by, runs `work` when elected, and stands again when the leadership was lost, until the
    /// election is [stopped](Election::stop). The work runs on this thread. It is told to stop by its
    /// [`Term`], and has to ask: [`is_leader`](Term::is_leader) or
    /// [`ended_within`](Term::ended_within).
    ///
    /// | the work | then |
    /// | --- | --- |
    /// | returns `Ok` after it was told to stop | the lock is released, and the candidate stands again |
    /// | returns `Ok` while it leads | the lock is released, and this returns; or it [stands again](Election::stand_again) |
    /// | returns `Err` | the lock is released, and this returns the error |
    /// | panics | the lock is released, and the panic goes on |
    /// | does not stop when told to | the lock stays held and is renewed if that is possible. Else another candidate is elected when validity ends, with a larger fence |
    ///
    /// # Errors
    /// Those of the work, and those of [`stand`](Election::stand) but for
    /// [`ErrorKind::Interrupted`]. [`ErrorKind::Lost`]: the work returned while it seemed to lead, and
    /// the store says that the lock was lost before.
    pub fn run_as_leader<E: From<Error>>(
        &self,
        mut work: impl FnMut(&Term) -> Result<(), E>,
    ) -> Result<(), E> {
        self.lead(&mut || false, |term| work(term))
    }

    /// The same where the work shares its term, and `ends` can end the standing.
    pub(crate) fn lead<E: From<Error>>(
        &self,
        ends: &mut dyn FnMut() -> bool,
        mut work: impl FnMut(&Arc<Term>) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            let term = match self.campaign(None, ends) {
                Ok(term) => Arc::new(term),
                Err(error) if error.kind() == ErrorKind::Interrupted && self.is_stopped() => {
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            };
            let outcome = work(&term);
            let led_to_its_end = term.is_leader();
            let released = term.release();
            outcome?;
            if led_to_its_end && !self.stand_again {
                return match released {
                    Err(error) if error.kind() == ErrorKind::Lost => Err(error.into()),
                    // Free by its ttl; the work has done what it had to do.
                    _ => Ok(()),
                };
            }
        }
    }

    /// Who leads now; `None` when nobody does. Asks the store.
    ///
    /// # Errors
    /// As for [`Lock::inspect`].
    pub fn leader(&self) -> Result<Option<Holder>, Error> {
        Ok(self.lock.inspect()?.holder)
    }

    /// Whether this candidate leads at this moment. Sends no request.
    pub fn is_leader(&self) -> bool {
        self.state() == ElectionState::Leading
    }

    /// The fence of the term in which this candidate leads; `None` while it does not.
    pub fn fence(&self) -> Option<u64> {
        self.term().filter(|term| term.is_leader()).map(|term| term.fence())
    }

    /// What this candidate does at this moment. Sends no request.
    pub fn state(&self) -> ElectionState {
        match self.term() {
            Some(term) if term.is_leader() => ElectionState::Leading,
            Some(term) if term.is_overdue() => ElectionState::Overdue,
            Some(_) => ElectionState::Stopping,
            None if self.birth.is_here() && self.candidate.is_standing() => ElectionState::Standby,
            None => ElectionState::Idle,
        }
    }

    /// Whether all is well, for an answer to `/healthz`: false while the work still runs after its lease
    /// has ended, and nothing but the end of the process stops it. A standby is healthy. Sends no
    /// request.
    pub fn is_healthy(&self) -> bool {
        self.state() != ElectionState::Overdue
    }

    /// Tells the work to stop, if this candidate leads; the lock is released when it has stopped. Other
    /// candidates are elected first: this one rests for about a second before it stands again.
    pub fn resign(&self) {
        if let Some(term) = self.term() {
            term.ask_to_stop();
        }
    }

    /// Ends the election for this candidate, for good: it [resigns](Election::resign), whoever waits in
    /// [`stand`](Election::stand) returns [`ErrorKind::Interrupted`] within 100 ms, or when a silent
    /// store's `io_timeout` is over, and [`run_as_leader`](Election::run_as_leader) returns `Ok` when the
    /// work has stopped.
    pub fn stop(&self) {
        if self.birth.is_here() {
            self.candidate.rest.stop();
            self.resign();
        }
    }

    /// Whether [`stop`](Election::stop) was called.
    pub fn is_stopped(&self) -> bool {
        self.birth.is_here() && self.candidate.rest.is_stopped()
    }

    fn term(&self) -> Option<Arc<term::Inner>> {
        if self.birth.is_here() { self.candidate.term() } else { None }
    }

    /// The lock underneath, for its checks.
    #[cfg(feature = "capi")]
    pub(crate) fn lock(&self) -> &Lock {
        &self.lock
    }

    pub(crate) fn campaign(
        &self,
        limit: Option<Duration>,
        ends: &mut dyn FnMut() -> bool,
    ) -> Result<Term, Error> {
        self.birth.check()?;
        self.lock.check()?;
        let deadline = limit.map_or(Deadline::at(Moment::NEVER), Deadline::after);
        let _standing = self.candidate.stand();
        let mut trouble: Option<Error> = None;
        loop {
            let mut is_over = false;
            let has_rested = self.candidate.rest.is_over_by(deadline, || {
                is_over = is_over || ends();
                is_over
            });
            if is_over || self.candidate.rest.is_stopped() {
                return Err(self.interrupted());
            }
            if !has_rested {
                let timeout = || Error::bare(ErrorKind::Timeout).about(self.name());
                return Err(trouble.unwrap_or_else(timeout));
            }
            let lock = self.lock.clone();
            let lock = limit.map_or(lock.clone(), |_| lock.wait(deadline.left()));
            match lock.acquire_unless(|| self.candidate.rest.is_stopped() || ends()) {
                Ok(lease) => {
                    if let Some(term) = self.elected(lease)? {
                        return Ok(term);
                    }
                }
                Err(error) if !is_for_later(&error) => return Err(error),
                Err(error) => {
                    if trouble.is_none() {
                        say!(Warn, "election-waits", lock = self.name(), error = error);
                    }
                    trouble = Some(error);
                }
            }
            self.candidate.rest.begin();
        }
    }

    /// `None` if the lease is too short to begin with.
    fn elected(&self, lease: Lease) -> Result<Option<Term>, Error> {
        let limits = Limits::new(self.ttl, self.grace);
        // One that was handed over is valid for the claim window only, until it is claimed.
        match lease.extend() {
            Err(error) if error.kind() == ErrorKind::Lost => return Ok(None),
            Err(error) if !error.is_retriable() => return Err(error),
            // What it has is what counts.
            _ => {}
        }
        // The store may have been silent for long.
        if self.is_stopped() {
            return Err(self.interrupted());
        }
        if lease.remaining() <= limits.stop {
            return Ok(None);
        }
        let rest = Arc::clone(&self.candidate.rest);
        let term = Term::begin(lease, limits, rest, self.on_change.clone())?;
        self.candidate.leads(term.inner());
        term.announce();
        Ok(Some(term))
    }

    fn interrupted(&self) -> Error {
        Error::bare(ErrorKind::Interrupted).about(self.name())
    }
}

/// Whether it is the store's trouble, which may be over soon, and not what the caller has asked for.
fn is_for_later(error: &Error) -> bool {
    error.is_retriable() && !matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Interrupted)
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("name", &self.name().escape_ascii().to_string())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
