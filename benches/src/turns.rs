//! What the turns of many waiters say: how long handing over took, in which order, how fairly.
//! Nothing here asks a clock or a server.

use crate::measure::Outcome;
use std::collections::HashMap;

/// One of the waiters: its client, and the thread.
pub(crate) type Who = (usize, usize);

/// One turn, with its moments in nanoseconds of one clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Turn {
    pub(crate) who: Who,
    pub(crate) fence: u64,
    /// When the waiter asked for the lock.
    pub(crate) called: u64,
    /// When it had it.
    pub(crate) granted: u64,
    /// When it began to give it back.
    pub(crate) released: u64,
}

/// Where a turn went from its predecessor's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Went {
    /// To another client.
    Across,
    /// To a thread of the same client.
    Inside,
    /// The same, under the same grant: fences of one grant follow each other without a gap, while
    /// those of two begin at the server's clock, which goes on meanwhile.
    Passed,
}

/// The turns of a stretch of time, in the order of their fences.
pub(crate) struct Slice {
    turns: Vec<Turn>,
    /// From when to when everybody was at work.
    full: (u64, u64),
}

/// With fewer turns each, one turn more or less would decide how fair it was.
const FAIR: f64 = 20.0;

impl Slice {
    /// A failure when two turns have the same fence or overlapped, which no lock may allow.
    pub(crate) fn new(mut turns: Vec<Turn>, from: u64, until: u64) -> Outcome<Slice> {
        turns.sort_unstable_by_key(|turn| turn.fence);
        let slice = Slice { turns, full: (from, until) };
        for (before, after) in slice.pairs() {
            if before.fence == after.fence || after.granted < before.released {
                let (one, two) = (before.fence, after.fence);
                let what = format!("two held the lock together, with the fences {one} and {two}");
                return Err(what.into());
            }
        }
        Ok(slice)
    }

    fn pairs(&self) -> impl Iterator<Item = (&Turn, &Turn)> {
        self.turns.iter().zip(self.turns.iter().skip(1))
    }

    pub(crate) fn count(&self) -> usize {
        self.turns.len()
    }

    /// From the release call of one holder to the return of the next one's call, where the next
    /// one waited already.
    pub(crate) fn handovers(&self, wanted: impl Fn(Went) -> bool) -> Vec<u64> {
        self.pairs()
            .filter(|(before, after)| after.called < before.released)
            .filter(|(before, after)| wanted(went(before, after)))
            .map(|(before, after)| after.granted - before.released)
            .collect()
    }

    /// How many turns came from another client; the first one comes from nowhere, and counts.
    pub(crate) fn crossed(&self) -> usize {
        self.counted(|went| went == Went::Across)
    }

    /// How many turns the server gave.
    pub(crate) fn granted(&self) -> usize {
        self.counted(|went| went != Went::Passed)
    }

    fn counted(&self, wanted: impl Fn(Went) -> bool) -> usize {
        let first = usize::from(!self.turns.is_empty());
        first + self.pairs().filter(|(before, after)| wanted(went(before, after))).count()
    }

    /// The most turns of one waiter over the fewest of another, while everybody was at work.
    pub(crate) fn fairness(&self, waiters: usize) -> Option<f64> {
        let mut each: HashMap<Who, u32> = HashMap::new();
        for turn in
            self.turns.iter().filter(|turn| (self.full.0..self.full.1).contains(&turn.granted))
        {
            *each.entry(turn.who).or_default() += 1;
        }
        let all: u32 = each.values().sum();
        let most = each.values().copied().max()?;
        // One without a turn counts as one with a single turn, so that there is a figure.
        let fewest = if each.len() < waiters { 1 } else { each.into_values().min()? };
        (f64::from(all) / waiters as f64 >= FAIR).then(|| f64::from(most) / f64::from(fewest))
    }

    /// How long everybody waited.
    pub(crate) fn waits(&self) -> Vec<u64> {
        self.turns.iter().map(|turn| turn.granted.saturating_sub(turn.called)).collect()
    }

    /// How long everybody held the lock.
    pub(crate) fn holds(&self) -> Vec<u64> {
        self.turns.iter().map(|turn| turn.released.saturating_sub(turn.granted)).collect()
    }

