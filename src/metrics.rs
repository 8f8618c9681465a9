//! What a client counts and measures, for graphs and alarms.

mod groups;
mod histogram;
mod text;

use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use self::groups::{ByGroup, Group};
use self::histogram::Histogram;
pub(crate) use self::text::{Now, text};
use crate::clock::Moment;
use crate::error::ErrorKind;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a client has counted since it was opened; from
        /// [`Client::counters`](crate::Client::counters).
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        #[non_exhaustive]
        pub struct Counters { $($(#[$doc])* pub $name: u64,)* }

        /// What is counted and measured of the names of one group.
        #[derive(Default)]
        pub(crate) struct Series {
            $(pub(crate) $name: Count,)*
            calls: [Count; CallEnd::ALL.len()],
            /// From a call until it has the lock, or gives up.
            wait: Histogram,
            pub(crate) hold: Histogram,
            pub(crate) round_trip: Histogram,
            pub(crate) renewal_delay: Histogram,
        }

        impl Series {
            fn add_to(&self, sum: &mut Counters) {
                $(sum.$name += self.$name.read();)*
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

/// How a call that takes a lock ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallEnd {
    Granted,
    /// It only tried, and somebody has it.
    Busy,
    TimedOut,
    Interrupted,
    Unknown,
    Failed,
}

impl CallEnd {
    const ALL: [CallEnd; 6] = {
        use CallEnd::*;
        [Granted, Busy, TimedOut, Interrupted, Unknown, Failed]
    };

    pub(crate) fn without_lease(kind: ErrorKind, only_tries: bool) -> CallEnd {
        match kind {
            ErrorKind::Timeout if only_tries => CallEnd::Busy,
            ErrorKind::Timeout => CallEnd::TimedOut,
            ErrorKind::Interrupted => CallEnd::Interrupted,
            ErrorKind::Unknown => CallEnd::Unknown,
            _ => CallEnd::Failed,
        }
    }
}

impl CallEnd {
    pub(crate) fn word(self) -> &'static str {
        match self {
            CallEnd::Granted => "granted",
            CallEnd::Busy => "busy",
            CallEnd::TimedOut => "timed_out",
            CallEnd::Interrupted => "interrupted",
            CallEnd::Unknown => "unknown",
            CallEnd::Failed => "failed",
        }
    }
}

impl Series {
    /// A call that began at `since` has ended.
    pub(crate) fn called(&self, end: CallEnd, since: Moment, now: Moment) {
        self.calls[end as usize].add_one();
        self.wait.observe(since, now);
    }
}

pub(crate) type Metrics = ByGroup<Series>;

impl Metrics {
    pub(crate) fn read(&self) -> Counters {
        let mut sum = Counters::default();
        self.all().for_each(|series| series.add_to(&mut sum));
        sum
    }
}

/// One counter. Relaxed: they are read for graphs, and order nothing.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
