//! The lock: a name, options, and the ways to take it. A cheap handle that holds nothing.

mod breaking;
mod call;
mod future;
mod state;
mod steps;
mod stuck;
mod wait_mode;

use std::sync::Arc;
use std::time::Duration;

pub use self::breaking::{Break, break_shown, last_breach};
pub use self::future::Acquiring;
pub use self::wait_mode::WaitMode;
use crate::clock::{Deadline, Moment};
use crate::config::limits::{MAX_FENCE, MIN_RENEWED_TTL};
use crate::config::{check_io_timeout, check_name, check_renewed_ttl, check_ttl, defaults, spoken};
use crate::error::{Error, ErrorKind};
use crate::fork::Birth;
use crate::grant::{Grant, Terms};
use crate::keeper::Keepers;
use crate::lease::Lease;
use crate::metrics::Group;
use crate::store::{Identity, LockState};
use crate::token::Token;
use crate::wait::Check;

/// A lock that can be acquired: a name and options. [`Client::lock`](crate::Client::lock) makes it.
/// Making, cloning and sharing one costs nothing and holds nothing.
///
/// ```no_run
/// use std::time::Duration;
/// use leasehold::{Client, ErrorKind};
///
/// let client = Client::open("redis://127.0.0.1")?;
/// let stock = client.lock("stock:sku-17").ttl(Duration::from_secs(10)).wait(Duration::from_secs(5));
///
/// if let Some(lease) = stock.try_acquire()? {
///     println!("mine, with fence {}", lease.fence());
/// }
/// match stock.acquire() {
///     Ok(lease) => lease.release()?,
///     Err(error) if error.kind() == ErrorKind::Timeout => println!("held for 5 s"),
///     Err(error) => return Err(error),
/// }
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "a lock holds nothing until it is acquired"]
pub struct Lock {
    keepers: Arc<Keepers>,
    name: Arc<[u8]>,
    group: Group,
    ttl: Duration,
    wait: Option<Duration>,
    /// None: the client's.
    io_timeout: Option<Duration>,
    /// None: as the ttl allows.
    renew: Option<bool>,
    max_hold: Option<Duration>,
    wait_mode: WaitMode,
}

impl Lock {
    pub(crate) fn new(keepers: Arc<Keepers>, name: &[u8]) -> Lock {
        Lock {
            name: Arc::from(name),
            group: Group::of(&keepers.config.metrics_groups, name),
            ttl: defaults::TTL.min(keepers.config.longest_ttl()),
            keepers,
            wait: Some(defaults::WAIT),
            io_timeout: None,
            renew: None,
            max_hold: Some(defaults::MAX_HOLD),
            wait_mode: WaitMode::Auto,
        }
    }

    /// The time to live: how soon the lock is free after its holder died. 30 s by default, from 3 ms to
    /// 366 days, or to [`max_ttl`](crate::Config::max_ttl). It does not end a lease that is renewed.
    pub fn ttl(mut self, ttl: Duration) -> Lock {
        self.ttl = ttl;
        self
    }

    /// How long [`acquire`](Lock::acquire) waits: 60 s by default. Zero tries once.
    pub fn wait(mut self, wait: Duration) -> Lock {
        self.wait = Some(wait);
        self
    }

    /// Makes [`acquire`](Lock::acquire) wait without limit.
    pub fn wait_forever(mut self) -> Lock {
        self.wait = None;
        self
    }

    /// How long the store may take to answer when this lock is acquired, from 1 ms to 1 h. The default
    /// is the client's [`io_timeout`](crate::Config::io_timeout), 1 s unless it was set.
    ///
    /// While the store is silent, a try lasts that long, and so does a shorter wait. A program that
    /// drops duplicates can set 50 ms here: by then it has an answer or an error. Renewals and
    /// releases keep the client's `io_timeout`.
    pub fn io_timeout(mut self, most: Duration) -> Lock {
        self.io_timeout = Some(most);
        self
    }

    /// Whether the client renews leases in the background. By default it does if the ttl is at least
    /// 100 ms. Without renewal a lease expires after its ttl.
    pub fn renew(mut self, renew: bool) -> Lock {
        self.renew = Some(renew);
        self
    }

