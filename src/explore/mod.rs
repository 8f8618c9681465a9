//! Explorations: the code that decides in a client, taken through orders of events that no test
//! with real servers and clocks would meet.
//!
//! - [`waiters`]: the line of those who wait for a name, on a model of the scripts and of time.
//! - [`quorum`]: the rounds of an attempt, on a model of three members.
//! - [`threads`]: whole clients whose threads meet in every order. Built with `--cfg shuttle` only.
//!
//! Each is shown to find what is wrong: the same search runs with one thing spoiled, and has to fail.
//! What is spoiled is spoiled from here; the code that is explored knows nothing of it.

#[cfg(not(shuttle))]
mod quorum;
#[cfg(shuttle)]
mod threads;
#[cfg(not(shuttle))]
mod waiters;
