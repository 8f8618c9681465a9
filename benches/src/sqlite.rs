//! An SQLite store measured against bare transactions.
//!
//! The limit is two durable transactions, each with one update, on a file of the same kind in the
//! same folder: nobody can take a lock on an SQLite file and give it back, and have both outlast a
//! power cut, in less.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior, params};

use crate::also::{Also, Program};
use crate::cores::Cores;
use crate::cycle::{NAMES, cycle};
use crate::measure::{Loop, Outcome, interleave, part, whole};
use crate::stores::open;
use crate::table::Table;

pub(crate) fn measure(also: &[Also], time: Duration) -> Outcome<Table> {
    let cores = Cores::choose()?;
    cores.pin_self()?;
    // On the disk of the build: a temporary folder may be in memory.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let url = format!("sqlite:{}/locks.db", folder.path().display());
    let client = open(&url)?;
    let lock = client.lock(NAMES[0]);
    let mut limit = Limit::create(&folder.path().join("bare.db"))?;
    let programs: Outcome<Vec<_>> =
        also.iter().map(|also| Program::start(also, &url, "bench:also")).collect();
    let mut programs = programs?;
    let mut loops: Vec<Loop<'_>> =
        vec![whole(|| limit.cycle()), part(|| cycle(&lock).map(|(take, give)| take + give))];
    loops.extend(programs.iter_mut().map(Program::timed));
    let medians = interleave(&mut loops, time)?;
    drop(loops);
    cores.let_self_go()?;
    let mut table = Table::new("sqlite", ["one core"]);
    table.row("the bare limit of a cycle, µs", [Some(medians[0])]);
    table.row("our cycle, µs", [Some(medians[1])]);
    table.row("  over the limit", [Some(medians[1] / medians[0])]);
    for (also, median) in also.iter().zip(&medians[2..]) {
        table.row(&format!("the cycle of {}, µs", also.name), [Some(*median)]);
        table.row("  over our cycle", [Some(median / medians[1])]);
    }
    Ok(table)
}

struct Limit {
    connection: Connection,
    turn: i64,
}

impl Limit {
    fn create(path: &Path) -> Outcome<Limit> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.execute_batch(
            "CREATE TABLE lease (name BLOB PRIMARY KEY, token TEXT, fence INTEGER, expiry INTEGER)
             WITHOUT ROWID;
             INSERT INTO lease VALUES ('bench', NULL, 0, 0);",
        )?;
        Ok(Limit { connection, turn: 0 })
    }

    /// Takes and gives, as far as a file is concerned.
    fn cycle(&mut self) -> Outcome<()> {
        for token in [Some("00000000000000000000000000000000"), None] {
            self.turn += 1;
            let work = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let update = "UPDATE lease SET token = ?, fence = ?, expiry = ? WHERE name = 'bench'";
            work.prepare_cached(update)?.execute(params![token, self.turn, self.turn])?;
            work.commit()?;
        }
        Ok(())
    }
}
