//! Whether a MySQL or MariaDB is fit for locks: settings, hosts, tables, rights and clocks.

use std::collections::BTreeMap;

use super::MysqlStore;
use super::dial::{Dialer, Purpose, is_flushed};
use super::explain::quoted;
use super::statements::{Values, packet};
use super::wire::{Row, Wire};
use crate::clock::Deadline;
use crate::config::{MysqlConfig, StoreConfig};
use crate::error::Error;
use crate::examination::{Examination, Reading, Subject, findings, kind, lesser, level};

/// One row for each of those that the server has; every user may read them.
const QUESTION: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'log_bin', \
     'innodb_flush_log_at_trx_commit', 'sync_binlog', 'binlog_format', 'wait_timeout', 'wsrep_on', \
     'max_connections', 'rpl_semi_sync_master_enabled', 'rpl_semi_sync_source_enabled', \
     'rpl_semi_sync_master_timeout', 'rpl_semi_sync_source_timeout', 'read_only', \
     'innodb_doublewrite', 'group_replication_group_name'); \
     SHOW GLOBAL STATUS WHERE Variable_name IN ('Threads_connected', 'Slave_running', \
     'Slaves_connected', 'wsrep_cluster_size', 'Rpl_semi_sync_master_status', \
     'Rpl_semi_sync_source_status'); \
     SELECT 'user', CURRENT_USER(); \
     SELECT CONCAT('engine of ', table_name), engine FROM information_schema.tables \
     WHERE table_schema = DATABASE() AND table_name LIKE 'leasehold\\_%' AND engine <> 'InnoDB'";

const FLUSHED: &str = "innodb_flush_log_at_trx_commit";

/// So many milliseconds an operator has to mend a replica at least.
const LONG: u64 = 3_600_000;

/// Each table with one of its columns, and what is done there.
const NEEDS: [(&str, &str, &[&str]); 5] = [
    ("leasehold_version", "number", &["SELECT"]),
    ("leasehold_lease", "name", ALL),
    ("leasehold_waiter", "name", ALL),
    ("leasehold_client", "id", ALL),
    ("leasehold_broken", "name", ALL),
];
const ALL: &[&str] = &["SELECT", "INSERT", "UPDATE", "DELETE"];

/// What the server has, by name.
type Facts = BTreeMap<String, String>;

impl MysqlStore {
    /// Whether there are a server and tables for a lock to be tried.
    pub(super) fn look_around(
        &self,
        subject: Subject<'_>,
        found: &mut Examination,
    ) -> Result<bool, Error> {
        let StoreConfig::Mysql(mysql) = &subject.config.store else { return Ok(true) };
        let io_timeout = subject.config.io_timeout;
        let seen = found.each_host(&mysql.hosts, kind!("mysql-host-down"), |_, host| {
            let one = MysqlConfig { hosts: vec![host], ..(**mysql).clone() };
            let (at, by) = (one.display(), Deadline::after(io_timeout));
            let dialed =
                Dialer::new(&one, io_timeout).and_then(|it| it.dial(Purpose::Examining, by));
            let asked = dialed.and_then(|mut wire| Ok((ask(&mut wire, subject)?, wire)));
            (at, asked.map_err(|error| (kind!("mysql-host-down"), error)))
        })?;
        let (replicas, mut patients): (Vec<_>, Vec<_>) =
            seen.into_iter().partition(|(_, (facts, _))| is_read_only(facts));
        if let ([], [(at, (facts, _)), ..]) = (&patients[..], &replicas[..]) {
            let said = facts.get("read_only").map_or("", String::as_str);
            found.found(at, kind!("mysql-read-only"), format!("read_only is {said}"));
            return Ok(false);
        }
        let (mut is_ready, mut readings) = (true, Vec::<(&str, Reading)>::new());
        let at = subject.config.display_store();
        if patients.len() > 1 && patients.iter().any(|(_, (facts, _))| is_alone(facts)) {
            let all: Vec<_> = patients.iter().map(|(at, _)| at).collect();
            found.listed(&at, kind!("mysql-two-primaries"), &all, " ");
        }
        if let [(_, (primary, _))] = &patients[..] {
            for (at, (facts, _)) in &replicas {
                let lesser = lesser_settings(facts, primary);
                found.listed(at, kind!("mysql-hosts-differ"), &lesser, "; ");
            }
        }
        for (at, (facts, wire)) in &mut patients {
            judge(at, facts, found);
            is_ready &= try_rights(wire, (at, facts, &mysql.database), subject, found)?;
            let now = packet(&["SELECT :now"], &Values::default());
            let reading = found.time_clock(at, subject, || {
                let (said, _) = wire.ask(&now, Deadline::after(io_timeout))?;
                let row = said.first().and_then(|said| said.rows.first());
                Ok(row.and_then(|row| u64::try_from(row.number(0)?).ok()))
            })?;
            readings.extend(reading.map(|reading| (&**at, reading)));
        }
        found.agree(kind!("mysql-clocks"), readings, subject.checkup.ttl / 100);
        Ok(is_ready)
    }
}

