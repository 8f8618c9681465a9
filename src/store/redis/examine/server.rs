//! One server: what it tells of itself, and what of that matters to a lock.

use std::time::Duration;

use super::kinds::*;
use super::probe::{Facts, Probe};
use super::{Patient, Role, clocks, keys};
use crate::config::{Address, RedisConfig, spoken};
use crate::error::Error;
use crate::examination::{Examination, Subject, Value};

/// A command that takes longer holds up renewals of short ttls.
const LONG: u64 = 250_000;

pub(super) fn examine(
    redis: &RedisConfig,
    address: &Address,
    role: Role,
    subject: Subject<'_>,
    found: &mut Examination,
) -> Result<Patient, Error> {
    let mut probe = Probe::dial(&redis.access, address, subject.config.io_timeout)?;
    let reading = clocks::measure(&mut probe, subject, found)?;
    let mut facts = Facts::gather(&mut probe)?;
    tell(&probe, &facts, found);
    if let Some(reading) = reading {
        found.clock(&probe.at, reading);
    }
    health(&probe.at, &facts, found);
    connections(&probe, redis, &facts, found);
    persistence(&probe.at, &facts, role, subject, found);
    replication(&probe.at, redis, &facts, role, found);
    let is_open = role == Role::Replica
        || (keys::guard(&mut probe, &facts, (role, reading), subject, found)?
            && facts.info("role") != "slave");
    if role != Role::Replica {
        keys::examine(&mut probe, &mut facts, subject, found)?;
    }
    if !facts.refused.is_empty() {
        let rights = facts.refused.iter().copied().collect::<Vec<_>>().join(" ");
        let type_this = format!("ACL SETUSER {} {rights}", probe.user);
        found.advise(&probe.at, &HIDDEN, rights, type_this);
    }
    Ok(Patient { probe, facts, reading, is_open })
}

fn tell(probe: &Probe, facts: &Facts, found: &mut Examination) {
    let at = &probe.at;
    if !facts.version().is_empty() {
        found.text(at, "version", facts.version());
    }
    found.text(at, "user", &probe.user);
    found.text(at, "tls", if probe.is_tls() { "yes" } else { "no" });
    for (what, name) in [("clients", "connected_clients"), ("blocked_clients", "blocked_clients")] {
        if let Some(count) = facts.number(name) {
            found.measured(at, what, Value::Count(count));
        }
    }
    let own = facts.info("latency_percentiles_usec_evalsha");
    if !own.is_empty() {
        found.text(at, "scripts_by_its_own_clock", format!("{} µs", own.replace(',', " ")));
    }
    if let Some(slowest) = facts.slowest {
        found.measured(at, "slowest_command", Value::Span(Duration::from_micros(slowest)));
    }
}

fn health(at: &str, facts: &Facts, found: &mut Examination) {
    if facts.level().is_some_and(|level| level < (6, 2)) {
        found.found(at, &OLD, facts.version());
    }
    let policy = facts.info("maxmemory_policy");
    if !policy.is_empty() && policy != "noeviction" {
        found.found(at, &EVICTS, format!("maxmemory-policy is {policy}"));
    }
    if let (Some(most @ 1..), Some(used)) = (facts.number("maxmemory"), facts.number("used_memory"))
        && used.saturating_mul(10) >= most.saturating_mul(9)
    {
        found.found(at, &FULL, format!("{used} of {most} bytes"));
    }
    let forked = facts.number("latest_fork_usec").unwrap_or(0);
    let slowest = facts.slowest.unwrap_or(0);
    for (what, micros) in [("a command took", slowest), ("its last fork took", forked)] {
        if micros >= LONG {
            found.found(at, &STALLS, format!("{what} {} ms", micros / 1000));
        }
    }
}

