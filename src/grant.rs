//! One grant and what it is worth at each moment. No I/O and no clock of its own: every question
//! is asked for a moment, so that the answers can be tested without waiting.

mod terms;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use terms::whole_millis;

pub(crate) use self::terms::Terms;
use crate::clock::Moment;
use crate::config::{drift, spoken};
use crate::events::{Loss, LossReason};
use crate::store::{Identity, Owed, Reach};
use crate::sync::Mutex;
use crate::token::Token;

/// Everything that is known of one grant. Shared by the lease and the keeper.
pub(crate) struct Grant {
    /// Tells it from every other grant that this process has ever had.
    pub(crate) id: u64,
    pub(crate) identity: Identity,
    pub(crate) terms: Terms,
    pub(crate) taker: ThreadId,
    /// The turn began then, or a little later.
    pub(crate) since: Moment,
    state: Mutex<State>,
    /// The moments under which the keeper's book has filed the grant; the book's alone.
    pub(crate) filed: Mutex<Option<(Moment, Moment)>>,
    /// Why it was lost, from just before anybody is told.
    pub(crate) loss: Mutex<Option<Loss>>,
}

struct State {
    phase: Phase,
    valid_until: Moment,
    /// How long before the end of validity a loss is told: nothing before it was ever relied on.
    notice: Duration,
    /// The end of what `max_hold` allows.
    hold_end: Moment,
    /// When the keeper is to act next; `NEVER` when nothing is left to do but to end.
    next: Moment,
    /// When the keeper was to act before any of its tries failed.
    planned: Moment,
    /// Failed renewals in a row.
    failures: u32,
    warned: bool,
    /// The last extension reached as far as `max_hold` allows: there will be no other.
    last: bool,
    /// When the store's side keys were last refreshed; `None` while a grant that was handed over is
    /// not claimed.
    refreshed: Option<Moment>,
    /// Its lease is gone: the grant ends when it is claimed, and raises no event.
    abandoned: bool,
    /// Until when the store may keep the lock, by any request that was sent so far.
    kept_until: Moment,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Nothing may be relied on before the first extension. Another process has handed it on under
    /// this token, if any.
    Begun(Option<Token>),
    Held,
    Over,
}

/// What a turn begins with: what the one before it leaves of their grant, or what a message tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Legacy {
    until: Moment,
    kept_until: Moment,
    next: Moment,
    refreshed: Option<Moment>,
}

impl Legacy {
    /// The lock is the token's for `span` since a moment, and for its whole ttl once it was claimed.
    pub(crate) fn handed(since: Moment, span: Duration, claim: Moment) -> Legacy {
        let until = since.plus(span).minus(drift(span));
        Legacy { until, kept_until: until, next: claim, refreshed: None }
    }
}

/// How a grant's turn stood when it was ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// By this call, and validity had not ended.
    Valid(Legacy),
    /// By this call, with nothing left to rely on; the store may have it still.
    Stale,
    /// It was over already: nothing may be sent for it.
    Before,
}

/// What the keeper has to do for a grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Nothing, or it is over.
    Rest,
    /// Extend it by this ttl.
    Renew { ttl: Duration, reach: Reach },
    /// Say that it is at risk.
    Warn,
    /// Say that it is lost.
    Lose(LossReason),
}

/// A store keeps its side keys for 25 hours or more; once an hour is often enough.
const REFRESH: Duration = Duration::from_secs(60 * 60);

impl Grant {
    /// Where it stays: it is large, and a cycle would pay for each copy.
    #[inline]
    fn new(identity: Identity, terms: Terms, phase: Phase, since: Moment) -> Arc<Grant> {
        let state = State {
            phase,
            valid_until: Moment::ZERO,
            notice: Duration::ZERO,
            hold_end: terms.max_hold.map_or(Moment::NEVER, |most| since.plus(most)),
            next: Moment::NEVER,
            planned: Moment::NEVER,
            failures: 0,
            warned: false,
            last: false,
            refreshed: Some(since),
            abandoned: false,
            kept_until: since,
        };
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let (id, taker) = (COUNT.fetch_add(1, Ordering::Relaxed) + 1, std::thread::current().id());
        let (state, filed, loss) = (Mutex::new(state), Mutex::new(None), Mutex::new(None));
        Arc::new(Grant { id, identity, terms, taker, since, state, filed, loss })
    }

