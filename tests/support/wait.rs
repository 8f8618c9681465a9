//! Waiting for conditions, and measuring how long something took on a machine that is busy.

use std::fs;
use std::time::{Duration, Instant};

/// Polls until `condition` holds; panics when it does not within `limit`.
#[track_caller]
pub fn eventually(limit: Duration, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < limit, "the condition did not hold within {limit:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Polls until `get` gives something; panics when it does not within `limit`.
#[track_caller]
pub fn eventually_some<T>(limit: Duration, mut get: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    eventually(limit, || {
        found = get();
        found.is_some()
    });
    found.expect("the loop ends only with a value")
}

/// Runs `action` and panics when it took longer than `limit`.
#[track_caller]
pub fn within<T>(limit: Duration, action: impl FnOnce() -> T) -> T {
    let watch = Stopwatch::start();
    let result = action();
    watch.assert_at_most(limit, Duration::ZERO);
    result
}

/// Measures on one thread. Time in which the thread could have run but was given no processor is
/// the machine's fault and is taken off before a limit is checked, so limits can be tight.
pub struct Stopwatch {
    start: Instant,
    starved_before: Duration,
}

impl Stopwatch {
    pub fn start() -> Stopwatch {
        Stopwatch { starved_before: starved(), start: Instant::now() }
    }

    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// The call has returned by its deadline, given as a duration from the start, plus slack.
    #[track_caller]
    pub fn assert_at_most(&self, deadline: Duration, slack: Duration) {
        let elapsed = self.elapsed();
        let starved = starved().saturating_sub(self.starved_before);
        assert!(
            elapsed.saturating_sub(starved) <= deadline + slack,
            "took {elapsed:?} ({starved:?} of it without a processor); \
             allowed were {deadline:?} + {slack:?}"
        );
    }

    /// Something did not return too early.
    #[track_caller]
    pub fn assert_at_least(&self, least: Duration) {
        let elapsed = self.elapsed();
        assert!(elapsed >= least, "took only {elapsed:?}; expected were at least {least:?}");
    }
}

/// How long this thread has stood in the run queue so far; zero where the kernel does not tell.
fn starved() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let waited = text.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    Duration::from_nanos(waited.unwrap_or(0))
}
