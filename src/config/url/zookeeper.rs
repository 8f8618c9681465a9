//! URLs of a ZooKeeper: `zookeeper://[user:password@]host[:port][,host2][/chroot]`, as its own clients
//! write hosts and chroot.

use super::server::{authority, decode, hosts};
use super::tls::by_switch;
use super::{Parts, switch, text};
use crate::config::{Secret, TlsWords, ZookeeperConfig, bad};
use crate::error::Error;

const PORT: u16 = 2181;
const TLS_PORT: u16 = 2281;

pub(super) fn read(parts: &mut Parts<'_>) -> Result<ZookeeperConfig, Error> {
    let (mut access, places, path) = authority(parts, true)?;
    let is_tls = parts.take("tls", switch)?.unwrap_or(false);
    // With what is only for TLS left over, and refused, where there is none.
    access.tls = by_switch(parts, is_tls, &TlsWords::ZOOKEEPER)?;
    let shown = parts.take("auth", |value| {
        let value = text(value)?;
        let shown = value.strip_prefix("digest:").and_then(|rest| rest.split_once(':'));
        let (user, password) = shown.ok_or_else(|| bad("it is digest:user:password"))?;
        Ok((user.to_owned(), Secret(password.to_owned())))
    })?;
    if let Some((user, password)) = shown {
        if access.has_password() {
            return Err(bad("the URL has a user twice: before the host, and in auth="));
        }
        (access.user, access.password) = (Some(user), Some(password));
    }
    if access.has_password()
        && access.user.as_ref().is_none_or(|user| user.is_empty() || user.contains(':'))
    {
        return Err(bad("digest authentication needs a user without a ':', and a password"));
    }
    let chroot = decode("chroot", path.strip_suffix('/').unwrap_or(path))?;
    let is_node = |node: &str| {
        !matches!(node, "" | "." | "..") && !node.contains(|c: char| c.is_control() || c == '\0')
    };
    if !chroot.is_empty() && !chroot.split('/').all(is_node) {
        return Err(bad("the chroot is a path of nodes, as in zookeeper://host/apps/locks"));
    }
    let chroot = if chroot.is_empty() { chroot } else { format!("/{chroot}") };
    let port = if is_tls { TLS_PORT } else { PORT };
    Ok(ZookeeperConfig { hosts: hosts(parts.scheme, places, port)?, access, chroot })
}