    /// A grant whose reply was read at `now`, to a request sent at `sent`; `None` when nothing of
    /// its validity is left by then.
    pub(crate) fn taken(
        identity: Identity,
        terms: Terms,
        sent: Moment,
        now: Moment,
    ) -> Option<Arc<Grant>> {
        let grant = Grant::new(identity, terms, Phase::Begun(None), sent);
        grant.extended(sent, terms.first_ttl(), now).then_some(grant)
    }

    /// A turn under a grant that was handed over, or that had a turn before; `None` when its
    /// validity has ended since.
    pub(crate) fn succeeding(
        identity: Identity,
        terms: Terms,
        legacy: Legacy,
        now: Moment,
    ) -> Option<Arc<Grant>> {
        let grant = Grant::new(identity, terms, Phase::Held, now);
        let mut state = grant.state.lock();
        let Legacy { until, kept_until, next, refreshed } = legacy;
        let until = until.min(state.hold_end);
        (state.valid_until, state.kept_until) = (until, kept_until);
        state.notice = notice_of(terms.ttl.min(until.since(now)));
        // The turn before may have been near its max_hold, and not renewed for that reason.
        let due = until.minus(terms.ttl * 2 / 3).max(now);
        state.next = if terms.renew && refreshed.is_some() { next.min(due) } else { next };
        state.planned = state.next;
        state.refreshed = refreshed;
        drop(state);
        (until > now).then_some(grant)
    }

    /// What is left of a turn that ended while the grant was not claimed, and that leaves the lock
    /// taken: it ends with the claim. `None` when there is nothing to claim.
    #[cfg(feature = "capi")]
    pub(crate) fn abandoned(&self, legacy: Legacy, now: Moment) -> Option<Arc<Grant>> {
        let left = Grant::succeeding(self.identity.clone(), self.terms, legacy, now);
        let left = left.filter(|_| legacy.refreshed.is_none())?;
        left.state.lock().abandoned = true;
        Some(left)
    }

    /// A grant that another process took and handed on under another token.
    pub(crate) fn attached(
        identity: Identity,
        from: Token,
        terms: Terms,
        now: Moment,
    ) -> Arc<Grant> {
        Grant::new(identity, terms, Phase::Begun(Some(from)), now)
    }

    /// The token under which the store has the lock: the mark of a lease that was handed on, until an
    /// extension has made it ours.
    pub(crate) fn stored_as(&self) -> Token {
        let Identity { token, fence, .. } = self.identity;
        match self.state.lock().phase {
            Phase::Begun(Some(from)) => from.detached(fence),
            _ => token,
        }
    }

    /// What is to be given for a lock that was handed on and never made ours: the tokens under which
    /// the store may have it. The last is that of the process that took it, which may still rely on
    /// it if it was never detached.
    pub(crate) fn handed_on_as(&self) -> Option<Box<[Owed; 3]>> {
        let Identity { token, fence, .. } = self.identity;
        let State { phase: Phase::Begun(Some(from)), kept_until: until, .. } = *self.state.lock()
        else {
            return None;
        };
        let owed = |token| Owed { identity: Identity { token, ..self.identity.clone() }, until };
        Some(Box::new([from.detached(fence), token, from].map(owed)))
    }

    /// It was handed over, or handed on by another process, and no claim was answered yet.
    pub(crate) fn is_unclaimed(&self) -> bool {
        let state = self.state.lock();
        state.refreshed.is_none() || matches!(state.phase, Phase::Begun(_))
    }

    pub(crate) fn was_held(&self) -> bool {
        !self.state.lock().notice.is_zero()
    }

    pub(crate) fn remaining(&self, now: Moment) -> Duration {
        self.state.lock().valid_until.since(now)
    }

    /// How long the store must keep the lock for the validity that is relied on now: never longer
    /// than it was asked to. `None` where nothing is relied on.
    pub(crate) fn kept_for(&self, now: Moment) -> Option<Duration> {
        let left = self.remaining(now);
        (now < self.lost_at()).then(|| whole_millis(left + drift(left)))
    }

