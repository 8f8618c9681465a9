//! A lock that passes from one to another who waits for it.

use std::time::{Duration, Instant};

use crate::measure::{Outcome, nanos};

/// Who waits stands in line after this long, and holders are not in a hurry.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);

/// How long it takes from a release until somebody has the lock who waits for it in a thread, and began
/// to wait this long before.
pub(crate) fn passed<T: Send>(
    waited: Duration,
    release: impl FnOnce() -> Outcome<()>,
    wait: impl FnOnce() -> Outcome<T> + Send,
    give: impl FnOnce(T) -> Outcome<()>,
) -> Outcome<u64> {
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| (wait().map_err(|error| error.to_string()), Instant::now()));
        std::thread::sleep(waited);
        let released = Instant::now();
        release()?;
        let (held, got) = waiter.join().map_err(|_| "the waiter panicked")?;
        give(held?)?;
        Ok(nanos(got - released))
    })
}
