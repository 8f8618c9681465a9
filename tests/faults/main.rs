//! What goes wrong between a client and its one server: on each store that has one, or on a Redis.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod deadline;
mod far;
mod floods;
mod full;
mod keeper;
mod left_out;
mod process;
mod refused;
mod release;
mod server;
#[path = "../stores/mod.rs"]
mod stores;
mod unknown;
mod ways;

#[test]
#[ignore = "the entry of child processes"]
fn child_entry() {
    kit::child::play(&[full::ROLES, process::ROLES]);
}
