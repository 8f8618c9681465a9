//! What holds where nothing is set.

use std::time::Duration;

/// The ttl of a lock.
pub const TTL: Duration = Duration::from_secs(30);
/// How long a lock waits: longer than the default ttl, so that no crashed holder times a waiter out.
pub const WAIT: Duration = Duration::from_secs(60);
/// How long a living holder may keep a renewed lease.
pub const MAX_HOLD: Duration = Duration::from_secs(60 * 60);
/// How long a store may take to answer one request.
pub const IO_TIMEOUT: Duration = Duration::from_secs(1);
/// How many requests of one client may be under way at once.
pub const POOL: u32 = 8;
/// How long [`Client::close`](crate::Client::close) goes on releasing leases.
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a lock that was handed to a waiter stays with one that does not answer for it.
pub const CLAIM_WINDOW: Duration = Duration::from_secs(1);
/// The longest ttl in a store that guards against lost data: for as long, a server that came back
/// without its data grants nothing.
pub const GUARDED_MAX_TTL: Duration = Duration::from_secs(60);
