//! Whether a PostgreSQL is fit for locks: what its settings can lose, its table and rights, and what
//! makes it slow.

use super::PostgresStore;
use super::dial::{Dialer, Purpose};
use super::explain;
use super::wire::{Row, Wire, unexpected};
use crate::clock::Deadline;
use crate::config::{PostgresConfig, StoreConfig};
use crate::error::Error;
use crate::examination::{Examination, Subject, findings, kind, lesser};

const QUESTION: &str = include_str!("examine.sql");
/// Columns of the answer.
const NAMES: usize = 12;
const IN_RECOVERY: usize = 16;
const SETTINGS: [(usize, &str); 3] =
    [(2, "fsync"), (3, "synchronous_commit"), (17, "full_page_writes")];
const WEAKEST_FIRST: &[&str] = &["off", "local", "remote_write", "on", "remote_apply"];
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
            found.lacks(&at, kind!("postgres-rights"), "some are missing", needed);
            found.lacks(&at, kind!("postgres-lesser-rights"), "some are missing", lesser);
        }
        if let StoreConfig::Postgres(postgres) = &subject.config.store
            && postgres.hosts.len() > 1
        {
            compare_hosts(&row, postgres, subject, found)?;
        }
        findings! { found, &at;
            "postgres-pooler" if wire.behind_pooler =>
                "another process answers than the one that logged us in";
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
    let io_timeout = subject.config.io_timeout;
    let seen = found.each_host(&postgres.hosts, kind!("postgres-host-down"), |_, host| {
        let one = PostgresConfig { hosts: vec![host], ..postgres.clone() };
        let by = Deadline::after(io_timeout);
        let dialer = Dialer::new(&one, io_timeout);
        let dialed = dialer.and_then(|it| it.dial(Purpose::Examining, by, &|_| Ok(())));
        let asked = dialed.and_then(|mut wire| ask(&mut wire, QUESTION, by));
        (one.display(), asked.map_err(|error| (kind!("postgres-host-down"), error)))
    })?;
    let (standbys, primaries): (Vec<_>, Vec<_>) =
        seen.iter().partition(|(_, row)| text(row, IN_RECOVERY) == "t");
    for (at, row) in standbys {
        let both = SETTINGS.map(|(index, name)| (name, [row, primary].map(|row| text(row, index))));
        let settings = both.iter().map(|(name, [on, of])| (*name, [&**on, &**of], WEAKEST_FIRST));
        found.listed(at, kind!("postgres-hosts-differ"), &lesser(settings), "; ");
        let [here, there] = [row, primary].map(|row| text(row, NAMES));
        findings! { found, at;
            "postgres-standby-names" if here.is_empty() && !there.is_empty() =>
                "the primary names {there}";
        }
    }
    if let [_, _, ..] = &primaries[..] {
        let all: Vec<_> = primaries.iter().map(|(at, _)| at).collect();
        let at = subject.config.display_store();
        found.listed(&at, kind!("postgres-two-primaries"), &all, " ");
    }
    Ok(())
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
    let user = text(row, 1);
    found.text(at, "version", text(row, 0));
    found.text(at, "user", &user);
    let commit = match &subject.config.store {
        StoreConfig::Postgres(postgres) => postgres.synchronous_commit,
        _ => None,
    };
    let commit = commit.map_or_else(|| text(row, 3), str::to_owned);
    let (is_there, idle) = (is_on(8), text(row, 5));
    let [used, most, dead, oldest, standbys, needed, confirming, stuck] =
        [6, 7, 9, 10, 11, 13, 14, 15].map(|index| number(row, index));
    found.count(at, "connections", Some(used));
    found.crowded(at, kind!("postgres-connections"), (Some(used), Some(most)), 8);
    let names = text(row, NAMES);
    let waits = !names.is_empty() && !matches!(&*commit, "off" | "local");
    let few = waits && confirming < needed;
    findings! { found, at;
        "postgres-fsync" if text(row, 2) == "off" => "fsync is off";
        "postgres-async-commit" if commit == "off" => "synchronous_commit is off for {user}";
        "postgres-autovacuum" if !is_on(4) => "autovacuum is off";
        "postgres-idle" if !idle.is_empty() => "after {idle}";
        "postgres-no-table" if !is_there => "there is no leasehold.lease, or no leasehold.version";
        "postgres-dead-rows" if dead > MOST_DEAD =>
            "{dead} of them; the oldest transaction is {oldest} s old";
        "postgres-async-standby" if names.is_empty() && standbys > 0 => "{standbys} are connected";
        "postgres-local-commit" if commit == "local" && !names.is_empty() =>
            "synchronous_commit is local, and {names} are named";
        "postgres-standby-missing" if few => "{confirming} of {needed} are there, of {names}";
        "postgres-standby-missing" if waits && !few && stuck > 0 =>
            "{stuck} sessions have waited for more than a second, for {names}";
    }
    is_there
}
