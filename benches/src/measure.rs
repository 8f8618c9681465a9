//! Loops timed against each other. They take turns in short blocks, in random order, so that a
//! noisy minute of the machine falls on all of them alike; what is compared are medians, which a
//! few disturbed cycles do not move.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Something to time: makes this many cycles, and adds what each of them took in nanoseconds.
pub(crate) type Loop<'a> = Box<dyn FnMut(u32, &mut Vec<u64>) -> Outcome<()> + 'a>;

/// A loop of which each cycle tells how long the part that counts took.
pub(crate) fn part<'a>(mut cycle: impl FnMut() -> Outcome<Duration> + 'a) -> Loop<'a> {
    Box::new(move |cycles, samples| {
        for _ in 0..cycles {
            samples.push(nanos(cycle()?));
        }
        Ok(())
    })
}

pub(crate) fn whole<'a>(mut cycle: impl FnMut() -> Outcome<()> + 'a) -> Loop<'a> {
    part(move || {
        let begun = Instant::now();
        cycle()?;
        Ok(begun.elapsed())
    })
}

pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A block is about this long, so that a second has room for many.
const BLOCK: Duration = Duration::from_millis(10);
const BLOCK_CYCLES: (u32, u32) = (4, 200);

/// Runs the loops for `time` altogether, and before that for a tenth of it unmeasured. Returns
/// each one's median in microseconds.
pub(crate) fn interleave(loops: &mut [Loop<'_>], time: Duration) -> Outcome<Vec<f64>> {
    let mut sizes = Vec::new();
    let warm_up_time = time / 10 / loops.len().max(1) as u32;
    for one in loops.iter_mut() {
        sizes.push(warm_up(one, warm_up_time)?);
    }
    let mut samples = vec![Vec::new(); loops.len()];
    let mut order: Vec<usize> = (0..loops.len()).collect();
    let random = RandomState::new();
    let (started, mut round) = (Instant::now(), 0_u64);
    while started.elapsed() < time {
        round += 1;
        order.sort_by_cached_key(|at| random.hash_one((round, at)));
        for &at in &order {
            loops[at](sizes[at], &mut samples[at])?;
        }
    }
    Ok(samples.iter_mut().map(|samples| median_us(samples)).collect())
}

/// How many cycles make a block.
fn warm_up(one: &mut Loop<'_>, time: Duration) -> Outcome<u32> {
    let (mut cycles, mut unmeasured) = (0, Vec::new());
    // A program may have to start first, which says nothing about its cycles.
    one(BLOCK_CYCLES.0, &mut unmeasured)?;
    let started = Instant::now();
    while cycles == 0 || started.elapsed() < time {
        one(BLOCK_CYCLES.0, &mut unmeasured)?;
        cycles += BLOCK_CYCLES.0;
    }
    let fitting = BLOCK.as_secs_f64() / started.elapsed().as_secs_f64() * f64::from(cycles);
    Ok((fitting as u32).clamp(BLOCK_CYCLES.0, BLOCK_CYCLES.1))
}

/// The value below which a share of all values lie: a half is the median.
pub(crate) fn quantile(values: &mut [u64], share: f64) -> Option<u64> {
    let last = values.len().checked_sub(1)?;
    let at = ((values.len() as f64 * share) as usize).min(last);
    Some(*values.select_nth_unstable(at).1)
}

pub(crate) fn median_us(nanos: &mut [u64]) -> f64 {
    quantile(nanos, 0.5).unwrap_or(0) as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_a_value_that_was_measured() {
        let mut values: Vec<u64> = (0..100).rev().collect();
        assert_eq!(quantile(&mut values, 0.5), Some(50));
        assert_eq!(quantile(&mut values, 0.99), Some(99));
        assert_eq!(quantile(&mut [5, 900_000, 4, 6, 5], 0.5), Some(5));
        assert_eq!(quantile(&mut [7], 0.99), Some(7));
        assert_eq!(quantile(&mut [], 0.5), None);
    }

    #[test]
    fn loops_take_turns_and_a_fault_ends_them() {
        let (mut first, mut second) = (0, 0);
        let mut loops = [
            part(|| {
                first += 1;
                Ok(Duration::from_micros(7))
            }),
            part(|| {
                second += 1;
                Ok(Duration::from_micros(9))
            }),
        ];
        let medians = interleave(&mut loops, Duration::from_millis(20)).unwrap();
        drop(loops);
        assert_eq!(medians, [7.0, 9.0]);
        assert!(first > 8 && second > 8, "{first} {second}");
        let error = interleave(&mut [whole(|| Err("gone".into()))], Duration::ZERO).unwrap_err();
        assert_eq!(error.to_string(), "gone");
    }
}
