//! A store in memory with controls, for the tests of programs that use locks.
//!
//! A test gives its program a store that needs no server, and then has that store do what a server does
//! on a bad day:
//!
//! ```
//! use leasehold::{Client, ErrorKind, testing::Memory};
//!
//! let memory = Memory::new();
//! let client = Client::open(memory.url())?;            // what your program does
//!
//! let lease = client.lock("orders:42").acquire()?;
//! memory.assert_held("orders:42");
//! memory.lose("orders:42");
//! assert!(!lease.is_valid());                          // it was told
//! assert_eq!(lease.release().unwrap_err().kind(), ErrorKind::Lost);
//!
//! let other = memory.busy("orders:42");                // another client holds it
//! assert!(client.lock("orders:42").try_acquire()?.is_none());
//! drop(other);
//!
//! memory.fail_next(ErrorKind::Permission);
//! let error = client.lock("orders:42").acquire().unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::Permission);
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! It is behind the feature `testing`, which belongs into `[dev-dependencies]`.
//!
//! # Which clock moves
//!
//! [`advance`](Memory::advance) moves the clock of the store. The client has a clock of its own, the
//! machine's, which no test can move: [`Lease::remaining`](crate::Lease::remaining), the next renewal, the
//! end of a [`wait`](crate::Lock::wait), and [`max_hold`](crate::Lock::max_hold) count real time. To test
//! these, set short times.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::client::Client;
use crate::config::StoreConfig;
use crate::error::{Error, ErrorKind, plain};
use crate::keeper::renew_now;
use crate::store::memory::Memory as Store;
use crate::token::Token;

/// A store in the memory of this process, of its own, and the controls of a test.
///
/// All clients that open its [`url`](Memory::url) share the store: they exclude each other, as on a
/// server. Locks are named as the store has them: with the [`prefix`](crate::Config::prefix) of the
/// client, if that has one.
///
/// A control panics where the test itself is mistaken, such as by a name that is not held. Dropping the
/// value resumes the store; what is locked there stays locked.
pub struct Memory {
    store: Arc<Store>,
    name: String,
    url: String,
}

const NOT_HELD: &str = "no client holds this lock";
/// What a URL writes otherwise in a name.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

impl Memory {
    /// A store that no other test has.
    ///
    /// # Panics
    /// In a process that was forked from one that has used a store in memory.
    #[allow(clippy::new_without_default, reason = "each one is another store")]
    #[track_caller]
    pub fn new() -> Memory {
        done("Memory::new()", Memory::fresh())
    }

