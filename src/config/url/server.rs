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
    let mut redis = match scheme {
        "redis" | "rediss" => one(authority(scheme, body)?, tls(scheme, is_tls, query)?)?,
        "redis+sentinel" | "rediss+sentinel" => {
            sentinel(authority(scheme, body)?, scheme, is_tls, query)?
        }
        "redis+cluster" | "rediss+cluster" => {
            cluster(authority(scheme, body)?, tls(scheme, is_tls, query)?)?
        }
        "unix" | "redis+unix" => socket(body, query)?,
        _ => return Ok(None),
    };
    redis.replicas = query.count("replicas")?.unwrap_or(0);
    check_replicas(redis.replicas)?;
    Ok(Some(redis))
}

fn authority<'a>(scheme: &str, body: &'a str) -> Result<&'a str, Error> {
    body.strip_prefix("//").ok_or_else(|| bad(format!("after '{scheme}:' comes '//' and a host")))
}

/// `[user[:password]@]host[:port][/database]`
fn one(text: &str, tls: Option<TlsConfig>) -> Result<RedisConfig, Error> {
    let (text, path) = text.split_once('/').unwrap_or((text, ""));
    let (credentials, place) = apart(text);
    if place.contains(',') {
        return Err(bad("this URL has one host; several are for redis+sentinel and \
             redis+cluster, and a quorum has a whole URL after each comma, as in \
             redis://a,redis://b,redis://c"));
    }
    let (user, password) = who(credentials)?;
    let database = if path.is_empty() { 0 } else { database(path)? };
    Ok(RedisConfig {
        servers: Servers::One(address(place, REDIS_PORT)?),
        access: Access { tls, user, password, database },
        replicas: 0,
    })
}

/// `[user[:password]@]host[:port][,host...]/master[/database]`
fn sentinel(
    text: &str,
    scheme: &str,
    is_tls: bool,
    query: &mut Query,
) -> Result<RedisConfig, Error> {
    let (text, path) = text.split_once('/').unwrap_or((text, ""));
    let (master, path) = path.split_once('/').unwrap_or((path, ""));
    let master = decode("master", master)?;
    if master.is_empty() {
        return Err(bad("the URL does not say what the Sentinels call the master, as in \
             redis+sentinel://host/mymaster"));
    }
    let (user, password, hosts) = hosts(text, SENTINEL_PORT)?;
    let database = if path.is_empty() { 0 } else { database(path)? };
    let theirs = (query.text("sentinel_user")?, query.text("sentinel_password")?);
    if theirs.0.is_some() && theirs.1.is_none() {
        return Err(bad("'sentinel_user' needs a 'sentinel_password'"));
    }
    let is_theirs_tls = query.switch("sentinel_tls")?.unwrap_or(is_tls);
    let tls = tls(scheme, is_tls || is_theirs_tls, query)?;
    let of_sentinels = Access {
        tls: tls.clone().filter(|_| is_theirs_tls),
        user: theirs.0,
        password: theirs.1.map(Secret::new),
        database: 0,
    };
    Ok(RedisConfig {
        servers: Servers::Sentinel(SentinelConfig { hosts, master, access: of_sentinels }),
        access: Access { tls: tls.filter(|_| is_tls), user, password, database },
        replicas: 0,
    })
}

/// `[user[:password]@]host[:port][,host...][/0]`
fn cluster(text: &str, tls: Option<TlsConfig>) -> Result<RedisConfig, Error> {
    let (text, path) = text.split_once('/').unwrap_or((text, ""));
    if !path.is_empty() && database(path)? != 0 {
        return Err(bad("a Cluster has only database 0"));
    }
    let (user, password, hosts) = hosts(text, REDIS_PORT)?;
    Ok(RedisConfig {
        servers: Servers::Cluster(hosts),
        access: Access { tls, user, password, database: 0 },
        replicas: 0,
    })
}

/// `///path/to/socket`
fn socket(body: &str, query: &mut Query) -> Result<RedisConfig, Error> {
    let path = super::file_path(body)?
        .ok_or_else(|| bad("the URL has no socket path; write unix:///path/to/socket"))?;
    let access = Access {
        tls: None,
        user: query.text("user")?,
        password: query.text("password")?.map(Secret::new),
        database: query.text("db")?.map_or(Ok(0), |text| database(&text))?,
    };
    if access.user.is_some() && access.password.is_none() {
        return Err(bad("'user' needs a 'password'"));
    }
    Ok(RedisConfig { servers: Servers::One(Address::Unix(path)), access, replicas: 0 })
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

/// The credentials, if there are any, and what they are for.
fn apart(text: &str) -> (Option<&str>, &str) {
    text.rsplit_once('@').map_or((None, text), |(credentials, place)| (Some(credentials), place))
}

/// `user:password`, `:password`, or nobody
fn who(credentials: Option<&str>) -> Result<(Option<String>, Option<Secret>), Error> {
    let Some(credentials) = credentials else { return Ok((None, None)) };
    let (user, password) = match credentials.split_once(':') {
        Some((user, password)) => (user, Some(Secret::new(decode("password", password)?))),
        None => (credentials, None),
    };
    let user = Some(decode("user", user)?).filter(|user| !user.is_empty());
    if user.is_some() && password.is_none() {
        return Err(bad("the URL names a user and no password"));
    }
    Ok((user, password))
}

type Hosts = (Option<String>, Option<Secret>, Vec<Address>);

/// `[user[:password]@]host[:port][,host...]`
fn hosts(text: &str, default_port: u16) -> Result<Hosts, Error> {
    let (credentials, places) = apart(text);
    // Else the hosts before the last '@' would silently be a part of the password.
    if credentials.is_some_and(|credentials| credentials.contains('@')) {
        return Err(bad("the URL has several '@'; the user and the password stand once, before \
             the first host, and a '@' in a password is written as %40"));
    }
    let (user, password) = who(credentials)?;
    let mut hosts = Vec::new();
    for place in places.split(',') {
        let host = address(place, default_port)?;
        if hosts.contains(&host) {
            return Err(bad("the URL names a host twice"));
        }
        hosts.push(host);
    }
    Ok((user, password, hosts))
}

/// `host`, `host:port`, `[::1]` or `[::1]:port`
fn address(place: &str, default_port: u16) -> Result<Address, Error> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest
                .split_once(']')
                .ok_or_else(|| bad("the URL's IPv6 address has no closing ']'"))?;
            let port = match after {
                "" => None,
                _ => Some(
                    after
                        .strip_prefix(':')
                        .ok_or_else(|| bad("after an IPv6 address comes ':' and a port"))?,
                ),
            };
            (host, port)
        }
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
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
