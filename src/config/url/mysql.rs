//! URLs of MySQL and MariaDB. Parameters have the names of the options of their own programs.

use std::path::PathBuf;

use super::tls::{Modes, files};
use super::{Parts, server, text};
use crate::config::{Access, Address, MysqlConfig, TlsConfig, TlsWords, Trust, bad};
use crate::error::Error;

const PORT: u16 = 3306;

const MODES: Modes = Modes {
    key: "ssl-mode",
    off: "disabled",
    on: [
        ("required", Trust::Anybody),
        ("verify_ca", Trust::Authority),
        ("verify_identity", Trust::Host),
    ],
    by_chance: &["preferred"],
};

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
    let mode = parts.take(MODES.key, text)?.map(|mode| mode.to_ascii_lowercase());
    let mode = mode.as_deref().unwrap_or(MODES.off);
    let files = files(parts, &TlsWords::MYSQL)?;
    if mode == "required" && files.ca.is_some() {
        return Err(bad("ssl-mode=required trusts anybody, whatever ssl-ca= says: write \
             verify_identity, or verify_ca"));
    }
    MODES.read(mode, files)
}
