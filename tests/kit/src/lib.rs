//! What the tests stand on: private servers, a network that misbehaves on request, other
//! processes, and waiting for conditions instead of sleeping. It knows nothing of Leasehold;
//! `works` checks that each part does what its name says.

// A test that cannot be set up fails.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod black_hole;
mod certificates;
pub mod child;
mod clocked;
mod cluster;
mod dice;
mod etcd;
pub mod futures;
pub mod history;
mod host;
mod link;
mod mysql;
mod namespace;
mod nodes;
mod postgres;
pub mod process;
pub mod program;
mod proxy;
pub mod scripts;
mod sentinel;
mod server;
pub mod socket;
pub mod wait;
mod watch;
#[cfg(test)]
mod works;
mod zookeeper;

pub use black_hole::BlackHole;
pub use certificates::{Certificates, ServerCertificate};
pub use child::Child;
pub use clocked::{Clock, Offset};
pub use cluster::{Cluster, ClusterBuilder, Migration, Node};
pub use dice::{Dice, chaos_length};
pub use etcd::Etcd;
pub use history::{Hold, Wrong};
pub use link::Link;
pub use mysql::Mysql;
pub use namespace::{Cut, Namespace};
pub use nodes::Nodes;
pub use postgres::Postgres;
pub use process::Process;
pub use proxy::{Babble, End, Mode, Proxy};
pub use sentinel::{Election, Elections, SentinelBuilder, SentinelGroup};
pub use server::{KeptFile, Server, ServerBuilder};
pub use wait::{STALL, Stopwatch, eventually, eventually_some, unless_starved, within};
pub use watch::Watch;
pub use zookeeper::Zookeeper;

#[cfg(test)]
#[test]
#[ignore = "the entry of child processes"]
fn child_entry() {
    child::play(&[works::processes::ROLES]);
}
