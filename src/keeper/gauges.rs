//! The gauges of the metrics. They are looked up when the metrics are asked for, so that no cycle
//! of acquire and release pays for them.

use super::Core;
use crate::clock::Moment;
use crate::metrics::{ByGroup, Group, Now, text};

/// How many leases are read while the book is locked: calls that take a lock wait for as long.
const MOST: usize = 512;

impl Core {
    /// The text of all counters, histograms and gauges.
    pub(crate) fn metrics_text(&self) -> String {
        let patterns = &self.config.metrics_groups;
        let mut gauges = ByGroup::<Now>::new(patterns.len());
        let (now, mut last) = (Moment::now(), (Moment::ZERO, 0));
        let mut counted = std::collections::HashSet::new();
        loop {
            let grants = self.book.lock().after(last, MOST);
            for (at, grant) in &grants {
                last = *at;
                // A renewal moves a grant further behind, where it would be met again.
                if counted.insert(grant.id) {
                    let gauge = gauges.of_mut(grant.terms.group);
                    gauge.held += 1;
                    gauge.oldest = gauge.oldest.max(now.since(grant.since).as_secs_f64());
                }
            }
            if grants.len() < MOST {
                break;
            }
        }
        for (name, count) in self.room.count_waiters() {
            gauges.of_mut(Group::of(patterns, &name)).waiting += count as u64;
        }
        text(&self.metrics, patterns, &gauges)
    }
}
