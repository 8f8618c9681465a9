//! Locks on most of several servers.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod data_loss;
mod debts;
mod dropping;
mod faults;
mod good_days;
mod links;
mod members;
mod mending;
#[path = "../queueing/mod.rs"]
mod queueing;
mod scripts;
#[path = "../stores/mod.rs"]
mod stores;
mod waiting;

#[test]
#[ignore = "the entry of child processes"]
fn child_entry() {
    kit::child::play(&[waiting::ROLES]);
}
