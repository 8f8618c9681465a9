//! The round trip that hand-overs are compared with.

use std::time::{Duration, Instant};

use super::super::bare::{Bare, pack};
use super::super::watch::Watch;
use super::turns::quantile;
use crate::exit::Failure;

/// How many round trips make one look, after a few that are not counted.
const LOOK: (usize, usize) = (5, 40);
/// Between two of them: both ends fall asleep, and have to be woken.
const PAUSE: Duration = Duration::from_millis(5);

/// Round trips to an idle server.
pub(super) struct Idle {
    bare: Bare,
    ping: Vec<u8>,
    /// The latest look, in nanoseconds.
    latest: Vec<u64>,
    medians: Vec<u64>,
}

impl Idle {
    pub(super) fn new(bare: Bare) -> Idle {
        Idle { bare, ping: pack(&["PING"]), latest: Vec::new(), medians: Vec::new() }
    }

    /// Looks once more, and returns the median of this look and the one before it in nanoseconds:
    /// what a round trip took before and after that which was measured between the two.
    pub(super) fn look(&mut self, watch: &Watch) -> Result<f64, Failure> {
        watch.check()?;
        let mut both = std::mem::take(&mut self.latest);
        for number in 0..LOOK.0 + LOOK.1 {
            std::thread::sleep(PAUSE);
            let before = Instant::now();
            self.bare.exchange(&self.ping)?;
            let nanos = before.elapsed().as_nanos() as u64;
            if number >= LOOK.0 {
                self.latest.push(nanos);
            }
        }
        both.extend(&self.latest);
        let median = quantile(&mut both, 0.5).unwrap_or_default();
        self.medians.push(median);
        Ok(median as f64)
    }

    /// The median over all looks, in microseconds.
    pub(super) fn median_us(&mut self) -> Option<f64> {
        quantile(&mut self.medians, 0.5).map(|nanos| nanos as f64 / 1000.0)
    }
}
