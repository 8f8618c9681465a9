//! Randomness for pauses, where predictable is harmless and slow is not. Tokens come from the
//! operating system instead.

use std::time::Duration;

/// SplitMix64: one word of state, and every seed is a good one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Jitter(u64);

impl Jitter {
    /// The seed must differ between the threads and processes that start together: random bits,
    /// where there are some already.
    pub(crate) fn seeded(seed: u64) -> Jitter {
        Jitter(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// One of its own, whose copies all draw the same.
    pub(crate) fn split(&mut self) -> Jitter {
        Jitter(self.next())
    }

    pub(crate) fn up_to(&mut self, most: Duration) -> Duration {
        // 53 random bits as a fraction of one.
        most.mul_f64((self.next() >> 11) as f64 / (1u64 << 53) as f64)
    }

    pub(crate) fn around(&mut self, span: Duration) -> Duration {
        span - span / 10 + self.up_to(span / 5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_in_its_range_and_fills_it() {
        let mut jitter = Jitter::seeded(7);
        let second = Duration::from_secs(1);
        let drawn: Vec<_> = (0..1000).map(|_| jitter.up_to(second)).collect();
        assert!(drawn.iter().all(|span| *span <= second));
        assert!(drawn.iter().any(|span| *span < second / 20));
        assert!(drawn.iter().any(|span| *span > second * 19 / 20));
        let around = jitter.around(second);
        assert!(around >= second * 9 / 10 && around <= second * 11 / 10);
    }
}