    /// How long a living holder may keep a renewed lease: 1 h by default.
    pub fn max_hold(mut self, most: Duration) -> Lock {
        self.max_hold = Some(most);
        self
    }

    /// Lets a living holder keep a renewed lease without limit.
    pub fn no_max_hold(mut self) -> Lock {
        self.max_hold = None;
        self
    }

    /// How to wait. By default in a fair queue, where the store has one.
    pub fn wait_mode(mut self, mode: WaitMode) -> Lock {
        self.wait_mode = mode;
        self
    }

    /// The name of the lock.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Acquires the lock if it is free, without waiting for a holder. Returns `None` when another holder
    /// has it.
    ///
    /// # Errors
    /// - [`ErrorKind::BadArgument`] for a name or option that can never work, before anything is sent.
    /// - [`ErrorKind::Unknown`] if the request was sent and no reply came.
    /// - Others for whatever kept the store from answering.
    ///
    /// The call ends within [`io_timeout`](Lock::io_timeout), 1 s by default.
    pub fn try_acquire(&self) -> Result<Option<Lease>, Error> {
        let terms = self.check()?;
        self.named(steps::try_acquire(self, terms))
    }

    /// Acquires the lock, and waits for it as long as [`wait`](Lock::wait) says.
    ///
    /// The call ends within the wait or [`io_timeout`](Lock::io_timeout), whichever is later, whatever
    /// the network does. So a shorter wait still gets an answer. Once the store has answered this
    /// client, a wait continues through an outage of the store.
    ///
    /// # Errors
    /// - [`ErrorKind::Timeout`] when the lock was held for the whole wait.
    /// - [`ErrorKind::WouldDeadlock`] when the wait has no limit and this thread holds the lock itself,
    ///   by this client or another one of the same store.
    /// - [`ErrorKind::Closed`] when the client is closed during the wait.
    /// - Others as for [`try_acquire`](Lock::try_acquire).
    pub fn acquire(&self) -> Result<Lease, Error> {
        self.take(self.wait, None)
    }

    /// Acquires the lock as [`acquire`](Lock::acquire) does, and waits for `wait` at most.
    ///
    /// # Errors
    /// As for [`acquire`](Lock::acquire).
    pub fn acquire_within(&self, wait: Duration) -> Result<Lease, Error> {
        self.take(Some(wait), None)
    }

    /// Acquires the lock as [`acquire`](Lock::acquire) does. During the wait it calls `stop` every
    /// 100 ms on this thread. If `stop` returns true, the wait ends.
    ///
    /// ```no_run
    /// # use std::sync::atomic::{AtomicBool, Ordering};
    /// # static STOP: AtomicBool = AtomicBool::new(false);
    /// # let client = leasehold::Client::open("redis://127.0.0.1")?;
    /// let lease = client.lock("nightly").acquire_unless(|| STOP.load(Ordering::Relaxed))?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`acquire`](Lock::acquire), and [`ErrorKind::Interrupted`].
    pub fn acquire_unless(&self, mut stop: impl FnMut() -> bool) -> Result<Lease, Error> {
        // It may fork. The child that returns from it goes no further into the wait, where threads
        // that it does not have may hold what it would ask for.
        let birth = Birth::here();
        let mut stop = || stop() || !birth.is_here();
        self.take(self.wait, Some(Check::new(&mut stop)))
    }

    /// Acquires the lock without blocking a thread: returns a future for any executor. It waits as long
    /// as [`wait`](Lock::wait) says.
    ///
    /// ```no_run
    /// # async fn job() -> Result<(), leasehold::Error> {
    /// let client = leasehold::Client::open("redis://127.0.0.1")?;
    /// let lease = client.lock("stock:sku-17").acquire_async().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The lease is the same as that of [`acquire`](Lock::acquire): [`release`](Lease::release) blocks
    /// until the store answers, and dropping the lease does not.
    pub fn acquire_async(&self) -> Acquiring {
        Acquiring::new(self)
    }

