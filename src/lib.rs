//! One lock for programs on many machines.
#![allow(dead_code)]
mod clock;
mod config;
mod error;
mod events;
mod fork;
mod metrics;
mod store;
mod token;
pub use config::*;
pub use error::{Error, ErrorKind};
pub use events::{Event, EventKind, Events, LossReason};
pub use metrics::Counters;
pub use token::Token;
