//! A fresh store of each kind, so that a promise that holds for all of them is written once.

// Each test file takes this whole module in and uses a part of it.
#![allow(dead_code, unreachable_pub, unused_imports, unused_macros)]

pub mod cannot;
mod forget;
mod own;
mod quorum;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::defaults::GUARDED_MAX_TTL;
use leasehold::limits::MAX_TTL;
use leasehold::{Client, Config, Holder};
use tempfile::TempDir;

pub use self::quorum::{Quorum, QuorumBuilder};
#[cfg(feature = "etcd")]
use kit::Etcd;
#[cfg(feature = "mysql")]
use kit::Mysql;
#[cfg(feature = "postgres")]
use kit::Postgres;
#[cfg(feature = "zookeeper")]
use kit::Zookeeper;
pub use kit::wait::STALL;
use kit::{Cluster, SentinelGroup, Server, eventually};

/// Long enough for anything on a busy machine; only a test that fails takes so long.
pub const LIMIT: Duration = Duration::from_secs(20);

pub const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub const fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A store that nobody else uses; dropping it removes it.
pub enum Store {
    Redis(Box<Server>),
    File(TempDir),
    /// Of this process, by its name.
    Memory(String),
    Quorum(Quorum),
    Cluster(Box<Cluster>),
    Sentinels(Box<SentinelGroup>),
    #[cfg(feature = "postgres")]
    Postgres(Database),
    #[cfg(feature = "mysql")]
    Mysql(MysqlDatabase),
    #[cfg(feature = "zookeeper")]
    Zookeeper(Chroot),
    #[cfg(feature = "etcd")]
    Etcd(Etcd),
}

/// One with the root that locks need.
#[cfg(feature = "zookeeper")]
pub struct Chroot {
    pub path: String,
    /// Else it is in the server that this program's tests share.
    pub own: Option<Zookeeper>,
}

#[cfg(feature = "zookeeper")]
impl Chroot {
    pub fn server(&self) -> &Zookeeper {
        self.own.as_ref().unwrap_or_else(|| Zookeeper::shared())
    }
}

/// One with the tables.
#[cfg(feature = "mysql")]
pub struct MysqlDatabase {
    pub name: String,
    /// Else it is in the server that this program's tests share.
    pub own: Option<Mysql>,
}

#[cfg(feature = "mysql")]
impl MysqlDatabase {
    pub fn server(&self) -> &Mysql {
        self.own.as_ref().unwrap_or_else(|| Mysql::shared())
    }

    pub fn sql(&self, text: &str) -> String {
        self.server().sql(&self.name, text)
    }
}

/// One with the tables.
#[cfg(feature = "postgres")]
pub struct Database {
    pub name: String,
    /// Else it is in the server that this program's tests share.
    pub own: Option<Postgres>,
    /// Where grants wait for one.
    pub standby: Option<Postgres>,
}

#[cfg(feature = "postgres")]
impl Database {
    pub fn server(&self) -> &Postgres {
        self.own.as_ref().unwrap_or_else(|| Postgres::shared())
    }

    pub fn sql(&self, text: &str) -> String {
        self.server().sql(&self.name, text)
    }
}