fn ask(wire: &mut Wire, subject: Subject<'_>) -> Result<Facts, Error> {
    let (said, refused) = wire.ask(QUESTION, Deadline::after(subject.config.io_timeout))?;
    let text = |row: &Row, at| String::from_utf8_lossy(row.column(at).unwrap_or_default()).into();
    let facts = said.iter().flat_map(|said| &said.rows).map(|row| (text(row, 0), text(row, 1)));
    refused.map_or_else(|| Ok(facts.collect()), |refusal| Err(refusal.error))
}

fn is_read_only(facts: &Facts) -> bool {
    facts.get("read_only").is_some_and(|value| !matches!(&**value, "OFF" | "0"))
}

/// What a replica would do less against the loss of a grant than the primary does.
fn lesser_settings<'a>(replica: &'a Facts, primary: &'a Facts) -> Vec<String> {
    // Of each setting the values, the weakest first; another one counts as the first.
    const SETTINGS: [(&str, &[&str]); 6] = [
        (FLUSHED, &["0", "2", "1"]),
        ("innodb_doublewrite", &["OFF", "ON"]),
        ("log_bin", &["OFF", "ON"]),
        ("sync_binlog", &["0", "1"]),
        ("rpl_semi_sync_master_enabled", &["OFF", "ON"]),
        ("rpl_semi_sync_source_enabled", &["OFF", "ON"]),
    ];
    let value = |facts: &'a Facts, name| {
        let value = facts.get(name)?.as_str();
        Some(if name == FLUSHED && is_flushed(value.as_bytes()) { "1" } else { value })
    };
    let both = |(name, order)| Some((name, [value(replica, name)?, value(primary, name)?], order));
    lesser(SETTINGS.into_iter().filter_map(both))
}

fn is_on(facts: &Facts, name: &str) -> bool {
    facts.get(name).is_some_and(|value| value == "ON")
}

/// Whether it is no node of a cluster with several writers.
fn is_alone(facts: &Facts) -> bool {
    let group = facts.get("group_replication_group_name");
    !is_on(facts, "wsrep_on") && group.is_none_or(String::is_empty)
}

