//! How a MySQL or MariaDB store is set up.

use super::redis::{Access, Address, list};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MysqlConfig {
    /// Of which one takes writes, or several that are one cluster.
    pub(crate) hosts: Vec<Address>,
    pub(crate) access: Access,
    pub(crate) database: String,
}

impl MysqlConfig {
    pub(crate) fn display(&self) -> String {
        format!("mysql://{}/{}", list(&self.hosts), self.database)
    }
}
