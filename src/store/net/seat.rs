//! Sending on a seat's connection, or on a new one where it has none that lives.

use super::pool::Lent;
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::Failure;

/// A connection as a pool lends it.
pub(in crate::store) trait Line: Send + 'static {
    /// Whether it has died while it lay unused.
    fn is_stale(&mut self, now: Moment) -> bool;

    /// Sends what was written. On an error, tells whether anything had gone out.
    fn send(&mut self, deadline: Deadline) -> Result<(), (bool, Error)>;
}

/// Writes and sends on the seat's connection, or on one that is dialed. Returns the moment before.
pub(in crate::store) fn send<L: Line>(
    lent: &mut Lent<'_, L>,
    deadline: Deadline,
    dial: impl Fn() -> Result<L, Error>,
    write: impl Fn(&mut L) -> Result<(), Error>,
) -> Result<Moment, Failure> {
    loop {
        let now = Moment::now();
        if now >= deadline.moment() {
            let late = Error::new(ErrorKind::NoAnswer, "the deadline had passed");
            return Err(Failure::not_done(late));
        }
        lent.wire.take_if(|line| line.is_stale(now));
        let is_new = lent.wire.is_none();
        let mut line = match lent.wire.take() {
            Some(line) => line,
            None => Box::new(dial().map_err(Failure::not_done)?),
        };
        write(&mut line).map_err(Failure::not_done)?;
        let sent = Moment::now();
        match line.send(deadline) {
            Ok(()) => {
                lent.wire = Some(line);
                return Ok(sent);
            }
            Err((true, error)) => return Err(Failure::unknown(error, sent)),
            Err((false, error)) if is_new || error.kind() == ErrorKind::NoAnswer => {
                return Err(Failure::not_done(error));
            }
            Err(_) => {}
        }
    }
}
