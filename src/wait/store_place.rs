//! A place in the store's queue: one token that waits there, and when to ask about it again.
//!
//! The store tells the waiter to which it grants the lock. A waiter also looks at the lock now and
//! then, and so finds what no message tells: a holder that died, a waiter that was handed the lock
//! and claims nothing, a message that was lost, a queue that was deleted. A look says when the
//! lock's ttl is over, and then the waiter asks.

use std::time::Duration;

use crate::clock::Moment;
use crate::grant::Terms;
use crate::system::LONGEST_LOOK_SPAN;
use crate::token::Token;

/// A waiter polls at least as often as this, which keeps its place.
pub(super) const SLOW_CHECK: Duration = Duration::from_secs(30);
/// When a ttl has run out, each waiter behind another one waits this much longer.
const STEP: Duration = Duration::from_millis(20);
const MOST_STEPS: u32 = 50;
/// A server counts in whole milliseconds, and is not to be asked in a tight loop.
const AGAIN: Duration = Duration::from_micros(500);

/// A ticket and a mark that were not kept from an earlier place.
pub(super) const ANEW: (u64, u64) = (0, u64::MAX);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct StorePlace {
    pub(super) token: Token,
    /// The terms for which the token was made. The store finds the place by their ttl.
    pub(super) terms: Terms,
    /// 0 while the store has not given one.
    pub(super) ticket: u64,
    /// The last waiter of the cohort to which the ticket belongs: a grant is for the waiters up to
    /// this one.
    pub(super) mark: u64,
    /// A request about it is under way.
    pub(super) asking: bool,
    pub(super) wake: Moment,
    /// When `wake` was last set by something other than an answer.
    pub(super) wake_set: Moment,
    /// When to look at the lock. Not before there is a place.
    pub(super) look: Moment,
    /// How many stood before it, as last answered.
    pub(super) rank: u32,
    /// Until then a request that brought no answer may still take the lock for the token.
    pub(super) suspect: Moment,
}

impl StorePlace {
    pub(super) fn new(token: Token, terms: Terms, (ticket, mark): (u64, u64)) -> StorePlace {
        let (asking, wake, wake_set, rank, suspect) = Default::default();
        let look = Moment::NEVER;
        StorePlace { token, terms, ticket, mark, asking, wake, wake_set, look, rank, suspect }
    }

    /// The request that is sent now answers everything that was told before.
    pub(super) fn ask(&mut self) {
        (self.asking, self.wake_set, self.look) = (true, Moment::ZERO, Moment::NEVER);
    }

    pub(super) fn wake_at(&mut self, wake: Moment, now: Moment) {
        (self.wake, self.wake_set) = (wake, now);
    }

    /// The request that was sent at `sent` is over: ask again at `wake`, or sooner if a message
    /// that came after `sent` says so.
    pub(super) fn answered(&mut self, sent: Moment, wake: Moment) {
        self.asking = false;
        self.wake = if self.wake_set >= sent { self.wake.min(wake) } else { wake };
    }
}

/// When to ask or to look again for a place behind `rank` others, if the lock's ttl is over at
/// `free_at`.
pub(super) fn next_time(free_at: Moment, rank: u32, now: Moment, jittered: Duration) -> Moment {
    let due = free_at.plus(STEP * rank.min(MOST_STEPS));
    due.min(now.plus(jittered)).max(now.plus(AGAIN))
}

/// The longest time between two looks of a waiter: a claim window, so that it sees soon that nobody
/// claimed the lock, and a second at most.
pub(crate) fn look_span(claim_window: Duration) -> Duration {
    claim_window.min(LONGEST_LOOK_SPAN)
}
