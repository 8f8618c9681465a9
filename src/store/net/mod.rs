//! Sockets with deadlines, for every store that has servers: names looked up, connections made and
//! lent, TLS. No word of any server's language is known here.

pub(super) mod dial;
#[cfg(all(feature = "tls", feature = "postgres"))]
mod end_point;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "zookeeper"))]
pub(super) mod hosts;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
pub(super) mod incoming;
#[cfg(not(feature = "tls"))]
pub(super) mod no_tls;
pub(super) mod poll;
pub(super) mod pool;
mod resolver;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(super) mod seat;
mod socket;
pub(super) mod stranger;
pub(super) mod stream;
#[cfg(feature = "tls")]
pub(super) mod tls;
#[cfg(all(feature = "tls", any(feature = "mysql", feature = "postgres")))]
mod trust;

#[cfg(not(feature = "tls"))]
pub(super) use no_tls as tls;

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, ErrorKind};
use crate::store::ServerId;

/// What the operating system says of a connection that failed.
pub(super) fn failed(what: &str, error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => ErrorKind::NoAnswer,
        _ => match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS) => {
                ErrorKind::Exhausted
            }
            _ => ErrorKind::Refused,
        },
    };
    Error::new(kind, format!("{what}: {error}"))
}

/// Another one for each place of a server that this process comes to know.
pub(super) fn next_server() -> ServerId {
    static LAST: AtomicU32 = AtomicU32::new(0);
    ServerId(LAST.fetch_add(1, Ordering::Relaxed))
}
