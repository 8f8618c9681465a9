//! Which Redis servers, and how they are reached.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use super::credentials::Endpoint;
use super::keyring::{Keyring, Login};
use super::secret::{self, Secret};
use super::secret_command::SecretCommand;
use super::tls::TlsConfig;
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};

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
    Sentinel(Box<SentinelConfig>),
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
#[derive(Clone, Default)]
pub(crate) struct Access {
    pub(crate) tls: Option<TlsConfig>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    /// Has the password in place of the URL, and another one at another time.
    pub(crate) password_file: Option<PathBuf>,
    /// Prints it, the same.
    pub(crate) password_command: Option<SecretCommand>,
    pub(crate) database: u32,
    /// Of an open store: has what the program was asked for.
    pub(crate) keyring: Option<Keyring>,
    /// Of one login: what the keyring had.
    pub(crate) login: Option<Arc<Login>>,
}

impl Access {
    /// With the password that is in the file now. Each login reads it anew: it is how a password is
    /// changed without a restart.
    ///
    /// # Errors
    /// [`ErrorKind::Auth`]: it has none.
    fn of_now(&self) -> Result<Cow<'_, Access>, Error> {
        let Some(file) = &self.password_file else { return Ok(Cow::Borrowed(self)) };
        let password = Some(secret::read(file)?);
        Ok(Cow::Owned(Access { password, password_file: None, ..self.clone() }))
    }

    /// Logs in with the credentials of the moment: what a file has, or a program was asked for. If the
    /// server refuses them, newer ones are asked for, once.
    ///
    /// # Errors
    /// [`ErrorKind::Auth`]: there are none; [`ErrorKind::NoAnswer`]: there are none yet.
    pub(crate) fn log_in<T>(
        &self,
        address: &Address,
        deadline: Deadline,
        mut attempt: impl FnMut(&Access) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let Some(keyring) = &self.keyring else { return attempt(&*self.of_now()?) };
        let (began, endpoint) = (Moment::now(), address.endpoint(self.user.clone()));
        let login = keyring.get(&endpoint, None, deadline)?;
        match attempt(&self.with(&login)) {
            Err(error) if error.kind() == ErrorKind::Auth && login.asked < began => {
                match keyring.get(&endpoint, Some(&login), deadline) {
                    Ok(newer) if !newer.is_same(&login) => attempt(&self.with(&newer)),
                    _ => Err(error),
                }
            }
            done => done,
        }
    }

    fn with(&self, login: &Arc<Login>) -> Access {
        Access {
            user: login.user.clone().or_else(|| self.user.clone()),
            password: Some(login.secret.clone()),
            login: Some(Arc::clone(login)),
            ..self.clone()
        }
    }

    /// Newer credentials than those that a connection logged in with.
    pub(crate) fn newer(&self, login: &Login) -> Option<Arc<Login>> {
        self.keyring.as_ref().filter(|_| login.is_replaced())?.newer(login)
    }

    /// A server has refused these.
    pub(crate) fn refused(&self, login: &Arc<Login>) {
        if let Some(keyring) = &self.keyring {
            keyring.refused(login);
        }
    }

    pub(crate) fn has_password(&self) -> bool {
        self.keyring.is_some() || self.names_password()
    }

    /// The URL says which one, or where it is.
    pub(crate) fn names_password(&self) -> bool {
        let in_place = self.password_file.is_some() || self.password_command.is_some();
        self.password.is_some() || in_place
    }
}

/// What a login was made with is no part of how it is set up.
impl PartialEq for Access {
    fn eq(&self, other: &Access) -> bool {
        let parts = |it: &Access| {
            (
                it.tls.clone(),
                it.user.clone(),
                it.password.clone(),
                it.password_file.clone(),
                it.password_command.clone(),
                it.database,
                it.keyring.clone(),
            )
        };
        parts(self) == parts(other)
    }
}

impl Eq for Access {}

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
            Servers::Sentinel(sentinels) => {
                let SentinelConfig { hosts, master, .. } = &**sentinels;
                format!("{scheme}+sentinel://{}/{master}/{database}", list(hosts))
            }
            Servers::Cluster(hosts) => format!("{scheme}+cluster://{}", list(hosts)),
        }
    }
}

pub(super) fn list(hosts: &[Address]) -> String {
    hosts.iter().map(Address::to_string).collect::<Vec<_>>().join(",")
}

impl Address {
    fn endpoint(&self, user: Option<String>) -> Endpoint {
        match self {
            Address::Tcp { host, port } => Endpoint { host: host.clone(), port: *port, user },
            Address::Unix(path) => Endpoint { host: path.display().to_string(), port: 0, user },
        }
    }
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
