//! Who reads the wake-up connections: one waiter, or the crew for calls that are parked.

use std::time::Duration;

use super::{Waiters, WaitingRoom};
use crate::clock::Moment;
use crate::said::say;
use crate::store::Listener;

/// How often the crew checks whether it still has to listen.
const LISTEN: Duration = Duration::from_secs(1);
/// Stands for the crew where a waiter's number could; those count from 1.
const THE_CREW: u64 = 0;

impl WaitingRoom {
    /// This thread is about to be busy elsewhere, so another one is to listen.
    pub(crate) fn step_aside(&self) {
        self.waiters.lock().nominate();
    }

    /// Listens for parked calls, as long as any of them could listen and no thread does.
    pub(crate) fn listen(&self, listener: &dyn Listener) {
        let ends = StopListening(self);
        while self.try_become_listener(listener) {
            self.hear(listener, Moment::now().plus(LISTEN));
        }
        drop(ends);
    }

    fn try_become_listener(&self, listener: &dyn Listener) -> bool {
        let mut waiters = self.waiters.lock();
        let Waiters { could_listen, sleepers, .. } = &*waiters;
        let is_parked = |id: &u64| sleepers.get(id).is_some_and(|sleeper| sleeper.bed.is_parked());
        let begins = waiters.listener.is_none()
            && !self.is_closed()
            && could_listen.iter().any(is_parked)
            && listener.are_any_open();
        if begins {
            waiters.listener = Some(THE_CREW);
        }
        begins
    }

    /// Reads messages until `until`, and passes them to their queues. Another one may listen
    /// afterwards.
    pub(super) fn hear(&self, listener: &dyn Listener, until: Moment) {
        let heard = listener.hear(until);
        let mut waiters = self.waiters.lock();
        waiters.listener = None;
        let now = Moment::now();
        match heard {
            Ok(notices) => {
                notices.into_iter().for_each(|(by, notice)| waiters.notice(by, notice, now));
            }
            Err(error) => {
                // A connection has ended, and messages may be lost: waiters that counted on it have
                // to ask.
                waiters.reopened(now, |name| !listener.are_all_open(name));
                // With no mutex held: the program's logger may close this very client.
                drop(waiters);
                say!(Debug, "wake-up-ended", error = error);
            }
        }
    }
}

/// When the crew stops listening, also by a panic, another waiter is to listen.
struct StopListening<'a>(&'a WaitingRoom);

impl Drop for StopListening<'_> {
    fn drop(&mut self) {
        let mut waiters = self.0.waiters.lock();
        waiters.listener.take_if(|listener| *listener == THE_CREW);
        waiters.nominate();
    }
}