fn connections(probe: &Probe, redis: &RedisConfig, facts: &Facts, found: &mut Examination) {
    let at = &probe.at;
    if let (Some(now), Some(most)) = (facts.number("connected_clients"), facts.number("maxclients"))
        && now.saturating_mul(10) >= most.saturating_mul(8)
    {
        found.found(at, &CLIENTS, format!("{now} of {most}"));
    }
    if let Some(seconds @ 1..=60) = facts.number("timeout") {
        found.found(at, &IDLE, format!("after {seconds} s"));
    }
    if facts.setting("tcp-keepalive") == "0" {
        found.found(at, &KEEPALIVE, "tcp-keepalive is 0");
    }
    // A message has some hundred bytes, and thousands may be handed over in a second.
    let limits: Vec<_> = facts.setting("client-output-buffer-limit").split(' ').collect();
    let (limits, _) = limits.as_chunks::<4>();
    let cut = limits.iter().find(|[class, ..]| *class == "pubsub").map(|[_, hard, soft, _]| {
        let least = [hard, soft].into_iter().filter_map(|it| it.parse::<u64>().ok());
        least.filter(|bytes| *bytes > 0).min().unwrap_or(u64::MAX)
    });
    if let Some(bytes) = cut.filter(|bytes| *bytes < 256 * 1024) {
        found.found(at, &CUT, format!("{bytes} bytes behind"));
    }
    let is_default = redis.access.user.as_deref().is_none_or(|user| user == "default");
    let is_far = probe.machine().is_some_and(|machine| !machine.is_loopback());
    if is_default && redis.access.password.is_none() && is_far {
        found.found(at, &OPEN, "its user default needs no password");
    }
}

fn persistence(at: &str, facts: &Facts, role: Role, subject: Subject<'_>, found: &mut Examination) {
    for (name, what) in [
        ("rdb_last_bgsave_status", "the last snapshot failed"),
        ("aof_last_write_status", "the last write to the append-only file failed"),
    ] {
        if facts.info(name) == "err" {
            found.found(at, &CANNOT_SAVE, what);
        }
    }
    let is_synced = facts.info("aof_enabled") == "1" && facts.setting("appendfsync") == "always";
    let what = match role {
        // What such a server has acknowledged is in its file.
        Role::Alone if is_synced => return,
        Role::Alone if facts.info("aof_enabled") == "0" => "it has no append-only file",
        Role::Alone => "appendfsync is not always",
        Role::Master | Role::Node => "replicas hear of a grant after it was given",
        Role::Replica => return,
    };
    if !subject.config.guard_data_loss && !facts.info("role").is_empty() {
        found.found(at, &FORGETS, what);
    }
}

fn replication(at: &str, redis: &RedisConfig, facts: &Facts, role: Role, found: &mut Examination) {
    if facts.info("role") == "slave" && role != Role::Replica {
        let master = format!("{}:{}", facts.info("master_host"), facts.info("master_port"));
        found.found(at, &REPLICA, format!("of {master}"));
    }
    if role == Role::Replica || facts.info("role") != "master" {
        return;
    }
    let replicas = facts.replicas();
    let online = replicas.iter().filter(|replica| replica.get("state") == Some(&"online")).count();
    let needed = redis.replicas.max(u32::from(role == Role::Master));
    if online < needed as usize {
        found.found(at, &FEW_REPLICAS, format!("{online} of {needed}"));
    }
    for replica in replicas {
        let lag = replica.get("lag").and_then(|lag| lag.parse::<u64>().ok()).unwrap_or(0);
        if lag >= 5 {
            let which = ["ip", "port"].map(|part| replica.get(part).copied().unwrap_or("?"));
            let said = format!("{}: nothing heard of it for {lag} s", which.join(":"));
            found.found(at, &LAGS, said);
        }
    }
}

/// Warns where a server is taken for dead only after its leases are lost.
pub(super) fn failover(at: &str, after: Duration, subject: Subject<'_>, found: &mut Examination) {
    if after >= subject.patience() {
        let [after, ttl] = [after, subject.checkup.ttl].map(spoken);
        found.found(at, &SLOW_FAILOVER, format!("it begins after {after}; the ttl is {ttl}"));
    }
}
