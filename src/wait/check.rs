//! The caller's own check, which may end a wait.

use std::time::Duration;

use crate::clock::Moment;

/// How often it is asked.
const CHECK: Duration = Duration::from_millis(100);

pub(crate) struct Check<'a> {
    asks: &'a mut dyn FnMut() -> bool,
    next: Moment,
}

impl<'a> Check<'a> {
    pub(crate) fn new(asks: &'a mut dyn FnMut() -> bool) -> Check<'a> {
        Check { asks, next: Moment::ZERO }
    }

    /// When it is to be asked again.
    pub(crate) fn due(&self) -> Moment {
        self.next
    }

    pub(crate) fn says_stop(&mut self, now: Moment) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now.plus(CHECK);
        (self.asks)()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callers_check_is_asked_again_when_it_is_due() {
        let mut asked = 0;
        let mut asks = || {
            asked += 1;
            asked == 3
        };
        let (mut check, start) = (Check::new(&mut asks), Moment::from_nanos(1_000_000_000_000));
        assert!(!check.says_stop(start) && !check.says_stop(start));
        assert_eq!(check.due(), start.plus(CHECK));
        assert!(!check.says_stop(check.due()));
        assert!(check.says_stop(check.due()));
        assert_eq!(asked, 3);
    }
}
