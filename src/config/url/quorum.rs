//! URLs of several independent stores, of which a majority grants a lock.

use std::net::IpAddr;

use super::{Parts, server};
use crate::config::{Address, Config, RedisConfig, Servers, StoreConfig, bad};
use crate::error::Error;

const SCHEMES: &str = "redis rediss unix redis+unix redis+sentinel rediss+sentinel redis+cluster \
     rediss+cluster sqlite";
/// More than anybody asks for each lock.
const MOST_MEMBERS: usize = 31;

/// The URLs in a string: a comma stands between two where a scheme follows it. A host may have the
/// name of one, as in `redis+sentinel://sentinel,redis:26379/main`, but then a port comes next.
pub(super) fn split(urls: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (comma, _) in urls.match_indices(',') {
        let begins = urls[comma + 1..].split_once(':').is_some_and(|(scheme, rest)| {
            SCHEMES.split(' ').any(|known| known == scheme)
                && !rest.starts_with(|next: char| next.is_ascii_digit())
        });
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
    check_count(count)?;
    let (mut members, mut settings) = (Vec::new(), None);
    for (place, url) in (1..).zip(urls) {
        let named = |error: Error| bad(format!("URL {place} of {count}: {}", error.detail()));
        let mut parts = Parts::read(url).map_err(named)?;
        members.push(member(&mut parts).map_err(named)?);
        if place < count {
            if let Some(key) = parts.query.setting() {
                let misplaced = format!("'{key}' concerns the whole quorum; the last URL has it");
                return Err(named(bad(misplaced)));
            }
            parts.query.finish(parts.scheme).map_err(named)?;
        }
        settings = Some(parts);
    }
    check_apart(&members)?;
    let config = Config::new(StoreConfig::Quorum(members));
    match settings {
        Some(parts) => parts.settle(config),
        None => Ok(config),
    }
}

fn check_count(count: usize) -> Result<(), Error> {
    if count > MOST_MEMBERS {
        return Err(bad(format!("a quorum of {count}; {MOST_MEMBERS} members are the most")));
    }
    if count.is_multiple_of(2) {
        return Err(bad(format!(
            "a quorum of {count} grants nothing once {} of them are down, no better than {}: give \
             an odd number of URLs",
            count / 2,
            match count {
                2 => "a single server".to_owned(),
                _ => format!("one of {}", count - 1),
            },
        )));
    }
    Ok(())
}

fn member(parts: &mut Parts<'_>) -> Result<RedisConfig, Error> {
    if parts.scheme == "sqlite" {
        return Err(bad("a file is of one machine; the members of a quorum are servers"));
    }
    server::read(parts)?.ok_or_else(super::unknown_scheme)
}

/// Refuses members that would vote twice.
fn check_apart(members: &[RedisConfig]) -> Result<(), Error> {
    for (before, member) in members.iter().enumerate() {
        if let Some(same) = members[..before].iter().position(|other| is_same(other, member)) {
            return Err(bad(format!(
                "URLs {} and {} of {} lead to the same server (databases of one server are one \
                 server): it would vote twice",
                same + 1,
                before + 1,
                members.len(),
            )));
        }
    }
    Ok(())
}

fn is_same(one: &RedisConfig, other: &RedisConfig) -> bool {
    let meet = |one: &[Address], other: &[Address]| {
        one.iter().any(|address| other.iter().any(|also| place(address) == place(also)))
    };
    match (&one.servers, &other.servers) {
        (Servers::Sentinel(one), Servers::Sentinel(other)) => {
            one.master == other.master && meet(&one.hosts, &other.hosts)
        }
        (Servers::Sentinel(_), _) | (_, Servers::Sentinel(_)) => false,
        (one, other) => meet(stores(one), stores(other)),
    }
}

/// The servers that keep locks, as far as they are named.
fn stores(servers: &Servers) -> &[Address] {
    match servers {
        Servers::One(address) => std::slice::from_ref(address),
        Servers::Cluster(seeds) => seeds,
        Servers::Sentinel(_) => &[],
    }
}

/// An address in the one way in which it is compared, however it was written.
fn place(address: &Address) -> Address {
    let Address::Tcp { host, port } = address else { return address.clone() };
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let host = match host.parse::<IpAddr>() {
        Ok(ip) => ip.to_canonical().to_string(),
        Err(_) if host == "localhost" => "127.0.0.1".to_owned(),
        Err(_) => host,
    };
    Address::Tcp { host, port: *port }
}
