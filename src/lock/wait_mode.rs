//! The ways of waiting for a lock.

use std::str::FromStr;

use crate::error::{Error, ErrorKind};
use crate::wait::Backoff;

/// How to wait for a lock.
///
/// ```
/// use leasehold::{Backoff, WaitMode};
///
/// assert_eq!("auto".parse::<WaitMode>()?, WaitMode::Auto);
/// let three_times = WaitMode::Spin(Backoff::default().attempts(3));
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum WaitMode {
    /// Wait in the store's queue, in the order of arrival. If the server forbids what the queue needs
    /// (the right to subscribe to a channel), or the store has no queue, poll instead.
    #[default]
    Auto,
    /// Poll: each thread asks by itself, in no order. For names that are shared with other libraries,
    /// whose releases notify no waiter. A thread that spins comes after all that queue for the name.
    Spin(Backoff),
}

impl WaitMode {
    /// How a wait asks again; the default where it queues.
    pub(super) fn backoff(self) -> Backoff {
        match self {
            WaitMode::Spin(backoff) => backoff,
            WaitMode::Auto => Backoff::default(),
        }
    }
}

impl FromStr for WaitMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<WaitMode, Error> {
        match text {
            "auto" => Ok(WaitMode::Auto),
            "spin" => Ok(WaitMode::Spin(Backoff::default())),
            _ => Err(Error::new(ErrorKind::BadArgument, "the wait mode is 'auto' or 'spin'")),
        }
    }
}
