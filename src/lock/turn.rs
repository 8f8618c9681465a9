//! The ways of waiting for a turn.

use std::str::FromStr;

use crate::error::{Error, ErrorKind};

/// How a wait gets its turn.
///
/// ```
/// use leasehold::Turn;
///
/// assert_eq!("spin".parse::<Turn>()?, Turn::Spin);
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Turn {
    /// In a queue where the store has one, in the order of coming; where the server refuses what
    /// that needs (the right to subscribe to a channel), by asking again and again.
    #[default]
    Auto,
    /// In a queue; an error where the server refuses what that needs.
    Queue,
    /// By asking again and again, each thread for itself and in no order. Right for names that are
    /// shared with other libraries, whose releases tell nobody. Whoever spins stands behind all who
    /// queue for the name.
    Spin,
}

impl FromStr for Turn {
    type Err = Error;

    fn from_str(text: &str) -> Result<Turn, Error> {
        match text {
            "auto" => Ok(Turn::Auto),
            "queue" => Ok(Turn::Queue),
            "spin" => Ok(Turn::Spin),
            _ => Err(Error::new(
                ErrorKind::BadArgument,
                "a turn is one of 'auto', 'queue' and 'spin'",
            )),
        }
    }
}
