//! Waiting for conditions, and measuring how long something took on a machine that is busy.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A machine that lets a pause of 5 ms become this is too busy to judge what came late: a request
/// is several such steps in two processes, one after the other.
pub const STALL: Duration = Duration::from_millis(8);

/// Polls until `condition` holds; panics when it does not within `limit`.
#[track_caller]
pub fn eventually(limit: Duration, mut condition: impl FnMut() -> bool) {
    let (start, mut late) = (Instant::now(), false);
    while !condition() {
        // Asked once more after the end: this thread may have been kept from asking before it.
        assert!(!late, "the condition did not hold within {limit:?}");
        late = start.elapsed() >= limit;
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

/// Runs a test of something that needs the processor in time, such as a renewal. If it fails while
/// the machine stood still for longer than `stall`, that proves nothing and it is run again.
#[track_caller]
pub fn unless_starved(stall: Duration, test: impl Fn()) {
    const TRIES: u32 = 20;
    for _ in 1..TRIES {
        let metronome = Metronome::start();
        let result = catch_unwind(AssertUnwindSafe(&test));
        let longest = metronome.longest_gap();
        match result {
            Ok(()) => return,
            Err(panic) if longest <= stall => resume_unwind(panic),
            Err(_) => eprintln!("the machine stood still for {longest:?}; once more"),
        }
    }
    test();
}

/// Several threads that sleep a little again and again: when one of them comes late, so may any
/// other thread or process.
pub struct Metronome {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Duration>>,
}

impl Metronome {
    pub fn start() -> Metronome {
        let over = Arc::new(AtomicBool::new(false));
        let beat = |over: Arc<AtomicBool>| {
            let (mut longest, mut last) = (Duration::ZERO, Instant::now());
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
                longest = longest.max(last.elapsed());
                last = Instant::now();
            }
            longest
        };
        let threads =
            (0..3).map(|_| Arc::clone(&over)).map(|over| std::thread::spawn(move || beat(over)));
        Metronome { threads: threads.collect(), over }
    }

    pub fn longest_gap(self) -> Duration {
        self.over.store(true, Ordering::Relaxed);
        let gaps = self.threads.into_iter().map(|thread| thread.join().expect("it only sleeps"));
        gaps.max().unwrap_or_default()
    }
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

    /// What has passed, without the time in which the thread was given no processor.
    pub fn busy(&self) -> Duration {
        self.elapsed().saturating_sub(starved().saturating_sub(self.starved_before))
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
