//! What all handles of one election share: whether it stands, and which term it has.

use std::sync::{Arc, Weak};

use super::rest::Rest;
use super::term::Inner;
use crate::sync::Mutex;

pub(super) struct Candidate {
    pub(super) rest: Arc<Rest>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How many threads wait to be elected.
    standing: usize,
    term: Weak<Inner>,
}

impl Candidate {
    pub(super) fn new(seed: u64) -> Candidate {
        Candidate { rest: Arc::new(Rest::new(seed)), state: Mutex::default() }
    }

    pub(super) fn is_standing(&self) -> bool {
        self.state.lock().standing > 0
    }

    /// Stands until what is returned is dropped.
    pub(super) fn stand(&self) -> Standing<'_> {
        self.state.lock().standing += 1;
        Standing(self)
    }

    /// `None` once it has been resigned.
    pub(super) fn term(&self) -> Option<Arc<Inner>> {
        self.state.lock().term.upgrade().filter(|term| term.is_open())
    }

    pub(super) fn leads(&self, term: &Arc<Inner>) {
        self.state.lock().term = Arc::downgrade(term);
        // It may have been stopped in between, when there was no term to be ended.
        if self.rest.is_stopped() {
            term.ask_to_stop();
        }
    }
}

pub(super) struct Standing<'a>(&'a Candidate);

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        self.0.state.lock().standing -= 1;
    }
}
