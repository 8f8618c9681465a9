//! The kit does what it says: a kit that lies makes every test above it lie.

mod faults;
mod groups;
pub(crate) mod processes;
mod program;
mod proxy;
