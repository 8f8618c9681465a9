//! URLs of servers: one Redis, however many servers it consists of.

use super::Parts;
use super::query::Query;
use crate::config::{
    Access, Address, RedisConfig, Secret, SentinelConfig, Servers, TlsConfig, bad, check_replicas,
};
use crate::error::Error;

const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// The servers that a URL names; `None` for a scheme that has none.
pub(super) fn read(parts: &mut Parts<'_>) -> Result<Option<RedisConfig>, Error> {
    let (scheme, body, query) = (parts.scheme, parts.body, &mut parts.query);
    let is_tls = scheme.starts_with("rediss");
    let (servers, access) = match scheme {
        "redis" | "rediss" => {
            let (credentials, place, path) = authority(scheme, body)?;
            if place.contains(',') {
                return Err(bad("this URL has one host; several are for redis+sentinel and \
                     redis+cluster, and a quorum has a whole URL after each comma, as in \
                     redis://a,redis://b,redis://c"));
            }
            let access = access(tls(scheme, is_tls, query)?, credentials, path)?;
            (Servers::One(address(place, REDIS_PORT)?), access)
        }
        "redis+sentinel" | "rediss+sentinel" => sentinel(scheme, body, is_tls, query)?,
        "redis+cluster" | "rediss+cluster" => {
            let (credentials, places, path) = authority(scheme, body)?;
            let hosts = hosts(credentials, places, REDIS_PORT)?;
            let access = access(tls(scheme, is_tls, query)?, credentials, path)?;
            if access.database != 0 {
                return Err(bad("a Cluster has only database 0"));
            }
            (Servers::Cluster(hosts), access)
        }
        "unix" | "redis+unix" => socket(body, query)?,
        _ => return Ok(None),
    };
    let replicas = query.count("replicas")?.unwrap_or(0);
    check_replicas(replicas)?;
    Ok(Some(RedisConfig { servers, access, replicas }))
}

/// `//[credentials@]places[/path]`, taken apart.
fn authority<'a>(
    scheme: &str,
    body: &'a str,
) -> Result<(Option<&'a str>, &'a str, &'a str), Error> {
    let text = body
        .strip_prefix("//")
        .ok_or_else(|| bad(format!("after '{scheme}:' comes '//' and a host")))?;
    let (text, path) = text.split_once('/').unwrap_or((text, ""));
    Ok(match text.rsplit_once('@') {
        Some((credentials, places)) => (Some(credentials), places, path),
        None => (None, text, path),
    })
}

/// `[user[:password]@]host[:port][,host...]/master[/database]`
fn sentinel(
    scheme: &str,
    body: &str,
    is_tls: bool,
    query: &mut Query,
) -> Result<(Servers, Access), Error> {
    let (credentials, places, path) = authority(scheme, body)?;
    let (master, path) = path.split_once('/').unwrap_or((path, ""));
    let master = decode("master", master)?;
    if master.is_empty() {
        return Err(bad("the URL does not say what the Sentinels call the master, as in \
             redis+sentinel://host/mymaster"));
    }
    let hosts = hosts(credentials, places, SENTINEL_PORT)?;
    let is_theirs_tls = query.switch("sentinel_tls")?.unwrap_or(is_tls);
    let tls = tls(scheme, is_tls || is_theirs_tls, query)?;
    let mut of_sentinels = named(query, "sentinel_user", "sentinel_password")?;
    of_sentinels.tls = tls.clone().filter(|_| is_theirs_tls);
    let access = access(tls.filter(|_| is_tls), credentials, path)?;
    Ok((Servers::Sentinel(SentinelConfig { hosts, master, access: of_sentinels }), access))
}

/// `///path/to/socket`
fn socket(body: &str, query: &mut Query) -> Result<(Servers, Access), Error> {
    let path = super::file_path(body)?
        .ok_or_else(|| bad("the URL has no socket path; write unix:///path/to/socket"))?;
    let mut access = named(query, "user", "password")?;
    access.database = query.text("db")?.map_or(Ok(0), |text| database(&text))?;
    Ok((Servers::One(Address::Unix(path)), access))
}

