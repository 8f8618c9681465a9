//! How a PostgreSQL store is set up.

use super::redis::{Access, Address, list};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PostgresConfig {
    /// Of which one is the primary.
    pub(crate) hosts: Vec<Address>,
    pub(crate) access: Access,
    pub(crate) database: String,
    pub(crate) application: String,
    /// `None`: as the server, the database and the user have it.
    pub(crate) synchronous_commit: Option<&'static str>,
}

impl PostgresConfig {
    pub(crate) fn display(&self) -> String {
        format!("postgres://{}/{}", list(&self.hosts), self.database)
    }
}
