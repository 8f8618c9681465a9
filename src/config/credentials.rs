//! Credentials that a program looks up while it runs: what it is asked, and what it answers.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::secret::Secret;

/// The server that a login goes to, as [`Config::credentials`](crate::Config::credentials) is told.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub struct Endpoint {
    /// The host as the URL or the cluster names it, or the path of a unix socket.
    pub host: String,
    /// 0 for a unix socket.
    pub port: u16,
    /// The user in the URL, if it has one.
    pub user: Option<String>,
}

/// A secret, and how long it is good for: what [`Config::credentials`](crate::Config::credentials) returns.
#[derive(Clone)]
#[must_use]
pub struct Credentials {
    pub(super) user: Option<String>,
    pub(super) secret: Secret,
    pub(super) until: Option<SystemTime>,
    pub(super) retires: bool,
}

impl Credentials {
    /// A password or a token, for the user in the URL. Without an end it is asked for again at each
    /// login.
    pub fn new(secret: impl Into<String>) -> Credentials {
        Credentials { user: None, secret: Secret(secret.into()), until: None, retires: false }
    }

    /// The user whose secret it is, in place of the one in the URL. It may be another one each time.
    pub fn user(mut self, user: impl Into<String>) -> Credentials {
        self.user = Some(user.into());
        self
    }

    /// When the secret ends. Until shortly before that, logins use it without asking again.
    pub fn valid_until(mut self, end: SystemTime) -> Credentials {
        self.until = Some(end);
        self
    }

    /// As [`valid_until`](Credentials::valid_until), counted from now.
    pub fn valid_for(self, span: Duration) -> Credentials {
        let end = SystemTime::now().checked_add(span);
        Credentials { until: end, ..self }
    }

    /// Whether connections to PostgreSQL and MySQL that logged in with earlier credentials make way
    /// for new ones. No by default, since these servers check credentials at the login alone; where
    /// the user changes, they do so anyway. On Redis, connections log in again and stay.
    pub fn retire_connections(mut self, on: bool) -> Credentials {
        self.retires = on;
        self
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint { host, port: 0, .. } => f.write_str(host),
            Endpoint { host, port, .. } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Endpoint { host, port, .. } => write!(f, "{host}:{port}"),
        }
    }
}

/// Hides the secret.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("until", &self.until).finish_non_exhaustive()
    }
}

type Ask = dyn Fn(&Endpoint) -> Result<Credentials, String> + Send + Sync;

/// What a program has given to look them up.
#[derive(Clone)]
pub(crate) struct Provider(Arc<Ask>);

impl Provider {
    pub(super) fn new(
        ask: impl Fn(&Endpoint) -> Result<Credentials, String> + Send + Sync + 'static,
    ) -> Provider {
        Provider(Arc::new(ask))
    }

    pub(super) fn ask(&self, endpoint: &Endpoint) -> Result<Credentials, String> {
        (self.0)(endpoint)
    }
}

impl PartialEq for Provider {
    fn eq(&self, other: &Provider) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Provider {}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Provider")
    }
}
