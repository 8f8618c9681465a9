//! What the turns of many waiters say: how long handing over took, in which order, how fairly.
//! Nothing here asks a clock or a server.

use std::collections::HashMap;

use crate::exit::Failure;

/// One of the waiters: its process, and the thread in it.
pub(super) type Who = (usize, usize);

/// One turn, with its moments in nanoseconds of a clock that all processes of a machine share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Turn {
    pub(super) who: Who,
    pub(super) fence: u64,
    /// When the waiter asked for the lock.
    pub(super) called: u64,
    /// When it had it.
    pub(super) granted: u64,
    /// When it began to give it back.
    pub(super) released: u64,
}

/// Where a turn went from its predecessor's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Went {
    /// To another process.
    Across,
    /// To a thread of the same process.
    Inside,
    /// The same, under the same grant: fences of one grant follow each other without a gap, while
    /// those of two begin at the server's clock, which goes on meanwhile.
    Passed,
}

/// The turns of a stretch of time, in the order of their fences.
pub(super) struct Slice {
    turns: Vec<Turn>,
}

impl Slice {
    /// A failure when two turns have the same fence or overlapped, which no lock may allow.
    pub(super) fn new(mut turns: Vec<Turn>) -> Result<Slice, Failure> {
        turns.sort_unstable_by_key(|turn| turn.fence);
        let slice = Slice { turns };
        for (before, after) in slice.pairs() {
            if before.fence == after.fence || after.granted < before.released {
                let (one, two) = (before.fence, after.fence);
                let what = format!("two held the lock together, with the fences {one} and {two}");
                return Err(Failure::unavailable(what));
            }
        }
        Ok(slice)
    }

    fn pairs(&self) -> impl Iterator<Item = (&Turn, &Turn)> {
        self.turns.iter().zip(self.turns.iter().skip(1))
    }

    pub(super) fn count(&self) -> usize {
        self.turns.len()
    }

    /// From the release call of one holder to the return of the next one's call, where the next
    /// one waited already.
    pub(super) fn handovers(&self, wanted: impl Fn(Went) -> bool) -> Vec<u64> {
        self.pairs()
            .filter(|(before, after)| after.called < before.released)
            .filter(|(before, after)| wanted(went(before, after)))
            .map(|(before, after)| after.granted - before.released)
            .collect()
    }

    /// How many turns came from another process; the first one comes from nowhere, and counts.
    pub(super) fn crossed(&self) -> usize {
        self.counted(|went| went == Went::Across)
    }

    /// How many turns the server gave.
    pub(super) fn granted(&self) -> usize {
        self.counted(|went| went != Went::Passed)
    }

    fn counted(&self, wanted: impl Fn(Went) -> bool) -> usize {
        let first = usize::from(!self.turns.is_empty());
        first + self.pairs().filter(|(before, after)| wanted(went(before, after))).count()
    }

    /// How the turns of a span of time were shared out among so many waiters.
    pub(super) fn shares(&self, waiters: usize, from: u64, until: u64) -> Shares {
        let mut each: HashMap<Who, u32> = HashMap::new();
        for turn in self.turns.iter().filter(|turn| (from..until).contains(&turn.granted)) {
            *each.entry(turn.who).or_default() += 1;
        }
        let all: u32 = each.values().sum();
        let most = each.values().copied().max().unwrap_or(0);
        let fewest = if each.len() < waiters { 0 } else { each.into_values().min().unwrap_or(0) };
        Shares { mean: f64::from(all) / waiters.max(1) as f64, most, fewest }
    }

    /// How long everybody waited.
    pub(super) fn waits(&self) -> Vec<u64> {
        self.turns.iter().map(|turn| turn.granted.saturating_sub(turn.called)).collect()
    }

    /// How long everybody held the lock.
    pub(super) fn holds(&self) -> Vec<u64> {
        self.turns.iter().map(|turn| turn.released.saturating_sub(turn.granted)).collect()
    }

