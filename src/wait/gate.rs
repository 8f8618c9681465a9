//! A pause that closing the client, or the caller's own check, can end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::clock::Moment;
use crate::sync::{Condvar, Mutex};

/// How often a caller's check is asked during a wait.
const CHECK: Duration = Duration::from_millis(100);

/// Open while the client is; everybody who pauses here is woken when it closes.
#[derive(Default)]
pub(crate) struct Gate {
    closed: AtomicBool,
    sleepers: Mutex<()>,
    closing: Condvar,
}

/// Why a pause ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Woken {
    InTime,
    Closed,
    Interrupted,
}

impl Gate {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // With the mutex, so that nobody is between his look at the flag and his sleep.
        drop(self.sleepers.lock());
        self.closing.notify_all();
    }

    /// Pauses until `wake`. The caller's check is asked on the calling thread, with no lock held.
    pub(crate) fn pause(&self, wake: Moment, mut check: Option<&mut Check<'_>>) -> Woken {
        loop {
            if self.is_closed() {
                return Woken::Closed;
            }
            let now = Moment::now();
            let mut until = wake;
            if let Some(check) = &mut check {
                if check.says_stop(now) {
                    return Woken::Interrupted;
                }
                until = until.min(check.next);
            }
            if now >= wake {
                return Woken::InTime;
            }
            let sleepers = self.sleepers.lock();
            if !self.is_closed() {
                // Far moments overflow the clock of the condition variable.
                let slice = until.since(now).min(Duration::from_secs(3600));
                drop(self.closing.wait_for(sleepers, slice));
            }
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
    use std::time::Instant;

    #[test]
    fn closing_wakes_a_pause() {
        let gate = Gate::default();
        std::thread::scope(|scope| {
            let pause = scope.spawn(|| gate.pause(Moment::NEVER, None));
            gate.close();
            assert_eq!(pause.join().unwrap(), Woken::Closed);
        });
        gate.close();
    }

    #[test]
    fn the_callers_check_runs_on_its_own_thread_and_often() {
        let gate = Gate::default();
        let me = std::thread::current().id();
        let (mut asked, start) = (0, Instant::now());
        let mut check = || {
            assert_eq!(std::thread::current().id(), me);
            asked += 1;
            asked == 4
        };
        let wake = Moment::now().plus(Duration::from_secs(60));
        let woken = gate.pause(wake, Some(&mut Check::new(&mut check)));
        assert_eq!(woken, Woken::Interrupted);
        // Three slices lie between four questions.
        assert!(start.elapsed() >= 3 * CHECK && start.elapsed() < 60 * CHECK);
    }
}
