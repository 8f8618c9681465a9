//! Where a client's waiters learn that it is their turn.

use std::collections::VecDeque;
use std::sync::Arc;

use super::gate::{Gate, Whose};
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::{Listener, Notice, ServerId, Teller};
use crate::sync::{Condvar, Mutex};

/// One client's. Whoever hands a lock over writes here; one waiter at a time reads.
pub(super) struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct State {
    is_open: bool,
    is_closed: bool,
    notices: VecDeque<Notice>,
}

impl Inbox {
    pub(super) fn new(gate: Arc<Gate>) -> Inbox {
        Inbox { state: Mutex::default(), changed: Condvar::default(), gate }
    }

    pub(super) fn is_open(&self) -> bool {
        self.state.lock().is_open
    }

    /// False where nobody will read it: then the lock is another waiter's.
    pub(super) fn post(&self, notice: Notice) -> bool {
        let mut state = self.state.lock();
        if state.is_open {
            state.notices.push_back(notice);
            self.changed.notify_all();
        }
        state.is_open
    }
}

impl Listener for Inbox {
    fn are_open(&self, _name: &[u8]) -> bool {
        self.is_open()
    }

    fn are_any_open(&self) -> bool {
        self.is_open()
    }

    fn open(&self, _name: &[u8], deadline: Deadline) -> Result<ServerId, Error> {
        self.gate.pass_to_look(Whose::Background, deadline)?;
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(Error::bare(ErrorKind::Closed));
        }
        state.is_open = true;
        Ok(ServerId::default())
    }

    fn hear(&self, until: Moment) -> Result<Vec<(Teller, Notice)>, Error> {
        loop {
            self.gate.sleep(until, || !self.is_open());
            let is_paused = self.gate.is_paused();
            let mut state = self.state.lock();
            if !state.is_open {
                return Err(Error::bare(ErrorKind::Closed));
            }
            let left = until.since(Moment::now());
            if is_paused {
                if left.is_zero() {
                    return Ok(Vec::new());
                }
                continue;
            }
            if !state.notices.is_empty() || left.is_zero() {
                let heard = state.notices.drain(..);
                return Ok(heard.map(|notice| (Teller::default(), notice)).collect());
            }
            drop(self.changed.wait_for(state, left));
        }
    }

    fn close(&self) {
        let mut state = self.state.lock();
        (state.is_open, state.is_closed) = (false, true);
        self.changed.notify_all();
        drop(state);
        self.gate.wake();
    }
}
