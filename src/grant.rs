//! One grant and what it is worth at each moment. No I/O and no clock of its own: every question
//! is asked for a moment, so that the answers can be tested without waiting.

mod beginning;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use crate::clock::Moment;
use crate::config::drift;
use crate::events::LossReason;
use crate::store::{Identity, Reach};
use crate::sync::Mutex;
use crate::token::Token;

/// What a lock asks of the leases that it makes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Terms {
    pub(crate) ttl: Duration,
    pub(crate) renew: bool,
    /// Only for renewed leases.
    pub(crate) max_hold: Option<Duration>,
}

impl Terms {
    /// The ttl to ask for when this much may still be held.
    fn ttl_within(&self, left: Duration) -> Duration {
        whole_millis(self.ttl.min(left))
    }

    /// The ttl of the first request.
    pub(crate) fn first_ttl(&self) -> Duration {
        self.ttl_within(self.max_hold.unwrap_or(Duration::MAX))
    }
}

/// Everything that is known of one grant. Shared by the lease and the keeper.
pub(crate) struct Grant {
    pub(crate) identity: Identity,
    pub(crate) terms: Terms,
    /// The keeper's number for it.
    pub(crate) id: u64,
    pub(crate) taker: ThreadId,
    /// The token under which another process has handed it on to us.
    from: Option<Token>,
    /// Nanoseconds of a `Moment`; only written with `state` locked, read without.
    valid_until: AtomicU64,
    /// How long before the end of validity a loss is told, in nanoseconds; less for a short
    /// validity.
    notice: AtomicU64,
    state: Mutex<State>,
    /// The moments under which the keeper's book has filed the grant; the book's alone.
    pub(crate) filed: Mutex<Option<(Moment, Moment)>>,
}

struct State {
    phase: Phase,
    /// The end of what `max_hold` allows.
    hold_end: Moment,
    /// When the keeper is to act next; `NEVER` when nothing is left to do but to end.
    next: Moment,
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
    /// Handed to us by another process: nothing may be relied on before the first extension.
    Attached,
    Held,
    Over,
}

/// What the next turn under the same grant goes on with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Legacy {
    until: Moment,
    kept_until: Moment,
    next: Moment,
    refreshed: Option<Moment>,
}

impl Legacy {
    pub(crate) fn remaining(&self, now: Moment) -> Duration {
        self.until.since(now)
    }

    /// How far an extension that is sent now has to reach.
    pub(crate) fn reach(&self, now: Moment) -> Reach {
        reach(self.refreshed, now)
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
    Rest,
    Renew { ttl: Duration, reach: Reach },
    Warn,
    Lose(LossReason),
    Forget,
}

/// A store keeps its side keys for 25 hours; once an hour is often enough.
const REFRESH: Duration = Duration::from_secs(60 * 60);

impl Grant {
    /// The token under which it was handed on, while no extension has made it ours.
    pub(crate) fn handed_on(&self) -> Option<Token> {
        self.from.filter(|_| self.state.lock().phase == Phase::Attached)
    }

    /// The tokens under which the store may have a lock that was handed on and never made ours, and
    /// until when, by the extensions that were tried. The last is the token of the process that
    /// took it, which may still rely on it if it was never detached.
    pub(crate) fn handed_on_as(&self, from: Token) -> [(Identity, Moment); 3] {
        let Identity { token, fence, .. } = self.identity;
        let until = self.state.lock().kept_until;
        [from.detached(fence), token, from]
            .map(|token| (Identity { token, ..self.identity.clone() }, until))
    }

    fn new(
        identity: Identity,
        terms: Terms,
        id: u64,
        phase: Phase,
        hold_end: Moment,
        now: Moment,
    ) -> Grant {
        let state = State {
            phase,
            hold_end,
            next: Moment::NEVER,
            failures: 0,
            warned: false,
            last: false,
            refreshed: Some(now),
            abandoned: false,
            kept_until: now.plus(terms.ttl),
        };
        Grant {
            identity,
            terms,
            id,
            taker: std::thread::current().id(),
            from: None,
            valid_until: AtomicU64::new(0),
            notice: AtomicU64::new(notice_of(terms.ttl)),
            state: Mutex::new(state),
            filed: Mutex::new(None),
        }
    }

    /// It was handed over, or handed on by another process, and no claim was answered yet.
    pub(crate) fn is_unclaimed(&self) -> bool {
        let state = self.state.lock();
        state.refreshed.is_none() || state.phase == Phase::Attached
    }

    /// Counts what the turn before it has left at the store.
    pub(crate) fn keep_as_long(self, legacy: &Legacy) -> Grant {
        let mut state = self.state.lock();
        state.kept_until = state.kept_until.max(legacy.kept_until);
        drop(state);
        self
    }

    /// The instant until which the holder may rely on the lease.
    pub(crate) fn valid_until(&self) -> Moment {
        Moment::from_nanos(self.valid_until.load(Ordering::Acquire))
    }

    pub(crate) fn remaining(&self, now: Moment) -> Duration {
        self.valid_until().since(now)
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
        self.valid_until().minus(self.notice())
    }

    /// How early a renewal may be made, to travel with others that are due.
    pub(crate) fn leeway(&self) -> Duration {
        self.terms.ttl / 100
    }

    fn notice(&self) -> Duration {
        Duration::from_nanos(self.notice.load(Ordering::Relaxed))
    }

