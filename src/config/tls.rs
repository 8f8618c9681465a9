//! TLS as a URL asks for it: its files, whose certificates will do, and how URLs say all that.

use std::path::PathBuf;

use super::bad;
use crate::error::Error;

/// Files that TLS needs; without any, the system's certificate authorities are trusted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TlsConfig {
    pub(crate) ca: Option<PathBuf>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) trust: Trust,
    pub(crate) words: &'static TlsWords,
}

impl TlsConfig {
    /// Without any files, for the strictest check of certificates.
    pub(super) fn new(words: &'static TlsWords) -> TlsConfig {
        TlsConfig {
            ca: None,
            cert: None,
            key: None,
            #[cfg(any(feature = "mysql", feature = "postgres"))]
            trust: Trust::Host,
            words,
        }
    }
}

/// # Errors
/// [`ErrorKind::BadArgument`](crate::ErrorKind::BadArgument): this library has no TLS, which `what` needs.
pub(super) fn check_built(what: &str) -> Result<(), Error> {
    match cfg!(feature = "tls") {
        true => Ok(()),
        false => Err(bad(format!("{what} needs leasehold built with its feature 'tls'"))),
    }
}

/// Which certificates of a server will do.
#[cfg(any(feature = "mysql", feature = "postgres"))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Trust {
    /// One that a known authority has issued for the host.
    #[default]
    Host,
    /// One that a known authority has issued.
    Authority,
    Anybody,
}

/// How the URLs of one store ask for TLS. Whatever reads a URL takes the names of its parameters from
/// here, and so does every error that tells what to write.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct TlsWords {
    /// What to do where the server wants TLS.
    pub(crate) on: &'static str,
    /// What to write where the server has none.
    #[cfg_attr(not(feature = "tls"), allow(dead_code))]
    pub(crate) off: &'static str,
    /// The parameters that name files.
    pub(crate) ca: &'static str,
    pub(crate) cert: &'static str,
    pub(crate) key: &'static str,
}

impl TlsWords {
    pub(crate) const REDIS: TlsWords = TlsWords {
        on: "write rediss:// in place of redis://",
        off: "redis://",
        ca: "ca",
        cert: "cert",
        key: "key",
    };

    pub(crate) const POSTGRES: TlsWords = TlsWords {
        on: "write sslmode=verify-full",
        off: "sslmode=disable",
        ca: "sslrootcert",
        cert: "sslcert",
        key: "sslkey",
    };

    pub(crate) const MYSQL: TlsWords = TlsWords {
        on: "write ssl-mode=verify_identity",
        off: "ssl-mode=disabled",
        ca: "ssl-ca",
        cert: "ssl-cert",
        key: "ssl-key",
    };

    pub(crate) const ZOOKEEPER: TlsWords =
        TlsWords { on: "write tls=yes", off: "zookeeper:// without tls=yes", ..TlsWords::REDIS };

    pub(crate) const ETCD: TlsWords =
        TlsWords { on: "write etcds:// in place of etcd://", off: "etcd://", ..TlsWords::REDIS };
}
