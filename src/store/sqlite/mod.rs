//! The embedded store: one SQLite file, shared by the processes of one machine. What its promises rest
//! on is in `docs/protocol.md`.

mod admin;
mod clients;
mod connection;
mod disk;
#[cfg(feature = "examine")]
pub(crate) mod examine;
mod files;
mod mount;
mod open;
mod owner;
mod requests;
mod rights;
#[cfg(test)]
mod tests;
mod waiters;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::clock::{Deadline, Moment};
use crate::config::{Config, SqliteConfig, embedded_path};
use crate::error::{Error, ErrorKind};
use crate::fork::{OneProcess, SQLITE, forks_wait};
use crate::said::say;
use crate::store::{
    Abilities, Answer, Failure, Lane, Outcome, Place, Reply, Request, ServerId, Store,
};
use crate::sync::{Mutex, Turnstile};
use crate::token::Token;
use connection::Cause;
use open::Opened;
use requests::{Found, Tables, Waiter};

/// SQLite knows by itself which locks of a file its process has, and asks the kernel only for
/// others. In a forked child that knowledge is false for every file which the parent has open: the
/// child would hold nothing, and once the parent is gone, work on a log that others have deleted. It
/// is set aside where that can be done, and no thread of the parent was in the midst of SQLite.
static USED_IN: OneProcess = OneProcess::new();
const CUT: &str = "a thread was in the midst of SQLite when this process was forked; fork again";
const INHERITED: &str = if cfg!(feature = "capi") {
    "this process was forked from one that had opened an SQLite file, and would share locks that it \
     does not have; open clients in the children only (Celery: worker_process_init, gunicorn: \
     post_fork), or let the parent's reopen after a fork"
} else {
    "this process was forked from one that had opened an SQLite file, and would share locks that it \
     does not have; open clients on SQLite files in the children only"
};

/// Between two looks whether the file is still what it was.
const WATCH_EVERY: Duration = Duration::from_millis(250);

pub(crate) struct SqliteStore {
    /// `None` until a request opens the file that is there now.
    current: Mutex<Option<Arc<Opened>>>,
    /// One thread opens a file that was lost: hundreds would leave the program no descriptors.
    opening: Turnstile<()>,
    /// Nobody watches any more: a late request, such as to give back a lock, opens the file for
    /// itself.
    closed: AtomicBool,
    /// Once the log was told that there is not even a folder.
    is_told: AtomicBool,
    /// With the path as it was given, but absolute.
    file: SqliteConfig,
    prefix: Vec<u8>,
    boot: String,
}

impl SqliteStore {
    pub(crate) fn open(file: &SqliteConfig, config: &Config) -> Result<SqliteStore, Error> {
        if !USED_IN.is_this() {
            let _steady = SQLITE.steady();
            let is_whole = SQLITE.is_whole();
            if !is_whole || !files::begin_anew(&USED_IN) {
                let why = if !is_whole && forks_wait() { CUT } else { INHERITED };
                return Err(Error::new(ErrorKind::Storage, why));
            }
        }
        let boot = open::boot()?;
        let path = std::path::absolute(&file.path);
        let path = path.map_err(|error| disk::failed(&file.path, &error))?;
        let file = SqliteConfig { path, sharing: file.sharing };
        // A look at a lock leaves nothing behind, so the first take makes the file.
        let opened = if open::is_gone(&file.path) {
            open::check_place(&file)?;
            None
        } else {
            Some(open::open(&file, true, Deadline::after(config.io_timeout))?)
        };
        let (current, closed) = (Mutex::new(opened), AtomicBool::new(false));
        let (opening, is_told) = (Turnstile::default(), AtomicBool::new(false));
        let prefix = config.prefix.clone();
        Ok(SqliteStore { current, opening, closed, is_told, file, prefix, boot })
    }

    /// The file that was opened, or that is there now if the keeper has ended every lease of that
    /// one. Only `make` makes one.
    fn opened(&self, make: bool, deadline: Deadline) -> Result<Arc<Opened>, Error> {
        if let Some(opened) = self.current.lock().clone() {
            return Ok(opened);
        }
        let _only =
            self.opening.enter(deadline).ok_or_else(|| connection::late(&self.file.path))?;
        if let Some(opened) = self.current.lock().clone() {
            return Ok(opened);
        }
        let opened = open::open(&self.file, make, deadline)?;
        let mut current = self.current.lock();
        if self.closed.load(Ordering::Relaxed) {
            return Ok(opened);
        }
        Ok(Arc::clone(current.get_or_insert(opened)))
    }

    /// There is no file, so nothing is held in it. Where the folder is missing, too, the path may be a slip.
    fn is_missing(&self) -> bool {
        let path = &*self.file.path;
        let is_missing = self.current.lock().is_none() && open::is_gone(path);
        if is_missing
            && path.parent().is_some_and(open::is_gone)
            && !embedded_path().is_ok_and(|own| own == *path)
            && !self.is_told.swap(true, Ordering::Relaxed)
        {
            let why = format!(
                "there is no folder {}, so no lock is held there; correct the path, or the first \
                 lock makes the folder and the file",
                path.parent().unwrap_or(path).display()
            );
            say!(Warn, "sqlite-no-folder", why = &*why);
        }
        is_missing
    }

    /// Closes the file, outside of the mutex.
    fn close_file(&self) {
        let before = self.current.lock().take();
        drop(before);
    }

