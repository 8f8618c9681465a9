//! The client: an open store, and where locks come from.

#[cfg(feature = "examine")]
pub(crate) mod examine;
mod listing;

use std::sync::Arc;
use std::time::Duration;

pub use self::listing::Listing;
use crate::clock::Deadline;
use crate::config::{Config, StoreConfig};
use crate::error::Error;
use crate::events::Events;
use crate::keeper::{Keeper, Keepers};
use crate::lock::Lock;
use crate::metrics::{ByGroup, Counters, Metrics, text};
use crate::store::Store;
#[cfg(feature = "etcd")]
use crate::store::etcd::EtcdStore;
#[cfg(feature = "testing")]
use crate::store::memory::MemoryStore;
#[cfg(feature = "mysql")]
use crate::store::mysql::MysqlStore;
use crate::store::outbox::Outbox;
#[cfg(feature = "postgres")]
use crate::store::postgres::PostgresStore;
use crate::store::quorum::QuorumStore;
use crate::store::redis::RedisStore;
#[cfg(feature = "sqlite")]
use crate::store::sqlite::SqliteStore;
#[cfg(feature = "zookeeper")]
use crate::store::zookeeper::ZookeeperStore;
use crate::who::Run;

/// How many times `io_timeout` `initialize` may last: each server is read and then written, and
/// some have to be found first.
const INITIALIZE_REQUESTS: u32 = 5;

/// An open store, with its connections and the thread that renews leases. Cloning it is cheap and
/// returns the same client. Share one in a process.
///
/// ```no_run
/// use leasehold::Client;
///
/// let client = Client::open("redis://127.0.0.1")?;
/// let lease = client.lock("nightly").acquire()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
///
/// A forked child cannot use the client of its parent, unless the parent has called
/// [`reopen_after_fork`](Client::reopen_after_fork). Every call there fails with
/// [`ErrorKind::Forked`](crate::ErrorKind::Forked). The child can open a new client, with two
/// exceptions: on SQLite, if the parent has ever opened a file, and on a store in memory, if the
/// parent has used one.
#[derive(Clone)]
pub struct Client {
    keepers: Arc<Keepers>,
    store: Arc<str>,
}

impl Client {
    /// Opens the store that a URL names; [`Config::from_url`] lists the URLs.
    ///
    /// A Redis store connects at the first request, so a client can be opened before its server
    /// runs. [`ping`](Client::ping) connects at once. An SQLite file is opened here if it exists.
    /// Otherwise the first lock that is acquired creates it. `memory:` is the store that a test has made
    /// in this process, with `leasehold::testing`.
    ///
    /// ```
    /// # #[cfg(feature = "testing")] {
    /// use leasehold::{Client, testing::Memory};
    ///
    /// let memory = Memory::new();
    /// let [one, other] = [memory.url(); 2].map(|url| Client::open(url).unwrap());
    /// let lease = one.lock("42").acquire()?;
    /// assert!(other.lock("42").try_acquire()?.is_none());
    /// lease.release()?;
    /// # }
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::BadArgument`](crate::ErrorKind::BadArgument) for the URL,
    /// [`ErrorKind::Storage`](crate::ErrorKind::Storage) for the file,
    /// [`ErrorKind::Permission`](crate::ErrorKind::Permission) where it is another user's.
    pub fn open(url: &str) -> Result<Client, Error> {
        Client::with_config(Config::from_url(url)?)
    }

    /// Opens the store that the environment names, as [`Config::from_env`] has it.
    ///
    /// # Errors
    /// As there, and as for [`open`](Client::open).
    pub fn from_env() -> Result<Client, Error> {
        Client::with_config(Config::from_env()?)
    }

    /// Opens a store that was set up in code.
    ///
    /// # Errors
    /// As for [`open`](Client::open).
    pub fn with_config(config: Config) -> Result<Client, Error> {
        config.check()?;
        let store = config.display_store().into();
        Ok(Client { keepers: Arc::new(Keepers::new(open_keeper(&config)?, open_keeper)), store })
    }

    /// A lock on a name: any bytes, 64 KiB at most. Nothing is checked or sent before it is
    /// acquired.
    pub fn lock(&self, name: impl AsRef<[u8]>) -> Lock {
        Lock::new(Arc::clone(&self.keepers), name.as_ref())
    }

    /// Lists the locks that are held under the client's prefix and whose names match a pattern. `*`
    /// matches anything, `?` one character, and a backslash quotes the next one.
    ///
    /// ```no_run
    /// # let client = leasehold::Client::open("redis://127.0.0.1")?;
    /// let held = client.list("*").count();
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn list(&self, pattern: impl AsRef<[u8]>) -> Listing {
        Listing::new(Arc::clone(&self.keepers), pattern.as_ref())
    }

