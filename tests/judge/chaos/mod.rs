//! Five servers on bad days, clients that use them, and what became of it.

// Each test file takes this whole module in and uses a part of it.
#![allow(dead_code, unreachable_pub)]

pub mod by_hand;
pub mod crew;
pub mod figures;
pub mod nodes;
pub mod ours;
pub mod storm;

use std::time::Duration;

pub const NODES: usize = 5;
/// Places that clients are at. Each has ways of its own to the nodes, so that a node that one of
/// them cannot reach is there for the other.
pub const SITES: usize = 2;
pub const NAME: &str = "lock";
pub const NODE_TIMEOUT: Duration = Duration::from_millis(50);

pub const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}
