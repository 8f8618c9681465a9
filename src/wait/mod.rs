//! Waiting for a lock: how long to pause between two tries, and what may end a pause.

mod backoff;
mod dating;
mod gate;
mod local;
mod plan;
mod queue;
mod room;

pub use backoff::Backoff;
pub(crate) use backoff::Pace;
pub(crate) use gate::{Check, Gate, Woken};
pub(crate) use plan::{Ask, Ending, Limits, Next, Owe, TURNS, Turn, Worth};
pub(crate) use queue::look_span;
pub(crate) use room::{Owing, Room, Seat};

// For the explorations.
#[cfg(all(test, not(shuttle)))]
pub(crate) use {dating::Dating, local::Line, plan::Effects};
