//! Limits, defaults, and how a client is set up. Everything is checked once, before it is used.

mod borrowed;
mod check;
mod credentials;
pub mod defaults;
mod environment;
#[cfg(feature = "etcd")]
mod etcd;
mod keyring;
pub mod limits;
mod logins;
#[cfg(feature = "mysql")]
mod mysql;
mod nearest;
#[cfg(feature = "postgres")]
mod postgres;
mod redis;
mod secret;
mod secret_command;
mod span;
mod sqlite;
mod tls;
mod url;
mod who;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::who::Introduction;

pub(crate) use check::{check_io_timeout, check_name, check_renewed_ttl, check_ttl};
use credentials::Provider;
pub use credentials::{Credentials, Endpoint};
pub use environment::URL_VARIABLE;
#[cfg(feature = "etcd")]
pub(crate) use etcd::EtcdConfig;
use keyring::Keyring;
pub(crate) use keyring::Login;
use limits::MAX_TTL;
#[cfg(feature = "mysql")]
pub(crate) use mysql::MysqlConfig;
#[cfg(feature = "postgres")]
pub(crate) use postgres::{ChannelBinding, PostgresConfig};
pub(crate) use redis::{Access, Address, RedisConfig, SentinelConfig, Servers};
pub(crate) use secret::Secret;
use secret_command::SecretCommand;
pub use span::parse_duration;
pub(crate) use span::{spoken, spoken_left};
#[cfg(feature = "sqlite")]
pub(crate) use sqlite::Sharing;
pub(crate) use sqlite::SqliteConfig;
#[cfg(feature = "sqlite")]
pub(crate) use sqlite::embedded_path;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) use tls::Trust;
pub(crate) use tls::{TlsConfig, TlsWords};
#[cfg(feature = "zookeeper")]
pub(crate) use zookeeper::ZookeeperConfig;

/// How much of a ttl is never relied on: the clocks of two machines drift apart.
pub(crate) fn drift(ttl: Duration) -> Duration {
    ttl / 100 + Duration::from_millis(2)
}

/// By how much our clock may have drifted, in a span that another clock has measured, if the two
/// differ by less than a hundredth.
pub(crate) fn drifted(span: Duration) -> Duration {
    span / 99
}

/// How a client is set up: a URL, and what a program would rather set in code.
///
/// ```no_run
/// use std::time::Duration;
/// use leasehold::{Client, Config};
///
/// let config = Config::from_url("redis://10.0.0.7/2")?.io_timeout(Duration::from_millis(300)).pool(16);
/// let client = Client::with_config(config)?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Config {
    pub(crate) store: StoreConfig,
    pub(crate) prefix: Vec<u8>,
    pub(crate) io_timeout: Duration,
    pub(crate) pool: u32,
    pub(crate) close_timeout: Duration,
    pub(crate) claim_window: Duration,
    pub(crate) fence_life: Option<Duration>,
    max_ttl: Option<Duration>,
    pub(crate) guard_data_loss: bool,
    pub(crate) registers: bool,
    pub(crate) advises: bool,
    pub(crate) introduction: Introduction,
    pub(crate) metrics_groups: Vec<String>,
    credentials: Option<Provider>,
    /// Of an open store.
    keyrings: Vec<Keyring>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum StoreConfig {
    Redis(Box<RedisConfig>),
    /// Independent ones, of which a majority grants a lock.
    Quorum(Vec<RedisConfig>),
    Sqlite(SqliteConfig),
    /// One of this process, by its name.
    #[cfg(feature = "testing")]
    Memory(String),
    #[cfg(feature = "postgres")]
    Postgres(Box<PostgresConfig>),
    #[cfg(feature = "mysql")]
    Mysql(Box<MysqlConfig>),
    #[cfg(feature = "zookeeper")]
    Zookeeper(Box<ZookeeperConfig>),
    #[cfg(feature = "etcd")]
    Etcd(Box<EtcdConfig>),
}

