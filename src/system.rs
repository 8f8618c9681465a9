//! What clients take from the system in order to wait: mutexes, a clock, and threads.
//!
//! The exploration of threads has a file of its own in the place of this one
//! (`tests/explore/threads/system.rs`), which meets every order. No other file in `src` knows of it.

use std::time::Duration;

pub(crate) use std::sync::atomic::AtomicUsize;
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

pub(crate) use crate::fork::thread::Thread;

/// No waiter looks at the lock more seldom than this, however long the claim window is.
pub(crate) const LONGEST_LOOK_SPAN: Duration = Duration::from_secs(1);
/// A client knows the others of its process. (Explored clients are one execution's, and meet no others.)
pub(crate) const KNOWS_OTHER_CLIENTS: bool = true;

/// Nanoseconds since the machine started, suspended time included; the far end of time if the clock fails.
pub(crate) fn nanos() -> u64 {
    use nix::time::{ClockId, clock_gettime};

    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
    // There it goes on while the machine sleeps, and no adjustment of the time moves it.
    #[cfg(target_os = "macos")]
    const CLOCK: ClockId = ClockId::from_raw(libc::CLOCK_MONOTONIC_RAW);

    // Cannot fail on Linux since 2.6.39. If it did, the far end of time makes every lease
    // invalid, which is the safe answer.
    clock_gettime(CLOCK)
        .map_or(u64::MAX, |now| now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}
