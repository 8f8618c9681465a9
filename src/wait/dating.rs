//! When, on our clock, something happened at the server.
//!
//! The server says by its own clock when it handed a lock to somebody. Its clock may be hours off,
//! but a reply that carries the server's time shows by how much at most: the server looked at its
//! clock after we sent the request. So each reply gives a bound for the difference. The best one is
//! the newest, or an older one whose request was so much faster that the drift of the clocks since
//! then weighs less. What is dated by it is never dated later than it happened. (Dating a message
//! from its receipt would make two holders: it may have lain unread for any time.)

use std::time::Duration;

use crate::clock::Moment;
use crate::config::drifted;

/// For how long a sample counts: a little longer than the slow check, which brings a new one. A
/// moment that is dated by it is too early by a hundredth of its age.
const FRESH: Duration = Duration::from_secs(40);

/// What is known of the difference between our clock and the server's.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Dating {
    /// Only requests sent since then count: before, there may have been another server.
    since: Moment,
    /// When a request was sent, and the server's clock after that.
    best: Option<(Moment, u64)>,
}

impl Dating {
    /// Forgets what was learnt before this moment: what answers now may be another server.
    pub(crate) fn restart(&mut self, since: Moment) {
        if self.since < since {
            *self = Dating { since, best: None };
        }
    }

    /// A request sent at `sent` was answered with the server's clock, in microseconds; 0 where the
    /// answer has none.
    pub(crate) fn sample(&mut self, sent: Moment, server: u64) {
        if server == 0 || sent < self.since {
            return;
        }
        if self.at(server, sent).is_none_or(|moment| moment <= sent) {
            self.best = Some((sent, server));
        }
    }

    /// A moment at or before the one at which the server's clock showed `server`; `None` while
    /// nothing is known of that clock.
    pub(crate) fn date(&self, server: u64, now: Moment) -> Option<Moment> {
        Some(self.at(server, now)?.min(now))
    }

    /// The same, but it may lie behind `now`. It allows for the drift of the two clocks since the
    /// sample was taken.
    fn at(&self, server: u64, now: Moment) -> Option<Moment> {
        let (sent, then) = self.best.filter(|(sent, _)| now.since(*sent) < FRESH)?;
        let passed = Duration::from_micros(server.abs_diff(then));
        let margin = drifted(passed);
        let is_later = server >= then;
        Some(if is_later { sent.plus(passed - margin) } else { sent.minus(passed + margin) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For the exploration, which has to find that this is wrong.
    #[cfg(kit)]
    impl Dating {
        pub(crate) fn date_without_drift(&self, server: u64, now: Moment) -> Option<Moment> {
            let (sent, then) = self.best.filter(|(sent, _)| now.since(*sent) < FRESH)?;
            let passed = Duration::from_micros(server.saturating_sub(then));
            Some(sent.plus(passed).min(now))
        }
    }

    const START: Moment = Moment::from_nanos(7_000_000_000_000);
    /// The server's clock is this much ahead of ours.
    const AHEAD: u64 = 1_795_000_000_000_000;

    fn at(millis: u64) -> Moment {
        START.plus(Duration::from_millis(millis))
    }

    fn server(millis: u64) -> u64 {
        AHEAD + START.as_nanos() / 1000 + millis * 1000
    }

    /// Without what the drift takes off within some milliseconds.
    fn rounded(moment: Option<Moment>) -> Option<Moment> {
        let nanos = moment?.as_nanos();
        Some(Moment::from_nanos(nanos.next_multiple_of(1_000_000)))
    }

    #[test]
    fn c3_nothing_is_dated_later_than_it_happened() {
        let mut dating = Dating::default();
        assert_eq!(dating.date(server(5), at(9)), None);
        // Sent at 10, looked at the clock at 13: 3 ms of ignorance.
        dating.sample(at(10), server(13));
        assert_eq!(rounded(dating.date(server(20), at(30))), Some(at(17)));
        // A faster one is a better bound, and a slower one does not spoil it.
        dating.sample(at(40), server(41));
        dating.sample(at(50), server(90));
        assert_eq!(rounded(dating.date(server(95), at(99))), Some(at(94)));
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
        assert!(dating.date(server(39_000), at(39_000)).is_some());
        assert_eq!(dating.date(server(40_000), at(40_000)), None);
        dating.sample(at(50_000), server(50_000));
        dating.restart(at(50_001));
        dating.sample(at(50_000), server(50_000));
        dating.sample(at(50_002), 0);
        assert_eq!(dating.date(server(50_010), at(50_010)), None);
    }
    proptest::proptest! {
        /// Whatever was asked when, and however long each request took there and back.
        #[test]
        fn c3_clocks_that_drift_apart_by_less_than_a_hundredth_date_nothing_too_late(
            permyriad in -99i64..=99,
            asked in proptest::collection::vec((0u64..30_000, 0u64..300), 1..8),
            happened in 0u64..40_000,
            unread in 0u64..20_000,
        ) {
            let drifts = |millis: u64| {
                let micros = i64::try_from(millis * 1000).unwrap();
                server(0).checked_add_signed(micros + micros * permyriad / 10_000).unwrap()
            };
            let mut dating = Dating::default();
            for (sent, took) in asked {
                dating.sample(at(sent), drifts(sent + took));
            }
            if let Some(dated) = dating.date(drifts(happened), at(happened + unread)) {
                // The server counts in whole microseconds.
                proptest::prop_assert!(dated <= at(happened).plus(Duration::from_micros(2)));
            }
        }
    }
}
