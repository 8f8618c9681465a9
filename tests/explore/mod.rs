//! Explorations: the code that decides in a client, taken through orders of events that no test
//! with real servers and clocks would meet.
//!
//! They are compiled into the crate's own test program, by one door in `src/lib.rs`: as a crate of their own
//! they would need every private type to be public.
//!
//! - [`models`]: what servers do. The stores' own tests hold them against real servers.
//! - [`waiters`]: the line of those who wait for a name, on a model of the scripts and of time.
//! - [`quorum`]: the rounds of an attempt, on a model of three members.
//! - [`passing`]: who is passed over in an etcd, on a model of its leases and leaders.
//! - [`threads`]: whole clients whose threads meet in every order. Built with `--cfg shuttle` only.
//!
//! Each is shown to find what is wrong: the same search runs with one thing spoiled, and has to fail.
//! What is spoiled is spoiled from here; the code that is explored knows nothing of it.

pub(crate) mod models;
mod passing;
#[cfg(not(shuttle))]
mod quorum;
#[cfg(shuttle)]
pub(crate) mod threads;
#[cfg(not(shuttle))]
mod waiters;
