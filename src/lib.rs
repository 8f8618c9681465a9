//! One lock for programs on many machines.
//!
//! See the [README](https://docs.rs/leasehold) for the picture; here is the story.

mod client;
mod clock;
mod config;
mod error;
mod events;
mod fork;
mod grant;
mod jitter;
mod keeper;
mod lease;
mod lock;
mod metrics;
mod store;
mod token;
mod wait;

pub use client::Client;
pub use config::{
    Config, DEFAULT_CLOSE_TIMEOUT, DEFAULT_IO_TIMEOUT, DEFAULT_MAX_HOLD, DEFAULT_POOL, DEFAULT_TTL,
    DEFAULT_WAIT, MAX_FENCE, MAX_NAME, MAX_TTL, MIN_RENEWED_TTL, MIN_TTL, URL_VARIABLE,
    parse_duration,
};
pub use error::{Error, ErrorKind};
pub use events::{Event, EventKind, Events, LossReason};
pub use lease::Lease;
pub use lock::{Holder, Lock, Shown};
pub use metrics::Counters;
pub use token::Token;
pub use wait::Backoff;
