//! URLs of servers: one Redis, however many servers it consists of.

use std::path::PathBuf;

use super::scheme::Form;
use super::tls::by_switch;
use super::{Parts, count, switch, text};
use crate::config::check::check_range;
use crate::config::{
    Access, Address, RedisConfig, Secret, SecretCommand, SentinelConfig, Servers, TlsConfig,
    TlsWords, bad,
};
use crate::error::Error;

const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

pub(super) fn read(parts: &mut Parts<'_>, form: Form) -> Result<RedisConfig, Error> {
    let is_tls = parts.scheme.starts_with("rediss");
    let (servers, access) = match form {
        Form::Host => {
            let (access, place, path) = authority(parts, true)?;
            if place.contains(',') {
                return Err(bad("this URL has one host; several are for redis+sentinel and \
                     redis+cluster, and a quorum has a whole URL after each comma, as in \
                     redis://a,redis://b,redis://c"));
            }
            let (tls, database) = (tls(parts, is_tls)?, database(path)?);
            (
                Servers::One(address(parts.scheme, place, REDIS_PORT)?),
                Access { tls, database, ..access },
            )
        }
        Form::Cluster => {
            let (access, places, path) = authority(parts, true)?;
            if database(path)? != 0 {
                return Err(bad("a Cluster has only database 0"));
            }
            let tls = tls(parts, is_tls)?;
            (Servers::Cluster(hosts(parts.scheme, places, REDIS_PORT)?), Access { tls, ..access })
        }
        Form::Sentinel => sentinel(parts, is_tls)?,
        Form::Socket => {
            let path = super::file::path(parts.body)?
                .ok_or_else(|| bad("the URL has no socket path; write unix:///path/to/socket"))?;
            let access = named(parts, ["user", "password", "password_file", "password_command"])?;
            let database = parts.take("db", |value| database(&text(value)?))?.unwrap_or(0);
            (Servers::One(Address::Unix(path)), Access { database, ..access })
        }
    };
    let replicas = parts.take("replicas", count)?.unwrap_or(0);
    check_range("replicas", replicas, 0..=16, |count| count.to_string())?;
    Ok(RedisConfig { servers, access, replicas })
}

/// `[user[:password]@]host[:port][,host...]/master[/database]`
fn sentinel(parts: &mut Parts<'_>, is_tls: bool) -> Result<(Servers, Access), Error> {
    let (access, places, path) = authority(parts, true)?;
    let (master, path) = path.split_once('/').unwrap_or((path, ""));
    let master = decode("master", master)?;
    if master.is_empty() {
        return Err(bad("the URL does not say what the Sentinels call the master, as in \
             redis+sentinel://host/mymaster"));
    }
    let hosts = hosts(parts.scheme, places, SENTINEL_PORT)?;
    let is_theirs_tls = parts.take("sentinel_tls", switch)?.unwrap_or(is_tls);
    let tls = tls(parts, is_tls || is_theirs_tls)?;
    let theirs = Access {
        tls: tls.clone().filter(|_| is_theirs_tls),
        ..named(
            parts,
            [
                "sentinel_user",
                "sentinel_password",
                "sentinel_password_file",
                "sentinel_password_command",
            ],
        )?
    };
    let access = Access { tls: tls.filter(|_| is_tls), database: database(path)?, ..access };
    let sentinels = SentinelConfig { hosts, master, access: theirs };
    Ok((Servers::Sentinel(Box::new(sentinels)), access))
}

fn tls(parts: &mut Parts<'_>, is_on: bool) -> Result<Option<TlsConfig>, Error> {
    by_switch(parts, is_on, &TlsWords::REDIS)
}

/// `//[[user]:password@]places[/path]`, taken apart, with `password_file=` and `password_command=`.
/// `wants_password`: no user stands without one.
pub(super) fn authority<'a>(
    parts: &mut Parts<'a>,
    wants_password: bool,
) -> Result<(Access, &'a str, &'a str), Error> {
    let text = parts
        .body
        .strip_prefix("//")
        .ok_or_else(|| bad(format!("after '{}:' comes '//' and a host", parts.scheme)))?;
    let (text, path) = text.split_once('/').unwrap_or((text, ""));
    // Databases may have their host behind the '?'.
    if text.is_empty() && !path.is_empty() && !matches!(parts.scheme, "postgres" | "mysql") {
        let scheme = parts.scheme;
        return Err(bad(format!(
            "the URL has three slashes, and so no host: write two, as in {scheme}://127.0.0.1"
        )));
    }
    if path.contains('@') {
        return Err(bad(
            "the URL has a '/' before its last '@'; in a password it is written as %2F",
        ));
    }
    let in_place = Access {
        password_file: parts.take("password_file", file)?,
        password_command: parts.take("password_command", command)?,
        ..Access::default()
    };
    let Some((credentials, places)) = text.rsplit_once('@') else {
        check_password(&in_place)?;
        return Ok((in_place, text, path));
    };
    // Else the hosts before the last '@' would silently be a part of the password.
    if credentials.contains('@') && credentials.contains(',') {
        return Err(bad("the URL has several '@'; the user and the password stand once, before \
             the first host, and a '@' in a password is written as %40"));
    }
    let (user, password) = match credentials.split_once(':') {
        Some((user, password)) => (user, Some(Secret(decode("password", password)?))),
        None => (credentials, None),
    };
    let user = Some(decode("user", user)?).filter(|user| !user.is_empty());
    let access = Access { user, password, ..in_place };
    check_password(&access)?;
    if wants_password && access.user.is_some() && !access.has_password() {
        return Err(bad(
            "the URL names a user and no password (a credentials callback names its user \
             itself)",
        ));
    }
    Ok((access, places, path))
}

