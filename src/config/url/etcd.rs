//! URLs of etcd: `etcd://[user:password@]host[:port][,host2]`, with TLS `etcds://`.

use super::tls::by_switch;
use super::{Parts, server};
use crate::config::{Access, EtcdConfig, TlsWords, bad};
use crate::error::Error;

const PORT: u16 = 2379;

pub(super) fn read(parts: &mut Parts<'_>) -> Result<EtcdConfig, Error> {
    let (access, places, path) = server::authority(parts, true)?;
    if access.user.is_none() && access.has_password() {
        return Err(bad("the URL names a password and no user; write etcd://user:password@host"));
    }
    if !path.is_empty() {
        return Err(bad(
            "an etcd has no databases: behind its hosts comes nothing, or '?'; for keys of \
             your own write ?prefix=",
        ));
    }
    let tls = by_switch(parts, parts.scheme == "etcds", &TlsWords::ETCD)?;
    Ok(EtcdConfig {
        hosts: server::hosts(parts.scheme, places, PORT)?,
        access: Access { tls, ..access },
    })
}
