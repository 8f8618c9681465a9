//! How a loss is told: first the lease counts as held no more, then the reason is found out, raised
//! and logged.

use std::iter::repeat;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::core::{Core, warn};
use crate::clock::{Deadline, Moment};
use crate::events::{Detail, EventKind, Loss, LossReason};
use crate::grant::{Ended, Grant};
#[cfg(feature = "testing")]
use crate::store::Reply;
use crate::store::breaking::Breach;
use crate::store::{Identity, Lane, Owed};

impl Core {
    /// Tells once that a lease which has ended was lost: counts it, raises the event, and logs it.
    /// With `by`, the store is asked until then who has broken it.
    pub(crate) fn report_lost(&self, grant: &Arc<Grant>, reason: LossReason, by: Option<Deadline>) {
        self.report_all(std::slice::from_ref(grant), reason, by.map(|by| (Lane::Give(by), by)));
    }

    /// The store said that these grants' tokens do not have the lock. If a turn was released meanwhile,
    /// nothing is lost; if it was passed on, no turn goes on under that token.
    pub(super) fn not_held(&self, grants: &[Arc<Grant>], now: Moment, ask: Option<Deadline>) {
        let lost: Vec<_> =
            grants.iter().filter_map(|grant| self.end_current_turn(grant, now)).collect();
        self.report_all(&lost, LossReason::NotHeld, ask.map(|by| (Lane::Keeper, by)));
    }

    /// Renews the leases on these names now, of those that the keeper renews at all: where the store has
    /// ended one, that is told at once. The names stand with their prefixes.
    #[cfg(feature = "testing")]
    pub(super) fn renew_now(&self, keys: &[Vec<u8>]) {
        let prefix = &*self.config.prefix;
        let is_one = |grant: &&Arc<Grant>| {
            let is_it = |key: &Vec<u8>| {
                key.strip_prefix(prefix).is_some_and(|name| *name == *grant.identity.name)
            };
            grant.terms.renew && keys.iter().any(is_it)
        };
        let grants: Vec<_> = self.book.lock().ends.values().filter(is_one).cloned().collect();
        let (now, by) = (Moment::now(), Deadline::after(self.config.io_timeout));
        let request = |grant: &Arc<Grant>| {
            // One that goes on is renewed by the keeper, when it is due.
            let (ttl, reach) = (grant.ttl_from(grant.terms.ttl, now), grant.reach(now));
            self.store.ask(Lane::Keeper, grant.identity.extend(ttl, reach), by)
        };
        let is_lost = |grant: &&Arc<Grant>| matches!(request(grant), Ok(answer) if answer.reply == Reply::NotMine);
        let lost: Vec<_> = grants.iter().filter(is_lost).cloned().collect();
        self.not_held(&lost, Moment::now(), Some(by));
        lost.iter().for_each(|grant| self.forget(grant));
    }

    fn report_all(&self, lost: &[Arc<Grant>], reason: LossReason, ask: Option<(Lane, Deadline)>) {
        // The program's logger may panic in any request and any log line, so all events are raised
        // first.
        let asked = catch_unwind(AssertUnwindSafe(|| {
            lost.iter().for_each(|grant| self.withdraw(grant, reason));
            let identities: Vec<_> = lost.iter().map(|grant| &grant.identity).collect();
            ask.map(|(lane, by)| self.breaches(lane, &identities, by)).unwrap_or_default()
        }));
        let breaches = asked.as_ref().map_or(&[][..], Vec::as_slice).iter().map(Option::as_ref);
        for (grant, breach) in lost.iter().zip(breaches.chain(repeat(None))) {
            let reason = breach.map_or(reason, |_| LossReason::Broken);
            let detail: Detail = breach.map(|breach| breach.to_string().into());
            *grant.loss.lock() = Some(Loss { reason, detail: detail.clone() });
            self.raise(&grant.identity, grant.id, EventKind::Lost(reason), detail);
            grant.span.lost(reason.word());
        }
        asked.map_or_else(|panic| resume_unwind(panic), drop);
        for grant in lost {
            let reason = grant.loss.lock().as_ref().map_or(reason, |loss| loss.reason);
            warn(&grant.identity, EventKind::Lost(reason), &grant.why_over(Moment::now(), ""));
        }
    }

    /// Ends the turn that now goes on under the token of this one, and returns it.
    fn end_current_turn(&self, grant: &Arc<Grant>, now: Moment) -> Option<Arc<Grant>> {
        if grant.end(now) != Ended::Before {
            return Some(Arc::clone(grant));
        }
        let token = grant.identity.token;
        let is_next = |next: &&Arc<Grant>| next.identity.token == token && !next.is_over();
        let next = self.book.lock().ends.values().find(is_next).cloned();
        let next = next.filter(|next| next.end(now) != Ended::Before);
        if next.is_none() {
            self.owe_all(self.room.lost(&grant.identity, now));
        }
        next
    }

    fn withdraw(&self, grant: &Grant, reason: LossReason) {
        let now = Moment::now();
        self.metrics.of(grant.terms.group).lost.add_one();
        if grant.was_held() {
            self.observe_hold(grant, now);
        }
        self.owe_all(self.room.lost(&grant.identity, now));
        if reason == LossReason::NotHeld {
            // Waiters wait for the end of its ttl. The give tells them that the lock is free, if it
            // is.
            self.owe(Owed { until: now, ..grant.owed(now) });
        } else if grant.is_unclaimed() {
            // A claim whose reply was lost would keep the lock for a ttl.
            self.owe(grant.owed(now));
        }
    }

    /// Who has broken grants that are not ours any more, as far as the store still knows. It has a
    /// quarter of `io_timeout` at most: telling the loss soon matters more.
    pub(crate) fn breaches(
        &self,
        lane: Lane,
        of: &[&Identity],
        by: Deadline,
    ) -> Vec<Option<Breach>> {
        let by = by.min(Deadline::after(self.config.io_timeout / 4));
        let names: Vec<&[u8]> = of.iter().map(|identity| &*identity.name).collect();
        let last = match names[..] {
            [] => Vec::new(),
            _ => self.with_store(|store| store.breaches(lane, &names, by)),
        };
        let own = |(breach, identity): (Result<Option<Breach>, _>, &&Identity)| {
            breach.ok().flatten().filter(|breach| breach.token == identity.token)
        };
        last.into_iter().zip(of).map(own).collect()
    }
}
