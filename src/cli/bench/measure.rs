//! Loops timed against each other. They take turns in short blocks, in random order, so that a
//! noisy minute of the machine falls on all of them alike; what is compared are medians, which a
//! few disturbed cycles do not move.

use std::time::{Duration, Instant};

use super::watch::Watch;
use crate::exit::Failure;

/// Something to time.
pub(super) trait Timed {
    /// Makes so many cycles, and adds what each of them took in nanoseconds.
    fn block(&mut self, cycles: u32, samples: &mut Vec<u32>, watch: &Watch) -> Result<(), Failure>;
}

/// One cycle a call.
impl<F: FnMut() -> Result<(), Failure>> Timed for F {
    fn block(&mut self, cycles: u32, samples: &mut Vec<u32>, _: &Watch) -> Result<(), Failure> {
        samples.reserve(cycles as usize);
        for _ in 0..cycles {
            let before = Instant::now();
            self()?;
            samples.push(nanos(before.elapsed()));
        }
        Ok(())
    }
}

/// The same where only a part of each cycle counts: the loop itself tells how long that was.
pub(super) struct Part<F>(pub(super) F);

impl<F: FnMut() -> Result<Duration, Failure>> Timed for Part<F> {
    fn block(&mut self, cycles: u32, samples: &mut Vec<u32>, _: &Watch) -> Result<(), Failure> {
        samples.reserve(cycles as usize);
        for _ in 0..cycles {
            samples.push(nanos((self.0)()?));
        }
        Ok(())
    }
}

pub(super) fn nanos(time: Duration) -> u32 {
    u32::try_from(time.as_nanos()).unwrap_or(u32::MAX)
}

/// A block is about this long, so that a second has room for many.
const BLOCK: Duration = Duration::from_millis(10);
const BLOCK_CYCLES: (u32, u32) = (4, 200);

/// Runs the loops for `time` altogether, and before that for a tenth of it unmeasured. Returns
/// each one's median in microseconds.
pub(super) fn interleave(
    loops: &mut [&mut dyn Timed],
    time: Duration,
    watch: &Watch,
) -> Result<Vec<f64>, Failure> {
    let mut sizes = Vec::with_capacity(loops.len());
    for timed in loops.iter_mut() {
        sizes.push(warm_up(*timed, time / 10 / sizes.capacity().max(1) as u32, watch)?);
    }
    let mut samples: Vec<Vec<u32>> = vec![Vec::new(); loops.len()];
    let mut order: Vec<usize> = (0..loops.len()).collect();
    let mut random = Random::new()?;
    let started = Instant::now();
    while started.elapsed() < time {
        random.shuffle(&mut order);
        for &turn in &order {
            watch.check()?;
            loops[turn].block(sizes[turn], &mut samples[turn], watch)?;
        }
    }
    Ok(samples.iter_mut().map(|samples| f64::from(median(samples)) / 1000.0).collect())
}

/// How many cycles make a block.
fn warm_up(timed: &mut dyn Timed, time: Duration, watch: &Watch) -> Result<u32, Failure> {
    let mut cycles = 0;
    let mut unmeasured = Vec::new();
    // A program may have to start first, which says nothing about its cycles.
    timed.block(BLOCK_CYCLES.0, &mut unmeasured, watch)?;
    let started = Instant::now();
    while cycles == 0 || started.elapsed() < time {
        watch.check()?;
        timed.block(BLOCK_CYCLES.0, &mut unmeasured, watch)?;
        unmeasured.clear();
        cycles += BLOCK_CYCLES.0;
    }
    let fitting = BLOCK.as_secs_f64() / started.elapsed().as_secs_f64() * f64::from(cycles);
    Ok((fitting as u32).clamp(BLOCK_CYCLES.0, BLOCK_CYCLES.1))
}

/// The middle one; of an even number of them, the upper one of the two.
pub(super) fn median(samples: &mut [u32]) -> u32 {
    if samples.is_empty() {
        return 0;
    }
    let middle = samples.len() / 2;
    *samples.select_nth_unstable(middle).1
}

/// Enough chance to mix an order (xorshift).
struct Random(u64);

impl Random {
    fn new() -> Result<Random, Failure> {
        Ok(Random(random_bits()? | 1))
    }

    fn shuffle(&mut self, order: &mut [usize]) {
        for last in (1..order.len()).rev() {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            order.swap(last, (self.0 % (last as u64 + 1)) as usize);
        }
    }
}

pub(super) fn random_bits() -> Result<u64, Failure> {
    getrandom::u64().map_err(|error| Failure::unavailable(format!("random bits: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_not_moved_by_a_few_disturbed_cycles() {
        assert_eq!(median(&mut [5, 900_000, 4, 6, 5]), 5);
        assert_eq!(median(&mut [1, 2, 3, 4]), 3);
        assert_eq!(median(&mut []), 0);
    }

    #[test]
    fn a_shuffle_keeps_everything_and_comes_to_every_order() {
        let mut random = Random(1);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            let mut order = vec![0, 1, 2];
            random.shuffle(&mut order);
            seen.insert(order);
        }
        assert_eq!(seen.len(), 6);
    }

    #[test]
    fn loops_take_turns_and_a_fault_ends_them() {
        let watch = Watch::blind();
        let (mut first, mut second) = (0, 0);
        let mut one = || {
            first += 1;
            Ok(())
        };
        let mut two = || {
            second += 1;
            Ok(())
        };
        let time = Duration::from_millis(20);
        let medians = interleave(&mut [&mut one, &mut two], time, &watch).unwrap();
        assert_eq!(medians.len(), 2);
        assert!(first > 8 && second > 8, "{first} {second}");
        let mut broken = || Err(Failure::unavailable("gone"));
        let error = interleave(&mut [&mut broken], time, &watch).unwrap_err();
        assert_eq!(error.to_string(), "gone");
    }
}
