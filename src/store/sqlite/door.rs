//! One connection to the file, one caller at a time, and nobody longer than until its deadline.
//!
//! SQLite's own way of waiting for a lock is switched off: it sleeps longer and longer while
//! newcomers get the lock, and never hears of our deadline. Here every pause is drawn from the
//! same short range, however long somebody has waited, and no mutex is held during it.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};

use super::anchor::Anchor;
use super::clerk::Trouble;
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::Failure;
use crate::sync::{Turn, Turnstile};

/// The longest pause before a lock of the file is tried again: a durable transaction takes about
/// this long on a common disk.
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

pub(super) struct Door {
    connection: Turnstile<Connection>,
    anchor: Arc<Anchor>,
}

impl Door {
    pub(super) fn new(connection: Connection, anchor: &Arc<Anchor>) -> Door {
        Door { connection: Turnstile::new(connection), anchor: Arc::clone(anchor) }
    }

    /// Reads without the file's write lock, and says when it began. What it brings is worth nothing
    /// before the anchor was checked.
    pub(super) fn read<T>(
        &self,
        deadline: Deadline,
        look: impl Fn(&Connection) -> rusqlite::Result<T>,
    ) -> Result<(T, Moment), Error> {
        refuse_if_late(deadline, self.anchor.path())?;
        loop {
            let connection = self.enter(deadline)?;
            let sent = Moment::now();
            match look(&connection) {
                Ok(seen) => return Ok((seen, sent)),
                Err(error) if is_busy(&error) => {
                    drop(connection);
                    pause(deadline, self.anchor.path())?;
                }
                Err(error) => return Err(explain(&error, self.anchor.path())),
            }
        }
    }

    /// Begins a transaction that has the file's write lock. `patience` may end before the
    /// `deadline`, or at once; one attempt is made then.
    pub(super) fn begin(
        &self,
        patience: Deadline,
        deadline: Deadline,
    ) -> Result<Transaction<'_>, Error> {
        refuse_if_late(deadline, self.anchor.path())?;
        let patience = patience.min(deadline);
        loop {
            let connection = self.enter(patience)?;
            self.anchor.check()?;
            let sent = Moment::now();
            match begin(&connection) {
                Ok(()) => return Ok(Transaction { connection, sent, anchor: &self.anchor }),
                Err(error) if is_busy(&error) => {
                    drop(connection);
                    pause(patience, self.anchor.path())?;
                }
                Err(error) => return Err(explain(&error, self.anchor.path())),
            }
        }
    }

    /// The last one that closes a log copies it into the file and removes both by name.
    pub(super) fn let_close_copy(&self) {
        if let Some(connection) = self.connection.enter_now() {
            let config = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            let _ = connection.set_db_config(config, false);
        }
    }

    #[cfg(test)]
    pub(super) fn with(&self, work: impl FnOnce(&Connection)) {
        work(&self.connection.enter(Deadline::after(Duration::from_secs(60))).unwrap());
    }

    fn enter(&self, deadline: Deadline) -> Result<Turn<'_, Connection>, Error> {
        self.connection.enter(deadline).ok_or_else(|| late(self.anchor.path()))
    }
}

/// A transaction under way. Dropped without a commit it leaves nothing behind.
pub(super) struct Transaction<'a> {
    connection: Turn<'a, Connection>,
    sent: Moment,
    anchor: &'a Anchor,
}

impl Transaction<'_> {
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// A moment before the transaction began.
    pub(super) fn sent(&self) -> Moment {
        self.sent
    }

    /// Nothing counts if the keeper may have seen meanwhile that the file was lost: it would not see
    /// it once more.
    pub(super) fn commit(self) -> Result<(), Failure> {
        let Err(error) = step(&self.connection, "COMMIT") else {
            return self.anchor.recall().map_err(Failure::not_done);
        };
        let said = explain(&error, self.anchor.path());
        // Busy means that no byte was written: the transaction is still open, and dropping it rolls
        // it back. After any other failure the commit record may already be in the log with only
        // the sync missing. Nobody sees it now, but when all processes have died, the recovery of
        // the log may bring it back, so this outcome is unknown.
        if is_busy(&error) && !self.connection.is_autocommit() {
            return Err(Failure::not_done(said));
        }
        Err(Failure::unknown(said, self.sent))
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.connection.is_autocommit() {
            // If it fails, the transaction is rolled back before the next one begins.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }
}

/// Does `work` again while the file is locked, until the deadline.
pub(super) fn insist<T>(
    path: &Path,
    deadline: Deadline,
    mut work: impl FnMut() -> rusqlite::Result<T>,
) -> Result<T, Trouble> {
    loop {
        match work() {
            Err(error) if is_busy(&error) => pause(deadline, path)?,
            done => return Ok(done?),
        }
    }
}

/// What SQLite said, as one of our kinds.
pub(super) fn explain(error: &rusqlite::Error, path: &Path) -> Error {
    use ErrorCode::*;
    let kind = match error.sqlite_error_code() {
        Some(DatabaseBusy | DatabaseLocked | FileLockingProtocolFailed) => ErrorKind::Unavailable,
        Some(ReadOnly) => ErrorKind::ReadOnly,
        // A full disk is no fault of the file: the same call succeeds once somebody made room.
        Some(DiskFull | OutOfMemory) => ErrorKind::Exhausted,
        _ => ErrorKind::Storage,
    };
    Error::new(kind, format!("{}: {error}", path.display()))
}

fn begin(connection: &Connection) -> rusqlite::Result<()> {
    if !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK")?;
    }
    step(connection, "BEGIN IMMEDIATE")
}

fn step(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::FileLockingProtocolFailed
        )
    )
}

pub(super) fn pause(deadline: Deadline, path: &Path) -> Result<(), Error> {
    let left = deadline.left();
    if left.is_zero() {
        return Err(late(path));
    }
    // Without random bits everybody pauses equally long, which is still correct.
    let random = getrandom::u32().unwrap_or(u32::MAX);
    thread::sleep(LONGEST_PAUSE.mul_f64(f64::from(random) / f64::from(u32::MAX)).min(left));
    Ok(())
}

fn refuse_if_late(deadline: Deadline, path: &Path) -> Result<(), Error> {
    if deadline.has_passed() { Err(late(path)) } else { Ok(()) }
}

pub(super) fn late(path: &Path) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!("{}: other callers kept it locked until the deadline", path.display()),
    )
}
