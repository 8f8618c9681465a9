//! Opening the file: it is made, or known to be ours, or refused and left as it was. Its marks,
//! SQLite's `application_id` and `user_version`, stand in its first bytes, where they can be read
//! without a lock, a log or a side file.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::{AccessFlags, eaccess};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use rusqlite::config::DbConfig;
use rusqlite::{ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use super::connection::{Cause, Connection, is_busy, pause};
use super::disk::{about, failed, trouble};
use super::files::Files;
pub(super) use super::files::SCHEMA;
use super::mount::{mount_of, shared_type};
use super::requests::{CLEAR, EXTEND, GIVE, GRANT, LEASE, UNUSED};
use super::rights;
use super::waiters::{AHEAD, LEAVE, PLACE};
use crate::clock::Deadline;
use crate::config::{Sharing, SqliteConfig};
use crate::error::{Error, ErrorKind};
use crate::fork::{SQLITE, Steady};

/// "lhld"
pub(super) const APPLICATION_ID: i32 = 0x6c68_6c64;

/// What requests say that take, extend or give.
const EVERYDAY: &[&str] = &[PLACE, LEASE, AHEAD, GRANT, CLEAR, UNUSED, EXTEND, LEAVE, GIVE];

/// Two connections to one file.
pub(super) struct Opened {
    /// Its commits are synced to the disk before they count.
    pub(super) durable: Connection,
    /// Its commits are not: it reads, and writes what matters to the living only.
    pub(super) quick: Connection,
    /// Behind the connections, so that they are closed before it goes.
    pub(super) files: Arc<Files>,
    /// In which they are closed.
    section: Option<Steady>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.section = Some(SQLITE.steady());
        if self.files.are_there() {
            self.durable.let_close_copy();
            self.quick.let_close_copy();
        } else if let Some(log) = self.files.orphaned_log() {
            // If another process has it already, that one sees it vanish and begins anew.
            let _ = fs::remove_file(log);
        }
    }
}

/// With `make` it is made, and the folders above it, where they are missing.
pub(super) fn open(
    file: &SqliteConfig,
    make: bool,
    deadline: Deadline,
) -> Result<Arc<Opened>, Error> {
    let name = &*file.path;
    loop {
        if !make && is_gone(name) {
            return Err(unusable(name, "was deleted"));
        }
        let section = SQLITE.steady();
        let attempted = attempt(file);
        drop(section);
        match attempted {
            Ok(Some(opened)) => return Ok(opened),
            Ok(None) => {}
            Err(Cause::Sqlite(error)) if is_busy(&error) => {}
            // So it looks while others still have the log of a file that was here before.
            Err(Cause::Sqlite(error))
                if error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure)
                    && !deadline.has_passed() => {}
            Err(cause) => {
                let error = rights::missing(name).unwrap_or_else(|| cause.explain(name));
                // So it looks while another process makes it, and has not set its mode yet.
                let is_new = error.kind() == ErrorKind::Permission && is_empty(name);
                if !is_new || deadline.has_passed() {
                    return Err(error);
                }
            }
        }
        pause(deadline, name)?;
    }
}

pub(super) fn is_gone(name: &Path) -> bool {
    name.try_exists().is_ok_and(|exists| !exists)
}

fn is_empty(name: &Path) -> bool {
    fs::metadata(name).is_ok_and(|found| found.is_file() && found.len() == 0)
}

/// Whether a file can be made there, as far as that shows without making one.
pub(super) fn check_place(file: &SqliteConfig) -> Result<(), Error> {
    let name = &*file.path;
    refuse_shared(name)?;
    if let Some(folder) = name.ancestors().skip(1).find(|folder| folder.exists()) {
        refuse_read_only(folder)?;
        let writes = eaccess(folder, AccessFlags::W_OK);
        writes.map_err(|error| {
            rights::missing(&folder.join("_")).unwrap_or_else(|| failed(folder, &error.into()))
        })?;
    }
    rights::check(name, file.sharing)
}

