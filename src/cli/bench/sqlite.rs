//! An SQLite store measured against bare transactions.
//!
//! The limit is two durable transactions, each with one update, on a file of the same kind in the
//! same folder: nobody can take a lock on such a file and give it back, and have both outlast a
//! power cut, in less.

use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::Client;
use rusqlite::{Connection, TransactionBehavior, params};

use super::also::{Program, interleave_with};
use super::measure::Timed;
use super::ours;
use super::pin::Cores;
use super::report::{Figures, Report};
use super::watch::Watch;
use crate::exit::Failure;

pub(super) fn measure(
    client: &Client,
    name: &str,
    programs: &mut [Program],
    time: Duration,
    watch: &Watch,
) -> Result<Report, Failure> {
    let file = client.store().strip_prefix("sqlite:").unwrap_or_default();
    Cores::choose()?.pin_self()?;
    watch.say("on one core");
    let lock = client.lock(name);
    let mut limit = Limit::create(Path::new(file), name)?;
    let mut bare = || limit.cycle();
    let mut cycle = || ours::cycle(&lock);
    let own: [&mut dyn Timed; 2] = [&mut bare, &mut cycle];
    let ([limit, cycle], also) = interleave_with(programs, own, time, watch)?;
    let figures = Figures { limit: Some(limit), cycle, also, ..Figures::default() };
    Ok(Report::new(client.store(), None, Some(figures), None))
}

struct Limit {
    // Closed before its file is removed.
    connection: Option<Connection>,
    path: PathBuf,
    name: String,
    turn: i64,
}

impl Limit {
    fn create(beside: &Path, name: &str) -> Result<Limit, Failure> {
        let path = beside.with_file_name(format!("{}.db", name.replace(':', "-")));
        let connection = Connection::open(&path)?;
        let limit = Limit { connection: Some(connection), path, name: name.to_owned(), turn: 0 };
        if let Some(connection) = &limit.connection {
            connection.pragma_update(None, "journal_mode", "wal")?;
            connection.pragma_update(None, "synchronous", "full")?;
            connection.execute_batch(
                "CREATE TABLE lease (name BLOB PRIMARY KEY, token TEXT, fence INTEGER, expiry INTEGER)
                 WITHOUT ROWID",
            )?;
            connection.execute("INSERT INTO lease VALUES (?, NULL, 0, 0)", [&limit.name])?;
        }
        Ok(limit)
    }

    /// Takes and gives, as far as a file is concerned.
    fn cycle(&mut self) -> Result<(), Failure> {
        let Some(connection) = &mut self.connection else { return Ok(()) };
        for token in [Some("00000000000000000000000000000000"), None] {
            self.turn += 1;
            let work = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            work.prepare_cached(
                "UPDATE lease SET token = ?, fence = ?, expiry = ? WHERE name = ?",
            )?
            .execute(params![token, self.turn, self.turn, self.name])?;
            work.commit()?;
        }
        Ok(())
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        // The last connection to close removes the files beside the database.
        self.connection = None;
        let _ = std::fs::remove_file(&self.path);
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Failure {
        Failure::unavailable(format!("SQLite: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_durable_and_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut limit = Limit::create(&folder.path().join("locks.db"), "bench:1").unwrap();
        limit.cycle().unwrap();
        let connection = limit.connection.as_ref().unwrap();
        let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        assert_eq!(pragma("synchronous").unwrap(), 2);
        let fence: i64 =
            connection.query_row("SELECT fence FROM lease", [], |row| row.get(0)).unwrap();
        assert_eq!(fence, 2);
        drop(limit);
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    }
}
