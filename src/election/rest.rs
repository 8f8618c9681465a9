//! When a candidate may stand again, and whether it may at all.

use std::time::Duration;

use crate::clock::{Deadline, Moment};
use crate::jitter::Jitter;
use crate::sync::{Condvar, Mutex};

/// How long a candidate rests before it stands again, so that others are elected first, and the store is
/// not asked too often. Around it, by chance.
const REST: Duration = Duration::from_secs(1);
/// How often a caller's own check is asked meanwhile.
const CHECK: Duration = Duration::from_millis(100);

pub(super) struct Rest {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    is_stopped: bool,
    until: Moment,
    jitter: Jitter,
}

impl Rest {
    pub(super) fn new(seed: u64) -> Rest {
        let state = State { is_stopped: false, until: Moment::ZERO, jitter: Jitter::seeded(seed) };
        Rest { state: Mutex::new(state), changed: Condvar::default() }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state.lock().is_stopped
    }

    /// For good.
    pub(super) fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.changed.notify_all();
    }

    /// Nobody of this candidate stands for a while.
    pub(super) fn begin(&self) {
        let mut state = self.state.lock();
        let rest = state.jitter.around(REST);
        state.until = Moment::now().plus(rest);
    }

    /// Sleeps until it may stand again, or is to stop; false if the deadline came first.
    pub(super) fn is_over_by(&self, deadline: Deadline, mut ends: impl FnMut() -> bool) -> bool {
        loop {
            if ends() {
                return true;
            }
            let state = self.state.lock();
            let now = Moment::now();
            if state.is_stopped || state.until <= now {
                return true;
            }
            if deadline.has_passed() {
                return false;
            }
            let next = state.until.since(now).min(CHECK).min(deadline.left());
            drop(self.changed.wait_for(state, next));
        }
    }
}
