//! URLs of PostgreSQL, as libpq reads them where that suits a lock.

use std::path::PathBuf;
use std::time::Duration;

use super::tls::{Modes, files};
use super::{Parts, count, server, text};
use crate::config::{
    Access, Address, ChannelBinding, PostgresConfig, Secret, TlsConfig, TlsWords, Trust, bad,
};
use crate::error::Error;

const PORT: u16 = 5432;

const MODES: Modes = Modes {
    key: "sslmode",
    off: "disable",
    on: [
        ("require", Trust::Anybody),
        ("verify-ca", Trust::Authority),
        ("verify-full", Trust::Host),
    ],
    by_chance: &["allow", "prefer"],
};

pub(super) fn read(parts: &mut Parts<'_>) -> Result<PostgresConfig, Error> {
    let (mut access, places, path) = server::authority(parts, false)?;
    credentials(parts, &mut access)?;
    if access.user.is_none() {
        return Err(bad(
            "the URL names no user; write postgres://user@host/database, or user:password@",
        ));
    }
    let hosts = hosts(parts, places)?;
    let database = Some(server::decode("database", path)?).filter(|name| !name.is_empty());
    let database = once("database", database, parts.take("dbname", text)?)?;
    let database = database.or_else(|| access.user.clone());
    access.tls = tls(parts)?;
    let fallback = parts.take("fallback_application_name", text)?;
    let application = parts.take("application_name", text)?.or(fallback);
    let options = parts.take("options", text)?;
    for (what, value) in [
        ("user", access.user.as_deref()),
        ("password", access.password.as_ref().map(|password| &*password.0)),
        ("database", database.as_deref()),
        ("application_name", application.as_deref()),
        ("options", options.as_deref()),
    ] {
        if value.is_some_and(|value| value.contains('\0')) {
            return Err(bad(format!(
                "the URL's {what} has a %00, which PostgreSQL has no room for"
            )));
        }
    }
    parts.take("target_session_attrs", |value| match &*value {
        b"read-write" | b"primary" => Ok(()),
        _ => Err(bad("locks are written: it is read-write, with or without saying so")),
    })?;
    parts.take("gssencmode", |value| match &*value {
        b"disable" => Ok(()),
        _ => Err(bad("nothing is encrypted by Kerberos here: it is disable, or not said")),
    })?;
    const COMMITS: [&str; 5] = ["on", "off", "local", "remote_write", "remote_apply"];
    let synchronous_commit = parts.take("synchronous_commit", |value| {
        let known = COMMITS.into_iter().find(|known| known.as_bytes() == value);
        known.ok_or_else(|| bad(format!("it is one of {}", COMMITS.join(", "))))
    })?;
    let seconds = parts.take("connect_timeout", |value| {
        count(value)
            .map_err(|_| bad("it is a whole number of seconds, and 0 for none, as in libpq"))
    })?;
    let connect_timeout = seconds.filter(|seconds| *seconds > 0);
    Ok(PostgresConfig {
        hosts,
        channel_binding: channel_binding(parts, &access)?,
        access,
        options,
        connect_timeout: connect_timeout.map(|seconds| Duration::from_secs(seconds.into())),
        database: database.unwrap_or_default(),
        application: application.unwrap_or_else(|| "leasehold".to_owned()),
        synchronous_commit,
    })
}

/// What stands before the host can stand behind the '?' as well.
fn credentials(parts: &mut Parts<'_>, access: &mut Access) -> Result<(), Error> {
    access.user = once("user", access.user.take(), parts.take("user", text)?)?;
    let password = parts.take("password", text)?.map(Secret);
    access.password = once("password", access.password.take(), password)?;
    server::check_password(access)
}

fn once<T>(what: &str, one: Option<T>, other: Option<T>) -> Result<Option<T>, Error> {
    match (one, other) {
        (Some(_), Some(_)) => {
            Err(bad(format!("the URL has its {what} twice: behind the '?', too")))
        }
        (one, other) => Ok(one.or(other)),
    }
}

fn hosts(parts: &mut Parts<'_>, places: &str) -> Result<Vec<Address>, Error> {
    let named = parts.take("host", text)?;
    let port = parts.take("port", |value| match count(value)?.try_into() {
        Ok(port @ 1..) => Ok::<u16, Error>(port),
        _ => Err(bad("it goes from 1 to 65535, and counts for all hosts of host=")),
    })?;
    match (&named, port) {
        (Some(_), _) if !places.is_empty() => {
            return Err(bad("the URL names two places: before the database, and in host="));
        }
        (None, Some(_)) if !places.is_empty() => {
            return Err(bad("a port stands behind its host, as in postgres://user@host:5433/db"));
        }
        _ => {}
    }
    let places = named.as_deref().unwrap_or(places);
    let hosts = server::hosts(parts.scheme, places, port.unwrap_or(PORT))?;
    Ok(hosts.into_iter().map(or_socket).collect())
}

fn channel_binding(parts: &mut Parts<'_>, access: &Access) -> Result<ChannelBinding, Error> {
    let binding = parts.take("channel_binding", |value| match &*value {
        b"disable" => Ok(ChannelBinding::Never),
        b"prefer" => Ok(ChannelBinding::Preferred),
        b"require" if access.tls.is_none() => {
            Err(bad(format!("it is for TLS: {}", TlsWords::POSTGRES.on)))
        }
        b"require" => Ok(ChannelBinding::Always),
        _ => Err(bad("it is disable, prefer or require")),
    })?;
    Ok(binding.unwrap_or_default())
}

/// A host that is a path, as in `%2Frun%2Fpostgresql`, is the folder of a unix socket.
fn or_socket(host: Address) -> Address {
    match host {
        Address::Tcp { host, port } if host.starts_with('/') => socket_in(&host, port),
        host => host,
    }
}

fn socket_in(folder: &str, port: u16) -> Address {
    Address::Unix(PathBuf::from(format!("{folder}/.s.PGSQL.{port}")))
}

fn tls(parts: &mut Parts<'_>) -> Result<Option<TlsConfig>, Error> {
    let mode = parts.take(MODES.key, text)?;
    let mut files = files(parts, &TlsWords::POSTGRES)?;
    // The authorities that this machine trusts, which anybody's certificate is from.
    let is_system = files.ca.take_if(|ca| ca.as_os_str() == "system").is_some();
    let otherwise = if is_system { "verify-full" } else { MODES.off };
    let mode = mode.as_deref().unwrap_or(otherwise);
    if is_system && mode != "verify-full" {
        return Err(bad("sslrootcert=system goes with sslmode=verify-full, or without one"));
    }
    // As libpq has it.
    let mode = if mode == "require" && files.ca.is_some() { "verify-ca" } else { mode };
    MODES.read(mode, files)
}