impl Config {
    /// Reads a URL.
    ///
    /// | URL | store |
    /// | --- | --- |
    /// | `redis://[user[:password]@]host[:port][/database]` | one Redis over TCP |
    /// | `unix:///path/to/socket` | one Redis on a unix socket; `user=`, `password=`, `db=` |
    /// | `redis+sentinel://[user:password@]host[:26379],host2/master[/database]` | the Redis that Sentinels call the master; `sentinel_user=`, `sentinel_password=` |
    /// | `redis+cluster://[user:password@]host[:port],host2` | a Redis Cluster, found by some of its servers |
    /// | `rediss://`, `rediss+sentinel://`, `rediss+cluster://` | the same over TLS (feature `tls`); `ca=`, `cert=` and `key=` name PEM files |
    /// | `redis://a,redis://b,rediss+sentinel://c,d/master` | a quorum of independent ones: an odd number of the above, separated by commas |
    /// | `sqlite:///path/to/file`, `sqlite:file` | an SQLite file (feature `sqlite`); `mode=0660` makes it for a group, `mode=0666` for all users |
    /// | `sqlite:` | the embedded store, one per user |
    /// | `memory:name` | the store in memory that a test has made in this process, with `leasehold::testing` (feature `testing`) |
    /// | `postgres://user[:password]@host[:port][,host2][/database]` | tables of a PostgreSQL (feature `postgres`), the primary of several hosts; `sslmode=`, `sslrootcert=`, `sslcert=`, `sslkey=`, `host=` (the folder of a unix socket), `application_name=`, `synchronous_commit=` |
    /// | `mysql://user[:password]@host[:port][,host2]/database`, `mariadb://` | tables of a MySQL or a MariaDB (feature `mysql`), of several hosts the one that takes writes; `ssl-mode=`, `ssl-ca=`, `ssl-cert=`, `ssl-key=`, `socket=` (a unix socket) |
    /// | `zookeeper://[user:password@]host[:2181][,host2][/chroot]` | nodes of a ZooKeeper (feature `zookeeper`), some servers of one ensemble; `auth=digest:user:password`, `tls=yes` with `ca=`, `cert=` and `key=` |
    /// | `etcd://[user:password@]host[:2379][,host2]`, `etcds://` | an etcd (feature `etcd`), by any of several members; with TLS `ca=`, `cert=` and `key=` |
    ///
    /// Any of them takes `?prefix=`, `io_timeout=`, `pool=`, `close_timeout=`, `claim_window=`,
    /// `max_ttl=`, `label=`, `register=` and `advise=`, as in `redis://cache?io_timeout=300ms&pool=16`; those with a Redis also
    /// `guard_data_loss=yes`, `fence_life=` (not in a quorum) and `replicas=`, how many replicas must have acknowledged a grant before
    /// it counts (none by default, 16 at most; as good as Redis's WAIT, which makes a loss less
    /// likely and does not rule it out). Any character may be written as `%` and two hex digits.
    ///
    /// The credentials before a host are those of the server that keeps the locks. In place of a password,
    /// `password_file=` names a file that has it, and `password_command=` a command that prints it; each
    /// login reads or runs it again. Sentinels have
    /// their own credentials (also `sentinel_password_file=` and `sentinel_password_command=`). The client uses TLS to Sentinels if it does to that server, unless
    /// `sentinel_tls=` (`yes` or `no`) says otherwise. In a quorum, each URL has its own
    /// credentials, `db`, TLS files and `replicas`. What concerns the client as a whole stands on
    /// the last one.
    ///
    /// With `replicas=`, acquiring a lock waits for that many replicas, for a quarter of
    /// `io_timeout` at most. (In a quorum, for a quarter of what the client waits for a server.) If
    /// too few acknowledge the grant, the client releases the lock, and the error is
    /// [`ErrorKind::NotReplicated`]. Renewals do not wait for replicas. `docs/operate/stores.md`
    /// says what a failover means for holders and waiters.
    ///
    /// # Errors
    /// [`ErrorKind::BadArgument`]: the URL is malformed, or has a key that is not known.
    pub fn from_url(url: &str) -> Result<Config, Error> {
        url::parse(&url::split(url))
    }