    /// Connects to the store and logs in, without touching a lock.
    ///
    /// A server that guards against lost data and was started again since it was last asked
    /// anything grants nothing for as long as `max_ttl`, counted from this at the latest. (In a
    /// Cluster it is counted for each slot, from when a lock there is wanted. Of a quorum, most
    /// members are enough for this to go well; it begins at those that were reached.)
    ///
    /// # Errors
    /// Whatever is in the way, by `io_timeout`.
    pub fn ping(&self) -> Result<(), Error> {
        let core = self.keepers.here()?.core()?;
        let deadline = Deadline::after(core.config.io_timeout);
        core.with_store(|store| store.ping(deadline))
    }

    /// Makes what a new deployment needs: on a PostgreSQL or a MySQL its tables, on a ZooKeeper its
    /// first node, where they are missing
    /// ([`schema`](Client::schema) has the statements). One that is there stays as it is.
    ///
    /// Elsewhere it declares a new deployment whose store guards against lost data (a quorum, or
    /// one with `guard_data_loss`): nothing was granted there before, so its servers need not wait
    /// until older leases are over, and grant locks at once. Do this once, before the first lock is
    /// acquired. `leasehold init` does the same.
    ///
    /// **Never call this whenever a program or a server starts.** A server that has come back empty
    /// looks new, and would grant at once a lock that another client still holds.
    ///
    /// The call refuses a server that has come back with data, or that waits already, because a
    /// client may rely on a lease that the server does not know. In a quorum it also refuses
    /// servers that look new while others do not. `force` declares that no client relies on any
    /// lease. A server that grants locks stays as it is.
    ///
    /// # Errors
    /// [`ErrorKind::BadArgument`](crate::ErrorKind::BadArgument): the store has no such guard, nor a
    /// table to make.
    /// Others say which member of a quorum is in the way, the first one where there are several; the
    /// rest may have been declared new. Without `force`, all of them have to be reached.
    pub fn initialize(&self, force: bool) -> Result<(), Error> {
        let core = self.keepers.here()?.core()?;
        let span = core.config.io_timeout.saturating_mul(INITIALIZE_REQUESTS);
        core.store.initialize(force, Deadline::after(span))
    }

    /// The statements by which [`initialize`](Client::initialize) makes the tables of a store that
    /// needs some, for those who make them in another way; `None` for all other stores.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed), [`ErrorKind::Forked`](crate::ErrorKind::Forked).
    pub fn schema(&self) -> Result<Option<&'static str>, Error> {
        Ok(self.keepers.here()?.core()?.store.abilities().schema)
    }

    /// Lets forked children use this client and its locks: from now on, a child opens the store
    /// anew when it first needs it. Leases and subscriptions stay the parent's, and fail with
    /// [`ErrorKind::Forked`](crate::ErrorKind::Forked) in a child. Without this call everything
    /// does.
    ///
    /// A client on an SQLite file says [`ErrorKind::Storage`](crate::ErrorKind::Storage) in a
    /// child, except in the C library: the program has one SQLite for all of its databases, and a
    /// child inherits what that knows of their locks. Open such a client in each child, and not
    /// before. The same holds for a store in memory, in every language: the child has a copy, whose
    /// locks exclude no other process.
    ///
    /// ```no_run
    /// use leasehold::Client;
    ///
    /// let client = Client::open("redis://127.0.0.1")?;
    /// client.reopen_after_fork();
    /// // ... and in a child:
    /// let lease = client.lock("nightly").acquire()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn reopen_after_fork(&self) {
        self.keepers.reopen_after_fork();
    }

    #[cfg(feature = "capi")]
    pub(crate) fn reopens(&self) -> bool {
        self.keepers.reopens()
    }

    /// Subscribes to what happens to leases in the background.
    ///
    /// # Errors
    /// [`ErrorKind::Exhausted`](crate::ErrorKind::Exhausted) when no descriptors are left,
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed), [`ErrorKind::Forked`](crate::ErrorKind::Forked).
    pub fn events(&self) -> Result<Events, Error> {
        self.keepers.here()?.core()?.hub.subscribe()
    }

    /// What was counted since the client was opened; nothing in a forked child.
    pub fn counters(&self) -> Counters {
        let core = self.keepers.opened().and_then(|keeper| keeper.core_even_closed().ok());
        core.map_or_else(Counters::default, |core| core.metrics.read())
    }

    /// All that was counted and measured since the client was opened, as Prometheus reads it (its
    /// text format 0.0.4): a program answers with it where it serves its own metrics, under the type
    /// `text/plain; version=0.0.4`. `docs/reference/metrics.md` says what each of them tells, and what to be
    /// alarmed by.
    ///
    /// ```no_run
    /// # let client = leasehold::Client::open("redis://127.0.0.1")?;
    /// let body = client.metrics_text();   // leasehold_acquisitions_total{lock="*",outcome="granted"} 17 ...
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// The label `lock` is that of a [group](Config::metrics_group), or `*` for all other names. Each
    /// process counts its own, and a forked child begins with nothing.
    pub fn metrics_text(&self) -> String {
        match self.keepers.opened().and_then(|keeper| keeper.core_even_closed().ok()) {
            Some(core) => core.metrics_text(),
            None => {
                let patterns = &self.keepers.config.metrics_groups;
                text(&Metrics::new(patterns.len()), patterns, &ByGroup::new(patterns.len()))
            }
        }
    }

    /// The store, without user and password.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// The number by which others see this client ([`ClientInfo::id`](crate::ClientInfo::id)): 12 hex
    /// digits, with which each of its tokens begins. A forked child has one of its own.
    ///
    /// # Errors
    /// [`ErrorKind::Forked`](crate::ErrorKind::Forked) in a forked child that has not asked for a client
    /// of its own.
    pub fn id(&self) -> Result<String, Error> {
        Ok(self.keepers.here()?.client().to_string())
    }

    /// Closes the client. Every lease becomes invalid at once and is released. Waiters return
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed). The background threads have ended when this
    /// returns.
    ///
    /// It lasts `close_timeout` (1 s) at most, or `io_timeout` if a request under way is not
    /// answered in that time. Locks that were not released by then are free by their ttl.
    ///
    /// A program may exit without closing: that does no I/O, and the ttl frees its locks.
    ///
    /// # Errors
    /// [`ErrorKind::Forked`](crate::ErrorKind::Forked) in a forked child.
    pub fn close(&self) -> Result<(), Error> {
        self.keepers.close(self.keepers.config.close_timeout)
    }

    /// As [`close`](Client::close), with a limit of its own.
    ///
    /// # Errors
    /// As for [`close`](Client::close).
    pub fn close_within(&self, limit: Duration) -> Result<(), Error> {
        self.keepers.close(limit)
    }
}

