//! The store on real files.

mod files;
mod leases;
mod many;
mod users;
mod waiters;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::SqliteStore;
use crate::clock::{Deadline, Moment};
use crate::config::{Config, Sharing, SqliteConfig, StoreConfig};
use crate::error::Error;
use crate::store::{Admin, Lane, Place, Reach, Reply, Request, Store};
use crate::token::Token;

const TTL: Duration = Duration::from_secs(30);
/// Long enough for the slowest disk; nothing here waits for it to pass.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with one file that stores are opened on.
struct Ground {
    folder: TempDir,
}

impl Ground {
    fn new() -> Ground {
        // In memory if there is such a place: a disk that others keep busy stands still for seconds.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Ground { folder: folder.unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("locks.db")
    }

    /// With a file, which else the first take would make.
    fn store(&self) -> SqliteStore {
        let store = open(&self.path()).unwrap();
        store.opened(true, Deadline::after(PATIENCE)).unwrap();
        store
    }

    /// A connection of somebody who knows the tables.
    fn meddler(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.path()).unwrap()
    }
}

fn open(path: &Path) -> Result<SqliteStore, Error> {
    share(path, None)
}

fn share(path: &Path, sharing: Option<Sharing>) -> Result<SqliteStore, Error> {
    let (file, config) = config(path, sharing);
    SqliteStore::open(&file, &config.io_timeout(PATIENCE))
}

fn config(path: &Path, sharing: Option<Sharing>) -> (SqliteConfig, Config) {
    let file = SqliteConfig { path: path.into(), sharing };
    (file.clone(), Config::new(StoreConfig::Sqlite(file)))
}

fn token() -> Token {
    Token::random().unwrap()
}

impl SqliteStore {
    fn reply(&self, request: Request<'_>) -> Reply {
        self.ask(Lane::Caller, request, Deadline::after(PATIENCE)).unwrap().reply
    }

    fn try_take(&self, name: &[u8], token: Token) -> Reply {
        self.reply(Request::Take { name, token, ttl: TTL, place: Place::Try, block: 1 })
    }

    fn join(&self, name: &[u8], token: Token, ticket: u64) -> Reply {
        self.reply(Request::Take { name, token, ttl: TTL, place: Place::Join(ticket), block: 1 })
    }

    fn take_for(&self, name: &[u8], token: Token, ttl: Duration) -> Reply {
        self.reply(Request::Take { name, token, ttl, place: Place::Try, block: 1 })
    }

    fn extend(&self, name: &[u8], token: Token, ttl: Duration, reach: Reach) -> Reply {
        self.reply(Request::Extend { name, token, ttl, reach, fence: 0 })
    }

    fn give(&self, name: &[u8], token: Token, fence: u64) -> Reply {
        self.reply(Request::Give { name, token, fence, ttl: TTL })
    }

    /// As if the disk ended there.
    fn limit_pages(&self, pages: u32) {
        self.opened(false, Deadline::after(PATIENCE)).unwrap().durable.with(|connection| {
            connection
                .query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))
                .unwrap();
        });
    }

    fn remaining(&self, name: &[u8]) -> Option<Duration> {
        self.inspect(name, Deadline::after(PATIENCE)).unwrap().holder.map(|held| held.ttl)
    }
}

#[track_caller]
fn fence(reply: Reply) -> u64 {
    match reply {
        Reply::Granted { fence, .. } => fence,
        other => panic!("not granted: {other:?}"),
    }
}

#[track_caller]
fn ticket(reply: Reply) -> u64 {
    match reply {
        Reply::Busy { ticket, .. } => ticket,
        other => panic!("not busy: {other:?}"),
    }
}

/// Asks until it is so.
#[track_caller]
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let limit = Deadline::after(PATIENCE);
    while !so() {
        assert!(!limit.has_passed(), "never came: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether it takes less than `limit` and 50 ms. Asked several times, because a busy machine may
/// wake a sleeper late; what waits for something else is late every time.
#[track_caller]
fn ends_by(limit: Duration, mut call: impl FnMut()) {
    let mut took = Duration::MAX;
    for _ in 0..20 {
        let started = Moment::now();
        call();
        took = took.min(Moment::now().since(started));
        if took < limit + Duration::from_millis(50) {
            return;
        }
    }
    panic!("{took:?} instead of {limit:?}");
}
