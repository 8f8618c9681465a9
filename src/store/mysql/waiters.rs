//! How waiters pass their time: nobody tells them anything, so they ask again and again, the first of
//! them often, and each other one when its turn may come.

use std::time::Duration;

/// The first waiter asks again after this part of the time that the turn has taken so far: what a
/// hand-over loses stays small beside the turn, and so does the number of questions.
const PART: u32 = 4;
pub(super) const SHORTEST: Duration = Duration::from_micros(500);
/// The longest pause of the first waiter.
pub(super) const LONGEST: Duration = Duration::from_millis(10);
/// One behind others pauses no longer than this for each of them.
const STEP: Duration = Duration::from_millis(20);

/// How long a waiter lives without another word, and how long it may pause: it speaks when more than
/// this is gone of the one, and that and a pause are shorter than the whole by enough for it to be late.
#[derive(Clone, Copy)]
pub(super) struct Life {
    pub(super) window: Duration,
    pub(super) place_kept: Duration,
    pub(super) fresh_for: Duration,
}

impl Life {
    pub(super) fn new(claim_window: Duration) -> Life {
        let window = claim_window;
        Life { window, place_kept: window * 2 / 5, fresh_for: window * 2 / 5 }
    }

    /// When a waiter behind `rank` others asks again, if the turn has taken so long by now, and turns
    /// take so long lately.
    pub(super) fn pause(&self, rank: u32, so_far: Duration, turn: Duration) -> Duration {
        let pause = match rank {
            0 => (so_far / PART).clamp(SHORTEST, LONGEST),
            _ => (turn.max(so_far).saturating_mul(rank) / 5 * 4).clamp(SHORTEST, STEP * rank),
        };
        pause.min(self.place_kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn the_first_asks_often_and_the_others_when_their_turn_may_come() {
        let life = Life::new(ms(1000));
        assert_eq!(life.pause(0, ms(0), ms(9)), SHORTEST);
        assert_eq!(life.pause(0, ms(8), ms(9)), ms(2));
        assert_eq!(life.pause(0, ms(8000), ms(9)), LONGEST);
        assert_eq!(life.pause(10, ms(0), ms(5)), ms(40));
        assert_eq!(life.pause(2, ms(8000), ms(5)), ms(40));
        assert_eq!(life.pause(500, ms(8000), ms(5)), life.place_kept);
        assert_eq!(life.pause(u32::MAX, Duration::from_secs(40), ms(5)), life.place_kept);
    }

    #[test]
    fn a_waiter_that_asks_in_time_lives_until_it_asks_again() {
        let life = Life::new(ms(50));
        assert!(life.fresh_for + life.place_kept < life.window);
    }
}
