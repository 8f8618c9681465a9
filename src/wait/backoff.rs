//! How long a waiter pauses between two tries.

use std::time::Duration;

use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::jitter::Jitter;

/// What a backoff without a first pause of the caller's begins with.
const AT_ONCE: u32 = 3;
const FIRST: Duration = Duration::from_millis(1);

/// How long a wait that spins pauses before it asks again. For [`WaitMode::Spin`](crate::WaitMode::Spin).
///
/// Each pause has a random length up to its limit, so that waiters do not fall into step, and the
/// limit doubles. No pause goes past the moment when the lock can be free by its ttl.
///
/// ```
/// use std::time::Duration;
/// use leasehold::Backoff;
///
/// let gentle = Backoff::default().first(Duration::from_millis(20)).longest(Duration::from_secs(1));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use]
pub struct Backoff {
    first: Option<Duration>,
    longest: Option<Duration>,
    pub(crate) attempts: Option<u32>,
}

/// Three more tries at once, then up to 1 ms, 2 ms, 4 ms and so on, to what suits the store.
impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { first: None, longest: None, attempts: None }
    }
}

impl Backoff {
    /// The limit of the first pause, which then comes after the first try. It doubles with each
    /// pause.
    pub fn first(mut self, pause: Duration) -> Backoff {
        self.first = Some(pause);
        self
    }

    /// The limit that no pause exceeds. An SQLite file keeps the order of its waiters and counts
    /// a waiter that does not look as dead, so there it is 200 ms at most.
    pub fn longest(mut self, pause: Duration) -> Backoff {
        self.longest = Some(pause);
        self
    }

    /// How often a wait asks at most; no limit by default. Whichever of this and the time comes
    /// first ends the wait.
    pub fn attempts(mut self, most: u32) -> Backoff {
        self.attempts = Some(most);
        self
    }

    pub(crate) fn at_most(mut self, limit: Duration) -> Backoff {
        self.longest = self.longest.map(|longest| longest.min(limit));
        self
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if [self.first, self.longest].contains(&Some(Duration::ZERO)) {
            // It would ask the store as fast as the network carries, for the whole wait.
            return Err(Error::new(ErrorKind::BadArgument, "a backoff pauses for more than zero"));
        }
        if self.attempts == Some(0) {
            return Err(Error::new(ErrorKind::BadArgument, "no attempts: 1 is the least"));
        }
        Ok(())
    }
}

/// Where one wait stands in its backoff.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Pace {
    longest: Duration,
    /// Tries that still follow at once.
    at_once: u32,
    /// The limit of the next pause.
    limit: Duration,
    pub(super) jitter: Jitter,
}

impl Pace {
    /// `longest` is what suits the store, where the caller has not said otherwise.
    pub(crate) fn new(backoff: Backoff, longest: Duration, jitter: Jitter) -> Pace {
        let Backoff { first, longest: most, .. } = backoff;
        let at_once = if first.is_some() { 0 } else { AT_ONCE };
        Pace { at_once, limit: first.unwrap_or(FIRST), longest: most.unwrap_or(longest), jitter }
    }

    /// `span` or up to a fifth less, so that waiters do not fall into step.
    pub(crate) fn within(&mut self, span: Duration) -> Duration {
        span - self.jitter.up_to(span / 5)
    }

    /// When to ask again: at once (`None`) or at a moment, never later than `free_at`, when the
    /// ttl of the holder has run out.
    pub(crate) fn next(&mut self, now: Moment, free_at: Moment) -> Option<Moment> {
        if self.at_once > 0 {
            self.at_once -= 1;
            return None;
        }
        let limit = self.limit.min(self.longest);
        self.limit = limit.saturating_mul(2);
        let wake = now.plus(self.jitter.up_to(limit));
        // The server counts in whole milliseconds: asking in the same one again is no use, so a
        // short pause stands even when the ttl seems to be over.
        Some(wake.min(free_at.max(now.plus(Duration::from_micros(500)))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::from_nanos(5_000_000_000);

    fn pace(backoff: Backoff) -> Pace {
        Pace::new(backoff, Duration::from_millis(64), Jitter::seeded(3))
    }

    #[test]
    fn it_spins_first_and_then_pauses_longer_and_longer() {
        let mut pace = pace(Backoff::default());
        for _ in 0..AT_ONCE {
            assert_eq!(pace.next(NOW, Moment::NEVER), None);
        }
        for limit in [1, 2, 4, 8, 16, 32, 64, 64, 64] {
            let pause = pace.next(NOW, Moment::NEVER).unwrap().since(NOW);
            assert!(pause <= Duration::from_millis(limit), "{pause:?} of {limit} ms");
        }
    }

    #[test]
    fn with_a_first_pause_nothing_is_asked_at_once() {
        let mut pace = pace(Backoff::default().first(Duration::from_millis(20)));
        for limit in [20, 40, 64, 64] {
            let pause = pace.next(NOW, Moment::NEVER).unwrap().since(NOW);
            assert!(pause <= Duration::from_millis(limit), "{pause:?} of {limit} ms");
        }
    }

    #[test]
    fn pauses_use_the_whole_of_their_range() {
        let mut pace = pace(Backoff::default().first(Duration::from_millis(64)));
        let drawn: Vec<_> =
            (0..400).map(|_| pace.next(NOW, Moment::NEVER).unwrap().since(NOW)).collect();
        assert!(drawn.iter().any(|pause| *pause < Duration::from_millis(5)));
        assert!(drawn.iter().any(|pause| *pause > Duration::from_millis(60)));
    }

    #[test]
    fn no_pause_outlasts_the_holders_ttl() {
        let mut pace = pace(Backoff::default().first(Duration::from_secs(10)));
        let free_at = NOW.plus(Duration::from_millis(7));
        for _ in 0..100 {
            assert!(pace.next(NOW, free_at).unwrap() <= free_at);
        }
        assert!(pace.next(NOW, NOW).unwrap() > NOW);
    }

    #[test]
    fn a_store_that_keeps_places_bounds_what_the_caller_set() {
        let kept = Duration::from_millis(200);
        let slow = Backoff::default().first(Duration::from_secs(10)).longest(kept * 50);
        let mut pace = pace(slow.at_most(kept));
        for _ in 0..100 {
            assert!(pace.next(NOW, Moment::NEVER).unwrap() <= NOW.plus(kept));
        }
    }

    #[test]
    fn a_backoff_without_pauses_is_refused() {
        assert!(Backoff::default().first(Duration::ZERO).check().is_err());
        assert!(Backoff::default().longest(Duration::ZERO).check().is_err());
        Backoff::default().check().unwrap();
    }
}
