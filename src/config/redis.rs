//! Which Redis servers, and how they are reached.

use std::borrow::Cow;
use std::path::PathBuf;

use super::secret::{self, Secret};
use super::tls::TlsConfig;
use crate::error::Error;

/// One Redis, however many servers it consists of: each lock is on one of them at a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RedisConfig {
    pub(crate) servers: Servers,
    pub(crate) access: Access,
    /// How many replicas must have acknowledged a grant before it counts.
    pub(crate) replicas: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Servers {
    One(Address),
    /// Sentinels know which one is the master.
    Sentinel(SentinelConfig),
    /// Some servers of a Cluster, which know the others.
    Cluster(Vec<Address>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SentinelConfig {
    pub(crate) hosts: Vec<Address>,
    pub(crate) master: String,
    pub(crate) access: Access,
}

/// How a server is spoken to: who we are there, and whether in secret.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Access {
    pub(crate) tls: Option<TlsConfig>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    /// Has the password in place of the URL, and another one at another time.
    pub(crate) password_file: Option<PathBuf>,
    pub(crate) database: u32,
}

impl Access {
    /// With the password that is in the file now. Each login reads it anew: it is how a password is
    /// changed without a restart.
    ///
    /// # Errors
    /// [`ErrorKind::Auth`]: it has none.
    pub(crate) fn of_now(&self) -> Result<Cow<'_, Access>, Error> {
        let Some(file) = &self.password_file else { return Ok(Cow::Borrowed(self)) };
        let password = Some(secret::read(file)?);
        Ok(Cow::Owned(Access { password, password_file: None, ..self.clone() }))
    }

    pub(crate) fn has_password(&self) -> bool {
        self.password.is_some() || self.password_file.is_some()
    }
}

/// Hides who we are.
impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("tls", &self.tls).finish_non_exhaustive()
    }
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl RedisConfig {
    pub(crate) fn display(&self) -> String {
        let scheme = if self.access.tls.is_some() { "rediss" } else { "redis" };
        let database = self.access.database;
        match &self.servers {
            Servers::One(Address::Unix(path)) => format!("unix:{}", path.display()),
            Servers::One(address) => format!("{scheme}://{address}/{database}"),
            Servers::Sentinel(SentinelConfig { hosts, master, .. }) => {
                format!("{scheme}+sentinel://{}/{master}/{database}", list(hosts))
            }
            Servers::Cluster(hosts) => format!("{scheme}+cluster://{}", list(hosts)),
        }
    }
}

pub(super) fn list(hosts: &[Address]) -> String {
    hosts.iter().map(Address::to_string).collect::<Vec<_>>().join(",")
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "{}", path.display()),
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
        }
    }
}
