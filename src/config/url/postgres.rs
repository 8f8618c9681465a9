//! URLs of PostgreSQL, as libpq reads them where that suits a lock.

use std::path::PathBuf;

use super::{Parts, server, text};
use crate::config::{Address, PostgresConfig, TlsConfig, Trust, bad};
use crate::error::Error;

const PORT: u16 = 5432;

pub(super) fn read(parts: &mut Parts<'_>) -> Result<PostgresConfig, Error> {
    let (mut access, places, path) = server::authority(parts, false)?;
    if access.user.is_none() {
        return Err(bad(
            "the URL names no user; write postgres://user@host/database, or user:password@",
        ));
    }
    let socket = parts.take("host", |value| match text(value)? {
        folder if folder.starts_with('/') => Ok(folder),
        _ => {
            Err(bad("it is the folder of a unix socket, as in ?host=/run/postgresql; other hosts \
             stand before the database"))
        }
    })?;
    let hosts = match socket {
        Some(folder) if places.is_empty() => vec![socket_in(&folder, PORT)],
        Some(_) => return Err(bad("the URL names two places: before the database, and in host=")),
        None => server::hosts(places, PORT)?.into_iter().map(or_socket).collect(),
    };
    let database = server::decode("database", path)?;
    let database = Some(database).filter(|name| !name.is_empty()).or_else(|| access.user.clone());
    access.tls = tls(parts)?;
    let application = parts.take("application_name", text)?;
    for (what, value) in [
        ("user", access.user.as_deref()),
        ("password", access.password.as_ref().map(|password| &*password.0)),
        ("database", database.as_deref()),
        ("application_name", application.as_deref()),
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
    const COMMITS: [&str; 5] = ["on", "off", "local", "remote_write", "remote_apply"];
    let synchronous_commit = parts.take("synchronous_commit", |value| {
        let known = COMMITS.into_iter().find(|known| known.as_bytes() == value);
        known.ok_or_else(|| bad(format!("it is one of {}", COMMITS.join(", "))))
    })?;
    Ok(PostgresConfig {
        hosts,
        access,
        database: database.unwrap_or_default(),
        application: application.unwrap_or_else(|| "leasehold".to_owned()),
        synchronous_commit,
    })
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
    let mode = parts.take("sslmode", text)?;
    let mode = mode.as_deref().unwrap_or("disable");
    let mut file = |key| parts.take(key, |value| text(value).map(PathBuf::from));
    let (ca, cert, key) = (file("sslrootcert")?, file("sslcert")?, file("sslkey")?);
    if cert.is_some() != key.is_some() {
        return Err(bad("'sslcert' and 'sslkey' go together"));
    }
    let trust = match mode {
        "disable" if ca.is_some() || cert.is_some() => {
            return Err(bad("certificates are for TLS: write sslmode=verify-full"));
        }
        "disable" => return Ok(None),
        // As libpq has it.
        "require" if ca.is_none() => Trust::Anybody,
        "require" | "verify-ca" => Trust::Authority,
        "verify-full" => Trust::Host,
        "allow" | "prefer" => {
            return Err(bad(
                "sslmode: who can disturb the connection chooses whether it is encrypted; write \
                 verify-full, or disable",
            ));
        }
        _ => return Err(bad("sslmode: it is disable, require, verify-ca or verify-full")),
    };
    if cfg!(not(feature = "tls")) {
        return Err(bad("sslmode: TLS needs leasehold built with its feature 'tls'"));
    }
    Ok(Some(TlsConfig { ca, cert, key, trust }))
}
