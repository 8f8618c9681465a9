//! The clock that goes on while the machine is suspended, as leases do.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// The time since the machine started.
pub(super) fn now() -> Duration {
    // It is there on every Linux since 2.6.39.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}