/// `None` if the file was replaced meanwhile, or this process still has open what was here before.
fn attempt(file: &SqliteConfig) -> Result<Option<Arc<Opened>>, Cause> {
    let name = &*file.path;
    let sharing = file.sharing.unwrap_or(Sharing::User);
    let path = &prepare_folder(name, sharing)?;
    if !path.exists() {
        rights::check(path, file.sharing)?;
        refuse_read_only(path.parent().unwrap_or(path))?;
        rights::make_file(path, sharing).map_err(|error| failed(path, &error))?;
    }
    let found = fs::metadata(path).map_err(|error| failed(path, &error))?;
    if !found.is_file() {
        let what = if found.is_dir() {
            "is a folder; name a file in it, as in sqlite:/path/to/locks.db"
        } else {
            "is no regular file"
        };
        return Err(unusable(path, what).into());
    }
    refuse_read_only(path)?;
    rights::check(path, file.sharing)?;
    // The log is found by the file's name, so each name would have one of its own.
    if found.nlink() > 1 {
        let why = format!(
            "has {} names (hard links), and each would have a log of its own; remove the others, \
             and use symbolic links instead",
            found.nlink()
        );
        return Err(unusable(path, &why).into());
    }
    if Files::any_lost(path, &found) {
        return Ok(None);
    }
    // An empty file is recognised under its lock.
    if found.len() > 0 {
        recognise(path)?;
    }
    // What makes a new file is synced by SQLite.
    let durable = connect(path, "FULL")?;
    settle(&durable, path)?;
    durable.pragma_update(None, "synchronous", "NORMAL")?;
    let quick = connect(path, "NORMAL")?;
    probe(&quick)?;
    let files = Files::note(name, path, &found).map_err(|error| failed(path, &error))?;
    let Some(files) = files else { return Ok(None) };
    let durable = Connection::new(durable, &files, true, EVERYDAY);
    let quick = Connection::new(quick, &files, false, &[]);
    let opened = Opened { durable, quick, files, section: None };
    Ok((!Files::any_lost(path, &found)).then(|| Arc::new(opened)))
}

pub(super) fn probe(connection: &rusqlite::Connection) -> rusqlite::Result<()> {
    // The marks first, in the same transaction: when a table that was made just now is looked up
    // and the file is locked, SQLite says that there is no such table instead of busy.
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Deferred)?;
    marks(&transaction)?;
    for table in ["lease", "waiter"] {
        transaction.prepare(&format!("SELECT 1 FROM {table} LIMIT 1"))?.exists([])?;
    }
    transaction.commit()
}

fn refuse_shared(name: &Path) -> Result<(), Error> {
    let mount = name.ancestors().find_map(|part| mount_of(part).transpose());
    let kind = mount.map_or(Ok(None), |mount| shared_type(&mount?));
    match kind.map_err(|error| failed(name, &error))? {
        Some(kind) => Err(unusable(name, &format!("is on a network file system ({kind})"))),
        None => Ok(()),
    }
}

/// The folder made where it is missing, and the path without symbolic links.
fn prepare_folder(name: &Path, sharing: Sharing) -> Result<PathBuf, Error> {
    let (Some(folder), Some(file)) = (name.parent(), name.file_name()) else {
        return Err(unusable(name, "names no file"));
    };
    refuse_shared(name)?;
    rights::make_folder(folder, sharing).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => about(
            folder,
            ErrorKind::Permission,
            "there is no such folder, and this user may not make it; make it, or name another",
        ),
        _ => failed(folder, &error),
    })?;
    let Ok(path) = name.canonicalize() else {
        let folder = folder.canonicalize().map_err(|error| failed(folder, &error))?;
        return Ok(folder.join(file));
    };
    let mount = |path| mount_of(path).map_err(|error| failed(name, &error));
    let (own, above) = (mount(&path)?, mount(path.parent().unwrap_or(&path))?);
    if own.is_some() && own != above && path.is_file() {
        return Err(unusable(
            name,
            "is a mount point of its own, and processes that use the file by another name would \
             keep another log; mount its folder instead",
        ));
    }
    Ok(path)
}

/// A file or folder without any right to write, by its mode, because root may write anyway.
fn refuse_read_only(path: &Path) -> Result<(), Error> {
    if fs::metadata(path).is_ok_and(|found| found.mode() & 0o222 == 0) {
        return Err(about(path, ErrorKind::ReadOnly, "its mode forbids writing; chmod u+w"));
    }
    Ok(())
}

