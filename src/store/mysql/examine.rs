//! Whether a MySQL or MariaDB is fit for locks: settings, hosts, tables, rights and clocks.

use std::collections::BTreeMap;
use std::time::Duration;

use super::MysqlStore;
use super::dial::{Dialer, Purpose, is_flushed};
use super::explain::quoted;
use super::statements::{Values, packet};
use super::wire::{Row, Wire};
use crate::clock::Deadline;
use crate::config::{MysqlConfig, StoreConfig};
use crate::error::Error;
use crate::examination::{Examination, Reading, Subject, Value, kinds};

kinds! { KINDS:
    READ_ONLY Warning "mysql-read-only" "no host takes writes"
        "a replica grants nothing"
        "name the primary in the URL, or let this one take writes: SET GLOBAL read_only = 0";
    DOWN Warning "mysql-host-down" "a host of the URL cannot be used"
        "without it, there may be nobody to take the place of the primary"
        "start it, or take it out of the URL";
    PRIMARIES Warning "mysql-two-primaries" "several hosts take writes, and are no cluster"
        "programs that reach different ones hold the same lock"
        "SET GLOBAL read_only = 1 on each replica (super_read_only on MySQL)";
    CLOCKS Warning "mysql-clocks" "clocks of the cluster's nodes are apart"
        "by more than a hundredth of a ttl, a lock is free on one node while its holder relies on it"
        "let chrony set the clocks, and name the nodes in the same order in all URLs";
    REPLICA Warning "mysql-replica" "a replica takes writes"
        "what is locked there, its primary does not know: programs that use that one hold the same lock"
        "SET GLOBAL read_only = 1, and name the primary in the URL";
    FEW_NODES Note "mysql-few-nodes" "the cluster has fewer than three nodes"
        "a node that is cut off from the only other one grants nothing"
        "add a node, or an arbitrator (garbd)";
    OLD Warning "mysql-old" "the server is too old"
        "statements of locks need NOWAIT, which came with MySQL 8.0 and MariaDB 10.6"
        "update it";
    NO_TABLE Warning "mysql-no-table" "tables for locks are missing"
        "no program makes them by itself, and none takes a lock without them"
        "leasehold init --store URL --apply, as a user who may create tables";
    ENGINE Warning "mysql-engine" "a table has another engine than InnoDB"
        "what is written there is neither one step with the rest nor safe from a crash"
        "ALTER TABLE leasehold_... ENGINE = InnoDB";
    RIGHTS Warning "mysql-rights" "the user may not do all that a lock needs"
        "a lock cannot be taken, renewed or given back"
        "grant the user what docs/operating.md lists under MySQL and MariaDB";
    FLUSH Warning "mysql-flush" "commits are not on disk when they are answered"
        "a crash forgets grants of the last second: two hold such a lock for a while"
        "SET GLOBAL innodb_flush_log_at_trx_commit = 1, and the same in its file";
    BINLOG Warning "mysql-sync-binlog" "the binary log is not synced with each commit"
        "after a crash of its machine, what the log lacks is rolled back, or a replica has other grants"
        "SET GLOBAL sync_binlog = 1, and the same in its file";
    FORMAT Warning "mysql-binlog-format" "the binary log has statements"
        "the server refuses to write locks at this isolation level: no lock can be taken"
        "SET GLOBAL binlog_format = ROW, and the same in its file";
    ASYNC Note "mysql-async-replica" "grants do not wait for any replica"
        "one that is promoted may lack the last of them: two hold such a lock for a while"
        "SET GLOBAL rpl_semi_sync_master_enabled = 1, and the like on the replicas";
    SEMI_OFF Warning "mysql-semi-sync-off" "grants have stopped waiting for a replica"
        "semi-sync switches itself off when no replica confirms in time: one that is promoted may lack grants"
        "start the replica, and set rpl_semi_sync_master_timeout (..._source_timeout) to a day, 86400000";
    SEMI_SHORT Note "mysql-semi-sync-timeout" "grants soon stop waiting for a replica that is silent"
        "after that time the server says of no grant that a replica lacks it"
        "SET GLOBAL rpl_semi_sync_master_timeout = 86400000 (..._source_timeout), and the same in its file";
    DIFFER Warning "mysql-hosts-differ" "a replica has lesser settings than the primary"
        "they count once it is promoted: a crash then forgets grants, and two hold such a lock for a while"
        "set them alike on all hosts (in a cloud: give all of them one parameter group)";
    CONNECTIONS Warning "mysql-connections" "nearly all connections are in use"
        "a program that is not let in can neither take nor renew a lock"
        "SET GLOBAL max_connections to more, or see who they are: SHOW PROCESSLIST";
    IDLE Note "mysql-idle" "the server ends sessions that lie idle"
        "each lock after a pause costs a new connection first"
        "SET GLOBAL wait_timeout = 28800, and the same in its file";
}

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

