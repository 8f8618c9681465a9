//! The locks that were seen, and which of them are the busiest.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use leasehold::{Holder, Listed, LockState};

/// So many names are remembered; of more, only those that are held.
const MOST_FREE: usize = 100_000;

/// What comes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub(crate) enum Sort {
    /// Turns that were seen in a second
    #[default]
    Turns,
    /// How many wait
    Waiting,
    /// Held for the longest time
    Since,
    /// Free the soonest, unless renewed
    Ttl,
    Name,
}

impl Sort {
    pub(super) fn next(self) -> Sort {
        let all = Sort::value_variants();
        let at = all.iter().position(|one| *one == self).unwrap_or(0);
        all[(at + 1) % all.len()]
    }

    pub(super) fn word(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

pub(super) struct Row {
    pub(super) state: LockState,
    pub(super) waiting: Option<u64>,
    turns: VecDeque<Instant>,
    /// Since when its turns are counted.
    first: Instant,
    /// In which it was seen last.
    scan: u64,
}

/// What is to be told of a lock.
pub(super) struct Line<'a> {
    pub(super) name: &'a [u8],
    pub(super) row: &'a Row,
    /// Turns in a second that were seen: one at each look at most.
    pub(super) rate: f64,
}

impl Row {
    pub(super) fn holder(&self) -> Option<&Holder> {
        self.state.holder.as_ref()
    }

    fn waiting(&self) -> u64 {
        self.waiting.unwrap_or(0)
    }

    fn rate(&self, window: Duration, now: Instant) -> f64 {
        let is_recent = |turn: &&Instant| now.duration_since(**turn) < window;
        let turns = self.turns.iter().rev().take_while(is_recent).count();
        let span = now.duration_since(self.first).min(window).as_secs_f64();
        turns as f64 / span.max(1.0)
    }
}

/// That of who has it, or had it last.
fn fence(state: &LockState) -> Option<u64> {
    state.holder.as_ref().and_then(|holder| holder.fence).or(state.last_fence)
}

/// Ends with a scan, which is as many looks as it takes to have seen every name once.
pub(super) struct Table {
    rows: BTreeMap<Vec<u8>, Row>,
    /// Turns of so long are counted.
    window: Duration,
    start: Instant,
    /// The present one.
    scan: u64,
}

#[derive(Default)]
pub(super) struct Counts {
    pub(super) held: usize,
    pub(super) waiting: u64,
}

impl Table {
    pub(super) fn new(window: Duration, now: Instant) -> Table {
        Table { rows: BTreeMap::new(), window, start: now, scan: 0 }
    }

    pub(super) fn see(&mut self, listed: Listed, now: Instant) {
        self.note(listed.name, listed.state, listed.waiting, now);
    }

    fn note(&mut self, name: Vec<u8>, mut state: LockState, waiting: Option<u64>, now: Instant) {
        let is_held = state.holder.is_some();
        if let Some(row) = self.rows.get_mut(&name) {
            let (known, new) = (fence(&row.state), fence(&state));
            if is_held && row.holder().is_none() && new.is_none() || new.is_some() && new != known {
                row.turns.push_back(now);
            }
            // Where a store forgets it with the holder, it is remembered here.
            state.last_fence = state.last_fence.or(known);
            (row.state, row.waiting, row.scan) = (state, waiting, self.scan);
        } else if is_held || self.rows.len() < MOST_FREE {
            // It was not there, once all that was there had been seen.
            let turns = (self.scan > 0 && is_held).then_some(now).into_iter().collect();
            let (first, scan) = (self.start, self.scan);
            self.rows.insert(name, Row { state, waiting, turns, first, scan });
        }
    }

    /// Every name has been seen that is there.
    pub(super) fn end_scan(&mut self, now: Instant) {
        let (scan, window) = (self.scan, self.window);
        self.rows.retain(|_, row| {
            let is_old = |turn: &Instant| now.duration_since(*turn) >= window;
            while row.turns.front().is_some_and(is_old) {
                row.turns.pop_front();
            }
            if row.scan < scan {
                // It is free, and the store has forgotten it; its last turns count for a while.
                (row.state.holder, row.waiting) = (None, None);
            }
            row.scan == scan || !row.turns.is_empty()
        });
        self.scan += 1;
    }