/// There is one at most.
pub(super) fn check_password(access: &Access) -> Result<(), Error> {
    let Access { password, password_file, password_command, .. } = access;
    let given = [
        password.as_ref().map(|_| "password"),
        password_file.as_ref().map(|_| "password_file"),
        password_command.as_ref().map(|_| "password_command"),
    ];
    match given.into_iter().flatten().collect::<Vec<_>>()[..] {
        [one, other, ..] => Err(bad(format!("the URL has a {one} and a {other}: leave one out"))),
        _ => Ok(()),
    }
}

fn file(value: Vec<u8>) -> Result<PathBuf, Error> {
    match text(value)? {
        path if path.is_empty() => Err(bad("it is the path of a file")),
        // A program may change its folder before it logs in again.
        path => std::path::absolute(path).map_err(|error| bad(format!("it is no path: {error}"))),
    }
}

fn command(value: Vec<u8>) -> Result<SecretCommand, Error> {
    SecretCommand::read(&text(value)?)
}

fn named(
    parts: &mut Parts<'_>,
    [user_key, password_key, file_key, command_key]: [&'static str; 4],
) -> Result<Access, Error> {
    let user = parts.take(user_key, text)?;
    let password = parts.take(password_key, text)?.map(Secret);
    let password_file = parts.take(file_key, file)?;
    let password_command = parts.take(command_key, command)?;
    let access = Access { user, password, password_file, password_command, ..Access::default() };
    check_password(&access)?;
    if access.user.is_some() && !access.has_password() {
        return Err(bad(format!(
            "'{user_key}' needs a '{password_key}', a '{file_key}' or a '{command_key}'"
        )));
    }
    Ok(access)
}

/// `host[:port][,host...]`
pub(super) fn hosts(scheme: &str, places: &str, port: u16) -> Result<Vec<Address>, Error> {
    let mut hosts = Vec::new();
    for place in places.split(',') {
        let host = address(scheme, place, port)?;
        if hosts.contains(&host) {
            return Err(bad("the URL names a host twice"));
        }
        hosts.push(host);
    }
    Ok(hosts)
}

/// `host`, `host:port`, `[::1]` or `[::1]:port`
fn address(scheme: &str, place: &str, default_port: u16) -> Result<Address, Error> {
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
        return Err(bad(format!(
            "the URL has no host where one belongs; write for example {scheme}://127.0.0.1, or \
             {scheme}://{}@127.0.0.1, with a '/' or '?' in the password as %2F or %3F",
            password(scheme)
        )));
    }
    if host.contains([',', ' ', '\0']) {
        return Err(bad("the URL's host has a character that no host has"));
    }
    if port == Some("") {
        return Err(bad(format!(
            "the URL has a ':' and no port behind it; write the port, or leave the ':' out for \
             {default_port}"
        )));
    }
    let port = port.map_or(Ok(default_port), str::parse).unwrap_or(0);
    if port == 0 {
        return Err(bad(format!(
            "the URL's port goes from 1 to 65535; a password stands before an '@', as in \
             {scheme}://{}@host",
            password(scheme)
        )));
    }
    Ok(Address::Tcp { host: decode("host", host)?, port })
}

/// How a password is written: only a Redis knows one without a user.
fn password(scheme: &str) -> &'static str {
    if scheme.starts_with("redis") { ":password" } else { "user:password" }
}

fn database(text: &str) -> Result<u32, Error> {
    let text = if text.is_empty() { "0" } else { text };
    text.parse().map_err(|_| bad("the database is a whole number from 0, as in /2"))
}

pub(super) fn decode(what: &str, text: &str) -> Result<String, Error> {
    let decoded = String::from_utf8(super::decode(what, text)?);
    decoded.map_err(|_| bad(format!("the URL's {what} is not UTF-8")))
}
