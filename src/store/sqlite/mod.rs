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

mod clerk;
mod door;
mod mounts;
mod open;
mod queue;
#[cfg(test)]
mod tests;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::clock::{Deadline, Moment};
use crate::config::Config;
use crate::error::{Error, ErrorKind};
use crate::fork::OneProcess;
use crate::store::{
    Abilities, Answer, Failure, Lane, Look, Outcome, Place, Reply, Request, ServerId, Store,
};
use crate::token::Token;
use clerk::{Clerk, Glance, Trouble};
use door::{Door, explain};

/// SQLite knows by itself which locks of a file its process has, and asks the kernel only for
/// others. In a forked child that knowledge is false for every file which the parent has open: the
/// child would hold nothing, and once the parent is gone, work on a log that others have deleted.
static USED_IN: OneProcess = OneProcess::new();

pub(crate) struct SqliteStore {
    /// Its commits are synced to the disk before they count.
    durable: Door,
    /// Its commits are not: it reads, and writes what matters to the living only. It is also free
    /// while the other one waits for the disk.
    quick: Door,
    path: PathBuf,
    /// Device and inode of the file that was opened.
    identity: (u64, u64),
    prefix: Vec<u8>,
    boot: String,
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
        let opened = open::open(path, Deadline::after(config.io_timeout))?;
        Ok(SqliteStore {
            durable: Door::new(opened.durable, &opened.path),
            quick: Door::new(opened.quick, &opened.path),
            identity: opened.identity,
            path: opened.path,
            prefix: config.prefix.clone(),
            boot: opened.boot,
        })
    }

    /// Requests in one transaction, which is one sync for all of them.
    fn transact(
        &self,
        requests: &[Request<'_>],
        patience: Deadline,
        deadline: Deadline,
    ) -> Result<Vec<Outcome>, Failure> {
        let transaction = self.durable.begin(patience, deadline).map_err(Failure::not_done)?;
        let sent = transaction.sent();
        let clerk = self.clerk(transaction.connection());
        let mut outcomes = Vec::with_capacity(requests.len());
        for request in requests {
            outcomes.push(match clerk.answer(request) {
                Ok(reply) => Ok(Answer { reply, sent, server: 0, by: ServerId::default() }),
                Err(Trouble::Refused(error)) => Err(Failure::not_done(error)),
                Err(Trouble::Sql(error)) => {
                    return Err(Failure::not_done(explain(&error, &self.path)));
                }
            });
        }
        transaction.commit()?;
        Ok(outcomes)
    }

    /// Answers a take that cannot be granted without waiting for anybody's sync, or says None.
    fn glance(
        &self,
        (name, token, place): (&[u8], Token, Place),
        patience: Deadline,
    ) -> Result<Option<Answer>, Failure> {
        let (seen, sent) = self
            .quick
            .read(patience, |connection| self.clerk(connection).glance(name, token, place))
            .map_err(Failure::not_done)?;
        let (free_in, ticket) = match seen {
            Glance::Write => return Ok(None),
            Glance::Busy { free_in, ticket } => (free_in, ticket),
            Glance::Stand { free_in } => {
                let transaction =
                    self.quick.begin(patience, patience).map_err(Failure::not_done)?;
                let clerk = self.clerk(transaction.connection());
                let ticket = clerk
                    .show(name, token, place)
                    .map_err(|error| Failure::not_done(explain(&error, &self.path)))?;
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

    /// Whoever goes on with a file that was deleted shares its locks with nobody.
    fn check_identity(&self) -> Result<(), Error> {
        match std::fs::metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == self.identity => Ok(()),
            _ => Err(Error::new(
                ErrorKind::Storage,
                format!("{}: deleted or replaced since it was opened", self.path.display()),
            )),
        }
    }
}

impl Store for SqliteStore {
    fn run(&self, lane: Lane, requests: &[Request<'_>], deadline: Deadline) -> Vec<Outcome> {
        let patience = match lane {
            Lane::Give(longest) => Deadline::after(longest).min(deadline),
            Lane::Caller | Lane::Keeper => deadline,
        };
        let answered = || {
            if requests.iter().any(|request| !matches!(request, Request::Give { .. })) {
                self.check_identity().map_err(Failure::not_done)?;
            }
            if let [Request::Take { name, token, place, .. }] = *requests
                && let Some(answer) = self.glance((name, token, place), deadline)?
            {
                return Ok(vec![Ok(answer)]);
            }
            self.transact(requests, patience, deadline)
        };
        answered().unwrap_or_else(|failure: Failure| vec![Err(failure); requests.len()])
    }

    fn look(&self, name: &[u8], deadline: Deadline) -> Result<Look, Error> {
        self.quick.read(deadline, |connection| self.clerk(connection).look(name)).map(|seen| seen.0)
    }

    fn ping(&self, deadline: Deadline) -> Result<(), Error> {
        self.check_identity()?;
        self.quick.read(deadline, open::probe).map(|_| ())
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