    /// The most turns that one waiter was granted while another waited, of all pairs of them; and
    /// the most of those that it had asked for after the other.
    pub(crate) fn overtaking(&self) -> (u32, u32) {
        let mut worst = (0, 0);
        let mut meanwhile: HashMap<Who, (u32, u32)> = HashMap::new();
        for (at, waiting) in self.turns.iter().enumerate() {
            meanwhile.clear();
            let earlier = self.turns[..at].iter().rev();
            for turn in earlier.take_while(|turn| turn.granted > waiting.called) {
                let other = meanwhile.entry(turn.who).or_default();
                other.0 += 1;
                other.1 += u32::from(turn.called > waiting.called);
                worst = (worst.0.max(other.0), worst.1.max(other.1));
            }
        }
        worst
    }
}

fn went(before: &Turn, after: &Turn) -> Went {
    if before.who.0 != after.who.0 {
        Went::Across
    } else if before.fence + 1 == after.fence {
        Went::Passed
    } else {
        Went::Inside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Called, granted, released.
    fn turn(who: Who, fence: u64, moments: [u64; 3]) -> Turn {
        let [called, granted, released] = moments;
        Turn { who, fence, called, granted, released }
    }

    fn slice(turns: Vec<Turn>) -> Slice {
        Slice::new(turns, 0, u64::MAX).unwrap()
    }

    /// Three clients of one waiter each in strict order, twice round.
    fn in_order() -> Vec<Turn> {
        vec![
            turn((0, 0), 100, [0, 5, 10]),
            turn((1, 0), 200, [1, 12, 20]),
            turn((2, 0), 300, [2, 23, 30]),
            turn((0, 0), 400, [15, 34, 40]),
            turn((1, 0), 500, [25, 45, 50]),
            turn((2, 0), 600, [35, 56, 60]),
        ]
    }

    #[test]
    fn handing_over_goes_from_the_release_to_the_next_return_where_somebody_waited() {
        let mut turns = in_order();
        // A waiter that asks after the release was not handed anything.
        turns.push(turn((0, 0), 700, [61, 70, 80]));
        turns.reverse();
        let slice = slice(turns);
        assert_eq!(slice.handovers(|went| went == Went::Across), [2, 3, 4, 5, 6]);
        assert!(slice.handovers(|went| went != Went::Across).is_empty());
        assert_eq!((slice.count(), slice.crossed(), slice.granted()), (7, 7, 7));
        assert_eq!(slice.waits()[..2], [5, 11]);
        assert_eq!(slice.holds()[..3], [5, 8, 7]);
    }

    #[test]
    fn turns_inside_a_client_are_told_from_those_that_the_server_gave() {
        let slice = slice(vec![
            turn((0, 0), 100, [0, 5, 10]),
            turn((0, 1), 101, [1, 11, 20]),
            turn((0, 2), 300, [2, 29, 30]),
            turn((1, 0), 301, [3, 45, 50]),
        ]);
        assert_eq!(slice.handovers(|went| went == Went::Passed), [1]);
        assert_eq!(slice.handovers(|went| went == Went::Inside), [9]);
        assert_eq!(slice.handovers(|went| went == Went::Across), [15]);
        assert_eq!((slice.crossed(), slice.granted()), (2, 3));
    }

    #[test]
    fn order_lets_nobody_have_two_turns_while_another_waits() {
        assert_eq!(slice(in_order()).overtaking(), (1, 0));
        let wrong = slice(vec![
            turn((0, 0), 100, [0, 5, 10]),
            turn((1, 0), 200, [1, 12, 20]),
            // It asked at 15, and the third had waited since 2.
            turn((0, 0), 300, [15, 21, 30]),
            turn((0, 0), 400, [31, 33, 40]),
            turn((2, 0), 500, [2, 41, 50]),
        ]);
        assert_eq!(wrong.overtaking(), (3, 2));
    }

    #[test]
    fn two_holders_at_a_time_are_a_failure() {
        let mut turns = in_order();
        turns[2].granted = 19;
        assert!(Slice::new(turns, 0, 100).is_err());
        let mut turns = in_order();
        turns[1].fence = 100;
        assert!(Slice::new(turns, 0, 100).is_err());
    }

    #[test]
    fn fairness_wants_turns_enough_and_knows_those_who_never_had_one() {
        let of = |turns: u64| {
            let one = |number: u64| turn((number as usize % 2, 0), number, [number; 3]);
            slice((0..turns).map(one).collect())
        };
        assert_eq!(of(39).fairness(2), None);
        assert_eq!(of(41).fairness(2), Some(21.0 / 20.0));
        assert_eq!(of(60).fairness(3), Some(30.0));
    }
}
