//! Sentinels, the master that they name, and its replicas.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use super::probe::{Probe, pairs, refused};
use super::{Patient, Role, agree, check_rights, server};
use crate::config::{Address, RedisConfig, SentinelConfig};
use crate::error::{Error, ErrorKind};
use crate::examination::{Examination, Kind, Subject, findings, kind};

/// The fewest of which one may be gone.
const ENOUGH: u64 = 3;

/// What a Sentinel says of the master.
struct Told {
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
    let asked = found.each_host(&sentinels.hosts, kind!("sentinel-down"), |_, host| {
        (host.to_string(), ask(&host, sentinels, subject.config.io_timeout))
    });
    let all = asked.unwrap_or_default();
    let none = || Error::new(ErrorKind::Refused, "none of the Sentinels tells the master");
    let (at, first) = all.first().ok_or_else(none)?;
    let masters: BTreeSet<_> = all.iter().map(|(_, told)| told.master.to_string()).collect();
    if masters.len() > 1 {
        let masters = masters.into_iter().collect::<Vec<_>>().join(" and ");
        found.found(at, kind!("sentinels-differ"), format!("they name {masters}"));
    }
    let after = all.iter().filter_map(|(_, told)| told.number("down-after-milliseconds")).max();
    let after = Duration::from_millis(after.unwrap_or(0));
    server::failover(at, after, subject, found);
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

fn ask(host: &Address, sentinels: &SentinelConfig, span: Duration) -> Result<Told, (Kind, Error)> {
    let down = |error| (kind!("sentinel-down"), error);
    let mut probe = Probe::dial(&sentinels.access, host, span).map_err(down)?;
    let said = probe.ask_one(&["SENTINEL", "MASTER", &sentinels.master]).map_err(down)?;
    if refused(&said) {
        let right = "a right is missing: ACL SETUSER USER +sentinel|master";
        return Err(down(Error::new(ErrorKind::Permission, right)));
    }
    let fields = pairs(&said);
    let port = fields.get("port").and_then(|port| port.parse().ok());
    let master = fields.get("ip").cloned().zip(port);
    let master = master.map(|(host, port)| Address::Tcp { host, port }).ok_or_else(|| {
        let said = format!("this one knows no master '{}'", sentinels.master);
        (kind!("sentinels-differ"), Error::new(ErrorKind::Refused, said))
    })?;
    Ok(Told { master, fields })
}

fn number_of(all: &[(String, Told)], found: &mut Examination) {
    for (at, told) in all {
        let (Some(others), Some(quorum)) =
            (told.number("num-other-sentinels"), told.number("quorum"))
        else {
            continue;
        };
        let count = others + 1;
        findings! { found, at;
            "sentinel-few" if count < ENOUGH => "this one knows of {count}";
            "sentinel-quorum" if quorum > count || (quorum == 1 && count > 1) => "{quorum} of {count}";
        }
    }
}

/// Before another master can be elected, one that is cut off has to stop.
fn stops_by_itself(patient: &Patient, after: Duration, found: &mut Examination) {
    let (facts, at) = (&patient.facts, patient.at());
    let Some(replicas) = facts.number("min-replicas-to-write") else { return };
    let lag = Duration::from_secs(facts.number("min-replicas-max-lag").unwrap_or(0));
    findings! { found, at;
        "sentinel-two-masters" if replicas == 0 => "min-replicas-to-write is 0";
        "sentinel-two-masters" if replicas > 0 && lag >= after =>
            "min-replicas-max-lag is {lag:?}, down-after-milliseconds {after:?}";
    }
}

fn replicas(master: &Patient) -> Vec<Address> {
    let told = master.facts.replicas().into_iter().filter_map(|replica| {
        let (host, port) = (*replica.get("ip")?, replica.get("port")?.parse().ok()?);
        Some(Address::Tcp { host: host.to_owned(), port })
    });
    told.collect()
}