    /// Continues a lease that another process acquired and passed on with [`Lease::detach`]. For
    /// example, a web request acquires it and a worker releases it.
    ///
    /// This call sends no request. The lease has a token of its own. Rely on it only after its first
    /// successful [`extend`](Lease::extend), which fails with [`ErrorKind::Lost`] in two cases: no
    /// process detached a lease with this token and fence, or another program that attached it has
    /// extended it first.
    ///
    /// [`Lease::release`] needs no extension and no detaching: the token is enough to release the lock.
    /// Dropping the lease releases only what was detached.
    ///
    /// # Errors
    /// [`ErrorKind::BadArgument`] for a fence that is 0 or above [`MAX_FENCE`](crate::limits::MAX_FENCE).
    pub fn attach(&self, token: Token, fence: u64) -> Result<Lease, Error> {
        let terms = self.check()?;
        if fence == 0 || fence > MAX_FENCE {
            return Err(bad(format!("the fence is {fence}; it goes from 1 to {MAX_FENCE}")));
        }
        let keeper = self.keepers.here()?;
        let (ours, ttl) = (Token::of(keeper.client())?, terms.first_ttl());
        let identity = Identity { name: Arc::clone(&self.name), token: ours, fence, ttl };
        let grant = Grant::attached(identity, token, terms, Moment::now());
        grant.span.begin(None, || self.group_label(), fence);
        Ok(Lease::new(Arc::clone(keeper), grant))
    }

    /// As the metrics have it.
    fn group_label(&self) -> &str {
        self.group.label(&self.keepers.config.metrics_groups)
    }

    /// Reads who holds the lock and who waits for it. Changes nothing.
    ///
    /// # Errors
    /// As for [`try_acquire`](Lock::try_acquire).
    pub fn inspect(&self) -> Result<LockState, Error> {
        let core = self.keepers.here()?.core()?;
        self.check_name()?;
        let deadline = Deadline::after(core.config.io_timeout);
        self.named(core.inspect(&self.name, deadline))
    }

    fn take(&self, wait: Option<Duration>, check: Option<Check<'_>>) -> Result<Lease, Error> {
        let terms = self.check()?;
        self.named(steps::acquire(self, terms, wait, check))
    }

    fn named<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|error| error.about(&self.name))
    }

    #[cfg(feature = "capi")]
    pub(crate) fn reopens(&self) -> bool {
        self.keepers.reopens()
    }

    pub(crate) fn ttl_of(&self) -> Duration {
        self.ttl
    }

    pub(crate) fn check_name(&self) -> Result<(), Error> {
        check_name(&self.keepers.config.prefix, &self.name)
    }

    /// How long a request for the lock may take.
    fn patience(&self) -> Duration {
        self.io_timeout.unwrap_or(self.keepers.config.io_timeout)
    }

    /// What no option can be by itself, whatever the others are.
    pub(crate) fn check_options(&self) -> Result<(), Error> {
        let Lock { ttl, io_timeout, max_hold, wait_mode, .. } = *self;
        let max_ttl = self.keepers.config.longest_ttl();
        check_ttl(ttl, max_ttl)?;
        wait_mode.backoff().check()?;
        io_timeout.map_or(Ok(()), check_io_timeout)?;
        max_hold.filter(|most| *most < ttl).map_or(Ok(()), |most| {
            check_ttl(most, max_ttl).map_err(|error| {
                let most = spoken(most);
                bad(format!("max_hold is {most}, too short to hold anything: {}", error.detail()))
            })
        })
    }

    /// Whether the ttl suits a lock that was told to renew its leases.
    pub(crate) fn check_renewal(&self) -> Result<(), Error> {
        match self.renew {
            Some(true) => check_renewed_ttl(self.ttl, self.keepers.config.longest_ttl()),
            _ => Ok(()),
        }
    }

    /// Everything that can be refused before anything is sent.
    pub(crate) fn check(&self) -> Result<Terms, Error> {
        self.keepers.here()?.core()?;
        let Lock { ttl, renew, max_hold, .. } = *self;
        self.check_name()?;
        self.check_renewal()?;
        self.check_options()?;
        let renew = renew.unwrap_or(ttl >= MIN_RENEWED_TTL);
        // Stores count whole milliseconds, and so does what is relied on.
        let ttl = Duration::from_millis(crate::store::millis(ttl));
        Ok(Terms { ttl, renew, max_hold: max_hold.filter(|_| renew), group: self.group })
    }
}

fn bad(detail: String) -> Error {
    Error::new(ErrorKind::BadArgument, detail)
}

impl std::fmt::Debug for Lock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lock")
            .field("name", &self.name.escape_ascii().to_string())
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}
