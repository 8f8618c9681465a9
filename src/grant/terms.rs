//! What leases are asked for.

use std::time::Duration;

use crate::metrics::Group;
use crate::store::millis;

/// What a lock asks of the leases that it makes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Terms {
    pub(crate) ttl: Duration,
    pub(crate) renew: bool,
    /// Only for renewed leases.
    pub(crate) max_hold: Option<Duration>,
    /// The metrics group of the name.
    pub(crate) group: Group,
}

impl Terms {
    /// The ttl of the first request.
    pub(crate) fn first_ttl(&self) -> Duration {
        whole_millis(self.ttl.min(self.max_hold.unwrap_or(self.ttl)))
    }

    /// The ttl by which renewals are paced: a day at most, so that what the store keeps beside the
    /// lock lives on.
    pub(super) fn paced(&self) -> Duration {
        self.ttl.min(Duration::from_secs(24 * 60 * 60))
    }
}

/// Stores count whole milliseconds, and no holder may rely on more than was asked for.
pub(super) fn whole_millis(span: Duration) -> Duration {
    Duration::from_millis(millis(span))
}