/// The credentials that two parameters give.
fn named(query: &mut Query, user: &str, password: &str) -> Result<Access, Error> {
    let access = Access {
        user: query.text(user)?,
        password: query.text(password)?.map(Secret::new),
        ..Access::default()
    };
    if access.user.is_some() && access.password.is_none() {
        return Err(bad(format!("'{user}' needs a '{password}'")));
    }
    Ok(access)
}

fn tls(scheme: &str, is_on: bool, query: &mut Query) -> Result<Option<TlsConfig>, Error> {
    if !is_on {
        return Ok(None);
    }
    if cfg!(not(feature = "tls")) {
        return Err(bad(format!("{scheme} over TLS needs leasehold built with its feature 'tls'")));
    }
    let [ca, cert, key] = [query.path("ca")?, query.path("cert")?, query.path("key")?];
    if cert.is_some() != key.is_some() {
        return Err(bad("'cert' and 'key' go together"));
    }
    Ok(Some(TlsConfig { ca, cert, key }))
}

/// `user:password` or `:password` if there are any, and a database if there is one.
fn access(tls: Option<TlsConfig>, credentials: Option<&str>, path: &str) -> Result<Access, Error> {
    let mut access = Access { tls, ..Access::default() };
    if let Some(credentials) = credentials {
        let (user, password) = match credentials.split_once(':') {
            Some((user, password)) => (user, Some(Secret::new(decode("password", password)?))),
            None => (credentials, None),
        };
        access.user = Some(decode("user", user)?).filter(|user| !user.is_empty());
        access.password = password;
        if access.user.is_some() && access.password.is_none() {
            return Err(bad("the URL names a user and no password"));
        }
    }
    if !path.is_empty() {
        access.database = database(path)?;
    }
    Ok(access)
}

/// `host[:port][,host...]`
fn hosts(credentials: Option<&str>, places: &str, port: u16) -> Result<Vec<Address>, Error> {
    // Else the hosts before the last '@' would silently be a part of the password.
    if credentials.is_some_and(|credentials| credentials.contains('@')) {
        return Err(bad("the URL has several '@'; the user and the password stand once, before \
             the first host, and a '@' in a password is written as %40"));
    }
    let mut hosts = Vec::new();
    for place in places.split(',') {
        let host = address(place, port)?;
        if hosts.contains(&host) {
            return Err(bad("the URL names a host twice"));
        }
        hosts.push(host);
    }
    Ok(hosts)
}

/// `host`, `host:port`, `[::1]` or `[::1]:port`
fn address(place: &str, default_port: u16) -> Result<Address, Error> {
    let (host, port) = match place.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(None) => return Err(bad("the URL's IPv6 address has no closing ']'")),
        Some(Some((host, ""))) => (host, None),
        Some(Some((host, after))) => match after.strip_prefix(':') {
            None => return Err(bad("after an IPv6 address comes ':' and a port")),
            port => (host, port),
        },
        None => place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Err(bad("the URL has no host where one belongs; write for example \
             redis://127.0.0.1, and a '/' in a password as %2F"));
    }
    if host.contains([',', ' ', '\0']) {
        return Err(bad("the URL's host has a character that no host has"));
    }
    let port = match port {
        None => default_port,
        Some(port) => port
            .parse()
            .ok()
            .filter(|port| *port != 0)
            .ok_or_else(|| bad("the URL's port goes from 1 to 65535"))?,
    };
    Ok(Address::Tcp { host: decode("host", host)?, port })
}

fn database(text: &str) -> Result<u32, Error> {
    text.parse().map_err(|_| bad("the database is a whole number from 0, as in /2"))
}

fn decode(what: &str, text: &str) -> Result<String, Error> {
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
    decoded.map(|text| text.into_owned()).map_err(|_| bad(format!("the URL's {what} is not UTF-8")))
}