    pub(crate) fn fresh() -> Result<Memory, Error> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        Memory::opened(&format!("testing-{}", MADE.fetch_add(1, Ordering::Relaxed) + 1))
    }

    /// The store of this name in this process: for a program whose URL stands in a file, such as
    /// `memory:orders`. All values of one name steer the same store, and it stays after them.
    ///
    /// # Panics
    /// As [`Memory::new`].
    #[track_caller]
    pub fn named(name: &str) -> Memory {
        done(&call("Memory::named", name.as_bytes()), Memory::opened(name))
    }

    pub(crate) fn opened(name: &str) -> Result<Memory, Error> {
        let url = format!("memory:{}", utf8_percent_encode(name, ESCAPED));
        Ok(Memory { store: Store::named(name)?, name: name.to_owned(), url })
    }

    /// What a program opens, in this process. Options may follow, such as `?io_timeout=50ms`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A client of its own on this store: another one than those of your program.
    ///
    /// # Panics
    /// If this process has no thread or memory left for one.
    #[track_caller]
    pub fn client(&self) -> Client {
        done("client()", Client::open(&self.url))
    }

    /// Ends the lease of the holder, as if its ttl had run out. The lock is free, or the first waiter's.
    ///
    /// The clients of this process renew their leases on the name before this returns. So the holder has
    /// been told: its lease is invalid, and its event says
    /// [`NotHeld`](crate::LossReason::NotHeld). Two holders learn it later:
    ///
    /// - One whose leases are [not renewed](crate::Lock::renew) learns it when it extends or releases
    ///   the lease, as on a server.
    /// - While the store is [paused](Memory::pause), no renewal is answered. The holder learns it at its
    ///   next renewal.
    ///
    /// # Panics
    /// If no client holds the lock.
    #[track_caller]
    pub fn lose(&self, name: impl AsRef<[u8]>) {
        right(self.try_lose(name.as_ref()));
    }

    pub(crate) fn try_lose(&self, name: &[u8]) -> Result<(), Error> {
        if !self.store.end(name) {
            return Err(self.mistake(&call("lose", name), NOT_HELD));
        }
        self.have_heard(&[name.to_vec()]);
        Ok(())
    }

    /// Holds the lock as another client would, until the returned value is dropped. Then the store hands
    /// it to the first waiter. Neither real time nor [`advance`](Memory::advance) ends it.
    ///
    /// # Panics
    /// If a client holds the lock.
    #[track_caller]
    pub fn busy(&self, name: impl AsRef<[u8]>) -> Busy {
        right(self.try_busy(name.as_ref()))
    }

    pub(crate) fn try_busy(&self, name: &[u8]) -> Result<Busy, Error> {
        let Some(token) = self.store.occupy(name)? else {
            return Err(self.mistake(&call("busy", name), "this lock is held already"));
        };
        Ok(Busy { store: Arc::clone(&self.store), name: name.to_vec(), token })
    }

    /// Fails the next request of a call with this kind of error, as a store would that did not carry it
    /// out. With [`Unknown`](ErrorKind::Unknown) the store carries it out, and its reply is lost.
    ///
    /// Renewals and all else that a client does in the background do not count. A lease that is dropped
    /// sends a request, too. Called several times, it fails as many requests in that order.
    ///
    /// **A call tries again after an error that [is retriable](ErrorKind::is_retriable)**, so one failed
    /// request only delays it. To have the call itself fail, use [`failing`](Memory::failing).
    /// [`try_acquire`](crate::Lock::try_acquire) alone returns [`Refused`](ErrorKind::Refused) and
    /// [`NotReplicated`](ErrorKind::NotReplicated) at once.
    ///
    /// # Panics
    /// If no store gives this kind: [`Timeout`](ErrorKind::Timeout),
    /// [`Interrupted`](ErrorKind::Interrupted), [`Lost`](ErrorKind::Lost),
    /// [`WouldDeadlock`](ErrorKind::WouldDeadlock), [`Closed`](ErrorKind::Closed),
    /// [`Forked`](ErrorKind::Forked) and [`BadArgument`](ErrorKind::BadArgument) come from the client.
    #[track_caller]
    pub fn fail_next(&self, kind: ErrorKind) {
        right(self.try_fail_next(kind));
    }

    pub(crate) fn try_fail_next(&self, kind: ErrorKind) -> Result<(), Error> {
        check_kind("fail_next", kind)?;
        self.store.fail_next(kind);
        Ok(())
    }

    /// Fails every request of a call with this kind of error until the returned value is dropped, as
    /// [`fail_next`](Memory::fail_next) fails one. A call that tries again fails in the end, after
    /// [`io_timeout`](crate::Config::io_timeout) or its [`wait`](crate::Lock::wait).
    ///
    /// # Panics
    /// As [`fail_next`](Memory::fail_next).
    #[track_caller]
    pub fn failing(&self, kind: ErrorKind) -> Failing {
        right(self.try_failing(kind))
    }

    pub(crate) fn try_failing(&self, kind: ErrorKind) -> Result<Failing, Error> {
        check_kind("failing", kind)?;
        Ok(Failing { number: self.store.fail_all(kind), store: Arc::clone(&self.store) })
    }

    /// The store answers nothing, neither calls nor renewals, until [`resume`](Memory::resume). A request
    /// that is waiting then is answered. One that has given up was not carried out.
    ///
    /// Leases expire meanwhile, by real time or by [`advance`](Memory::advance).
    pub fn pause(&self) {
        self.store.set_paused(true);
    }

    /// The store answers again.
    pub fn resume(&self) {
        self.store.set_paused(false);
    }

    /// Moves the clock of the store forward. Leases expire there as if so much time had passed without a
    /// request, and a lock that this frees is handed to its first waiter. The holder of an ended lease has been told
    /// when this returns, as after [`lose`](Memory::lose).
    ///
    /// The clock of the client stays: a lease that goes on in the store is as long valid as before. Until
    /// its next renewal, the store has less time for it than its holder believes, so another client may
    /// have the lock while that lease is still valid.
    pub fn advance(&self, by: Duration) {
        self.have_heard(&self.store.advance(by));
    }

    /// The names of the locks that are held, in their order, also by [`busy`](Memory::busy). Control
    /// characters and bytes that are no text are escaped.
    pub fn held(&self) -> Vec<String> {
        self.held_names().iter().map(plain).collect()
    }

    pub(crate) fn held_names(&self) -> Vec<Vec<u8>> {
        self.store.held()
    }

    /// # Panics
    /// If no client holds the lock. The message has the names of those that are held.
    #[track_caller]
    pub fn assert_held(&self, name: impl AsRef<[u8]>) {
        right(self.check(name.as_ref(), "assert_held", true));
    }

    /// # Panics
    /// If a client holds the lock.
    #[track_caller]
    pub fn assert_free(&self, name: impl AsRef<[u8]>) {
        right(self.check(name.as_ref(), "assert_free", false));
    }

    fn check(&self, name: &[u8], control: &str, is_to_be_held: bool) -> Result<(), Error> {
        let is_held = self.store.held().iter().any(|held| held == name);
        let what = if is_held { "this lock is held" } else { NOT_HELD };
        if is_held == is_to_be_held {
            Ok(())
        } else {
            Err(self.mistake(&call(control, name), what))
        }
    }

    /// Has the holders hear that the store has ended their leases.
    fn have_heard(&self, keys: &[Vec<u8>]) {
        if !keys.is_empty() && !self.store.is_paused() {
            renew_now(&StoreConfig::Memory(self.name.clone()), keys);
        }
    }

    /// What the author of a test reads whose test is mistaken.
    fn mistake(&self, call: &str, what: &str) -> Error {
        let held: Vec<_> = self.held().iter().map(|name| format!("'{name}'")).collect();
        let held = if held.is_empty() { "none".to_owned() } else { held.join(", ") };
        mistake(format!("{call}: {what}; locks held in {}: {held}", self.url))
    }
}

