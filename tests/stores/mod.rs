//! A fresh store of each kind, so that a promise that holds for all of them is written once.

// Each test file takes this whole module in and uses a part of it.
#![allow(dead_code, unreachable_pub, unused_imports, unused_macros)]

mod quorum;

use std::time::Duration;

use leasehold::defaults::GUARDED_MAX_TTL;
use leasehold::limits::MAX_TTL;
use leasehold::{Client, Config, Holder};
use tempfile::TempDir;

pub use self::quorum::{Quorum, QuorumBuilder};
#[cfg(feature = "postgres")]
use kit::Postgres;
pub use kit::wait::STALL;
use kit::{Server, eventually};

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
    Quorum(Quorum),
    #[cfg(feature = "postgres")]
    Postgres(Database),
}

/// One with the tables.
#[cfg(feature = "postgres")]
pub struct Database {
    pub name: String,
    /// Else it is in the server that this program's tests share.
    pub own: Option<Postgres>,
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

impl Store {
    pub fn redis() -> Store {
        Store::Redis(Box::new(Server::start()))
    }

    /// In memory where there is such a file system: how long a disk takes is not judged here.
    pub fn file() -> Store {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Store::File(dir.unwrap())
    }

    pub fn quorum() -> Store {
        Store::Quorum(Quorum::start(3))
    }

    #[cfg(feature = "postgres")]
    pub fn postgres() -> Store {
        Store::postgres_in(None)
    }

    #[cfg(feature = "postgres")]
    pub fn postgres_in(own: Option<Postgres>) -> Store {
        let name = own.as_ref().unwrap_or_else(|| Postgres::shared()).database();
        let store = Store::Postgres(Database { name, own });
        open(&store.url()).initialize(false).unwrap();
        store
    }

    pub fn url(&self) -> String {
        match self {
            #[cfg(feature = "postgres")]
            Store::Postgres(database) => database.server().url(&database.name),
            Store::Redis(server) => server.url(),
            Store::Quorum(quorum) => quorum.url(),
            Store::File(dir) => format!("sqlite://{}/locks.db", dir.path().display()),
        }
    }

    /// The longest ttl that it takes.
    pub fn longest_ttl(&self) -> Duration {
        match self {
            Store::Quorum(_) => GUARDED_MAX_TTL,
            _ => MAX_TTL,
        }
    }

    pub fn client(&self) -> Client {
        open(&self.url())
    }
}

/// A client that bears with a store which is given no processor for a while.
pub fn open(url: &str) -> Client {
    // A quorum waits a tenth of it for one of its servers.
    let is_quorum = url.matches("://").count() > 1;
    let io_timeout = if is_quorum { secs(20) } else { secs(10) };
    Client::with_config(Config::from_url(url).unwrap().io_timeout(io_timeout)).unwrap()
}

/// What somebody sees who only looks.
pub fn holder(client: &Client, name: impl AsRef<[u8]>) -> Option<Holder> {
    client.lock(name).inspect().unwrap().holder
}

#[track_caller]
pub fn eventually_free(client: &Client, name: &str) {
    eventually(LIMIT, || holder(client, name).is_none());
}

/// Makes a test of each function for each kind of store.
macro_rules! on_each_store {
    ($($promise:ident,)+) => {
        mod on_redis {
            $(#[test] fn $promise() { super::$promise(&crate::stores::Store::redis()); })+
        }

        #[cfg(feature = "sqlite")]
        mod on_a_file {
            $(#[test] fn $promise() { super::$promise(&crate::stores::Store::file()); })+
        }

        #[cfg(feature = "postgres")]
        mod on_postgres {
            $(#[test] fn $promise() { super::$promise(&crate::stores::Store::postgres()); })+
        }

        mod on_a_quorum {
            $(#[test] fn $promise() { super::$promise(&crate::stores::Store::quorum()); })+
        }
    };
}
pub(crate) use on_each_store;

/// The same for promises that need the processor in time: see `unless_starved`.
macro_rules! in_time_on_each_store {
    ($($promise:ident,)+) => {
        mod in_time_on_redis {
            use crate::stores::{STALL, Store};
            $(#[test] fn $promise() {
                kit::unless_starved(STALL, || super::$promise(&Store::redis()));
            })+
        }

        #[cfg(feature = "sqlite")]
        mod in_time_on_a_file {
            use crate::stores::{STALL, Store};
            $(#[test] fn $promise() {
                kit::unless_starved(STALL, || super::$promise(&Store::file()));
            })+
        }

        #[cfg(feature = "postgres")]
        mod in_time_on_postgres {
            use crate::stores::{STALL, Store};
            $(#[test] fn $promise() {
                kit::unless_starved(STALL, || super::$promise(&Store::postgres()));
            })+
        }

        mod in_time_on_a_quorum {
            use crate::stores::{STALL, Store};
            $(#[test] fn $promise() {
                kit::unless_starved(STALL, || super::$promise(&Store::quorum()));
            })+
        }
    };
}
pub(crate) use in_time_on_each_store;