    /// Requests in one transaction, which is one sync for all of them.
    fn transact(
        &self,
        opened: &Opened,
        requests: &[Request<'_>],
        patience: Deadline,
    ) -> Result<Vec<Outcome>, Failure> {
        opened.durable.change(patience, |connection, sent| {
            let outcome = |request: &Request<'_>| {
                let (Request::Take { name, token, .. }
                | Request::Extend { name, token, .. }
                | Request::Give { name, token, .. }) = *request;
                let tables = self.tables(connection, name, Some(token));
                match tables.answer(request) {
                    Ok(reply) => Ok(Ok(answer(reply, sent))),
                    Err(Cause::Refused(error)) => Ok(Err(Failure::not_done(error))),
                    Err(cause) => Err(cause.of_row(&tables.name)),
                }
            };
            requests.iter().map(outcome).collect()
        })
    }

    /// Answers a take that cannot be granted, without waiting for any sync.
    fn refuse(
        &self,
        opened: &Opened,
        (name, token, place): (&[u8], Token, Place),
        deadline: Deadline,
    ) -> Result<Option<Answer>, Failure> {
        let sent = Moment::now();
        let found = opened.quick.read(deadline, Some(&self.key(name)), |connection| {
            self.tables(connection, name, Some(token)).found(place)
        });
        let Found::Busy(free_in, waiter) = found.map_err(Failure::not_done)? else {
            return Ok(None);
        };
        let ticket = match waiter {
            _ if place == Place::Try => 0,
            Some(Waiter { ticket, is_fresh: true }) => ticket.unsigned_abs(),
            _ => opened.quick.change(deadline, |connection, _| {
                let tables = self.tables(connection, name, Some(token));
                tables.join(place).map_err(|error| Cause::from(error).of_row(&tables.name))
            })?,
        };
        opened.files.check().map_err(Failure::not_done)?;
        Ok(Some(answer(Reply::Busy { free_in, ticket, rank: 0, ours: false }, sent)))
    }

    fn key<'a>(&self, name: &'a [u8]) -> Cow<'a, [u8]> {
        match &*self.prefix {
            [] => Cow::Borrowed(name),
            prefix => Cow::Owned([prefix, name].concat()),
        }
    }

    fn tables<'a>(
        &'a self,
        connection: &'a rusqlite::Connection,
        name: &'a [u8],
        token: Option<Token>,
    ) -> Tables<'a> {
        let name = self.key(name);
        let token = token.map_or_else(String::new, |token| token.to_string());
        Tables { connection, boot: &self.boot, now: Moment::now(), name, token }
    }
}

impl Store for SqliteStore {
    fn run(&self, lane: Lane, requests: &[Request<'_>], deadline: Deadline) -> Vec<Outcome> {
        let patience = lane.by(deadline).connect;
        let make = requests.iter().any(|request| matches!(request, Request::Take { .. }));
        let opened = match self.opened(make, patience) {
            Ok(opened) => opened,
            Err(error) if open::is_gone(&self.file.path) => return lost(requests, &error),
            Err(error) => return vec![Err(Failure::not_done(error)); requests.len()],
        };
        let answered = || {
            if deadline.has_passed() {
                return Err(Failure::not_done(connection::late(&self.file.path)));
            }
            if let [Request::Take { name, token, place, .. }] = *requests
                && let Some(answer) = self.refuse(&opened, (name, token, place), deadline)?
            {
                return Ok(vec![Ok(answer)]);
            }
            self.transact(&opened, requests, patience)
        };
        answered().unwrap_or_else(|failure| match opened.files.check() {
            Ok(()) => vec![Err(failure); requests.len()],
            Err(error) => lost(requests, &error),
        })
    }

    fn free_in(&self, name: &[u8], deadline: Deadline) -> Result<Duration, Error> {
        if self.is_missing() {
            return Ok(Duration::ZERO);
        }
        let opened = self.opened(false, deadline)?;
        let look = |connection: &_| self.tables(connection, name, None).free_in();
        let free_in = opened.quick.read(deadline, Some(&self.key(name)), look)?;
        opened.files.check().map(|()| free_in)
    }

    fn ping(&self, deadline: Deadline) -> Result<(), Error> {
        if self.is_missing() {
            return open::check_place(&self.file);
        }
        let opened = self.opened(false, deadline)?;
        opened.quick.read(deadline, None, open::probe)?;
        opened.files.check()
    }

    fn watch(&self, end: &dyn Fn()) {
        let current = self.current.lock().clone();
        if current.is_some_and(|opened| !opened.files.are_there()) {
            end();
            self.close_file();
        }
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.close_file();
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            place_kept: Some(waiters::PLACE_KEPT),
            longest_pause: waiters::LONGEST_PAUSE,
            watch_every: Some(WATCH_EVERY),
            ..Abilities::default()
        }
    }
}

fn answer(reply: Reply, sent: Moment) -> Answer {
    Answer { reply, sent, server: 0, by: ServerId::default(), again: None }
}

/// Nobody has a lock in a file that is gone.
fn lost(requests: &[Request<'_>], error: &Error) -> Vec<Outcome> {
    let outcome = |request: &Request<'_>| match request {
        Request::Take { .. } => Err(Failure::not_done(error.clone())),
        Request::Extend { .. } | Request::Give { .. } => Ok(answer(Reply::NotMine, Moment::now())),
    };
    requests.iter().map(outcome).collect()
}
