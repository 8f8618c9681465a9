//! What ends a wait before its time: closing the client, and the caller's own check.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::clock::Moment;
use crate::sync::{Condvar, Mutex};

/// How often a caller's check is asked during a wait.
const CHECK: Duration = Duration::from_millis(100);

/// Open while the client is; closing wakes every thread that pauses here.
#[derive(Default)]
pub(crate) struct Gate {
    closed: AtomicBool,
    sleepers: Mutex<()>,
    closing: Condvar,
}

impl Gate {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // With the mutex, so that no thread is between reading the flag and sleeping.
        drop(self.sleepers.lock());
        self.closing.notify_all();
    }

    /// Pauses until a moment, or until the client is closed.
    pub(crate) fn pause(&self, wake: Moment) {
        loop {
            let left = wake.since(Moment::now());
            let sleepers = self.sleepers.lock();
            if left.is_zero() || self.is_closed() {
                return;
            }
            // Far moments overflow the clock of the condition variable.
            let slice = left.min(Duration::from_secs(3600));
            drop(self.closing.wait_for(sleepers, slice));
        }
    }
}

/// The caller's own reason to stop waiting: true ends the wait.
pub(crate) struct Check<'a> {
    asks: &'a mut dyn FnMut() -> bool,
    next: Moment,
}

impl<'a> Check<'a> {
    pub(crate) fn new(asks: &'a mut dyn FnMut() -> bool) -> Check<'a> {
        Check { asks, next: Moment::ZERO }
    }

    /// When it is to be asked again.
    pub(crate) fn due(&self) -> Moment {
        self.next
    }

    pub(crate) fn says_stop(&mut self, now: Moment) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now.plus(CHECK);
        (self.asks)()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_wakes_a_pause() {
        let gate = Gate::default();
        std::thread::scope(|scope| {
            scope.spawn(|| gate.pause(Moment::NEVER));
            gate.close();
        });
        gate.pause(Moment::NEVER);
    }

    #[test]
    fn a_callers_check_is_asked_again_when_it_is_due() {
        let mut asked = 0;
        let mut asks = || {
            asked += 1;
            asked == 3
        };
        let (mut check, start) = (Check::new(&mut asks), Moment::from_nanos(1_000_000_000_000));
        assert!(!check.says_stop(start) && !check.says_stop(start));
        assert_eq!(check.due(), start.plus(CHECK));
        assert!(!check.says_stop(check.due()));
        assert!(check.says_stop(check.due()));
        assert_eq!(asked, 3);
    }
}
