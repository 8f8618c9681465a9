//! Whether a PostgreSQL is fit for locks: what its settings can lose, its table and rights, and what
//! makes it slow.

use super::PostgresStore;
use super::dial::{Dialer, Purpose};
use super::explain;
use super::wire::{Row, Wire, unexpected};
use crate::clock::Deadline;
use crate::config::{PostgresConfig, StoreConfig};
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
    MISSING Warning "postgres-standby-missing" "a standby that grants wait for is missing"
        "no lock is granted or renewed until it confirms, and leases end"
        "start it, or wait for others: ALTER SYSTEM SET synchronous_standby_names = '...', and SELECT pg_reload_conf()";
    LOCAL Warning "postgres-local-commit" "grants do not wait for the standbys that are named"
        "one that is promoted may lack the last of them: two hold such a lock for a while"
        "set synchronous_commit to on, for the user, the database or in the URL";
    DOWN Warning "postgres-host-down" "a host of the URL cannot be used"
        "without it, there may be nobody to take the place of the primary"
        "start it, or take it out of the URL";
    PRIMARIES Warning "postgres-two-primaries" "several hosts take writes"
        "programs that reach different ones hold the same lock"
        "stop the old one, and make it a standby of the other (pg_rewind, or pg_basebackup)";
    DIFFER Warning "postgres-hosts-differ" "a standby has lesser settings than the primary"
        "they count once it is promoted: a crash then forgets grants, and two hold such a lock for a while"
        "set them alike on all hosts (in a cloud: give all of them one parameter group)";
    UNNAMED Note "postgres-standby-names" "a standby names no standbys that grants wait for, and the primary does"
        "once it is promoted, grants wait for none until somebody names them"
        "set synchronous_standby_names there too, unless a failover manager does so when it promotes";
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
/// Columns of the answer.
const NAMES: usize = 12;
const IN_RECOVERY: usize = 16;
const SETTINGS: [(usize, &str); 3] =
    [(2, "fsync"), (3, "synchronous_commit"), (17, "full_page_writes")];
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
        let io_timeout = subject.config.io_timeout;
        let by = || Deadline::after(io_timeout);
        let mut wire = self.dialer.dial(Purpose::Setup, by(), &|_| Ok(()))?;
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
        if let StoreConfig::Postgres(postgres) = &subject.config.store
            && postgres.hosts.len() > 1
        {
            compare_hosts(&row, postgres, subject, found)?;
        }
        if wire.behind_pooler {
            found.found(&at, &POOLER, "another process answers than the one that logged us in");
        }
        found.text(&at, "tls", if wire.stream.is_tls() { "yes" } else { "no" });
        found.time_clock(&at, subject, || Ok(Some(number(&ask(&mut wire, NOW, by())?, 0))))?;
        Ok(is_there)
    }
}

/// Looks at each host by itself, and holds the settings of the standbys against the primary's.
fn compare_hosts(
    primary: &Row,
    postgres: &PostgresConfig,
    subject: Subject<'_>,
    found: &mut Examination,
) -> Result<(), Error> {
    let (io_timeout, mut primaries) = (subject.config.io_timeout, Vec::new());
    for host in &postgres.hosts {
        let one = PostgresConfig { hosts: vec![host.clone()], ..postgres.clone() };
        let (at, by) = (one.display(), Deadline::after(io_timeout));
        let dialed = Dialer::new(&one, io_timeout)?.dial(Purpose::Examining, by, &|_| Ok(()));
        let row = match dialed.and_then(|mut wire| ask(&mut wire, QUESTION, by)) {
            Ok(row) => row,
            Err(error) => {
                found.found(&at, &DOWN, error.detail());
                continue;
            }
        };
        if text(&row, IN_RECOVERY) != "t" {
            primaries.push(at);
            continue;
        }
        let weaker = |(index, name): &(usize, &str)| {
            let [here, there] = [&row, primary].map(|row| text(row, *index));
            let is_weaker = strength(&here) < strength(&there);
            is_weaker.then(|| format!("{name} is {here} there, and {there} on the primary"))
        };
        let weaker: Vec<_> = SETTINGS.iter().filter_map(weaker).collect();
        if !weaker.is_empty() {
            found.found(&at, &DIFFER, weaker.join("; "));
        }
        let names = [&row, primary].map(|row| text(row, NAMES));
        if names[0].is_empty() && !names[1].is_empty() {
            found.found(&at, &UNNAMED, format!("the primary names {}", names[1]));
        }
    }
    if primaries.len() > 1 {
        let at = subject.config.display_store();
        found.found(&at, &PRIMARIES, primaries.join(" "));
    }
    Ok(())
}

/// How much a setting does against the loss of a grant.
fn strength(value: &str) -> usize {
    let weakest_first = ["off", "local", "remote_write", "on", "remote_apply"];
    weakest_first.iter().position(|one| *one == value).unwrap_or(weakest_first.len())
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
    let commit = commit.map_or_else(|| text(row, 3), str::to_owned);
    if commit == "off" {
        let at_whom = format!("synchronous_commit is off for {}", text(row, 1));
        found.found(at, &ASYNC, at_whom);
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
    let (standbys, names) = (number(row, 11), text(row, NAMES));
    let [needed, there, stuck] = [13, 14, 15].map(|index| number(row, index));
    match (&*commit, &*names) {
        (_, "") if standbys > 0 => {
            found.found(at, &STANDBY, format!("{standbys} are connected"));
        }
        (_, "") | ("off", _) => {}
        ("local", _) => {
            let said = format!("synchronous_commit is local, and {names} are named");
            found.found(at, &LOCAL, said);
        }
        _ if there < needed => {
            found.found(at, &MISSING, format!("{there} of {needed} are there, of {names}"));
        }
        _ if stuck > 0 => {
            let said = format!("{stuck} sessions have waited for more than a second, for {names}");
            found.found(at, &MISSING, said);
        }
        _ => {}
    }
    is_there
}
