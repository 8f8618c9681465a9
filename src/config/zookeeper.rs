//! How a ZooKeeper store is set up.

use super::redis::{Access, Address, list};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ZookeeperConfig {
    /// Servers of one ensemble.
    pub(crate) hosts: Vec<Address>,
    pub(crate) access: Access,
    /// Below which everything stands, as `/apps/locks`; empty for the top.
    pub(crate) chroot: String,
}

impl ZookeeperConfig {
    pub(crate) fn display(&self) -> String {
        format!("zookeeper://{}{}", list(&self.hosts), self.chroot)
    }
}
