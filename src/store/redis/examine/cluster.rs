//! A Cluster: whether it serves all slots, and each of its masters.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::Value;

use super::probe::{Facts, Probe, refused, text};
use super::{Patient, Role, agree, check_rights, server};
use crate::config::{Address, RedisConfig};
use crate::error::{Error, ErrorKind};
use crate::examination::{Examination, Subject, findings, kind};
use crate::store::redis::fault;
use crate::store::redis::route::slots;

pub(super) fn look(
    redis: &RedisConfig,
    seeds: &[Address],
    subject: Subject<'_>,
    found: &mut Examination,
) -> Result<Vec<Patient>, Error> {
    let (mut probe, masters) = find(redis, seeds, subject)?;
    let at = probe.at.clone();
    let said = probe.ask_one(&["CLUSTER", "INFO"])?;
    let facts = Facts::read(&said);
    let [assigned, served] =
        ["cluster_slots_assigned", "cluster_slots_ok"].map(|what| facts.number(what).unwrap_or(0));
    let state = facts.info("cluster_state").trim();
    findings! { found, &at;
        "redis-hidden" if refused(&said) => "+cluster|info +cluster|nodes";
        "cluster-down" if !state.is_empty() && (state != "ok" || served < 16_384) =>
            "its state is {state}; {assigned} slots have a node, {served} are served";
    }
    nodes(&mut probe, found)?;
    let (count, alone) = (masters.len(), masters.values().filter(|count| **count == 0).count());
    findings! { found, &at; "cluster-no-replica" if alone > 0 => "{alone} of {count}"; }
    let addresses: Vec<_> = masters.into_keys().collect();
    let examined = found.each_host(&addresses, kind!("cluster-node-down"), |found, address| {
        let patient = server::examine(redis, &address, Role::Node, subject, found);
        (address.to_string(), patient.map_err(|error| (kind!("cluster-node-down"), error)))
    });
    let patients: Vec<_> = examined.unwrap_or_default().into_iter().map(|(_, it)| it).collect();
    let none = || Error::new(ErrorKind::Refused, "no master of the Cluster is reached");
    let first = patients.first().ok_or_else(none)?;
    check_rights(first, redis, subject, found)?;
    let after = first.facts.number("cluster-node-timeout").unwrap_or(0);
    server::failover(first.at(), Duration::from_millis(after), subject, found);
    let is_old = first.facts.level().is_some_and(|level| level < [7, 0, 0]);
    findings! { found, first.at(); "cluster-old" if is_old => "{}", first.facts.version(); }
    agree(&patients, found);
    Ok(patients)
}

/// The masters, each with how many replicas it has, and the server that told.
fn find(
    redis: &RedisConfig,
    seeds: &[Address],
    subject: Subject<'_>,
) -> Result<(Probe, BTreeMap<Address, usize>), Error> {
    let mut last = Error::new(ErrorKind::Refused, "the Cluster has no server");
    for seed in seeds {
        match ask(redis, seed, subject) {
            Ok(found) => return Ok(found),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn ask(
    redis: &RedisConfig,
    seed: &Address,
    subject: Subject<'_>,
) -> Result<(Probe, BTreeMap<Address, usize>), Error> {
    let mut probe = Probe::dial(&redis.access, seed, subject.config.io_timeout)?;
    let said = probe.ask_one(&["CLUSTER", "SLOTS"])?;
    if let Value::ServerError(error) = &said {
        return Err(fault::server(error).at(seed));
    }
    let ranges = slots::read(&said, seed).unwrap_or_default();
    let masters = ranges.into_iter().filter_map(|(.., servers)| {
        let (master, replicas) = servers.split_first()?;
        Some((master.clone(), replicas.len()))
    });
    Ok((probe, masters.collect()))
}

fn nodes(probe: &mut Probe, found: &mut Examination) -> Result<(), Error> {
    let lines = text(&probe.ask_one(&["CLUSTER", "NODES"])?).unwrap_or_default();
    for line in lines.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(address), Some(flags)) = (words.next(), words.next()) else { continue };
        // What one node suspects, most have not confirmed; it is as good as down for us.
        if flags.split(',').any(|flag| matches!(flag, "fail" | "fail?")) {
            let address = address.split('@').next().unwrap_or(address);
            found.found(
                &probe.at,
                kind!("cluster-node-down"),
                format!("{address} is marked as {flags}"),
            );
        }
    }
    Ok(())
}
