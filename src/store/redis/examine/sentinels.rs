//! Sentinels, the master that they name, and its replicas.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use redis::Value;

use super::kinds::{FEW_SENTINELS, SENTINEL_DOWN, SENTINEL_QUORUM, SENTINELS_DIFFER, TWO_MASTERS};
use super::probe::{Probe, pairs, refused};
use super::{Patient, Role, agree, check_rights, server};
use crate::config::{Address, RedisConfig, SentinelConfig};
use crate::error::{Error, ErrorKind};
use crate::examination::{Examination, Subject};

/// The fewest of which one may be gone.
const ENOUGH: u64 = 3;

/// What a Sentinel says of the master.
struct Told {
    at: String,
    master: Address,
    fields: HashMap<String, String>,
}

impl Told {
    fn number(&self, field: &str) -> Option<u64> {
        self.fields.get(field)?.parse().ok()
    }
}

pub(super) fn look(
    redis: &RedisConfig,
    sentinels: &SentinelConfig,
    subject: Subject<'_>,
    found: &mut Examination,
) -> Result<Vec<Patient>, Error> {
    let mut all = Vec::new();
    for host in &sentinels.hosts {
        match ask(host, sentinels, subject.config.io_timeout) {
            Ok(Some(told)) => all.push(told),
            Ok(None) => {
                let name = &sentinels.master;
                let said = format!("this one knows no master '{name}'");
                found.found(&host.to_string(), &SENTINELS_DIFFER, said);
            }
            Err(error) => found.found(&host.to_string(), &SENTINEL_DOWN, error.detail()),
        }
    }
    let none = || Error::new(ErrorKind::Refused, "none of the Sentinels tells the master");
    let first = all.first().ok_or_else(none)?;
    let masters: BTreeSet<_> = all.iter().map(|told| told.master.to_string()).collect();
    if masters.len() > 1 {
        let masters = masters.into_iter().collect::<Vec<_>>().join(" and ");
        found.found(&first.at, &SENTINELS_DIFFER, format!("they name {masters}"));
    }
    let after = all.iter().filter_map(|told| told.number("down-after-milliseconds")).max();
    let after = Duration::from_millis(after.unwrap_or(0));
    server::failover(&first.at, after, subject, found);
    number_of(&all, found);

    let master = server::examine(redis, &first.master, Role::Master, subject, found)?;
    check_rights(&master, redis, subject, found)?;
    stops_by_itself(&master, after, found);
    let mut patients = vec![master];
    for replica in replicas(&patients[0]) {
        // Masters know addresses of their own network, which may not be ours.
        match server::examine(redis, &replica, Role::Replica, subject, found) {
            Ok(replica) => {
                stops_by_itself(&replica, after, found);
                patients.push(replica);
            }
            Err(error) => found.text(&replica.to_string(), "replica_not_reached", error.detail()),
        }
    }
    agree(&patients, found);
    Ok(patients)
}

fn ask(host: &Address, sentinels: &SentinelConfig, span: Duration) -> Result<Option<Told>, Error> {
    let mut probe = Probe::dial(&sentinels.access, host, span)?;
    let said = probe.ask_one(&["SENTINEL", "MASTER", &sentinels.master])?;
    if refused(&said) {
        let right = "a right is missing: ACL SETUSER USER +sentinel|master";
        return Err(Error::new(ErrorKind::Permission, right));
    }
    let Value::Array(_) = said else { return Ok(None) };
    let fields = pairs(&said);
    let port = fields.get("port").and_then(|port| port.parse().ok());
    let master = fields.get("ip").zip(port);
    let master = master.map(|(host, port)| Address::Tcp { host: host.clone(), port });
    Ok(master.map(|master| Told { at: host.to_string(), master, fields }))
}

fn number_of(all: &[Told], found: &mut Examination) {
    for told in all {
        let (Some(others), Some(quorum)) =
            (told.number("num-other-sentinels"), told.number("quorum"))
        else {
            continue;
        };
        let count = others + 1;
        if count < ENOUGH {
            found.found(&told.at, &FEW_SENTINELS, format!("this one knows of {count}"));
        }
        if quorum > count || (quorum == 1 && count > 1) {
            found.found(&told.at, &SENTINEL_QUORUM, format!("{quorum} of {count}"));
        }
    }
}

/// Before another master can be elected, one that is cut off has to stop.
fn stops_by_itself(patient: &Patient, after: Duration, found: &mut Examination) {
    let (facts, at) = (&patient.facts, patient.at());
    let Some(replicas) = facts.number("min-replicas-to-write") else { return };
    let lag = Duration::from_secs(facts.number("min-replicas-max-lag").unwrap_or(0));
    if replicas == 0 {
        found.found(at, &TWO_MASTERS, "min-replicas-to-write is 0");
    } else if lag >= after {
        let said = format!("min-replicas-max-lag is {lag:?}, down-after-milliseconds {after:?}");
        found.found(at, &TWO_MASTERS, said);
    }
}

fn replicas(master: &Patient) -> Vec<Address> {
    let told = master.facts.replicas().into_iter().filter_map(|replica| {
        let (host, port) = (*replica.get("ip")?, replica.get("port")?.parse().ok()?);
        Some(Address::Tcp { host: host.to_owned(), port })
    });
    told.collect()
}
