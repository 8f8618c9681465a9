//! One connection to the file, for one caller at a time, no longer than until its deadline. The
//! waiting of SQLite itself is off: it knows no deadline, and sleeps longer and longer while newcomers
//! get the lock.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::ffi::{self, SQLITE_BUSY};
use rusqlite::{ErrorCode, params};

use super::disk::{self, about, failed};
use super::files::{Files, SCHEMA};
use super::owner::Owner;
use crate::clock::{Deadline, Moment};
use crate::config::limits::MAX_FENCE;
use crate::error::{Error, ErrorKind};
use crate::fork::SQLITE;
use crate::store::Failure;
use crate::sync::{Turnstile, TurnstileGuard};

/// Longer than a transaction, and no longer than the sync behind one on a common disk.
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

pub(super) enum Cause {
    /// We refuse it. In a transaction that concerns this request alone, which has written nothing.
    Refused(Error),
    /// SQLite failed, and the transaction with it.
    Sqlite(rusqlite::Error),
    /// The same, at a request about the row of this name.
    OfRow(rusqlite::Error, Vec<u8>),
}

impl From<Error> for Cause {
    fn from(error: Error) -> Cause {
        Cause::Refused(error)
    }
}

impl From<rusqlite::Error> for Cause {
    fn from(error: rusqlite::Error) -> Cause {
        Cause::Sqlite(error)
    }
}

impl Cause {
    pub(super) fn of_row(self, name: &[u8]) -> Cause {
        match self {
            Cause::Sqlite(error) => Cause::OfRow(error, name.to_owned()),
            cause => cause,
        }
    }

    pub(super) fn explain(self, path: &Path) -> Error {
        use ErrorCode::*;
        let error = match self {
            Cause::Refused(error) => return error,
            Cause::Sqlite(error) | Cause::OfRow(error, _) => error,
        };
        let code = error.sqlite_error_code();
        let is_disk = matches!(code, Some(DiskFull | SystemIoFailure | CannotOpen | ReadOnly));
        // What is wrong with the disk is no fault of the file: the same call succeeds once it is mended.
        if let Some(trouble) = is_disk.then(|| disk::trouble(path)).flatten() {
            return trouble;
        }
        let kind = match code {
            _ if is_busy(&error) => ErrorKind::Unavailable,
            Some(ReadOnly) => ErrorKind::ReadOnly,
            Some(DiskFull) => return disk::full(path),
            Some(OutOfMemory) => ErrorKind::Exhausted,
            _ => ErrorKind::Storage,
        };
        about(path, kind, error)
    }
}

pub(super) struct Connection {
    inner: Turnstile<rusqlite::Connection>,
    files: Arc<Files>,
    /// Whether a change is on the disk before it counts.
    syncs: bool,
    /// What it says most, to be compiled before it has the lock.
    everyday: &'static [&'static str],
    is_prepared: AtomicBool,
}