impl Drop for Memory {
    /// A test that has failed while the store was paused does not make its clients wait.
    fn drop(&mut self) {
        self.resume();
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("url", &self.url).finish_non_exhaustive()
    }
}

/// A lock that another client holds, from [`Memory::busy`]. Dropping it releases the lock.
#[must_use = "the lock is free again when this is dropped"]
pub struct Busy {
    store: Arc<Store>,
    name: Vec<u8>,
    token: Token,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.store.vacate(&self.name, self.token);
    }
}

impl fmt::Debug for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Busy").field("name", &plain(&self.name)).finish_non_exhaustive()
    }
}

/// Requests that fail, from [`Memory::failing`]. Dropping it ends that.
#[must_use = "requests succeed again when this is dropped"]
pub struct Failing {
    store: Arc<Store>,
    number: u64,
}

impl Drop for Failing {
    fn drop(&mut self) {
        self.store.stop_failing(self.number);
    }
}

impl fmt::Debug for Failing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failing").finish_non_exhaustive()
    }
}

/// How a test has called a control, for its message.
fn call(control: &str, name: &[u8]) -> String {
    format!("{control}('{}')", plain(name))
}

#[track_caller]
fn done<T>(call: &str, result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| panic!("{call}: {error}"))
}

/// A control that was called rightly.
#[track_caller]
fn right<T>(result: Result<T, Error>) -> T {
    match result {
        Ok(value) => value,
        Err(error) if error.kind() == ErrorKind::BadArgument => panic!("{}", error.detail()),
        Err(error) => panic!("{error}"),
    }
}

fn mistake(text: String) -> Error {
    Error::new(ErrorKind::BadArgument, text)
}

fn check_kind(control: &str, kind: ErrorKind) -> Result<(), Error> {
    use ErrorKind::{BadArgument, Closed, Forked, Interrupted, Lost, Timeout, WouldDeadlock};
    let instead = match kind {
        Timeout => "have the lock held with busy() for longer than the call waits",
        Lost => "end the lease with lose()",
        Closed => "close the client",
        Interrupted | WouldDeadlock | Forked | BadArgument => "only the client makes it",
        _ => return Ok(()),
    };
    Err(mistake(format!("{control}({kind:?}): no store gives this error; {instead}")))
}
