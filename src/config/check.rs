//! What a client, a lock and a name may be.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::limits::{
    MAX_METRICS_GROUPS, MAX_NAME, MAX_QUORUM_TTL, MAX_TTL, MIN_RENEWED_TTL, MIN_TTL,
};
use super::{Config, StoreConfig, bad, spoken};
use crate::error::{Error, plain};

const HOUR: Duration = Duration::from_secs(3600);

/// An everyday take within 10,000 s of another one leaves the time that is left, and a holder renews it
/// once an hour.
const LEAST_FENCE_LIFE: Duration = Duration::from_secs(4 * 3600);

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

impl Config {
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_io_timeout(self.io_timeout)?;
        if self.prefix.len() > MAX_NAME {
            return Err(bad(format!("the prefix is longer than {MAX_NAME} bytes")));
        }
        if is_reserved(&self.prefix, b"") {
            return Err(bad(format!("the prefix {ONLY_OURS}")));
        }
        self.introduction.check()?;
        for (what, span, range) in [
            ("close_timeout", self.close_timeout, Duration::ZERO..=HOUR),
            ("claim_window", self.claim_window, ms(50)..=ms(60_000)),
            ("max_ttl", self.longest_ttl(), ms(1000)..=MAX_TTL),
        ] {
            check_range(what, span, range, spoken)?;
        }
        if let Some(life) = self.fence_life {
            check_range("fence_life", life, LEAST_FENCE_LIFE..=HOUR * 28, spoken)?;
            if !matches!(self.store, StoreConfig::Redis(_)) {
                return Err(bad(
                    "fence_life is for one Redis, Sentinels and a Cluster; a quorum, \
                     whose fences no clock stands in for, a database and a file keep theirs for 25 h, \
                     and a ZooKeeper or an etcd needs none",
                ));
            }
        }
        check_metrics_groups(&self.metrics_groups)?;
        self.check_credentials()?;
        check_range("pool", self.pool, 1..=1024, |pool| pool.to_string())?;
        match self.store {
            StoreConfig::Sqlite(_) if self.guard_data_loss => Err(bad(
                "guard_data_loss is for servers; an SQLite file loses nothing that was granted",
            )),
            #[cfg(feature = "mysql")]
            StoreConfig::Mysql(_) if self.guard_data_loss => Err(bad(
                "guard_data_loss is for Redis; a MySQL loses what its settings and its replicas let \
                 it lose",
            )),
            #[cfg(feature = "postgres")]
            StoreConfig::Postgres(_) if self.guard_data_loss => Err(bad(
                "guard_data_loss is for Redis; a PostgreSQL loses what synchronous_commit and its \
                 replicas let it lose",
            )),
            #[cfg(feature = "zookeeper")]
            StoreConfig::Zookeeper(_) if self.guard_data_loss => Err(bad(
                "guard_data_loss is for Redis; a ZooKeeper loses nothing that its majority has on disk",
            )),
            #[cfg(feature = "etcd")]
            StoreConfig::Etcd(_) if self.guard_data_loss => Err(bad(
                "guard_data_loss is for Redis; an etcd loses nothing that a majority has written down",
            )),
            StoreConfig::Quorum(_) if !self.guard_data_loss => Err(bad(
                "guard_data_loss is always on in a quorum: a server that forgot what it granted \
                 would vote for a second holder",
            )),
            StoreConfig::Quorum(_) => {
                let range = ms(1000)..=MAX_QUORUM_TTL;
                check_range("max_ttl of a quorum", self.longest_ttl(), range, spoken)
            }
            StoreConfig::Redis(_) => Ok(()),
            _ if self.guard_data_loss => Err(bad("guard_data_loss is for Redis")),
            _ => Ok(()),
        }
    }
}

fn check_metrics_groups(patterns: &[String]) -> Result<(), Error> {
    if patterns.len() > MAX_METRICS_GROUPS {
        return Err(bad(format!("there are more than {MAX_METRICS_GROUPS} metrics groups")));
    }
    for (index, pattern) in patterns.iter().enumerate() {
        let beginning = pattern.strip_suffix('*').unwrap_or(pattern);
        let wrong = match pattern.as_str() {
            "" => "is empty",
            "*" => "is where all names are that are in no other",
            _ if pattern.len() > MAX_NAME => "is longer than any name",
            _ if beginning.contains('*') => "has a '*' that is not at its end",
            _ if patterns.iter().take(index).any(|earlier| earlier == pattern) => "is there twice",
            _ => continue,
        };
        return Err(bad(format!("the metrics group '{}' {wrong}", plain(pattern.as_bytes()))));
    }
    Ok(())
}

