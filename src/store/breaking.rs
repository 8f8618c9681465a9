//! What a store needs in order to end a grant that is another's, and what it leaves word of.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{Error, plain};
use crate::token::Token;

/// A grant as the store has it: what a break is sent for, so that it ends no later one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StoredGrant {
    pub(crate) name: Arc<[u8]>,
    pub(crate) token: Token,
    /// The fence that a look tells; `None` where the store does not know it any more.
    pub(crate) fence: Option<u64>,
    /// The last one that was reserved.
    pub(crate) last: u64,
    /// When it would have ended by itself.
    pub(crate) left: Duration,
}

impl StoredGrant {
    /// Why a name that is taken cannot be broken.
    pub(crate) const FOREIGN: &str = "what has the name is no lock of this library";

    /// Whether a turn with this fence is one of the grant's, as far as the store can tell.
    pub(crate) fn has(&self, fence: u64) -> bool {
        self.fence.is_some_and(|first| first <= fence && fence <= self.last.max(first))
    }
}

/// Who has broken a lock, and when, from `last_breach`; also what the
/// holder is told in its event, its error and its log.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Breach {
    /// Who did it, as they said themselves: text without anything that a terminal obeys.
    pub by: String,
    /// When, by the store's clock.
    pub at: SystemTime,
    /// Of the token whose grant it was, so many digits as [`Holder`](crate::Holder) has.
    pub token_prefix: String,
    pub(crate) token: Token,
}

/// Of some names, in their order.
pub(crate) type Breaches = Vec<Result<Option<Breach>, Error>>;

/// Asked for one after the other: where one is refused, they all are.
#[allow(dead_code, reason = "for stores that are features")]
pub(crate) fn each_until_refused(
    of: &[&[u8]],
    ask: impl Fn(&[u8]) -> Result<Option<Breach>, Error>,
) -> Breaches {
    let mut is_refused = false;
    let mut ask = |name: &&[u8]| {
        let said = (!is_refused).then(|| ask(name))?;
        is_refused = said.is_err();
        Some(said)
    };
    of.iter().map_while(&mut ask).collect()
}

/// How much of who it was is kept.
pub(crate) const LONGEST_BY: usize = 200;
/// For so long at most a store knows why a grant ended.
#[allow(dead_code, reason = "for stores that are features")]
pub(crate) const LONGEST_REMEMBERED: Duration = Duration::from_secs(3600);

impl Breach {
    /// The time is the store's, in microseconds.
    pub(crate) fn new(token: Token, by: &[u8], at: u64) -> Breach {
        let by = plain(&by[..by.len().min(LONGEST_BY)]);
        // No year of ours is beyond what the clock can count.
        let at = UNIX_EPOCH.checked_add(Duration::from_micros(at)).unwrap_or(UNIX_EPOCH);
        Breach { by, at, token_prefix: token.shown(), token }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        write!(f, "broken by an operator ({}) at {}", self.by, Utc(at.as_secs()))
    }
}

/// Seconds since 1970 as people read them.
struct Utc(u64);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, second) = (self.0 / 86_400, self.0 % 86_400);
        // Years that begin in March have their leap day at the end; 400 of them have 146,097 days.
        let days = days + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let (date, month) = (day - (153 * month + 2) / 5 + 1, (month + 2) % 12 + 1);
        let year = era * 400 + year + u64::from(month <= 2);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year}-{month:02}-{date:02} {hour:02}:{minute:02}:{second:02} UTC")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_breach_says_who_and_when_and_commands_no_terminal() {
        let token = "00112233445566778899aabbccddeeff".parse().unwrap();
        let breach = Breach::new(token, b"root@web-3\x1b[2J", 1_795_455_131_000_000);
        let said = "broken by an operator (root@web-3\\u{1b}[2J) at 2026-11-23 17:32:11 UTC";
        assert_eq!(breach.to_string(), said);
        assert!(Breach::new(token, &[b'x'; 1000], 0).to_string().len() < 300);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, said) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(Utc(seconds).to_string(), said);
        }
    }

    #[test]
    fn a_turn_of_a_cohort_is_the_grants() {
        let token = "00112233445566778899aabbccddeeff".parse().unwrap();
        let held = |fence, last| StoredGrant {
            name: Arc::from(&b"n"[..]),
            token,
            fence,
            last,
            left: Duration::ZERO,
        };
        assert!(held(Some(41), 41).has(41) && !held(Some(41), 41).has(42));
        assert!(held(Some(41), 104).has(104) && !held(Some(41), 104).has(105));
        assert!(!held(None, 0).has(0));
    }
}