/// Reads the marks from the bytes as they are: no lock, no log, no side file.
fn recognise(path: &Path) -> Result<(), Error> {
    let encoded = percent_encode(path.as_os_str().as_bytes(), NON_ALPHANUMERIC);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let uri = format!("file:{encoded}?immutable=1");
    let found = rusqlite::Connection::open_with_flags(uri, flags)
        .and_then(|connection| {
            // A header that promises more pages than there are is no damage here: our own file is
            // seen so while others copy their log into it.
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true)?;
            marks(&connection)
        })
        .map_err(|error| match error.sqlite_error_code() {
            // SQLite does not say why, and would name the file in a way of its own.
            Some(ErrorCode::CannotOpen) => unusable(path, "cannot be read"),
            _ => Cause::Sqlite(error).explain(path),
        })?;
    // The file was empty a moment ago, and is being rolled back to that; the lock will tell.
    if found == (0, 0) && fs::metadata(path).is_ok_and(|found| found.len() == 0) {
        return Ok(());
    }
    check(found, path)
}

fn check((application, schema): (i32, i32), path: &Path) -> Result<(), Error> {
    if application != APPLICATION_ID {
        return Err(unusable(path, "is an SQLite database of another program"));
    }
    if !(0..=SCHEMA).contains(&schema) {
        let why = format!("has schema {schema}, of a later version; this one knows {SCHEMA}");
        return Err(unusable(path, &why));
    }
    Ok(())
}

fn marks(connection: &rusqlite::Connection) -> rusqlite::Result<(i32, i32)> {
    let read = |sql| connection.query_row(sql, [], |row| row.get(0));
    Ok((read("PRAGMA application_id")?, read("PRAGMA user_version")?))
}

fn connect(path: &Path, synchronous: &str) -> Result<rusqlite::Connection, Cause> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = rusqlite::Connection::open_with_flags(path, flags)?;
    // SQLite opens for reading what it may not write to.
    if connection.is_readonly("main")? {
        let forbidden = || about(path, ErrorKind::ReadOnly, "this process may not write to it");
        return Err(trouble(path).unwrap_or_else(forbidden).into());
    }
    connection.busy_timeout(Duration::ZERO)?;
    // More than there are different statements, of which none is to be compiled anew.
    connection.set_prepared_statement_cache_capacity(32);
    // Until the file is known to be ours, and to be what it was, closing must not write to it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // Otherwise plans depend on the bound values, and each new value compiles anew.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "synchronous", synchronous)?;
    Ok(connection)
}

/// Makes an empty file ours, or finds that it is.
fn settle(connection: &rusqlite::Connection, path: &Path) -> Result<(), Cause> {
    // One page and nothing else, so that a look without a lock sees all of it or nothing.
    change_marked(connection, (0, 0), |transaction| {
        let count = "SELECT count(*) FROM sqlite_schema";
        let tables: i64 = transaction.query_row(count, [], |row| row.get(0))?;
        if tables == 0 {
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        }
        Ok(())
    })?;
    change_marked(connection, (APPLICATION_ID, 0), |transaction| {
        transaction.execute_batch(include_str!("schema.sql"))?;
        transaction.pragma_update(None, "user_version", SCHEMA)
    })?;
    check(marks(connection)?, path)?;
    let set = "PRAGMA journal_mode = WAL";
    let mode: String = connection.query_row(set, [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(unusable(path, "is where processes cannot share memory through a file").into());
    }
    Ok(probe(connection)?)
}

/// Changes a file that has these marks, also under the lock: other processes may be at it.
fn change_marked(
    connection: &rusqlite::Connection,
    expected: (i32, i32),
    change: impl Fn(&Transaction<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    if marks(connection)? != expected {
        return Ok(());
    }
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    if marks(&transaction)? == expected {
        change(&transaction)?;
    }
    transaction.commit()
}

/// Which run of the kernel this is, for the clock that expiries are counted on.
pub(super) fn boot() -> Result<String, Error> {
    let file = Path::new("/proc/sys/kernel/random/boot_id");
    // A time namespace shifts the clock that expiries are counted on, for some processes only.
    let offsets = fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    if is_shifted(&offsets) {
        return Err(unusable(file, "this process is in a time namespace with a clock of its own"));
    }
    let id = fs::read_to_string(file).map_err(|error| failed(file, &error))?;
    Ok(id.trim().to_owned())
}

/// Lines of a clock's name, seconds and nanoseconds.
pub(super) fn is_shifted(offsets: &str) -> bool {
    offsets.lines().any(|line| {
        let mut words = line.split_whitespace();
        matches!(words.next(), Some("boottime" | "7")) && words.any(|number| number != "0")
    })
}

fn unusable(path: &Path, why: &str) -> Error {
    about(path, ErrorKind::Storage, why)
}
