//! Whether Redis servers are fit for locks, on connections of its own that say nothing but
//! questions: the store's own would tell a server that guards against lost data to begin its wait.

mod clocks;
mod cluster;
mod keys;
mod probe;
mod rights;
mod sentinels;
mod server;

pub(in crate::store) use self::clocks::{agree, finish};
use self::probe::{Facts, Probe};
use crate::config::{RedisConfig, Servers};
use crate::error::Error;
use crate::examination::{Examination, Reading, Subject};

/// A server that was examined, and can be asked again.
pub(in crate::store) struct Patient {
    probe: Probe,
    facts: Facts,
    reading: Option<Reading>,
    /// Whether a client may come: one that comes too early begins the wait of a new server.
    is_open: bool,
}

/// What a server is there for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Alone,
    /// Sentinels watch it.
    Master,
    Replica,
    /// A master of a Cluster.
    Node,
}

/// The servers of one Redis. An error means that it cannot be reached.
pub(in crate::store) fn look(
    redis: &RedisConfig,
    subject: Subject<'_>,
    found: &mut Examination,
) -> Result<Vec<Patient>, Error> {
    match &redis.servers {
        Servers::One(address) => {
            let patient = server::examine(redis, address, Role::Alone, subject, found)?;
            check_rights(&patient, redis, subject, found)?;
            Ok(vec![patient])
        }
        Servers::Sentinel(sentinels) => sentinels::look(redis, sentinels, subject, found),
        Servers::Cluster(seeds) => cluster::look(redis, seeds, subject, found),
    }
}

/// Whether a lock may be tried there.
pub(in crate::store) fn examine(
    redis: &RedisConfig,
    subject: Subject<'_>,
    found: &mut Examination,
) -> Result<bool, Error> {
    let mut patients = look(redis, subject, found)?;
    finish(&mut patients, subject, found);
    Ok(patients.iter().all(Patient::is_open))
}

fn check_rights(
    patient: &Patient,
    redis: &RedisConfig,
    subject: Subject<'_>,
    found: &mut Examination,
) -> Result<(), Error> {
    let Probe { address, .. } = &patient.probe;
    let mut probe = Probe::dial(&redis.access, address, subject.config.io_timeout)?;
    let is_sharded = matches!(redis.servers, Servers::Cluster(_))
        && patient.facts.level().is_some_and(|level| level >= [7, 0, 0]);
    rights::examine(&mut probe, redis, subject, is_sharded, found)
}

/// What the members of a quorum are compared by.
impl Patient {
    pub(in crate::store) fn at(&self) -> &str {
        &self.probe.at
    }

    pub(in crate::store) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Which process it is.
    pub(in crate::store) fn run(&self) -> &str {
        self.facts.info("run_id")
    }

    /// Its version, and what it keeps.
    pub(in crate::store) fn habits(&self) -> (Option<(u32, u32)>, &str, &str) {
        let level = self.facts.level().map(|[major, minor, _]| (major, minor));
        (level, self.facts.info("aof_enabled"), self.facts.setting("appendfsync"))
    }

    /// How far this machine's clock is ahead of its, at least.
    pub(in crate::store) fn behind_us(&self) -> std::time::Duration {
        let ahead = self.reading.map_or(0, |it| -it.ahead() - it.doubt.as_micros() as i64);
        std::time::Duration::from_micros(ahead.max(0).unsigned_abs())
    }

    /// The address of its machine, as far as that is known.
    pub(in crate::store) fn machine(&self) -> Option<std::net::IpAddr> {
        self.probe.machine()
    }
}
