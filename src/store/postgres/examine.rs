//! Whether a PostgreSQL is fit for locks: what its settings can lose, its table and rights, and what
//! makes it slow.

use super::PostgresStore;
use super::dial::Purpose;
use super::explain;
use super::wire::{Row, Wire, unexpected};
use crate::clock::Deadline;
use crate::config::StoreConfig;
use crate::error::Error;
use crate::examination::{Examination, Subject, Value, kinds};

kinds! { KINDS:
    NO_TABLE Warning "postgres-no-table" "the table for locks is missing"
        "no program makes it by itself, and none takes a lock without it"
        "leasehold init --store URL --apply, as a user who may create a schema";
    RIGHTS Warning "postgres-rights" "the user may not do all that a lock needs"
        "a lock cannot be taken, renewed or given back"
        "grant the user what docs/operating.md lists under PostgreSQL";
    FSYNC Warning "postgres-fsync" "the server does not sync its disk"
        "after a crash of its machine, grants are gone, or all of the database"
        "ALTER SYSTEM SET fsync = on, and SELECT pg_reload_conf()";
    ASYNC Warning "postgres-async-commit" "commits are not waited for"
        "a crash forgets grants of the last 0.6 s: two hold such a lock for a while"
        "set synchronous_commit to on, for the user, the database or in the URL";
    STANDBY Note "postgres-async-standby" "grants do not wait for any standby"
        "one that is promoted may lack the last of them: two hold such a lock for a while"
        "name the standbys in synchronous_standby_names";
    LESSER Note "postgres-lesser-rights" "the user lacks rights that a lock can do without"
        "people do not see who holds and waits, holders are not told who broke their lock, or leasehold break fails"
        "grant the user what docs/operating.md lists under PostgreSQL";
    CONNECTIONS Warning "postgres-connections" "nearly all connections are in use"
        "a program that is not let in can neither take nor renew a lock"
        "raise max_connections, or see who they are: SELECT * FROM pg_stat_activity";
    POOLER Note "postgres-pooler" "a pooler stands before the database"
        "waiters cannot be told there: they ask again and again, in no order"
        "name the database itself in the URL";
    IDLE Note "postgres-idle" "the server ends sessions that lie idle"
        "waiters are no longer told, and a lock after a pause costs a new connection first"
        "ALTER ROLE app SET idle_session_timeout = 0";
    VACUUM Warning "postgres-autovacuum" "nothing removes dead rows"
        "each turn leaves one: the table grows, and each lock becomes slower"
        "ALTER SYSTEM SET autovacuum = on, ALTER TABLE leasehold.lease RESET (autovacuum_enabled)";
    DEAD Warning "postgres-dead-rows" "dead rows are not removed"
        "the table grows, and each lock becomes slower"
        "end the transactions that stay open for long (pg_stat_activity), then VACUUM leasehold.lease";
}

const QUESTION: &str = include_str!("examine.sql");
const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
/// Autovacuum of the table begins at 10,000.
const MOST_DEAD: u64 = 50_000;

impl PostgresStore {
    /// Whether there is a table for a lock to be tried in.
    pub(super) fn look_around(
        &self,
        subject: Subject<'_>,
        found: &mut Examination,
    ) -> Result<bool, Error> {
        let by = || Deadline::after(subject.config.io_timeout);
        let mut wire = self.dialer.dial(Purpose::Tables, by(), &|_| Ok(()))?;
        let at = subject.config.display_store();
        let row = ask(&mut wire, QUESTION, by())?;
        let is_there = judge(&row, &at, subject, found);
        if is_there {
            let mut lacks =
                |rights| ask(&mut wire, &explain::lacking(rights), by()).map(|row| text(&row, 0));
            let needed = lacks(explain::OF_A_LOCK)?;
            let mut lesser = lacks(explain::LESSER)?;
            // Who may break no lock is not meant to.
            let breaks = lacks(explain::OF_A_BREAK)?;
            let is_some = explain::OF_A_BREAK.iter().flat_map(|(_, kinds)| *kinds);
            if is_some.clone().any(|kind| !breaks.contains(kind)) && !breaks.is_empty() {
                lesser = format!("{lesser} {breaks}").trim_start().to_owned();
            }
            for (kind, lacking) in [(&RIGHTS, needed), (&LESSER, lesser)] {
                if !lacking.is_empty() {
                    found.advise(&at, kind, "some are missing", lacking);
                }
            }
        }
        if wire.is_pooled {
            found.found(&at, &POOLER, "another process answers than the one that logged us in");
        }
        found.text(&at, "tls", if wire.stream.is_tls() { "yes" } else { "no" });
        found.time_clock(&at, subject, || Ok(Some(number(&ask(&mut wire, NOW, by())?, 0))))?;
        Ok(is_there)
    }
}

fn ask(wire: &mut Wire, question: &str, by: Deadline) -> Result<Row, Error> {
    let (mut rows, refused) = wire.ask(question, 1, by)?;
    match refused {
        Some(refusal) => Err(refusal.error),
        None => rows.pop().flatten().ok_or_else(|| unexpected("nothing")),
    }
}

fn text(row: &Row, index: usize) -> String {
    String::from_utf8_lossy(row.column(index).unwrap_or_default()).into_owned()
}

fn number(row: &Row, index: usize) -> u64 {
    text(row, index).parse().unwrap_or(0)
}

/// What examine.sql has found. Tells whether the table is there.
fn judge(row: &Row, at: &str, subject: Subject<'_>, found: &mut Examination) -> bool {
    let is_on = |index| row.column(index) == Some(b"t");
    found.text(at, "version", text(row, 0));
    found.text(at, "user", text(row, 1));
    if text(row, 2) == "off" {
        found.found(at, &FSYNC, "fsync is off");
    }
    let commit = match &subject.config.store {
        StoreConfig::Postgres(postgres) => postgres.synchronous_commit,
        _ => None,
    };
    if commit.map_or_else(|| text(row, 3), str::to_owned) == "off" {
        found.found(at, &ASYNC, "synchronous_commit is off");
    }
    if !is_on(4) {
        found.found(at, &VACUUM, "autovacuum is off");
    }
    let idle = text(row, 5);
    if !idle.is_empty() {
        found.found(at, &IDLE, format!("after {idle}"));
    }
    let [used, most] = [6, 7].map(|index| number(row, index));
    found.measured(at, "connections", Value::Count(used));
    if used.saturating_mul(10) >= most.saturating_mul(8) {
        found.found(at, &CONNECTIONS, format!("{used} of {most}"));
    }
    let is_there = is_on(8);
    if !is_there {
        found.found(at, &NO_TABLE, "there is no leasehold.lease, or no leasehold.version");
    }
    let [dead, oldest] = [9, 10].map(|index| number(row, index));
    if dead > MOST_DEAD {
        let said = format!("{dead} of them; the oldest transaction is {oldest} s old");
        found.found(at, &DEAD, said);
    }
    let standbys = number(row, 11);
    if standbys > 0 && text(row, 12).is_empty() {
        found.found(at, &STANDBY, format!("{standbys} are connected"));
    }
    is_there
}
