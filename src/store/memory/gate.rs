//! What a test has told a store to do with requests: keep them waiting, or fail them. Nothing else sets
//! it, so that outside such a test every request passes.

use std::collections::VecDeque;

use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::Failure;
use crate::sync::{Condvar, Mutex};

const PAUSED: &str = "the test has paused the store";
const TOLD: &str = "the test lets this request fail";
const REPLY_LOST: &str = "the test lets the reply to this request be lost";

#[derive(Default)]
pub(super) struct Gate {
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) is_paused: bool,
    /// Each for one request of a call.
    pub(super) next: VecDeque<ErrorKind>,
    /// For all of them, as long as it stands here; the last one counts.
    pub(super) failing: Vec<(u64, ErrorKind)>,
}

/// Whose requests a test can fail: those of its calls alone. What a client does in the background has no
/// order that a test could rely on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    Call,
    Background,
}

/// What becomes of a request that passes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Answered,
    ReplyLost,
}

impl Fate {
    /// The reply to a request that was sent at this moment, as far as it comes.
    pub(super) fn reply<T>(self, sent: Moment, reply: T) -> Result<T, Failure> {
        match self {
            Fate::Answered => Ok(reply),
            Fate::ReplyLost => {
                Err(Failure::unknown(Error::new(ErrorKind::NoAnswer, REPLY_LOST), sent))
            }
        }
    }
}

impl Gate {
    /// Lets a request in as soon as the store answers. An error where it is not carried out.
    pub(super) fn pass(&self, whose: Whose, deadline: Deadline) -> Result<Fate, Failure> {
        let (sent, mut state) = (Moment::now(), self.state.lock());
        while state.is_paused {
            let left = deadline.left();
            if left.is_zero() {
                // Who waits for a server cannot know that it never read the request.
                return Err(Failure::unknown(Error::new(ErrorKind::NoAnswer, PAUSED), sent));
            }
            state = self.changed.wait_for(state, left);
        }
        if whose == Whose::Background {
            return Ok(Fate::Answered);
        }
        let next = state.next.pop_front();
        match next.or_else(|| state.failing.last().map(|(_, kind)| *kind)) {
            None => Ok(Fate::Answered),
            Some(ErrorKind::Unknown) => Ok(Fate::ReplyLost),
            Some(kind) => Err(Failure::not_done(Error::new(kind, TOLD))),
        }
    }

    /// The same of a request that changes nothing.
    pub(super) fn pass_to_look(&self, whose: Whose, deadline: Deadline) -> Result<(), Error> {
        let passed = self.pass(whose, deadline).and_then(|fate| fate.reply(Moment::now(), ()));
        passed.map_err(|failure| failure.error)
    }

    pub(super) fn is_paused(&self) -> bool {
        self.state.lock().is_paused
    }

    /// Sleeps while the store is paused, until this moment at most, or until it is woken for another
    /// reason, as `is_over` says.
    pub(super) fn sleep(&self, until: Moment, is_over: impl Fn() -> bool) {
        let state = self.state.lock();
        if state.is_paused && !is_over() {
            drop(self.changed.wait_for(state, until.since(Moment::now())));
        }
    }

    pub(super) fn wake(&self) {
        let _state = self.state.lock();
        self.changed.notify_all();
    }
}