/// Has those who look at this client's locks see for `span` what it has run, also when it is gone. That the store cannot be told is nobody's failure.
///
/// # Errors
/// [`ErrorKind::Closed`](crate::ErrorKind::Closed), [`ErrorKind::Forked`](crate::ErrorKind::Forked).
pub fn note_run(client: &Client, run: Run, span: Duration) -> Result<(), Error> {
    client.keepers.here()?.core()?.note_run(run, span);
    Ok(())
}

fn open_keeper(config: &Config) -> Result<Keeper, Error> {
    let (config, outbox) = (config.clone().with_keyrings(), Arc::default());
    Keeper::start(open_store(&config, &outbox)?, outbox, config)
}

/// Opens the store that a config names.
fn open_store(config: &Config, outbox: &Arc<Outbox>) -> Result<Box<dyn Store>, Error> {
    match &config.store {
        StoreConfig::Redis(redis) => Ok(Box::new(RedisStore::new(redis, config, outbox)?)),
        StoreConfig::Quorum(members) => Ok(Box::new(QuorumStore::new(members, config, outbox)?)),
        #[cfg(feature = "testing")]
        StoreConfig::Memory(name) => Ok(Box::new(MemoryStore::open(name, config)?)),
        #[cfg(feature = "etcd")]
        StoreConfig::Etcd(etcd) => Ok(Box::new(EtcdStore::new(etcd, config)?)),
        #[cfg(feature = "mysql")]
        StoreConfig::Mysql(mysql) => Ok(Box::new(MysqlStore::new(mysql, config)?)),
        #[cfg(feature = "zookeeper")]
        StoreConfig::Zookeeper(zookeeper) => Ok(Box::new(ZookeeperStore::new(zookeeper, config)?)),
        #[cfg(feature = "postgres")]
        StoreConfig::Postgres(postgres) => Ok(Box::new(PostgresStore::new(postgres, config)?)),
        #[cfg(feature = "sqlite")]
        StoreConfig::Sqlite(file) => Ok(Box::new(SqliteStore::open(file, config)?)),
        #[cfg(not(feature = "sqlite"))]
        StoreConfig::Sqlite(_) => {
            Err(Error::new(crate::ErrorKind::BadArgument, "sqlite needs the feature 'sqlite'"))
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("store", &self.store).finish_non_exhaustive()
    }
}