    /// By when a request of the keeper that starts at `now` must be over, for a grant that is lost
    /// at `lost_at`. Half of the notice may be used up, so that many grants near their end leave
    /// time for requests. Where the grant is renewed, half of its time is kept for another try on
    /// another connection, and to warn.
    pub(crate) fn request_end(&self, lost_at: Moment, now: Moment) -> Moment {
        let told = lost_at.plus(self.notice() / 2);
        if !self.terms.renew {
            return told;
        }
        let half = now.plus(lost_at.since(now) / 2);
        half.max(now.plus(self.notice() / 4)).min(told)
    }

    /// When the keeper has to look at the grant next, except for its end.
    pub(crate) fn next(&self) -> Moment {
        self.state.lock().next
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state.lock().phase == Phase::Over
    }

    /// The ttl to ask for now, which never reaches beyond `max_hold`.
    pub(crate) fn ttl_from(&self, ttl: Duration, now: Moment) -> Duration {
        let mut state = self.state.lock();
        let ttl = whole_millis(ttl.min(state.hold_end.since(now)));
        state.kept_until = state.kept_until.max(now.plus(ttl));
        ttl
    }

    /// Until when the store may keep the lock for this grant if nobody gives it, whatever became
    /// of a renewal that was under way.
    pub(crate) fn kept_until(&self, now: Moment) -> Moment {
        self.state.lock().kept_until.max(now.plus(self.terms.ttl))
    }

    /// The store made the lock ours for `ttl` on a request sent at `sent`. False, and nothing is
    /// raised, when it is too late: validity that has ended never comes back.
    pub(crate) fn extended(&self, sent: Moment, ttl: Duration, now: Moment) -> bool {
        let mut state = self.state.lock();
        let ended = match state.phase {
            Phase::Over => true,
            Phase::Attached => false,
            Phase::Held => {
                let until = self.valid_until();
                until != Moment::ZERO && now >= until
            }
        };
        state.kept_until = state.kept_until.max(now.plus(ttl));
        let promised = sent.plus(ttl).minus(drift(ttl)).min(state.hold_end);
        // An extension never shortens, neither in the store nor here.
        let until = promised.max(self.valid_until());
        if ended || now >= until {
            return false;
        }
        state.phase = Phase::Held;
        self.notice.store(notice_of(self.terms.ttl), Ordering::Relaxed);
        self.valid_until.store(until.as_nanos(), Ordering::Release);
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
            // A short extension does not put off the renewal that is due anyway.
            let whole = until.plus(drift(self.terms.ttl)).minus(self.terms.ttl * 2 / 3);
            sent.plus(self.terms.ttl / 3).min(whole).max(now)
        };
        true
    }

    /// How far an extension that is sent now has to reach, so that what the store keeps beside the
    /// lock lives on.
    pub(crate) fn reach(&self, now: Moment) -> Reach {
        reach(self.state.lock().refreshed, now)
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
        let warn = !state.warned && self.remaining(now) <= ttl / 3;
        state.next = if warn { now } else { now.plus(pause(span)) };
    }

    /// What is to be done at `now`.
    pub(crate) fn step(&self, now: Moment) -> Step {
        let mut state = self.state.lock();
        if state.phase != Phase::Held {
            return Step::Forget;
        }
        if now >= self.lost_at() {
            state.phase = Phase::Over;
            if state.abandoned {
                return Step::Forget;
            }
            let reason = if state.last { LossReason::MaxHold } else { LossReason::Expired };
            self.valid_until.store(0, Ordering::Release);
            return Step::Lose(reason);
        }
        // A healthy renewal may come a little early, to travel with others.
        let early = state.failures == 0 && !state.last;
        if now < state.next && !(early && now.plus(self.leeway()) >= state.next) {
            return Step::Rest;
        }
        let risky = self.remaining(now) <= self.terms.ttl / 3;
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
            ttl: self.terms.ttl_within(state.hold_end.since(now)),
            reach: reach(state.refreshed, now),
        }
    }

    /// Ends the turn: from now on the lease is invalid and no reply raises it.
    pub(crate) fn end(&self, now: Moment) -> Ended {
        let mut state = self.state.lock();
        match std::mem::replace(&mut state.phase, Phase::Over) {
            Phase::Over => Ended::Before,
            _ if state.abandoned => Ended::Before,
            Phase::Attached => Ended::Stale,
            Phase::Held => {
                let until = Moment::from_nanos(self.valid_until.swap(0, Ordering::AcqRel));
                if now >= until {
                    return Ended::Stale;
                }
                let State { kept_until, next, refreshed, .. } = *state;
                Ended::Valid(Legacy { until, kept_until, next, refreshed })
            }
        }
    }
}

fn notice_of(span: Duration) -> u64 {
    let notice = (span / 20).min(Duration::from_millis(100));
    u64::try_from(notice.as_nanos()).unwrap_or(u64::MAX)
}

fn reach(refreshed: Option<Moment>, now: Moment) -> Reach {
    let due = refreshed.is_none_or(|sent| now.since(sent) >= REFRESH);
    if due { Reach::Refresh } else { Reach::Grow }
}

/// Stores count whole milliseconds, and nobody may rely on more than was asked for.
fn whole_millis(span: Duration) -> Duration {
    Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

fn hold_end(terms: &Terms, from: Moment) -> Moment {
    match terms.max_hold {
        Some(most) if terms.renew => from.plus(most),
        _ => Moment::NEVER,
    }
}

#[cfg(test)]
mod tests;