    /// Reads the URLs of a quorum, one for each member: an odd number of independent servers, of
    /// which a majority grants a lock. The same as [`from_url`](Config::from_url) with commas between
    /// them; one URL alone is no quorum, and means what it means there.
    ///
    /// ```
    /// use leasehold::Config;
    ///
    /// let quorum = Config::from_urls(["redis://a", "redis://b", "redis://c?max_ttl=30s"])?;
    /// assert!(Config::from_urls(["redis://a", "redis://b"]).is_err());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::BadArgument`] for what is no quorum: an even number of members, which tolerates
    /// no more failures than one less; two that lead to the same server; a file.
    pub fn from_urls<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Config, Error> {
        let urls: Vec<U> = urls.into_iter().collect();
        url::parse(&urls.iter().map(U::as_ref).collect::<Vec<_>>())
    }

    /// Reads the settings of a client of the crate [`redis`](::redis) that the program has already: address,
    /// database, user and password, and whether to use TLS. Leasehold opens connections of its own. The
    /// settings of TCP and of the protocol are not borrowed.
    ///
    /// ```
    /// use leasehold::Config;
    ///
    /// let cache = redis::Client::open("redis://app:secret@cache/2").unwrap();
    /// let config = Config::from_redis(cache.get_connection_info())?.prefix("shop:");
    /// assert_eq!(config.display_store(), "redis://cache:6379/2");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// The crate must have the version that Leasehold has: 1. Sentinels and a Cluster have a URL of their own.
    ///
    /// # Errors
    /// [`ErrorKind::BadArgument`]: TLS that does not verify the server, certificates in memory, a user
    /// without a password.
    pub fn from_redis(settings: &::redis::ConnectionInfo) -> Result<Config, Error> {
        let config = Config::new(StoreConfig::Redis(Box::new(RedisConfig::borrowed(settings)?)));
        config.check()?;
        Ok(config)
    }

    pub(crate) fn new(store: StoreConfig) -> Config {
        Config {
            guard_data_loss: matches!(store, StoreConfig::Quorum(_)),
            store,
            prefix: Vec::new(),
            io_timeout: defaults::IO_TIMEOUT,
            pool: defaults::POOL,
            close_timeout: defaults::CLOSE_TIMEOUT,
            claim_window: defaults::CLAIM_WINDOW,
            fence_life: None,
            max_ttl: None,
            registers: true,
            advises: true,
            introduction: Introduction::default(),
            metrics_groups: Vec::new(),
            credentials: None,
            keyrings: Vec::new(),
        }
    }

    pub(crate) fn longest_ttl(&self) -> Duration {
        let most = if self.guard_data_loss { defaults::GUARDED_MAX_TTL } else { MAX_TTL };
        self.max_ttl.unwrap_or(most)
    }

    /// How long a quorum waits for one of its servers. One that is alive answers in less than 50 ms,
    /// also when it writes to its disk meanwhile.
    pub(crate) fn node_timeout(&self) -> Duration {
        (self.io_timeout / 10).max(Duration::from_millis(50)).min(self.io_timeout)
    }

    /// The prefix of every name in the store; empty by default.
    pub fn prefix(mut self, prefix: impl Into<Vec<u8>>) -> Config {
        self.prefix = prefix.into();
        self
    }

    /// How long the store may take to answer one request, connecting included; 1 s by default,
    /// from 1 ms to 1 h. A quorum waits a tenth of it for one of its servers, or 50 ms where that is
    /// longer, so that a server that is down does not hold up the others.
    pub fn io_timeout(mut self, timeout: Duration) -> Config {
        self.io_timeout = timeout;
        self
    }

    /// How many requests may be under way at once; 8 by default, from 1 to 1024. Two more
    /// connections are kept for renewals and releases. In a Cluster, this is for each master.
    pub fn pool(mut self, connections: u32) -> Config {
        self.pool = connections;
        self
    }

    /// How long closing goes on releasing leases; 1 s by default.
    pub fn close_timeout(mut self, timeout: Duration) -> Config {
        self.close_timeout = timeout;
        self
    }

