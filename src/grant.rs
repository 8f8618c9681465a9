//! One turn under a grant, and what its validity is worth at each moment. No I/O and no clock of its own: every question
//! is asked for a moment, so that the answers can be tested without waiting.
//!
//! # The moments of a grant
//!
//! A renewed grant that was just taken, or extended, for its whole ttl:
//!
//! ```text
//!  sent          next,            (warning)       lost_at   valid_until    kept_until
//!    |          planned               |              |            |             |
//!    |-------------|------------------|--------------|------------|-------------|---->
//!    |<-- ttl/3 -->|                  |              |<- notice ->|             |
//!    |             |                  |<--------- ttl/3 --------->|             |
//!    |<------------------- ttl - drift(ttl) --------------------->|             |
//!    |   now: the reply is read  |<----------------------- ttl ---------------->|
//! ```
//!
//! | moment | says |
//! | --- | --- |
//! | `valid_until` | The holder relies on the lock until then. It counts from before the request was *sent*, and is shorter than the ttl by the drift of the clocks. It never moves back before the grant is over. |
//! | `kept_until` | The store may keep the lock until then: a ttl after the last request that could have extended it. A give is owed for as long. |
//! | `lost_at` | The keeper says then that the lease is lost: `valid_until` less `notice`, the time in which the program can still act. |
//! | `next` | The keeper acts then: it renews or warns. After a failed renewal it is the next try. |
//! | `planned` | What `next` was before any try failed: the delay of a renewal counts from it. |
//! | `hold_end` | `max_hold` after the turn began; no `valid_until` lies behind it. The last extension before it has no renewal after it: what is left for `next` is the warning, at `valid_until - ttl/3`. |
//!
//! A grant that was *handed over* is valid for a claim window only. Its `next` is the claim, after which
//! it is as above:
//!
//! ```text
//!  since    now, when the message is read    next: the claim       valid_until, kept_until
//!    |                    |                         |                         |
//!    |--------------------|-------------------------|-------------------------|------>
//!    |                    |<-- 50 ms, or window/4 ->|                         |
//!    |<----------------------- window - drift(window) ----------------------->|
//! ```

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
use crate::traced::LeaseSpan;

/// One turn under a grant. (A grant has one of these for each of its turns.) Shared by the lease and the
/// keeper.
pub(crate) struct Grant {
    /// Unique among all turns that this process has ever had.
    pub(crate) id: u64,
    pub(crate) identity: Identity,
    pub(crate) terms: Terms,
    pub(crate) taker: ThreadId,
    /// The turn began then, or a little later.
    pub(crate) since: Moment,
    state: Mutex<GrantState>,
    /// The moments under which the keeper's book has filed the grant. Only the book uses them.
    pub(crate) filed: Mutex<Option<(Moment, Moment)>>,
    /// Why it was lost; set just before the event is raised.
    pub(crate) loss: Mutex<Option<Loss>>,
    pub(crate) span: LeaseSpan,
}

struct GrantState {
    phase: GrantPhase,
    valid_until: Moment,
    /// How long before `valid_until` a loss is told. Zero: nothing before it was ever relied on.
    notice: Duration,
    hold_end: Moment,
    /// `NEVER` when nothing is left to do but to end.
    next: Moment,
    planned: Moment,
    /// The last renewal brought no answer.
    has_failed: bool,
    warned: bool,
    /// The last extension reached as far as `max_hold` allows: there will be no other.
    last: bool,
    /// When the store's side keys were last refreshed; `None` while a grant that was handed over is
    /// not claimed.
    refreshed: Option<Moment>,
    /// C only: its lease is gone and the lock stays taken. The grant ends when it is claimed, and raises
    /// no event.
    abandoned: bool,
    kept_until: Moment,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GrantPhase {
    /// It is being made from a reply, which may be too old to rely on.
    New,
    /// Another process took the lock and detached it. Nothing may be relied on before the first
    /// extension, which makes the lock ours.
    Attached { from: Token },
    /// The holder relies on it until `valid_until`.
    Held,
    /// Ended or lost: nothing makes it valid again.
    Over,
}

/// What a turn begins with: the validity that the turn before it has left of their grant, or that of
/// which a message tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StartingValidity {
    until: Moment,
    kept_until: Moment,
    next: Moment,
    refreshed: Option<Moment>,
}

