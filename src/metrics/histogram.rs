//! Times, counted by how long they were.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Count;
use crate::clock::Moment;

/// What the buckets reach to, in microseconds: 100 us to 1 h, and everything else. Each is at least
/// three times the one before, which [`FIRST`] relies on.
const REACH: [u64; BUCKETS] = [
    100,
    300,
    1_000,
    3_000,
    10_000,
    30_000,
    100_000,
    300_000,
    1_000_000,
    3_000_000,
    10_000_000,
    30_000_000,
    100_000_000,
    300_000_000,
    1_000_000_000,
    3_600_000_000,
    u64::MAX,
];
pub(super) const BUCKETS: usize = 17;

/// The first bucket for numbers of so many bits: that of any such number, or the one before it.
const FIRST: [u8; 65] = first();

const fn first() -> [u8; 65] {
    let (mut table, mut bits, mut bucket) = ([0; 65], 1, 0);
    while bits <= 64 {
        while REACH[bucket] < 1 << (bits - 1) {
            bucket += 1;
        }
        table[bits] = bucket as u8;
        bits += 1;
    }
    table
}

/// Relaxed, as all counts are: a graph that is read in the midst of a change may miss one.
#[derive(Default)]
pub(crate) struct Histogram {
    buckets: [Count; BUCKETS],
    /// Microseconds: nanoseconds of 100,000 leases would run over within days.
    sum: AtomicU64,
}

impl Histogram {
    /// A time that went from `since` to `now`; none, where it began later.
    pub(crate) fn observe(&self, since: Moment, now: Moment) {
        let micros = now.as_nanos().saturating_sub(since.as_nanos()) / 1000;
        if let Some(bucket) = self.buckets.get(bucket_of(micros)) {
            bucket.add_one();
        }
        self.sum.fetch_add(micros, Ordering::Relaxed);
    }

    /// What each bucket reaches to, in seconds, with how many times were no longer, the last one
    /// being all of them; and the sum of them.
    pub(super) fn read(&self) -> ([(f64, u64); BUCKETS], f64) {
        let mut count = 0;
        let mut rows = [(f64::INFINITY, 0); BUCKETS];
        for ((row, bucket), reach) in rows.iter_mut().zip(&self.buckets).zip(REACH) {
            count += bucket.read();
            *row = (if reach == u64::MAX { f64::INFINITY } else { seconds(reach) }, count);
        }
        (rows, seconds(self.sum.load(Ordering::Relaxed)))
    }
}

fn bucket_of(micros: u64) -> usize {
    let bits = u64::BITS - micros.leading_zeros();
    let first = usize::from(FIRST[bits as usize]);
    first + usize::from(micros > REACH[first])
}

/// Exact to the microsecond for some 280 years.
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_that_reaches_to_it() {
        let slow = |micros| REACH.iter().position(|reach| micros <= *reach).unwrap();
        let near = REACH.iter().flat_map(|reach| [reach - 1, *reach, reach.saturating_add(1)]);
        let powers = (0..64).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1]);
        for micros in near.chain(powers).chain([0, u64::MAX]) {
            assert_eq!(bucket_of(micros), slow(micros), "{micros}");
        }
    }

    #[test]
    fn buckets_add_up_and_nothing_is_negative() {
        let histogram = Histogram::default();
        let at = |micros: u64| Moment::from_nanos(micros * 1000);
        for (since, now) in [(5, 5), (0, 100), (7, 208), (9, 3), (0, 5_000_000), (0, 1 << 50)] {
            histogram.observe(at(since), at(now));
        }
        let (rows, sum) = histogram.read();
        assert_eq!(rows[..3], [(0.0001, 3), (0.0003, 4), (0.001, 4)]);
        assert_eq!(rows[9..11], [(3.0, 4), (10.0, 5)]);
        assert_eq!(rows[15..], [(3600.0, 5), (f64::INFINITY, 6)]);
        assert!((sum - (5.000301 + (1u64 << 50) as f64 / 1e6)).abs() < 1e-3, "{sum}");
    }
}
