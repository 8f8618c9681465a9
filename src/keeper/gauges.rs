//! What is so at this moment, for the metrics: looked up when they are asked for, so that no cycle of
//! taking and releasing pays for it.

use super::Core;
use crate::clock::Moment;
use crate::metrics::{ByGroup, Group, Now, Whose, text};

/// So many leases are looked at in one go: whoever takes a lock meanwhile waits for as long.
const MOST: usize = 512;

impl Core {
    /// The text of what was measured, and of what is so now.
    pub(crate) fn metrics_text(&self, whose: Whose<'_>) -> String {
        let patterns = &self.config.metrics_groups;
        let mut gauges = ByGroup::<Now>::new(patterns.len());
        let (now, mut last) = (Moment::now(), (Moment::ZERO, 0));
        let mut counted = std::collections::HashSet::new();
        loop {
            let grants = self.book.lock().after(last, MOST);
            for (at, grant) in &grants {
                last = *at;
                // It stands further behind once it is renewed, and would be met again there.
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
        text(&self.metrics, patterns, &gauges, whose)
    }
}
