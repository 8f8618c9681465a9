//! What all handles of one election share: whether it stands, which term it has, and when it may stand
//! again.

use std::sync::Arc;
use std::time::Duration;

use super::term::{Current, Inner};
use crate::clock::{Deadline, Moment};
use crate::jitter::Jitter;
use crate::sync::{Condvar, Mutex};

/// How long a candidate rests before it stands again, so that others are elected first, and the store is
/// not asked too often. Around it, by chance.
const REST: Duration = Duration::from_secs(1);
/// How often a caller's own check is asked meanwhile.
const CHECK: Duration = Duration::from_millis(100);

pub(super) struct Candidate {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    is_stopped: bool,
    /// How many threads wait to be elected.
    standing: usize,
    term: Current,
    rests_until: Moment,
    jitter: Jitter,
}

impl Candidate {
    pub(super) fn new(seed: u64) -> Candidate {
        let state = State {
            is_stopped: false,
            standing: 0,
            term: Current::new(),
            rests_until: Moment::ZERO,
            jitter: Jitter::seeded(seed),
        };
        Candidate { state: Mutex::new(state), changed: Condvar::default() }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state.lock().is_stopped
    }

    pub(super) fn is_standing(&self) -> bool {
        self.state.lock().standing > 0
    }

    /// Stands until what is returned is dropped.
    pub(super) fn stand(&self) -> Standing<'_> {
        self.state.lock().standing += 1;
        Standing(self)
    }

    pub(super) fn term(&self) -> Option<Arc<Inner>> {
        self.state.lock().term.upgrade()
    }

    pub(super) fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.changed.notify_all();
    }

    pub(super) fn leads(&self, term: &Arc<Inner>) {
        let mut state = self.state.lock();
        state.term = Arc::downgrade(term);
        let is_stopped = state.is_stopped;
        drop(state);
        if is_stopped {
            term.ask_to_stop();
        }
    }

    /// The term is over.
    pub(super) fn led(&self, term: &Inner) {
        let mut state = self.state.lock();
        if std::ptr::eq(state.term.as_ptr(), term) {
            state.term = Current::new();
        }
        drop(state);
        self.rest();
    }

    /// Nobody of this candidate stands for a while.
    pub(super) fn rest(&self) {
        let mut state = self.state.lock();
        let rest = state.jitter.around(REST);
        state.rests_until = Moment::now().plus(rest);
    }

    /// Sleeps until it may stand again, or is to stop, and returns whether the deadline came first.
    pub(super) fn rested(&self, deadline: Deadline, mut ends: impl FnMut() -> bool) -> bool {
        loop {
            if ends() {
                return true;
            }
            let state = self.state.lock();
            let now = Moment::now();
            if state.is_stopped || state.rests_until <= now {
                return true;
            }
            if deadline.has_passed() {
                return false;
            }
            let next = state.rests_until.since(now).min(CHECK).min(deadline.left());
            drop(self.changed.wait_for(state, next));
        }
    }
}

pub(super) struct Standing<'a>(&'a Candidate);

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        self.0.state.lock().standing -= 1;
    }
}