    /// When the keeper has to say that the lease is lost if nothing has extended it: a little
    /// before validity ends, so that the program can still act on it.
    pub(crate) fn lost_at(&self) -> Moment {
        self.state.lock().lost_at()
    }

    /// How early a renewal may be made, to travel with others that are due.
    pub(crate) fn leeway(&self) -> Duration {
        self.terms.paced() / 100
    }

    /// By when a request of the keeper that starts at `now` must be over, for a grant that is lost
    /// at `lost_at`. Three quarters of the notice may be used up, so that many grants near their end
    /// leave time for requests, with a connection that has to be made first. Where the grant is
    /// renewed, half of its time is kept for another try on another connection, and to warn.
    pub(crate) fn request_end(&self, lost_at: Moment, now: Moment) -> Moment {
        let notice = self.state.lock().notice;
        let told = lost_at.plus(notice / 4 * 3);
        if !self.terms.renew {
            return told;
        }
        let half = now.plus(lost_at.since(now) / 2);
        half.max(now.plus(notice / 4)).min(told)
    }

    /// When the keeper has to look at the grant next, except for its end.
    pub(crate) fn next(&self) -> Moment {
        self.state.lock().next
    }

    /// When the next renewal was due, however often it has failed since.
    pub(crate) fn planned(&self) -> Moment {
        self.state.lock().planned
    }

    /// Its last renewal did not get through.
    pub(crate) fn is_failing(&self) -> bool {
        self.state.lock().failures > 0
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state.lock().phase == Phase::Over
    }

    /// Why it is over by now, if that is known or its `max_hold` has ended it, or `otherwise`.
    pub(crate) fn why_over(&self, now: Moment, otherwise: &str) -> String {
        let detail = self.loss.lock().clone().and_then(|loss| loss.detail);
        let state = self.state.lock();
        let most = self.terms.max_hold.filter(|_| state.last && now >= state.lost_at());
        let most = most.map(|most| format!("max_hold of {} was reached", spoken(most)));
        detail.map(|it| it.to_string()).or(most).unwrap_or_else(|| otherwise.to_owned())
    }

    /// The ttl to ask for now, which never reaches beyond `max_hold`.
    pub(crate) fn ttl_from(&self, ttl: Duration, now: Moment) -> Duration {
        let mut state = self.state.lock();
        let ttl = whole_millis(ttl.min(state.hold_end.since(now)));
        state.kept_until = state.kept_until.max(now.plus(ttl));
        ttl
    }

    /// The give that ends it, owed until the store cannot have the lock any more, whatever became of
    /// a renewal that was under way.
    pub(crate) fn owed(&self, now: Moment) -> Owed {
        let until = self.state.lock().kept_until.max(now.plus(self.terms.ttl));
        Owed { identity: self.identity.clone(), until }
    }

    /// The store made the lock ours for `ttl` on a request sent at `sent`. False, and nothing is
    /// raised, when it is too late: validity that has ended never comes back.
    pub(crate) fn extended(&self, sent: Moment, ttl: Duration, now: Moment) -> bool {
        let mut state = self.state.lock();
        state.kept_until = state.kept_until.max(now.plus(ttl));
        let ended = match state.phase {
            Phase::Begun(_) => false,
            Phase::Held => now >= state.valid_until,
            Phase::Over => true,
        };
        let promised = sent.plus(ttl).minus(drift(ttl)).min(state.hold_end);
        // An extension never shortens, neither in the store nor here.
        let until = promised.max(state.valid_until);
        if ended || now >= until {
            return false;
        }
        (state.phase, state.valid_until) = (Phase::Held, until);
        state.notice = notice_of(self.terms.ttl);
        state.failures = 0;
        // The next one would be for less than a millisecond.
        state.last = sent.plus(ttl + Duration::from_millis(1)) > state.hold_end;
        state.next = if !self.terms.renew {
            Moment::NEVER
        } else if state.last {
            // What is left to do is to warn.
            until.minus(self.terms.ttl / 3).max(now)
        } else {
            state.warned = false;
            let mut next = sent.plus(self.terms.paced() / 3);
            if ttl < self.terms.ttl {
                // A short extension does not put off the renewal that is due anyway.
                next = next.min(until.plus(drift(self.terms.ttl)).minus(self.terms.ttl * 2 / 3));
            }
            next.max(now)
        };
        state.planned = state.next;
        true
    }

