//! Servers of the stores on which waiters are measured.

use std::any::Any;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;
use leasehold::{Client, Config};

use crate::measure::Outcome;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Store {
    Redis,
    #[cfg(feature = "sqlite")]
    Sqlite,
    #[cfg(feature = "postgres")]
    Postgres,
    #[cfg(feature = "mysql")]
    Mysql,
    #[cfg(feature = "zookeeper")]
    Zookeeper,
    #[cfg(feature = "etcd")]
    Etcd,
}

/// A client of a store that syncs to a disk, on which somebody else may be busy for seconds.
pub(crate) fn open(url: &str) -> Outcome<Client> {
    const LONGEST_SYNC: Duration = Duration::from_secs(20);
    Ok(Client::with_config(Config::from_url(url)?.io_timeout(LONGEST_SYNC))?)
}

/// One that is there until this is dropped.
pub(crate) struct Running {
    pub(crate) url: String,
    _server: Box<dyn Any>,
}

impl Running {
    fn new(url: String, server: impl Any) -> Outcome<Running> {
        Ok(Running { url, _server: Box::new(server) })
    }

    fn with_tables(url: String, server: impl Any) -> Outcome<Running> {
        open(&url)?.initialize(false)?;
        Running::new(url, server)
    }
}

/// That of the build: a temporary folder may be in memory.
fn disk() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

impl Store {
    /// Starts one that syncs to the disk, but for a Redis.
    pub(crate) fn start(self) -> Outcome<Running> {
        match self {
            Store::Redis => {
                let server = kit::Server::start();
                Running::new(server.url(), server)
            }
            #[cfg(feature = "sqlite")]
            Store::Sqlite => {
                let folder = tempfile::tempdir_in(disk())?;
                Running::new(format!("sqlite:{}/locks.db", folder.path().display()), folder)
            }
            #[cfg(feature = "postgres")]
            Store::Postgres => {
                let server = kit::Postgres::start_in(disk(), &[]);
                Running::with_tables(server.url(&server.database()), server)
            }
            #[cfg(feature = "mysql")]
            Store::Mysql => {
                let server = kit::Mysql::start_in(disk(), &[]);
                Running::with_tables(server.url(&server.database()), server)
            }
            #[cfg(feature = "zookeeper")]
            Store::Zookeeper => {
                let server = kit::Zookeeper::start_in(disk(), &[], &[]);
                Running::with_tables(server.url(""), server)
            }
            #[cfg(feature = "etcd")]
            Store::Etcd => {
                let server = kit::Etcd::start_in(disk(), 1, &[]);
                Running::new(server.url(), server)
            }
        }
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}
