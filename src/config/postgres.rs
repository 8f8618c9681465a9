//! How a PostgreSQL store is set up.

use std::time::Duration;

use super::redis::{Access, Address, list};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PostgresConfig {
    /// Of which one is the primary.
    pub(crate) hosts: Vec<Address>,
    pub(crate) access: Access,
    pub(crate) database: String,
    pub(crate) application: String,
    /// What the server is told to set for each session, as a command line.
    pub(crate) options: Option<String>,
    /// A host that has not let us in by then is passed over; all of them end with the request.
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) channel_binding: ChannelBinding,
    /// `None`: as the server, the database and the user have it.
    pub(crate) synchronous_commit: Option<&'static str>,
}

/// Whether a password is told only to the server whose certificate was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum ChannelBinding {
    Never,
    /// Where the server knows that.
    #[default]
    Preferred,
    Always,
}

impl PostgresConfig {
    pub(crate) fn display(&self) -> String {
        format!("postgres://{}/{}", list(&self.hosts), self.database)
    }
}