impl Connection {
    pub(super) fn new(
        inner: rusqlite::Connection,
        files: &Arc<Files>,
        syncs: bool,
        everyday: &'static [&'static str],
    ) -> Connection {
        let (inner, files) = (Turnstile::new(inner), Arc::clone(files));
        Connection { inner, files, syncs, everyday, is_prepared: AtomicBool::new(false) }
    }

    /// Reads without the file's write lock, what concerns the row of a name or several. What it brings is
    /// worth nothing before the files were checked.
    pub(super) fn read<T>(
        &self,
        deadline: Deadline,
        name: Option<&[u8]>,
        look: impl Fn(&rusqlite::Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        self.insist(deadline, |connection| {
            look(&connection).map_err(|error| {
                if is_busy(&error) {
                    return Cause::Sqlite(error);
                }
                let cause = match name {
                    Some(name) => Cause::OfRow(error, name.to_owned()),
                    None => Cause::Sqlite(error),
                };
                strange(&connection, &cause, &self.files.path).map_or(cause, Cause::Refused)
            })
        })
    }

    /// Does `work` in a transaction that has the file's write lock, and tells it when that began.
    /// Once the deadline has passed, one attempt is made.
    ///
    /// A process that is stopped in between keeps all others out. So as little as can be is done
    /// there: the disk, which takes longer than all the rest, is synced behind it. Others see the
    /// change before that, and lose nothing by it: whoever tells of what builds on it has synced the
    /// same log.
    pub(super) fn change<T>(
        &self,
        deadline: Deadline,
        work: impl FnOnce(&rusqlite::Connection, Moment) -> Result<T, Cause>,
    ) -> Result<T, Failure> {
        let (value, sent) = self.commit(deadline, work)?;
        if self.syncs {
            self.sync(deadline).map_err(|error| Failure::unknown(error, sent))?;
        }
        // Nothing counts if the keeper may have seen meanwhile that the file was lost: it does not
        // look a second time.
        self.files.check_noted().map(|()| value).map_err(Failure::not_done)
    }

    /// Puts on the disk what was committed. After a sync that failed, the log may have a hole there that
    /// no later sync tells of: so all of it is put into the file first, and it begins anew.
    fn sync(&self, deadline: Deadline) -> Result<(), Error> {
        let (path, syncs) = (&self.files.path, &self.files.syncs);
        let doubt = syncs.sync().map_err(|error| failed(path, &error))?;
        let Some(doubt) = doubt else { return Ok(()) };
        let copied = self.insist(deadline, |connection| {
            let copy = "PRAGMA wal_checkpoint(TRUNCATE)";
            match connection.query_row(copy, [], |row| row.get(0))? {
                false => Ok(()),
                true => {
                    Err(rusqlite::Error::SqliteFailure(ffi::Error::new(SQLITE_BUSY), None).into())
                }
            }
        });
        let begun = copied.and_then(|()| match syncs.begins_anew(doubt) {
            Ok(true) => Ok(()),
            Ok(false) => Err(about(path, ErrorKind::Storage, "another sync of it has failed")),
            Err(error) => Err(failed(path, &error)),
        });
        begun.map_err(|error| {
            let why = "a sync of its log has failed before, so nothing counts until all of that is in \
                       the file";
            Error::new(error.kind(), format!("{}; {why}", error.detail()))
        })
    }

    fn commit<T>(
        &self,
        deadline: Deadline,
        work: impl FnOnce(&rusqlite::Connection, Moment) -> Result<T, Cause>,
    ) -> Result<(T, Moment), Failure> {
        let begun = self.insist(deadline, |connection| {
            self.files.check()?;
            if !connection.is_autocommit() {
                connection.execute_batch("ROLLBACK")?;
            }
            if !self.is_prepared.load(Ordering::Relaxed) {
                for sql in self.everyday.iter().chain(&["COMMIT"]) {
                    connection.prepare_cached(sql)?;
                }
                self.is_prepared.store(true, Ordering::Relaxed);
            }
            let sent = Moment::now();
            step(&connection, "BEGIN IMMEDIATE")?;
            Ok((connection, sent))
        });
        let (connection, sent) = begun.map_err(Failure::not_done)?;
        let steady = SQLITE.steady();
        let undo = Undo(&connection);
        let path = &self.files.path;
        let worked = check_schema(&connection, path).and_then(|()| work(&connection, sent));
        match worked {
            Err(cause) => {
                // Others need not wait until the reason is found.
                drop(undo);
                let error = strange(&connection, &cause, path);
                drop((connection, steady));
                Err(Failure::not_done(error.unwrap_or_else(|| cause.explain(path))))
            }
            Ok(value) => match step(&connection, "COMMIT") {
                Ok(()) => Ok((value, sent)),
                // Busy means that no byte was written, and a full disk that the last one was not.
                // After any other failure the commit record may already be in the log, and only the
                // memory beside it not know: the recovery of the log may bring it back when all
                // processes have died.
                Err(error) => {
                    let is_full = error.sqlite_error_code() == Some(ErrorCode::DiskFull);
                    let is_undone = is_full || is_busy(&error) && !connection.is_autocommit();
                    drop(undo);
                    drop((connection, steady));
                    let error = Cause::Sqlite(error).explain(path);
                    Err(Failure { error, sent: (!is_undone).then_some(sent) })
                }
            },
        }
    }

    /// Does `work` again while the file is locked, until the deadline.
    fn insist<'c, T>(
        &'c self,
        deadline: Deadline,
        work: impl Fn(TurnstileGuard<'c, rusqlite::Connection>) -> Result<T, Cause>,
    ) -> Result<T, Error> {
        let path = &self.files.path;
        loop {
            let connection = self.inner.enter(deadline).ok_or_else(|| late(path))?;
            let section = SQLITE.steady();
            let worked = work(connection);
            drop(section);
            match worked {
                Err(Cause::Sqlite(error)) if is_busy(&error) => pause(deadline, path)?,
                done => return done.map_err(|cause| cause.explain(path)),
            }
        }
    }

    /// The last connection that closes a log copies it into the file and removes both by name.
    pub(super) fn let_close_copy(&self) {
        if let Some(connection) = self.inner.enter_now() {
            let config = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            let _ = connection.set_db_config(config, false);
        }
    }

    #[cfg(test)]
    pub(super) fn with(&self, work: impl FnOnce(&rusqlite::Connection)) {
        work(&self.inner.enter(Deadline::after(Duration::from_secs(60))).unwrap());
    }
}

/// Ends a transaction that was not committed, after a panic too: others would wait for its lock.
struct Undo<'a>(&'a rusqlite::Connection);

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if !self.0.is_autocommit() {
            // If it fails, the transaction is rolled back before the next one begins.
            let _ = self.0.execute_batch("ROLLBACK");
        }
    }
}

