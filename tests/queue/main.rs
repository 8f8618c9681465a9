//! Those who wait for a lock stand in a queue.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod asleep;
mod cost;
mod deaths;
mod futures;
mod order;
#[path = "../queueing/mod.rs"]
mod queueing;
mod servers;
#[path = "../stores/mod.rs"]
mod stores;

#[test]
#[ignore = "the entry of child processes"]
fn child_entry() {
    kit::child::play(&[asleep::ROLES, cost::ROLES, queueing::ROLES]);
}