pub type Kind = (&'static str, fn() -> Store);

/// What a program in any language is tried on, by the names that the list of what cannot be has for them.
pub const KINDS: &[Kind] = &[
    ("redis", Store::redis),
    #[cfg(feature = "sqlite")]
    ("file", Store::file),
    #[cfg(feature = "testing")]
    ("memory", Store::memory),
    #[cfg(feature = "postgres")]
    ("postgres", Store::postgres),
    #[cfg(feature = "mysql")]
    ("mysql", Store::mysql),
    #[cfg(feature = "zookeeper")]
    ("zookeeper", Store::zookeeper),
    #[cfg(feature = "etcd")]
    ("etcd", Store::etcd),
];

impl Store {
    pub fn redis() -> Store {
        Store::Redis(Box::new(Server::start()))
    }

    /// In memory where there is such a file system: how long a disk takes is not judged here.
    pub fn file() -> Store {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Store::File(dir.unwrap())
    }

    #[cfg(feature = "testing")]
    pub fn memory() -> Store {
        let memory = leasehold::testing::Memory::new();
        Store::Memory(memory.url().to_owned())
    }

    pub fn quorum() -> Store {
        Store::Quorum(Quorum::start(3))
    }

    pub fn cluster() -> Store {
        Store::Cluster(Box::new(Cluster::start()))
    }

    pub fn sentinels() -> Store {
        Store::Sentinels(Box::new(SentinelGroup::start()))
    }

    #[cfg(feature = "postgres")]
    pub fn postgres() -> Store {
        Store::postgres_in(None)
    }

    #[cfg(feature = "postgres")]
    pub fn postgres_in(own: Option<Postgres>) -> Store {
        let name = own.as_ref().unwrap_or_else(|| Postgres::shared()).database();
        let store = Store::Postgres(Database { name, own, standby: None });
        open(&store.url()).initialize(false).unwrap();
        store
    }

    #[cfg(feature = "mysql")]
    pub fn mysql() -> Store {
        Store::mysql_in(None)
    }

    #[cfg(feature = "mysql")]
    pub fn mysql_in(own: Option<Mysql>) -> Store {
        let name = own.as_ref().unwrap_or_else(|| Mysql::shared()).database();
        let store = Store::Mysql(MysqlDatabase { name, own });
        open(&store.url()).initialize(false).unwrap();
        store
    }

    #[cfg(feature = "zookeeper")]
    pub fn zookeeper() -> Store {
        Store::zookeeper_in(None)
    }

    #[cfg(feature = "zookeeper")]
    pub fn zookeeper_in(own: Option<Zookeeper>) -> Store {
        let path = own.as_ref().unwrap_or_else(|| Zookeeper::shared()).chroot();
        let store = Store::Zookeeper(Chroot { path, own });
        open(&store.url()).initialize(false).unwrap();
        store
    }

    #[cfg(feature = "etcd")]
    pub fn etcd() -> Store {
        Store::Etcd(Etcd::start())
    }

    pub fn url(&self) -> String {
        match self {
            #[cfg(feature = "zookeeper")]
            Store::Zookeeper(chroot) => chroot.server().url(&chroot.path),
            #[cfg(feature = "mysql")]
            Store::Mysql(database) => database.server().url(&database.name),
            #[cfg(feature = "etcd")]
            Store::Etcd(etcd) => etcd.url(),
            #[cfg(feature = "postgres")]
            Store::Postgres(database) => {
                let url = database.server().url(&database.name);
                match &database.standby {
                    Some(standby) => {
                        let own = format!("127.0.0.1:{}", database.server().port());
                        url.replace(&own, &format!("{own},127.0.0.1:{}", standby.port()))
                    }
                    None => url,
                }
            }
            Store::Redis(server) => server.url(),
            Store::Quorum(quorum) => quorum.url(),
            Store::Cluster(cluster) => cluster.url(),
            Store::Sentinels(group) => group.url(),
            Store::Memory(url) => url.clone(),
            Store::File(dir) => format!("sqlite://{}/locks.db", dir.path().display()),
        }
    }

    /// Of its server, where it has one.
    pub fn port(&self) -> Option<u16> {
        match self {
            Store::Redis(server) => Some(server.port()),
            #[cfg(feature = "postgres")]
            Store::Postgres(database) => Some(database.server().port()),
            #[cfg(feature = "mysql")]
            Store::Mysql(database) => Some(database.server().port()),
            #[cfg(feature = "zookeeper")]
            Store::Zookeeper(chroot) => Some(chroot.server().port()),
            #[cfg(feature = "etcd")]
            Store::Etcd(etcd) => Some(etcd.port(0)),
            Store::File(_)
            | Store::Memory(_)
            | Store::Quorum(_)
            | Store::Cluster(_)
            | Store::Sentinels(_) => None,
        }
    }

    /// By way of a proxy at this port.
    pub fn url_through(&self, port: u16) -> String {
        let own = self.port().expect("it has one server");
        self.url().replace(&format!(":{own}"), &format!(":{port}"))
    }

    /// The longest ttl that it takes.
    pub fn longest_ttl(&self) -> Duration {
        match self {
            Store::Quorum(_) => GUARDED_MAX_TTL,
            _ => MAX_TTL,
        }
    }

    /// Whether it shows the last fence of a lock that is free.
    pub fn keeps_fences(&self) -> bool {
        match self {
            #[cfg(feature = "zookeeper")]
            Store::Zookeeper(_) => false,
            #[cfg(feature = "etcd")]
            Store::Etcd(_) => false,
            _ => true,
        }
    }

    /// How long it may take until a waiter that was killed stands in nobody's way any more.
    pub fn notices_deaths_within(&self) -> Duration {
        #[cfg(feature = "etcd")]
        if matches!(self, Store::Etcd(_)) {
            // Its lease was not renewed for a second, as others see when they look, or has ended.
            return secs(3);
        }
        Duration::ZERO
    }

    pub fn client(&self) -> Client {
        open(&self.url())
    }
}

/// A client that bears with a store which is given no processor for a while.
pub fn open(url: &str) -> Client {
    make_memory(url);
    // A quorum waits a tenth of it for one of its servers.
    let is_quorum = url.matches("://").count() > 1;
    let io_timeout = if is_quorum { secs(20) } else { secs(10) };
    Client::with_config(Config::from_url(url).unwrap().io_timeout(io_timeout)).unwrap()
}

/// A store in memory is one that a test has made: in the process that opens it.
pub fn make_memory(_url: &str) {
    #[cfg(feature = "testing")]
    if let Some(name) = _url.strip_prefix("memory:") {
        leasehold::testing::Memory::named(name.split('?').next().unwrap());
    }
}

/// What somebody sees who only looks.
pub fn holder(client: &Client, name: impl AsRef<[u8]>) -> Option<Holder> {
    client.lock(name).inspect().unwrap().holder
}

/// As an application has it that locks each order, and as many keys that are no locks.
pub fn fill(server: &Server, count: usize) {
    let script = "for number = ARGV[1], ARGV[2] do \
        local name, token = 'order:' .. number, string.format('%032x', number) \
        redis.call('SET', name, token, 'PX', 600000) \
        redis.call('SET', 'leasehold:{' .. name .. '}', '0 7 7 ' .. token, 'PX', 900000) \
        redis.call('SET', 'session:' .. number, 'secret', 'PX', 600000) end";
    for begin in (1..=count).step_by(10_000) {
        let end = (begin + 9_999).min(count);
        server.cmd(&["EVAL", script, "0", &begin.to_string(), &end.to_string()]);
    }
}

#[track_caller]
pub fn eventually_free(client: &Client, name: &str) {
    eventually(LIMIT, || holder(client, name).is_none());
}

/// Makes a test of each function for each kind of store.
macro_rules! on_each_store {
    ($($promise:ident,)+) => {
        #[cfg(feature = "testing")]
        crate::stores::on_store!(on_memory, memory, $($promise)+);
        crate::stores::on_each_shared_store! { $($promise,)+ }
    };
}
pub(crate) use on_each_store;

/// The same for each that several processes can share, such as a test and the command.
macro_rules! on_each_shared_store {
    ($($promise:ident,)+) => {
        crate::stores::on_store!(on_redis, redis, $($promise)+);
        #[cfg(feature = "sqlite")]
        crate::stores::on_store!(on_a_file, file, $($promise)+);
        #[cfg(feature = "postgres")]
        crate::stores::on_store!(on_postgres, postgres, $($promise)+);
        #[cfg(feature = "mysql")]
        crate::stores::on_store!(on_mysql, mysql, $($promise)+);
        #[cfg(feature = "zookeeper")]
        crate::stores::on_store!(on_zookeeper, zookeeper, $($promise)+);
        #[cfg(feature = "etcd")]
        crate::stores::on_store!(on_etcd, etcd, $($promise)+);
        crate::stores::on_store!(on_a_quorum, quorum, $($promise)+);
    };
}
pub(crate) use on_each_shared_store;

/// The same, and on a Redis of several servers: where the question is whether the right one is asked.
macro_rules! on_each_deployment {
    ($($promise:ident,)+) => {
        #[cfg(feature = "testing")]
        crate::stores::on_store!(on_memory, memory, $($promise)+);
        crate::stores::on_each_shared_deployment! { $($promise,)+ }
    };
}
pub(crate) use on_each_deployment;

/// The same without the one that several processes cannot share.
macro_rules! on_each_shared_deployment {
    ($($promise:ident,)+) => {
        crate::stores::on_each_shared_store! { $($promise,)+ }
        crate::stores::on_store!(on_a_cluster, cluster, $($promise)+);
        crate::stores::on_store!(behind_sentinels, sentinels, $($promise)+);
    };
}
pub(crate) use on_each_shared_deployment;

macro_rules! on_store {
    ($module:ident, $store:ident, $($promise:ident)+) => {
        mod $module {
            $(#[test] fn $promise() {
                if !crate::stores::cannot::is_left_out(stringify!($promise), stringify!($store)) {
                    super::$promise(&crate::stores::Store::$store());
                }
            })+
        }
    };
}
pub(crate) use on_store;

