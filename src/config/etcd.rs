//! How an etcd store is set up.

use super::redis::{Access, Address, list};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct EtcdConfig {
    /// Members of one cluster, any of which will do.
    pub(crate) hosts: Vec<Address>,
    pub(crate) access: Access,
}

impl EtcdConfig {
    pub(crate) fn display(&self) -> String {
        let scheme = if self.access.tls.is_some() { "etcds" } else { "etcd" };
        format!("{scheme}://{}", list(&self.hosts))
    }
}