    pub(super) fn overtaking(&self) -> Overtaking {
        let mut worst = Overtaking::default();
        let mut meanwhile: HashMap<Who, Overtaking> = HashMap::new();
        for (at, waiting) in self.turns.iter().enumerate() {
            meanwhile.clear();
            let earlier = self.turns[..at].iter().rev();
            for turn in earlier.take_while(|turn| turn.granted > waiting.called) {
                let other = meanwhile.entry(turn.who).or_default();
                other.turns += 1;
                other.later += u32::from(turn.called > waiting.called);
                worst.turns = worst.turns.max(other.turns);
                worst.later = worst.later.max(other.later);
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

/// How many turns a waiter had.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Shares {
    pub(super) mean: f64,
    pub(super) most: u32,
    pub(super) fewest: u32,
}

/// The most that one waiter got ahead of another, of all pairs of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Overtaking {
    /// Turns that one was granted while the other waited.
    pub(super) turns: u32,
    /// Those among them that it had asked for after the other.
    pub(super) later: u32,
}

impl Overtaking {
    pub(super) fn or_worse(self, other: Overtaking) -> Overtaking {
        Overtaking { turns: self.turns.max(other.turns), later: self.later.max(other.later) }
    }
}

/// The value below which a share of all values lie: a half is the median.
pub(super) fn quantile(values: &mut [u64], share: f64) -> Option<u64> {
    let last = values.len().checked_sub(1)?;
    let at = ((values.len() as f64 * share) as usize).min(last);
    Some(*values.select_nth_unstable(at).1)
}

/// The middle one of figures, of those that there are; of an even number, the upper of the two.
pub(super) fn middle(figures: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let mut figures: Vec<f64> = figures.flatten().collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Called, granted, released.
    fn turn(who: Who, fence: u64, moments: [u64; 3]) -> Turn {
        let [called, granted, released] = moments;
        Turn { who, fence, called, granted, released }
    }

    /// Three processes of one waiter each in strict order, twice round.
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
        // Whoever asks after the release was not handed anything.
        turns.push(turn((0, 0), 700, [61, 70, 80]));
        turns.reverse();
        let slice = Slice::new(turns).unwrap();
        assert_eq!(slice.handovers(|went| went == Went::Across), [2, 3, 4, 5, 6]);
        assert!(slice.handovers(|went| went != Went::Across).is_empty());
        assert_eq!((slice.count(), slice.crossed(), slice.granted()), (7, 7, 7));
        assert_eq!(slice.waits()[..2], [5, 11]);
        assert_eq!(slice.holds()[..3], [5, 8, 7]);
    }

    #[test]
    fn turns_inside_a_process_are_told_from_those_that_the_server_gave() {
        let slice = Slice::new(vec![
            turn((0, 0), 100, [0, 5, 10]),
            turn((0, 1), 101, [1, 11, 20]),
            turn((0, 2), 300, [2, 29, 30]),
            turn((1, 0), 301, [3, 45, 50]),
        ])
        .unwrap();
        assert_eq!(slice.handovers(|went| went == Went::Passed), [1]);
        assert_eq!(slice.handovers(|went| went == Went::Inside), [9]);
        assert_eq!(slice.handovers(|went| went == Went::Across), [15]);
        assert_eq!((slice.crossed(), slice.granted()), (2, 3));
    }

    #[test]
    fn order_lets_nobody_have_two_turns_while_another_waits() {
        let slice = Slice::new(in_order()).unwrap();
        assert_eq!(slice.overtaking(), Overtaking { turns: 1, later: 0 });
    }

    #[test]
    fn a_wrong_order_is_detected() {
        let slice = Slice::new(vec![
            turn((0, 0), 100, [0, 5, 10]),
            turn((1, 0), 200, [1, 12, 20]),
            // It asked at 15, and the third had waited since 2.
            turn((0, 0), 300, [15, 21, 30]),
            turn((0, 0), 400, [31, 33, 40]),
            turn((2, 0), 500, [2, 41, 50]),
        ])
        .unwrap();
        assert_eq!(slice.overtaking(), Overtaking { turns: 3, later: 2 });
    }

    #[test]
    fn two_holders_at_a_time_are_a_failure() {
        let mut turns = in_order();
        turns[2].granted = 19;
        assert!(Slice::new(turns).is_err());
        let mut turns = in_order();
        turns[1].fence = 100;
        assert!(Slice::new(turns).is_err());
    }

    #[test]
    fn fairness_knows_those_who_never_had_a_turn() {
        let slice = Slice::new(in_order()).unwrap();
        let shares = |waiters, from, until| slice.shares(waiters, from, until);
        assert_eq!(shares(3, 0, 100), Shares { mean: 2.0, most: 2, fewest: 2 });
        assert_eq!(shares(3, 34, 56), Shares { mean: 2.0 / 3.0, most: 1, fewest: 0 });
        assert_eq!(shares(3, 12, 57), Shares { mean: 5.0 / 3.0, most: 2, fewest: 1 });
        assert_eq!(shares(4, 0, 100), Shares { mean: 1.5, most: 2, fewest: 0 });
    }

    #[test]
    fn nothing_has_no_figures() {
        let slice = Slice::new(Vec::new()).unwrap();
        assert_eq!((slice.count(), slice.crossed()), (0, 0));
        assert_eq!(slice.overtaking(), Overtaking::default());
        assert_eq!(quantile(&mut [], 0.5), None);
        assert_eq!(middle([None, None].into_iter()), None);
    }

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let mut values: Vec<u64> = (0..100).rev().collect();
        assert_eq!(quantile(&mut values, 0.5), Some(50));
        assert_eq!(quantile(&mut values, 0.99), Some(99));
        assert_eq!(quantile(&mut [7], 0.99), Some(7));
        assert_eq!(middle([Some(3.0), None, Some(1.0), Some(2.0)].into_iter()), Some(2.0));
    }
}
