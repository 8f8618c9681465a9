//! What the keeper has to do, in the order in which it falls due.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Deadline, Moment};
use crate::grant::Grant;

/// Every live grant stands in `ends`, under the moment when its loss must be told, and in `steps`
/// while something is to be done for it before that. The grant keeps both keys (`filed`), because
/// its own moments move on while it stands here.
#[derive(Default)]
pub(super) struct Book {
    steps: BTreeMap<(Moment, u64), Arc<Grant>>,
    pub(super) ends: BTreeMap<(Moment, u64), Arc<Grant>>,
    pub(super) closing: Option<Deadline>,
    /// When the store was last found to be another one than before: its grants are lost.
    pub(super) store_lost_at: Moment,
    /// The shortest time from a grant's beginning to its first action, among the grants that were
    /// filed since this was last taken.
    pub(super) brief: Option<Duration>,
}

impl Book {
    /// Files a grant under its moments, perhaps anew. Returns when something is to be done for it.
    pub(super) fn insert(&mut self, grant: Arc<Grant>) -> Moment {
        self.remove(&grant);
        if grant.is_over() {
            return Moment::NEVER;
        }
        let (step, end, id) = (grant.next(), grant.lost_at(), grant.id);
        *grant.filed.lock() = Some((step, end));
        if step < end {
            self.steps.insert((step, id), Arc::clone(&grant));
        }
        let (due, since) = (step.min(end), grant.since);
        self.ends.insert((end, id), grant);
        let brief = due.since(since);
        self.brief = Some(self.brief.map_or(brief, |briefest| briefest.min(brief)));
        due
    }

    pub(super) fn remove(&mut self, grant: &Grant) {
        if let Some((step, end)) = grant.filed.lock().take() {
            self.steps.remove(&(step, grant.id));
            self.ends.remove(&(end, grant.id));
        }
    }

    /// The grants for which something is due, those that end first before the others. They stay
    /// filed; the caller that acts on one files it anew.
    pub(super) fn due(&self, now: Moment, most: usize) -> Vec<Arc<Grant>> {
        let past = ..=(now, u64::MAX);
        let ending = self.ends.range(past).map(|(_, grant)| grant);
        let stepping = self.steps.range(past).map(|(_, grant)| grant);
        let mut due: Vec<_> = ending.chain(stepping).take(most * 8).cloned().collect();
        if !due.is_empty() && due.len() < most {
            // A round trip is made anyway: renewals that fall due soon go along, so that many
            // leases do not cost as many round trips.
            let soon = self.steps.range((now, u64::MAX)..).take(most);
            let soon = soon.filter(|((at, _), grant)| now.plus(grant.leeway()) >= *at);
            due.extend(soon.map(|(_, grant)| Arc::clone(grant)));
        }
        if due.len() > most {
            // A short lease must not wait behind many long ones.
            let soonest = self.ends.values().take(most * 8);
            let soonest = soonest.filter(|grant| grant.next() <= now);
            due.extend(soonest.cloned());
        }
        // Each moment is read once: it moves on when a caller extends or ends the lease meanwhile,
        // and sorting panics over an order that changes.
        due.sort_by_cached_key(|grant| (grant.lost_at(), grant.id));
        due.dedup_by_key(|grant| grant.id);
        due.truncate(most);
        due
    }

    /// The deadline of a request that starts now, so that it is over in time for every grant.
    pub(super) fn request_end(&self, now: Moment) -> Moment {
        let mut latest = Moment::NEVER;
        for ((lost_at, _), grant) in &self.ends {
            // Each grant allows half of the time that it has left at least, and later ones have
            // more.
            if now.plus(lost_at.since(now) / 2) >= latest {
                break;
            }
            latest = latest.min(grant.request_end(*lost_at, now));
        }
        latest
    }

    /// When something is next to be done.
    pub(super) fn next_due(&self) -> Moment {
        let first = |filed: &BTreeMap<(Moment, u64), _>| {
            filed.keys().next().map_or(Moment::NEVER, |(moment, _)| *moment)
        };
        first(&self.steps).min(first(&self.ends))
    }

    /// Up to `most` of the grants that end behind the one at `last`, in the order of their ends.
    pub(super) fn after(
        &self,
        last: (Moment, u64),
        most: usize,
    ) -> Vec<((Moment, u64), Arc<Grant>)> {
        let behind = (Bound::Excluded(last), Bound::Unbounded);
        self.ends.range(behind).take(most).map(|(at, grant)| (*at, Arc::clone(grant))).collect()
    }

    /// Takes every grant out.
    pub(super) fn clear(&mut self) -> Vec<Arc<Grant>> {
        self.steps.clear();
        std::mem::take(&mut self.ends).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grant::Terms;
    use crate::store::Identity;

    const START: Moment = Moment::from_nanos(1_000_000_000_000);

    fn grant(ttl: u64, sent: Moment) -> Arc<Grant> {
        let token = "00112233445566778899aabbccddeeff".parse().unwrap();
        let ttl = Duration::from_millis(ttl);
        let identity = Identity { name: Arc::from(&b"n"[..]), token, fence: 1, ttl };
        let terms = Terms { ttl, renew: true, max_hold: None, group: crate::metrics::Group::REST };
        Grant::taken(identity, terms, sent, sent).unwrap()
    }

    #[test]
    fn c9_a_short_lease_is_not_behind_a_crowd_of_long_ones() {
        let mut book = Book::default();
        for _ in 0..5000 {
            book.insert(grant(30_000, START));
        }
        let later = START.plus(Duration::from_millis(11_000));
        let short = grant(300, later);
        book.insert(Arc::clone(&short));
        let now = later.plus(Duration::from_millis(150));
        let due = book.due(now, 128);
        assert!(due.len() == 128 && Arc::ptr_eq(&due[0], &short));
        // And not before that.
        let due = book.due(later.plus(Duration::from_millis(50)), 128);
        assert!(due.iter().all(|grant| !Arc::ptr_eq(grant, &short)));
    }

    #[test]
    fn it_tells_once_how_soon_grants_like_the_last_ones_fall_due() {
        let mut book = Book::default();
        for (ttl, sent) in [(30_000, START), (300, START.plus(Duration::from_secs(9)))] {
            let grant = grant(ttl, sent);
            book.insert(Arc::clone(&grant));
            book.remove(&grant);
        }
        assert_eq!(book.brief.take(), Some(Duration::from_millis(100)));
        assert_eq!((book.brief, book.next_due()), (None, Moment::NEVER));
    }

    #[test]
    fn c9_leases_that_end_or_are_extended_meanwhile_do_not_upset_the_order() {
        let mut book = Book::default();
        let grants: Vec<_> = (0..500).map(|_| grant(30_000, START)).collect();
        for grant in &grants {
            book.insert(Arc::clone(grant));
        }
        std::thread::scope(|scope| {
            let extend = scope.spawn(|| {
                for round in 1..400 {
                    let sent = START.plus(Duration::from_nanos(round));
                    for grant in &grants {
                        grant.extended(sent, Duration::from_secs(30), sent);
                    }
                }
            });
            while !extend.is_finished() {
                let due = book.due(START.plus(Duration::from_secs(11)), 128);
                assert_eq!(due.len(), 128);
            }
        });
    }
}
