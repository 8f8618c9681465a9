//! Waiting for a lock: the threads of this process that want one name ([`local`]), their place in the
//! store's queue ([`store_place`]), where they sleep ([`room`]), threads for those that have none
//! ([`crew`]), and pauses between tries.

mod backoff;
mod check;
pub(crate) mod crew;
mod dating;
mod local;
mod plan;
mod room;
mod store_place;

pub use backoff::Backoff;
pub(crate) use backoff::Pace;
pub(crate) use check::Check;
pub(crate) use plan::{Ask, Ending, Limits, Next, Owe, Turn, Validity};
pub(crate) use room::{Owing, Sleep, Waiter, WaitingRoom};
pub(crate) use store_place::look_span;

// For the explorations.
#[cfg(test)]
#[cfg(kit)]
pub(crate) use {dating::Dating, local::LocalQueue, plan::Effects};
