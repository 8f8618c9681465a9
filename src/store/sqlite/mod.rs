//! The embedded store: one SQLite file, shared by the processes of one machine.
//!
//! [`open`] makes sure that the file is ours, or refuses it untouched. [`door`] guards a
//! connection. [`clerk`] does what a request asks for, and [`queue`] keeps the waiters. Every
//! statement is in a file of its own beside them.
//!
//! What the promises rest on: a lease is a row with an expiry on the suspend-aware clock, which all
//! processes of one boot share; a row of another boot is free, since its holder ended with the
//! machine. All changes happen under the file's one write lock. A fence is on the disk before
//! anybody hears of it.

mod anchor;
mod clerk;
mod door;
mod mounts;
mod open;
mod queue;
#[cfg(test)]
mod tests;

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
use clerk::{Clerk, Glance, Trouble};
use door::explain;
use open::Opened;

/// SQLite knows by itself which locks of a file its process has, and asks the kernel only for
/// others. In a forked child that knowledge is false for every file which the parent has open: the
/// child would hold nothing, and once the parent is gone, work on a log that others have deleted.
static USED_IN: OneProcess = OneProcess::new();

/// How often it is looked whether the file is still what it was.
const WATCH_EVERY: Duration = Duration::from_millis(250);

pub(crate) struct SqliteStore {
    file: Mutex<File>,
    opening: Turnstile<()>,
    /// As it was given, but absolute.
    name: PathBuf,
    prefix: Vec<u8>,
    boot: String,
}

enum File {
    Open(Arc<Opened>),
    /// Until somebody wants the one that is there now.
    Lost,
    /// Nobody watches any more: what is still asked for, such as to give back a lock, opens the file
    /// for itself.
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
            file: Mutex::new(File::Open(opened)),
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
        let _turn = self.opening.enter(deadline).ok_or_else(|| door::late(&self.name))?;
        if let Some(opened) = self.known() {
            return Ok(opened);
        }
        let opened = open::open(&self.name, make, deadline)?;
        let mut file = self.file.lock();
        if let File::Lost = *file {
            *file = File::Open(Arc::clone(&opened));
        }
        Ok(opened)
    }

    fn known(&self) -> Option<Arc<Opened>> {
        match &*self.file.lock() {
            File::Open(opened) => Some(Arc::clone(opened)),
            File::Lost | File::Closed => None,
        }
    }

    fn let_go_of_file(&self, now: File) {
        let before = mem::replace(&mut *self.file.lock(), now);
        drop(before);
    }

    /// Requests in one transaction, which is one sync for all of them.
    fn transact(
        &self,
        opened: &Opened,
        requests: &[Request<'_>],
        patience: Deadline,
        deadline: Deadline,
    ) -> Result<Vec<Outcome>, Failure> {
        let transaction = opened.durable.begin(patience, deadline).map_err(Failure::not_done)?;
        let sent = transaction.sent();
        let clerk = self.clerk(transaction.connection());
        let mut outcomes = Vec::with_capacity(requests.len());
        for request in requests {
            outcomes.push(match clerk.answer(request) {
                Ok(reply) => Ok(Answer { reply, sent, server: 0, by: ServerId::default() }),
                Err(Trouble::Refused(error)) => Err(Failure::not_done(error)),
                Err(Trouble::Sql(error)) => {
                    return Err(Failure::not_done(explain(&error, opened.anchor.path())));
                }
            });
        }
        transaction.commit()?;
        Ok(outcomes)
    }

    /// Answers a take that cannot be granted without waiting for anybody's sync, or says None.
    fn glance(
        &self,
        opened: &Opened,
        (name, token, place): (&[u8], Token, Place),
        patience: Deadline,
    ) -> Result<Option<Answer>, Failure> {
        let (seen, sent) = opened
            .quick
            .read(patience, |connection| self.clerk(connection).glance(name, token, place))
            .map_err(Failure::not_done)?;
        let (free_in, ticket) = match seen {
            Glance::Write => return Ok(None),
            Glance::Busy { free_in, ticket } => {
                opened.anchor.check().map_err(Failure::not_done)?;
                (free_in, ticket)
            }
            Glance::Stand { free_in } => {
                let transaction =
                    opened.quick.begin(patience, patience).map_err(Failure::not_done)?;
                let clerk = self.clerk(transaction.connection());
                let ticket = clerk
                    .show(name, token, place)
                    .map_err(|error| Failure::not_done(explain(&error, opened.anchor.path())))?;
                transaction.commit()?;
                (free_in, ticket)
            }
        };
        let reply = Reply::Busy { free_in, ticket, rank: 0, ours: false };
        Ok(Some(Answer { reply, sent, server: 0, by: ServerId::default() }))
    }

    fn clerk<'a>(&'a self, connection: &'a rusqlite::Connection) -> Clerk<'a> {
        Clerk { connection, prefix: &self.prefix, boot: &self.boot, now: Moment::now() }
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
            if let [Request::Take { name, token, place, .. }] = *requests
                && let Some(answer) = self.glance(&opened, (name, token, place), deadline)?
            {
                return Ok(vec![Ok(answer)]);
            }
            self.transact(&opened, requests, patience, deadline)
        };
        answered().unwrap_or_else(|failure: Failure| match opened.anchor.check() {
            Ok(()) => vec![Err(failure); requests.len()],
            Err(error) => lost(requests, &error),
        })
    }

    fn look(&self, name: &[u8], deadline: Deadline) -> Result<Look, Error> {
        let opened = self.opened(false, deadline)?;
        let (seen, _) =
            opened.quick.read(deadline, |connection| self.clerk(connection).look(name))?;
        opened.anchor.check().map(|()| seen)
    }

    fn ping(&self, deadline: Deadline) -> Result<(), Error> {
        let opened = self.opened(false, deadline)?;
        opened.quick.read(deadline, open::probe)?;
        opened.anchor.check()
    }

    fn watch_every(&self) -> Option<Duration> {
        Some(WATCH_EVERY)
    }

    fn watch(&self, end: &dyn Fn()) {
        if self.known().is_some_and(|opened| !opened.anchor.holds()) {
            end();
            self.let_go_of_file(File::Lost);
        }
    }

    fn close(&self) {
        self.let_go_of_file(File::Closed);
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            place_kept: Some(queue::PLACE_KEPT),
            longest_pause: queue::LONGEST_PAUSE,
            spread: Duration::ZERO,
            claims_first: false,
        }
    }
}

/// What is answered where the file is gone: nobody has a lock there.
fn lost(requests: &[Request<'_>], error: &Error) -> Vec<Outcome> {
    let answer = |request: &Request<'_>| match request {
        Request::Take { .. } => Err(Failure::not_done(error.clone())),
        Request::Extend { .. } | Request::Give { .. } => Ok(Answer {
            reply: Reply::NotMine,
            sent: Moment::now(),
            server: 0,
            by: ServerId::default(),
        }),
    };
    requests.iter().map(answer).collect()
}
