//! When, on our clock, something happened at the server.
//!
//! The server says by its own clock when it handed a lock to somebody. Its clock may be hours off,
//! but a reply that carries the server's time shows by how much at most: the server looked at its
//! clock after we sent the request. So each reply gives a bound for the difference, the best of
//! them is the one whose request was fastest on its way, and what is dated by it is never dated
//! later than it happened. (Dating a message from its receipt would make two holders: it may have
//! lain unread for as long as one likes.)

use std::time::Duration;

use crate::clock::Moment;

/// For how long a sample counts, at least; three times that at most. Clocks drift apart: in this time by
/// less than the margin that every validity has.
const FRESH: Duration = Duration::from_secs(10);

/// What is known of the difference between our clock and the server's.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Dating {
    /// Only requests sent since then count: before, there may have been another server.
    since: Moment,
    /// When the newer generation of samples began.
    turned: Moment,
    /// The largest difference in nanoseconds, ours less the server's, of each generation.
    newer: Option<i128>,
    older: Option<i128>,
    /// Wrong on purpose: the tests must notice.
    #[cfg(test)]
    pub(super) from_receipt: bool,
}

impl Dating {
    /// Forgets everything: what answers from now on may be another server.
    pub(crate) fn restart(&mut self, now: Moment) {
        (self.since, self.turned) = (now, now);
        (self.newer, self.older) = (None, None);
    }

    /// The same, if that was not done since this moment.
    pub(crate) fn restart_by(&mut self, moment: Moment) {
        if self.since < moment {
            self.restart(moment);
        }
    }

    /// A request sent at `sent` was answered, and the server's clock (in microseconds; 0 for none)
    /// stood so meanwhile.
    pub(crate) fn sample(&mut self, sent: Moment, server: u64) {
        if server == 0 || sent < self.since {
            return;
        }
        self.turn(sent);
        let difference = i128::from(sent.as_nanos()) - nanos(server);
        self.newer = Some(self.newer.map_or(difference, |known| known.max(difference)));
    }

    /// A moment that is not later than the one at which the server's clock stood so; `None` while
    /// nothing is known of that clock.
    pub(crate) fn date(&mut self, server: u64, now: Moment) -> Option<Moment> {
        #[cfg(test)]
        if self.from_receipt {
            return Some(now);
        }
        self.turn(now);
        let difference = self.newer.max(self.older)?;
        let at = difference + nanos(server);
        let at = u64::try_from(at.max(0)).unwrap_or(u64::MAX);
        Some(Moment::from_nanos(at).min(now))
    }

    fn turn(&mut self, now: Moment) {
        let age = now.since(self.turned);
        if age >= FRESH {
            self.older = self.newer.take().filter(|_| age < 2 * FRESH);
            self.turned = now;
        }
    }
}

fn nanos(micros: u64) -> i128 {
    i128::from(micros) * 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = Moment::from_nanos(7_000_000_000_000);
    /// The server's clock is this much ahead of ours.
    const AHEAD: u64 = 1_795_000_000_000_000;

    fn at(millis: u64) -> Moment {
        START.plus(Duration::from_millis(millis))
    }

    fn server(millis: u64) -> u64 {
        AHEAD + START.as_nanos() / 1000 + millis * 1000
    }

    #[test]
    fn c3_nothing_is_dated_later_than_it_happened() {
        let mut dating = Dating::default();
        assert_eq!(dating.date(server(5), at(9)), None);
        // Sent at 10, looked at the clock at 13: 3 ms of ignorance.
        dating.sample(at(10), server(13));
        assert_eq!(dating.date(server(20), at(30)), Some(at(17)));
        // A faster one is a better bound, and a slower one does not spoil it.
        dating.sample(at(40), server(41));
        dating.sample(at(50), server(90));
        assert_eq!(dating.date(server(95), at(99)), Some(at(94)));
    }

    #[test]
    fn c3_nothing_is_dated_later_than_it_was_heard_of() {
        let mut dating = Dating::default();
        dating.sample(at(10), server(10));
        // The server's clock was set forward since.
        assert_eq!(dating.date(server(500), at(20)), Some(at(20)));
    }

    #[test]
    fn old_samples_and_those_of_another_server_do_not_count() {
        let mut dating = Dating::default();
        dating.sample(at(0), server(0));
        assert!(dating.date(server(16_000), at(16_000)).is_some());
        assert_eq!(dating.date(server(46_000), at(46_000)), None);
        dating.sample(at(50_000), server(50_000));
        dating.restart(at(50_001));
        dating.sample(at(50_000), server(50_000));
        dating.sample(at(50_002), 0);
        assert_eq!(dating.date(server(50_010), at(50_010)), None);
    }
}