/// What keeps a statement from being carried out that SQLite itself has nothing against: a row that no
/// program of ours has written, or a trigger.
fn strange(connection: &rusqlite::Connection, cause: &Cause, path: &Path) -> Option<Error> {
    let (error, name) = match cause {
        Cause::Refused(_) => return None,
        Cause::Sqlite(error) => (error, None),
        Cause::OfRow(error, name) => (error, Some(name)),
    };
    let is_refused = match error {
        rusqlite::Error::SqliteFailure(error, _) => {
            if error.code != ErrorCode::ConstraintViolation {
                return None;
            }
            true
        }
        _ => false,
    };
    let own = name.and_then(|name| strange_in(connection, Some(name)));
    let own = own.map(|(name, what)| strange_row(path, "", &name, &what));
    // A request meets other rows too: old ones, to remove them, and those of a list.
    let other = || {
        let (name, what) = strange_in(connection, None)?;
        Some(strange_row(path, "for instance, ", &name, &what))
    };
    let trigger = || triggers(connection, error, path);
    match is_refused {
        true => own.or_else(trigger).or_else(other),
        false => own.or_else(other).or_else(trigger),
    }
}

fn triggers(
    connection: &rusqlite::Connection,
    error: &rusqlite::Error,
    path: &Path,
) -> Option<Error> {
    const TRIGGERS: &str = "SELECT group_concat(format('DROP TRIGGER \"%w\";', name), ' ')
        FROM sqlite_schema WHERE type = 'trigger'";
    let triggers: Option<String> = connection.query_row(TRIGGERS, [], |row| row.get(0)).ok()?;
    let what = "something that Leasehold did not make keeps it from writing to its tables";
    let said = format!("{}: {what}: {} ({error})", path.display(), triggers?);
    Some(Error::mended(ErrorKind::Storage, said))
}

/// The name, in hex, of a row that no program of ours has written, and what is wrong with it: of the row
/// of this name, or of any.
fn strange_in(
    connection: &rusqlite::Connection,
    name: Option<&Vec<u8>>,
) -> Option<(String, String)> {
    // Fences, nanoseconds of a clock that begins with the machine, hours, and tokens.
    const SAID: &str = "concat_ws(', ',
            iif(typeof(fence) = 'integer' AND fence BETWEEN 1 AND ?1, NULL,
                'fence = ' || substr(quote(fence), 1, 60)),
            iif(typeof(expiry) = 'integer' AND expiry BETWEEN 0 AND ?2, NULL,
                'expiry = ' || substr(quote(expiry), 1, 60)),
            iif(typeof(used) = 'integer', NULL, 'used = ' || substr(quote(used), 1, 60)),
            iif(token IS NULL OR typeof(token) = 'text', NULL,
                'token = ' || substr(quote(token), 1, 60)),
            iif(typeof(boot) = 'text', NULL, 'boot = ' || substr(quote(boot), 1, 60)))";
    const LATEST: i64 = 2_000_000_000_000_000_000;
    let which = if name.is_some() { "name = ?3" } else { "?3 IS NULL" };
    let sql = format!(
        "SELECT hex(name), said FROM (SELECT name, {SAID} AS said FROM lease WHERE {which})
         WHERE said <> '' LIMIT 1"
    );
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    connection.query_row(&sql, params![MAX_FENCE as i64, LATEST, name], read).ok()
}

/// What is wrong with the row of a name, which is in hex here.
pub(super) fn strange_row(path: &Path, how: &str, name: &str, what: &str) -> Error {
    let said = format!(
        "{}: {how}the row of the table lease with name = x'{name}' has {what}, which no program of \
         Leasehold writes: once nobody relies on that lock, DELETE FROM lease WHERE name = x'{name}';",
        path.display()
    );
    Error::mended(ErrorKind::WrongType, said)
}

/// Somebody may have changed the file since it was found to be ours: a client that ran on would write to
/// tables that it does not know. The number lies in the page that a transaction has just read.
fn check_schema(connection: &rusqlite::Connection, path: &Path) -> Result<(), Cause> {
    let mut read = connection.prepare_cached("PRAGMA user_version")?;
    let schema: i32 = read.query_row([], |row| row.get(0))?;
    if schema == SCHEMA {
        return Ok(());
    }
    let why = format!(
        "it has schema {schema} by now, and this program knows {SCHEMA}: use one version of Leasehold for \
         all programs"
    );
    Err(about(path, ErrorKind::Storage, why).into())
}

fn step(connection: &rusqlite::Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    use ErrorCode::*;
    matches!(
        error.sqlite_error_code(),
        Some(DatabaseBusy | DatabaseLocked | FileLockingProtocolFailed)
    )
}

pub(super) fn pause(deadline: Deadline, path: &Path) -> Result<(), Error> {
    let left = deadline.left();
    if left.is_zero() {
        return Err(late(path));
    }
    // Without random bits all callers pause equally long, which is still correct.
    let random = getrandom::u32().unwrap_or(u32::MAX);
    thread::sleep(LONGEST_PAUSE.mul_f64(f64::from(random) / f64::from(u32::MAX)).min(left));
    Ok(())
}

/// Nobody could be let in until the deadline.
pub(super) fn late(path: &Path) -> Error {
    let kept = "other callers kept it locked until the deadline";
    let why = match Owner::of(path) {
        Ok(Some(owner)) => owner.to_string(),
        Ok(None) => {
            format!("{kept}; none of them is seen now (those of other containers never are)")
        }
        Err(_) => kept.to_owned(),
    };
    about(path, ErrorKind::Unavailable, why)
}