    /// How far an extension that is sent now has to reach, so that what the store keeps beside the
    /// lock lives on.
    pub(crate) fn reach(&self, now: Moment) -> Reach {
        self.state.lock().reach(now)
    }

    /// The side keys were refreshed by a request sent at `sent`.
    pub(crate) fn refreshed(&self, sent: Moment) {
        let mut state = self.state.lock();
        state.refreshed = Some(sent);
        if state.abandoned {
            state.phase = Phase::Over;
        }
    }

    /// Whether the store has not made the lock ours since, as far as is known.
    pub(crate) fn is_older_than(&self, moment: Moment) -> bool {
        // Nothing is older than moment zero, at which nothing was lost.
        self.state.lock().refreshed.unwrap_or(Moment::ZERO) < moment
    }

    /// A renewal did not get through; tries again after `pause`.
    pub(crate) fn renewal_failed(&self, now: Moment, pause: impl FnOnce(Duration) -> Duration) {
        let mut state = self.state.lock();
        let ttl = self.terms.ttl;
        let first = (ttl / 60).clamp(Duration::from_millis(2), Duration::from_millis(500));
        let most = (ttl / 10).clamp(Duration::from_millis(4), Duration::from_secs(2));
        let span = first.saturating_mul(1 << state.failures.min(8)).min(most);
        state.failures += 1;
        // A warning does not wait for the next try.
        let warn = !state.warned && state.valid_until.since(now) <= ttl / 3;
        state.next = if warn { now } else { now.plus(pause(span)) };
    }

    /// What is to be done at `now`.
    pub(crate) fn step(&self, now: Moment) -> Step {
        let mut state = self.state.lock();
        if state.phase != Phase::Held {
            return Step::Rest;
        }
        if now >= state.lost_at() {
            (state.phase, state.valid_until) = (Phase::Over, Moment::ZERO);
            let reason = if state.last { LossReason::MaxHold } else { LossReason::Expired };
            return if state.abandoned { Step::Rest } else { Step::Lose(reason) };
        }
        // A healthy renewal may come a little early, to travel with others.
        let early = state.failures == 0 && !state.last;
        if now < state.next && !(early && now.plus(self.leeway()) >= state.next) {
            return Step::Rest;
        }
        let risky = state.valid_until.since(now) <= self.terms.ttl / 3;
        if !state.warned && risky && (state.failures > 0 || state.last) {
            state.warned = true;
            if state.last {
                state.next = Moment::NEVER;
            }
            return Step::Warn;
        }
        if state.last {
            state.next = Moment::NEVER;
            return Step::Rest;
        }
        Step::Renew {
            ttl: whole_millis(self.terms.ttl.min(state.hold_end.since(now))),
            reach: state.reach(now),
        }
    }

    /// Ends the turn: from now on the lease is invalid and no reply raises it.
    pub(crate) fn end(&self, now: Moment) -> Ended {
        let mut state = self.state.lock();
        // Then it is not max_hold that has ended it.
        state.last &= now >= state.lost_at();
        let phase = std::mem::replace(&mut state.phase, Phase::Over);
        let until = std::mem::take(&mut state.valid_until);
        if phase == Phase::Over || state.abandoned {
            return Ended::Before;
        }
        if now >= until {
            return Ended::Stale;
        }
        let State { kept_until, next, refreshed, .. } = *state;
        Ended::Valid(Legacy { until, kept_until, next, refreshed })
    }
}

impl State {
    fn lost_at(&self) -> Moment {
        self.valid_until.minus(self.notice)
    }

    fn reach(&self, now: Moment) -> Reach {
        let due = self.refreshed.is_none_or(|sent| now.since(sent) >= REFRESH);
        if due { Reach::Claim } else { Reach::Grow }
    }
}

fn notice_of(span: Duration) -> Duration {
    (span / 20).min(Duration::from_millis(100))
}

#[cfg(test)]
mod tests;
