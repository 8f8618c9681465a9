//! URLs of MySQL and MariaDB. Parameters have the names of the options of their own programs.

use std::path::PathBuf;

use super::{Parts, server, text};
use crate::config::{Access, Address, MysqlConfig, TlsConfig, Trust, bad};
use crate::error::Error;

const PORT: u16 = 3306;

pub(super) fn read(parts: &mut Parts<'_>) -> Result<MysqlConfig, Error> {
    let (access, places, path) = server::authority(parts, false)?;
    if access.user.is_none() {
        return Err(bad(
            "the URL names no user; write mysql://user@host/database, or user:password@",
        ));
    }
    let socket = parts.take("socket", |value| match text(value)? {
        path if path.starts_with('/') => Ok(Address::Unix(PathBuf::from(path))),
        _ => Err(bad("it is the path of a unix socket, as in ?socket=/run/mysqld/mysqld.sock")),
    })?;
    let hosts = match socket {
        Some(socket) if places.is_empty() => vec![socket],
        Some(_) => {
            return Err(bad("the URL names two places: before the database, and in socket="));
        }
        None => server::hosts(parts.scheme, places, PORT)?.into_iter().map(or_socket).collect(),
    };
    let database = server::decode("database", path)?;
    if database.is_empty() {
        return Err(bad("the URL names no database, as in mysql://user@host/database"));
    }
    let credentials = [access.user.as_deref(), Some(&*database)];
    if credentials.iter().flatten().any(|part| part.contains('\0')) {
        return Err(bad(
            "a user's or database's name has a zero byte (%00), which no server allows",
        ));
    }
    let tls = tls(parts)?;
    Ok(MysqlConfig { hosts, access: Access { tls, ..access }, database })
}

/// A host that is a path, as in `%2Frun%2Fmysqld%2Fmysqld.sock`, is a unix socket.
fn or_socket(host: Address) -> Address {
    match host {
        Address::Tcp { host, .. } if host.starts_with('/') => Address::Unix(PathBuf::from(host)),
        host => host,
    }
}

fn tls(parts: &mut Parts<'_>) -> Result<Option<TlsConfig>, Error> {
    let mode = parts.take("ssl-mode", text)?.map(|mode| mode.to_ascii_lowercase());
    let mut file = |key| parts.take(key, |value| text(value).map(PathBuf::from));
    let (ca, cert, key) = (file("ssl-ca")?, file("ssl-cert")?, file("ssl-key")?);
    if cert.is_some() != key.is_some() {
        return Err(bad("'ssl-cert' and 'ssl-key' go together"));
    }
    let trust = match mode.as_deref().unwrap_or("disabled") {
        "disabled" if ca.is_some() || cert.is_some() => {
            return Err(bad("certificates are for TLS: write ssl-mode=verify_identity"));
        }
        "disabled" => return Ok(None),
        "required" if ca.is_some() => {
            return Err(bad("ssl-mode=required trusts anybody, whatever ssl-ca= says: write \
                 verify_identity, or verify_ca"));
        }
        "required" => Trust::Anybody,
        "verify_ca" => Trust::Authority,
        "verify_identity" => Trust::Host,
        "preferred" => {
            return Err(bad(
                "ssl-mode: who can disturb the connection chooses whether it is encrypted; write \
                 verify_identity, or disabled",
            ));
        }
        _ => return Err(bad("ssl-mode: it is disabled, required, verify_ca or verify_identity")),
    };
    if cfg!(not(feature = "tls")) {
        return Err(bad("ssl-mode: TLS needs leasehold built with its feature 'tls'"));
    }
    Ok(Some(TlsConfig { ca, cert, key, trust }))
}
