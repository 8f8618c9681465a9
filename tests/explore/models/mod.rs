//! What servers do, in plain Rust: the tests of the stores hold each model against a real server, and clients
//! are explored against it. No I/O, and no clock of its own.

pub(crate) mod quorum;
pub(crate) mod redis;

use std::time::Duration;

use crate::store::millis;
use crate::token::Token;

/// One client's channel.
pub(crate) type Channel = u8;

/// The lock on one server.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Held {
    /// None where the holder is a foreign client.
    pub(crate) token: Option<Token>,
    /// When its ttl ends, on the server's clock in microseconds.
    pub(crate) until: u64,
}

/// Whether a client listens at this moment and so may stand in the queue, and on which channel.
/// None where it has none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ModelWakeup {
    pub(crate) channel: Option<Channel>,
    pub(crate) is_open: bool,
}

fn micros(span: Duration) -> u64 {
    millis(span) * 1000
}