    /// How long a waiter that was handed the lock has to confirm it: 1 s by default, from 50 ms to
    /// 60 s. If a waiter dies at that moment, the waiters behind it wait this long. Choose several
    /// round trips, and longer than a thread here may be delayed.
    pub fn claim_window(mut self, window: Duration) -> Config {
        self.claim_window = window;
        self
    }

    /// How long a server keeps the last fence of a name after it was acquired: 28 h by default,
    /// from 4 h. For programs that lock each of a million requests a day under its own name. If the
    /// fence is gone, the server makes the next one from its clock. Then that clock must not have
    /// been set back by more than this less 3 h. The fence is kept for 28 h all the same where a
    /// client waited, after an hour's hold, in a quorum, and in a file.
    pub fn fence_life(mut self, life: Duration) -> Config {
        self.fence_life = Some(life);
        self
    }

    /// The longest ttl that a lock may have: 366 days by default, and 60 s in a store that guards
    /// against lost data. From 1 s to 366 days, in a quorum to 24 h. A server that came back
    /// without its data grants nothing for this long, so set the same in all clients of that store.
    pub fn max_ttl(mut self, most: Duration) -> Config {
        self.max_ttl = Some(most);
        self
    }

    /// Whether a server that may have lost data (one that was restarted, or a replica that became
    /// the master) grants nothing for [`max_ttl`](Config::max_ttl), until every lease that it has
    /// forgotten must be over. Off by default, except in a quorum, where it is always on; an SQLite
    /// file loses nothing and needs no guard. A new deployment is declared to be one by
    /// [`Client::initialize`], else it waits as well.
    ///
    /// [`Client::initialize`]: crate::Client::initialize
    pub fn guard_data_loss(mut self, on: bool) -> Config {
        self.guard_data_loss = on;
        self
    }

    /// Counts the locks of some names apart: in [`metrics_text`](crate::Client::metrics_text) they have
    /// this for a label, instead of `*`. It is a name, or how names begin and a `*`; where several fit,
    /// the longest counts. 32 at most: what users type is often part of a name, and must not make series.
    ///
    /// ```
    /// let config = leasehold::Config::from_url("redis://cache")?.metrics_group("stock:*").metrics_group("nightly");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn metrics_group(mut self, pattern: impl Into<String>) -> Config {
        self.metrics_groups.push(pattern.into());
        self
    }

    /// The store, without user and password.
    pub fn display_store(&self) -> String {
        match &self.store {
            StoreConfig::Sqlite(file) => format!("sqlite:{}", file.path.display()),
            #[cfg(feature = "testing")]
            StoreConfig::Memory(name) => format!("memory:{name}"),
            StoreConfig::Redis(redis) => redis.display(),
            #[cfg(feature = "postgres")]
            StoreConfig::Postgres(postgres) => postgres.display(),
            #[cfg(feature = "mysql")]
            StoreConfig::Mysql(mysql) => mysql.display(),
            #[cfg(feature = "zookeeper")]
            StoreConfig::Zookeeper(zookeeper) => zookeeper.display(),
            #[cfg(feature = "etcd")]
            StoreConfig::Etcd(etcd) => etcd.display(),
            StoreConfig::Quorum(members) => {
                members.iter().map(RedisConfig::display).collect::<Vec<_>>().join(",")
            }
        }
    }
}

fn bad(detail: impl Into<String>) -> Error {
    Error::new(ErrorKind::BadArgument, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c12_a_config_shows_no_password() {
        for url in [
            "redis://bob:hunter2@host/3",
            "redis+sentinel://bob:hunter2@h/m?sentinel_user=bob&sentinel_password=hunter2",
            "redis+cluster://bob:hunter2@h",
            "redis://bob:hunter2@a,unix:///b?user=bob&password=hunter2,redis+cluster://:hunter2@c",
        ] {
            let config = Config::from_url(url).unwrap();
            let mut said = format!("{config:?} {}", config.display_store());
            if let StoreConfig::Redis(redis) = &config.store {
                said += &format!("{:?} {:?}", redis.servers, redis.access);
            }
            assert!(!said.contains("hunter2") && !said.contains("bob"), "{said}");
        }
    }
}
