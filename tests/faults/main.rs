//! What goes wrong between a client and its one server.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod deadline;
mod floods;
mod keeper;
mod process;
mod refused;
mod release;
mod server;
mod unknown;
mod ways;

#[test]
#[ignore = "the entry of child processes"]
fn child_entry() {
    kit::child::play(&[process::ROLES]);
}
