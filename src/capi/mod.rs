//! The C interface: about one file for each type that `include/leasehold.h` declares.
//!
//! It stands on the public Rust interface and on the ground floor (`fork`, `sync`, `inbox`, limits
//! and error kinds), but for `Lease::abandon` and `Lease::watch`, which languages on top of C need,
//! `Election::lead`, whose work shares its term with a handle, the checks of a lock, and the controls
//! of a store for tests, which panic in public. It knows nothing of stores, grants or the keeper. Its
//! functions' comments are the header's.
//!
//! - A body runs in [`boundary`], which turns errors, misuse and panics into a status.
//! - What C holds is a number in the shape of a pointer: see [`table`].
//! - Outputs come last and are written only on success; strings that go out belong to a handle.
//!
//! `unsafe` is needed for what no type can promise: that a pointer of the caller leads to as many
//! bytes as he says, or to room for an output. Each function says so in its comment.
#![allow(unsafe_code, non_camel_case_types, unreachable_pub)]
// The safety of each function is its documentation in the header: pointers are NULL or valid.
#![allow(clippy::missing_safety_doc)]

#[cfg(target_pointer_width = "32")]
compile_error!("handles of the C interface need pointers of 64 bits");

mod boundary;
mod bytes;
mod failure;
mod registered;
mod settings;
mod table;

pub mod client;
pub mod config;
pub mod credentials;
pub mod election;
pub mod error;
pub mod events;
pub mod lease;
pub mod lock;
pub mod lock_state;
pub mod log;
pub mod lost;
pub mod term;
pub mod testing;
pub mod waits;

#[cfg(test)]
mod tests;