/// The same for promises that need the processor in time: see `unless_starved`.
macro_rules! in_time_on_each_store {
    ($($promise:ident,)+) => {
        crate::stores::in_time_on!(in_time_on_redis, redis, $($promise)+);
        #[cfg(feature = "sqlite")]
        crate::stores::in_time_on!(in_time_on_a_file, file, $($promise)+);
        #[cfg(feature = "testing")]
        crate::stores::in_time_on!(in_time_on_memory, memory, $($promise)+);
        #[cfg(feature = "postgres")]
        crate::stores::in_time_on!(in_time_on_postgres, postgres, $($promise)+);
        #[cfg(feature = "mysql")]
        crate::stores::in_time_on!(in_time_on_mysql, mysql, $($promise)+);
        #[cfg(feature = "zookeeper")]
        crate::stores::in_time_on!(in_time_on_zookeeper, zookeeper, $($promise)+);
        #[cfg(feature = "etcd")]
        crate::stores::in_time_on!(in_time_on_etcd, etcd, $($promise)+);
        crate::stores::in_time_on!(in_time_on_a_quorum, quorum, $($promise)+);
    };
}
pub(crate) use in_time_on_each_store;

macro_rules! in_time_on {
    ($module:ident, $store:ident, $($promise:ident)+) => {
        mod $module {
            use crate::stores::{STALL, Store};
            $(#[test] fn $promise() {
                if !crate::stores::cannot::is_left_out(stringify!($promise), stringify!($store)) {
                    kit::unless_starved(STALL, || super::$promise(&Store::$store()));
                }
            })+
        }
    };
}
pub(crate) use in_time_on;
