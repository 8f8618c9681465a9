//! What is known of the leader's clock. ZooKeeper tells it in one place only: a node carries the time of
//! its last change. So each change of ours shows it, as it was between our request and the answer.
//! Another leader has another clock: nothing that was learnt of the one before says anything of it.

use std::cmp::Ordering;
use std::time::Duration;

use super::jute::Stat;
use crate::clock::Moment;
use crate::store::ServerId;
use crate::store::net::next_server;

/// So old a sample may be where it matters that a waiter's next turn can be dated.
const FRESH: Duration = Duration::from_secs(15);

pub(super) struct Clock {
    /// Counts elections: the upper half of the number of each change.
    term: i64,
    /// As which server this leader is known.
    pub(super) server: ServerId,
    /// The clock, in milliseconds, showed no less than this at this moment.
    best: Option<(Moment, i64)>,
    /// The number of the change that showed it, the last one that was seen: what the clock showed before
    /// it may have been set back says nothing of what was dated later.
    shown_by: i64,
}

/// How long a holder is left in possession.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Left {
    /// No longer than this; zero if its time is over.
    AtMost(Duration),
    /// The leader's clock has to be asked, by a change of any node.
    AskClock,
    /// An earlier leader dated it: it has to be dated anew.
    Undated,
}

impl Clock {
    pub(super) fn new() -> Clock {
        Clock { term: -1, server: next_server(), best: None, shown_by: 0 }
    }

    /// A change was answered at `now`.
    pub(super) fn saw(&mut self, stat: &Stat, now: Moment) {
        let term = stat.changed >> 32;
        if term > self.term {
            *self = Clock { term, server: next_server(), best: None, shown_by: 0 };
        }
        if term == self.term && stat.changed >= self.shown_by {
            (self.best, self.shown_by) = (Some((now, stat.at)), stat.changed);
        }
    }

    /// Whether this was dated by the clock that is known.
    pub(super) fn is_known(&self, stat: &Stat) -> bool {
        stat.changed >> 32 == self.term
    }

    pub(super) fn is_fresh(&self, now: Moment) -> bool {
        self.best.is_some_and(|(at, _)| now.since(at) < FRESH)
    }

    /// The clock shows no less now.
    fn least(&self, now: Moment) -> Option<i64> {
        let (at, shown) = self.best?;
        let passed = now.since(at);
        Some(shown.saturating_add(millis(passed - passed / 99)))
    }

    /// For how long there has been a node that this leader made.
    pub(super) fn age(&self, stat: &Stat, now: Moment) -> Option<Duration> {
        let age = self.least(now)?.saturating_sub(stat.born);
        let is_known = stat.made >> 32 == self.term;
        Some(Duration::from_millis(u64::try_from(age).unwrap_or(0))).filter(|_| is_known)
    }

    /// How long a ttl lasts that began with the last change of a node.
    pub(super) fn left(&self, stat: &Stat, ttl: Duration, now: Moment) -> Left {
        let (Some(least), Some((at, shown))) = (self.least(now), self.best) else {
            return Left::AskClock;
        };
        match (stat.changed >> 32).cmp(&self.term) {
            Ordering::Less => return Left::Undated,
            // There was an election of which this client has not heard.
            Ordering::Greater => return Left::AskClock,
            Ordering::Equal => {}
        }
        let ends = stat.at.saturating_add(millis(ttl));
        // Both are cut to whole milliseconds.
        let left = ends.saturating_sub(least).saturating_add(1);
        let seems_over = ends <= shown.saturating_add(millis(now.since(at)));
        match u64::try_from(left) {
            Ok(1..) if seems_over && now > at => Left::AskClock,
            Ok(left @ 1..) => Left::AtMost(Duration::from_millis(left).min(ttl)),
            _ if self.shown_by < stat.changed => Left::AskClock,
            _ => Left::AtMost(Duration::ZERO),
        }
    }

