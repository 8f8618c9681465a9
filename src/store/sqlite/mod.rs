//! The embedded store: one SQLite file, shared by the processes of one machine.
//!
//! [`open`] makes sure that the file is ours, or refuses it untouched. [`files`] sees when it is
//! moved or replaced. [`connection`] guards a connection. [`requests`] does what is asked, and
//! [`waiters`] keeps the waiters. Every statement is in a file of its own beside them.
//!
//! What the promises rest on: a lease is a row with an expiry on the suspend-aware clock, which all
//! processes of one boot share; a row of another boot is free, since its holder ended with the
//! machine. All changes happen under the file's one write lock. A fence is on the disk before any
//! process learns of it.

mod connection;
mod files;
mod mount;
mod open;
mod requests;
mod tables;
#[cfg(test)]
mod tests;
mod waiters;

use std::borrow::Cow;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Deadline, Moment};
use crate::config::Config;
use crate::error::{Error, ErrorKind};
use crate::fork::OneProcess;
use crate::store::{
    Abilities, Answer, Failure, Lane, Look, Outcome, Place, Reply, Request, ServerId, Store,
};
use crate::sync::{Mutex, Turnstile};
use crate::token::Token;
use connection::Cause;
use open::Opened;
use requests::Found;
use tables::Tables;
use waiters::Waiter;

/// SQLite knows by itself which locks of a file its process has, and asks the kernel only for
/// others. In a forked child that knowledge is false for every file which the parent has open: the
/// child would hold nothing, and once the parent is gone, work on a log that others have deleted.
static USED_IN: OneProcess = OneProcess::new();

/// Between two looks whether the file is still what it was.
const WATCH_EVERY: Duration = Duration::from_millis(250);

pub(crate) struct SqliteStore {
    current: Mutex<Current>,
    opening: Turnstile<()>,
    /// As it was given, but absolute.
    name: PathBuf,
    prefix: Vec<u8>,
    boot: String,
}

enum Current {
    Open(Arc<Opened>),
    /// Until a request opens the file that is there now.
    Lost,
    /// Nobody watches any more: a late request, such as to give back a lock, opens the file for
    /// itself.
    Closed,
}

impl SqliteStore {
    /// Opens the file, and makes it and the folders above it where they are missing. A file that
    /// cannot be used is left as it was.
    pub(crate) fn open(path: &Path, config: &Config) -> Result<SqliteStore, Error> {
        if !USED_IN.is_this() {
            return Err(Error::new(
                ErrorKind::Storage,
                "this process was forked from one that had opened an SQLite file, and would share \
                 locks that it does not have; open it in the children only, or exec in between",
            ));
        }
        let boot = open::boot()?;
        let name = open::absolute(path)?;
        let opened = open::open(&name, true, Deadline::after(config.io_timeout))?;
        Ok(SqliteStore {
            current: Mutex::new(Current::Open(opened)),
            opening: Turnstile::default(),
            name,
            prefix: config.prefix.clone(),
            boot,
        })
    }

    /// The file that was opened, or that is there now if the keeper has ended every lease of that
    /// one. Only `make` makes one.
    fn opened(&self, make: bool, deadline: Deadline) -> Result<Arc<Opened>, Error> {
        if let Some(opened) = self.known() {
            return Ok(opened);
        }
        let _guard = self.opening.enter(deadline).ok_or_else(|| connection::late(&self.name))?;
        if let Some(opened) = self.known() {
            return Ok(opened);
        }
        let opened = open::open(&self.name, make, deadline)?;
        let mut current = self.current.lock();
        if let Current::Lost = *current {
            *current = Current::Open(Arc::clone(&opened));
        }
        Ok(opened)
    }

    fn known(&self) -> Option<Arc<Opened>> {
        match &*self.current.lock() {
            Current::Open(opened) => Some(Arc::clone(opened)),
            Current::Lost | Current::Closed => None,
        }
    }

    /// Closes the file, outside of the mutex.
    fn replace(&self, now: Current) {
        let before = mem::replace(&mut *self.current.lock(), now);
        drop(before);
    }