    /// Those of which there is something to tell.
    pub(super) fn sorted(&self, sort: Sort, now: Instant) -> Vec<Line<'_>> {
        let lines = self.rows.iter().map(|(name, row)| {
            let rate = row.rate(self.window, now);
            Line { name, row, rate }
        });
        let is_busy = |line: &Line<'_>| {
            line.row.holder().is_some() || line.row.waiting() > 0 || line.rate > 0.0
        };
        let mut lines: Vec<_> = lines.filter(is_busy).collect();
        let held = |line: &Line<'_>| line.row.holder().and_then(|holder| holder.held);
        let left = |line: &Line<'_>| line.row.holder().map_or(Duration::MAX, |holder| holder.ttl);
        // Within the same, the order of their names stays.
        match sort {
            Sort::Name => {}
            Sort::Turns => lines.sort_by(|one, other| {
                let waiting = || other.row.waiting().cmp(&one.row.waiting());
                other.rate.total_cmp(&one.rate).then_with(waiting)
            }),
            Sort::Waiting => lines.sort_by_key(|line| Reverse(line.row.waiting())),
            Sort::Since => lines.sort_by_key(|line| Reverse(held(line))),
            Sort::Ttl => lines.sort_by_key(left),
        }
        lines
    }

    pub(super) fn counts(&self) -> Counts {
        self.rows.values().fold(Counts::default(), |counts, row| Counts {
            held: counts.held + usize::from(row.holder().is_some()),
            waiting: counts.waiting + row.waiting(),
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn held(fence: u64, ttl: u64) -> LockState {
        let mut holder = Holder::default();
        holder.token_prefix = "00112233aabb4455".into();
        (holder.fence, holder.ttl) = (Some(fence), Duration::from_secs(ttl));
        holder.held = Some(Duration::from_secs(60 - ttl));
        let mut state = LockState::default();
        state.holder = Some(holder);
        state
    }

    fn free(fence: Option<u64>) -> LockState {
        let mut state = LockState::default();
        state.last_fence = fence;
        state
    }

    /// A scan each second.
    pub(in super::super) struct Scans {
        pub(in super::super) table: Table,
        pub(in super::super) now: Instant,
    }

    impl Scans {
        pub(in super::super) fn new() -> Scans {
            let now = Instant::now();
            Scans { table: Table::new(Duration::from_secs(10), now), now }
        }

        pub(in super::super) fn scan(&mut self, seen: &[(&str, LockState, u64)]) {
            self.now += Duration::from_secs(1);
            for (name, state, waiting) in seen {
                self.table.note(name.as_bytes().into(), state.clone(), Some(*waiting), self.now);
            }
            self.table.end_scan(self.now);
        }

        fn names(&mut self, sort: Sort) -> Vec<String> {
            let lines = self.table.sorted(sort, self.now);
            lines.iter().map(|line| String::from_utf8_lossy(line.name).into_owned()).collect()
        }

        fn rate(&mut self, name: &str) -> Option<f64> {
            let lines = self.table.sorted(Sort::Name, self.now);
            lines.iter().find(|line| line.name == name.as_bytes()).map(|line| line.rate)
        }
    }

    #[test]
    fn each_change_of_the_fence_is_a_turn_and_a_renewal_is_none() {
        let mut scans = Scans::new();
        for at in 0..4 {
            scans.scan(&[("busy", held(10 + at, 30), 0), ("slow", held(5, 30 - at), 0)]);
        }
        assert_eq!(scans.rate("busy"), Some(0.75));
        assert_eq!(scans.rate("slow"), Some(0.0));
        assert_eq!(scans.names(Sort::Turns), ["busy", "slow"]);
        for _ in 0..12 {
            scans.scan(&[("busy", held(13, 30), 0), ("slow", held(5, 30), 0)]);
        }
        assert_eq!(scans.rate("busy"), Some(0.0), "that was long ago");
    }

    #[test]
    fn a_turn_that_was_over_before_the_look_is_counted_by_its_fence() {
        let mut scans = Scans::new();
        scans.scan(&[("n", free(Some(5)), 0)]);
        assert_eq!(scans.rate("n"), None, "nothing is to be told of it");
        scans.scan(&[("n", free(Some(6)), 0)]);
        assert_eq!(scans.rate("n"), Some(0.5));
    }

    #[test]
    fn where_the_store_forgets_a_fence_with_its_holder_a_turn_is_counted_once() {
        let mut scans = Scans::new();
        scans.scan(&[]);
        scans.scan(&[("n", held(5, 30), 0)]);
        scans.scan(&[]);
        assert_eq!(scans.table.counts().held, 0);
        assert_eq!(scans.rate("n"), Some(1.0 / 3.0));
        scans.scan(&[("n", held(6, 30), 0)]);
        assert_eq!(scans.rate("n"), Some(0.5));
        for _ in 0..12 {
            scans.scan(&[]);
        }
        assert!(scans.table.rows.is_empty());
    }

    #[test]
    fn every_order_is_one_that_the_keys_lead_to() {
        let mut scans = Scans::new();
        scans.scan(&[("a", held(1, 30), 0), ("b", held(2, 20), 5), ("c", held(3, 25), 1)]);
        scans.scan(&[("a", held(1, 30), 0), ("b", held(2, 20), 5), ("c", held(4, 25), 1)]);
        let mut sort = Sort::default();
        for order in
            [["c", "b", "a"], ["b", "c", "a"], ["b", "c", "a"], ["b", "c", "a"], ["a", "b", "c"]]
        {
            assert_eq!(scans.names(sort), order, "{sort:?}");
            sort = sort.next();
        }
        assert_eq!(sort, Sort::Turns);
        let counts = scans.table.counts();
        assert_eq!((counts.held, counts.waiting), (3, 6));
    }
}
