//! A Cluster: whether it serves all slots, and each of its masters.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::Value;

use super::kinds::{CLUSTER_DOWN, CLUSTER_OLD, HIDDEN, NO_REPLICA, NODE_DOWN};
use super::probe::{Facts, Probe, refused, text};
use super::{Patient, Role, agree, check_rights, server};
use crate::config::{Address, RedisConfig};
use crate::error::{Error, ErrorKind};
use crate::examination::{Examination, Subject};
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
    let state = probe.ask_one(&["CLUSTER", "INFO"])?;
    if refused(&state) {
        found.found(&at, &HIDDEN, "+cluster|info +cluster|nodes");
    }
    let state = Facts::read(&state);
    let slots = ["assigned", "ok", "pfail", "fail"]
        .map(|what| state.number(&format!("cluster_slots_{what}")).unwrap_or(0));
    let [assigned, served, ..] = slots;
    let is_ok = state.info("cluster_state").trim() == "ok";
    if !state.info("cluster_state").is_empty() && (!is_ok || served < 16_384) {
        let said = format!(
            "its state is {}; {assigned} slots have a node, {served} are served",
            state.info("cluster_state")
        );
        found.found(&at, &CLUSTER_DOWN, said);
    }
    nodes(&mut probe, found)?;
    let alone = masters.values().filter(|replicas| **replicas == 0).count();
    if alone > 0 {
        found.found(&at, &NO_REPLICA, format!("{alone} of {}", masters.len()));
    }
    let mut patients = Vec::new();
    for address in masters.keys() {
        match server::examine(redis, address, Role::Node, subject, found) {
            Ok(patient) => patients.push(patient),
            Err(error) => found.found(&address.to_string(), &NODE_DOWN, error.detail()),
        }
    }
    let none = || Error::new(ErrorKind::Refused, "no master of the Cluster is reached");
    let first = patients.first().ok_or_else(none)?;
    check_rights(first, redis, subject, found)?;
    let after = first.facts.number("cluster-node-timeout").unwrap_or(0);
    server::failover(first.at(), Duration::from_millis(after), subject, found);
    if first.facts.level().is_some_and(|level| level < (7, 0)) {
        found.found(first.at(), &CLUSTER_OLD, first.facts.version());
    }
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
            found.found(&probe.at, &NODE_DOWN, format!("{address} is marked as {flags}"));
        }
    }
    Ok(())
}
