//! When a lease that is not renewed ends what runs under it.

use std::time::Duration;

/// In validity that remains.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long the work has to stop.
    pub grace: Duration,
    /// It is told to stop from here on.
    pub stop: Duration,
    /// A process is killed from here on, so that it is gone when validity ends.
    pub kill: Duration,
}

impl Limits {
    /// A lease is at risk when less than a third of its ttl remains. A long one leaves the store
    /// more time to come back: all but what the work needs to stop in.
    pub fn new(ttl: Duration, grace: Duration) -> Limits {
        let kill = (ttl / 10).min(Duration::from_millis(500));
        Limits { grace, stop: (ttl / 3).min(grace.saturating_add(kill)), kill }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_has_its_grace_and_is_gone_before_validity_ends() {
        let limits = |ttl, grace| {
            let limits = Limits::new(Duration::from_millis(ttl), Duration::from_millis(grace));
            (limits.stop.as_millis(), limits.kill.as_millis())
        };
        assert_eq!(limits(30_000, 10_000), (10_000, 500));
        assert_eq!(limits(2_000, 10_000), (666, 200));
        assert_eq!(limits(24 * 3_600_000, 10_000), (10_500, 500));
        assert_eq!(limits(30_000, 0), (500, 500));
    }
}