impl StartingValidity {
    /// A lock that was handed over: valid for `span` since a moment, and for its whole ttl once it was
    /// claimed, which the keeper does at `claim`.
    pub(crate) fn handed(since: Moment, span: Duration, claim: Moment) -> StartingValidity {
        let until = since.plus(span).minus(drift(span));
        StartingValidity { until, kept_until: until, next: claim, refreshed: None }
    }
}

/// How valid a grant's turn was when it was ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// This call has ended it, and it was still valid.
    Valid(StartingValidity),
    /// This call has ended it, and it was valid no more; the store may keep the lock all the same.
    Stale,
    /// It was over before: nothing may be sent for it.
    Before,
}

/// What the keeper has to do for a grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeeperAction {
    /// Nothing is due, or the grant is over.
    Nothing,
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
    /// Made in its place: it is large, and a cycle would pay for each copy.
    #[inline]
    fn new(identity: Identity, terms: Terms, phase: GrantPhase, since: Moment) -> Arc<Grant> {
        let state = GrantState {
            phase,
            valid_until: Moment::ZERO,
            notice: Duration::ZERO,
            hold_end: terms.max_hold.map_or(Moment::NEVER, |most| since.plus(most)),
            next: Moment::NEVER,
            planned: Moment::NEVER,
            has_failed: false,
            warned: false,
            last: false,
            refreshed: Some(since),
            abandoned: false,
            kept_until: since,
        };
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let (id, taker) = (COUNT.fetch_add(1, Ordering::Relaxed) + 1, std::thread::current().id());
        let (state, filed, loss) = (Mutex::new(state), Mutex::new(None), Mutex::new(None));
        let span = LeaseSpan::default();
        Arc::new(Grant { id, identity, terms, taker, since, state, filed, loss, span })
    }

    /// A grant whose reply was read at `now`, to a request sent at `sent`; `None` when nothing of
    /// its validity is left by then.
    pub(crate) fn taken(
        identity: Identity,
        terms: Terms,
        sent: Moment,
        now: Moment,
    ) -> Option<Arc<Grant>> {
        let grant = Grant::new(identity, terms, GrantPhase::New, sent);
        grant.extended(sent, terms.first_ttl(), now).then_some(grant)
    }

    /// A turn under a grant that was handed over, or that had a turn before; `None` when its
    /// validity has ended since.
    pub(crate) fn succeeding(
        identity: Identity,
        terms: Terms,
        legacy: StartingValidity,
        now: Moment,
    ) -> Option<Arc<Grant>> {
        let grant = Grant::new(identity, terms, GrantPhase::Held, now);
        let mut state = grant.state.lock();
        let StartingValidity { until, kept_until, next, refreshed } = legacy;
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

    /// A turn has ended before its grant was claimed, and the lock is to stay taken: what is left to do
    /// is the claim. `None` when the grant was claimed.
    #[cfg(feature = "capi")]
    pub(crate) fn abandoned(&self, legacy: StartingValidity, now: Moment) -> Option<Arc<Grant>> {
        let left = Grant::succeeding(self.identity.clone(), self.terms, legacy, now);
        let left = left.filter(|_| legacy.refreshed.is_none())?;
        left.state.lock().abandoned = true;
        Some(left)
    }

    /// A grant that another process took under the token `from`, and detached.
    pub(crate) fn attached(
        identity: Identity,
        from: Token,
        terms: Terms,
        now: Moment,
    ) -> Arc<Grant> {
        Grant::new(identity, terms, GrantPhase::Attached { from }, now)
    }

    /// The token under which the store has the lock: ours, or the mark that
    /// [`detach`](Token::detached) has left, until an extension makes it ours.
    pub(crate) fn stored_as(&self) -> Token {
        let Identity { token, fence, .. } = self.identity;
        match self.state.lock().phase {
            GrantPhase::Attached { from } => from.detached(fence),
            GrantPhase::New | GrantPhase::Held | GrantPhase::Over => token,
        }
    }

    /// The gives that release an attached lease that was never extended: the store may hold the lock
    /// under any of these three tokens. The last is that of the process that took it, which may still
    /// rely on it if it never detached its lease.
    pub(crate) fn attached_gives(&self) -> Option<Box<[Owed; 3]>> {
        let Identity { token, fence, .. } = self.identity;
        let GrantState { phase: GrantPhase::Attached { from }, kept_until: until, .. } =
            *self.state.lock()
        else {
            return None;
        };
        let owed = |token| Owed { identity: Identity { token, ..self.identity.clone() }, until };
        Some(Box::new([from.detached(fence), token, from].map(owed)))
    }

    /// No reply has made the lock ours for a ttl yet: it was handed over, or attached.
    pub(crate) fn is_unclaimed(&self) -> bool {
        let state = self.state.lock();
        let is_not_ours_yet = matches!(state.phase, GrantPhase::New | GrantPhase::Attached { .. });
        state.refreshed.is_none() || is_not_ours_yet
    }

    /// Whether it was ever valid.
    pub(crate) fn was_held(&self) -> bool {
        !self.state.lock().notice.is_zero()
    }

    pub(crate) fn remaining(&self, now: Moment) -> Duration {
        self.state.lock().valid_until.since(now)
    }

    /// How long the store must keep the lock so that the holder can rely on it as long as it does now:
    /// never longer than the store was asked to. `None` once it is lost.
    pub(crate) fn kept_for(&self, now: Moment) -> Option<Duration> {
        let left = self.remaining(now);
        (now < self.lost_at()).then(|| whole_millis(left + drift(left)))
    }

    /// When the keeper has to say that the lease is lost, unless it is extended before.
    pub(crate) fn lost_at(&self) -> Moment {
        self.state.lock().lost_at()
    }

    /// How much earlier than `next` a renewal may be sent, together with others that are due.
    pub(crate) fn leeway(&self) -> Duration {
        self.terms.paced() / 100
    }

    /// The deadline of a keeper's request that starts at `now`, for a grant that is lost at `lost_at`.
    /// The request may last into the first three quarters of the notice: otherwise many grants near their
    /// end would leave it no time to make a connection. If the grant is renewed, half of the time that
    /// is left is kept for a second try on another connection, and for the warning.
    pub(crate) fn request_end(&self, lost_at: Moment, now: Moment) -> Moment {
        let notice = self.state.lock().notice;
        let told = lost_at.plus(notice / 4 * 3);
        if !self.terms.renew {
            return told;
        }
        let half = now.plus(lost_at.since(now) / 2);
        half.max(now.plus(notice / 4)).min(told)
    }

    pub(crate) fn next(&self) -> Moment {
        self.state.lock().next
    }

    pub(crate) fn planned(&self) -> Moment {
        self.state.lock().planned
    }

    /// Its last renewal brought no answer.
    pub(crate) fn is_failing(&self) -> bool {
        self.state.lock().has_failed
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state.lock().phase == GrantPhase::Over
    }

    /// Why it is over at `now`: the reason of its loss, its `max_hold`, or else `otherwise`.
    pub(crate) fn why_over(&self, now: Moment, otherwise: &str) -> String {
        let detail = self.loss.lock().clone().and_then(|loss| loss.detail);
        let state = self.state.lock();
        let most = self.terms.max_hold.filter(|_| state.last && now >= state.lost_at());
        let most = most.map(|most| format!("max_hold of {} was reached", spoken(most)));
        detail.map(|it| it.to_string()).or(most).unwrap_or_else(|| otherwise.to_owned())
    }

    /// The ttl to ask for now, which `max_hold` bounds.
    pub(crate) fn ttl_from(&self, ttl: Duration, now: Moment) -> Duration {
        let mut state = self.state.lock();
        let ttl = whole_millis(ttl.min(state.hold_end.since(now)));
        state.kept_until = state.kept_until.max(now.plus(ttl));
        ttl
    }

    /// The give that ends it. It is owed until the store has forgotten the lock, even if a renewal that is
    /// under way is carried out.
    pub(crate) fn owed(&self, now: Moment) -> Owed {
        let until = self.state.lock().kept_until.max(now.plus(self.terms.ttl));
        Owed { identity: self.identity.clone(), until }
    }

    /// The store made the lock ours for `ttl` on a request sent at `sent`. False, and `valid_until`
    /// stays, when that comes too late: validity that has ended never comes back.
    pub(crate) fn extended(&self, sent: Moment, ttl: Duration, now: Moment) -> bool {
        let mut state = self.state.lock();
        state.kept_until = state.kept_until.max(now.plus(ttl));
        let ended = match state.phase {
            GrantPhase::New | GrantPhase::Attached { .. } => false,
            GrantPhase::Held => now >= state.valid_until,
            GrantPhase::Over => true,
        };
        let promised = sent.plus(ttl).minus(drift(ttl)).min(state.hold_end);
        // An extension never shortens, neither in the store nor here.
        let until = promised.max(state.valid_until);
        if ended || now >= until {
            return false;
        }
        (state.phase, state.valid_until) = (GrantPhase::Held, until);
        state.notice = notice_of(self.terms.ttl);
        state.has_failed = false;
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

    /// Whether an extension that is sent now also has to refresh the side keys, which would end
    /// otherwise.
    pub(crate) fn reach(&self, now: Moment) -> Reach {
        self.state.lock().reach(now)
    }

    /// The side keys were refreshed by a request sent at `sent`.
    pub(crate) fn refreshed(&self, sent: Moment) {
        let mut state = self.state.lock();
        state.refreshed = Some(sent);
        if state.abandoned {
            state.phase = GrantPhase::Over;
        }
    }

    /// Whether the last request known to have made the lock ours was sent before this moment. A grant that
    /// is not claimed yet has none: true.
    pub(crate) fn is_older_than(&self, moment: Moment) -> bool {
        // Moment zero stands for "never lost": no grant is older.
        self.state.lock().refreshed.unwrap_or(Moment::ZERO) < moment
    }

    /// A renewal brought no answer. It is tried again after about `pause`. Longer pauses would be time in
    /// which the store answers again and nobody asks: the lease would survive shorter outages.
    pub(crate) fn renewal_failed(&self, now: Moment, pause: impl FnOnce(Duration) -> Duration) {
        let mut state = self.state.lock();
        let ttl = self.terms.ttl;
        let span = (ttl / 60).clamp(Duration::from_millis(2), Duration::from_millis(500));
        state.has_failed = true;
        // A warning does not wait for the next try.
        let warn = !state.warned && state.valid_until.since(now) <= ttl / 3;
        state.next = if warn { now } else { now.plus(pause(span)) };
    }

    /// What is to be done at `now`.
    pub(crate) fn action(&self, now: Moment) -> KeeperAction {
        let mut state = self.state.lock();
        if state.phase != GrantPhase::Held {
            return KeeperAction::Nothing;
        }
        if now >= state.lost_at() {
            (state.phase, state.valid_until) = (GrantPhase::Over, Moment::ZERO);
            let reason = if state.last { LossReason::MaxHold } else { LossReason::Expired };
            let is_told = !state.abandoned;
            return if is_told { KeeperAction::Lose(reason) } else { KeeperAction::Nothing };
        }
        // A healthy renewal may come a little early, to travel with others.
        let early = !state.has_failed && !state.last;
        if now < state.next && !(early && now.plus(self.leeway()) >= state.next) {
            return KeeperAction::Nothing;
        }
        let risky = state.valid_until.since(now) <= self.terms.ttl / 3;
        if !state.warned && risky && (state.has_failed || state.last) {
            state.warned = true;
            if state.last {
                state.next = Moment::NEVER;
            }
            return KeeperAction::Warn;
        }
        if state.last {
            state.next = Moment::NEVER;
            return KeeperAction::Nothing;
        }
        KeeperAction::Renew {
            ttl: whole_millis(self.terms.ttl.min(state.hold_end.since(now))),
            reach: state.reach(now),
        }
    }

    /// Ends the turn: from now on the lease is invalid, and no reply makes it valid again.
    pub(crate) fn end(&self, now: Moment) -> Ended {
        let mut state = self.state.lock();
        // Before `lost_at` it is this call that has ended it, and not `max_hold`.
        state.last &= now >= state.lost_at();
        let phase = std::mem::replace(&mut state.phase, GrantPhase::Over);
        let until = std::mem::take(&mut state.valid_until);
        if phase == GrantPhase::Over || state.abandoned {
            return Ended::Before;
        }
        if now >= until {
            return Ended::Stale;
        }
        let GrantState { kept_until, next, refreshed, .. } = *state;
        Ended::Valid(StartingValidity { until, kept_until, next, refreshed })
    }
}

impl GrantState {
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
