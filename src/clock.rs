//! The one clock that leases are measured by: CLOCK_BOOTTIME, and its like on macOS.
//!
//! `std::time::Instant` stops while the machine is suspended; a lease does not. Everything that
//! decides whether a lease is still valid is therefore a [`Moment`] on the clock that goes on.

use std::time::Duration;

use crate::system;

/// An instant in nanoseconds since the machine started, suspended time included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Before every other moment; a validity that ends here has ended.
    pub(crate) const ZERO: Moment = Moment(0);
    pub(crate) const NEVER: Moment = Moment(u64::MAX);

    pub(crate) fn now() -> Moment {
        Moment(system::nanos())
    }

    pub(crate) const fn from_nanos(nanos: u64) -> Moment {
        Moment(nanos)
    }

    pub(crate) const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this moment; nothing if it is not earlier.
    pub(crate) fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    pub(crate) fn plus(self, span: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }

    pub(crate) fn minus(self, span: Duration) -> Moment {
        Moment(self.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// The instant by which a call has returned. Passed down instead of a timeout, because a timeout
/// that is handed to five steps in a row grows to five timeouts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Deadline(Moment);

impl Deadline {
    pub(crate) const fn at(moment: Moment) -> Deadline {
        Deadline(moment)
    }

    pub(crate) fn after(span: Duration) -> Deadline {
        Deadline(Moment::now().plus(span))
    }

    pub(crate) fn moment(self) -> Moment {
        self.0
    }

    pub(crate) fn left(self) -> Duration {
        self.0.since(Moment::now())
    }

    /// The end of an equal part of what is left, with so many steps to come.
    pub(crate) fn share(self, steps: usize) -> Deadline {
        Deadline::after(self.left() / u32::try_from(steps).unwrap_or(u32::MAX))
    }

    pub(crate) fn has_passed(self) -> bool {
        Moment::now() >= self.0
    }
}

/// Microseconds of wall-clock time, as a Redis server's TIME gives them. Only fences are made of
/// it: no decision about who holds a lock may rest on a wall clock.
pub(crate) fn wall_micros() -> u64 {
    use std::time::{SystemTime, UNIX_EPOCH};

    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_go_forward_and_never_wrap() {
        let first = Moment::now();
        assert!(Moment::now() >= first);
        assert_eq!(Moment::NEVER.plus(Duration::MAX), Moment::NEVER);
        assert_eq!(Moment::ZERO.minus(Duration::from_secs(1)), Moment::ZERO);
        assert_eq!(first.since(first.plus(Duration::from_secs(1))), Duration::ZERO);
    }

    #[test]
    fn a_passed_deadline_has_nothing_left() {
        let passed = Deadline::at(Moment::now().minus(Duration::from_millis(1)));
        assert!(passed.has_passed());
        assert_eq!(passed.left(), Duration::ZERO);
        assert!(!Deadline::at(Moment::NEVER).has_passed());
    }
}
