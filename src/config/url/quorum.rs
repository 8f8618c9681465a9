//! URLs of several independent stores, of which a majority grants a lock.

use std::net::IpAddr;

use super::scheme::{self, Kind};
use super::{Parts, server};
use crate::config::{Address, Config, RedisConfig, Servers, StoreConfig, bad};
use crate::error::Error;

/// More than anybody asks for each lock.
const MOST_MEMBERS: usize = 31;

/// The URLs in a string: a comma stands between two where a scheme follows it. A host may have the
/// name of one, as in `redis+sentinel://sentinel,redis:26379/main`, but then a port comes next.
pub(in crate::config) fn split(urls: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (comma, _) in urls.match_indices(',') {
        let begins = scheme::split(&urls[comma + 1..])
            .is_some_and(|(_, rest)| !rest.starts_with(|next: char| next.is_ascii_digit()));
        if begins {
            parts.push(&urls[start..comma]);
            start = comma + 1;
        }
    }
    parts.push(&urls[start..]);
    parts
}

pub(super) fn read(urls: &[&str]) -> Result<Config, Error> {
    let count = urls.len();
    let (mut members, mut last) = (Vec::new(), None);
    for (place, url) in (1..).zip(urls) {
        let (member, parts) = member(url, place == count)
            .map_err(|error| error.at(format_args!("URL {place} of {count}")))?;
        members.push(member);
        last = Some(parts);
    }
    let last = last.ok_or_else(|| bad("there is no URL"))?;
    if count > MOST_MEMBERS {
        return Err(bad(format!("a quorum of {count}; {MOST_MEMBERS} members are the most")));
    }
    if count.is_multiple_of(2) {
        return Err(bad(match count {
            2 => "a quorum of 2 grants nothing once one of them is down, no better than a single \
                  server: give one URL, or three, as in redis://a,redis://b,redis://c"
                .to_owned(),
            _ => format!(
                "a quorum of {count} grants nothing once {} of them are down, no better than one \
                 of {}: give {1} URLs or {}",
                count / 2,
                count - 1,
                count + 1,
            ),
        }));
    }
    check_apart(&members)?;
    last.settle(Config::new(StoreConfig::Quorum(members)))
}

fn member(url: &str, is_last: bool) -> Result<(RedisConfig, Parts<'_>), Error> {
    let mut parts = Parts::read(url)?;
    let form = match parts.kind {
        Kind::Redis(form) => form,
        Kind::Sqlite => {
            return Err(bad("a file is of one machine; the members of a quorum are servers"));
        }
        Kind::Etcd => {
            return Err(bad(
                "the members of a quorum are Redis servers; those of an etcd stand in one URL, \
                 as in etcd://a,b,c",
            ));
        }
        Kind::Memory | Kind::Postgres | Kind::Mysql | Kind::Zookeeper => {
            return Err(bad("the members of a quorum are Redis servers"));
        }
    };
    let member = server::read(&mut parts, form)?;
    if !is_last {
        parts.finish()?;
    }
    Ok((member, parts))
}

/// Refuses members that would vote twice.
fn check_apart(members: &[RedisConfig]) -> Result<(), Error> {
    let places: Vec<_> = members.iter().map(places).collect();
    for (last, of_last) in places.iter().enumerate() {
        let is_same = |other: &Vec<_>| other.iter().any(|place| of_last.contains(place));
        if let Some(first) = places[..last].iter().position(is_same) {
            return Err(bad(format!(
                "URLs {} and {} of {} lead to the same server (databases of one server are one \
                 server): it would vote twice",
                first + 1,
                last + 1,
                members.len(),
            )));
        }
    }
    Ok(())
}

/// Where a member is found: addresses, each with what Sentinels there call the master.
fn places(member: &RedisConfig) -> Vec<(&str, Address)> {
    let (master, hosts) = match &member.servers {
        Servers::One(address) => ("", std::slice::from_ref(address)),
        Servers::Cluster(hosts) => ("", hosts.as_slice()),
        Servers::Sentinel(sentinels) => (sentinels.master.as_str(), sentinels.hosts.as_slice()),
    };
    hosts.iter().map(|host| (master, alike(host))).collect()
}

/// An address in the one way in which it is compared, however it was written.
fn alike(address: &Address) -> Address {
    let Address::Tcp { host, port } = address else { return address.clone() };
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let host = match host.parse::<IpAddr>() {
        Ok(ip) => ip.to_canonical().to_string(),
        Err(_) if host == "localhost" => "127.0.0.1".to_owned(),
        Err(_) => host,
    };
    Address::Tcp { host, port: *port }
}