    /// Requests in one transaction, which is one sync for all of them.
    fn transact(
        &self,
        opened: &Opened,
        requests: &[Request<'_>],
        patience: Deadline,
    ) -> Result<Vec<Outcome>, Failure> {
        let transaction = opened.durable.begin(patience).map_err(Failure::not_done)?;
        let now = Moment::now();
        let mut outcomes = Vec::with_capacity(requests.len());
        for request in requests {
            let (Request::Take { name, token, .. }
            | Request::Extend { name, token, .. }
            | Request::Give { name, token, .. }) = *request;
            let tables = self.tables(&transaction.connection, (name, Some(token)), now);
            outcomes.push(match tables.answer(request) {
                Ok(reply) => Ok(answer(reply, transaction.sent)),
                Err(Cause::Refused(error)) => Err(Failure::not_done(error)),
                Err(cause) => {
                    return Err(Failure::not_done(cause.explain(opened.files.path())));
                }
            });
        }
        transaction.commit()?;
        Ok(outcomes)
    }

    /// Answers a take that cannot be granted without waiting for any sync, or says None.
    fn refuse(
        &self,
        opened: &Opened,
        (name, token, place): (&[u8], Token, Place),
        deadline: Deadline,
    ) -> Result<Option<Answer>, Failure> {
        let asks = (name, Some(token));
        let found = opened
            .quick
            .read(deadline, |connection| self.tables(connection, asks, Moment::now()).found(place));
        let (Found::Busy(free_in, waiter), sent) = found.map_err(Failure::not_done)? else {
            return Ok(None);
        };
        let ticket = match (place, waiter) {
            (Place::Join(_), Some(Waiter { ticket, is_fresh: true })) => ticket.unsigned_abs(),
            (Place::Join(_), _) => {
                let transaction = opened.quick.begin(deadline).map_err(Failure::not_done)?;
                let tables = self.tables(&transaction.connection, asks, Moment::now());
                let joined = tables.waiter(place).and_then(|waiter| tables.join(waiter));
                let ticket = joined.map_err(|error| {
                    Failure::not_done(Cause::Sqlite(error).explain(opened.files.path()))
                })?;
                transaction.commit()?;
                ticket
            }
            (Place::Try, _) => 0,
        };
        opened.files.check().map_err(Failure::not_done)?;
        Ok(Some(answer(Reply::Busy { free_in, ticket, rank: 0, ours: false }, sent)))
    }

    fn tables<'a>(
        &'a self,
        connection: &'a rusqlite::Connection,
        (name, token): (&'a [u8], Option<Token>),
        now: Moment,
    ) -> Tables<'a> {
        let name = match &*self.prefix {
            [] => Cow::Borrowed(name),
            prefix => Cow::Owned([prefix, name].concat()),
        };
        let token = token.map_or_else(String::new, |token| token.to_string());
        Tables { connection, boot: &self.boot, now, name, token }
    }
}

impl Store for SqliteStore {
    fn run(&self, lane: Lane, requests: &[Request<'_>], deadline: Deadline) -> Vec<Outcome> {
        let patience = match lane {
            Lane::Give(longest) => Deadline::after(longest).min(deadline),
            Lane::Caller | Lane::Keeper => deadline,
        };
        let make = requests.iter().any(|request| matches!(request, Request::Take { .. }));
        let opened = match self.opened(make, patience) {
            Ok(opened) => opened,
            Err(error) if open::is_gone(&self.name) => return lost(requests, &error),
            Err(error) => return vec![Err(Failure::not_done(error)); requests.len()],
        };
        let answered = || {
            if deadline.has_passed() {
                return Err(Failure::not_done(connection::late(&self.name)));
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

    fn look(&self, name: &[u8], deadline: Deadline) -> Result<Look, Error> {
        let opened = self.opened(false, deadline)?;
        let (seen, _) = opened.quick.read(deadline, |connection| {
            self.tables(connection, (name, None), Moment::now()).look()
        })?;
        opened.files.check().map(|()| seen)
    }

    fn ping(&self, deadline: Deadline) -> Result<(), Error> {
        let opened = self.opened(false, deadline)?;
        opened.quick.read(deadline, open::probe)?;
        opened.files.check()
    }

    fn watch_every(&self) -> Option<Duration> {
        Some(WATCH_EVERY)
    }

    fn watch(&self, end: &dyn Fn()) {
        if self.known().is_some_and(|opened| !opened.files.are_there()) {
            end();
            self.replace(Current::Lost);
        }
    }

    fn close(&self) {
        self.replace(Current::Closed);
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            place_kept: Some(waiters::PLACE_KEPT),
            longest_pause: waiters::LONGEST_PAUSE,
            spread: Duration::ZERO,
            claims_first: false,
        }
    }
}

fn answer(reply: Reply, sent: Moment) -> Answer {
    Answer { reply, sent, server: 0, by: ServerId::default() }
}

/// The outcomes where the file is gone: nobody has a lock there.
fn lost(requests: &[Request<'_>], error: &Error) -> Vec<Outcome> {
    let outcome = |request: &Request<'_>| match request {
        Request::Take { .. } => Err(Failure::not_done(error.clone())),
        Request::Extend { .. } | Request::Give { .. } => Ok(answer(Reply::NotMine, Moment::now())),
    };
    requests.iter().map(outcome).collect()
}