pub(crate) fn check_io_timeout(timeout: Duration) -> Result<(), Error> {
    check_range("io_timeout", timeout, ms(1)..=HOUR, spoken)
}

pub(super) fn check_range<T: PartialOrd + Copy>(
    what: &str,
    value: T,
    range: RangeInclusive<T>,
    said: fn(T) -> String,
) -> Result<(), Error> {
    if range.contains(&value) {
        return Ok(());
    }
    let [value, least, most] = [value, *range.start(), *range.end()].map(said);
    Err(bad(format!("{what} is {value}; it goes from {least} to {most}")))
}

/// A ttl that leaves its holder something to rely on, and is not longer than the store's longest.
pub(crate) fn check_ttl(ttl: Duration, most: Duration) -> Result<(), Error> {
    check_ttl_in("the ttl", ttl, MIN_TTL..=most)
}

/// The same of a ttl that leaves time to renew in.
pub(crate) fn check_renewed_ttl(ttl: Duration, most: Duration) -> Result<(), Error> {
    check_ttl_in("the ttl, with renewal,", ttl, MIN_RENEWED_TTL..=most)
}

fn check_ttl_in(what: &str, ttl: Duration, range: RangeInclusive<Duration>) -> Result<(), Error> {
    let most = *range.end();
    let advice = match () {
        () if most == MAX_TTL => String::new(),
        () if ttl <= most => ", this store's max_ttl".to_owned(),
        () => {
            let asked = spoken(ttl).replace(' ', "");
            format!(
                ", this store's max_ttl; for more, all programs need ?max_ttl={asked} in the URL"
            )
        }
    };
    check_range(what, ttl, range, spoken)
        .map_err(|error| bad(format!("{}{advice}", error.detail())))
}

/// What the key of a name may not be: it could be one of those that stand beside locks.
const ONLY_OURS: &str = "begins with 'leasehold:', as only the keys do that are kept beside locks";

fn is_reserved(prefix: &[u8], name: &[u8]) -> bool {
    const OURS: &[u8] = b"leasehold:";
    prefix.iter().chain(name).take(OURS.len()).eq(OURS)
}

pub(crate) fn check_name(prefix: &[u8], name: &[u8]) -> Result<(), Error> {
    Err(bad(match name.len() {
        0 => "the name is empty".to_owned(),
        length if length > MAX_NAME => {
            format!("the name has {length} bytes; {MAX_NAME} is the most")
        }
        _ if !is_reserved(prefix, name) => return Ok(()),
        _ if prefix.is_empty() => format!("the name {ONLY_OURS}"),
        _ => format!("the name, behind the prefix, {ONLY_OURS}"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::drift;

    #[test]
    fn a_ttl_must_leave_validity() {
        for good in [3, 100, 30_000, 86_400_000, 366 * 86_400_000] {
            check_ttl(Duration::from_millis(good), MAX_TTL).unwrap();
        }
        for bad in [Duration::ZERO, Duration::from_micros(2999), MAX_TTL + MIN_TTL] {
            assert!(check_ttl(bad, MAX_TTL).unwrap_err().to_string().contains("3 ms to 366 d"));
        }
        let most = Duration::from_secs(10);
        check_ttl(most, most).unwrap();
        let said = check_ttl(most + MIN_TTL, most).unwrap_err().to_string();
        assert!(
            said.contains("10.003 s") && said.contains("3 ms to 10 s, this store's max_ttl"),
            "{said}"
        );
        // Stores count whole milliseconds, and nobody relies on the rest.
        assert!(MIN_TTL > drift(MIN_TTL));
        let less = MIN_TTL - Duration::from_millis(1);
        assert!(less <= drift(less));
    }

    #[test]
    fn names_hold_any_bytes_up_to_the_limit() {
        let check = |name: &[u8]| check_name(b"", name);
        check(b"a{b}\0\xff").unwrap();
        check(&vec![b'x'; MAX_NAME]).unwrap();
        assert!(check(b"").is_err());
        assert!(check(&vec![b'x'; MAX_NAME + 1]).is_err());
    }

    #[test]
    fn no_name_is_a_key_that_stands_beside_locks() {
        for (prefix, name) in [
            ("", "leasehold:{x}"),
            ("", "leasehold:"),
            ("lease", "hold:marker"),
            ("l", "easehold:a"),
        ] {
            let refused = check_name(prefix.as_bytes(), name.as_bytes()).unwrap_err();
            assert!(refused.to_string().contains("'leasehold:'"), "{refused}");
        }
        for (prefix, name) in [("", "leasehold"), ("a:", "leasehold:{x}"), ("", "Leasehold:x")] {
            check_name(prefix.as_bytes(), name.as_bytes()).unwrap();
        }
    }
}
