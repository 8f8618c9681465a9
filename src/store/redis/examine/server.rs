//! One server: what it tells of itself, and what of that matters to a lock.

use std::time::Duration;

use super::probe::{Facts, Probe};
use super::{Patient, Role, clocks, keys};
use crate::config::{Address, RedisConfig, spoken};
use crate::error::Error;
use crate::examination::{Examination, Subject, Value, findings, kind};

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
    let hidden: Vec<_> = facts.refused.iter().copied().collect();
    probe.lacks(kind!("redis-hidden"), &hidden, found);
    Ok(Patient { probe, facts, reading, is_open })
}

fn tell(probe: &Probe, facts: &Facts, found: &mut Examination) {
    let at = &probe.at;
    if !facts.version().is_empty() {
        found.text(at, "version", facts.version());
    }
    found.text(at, "user", &probe.user);
    found.text(at, "tls", if probe.is_tls() { "yes" } else { "no" });
    found.count(at, "clients", facts.number("connected_clients"));
    found.count(at, "blocked_clients", facts.number("blocked_clients"));
    let own = facts.info("latency_percentiles_usec_evalsha");
    if !own.is_empty() {
        found.text(at, "scripts_by_its_own_clock", format!("{} µs", own.replace(',', " ")));
    }
    if let Some(slowest) = facts.slowest {
        found.measured(at, "slowest_command", Value::Span(Duration::from_micros(slowest)));
    }
}

fn health(at: &str, facts: &Facts, found: &mut Examination) {
    let policy = facts.info("maxmemory_policy");
    let evicts = !policy.is_empty() && policy != "noeviction";
    let ms = |micros: u64| (micros >= LONG).then_some(micros / 1000);
    let slowest = facts.slowest.and_then(ms);
    let forked = facts.number("latest_fork_usec").and_then(ms);
    findings! { found, at;
        "redis-old" if facts.level().is_some_and(|level| level < [6, 2, 0]) => "{}", facts.version();
        "redis-evicts" if evicts => "maxmemory-policy is {policy}";
        "redis-stalls" if slowest.is_some() => "a command took {} ms", slowest.unwrap_or(0);
        "redis-stalls" if forked.is_some() => "its last fork took {} ms", forked.unwrap_or(0);
        "redis-cannot-save" if facts.info("rdb_last_bgsave_status") == "err" =>
            "the last snapshot failed";
        "redis-cannot-save" if facts.info("aof_last_write_status") == "err" =>
            "the last write to the append-only file failed";
    }
    let memory = (facts.number("used_memory"), facts.number("maxmemory"));
    found.crowded(at, kind!("redis-full"), memory, 9);
}

fn connections(probe: &Probe, redis: &RedisConfig, facts: &Facts, found: &mut Examination) {
    let at = &probe.at;
    let clients = (facts.number("connected_clients"), facts.number("maxclients"));
    found.crowded(at, kind!("redis-clients"), clients, 8);
    // A message has some hundred bytes, and thousands may be handed over in a second.
    let limits: Vec<_> = facts.setting("client-output-buffer-limit").split(' ').collect();
    let (limits, _) = limits.as_chunks::<4>();
    let cut = limits.iter().find(|[class, ..]| *class == "pubsub").map(|[_, hard, soft, _]| {
        let least = [hard, soft].into_iter().filter_map(|it| it.parse::<u64>().ok());
        least.filter(|bytes| *bytes > 0).min().unwrap_or(u64::MAX)
    });
    let cut = cut.unwrap_or(u64::MAX);
    let idle = facts.number("timeout").unwrap_or(0);
    let is_default = redis.access.user.as_deref().is_none_or(|user| user == "default");
    let is_far = probe.machine().is_some_and(|machine| !machine.is_loopback());
    let is_open = is_default && !redis.access.has_password() && is_far;
    findings! { found, at;
        "redis-idle" if (1..=60).contains(&idle) => "after {idle} s";
        "redis-keepalive" if facts.setting("tcp-keepalive") == "0" => "tcp-keepalive is 0";
        "redis-wakeups-cut" if cut < 256 * 1024 => "{cut} bytes behind";
        "redis-open" if is_open => "its user default needs no password";
    }
}

/// Whether a restart or a failover forgets what the server has granted.
fn persistence(at: &str, facts: &Facts, role: Role, subject: Subject<'_>, found: &mut Examination) {
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
        found.found(at, kind!("redis-forgets"), what);
    }
}

fn replication(at: &str, redis: &RedisConfig, facts: &Facts, role: Role, found: &mut Examination) {
    let is_replica = facts.info("role") == "slave" && role != Role::Replica;
    findings! { found, at;
        "redis-replica" if is_replica =>
            "of {}:{}", facts.info("master_host"), facts.info("master_port");
    }
    if role == Role::Replica || facts.info("role") != "master" {
        return;
    }
    let replicas = facts.replicas();
    let online = replicas.iter().filter(|replica| replica.get("state") == Some(&"online")).count();
    let needed = redis.replicas.max(u32::from(role == Role::Master)) as usize;
    findings! { found, at; "redis-few-replicas" if online < needed => "{online} of {needed}"; }
    for replica in replicas {
        let lag = replica.get("lag").and_then(|lag| lag.parse::<u64>().ok()).unwrap_or(0);
        let [ip, port] = ["ip", "port"].map(|part| replica.get(part).copied().unwrap_or("?"));
        findings! { found, at;
            "redis-replica-lags" if lag >= 5 => "{ip}:{port}: nothing heard of it for {lag} s";
        }
    }
}

/// Warns where a server is taken for dead only after its leases are lost.
pub(super) fn failover(at: &str, after: Duration, subject: Subject<'_>, found: &mut Examination) {
    let [begins, ttl] = [after, subject.checkup.ttl].map(spoken);
    findings! { found, at;
        "redis-slow-failover" if after >= subject.patience() =>
            "it begins after {begins}; the ttl is {ttl}";
    }
}