impl MysqlStore {
    /// Whether there are a server and tables for a lock to be tried.
    pub(super) fn look_around(
        &self,
        subject: Subject<'_>,
        found: &mut Examination,
    ) -> Result<bool, Error> {
        let StoreConfig::Mysql(mysql) = &subject.config.store else { return Ok(true) };
        let io_timeout = subject.config.io_timeout;
        let (mut patients, mut down, mut replicas) = (Vec::new(), None, Vec::new());
        for host in &mysql.hosts {
            let one = MysqlConfig { hosts: vec![host.clone()], ..(**mysql).clone() };
            let (at, by) = (one.display(), Deadline::after(io_timeout));
            let dialed = Dialer::new(&one, io_timeout)?.dial(Purpose::Examining, by);
            match dialed.and_then(|mut wire| Ok((ask(&mut wire, subject)?, wire))) {
                Ok((facts, _)) if is_read_only(&facts) => replicas.push((at, facts)),
                Ok((facts, wire)) => patients.push((at, wire, facts)),
                Err(error) => {
                    found.found(&at, &DOWN, error.detail());
                    down = Some(error);
                }
            }
        }
        if patients.is_empty() {
            let Some((at, facts)) = replicas.first() else {
                return Err(down.unwrap_or_else(super::none));
            };
            let said = facts.get("read_only").map_or("", String::as_str);
            found.found(at, &READ_ONLY, format!("read_only is {said}"));
            return Ok(false);
        }
        let (mut is_ready, mut readings) = (true, Vec::<(&str, Reading)>::new());
        let at = subject.config.display_store();
        if patients.len() > 1 && patients.iter().any(|(.., facts)| is_alone(facts)) {
            let all = patients.iter().map(|(at, ..)| &**at).collect::<Vec<_>>();
            found.found(&at, &PRIMARIES, all.join(" "));
        }
        if let [(_, _, primary)] = &patients[..] {
            for (at, facts) in &replicas {
                let lesser = lesser_settings(facts, primary);
                if !lesser.is_empty() {
                    found.found(at, &DIFFER, lesser.join("; "));
                }
            }
        }
        for (at, wire, facts) in &mut patients {
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
        let most = readings.iter().max_by_key(|(_, reading)| reading.ahead());
        let least = readings.iter().min_by_key(|(_, reading)| reading.ahead());
        if let (Some((ahead, most)), Some((behind, least))) = (most, least) {
            let apart = most.ahead().abs_diff(least.ahead());
            let known = Duration::from_micros(apart).saturating_sub(most.doubt + least.doubt);
            if known > subject.checkup.ttl / 100 {
                let said = format!("{behind} is {:.3} s behind", known.as_secs_f64());
                found.found(ahead, &CLOCKS, said);
            }
        }
        Ok(is_ready)
    }
}

fn ask(wire: &mut Wire, subject: Subject<'_>) -> Result<BTreeMap<String, String>, Error> {
    let (said, refused) = wire.ask(QUESTION, Deadline::after(subject.config.io_timeout))?;
    let text = |row: &Row, at| String::from_utf8_lossy(row.column(at).unwrap_or_default()).into();
    let facts = said.iter().flat_map(|said| &said.rows).map(|row| (text(row, 0), text(row, 1)));
    refused.map_or_else(|| Ok(facts.collect()), |refusal| Err(refusal.error))
}

fn is_read_only(facts: &BTreeMap<String, String>) -> bool {
    facts.get("read_only").is_some_and(|value| !matches!(&**value, "OFF" | "0"))
}

/// What a replica would do less against the loss of a grant than the primary does.
fn lesser_settings(
    replica: &BTreeMap<String, String>,
    primary: &BTreeMap<String, String>,
) -> Vec<String> {
    // Of each setting the values, the weakest first; another one counts as the first.
    const SETTINGS: [(&str, &[&str]); 6] = [
        (FLUSHED, &["0", "2", "1"]),
        ("innodb_doublewrite", &["OFF", "ON"]),
        ("log_bin", &["OFF", "ON"]),
        ("sync_binlog", &["0", "1"]),
        ("rpl_semi_sync_master_enabled", &["OFF", "ON"]),
        ("rpl_semi_sync_source_enabled", &["OFF", "ON"]),
    ];
    let mut lesser = Vec::new();
    for (name, order) in SETTINGS {
        let (Some(there), Some(here)) = (replica.get(name), primary.get(name)) else { continue };
        let strength = |value: &str| {
            let value = if name == FLUSHED && is_flushed(value.as_bytes()) { "1" } else { value };
            order.iter().position(|one| *one == value).unwrap_or(0)
        };
        if strength(there) < strength(here) {
            lesser.push(format!("{name} is {there} there, and {here} on the primary"));
        }
    }
    lesser
}

fn is_on(facts: &BTreeMap<String, String>, name: &str) -> bool {
    facts.get(name).is_some_and(|value| value == "ON")
}

/// Whether it is no node of a cluster with several writers.
fn is_alone(facts: &BTreeMap<String, String>) -> bool {
    let group = facts.get("group_replication_group_name");
    !is_on(facts, "wsrep_on") && group.is_none_or(String::is_empty)
}

fn judge(at: &str, facts: &BTreeMap<String, String>, found: &mut Examination) {
    let text = |name: &str| facts.get(name).map_or("", String::as_str);
    let number = |name: &str| text(name).parse::<u64>().ok();
    let is_on = |name: &str| is_on(facts, name);
    let version = text("version");
    found.text(at, "version", version);
    found.text(at, "user", text("user"));
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let level = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if level < if version.contains("MariaDB") { (10, 6) } else { (8, 0) } {
        found.found(at, &OLD, version);
    }
    let (used, most) = (number("Threads_connected"), number("max_connections"));
    if let (Some(used), Some(most)) = (used, most) {
        found.measured(at, "connections", Value::Count(used));
        if used.saturating_mul(10) >= most.saturating_mul(8) {
            found.found(at, &CONNECTIONS, format!("{used} of {most}"));
        }
    }
    let is_semi = is_on("rpl_semi_sync_master_enabled") || is_on("rpl_semi_sync_source_enabled");
    let semi = ["master", "source"].map(|role| format!("rpl_semi_sync_{role}_timeout"));
    let timeout = semi.iter().find(|name| !text(name).is_empty()).map_or("", String::as_str);
    let fallen = ["master", "source"].map(|role| format!("Rpl_semi_sync_{role}_status"));
    let fallen = fallen.iter().find(|name| text(name) == "OFF").map_or("", String::as_str);
    let flush = text(FLUSHED);
    let say = |name: &str| format!("{name} is {}", text(name));
    for (kind, is_so, said) in [
        (&FLUSH, !flush.is_empty() && !is_flushed(flush.as_bytes()), say(FLUSHED)),
        (&BINLOG, is_on("log_bin") && text("sync_binlog") != "1", say("sync_binlog")),
        (&FORMAT, is_on("log_bin") && text("binlog_format") == "STATEMENT", say("binlog_format")),
        (&REPLICA, is_on("Slave_running"), "it replicates another server".to_owned()),
        (&ASYNC, number("Slaves_connected") > Some(0) && !is_semi, say("Slaves_connected")),
        (&SEMI_OFF, is_semi && !fallen.is_empty(), say(fallen)),
        (&SEMI_SHORT, is_semi && number(timeout) < Some(LONG), say(timeout) + " ms"),
        (&IDLE, number("wait_timeout").is_some_and(|idle| idle <= 60), say("wait_timeout")),
        (&FEW_NODES, matches!(text("wsrep_cluster_size"), "1" | "2"), say("wsrep_cluster_size")),
    ] {
        if is_so {
            found.found(at, kind, said);
        }
    }
    for (table, engine) in
        facts.iter().filter_map(|(name, engine)| Some((name.strip_prefix("engine of ")?, engine)))
    {
        let advice = format!("ALTER TABLE {table} ENGINE = InnoDB");
        found.advise(at, &ENGINE, format!("{table} has {engine}"), advice);
    }
}

/// Tries each right by a statement that finds nothing to change. Tells whether the tables are there.
fn try_rights(
    wire: &mut Wire,
    (at, facts, database): (&str, &BTreeMap<String, String>, &str),
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
    if !absent.is_empty() {
        found.found(at, &NO_TABLE, absent.join(" "));
    }
    if !grants.is_empty() {
        found.advise(at, &RIGHTS, "some are missing", grants.join(" "));
    }
    Ok(absent.is_empty())
}
