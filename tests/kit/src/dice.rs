//! Numbers by chance that a seed brings back.

use std::time::{Duration, SystemTime};

/// For how long a run of chances goes on: as `KIT_CHAOS_SECONDS` says, or so many seconds.
pub fn chaos_length(short: u64, long: u64) -> Duration {
    let given = std::env::var("KIT_CHAOS_SECONDS").ok();
    let given = given.map(|text| text.parse().expect("a number of seconds"));
    let is_long = std::env::var_os("KIT_LONG").is_some();
    Duration::from_secs(given.unwrap_or(if is_long { long } else { short }))
}

/// SplitMix64.
#[derive(Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// With the seed in an environment variable, or one that nobody had before; says which.
    pub fn from_env(name: &str) -> Dice {
        let given = std::env::var(name).ok().map(|text| text.parse().expect("a seed is a number"));
        let seed =
            given.unwrap_or_else(|| SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64);
        println!("seed {seed}");
        Dice(seed)
    }

    /// Dice of its own for somebody else.
    pub fn split(&mut self) -> Dice {
        Dice(self.below(u64::MAX))
    }

    /// Less than this.
    pub fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % most
    }

    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Less than this, in milliseconds.
    pub fn ms_below(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.below(most))
    }
}
