//! One lock for programs on many machines, or for the processes of one.
//!
//! Acquire it, know how long you may rely on it, prove to the resource that you are the latest
//! holder, and release it:
//!
//! ```no_run
//! use std::time::Duration;
//! use leasehold::{Client, ErrorKind};
//!
//! # fn charge(_fence: u64) -> Result<(), leasehold::Error> { Ok(()) }
//! let client = Client::open("redis://127.0.0.1")?;
//! let stock = client.lock("stock:sku-17").ttl(Duration::from_secs(10)).wait(Duration::from_secs(5));
//!
//! // Without waiting: None when another holder has it.
//! if let Some(lease) = stock.try_acquire()? {
//!     charge(lease.fence())?;     // the database rejects a smaller fence than it has seen
//!     lease.release()?;           // an error if the lease was lost before
//! }
//!
//! // Waiting for 5 s at most.
//! match stock.acquire() {
//!     Ok(lease) => charge(lease.fence())?,    // dropping a lease releases it too
//!     Err(error) if error.kind() == ErrorKind::Timeout => println!("held for the whole 5 s"),
//!     Err(error) => return Err(error),
//! }
//! # Ok::<(), leasehold::Error>(())
//! ```
//!
//! # The types
//!
//! - A [`Client`] is an open store: a Redis or Valkey, a quorum of several, a PostgreSQL, a MySQL or
//!   MariaDB, a ZooKeeper, an etcd, or an SQLite file. Open one in each process and share it.
//!   [`Config::from_url`] lists the URLs. [`Client::from_env`] finds the URL as the command does.
//! - A [`Lock`] is a name and options. It holds nothing and costs nothing.
//! - A [`Lease`] is the only proof that you hold the lock. The client renews it in the background
//!   until it is released, dropped, lost, or has reached its [`max_hold`](Lock::max_hold).
//! - Its fencing token, [`fence`](Lease::fence) for short, is larger than that of every earlier lease
//!   on the name. A process can pause at any moment and continue after its lease has expired. A
//!   resource that rejects smaller fences is safe even then.
//! - [`Events`] report that a lease is at risk or lost, before its validity ends.
//!
//! # How long a lease lasts
//!
//! The [`ttl`](Lock::ttl) says how soon the lock is free after its holder died: 30 s by default.
//! [`max_hold`](Lock::max_hold) says how long a living holder may keep it: 1 h by default.
//! [`Lease::remaining`] says how long you may still rely on it. It counts from before the request was
//! sent, less a margin for drifting clocks. So it ends before another client can acquire the lock.
//!
//! # How waiting works
//!
//! Waiters queue. A release hands the lock to the first one, with a new fence, and wakes only that one.
//! Threads of one process that wait for the same lock hand it over among themselves without a request
//! to the store. [`WaitMode`] has the other way; `docs/reference/waiting.md` explains this one.
//!
//! # When something fails
//!
//! If a reply is lost, Leasehold assumes that you do **not** hold the lock. Every call ends by its
//! deadline: [`io_timeout`](Config::io_timeout) (1 s by default) bounds one request, and
//! [`wait`](Lock::wait) bounds a wait. An error has a [kind](ErrorKind), a sentence that says what to
//! do, and [`is_retriable`](Error::is_retriable).
//!
//! All calls block except [`acquire_async`](Lock::acquire_async), which returns a future for any
//! executor. In an async program, make the other calls on a thread for blocking work. The library
//! prints nothing and logs through the `log` crate. [`Client::metrics_text`] returns its metrics.
//!
//! # Features
//!
//! None is on by default. A lock on Redis, Sentinel, a Cluster or a quorum needs none.
//!
//! - `postgres`, `mysql`, `zookeeper`, `etcd`: a store each.
//! - `sqlite`: the embedded store. Needs a C compiler, and no other crate that brings an SQLite.
//! - `stores`: all of these.
//! - `testing`: a store in the memory of one process, by which a test has a lease lost, a lock busy or the
//!   store unreachable: `leasehold::testing`.
//! - `tls`: TLS to servers, such as `rediss://` and `sslmode=`.
//! - `examine`: `Client::examine`, which tells whether a store is fit for locks.
//! - `cli`: the command `leasehold`, with all stores.
//! - `capi`: the C interface, for building the C library (`make`); nothing for Rust programs.
//!
//! `docs/explained/promises.md` has the promises, what they rest on, and the limits; `docs/operate/rights.md`
//! has the rights that a user of each store needs. The folder `examples` has the usual cases.

// The map of the house, from the call to the socket. Each room names only rooms below it (`tests/house`
// counts). docs/design.md says what each may know, and walks one `acquire` through all of them and back.

// The C interface, over the public Rust interface and some crate-private hooks. The command is src/cli,
// over the public Rust interface and `command`.
#[cfg(feature = "capi")]
mod capi;
#[doc(hidden)]
pub mod command;
#[cfg(feature = "testing")]
pub mod testing;

// One leader among candidates, over a lock.
mod election;

// What programs call: a client opens a store, a lock tries and waits, a lease is a holder's turn.
mod client;
mod lease;
mod lock;

// The background thread `leasehold` of a client, which renews leases, tells of events, and sends again what is owed.
mod keeper;

// Who of this process is next, what it asks the store, and who listens for messages.
mod wait;

// What one grant is worth at each moment: arithmetic, without I/O and without a clock of its own.
mod grant;

// The traits that each store implements, the stores, and the sockets of those that have servers.
mod store;

// The ground floor: names no room above it.
mod clock;
mod config;
mod error;
mod events;
#[cfg(feature = "examine")]
mod examination;
mod fork;
mod inbox;
mod jitter;
mod metrics;
mod said;
mod sync;
mod token;
mod traced;
mod who;
// What clients wait with. Where threads are explored, it is the exploration's.
#[cfg(all(test, shuttle))]
use explore::threads::system;
#[cfg(not(all(test, shuttle)))]
mod system;

// All of the above on models, in orders that no test with real servers meets. The one door to them; what
// is published is built without.
#[cfg(test)]
#[cfg(kit)]
#[path = "../tests/explore/mod.rs"]
mod explore;

pub use client::{Client, Listing};
pub use config::{Config, Credentials, Endpoint, URL_VARIABLE, defaults, limits};
pub use election::{Election, ElectionState, Leadership, Term, TermEnd};
pub use error::{Error, ErrorKind};
pub use events::{Event, EventKind, Events, LossReason};
#[cfg(feature = "examine")]
pub use examination::{Checkup, Examination, Finding, Measured, Severity, Value};
pub use lease::{Lease, Losing};
pub use lock::{Acquiring, Break, Lock, WaitMode};
pub use metrics::Counters;
pub use store::listing::Listed;
pub use store::{Holder, LockState, Waiter};
pub use token::Token;
pub use wait::Backoff;
pub use who::{ClientInfo, Run};

/// Compiles what the documentation shows.
#[cfg(doctest)]
mod shown {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/reference/holding.md")]
    struct Holding;
    #[doc = include_str!("../docs/languages.md")]
    struct Languages;
}