    /// The same as it is likely, if the clocks of all leaders agree: for people, and what is for them.
    pub(super) fn seems_left(&self, stat: &Stat, ttl: Duration, now: Moment) -> Duration {
        let Some((at, shown)) = self.best else { return ttl };
        let ends = stat.at.saturating_add(millis(ttl));
        let left = ends.saturating_sub(shown.saturating_add(millis(now.since(at))));
        Duration::from_millis(u64::try_from(left).unwrap_or(0)).min(ttl)
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn moment(millis: u64) -> Moment {
        Moment::from_nanos((1_000_000 + millis) * 1_000_000)
    }

    fn stat(term: i64, at: i64) -> Stat {
        Stat { changed: term << 32 | 7, at, ..Stat::default() }
    }

    #[test]
    fn c1_nothing_is_over_before_its_ttl_has_passed_on_the_leaders_clock() {
        let mut clock = Clock::new();
        assert_eq!(clock.left(&stat(3, 5_000), TTL, moment(0)), Left::AskClock);
        // Answered at 0, and the leader's clock showed 7,000 some time before.
        clock.saw(&stat(3, 7_000), moment(0));
        assert_eq!(
            clock.left(&stat(3, 5_000), TTL, moment(0)),
            Left::AtMost(Duration::from_millis(8_001))
        );
        // A clock that is a hundredth slower is not asked for more than it shows.
        let Left::AtMost(left) = clock.left(&stat(3, 5_000), TTL, moment(4_000)) else { panic!() };
        assert!(left > Duration::from_millis(4_001) && left < Duration::from_millis(4_050));
        assert_eq!(clock.left(&stat(3, 5_000), TTL, moment(8_001)), Left::AskClock);
        clock.saw(&stat(3, 15_000), moment(8_001));
        assert_ne!(clock.left(&stat(3, 5_000), TTL, moment(8_001)), Left::AtMost(Duration::ZERO));
        clock.saw(&stat(3, 15_001), moment(8_002));
        assert_eq!(clock.left(&stat(3, 5_000), TTL, moment(8_002)), Left::AtMost(Duration::ZERO));
    }

    #[test]
    fn c1_a_clock_that_was_set_back_ends_nothing_that_it_dated_since() {
        let change = |number: i64, at| Stat { changed: 3 << 32 | number, at, ..Stat::default() };
        let mut clock = Clock::new();
        clock.saw(&change(7, 1_000_000), moment(0));
        let held = change(8, 985_000);
        assert_eq!(clock.left(&held, TTL, moment(1_001)), Left::AskClock);
        clock.saw(&change(9, 986_001), moment(1_001));
        assert_eq!(
            clock.left(&held, TTL, moment(1_001)),
            Left::AtMost(Duration::from_millis(9_000))
        );
    }

    #[test]
    fn c1_what_another_leader_has_dated_is_not_judged_by_the_clock_of_this_one() {
        let mut clock = Clock::new();
        clock.saw(&stat(3, 7_000), moment(0));
        let before = clock.server;
        clock.saw(&stat(4, 900_000), moment(1));
        assert_ne!(clock.server, before);
        assert_eq!(clock.left(&stat(3, 5_000), TTL, moment(2)), Left::Undated);
        // An answer that was late.
        clock.saw(&stat(3, 7_001), moment(3));
        assert!(matches!(clock.left(&stat(4, 899_999), TTL, moment(4)), Left::AtMost(_)));
    }

    #[test]
    fn c4_what_a_leader_has_dated_that_is_not_known_yet_is_not_dated_anew() {
        let mut clock = Clock::new();
        clock.saw(&stat(3, 7_000), moment(0));
        let held = stat(4, 900_000);
        assert_eq!(clock.left(&held, TTL, moment(1)), Left::AskClock);
        clock.saw(&stat(4, 905_000), moment(2));
        assert_eq!(clock.left(&held, TTL, moment(2)), Left::AtMost(Duration::from_millis(5_001)));
    }
}
