//! What no setting goes beyond.

use std::time::Duration;

/// The longest ttl that any store takes: a job that is done once a year.
pub const MAX_TTL: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// The longest ttl that a quorum takes: its servers keep a fence for 25 hours or more, and there no
/// clock stands in for one that they forgot while the lock was still taken.
pub const MAX_QUORUM_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// The shortest ttl: of less, the margin for drift would leave nothing to rely on.
pub const MIN_TTL: Duration = Duration::from_millis(3);
/// Below this ttl there is no time to renew in.
pub const MIN_RENEWED_TTL: Duration = Duration::from_millis(100);
/// The longest name, in bytes.
pub const MAX_NAME: usize = 64 * 1024;
/// The longest [label](crate::Config::label), in bytes.
pub const MAX_LABEL: usize = 100;
/// The most groups of names whose metrics are counted apart.
pub const MAX_METRICS_GROUPS: usize = 32;
/// The largest fence: 2^53 - 1, which every language's numbers hold exactly.
pub const MAX_FENCE: u64 = (1 << 53) - 1;
