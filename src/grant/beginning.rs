//! How a grant begins: taken, handed over, passed on by the turn before it, or handed on by another
//! process.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Grant, Legacy, Phase, Terms, hold_end, notice_of};
use crate::clock::Moment;
use crate::config::drift;
use crate::store::Identity;
use crate::token::Token;

impl Grant {
    /// A grant whose reply was read at `now`, to a request sent at `sent`; `None` when nothing of
    /// its validity is left by then.
    pub(crate) fn taken(
        identity: Identity,
        terms: Terms,
        id: u64,
        sent: Moment,
        now: Moment,
    ) -> Option<Grant> {
        let hold_end = hold_end(&terms, sent);
        let ttl = terms.first_ttl();
        let grant = Grant::new(identity, terms, id, Phase::Held, hold_end, now);
        grant.refreshed(sent);
        let alive = grant.extended(sent, ttl, now);
        alive.then_some(grant)
    }

    /// A grant of which a message told: it is the token's for `span` since a moment, and for its
    /// whole ttl once it was claimed, which the keeper does at `claim`. `None` when nothing is left
    /// of it.
    pub(crate) fn handed(
        identity: Identity,
        terms: Terms,
        id: u64,
        (since, span): (Moment, Duration),
        claim: Moment,
        now: Moment,
    ) -> Option<Grant> {
        let hold_end = hold_end(&terms, since);
        let grant = Grant::new(identity, terms, id, Phase::Held, hold_end, now);
        if span >= terms.first_ttl() {
            return grant.extended(since, terms.first_ttl(), now).then_some(grant);
        }
        let until = since.plus(span).minus(drift(span)).min(hold_end);
        if until <= now {
            return None;
        }
        grant.notice.store(notice_of(terms.ttl.min(span)), Ordering::Relaxed);
        grant.valid_until.store(until.as_nanos(), Ordering::Release);
        {
            let mut state = grant.state.lock();
            // Never refreshed: so the first renewal is a claim.
            (state.next, state.refreshed) = (claim, None);
        }
        Some(grant)
    }

    /// The next turn under a grant whose last one has ended; `None` when its validity has ended
    /// since.
    pub(crate) fn succeeding(
        identity: Identity,
        terms: Terms,
        id: u64,
        legacy: Legacy,
        now: Moment,
    ) -> Option<Grant> {
        let hold_end = hold_end(&terms, now);
        let until = legacy.until.min(hold_end);
        if until <= now {
            return None;
        }
        let grant = Grant::new(identity, terms, id, Phase::Held, hold_end, now);
        grant.notice.store(notice_of(terms.ttl.min(until.since(now))), Ordering::Relaxed);
        grant.valid_until.store(until.as_nanos(), Ordering::Release);
        {
            let mut state = grant.state.lock();
            // The turn before may have been near its max_hold, and not renewed for that reason.
            let due = until.minus(terms.ttl * 2 / 3).max(now);
            state.next = if terms.renew { legacy.next.min(due) } else { legacy.next };
            state.refreshed = legacy.refreshed;
            state.kept_until = state.kept_until.max(legacy.kept_until);
        }
        Some(grant)
    }

    /// What is left of a turn that ended while the grant was not claimed, and that leaves the lock
    /// taken: it ends with the claim. `None` when there is nothing to claim.
    #[cfg(feature = "capi")]
    pub(crate) fn abandoned(
        identity: Identity,
        terms: Terms,
        id: u64,
        legacy: Legacy,
        now: Moment,
    ) -> Option<Grant> {
        let is_claimed = legacy.refreshed.is_some();
        let grant = Grant::succeeding(identity, terms, id, legacy, now).filter(|_| !is_claimed)?;
        grant.state.lock().abandoned = true;
        Some(grant)
    }

    /// A grant that another process took and handed on under another token.
    pub(crate) fn attached(
        identity: Identity,
        from: Token,
        terms: Terms,
        id: u64,
        now: Moment,
    ) -> Grant {
        let hold_end = hold_end(&terms, now);
        let grant = Grant::new(identity, terms, id, Phase::Attached, hold_end, now);
        // Nothing was asked for yet.
        grant.state.lock().kept_until = now;
        Grant { from: Some(from), ..grant }
    }
}
