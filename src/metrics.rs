//! Counters that a program can read and export.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a client has counted since it was opened; from
        /// [`Client::counters`](crate::Client::counters).
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[non_exhaustive]
        pub struct Counters { $($(#[$doc])* pub $name: u64,)* }

        #[derive(Default)]
        pub(crate) struct Metrics { $(pub(crate) $name: Count,)* }

        impl Metrics {
            pub(crate) fn read(&self) -> Counters {
                Counters { $($name: self.$name.0.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Requests to a store for a lock, every try of a wait included.
    attempts,
    /// Leases taken.
    granted,
    /// Tries that found the lock taken.
    busy,
    /// Waits that ran out.
    timed_out,
    /// Requests whose outcome stayed unknown.
    unknown,
    /// Renewals that the store confirmed.
    renewed,
    /// Leases that were lost while held.
    lost,
    /// Releases that found the lease gone, or could not tell.
    released_late,
}

/// One counter. Relaxed: they are read for graphs, and order nothing.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