fn judge(at: &str, facts: &Facts, found: &mut Examination) {
    let text = |name: &str| facts.get(name).map_or("", String::as_str);
    let number = |name: &str| text(name).parse::<u64>().ok();
    let is_on = |name: &str| is_on(facts, name);
    let version = text("version");
    found.text(at, "version", version);
    found.text(at, "user", text("user"));
    let connections = (number("Threads_connected"), number("max_connections"));
    found.count(at, "connections", connections.0);
    found.crowded(at, kind!("mysql-connections"), connections, 8);
    let oldest = if version.contains("MariaDB") { [10, 6, 0] } else { [8, 0, 0] };
    let is_semi = is_on("rpl_semi_sync_master_enabled") || is_on("rpl_semi_sync_source_enabled");
    let semi = ["master", "source"].map(|role| format!("rpl_semi_sync_{role}_timeout"));
    let timeout = semi.iter().find(|name| !text(name).is_empty()).map_or("", String::as_str);
    let fallen = ["master", "source"].map(|role| format!("Rpl_semi_sync_{role}_status"));
    let fallen = fallen.iter().find(|name| text(name) == "OFF").map_or("", String::as_str);
    let flush = text(FLUSHED);
    let say = |name: &str| format!("{name} is {}", text(name));
    findings! { found, at;
        "mysql-old" if level(version) < oldest => "{version}";
        "mysql-flush" if !flush.is_empty() && !is_flushed(flush.as_bytes()) => "{}", say(FLUSHED);
        "mysql-sync-binlog" if is_on("log_bin") && text("sync_binlog") != "1" =>
            "{}", say("sync_binlog");
        "mysql-binlog-format" if is_on("log_bin") && text("binlog_format") == "STATEMENT" =>
            "{}", say("binlog_format");
        "mysql-replica" if is_on("Slave_running") => "it replicates another server";
        "mysql-async-replica" if number("Slaves_connected") > Some(0) && !is_semi =>
            "{}", say("Slaves_connected");
        "mysql-semi-sync-off" if is_semi && !fallen.is_empty() => "{}", say(fallen);
        "mysql-semi-sync-timeout" if is_semi && number(timeout) < Some(LONG) =>
            "{} ms", say(timeout) ;
        "mysql-idle" if number("wait_timeout").is_some_and(|idle| idle <= 60) =>
            "{}", say("wait_timeout");
        "mysql-few-nodes" if matches!(text("wsrep_cluster_size"), "1" | "2") =>
            "{}", say("wsrep_cluster_size");
    }
    for (table, engine) in
        facts.iter().filter_map(|(name, engine)| Some((name.strip_prefix("engine of ")?, engine)))
    {
        let advice = format!("ALTER TABLE {table} ENGINE = InnoDB");
        found.advise(at, kind!("mysql-engine"), format!("{table} has {engine}"), advice);
    }
}

/// Tries each right by a statement that finds nothing to change. Tells whether the tables are there.
fn try_rights(
    wire: &mut Wire,
    (at, facts, database): (&str, &Facts, &str),
    subject: Subject<'_>,
    found: &mut Examination,
) -> Result<bool, Error> {
    let user = facts.get("user").and_then(|user| user.rsplit_once('@'));
    let (user, host) = user.unwrap_or_default();
    let database = quoted(database);
    let (mut absent, mut grants, never) = (Vec::new(), Vec::new(), "WHERE 1 = 0");
    for (table, column, rights) in NEEDS {
        let mut lacking = Vec::new();
        for right in rights {
            let text = match *right {
                "SELECT" => format!("SELECT * FROM {table} {never}"),
                "INSERT" => format!("INSERT INTO {table} ({column}) SELECT 0 FROM DUAL {never}"),
                "UPDATE" => format!("UPDATE {table} SET {column} = 0 {never}"),
                _ => format!("DELETE FROM {table} {never}"),
            };
            let (_, refused) = wire.ask(&text, Deadline::after(subject.config.io_timeout))?;
            match refused.map_or(0, |refusal| refusal.code) {
                1146 => absent.push(table),
                1044 | 1142 | 1143 => lacking.push(*right),
                _ => {}
            }
        }
        if !lacking.is_empty() {
            let lacking = lacking.join(", ");
            grants.push(format!("GRANT {lacking} ON {database}.{table} TO '{user}'@'{host}';"));
        }
    }
    absent.dedup();
    found.listed(at, kind!("mysql-no-table"), &absent, " ");
    found.lacks(at, kind!("mysql-rights"), "some are missing", grants.join(" "));
    Ok(absent.is_empty())
}
