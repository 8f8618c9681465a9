//! One call that takes a lock: by when its requests have to be answered, what a grant or a
//! failure becomes, and what an unknown outcome leaves to clean up. The loop and its requests are in
//! `steps.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Lock;
use super::state::{AcquireState, Policy};
use crate::clock::{Deadline, Moment};
use crate::config::spoken;
use crate::error::{Error, ErrorKind};
use crate::grant::{Grant, StartingValidity};
use crate::keeper::{Core, Keeper, Owed, held_by};
use crate::lease::Lease;
use crate::metrics::Series;
use crate::store::{Answer, Failure, Identity, Lane, Place, Reach, Reply, Request};
use crate::token::Token;
use crate::wait::{Check, Turn, Validity};

/// One call of `acquire` or `try_acquire`, while a thread goes on with it.
pub(super) struct AcquireCall<'a, 'c> {
    pub(super) lock: &'a Lock,
    pub(super) keeper: &'a Arc<Keeper>,
    pub(super) core: &'a Core,
    pub(super) state: &'a mut AcquireState,
    pub(super) check: Option<Check<'c>>,
}

/// A try that starts with less than this left would often be cut short, and its outcome unknown.
pub(super) const LAST_CHANCE: Duration = Duration::from_millis(5);
/// A wait looks who has the lock this long before its end, or a fifth of the wait, if that is less.
const LOOK_BEFORE: Duration = Duration::from_millis(200);
/// A wait shorter than this does not look who has the lock.
const LEAST_WAIT: Duration = Duration::from_millis(50);
/// The keeper claims a lock so long after it was handed over, or after a quarter of a shorter claim
/// window. A lease that is released sooner needs no claim.
const CLAIM_AFTER: Duration = Duration::from_millis(50);
/// A lock that is handed over for its whole ttl needs no claim either, unless one part in `FRESH`
/// of it had passed when its waiter heard of it: an etcd counts the ttl from when the waiter last
/// said that it lives.
const FRESH: u32 = 8;

/// When a wait looks who has the lock.
pub(super) fn holder_look_due(start: Moment, limit: Moment) -> Moment {
    match limit.since(start) {
        _ if limit == Moment::NEVER => limit,
        wait if wait < LEAST_WAIT => Moment::NEVER,
        wait => limit.minus(LOOK_BEFORE.min(wait / 5)),
    }
}

/// When to claim a lock that is handed over for `span` since a moment. At once, if little of the
/// span would be left later: a claim takes its time.
fn claim_at((since, span): (Moment, Duration), now: Moment) -> Moment {
    let later = now.plus(CLAIM_AFTER.min(span / 4));
    if since.plus(span / 2) < later { now } else { later }
}

impl<'a, 'c> AcquireCall<'a, 'c> {
    pub(super) fn new(
        lock: &'a Lock,
        keeper: &'a Arc<Keeper>,
        state: &'a mut AcquireState,
        check: Option<Check<'c>>,
    ) -> Result<Self, Error> {
        Ok(AcquireCall { lock, keeper, core: keeper.core_even_closed()?, state, check })
    }

    /// The thread leaves the call; another one goes on with its state later.
    pub(super) fn park(self) {
        // Dropping a call ends its wait. All that it has is borrowed, so nothing leaks.
        std::mem::forget(self);
    }

    pub(super) fn figures(&self) -> &'a Series {
        self.core.metrics.of(self.lock.group)
    }

    /// The lease of an answer that grants the lock; `None` if nothing of its validity is left.
    pub(super) fn granted(&mut self, answer: Answer, fence: u64) -> Result<Option<Lease>, Error> {
        let (identity, now) = (self.identity(self.state.token, fence), Moment::now());
        let Some(grant) = Grant::taken(identity, self.state.terms, answer.sent, now) else {
            // The call asks again with the same token: the store grants the lock anew, with a new
            // validity.
            self.stands_until(Some(now.plus(self.state.terms.ttl)));
            let late = "the lock was granted too late to rely on it";
            self.state.store.trouble = Some(Error::new(ErrorKind::Unavailable, late));
            return Ok(None);
        };
        self.stands_until(None);
        self.hold(grant, now).map(Some)
    }

    /// Until when the token of a call that asks by itself stands in the store, if it does.
    pub(super) fn stands_until(&mut self, until: Option<Moment>) {
        if let Some(trying) = self.state.phase.trying() {
            trying.stands = until;
        }
    }

    /// The lease of a turn; `None` if nothing of its validity is left.
    pub(super) fn turn(
        &mut self,
        turn: Turn,
        legacy: Option<StartingValidity>,
    ) -> Result<Option<Lease>, Error> {
        let (core, terms, now) = (self.core, self.state.terms, Moment::now());
        let Turn { token, fence, validity, followed } = turn;
        let identity = self.identity(token, fence);
        let grant = match (validity, legacy) {
            (Validity::Window { .. }, _) if core.store.abilities().claims_first => {
                self.claimed(&identity)
            }
            (Validity::Window { since, span }, _)
                if span < terms.first_ttl() || since.plus(span / FRESH) < now =>
            {
                // Other threads wait for turns under this grant, so its whole ttl will be used.
                let claim = if followed { now } else { claim_at((since, span), now) };
                let legacy = StartingValidity::handed(since, span, claim);
                Grant::succeeding(identity.clone(), terms, legacy, now)
            }
            (Validity::Whole { sent: since } | Validity::Window { since, .. }, _) => {
                Grant::taken(identity.clone(), terms, since, now)
            }
            (Validity::Passed, Some(legacy)) => {
                let grant = Grant::succeeding(identity.clone(), terms, legacy, now);
                grant.filter(|grant| self.is_long_enough(grant, now))
            }
            (Validity::Passed, None) => None,
        };
        if let Some(grant) = grant {
            return self.hold(grant, now).map(Some);
        }
        // The next thread of the queue goes on from here.
        core.owe_all(core.room.lost(&identity, Moment::now()));
        core.owe_or_give(self.owed(token, now.plus(terms.ttl)));
        Ok(None)
    }

    fn hold(&mut self, grant: Arc<Grant>, now: Moment) -> Result<Lease, Error> {
        self.core.keep(&grant)?;
        let group = || self.lock.group_label();
        grant.span.begin(Some(&self.state.span), group, grant.identity.fence);
        self.figures().granted.add_one();
        self.state.granted_at = now;
        Ok(Lease::new(Arc::clone(self.keeper), grant))
    }

    /// Confirms a grant that a message told of, on a store where the message is not enough
    /// (`claims_first`). A take with the same token grants the lock for the whole ttl under the
    /// same fence. `None` if the grant cannot be relied on.
    fn claimed(&mut self, identity: &Identity) -> Option<Arc<Grant>> {
        let (name, token, ttl) = (&*identity.name, identity.token, identity.ttl);
        let take = Request::Take { name, token, ttl, place: Place::Try, block: 1 };
        let now = Moment::now();
        let by = self.answer_by(now);
        match self.core.ask(self.lock.group, Lane::Caller, take, by) {
            Ok(Answer { reply: Reply::Granted { fence, .. }, sent, .. })
                if fence == identity.fence =>
            {
                Grant::taken(identity.clone(), self.state.terms, sent, Moment::now())
            }
            // The grant was lost. The caller gives whatever the token has now.
            Ok(_) => None,
            Err(failure) => {
                self.failed(failure, now, by);
                None
            }
        }
    }

    /// A turn that begins with little of its grant's validity left is extended before it is relied
    /// on. False if the grant is lost; if the store did not answer, what is left of it will do.
    fn is_long_enough(&self, grant: &Grant, now: Moment) -> bool {
        let (ttl, left, reach) = (grant.identity.ttl, grant.remaining(now), grant.reach(now));
        if left * 3 >= self.state.terms.ttl * 2 {
            return true;
        }
        let deadline = Deadline::after(self.core.config.io_timeout.min(left));
        let request = grant.identity.extend(ttl, reach);
        match self.core.ask(self.lock.group, Lane::Give(deadline), request, deadline) {
            Ok(answer) if answer.reply == Reply::Extended => {
                if reach == Reach::Claim {
                    grant.refreshed(answer.sent);
                }
                grant.extended(answer.sent, ttl, Moment::now())
            }
            Ok(_) => false,
            Err(_) => !grant.remaining(Moment::now()).is_zero(),
        }
    }

    /// A take with an unknown outcome may have the lock for its token, which counts as not held. So
    /// a give of the token is owed, in front of the next try, until the store confirms it or a ttl
    /// has passed. The next try has a new token.
    pub(super) fn leave_token(&mut self, sent: Moment) -> Result<(), Error> {
        let until = sent.plus(self.state.terms.ttl);
        self.core.owe(self.owed(self.state.token, until));
        self.state.token = Token::of(self.core.client)?;
        self.stands_until(None);
        Ok(())
    }

    /// The error of a request that was made at `since` and brought no answer.
    pub(super) fn failed(&mut self, failure: Failure, since: Moment, by: Deadline) -> Error {
        let Failure { mut error, sent } = failure;
        self.state.store.stuck.failed(&error, false, since);
        if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::NotReplicated) {
            // A server that says "not now" is there.
            self.core.answered.store(true, Ordering::Relaxed);
        }
        if error.kind() == ErrorKind::NoAnswer && by.has_passed() {
            let patience = self.lock.patience();
            let bound = match by.moment().since(since) + LAST_CHANCE < patience {
                true => "by the end of the wait".to_owned(),
                false => format!("within io_timeout, {}", spoken(patience)),
            };
            error = error.bounded(&bound);
        }
        if sent.is_some() && error.kind() != ErrorKind::NotReplicated {
            self.figures().unknown.add_one();
            // An error that is not retriable says more by its own kind: the next try would fail,
            // too.
            if error.is_retriable() {
                let detail = format!("whether the lock was taken ({error})");
                error = Error::new(ErrorKind::Unknown, detail);
            }
        }
        self.note(&error, since, by);
        error
    }

    /// Remembers what is wrong with the store, by a request that was made at `since`.
    pub(super) fn note(&mut self, error: &Error, since: Moment, by: Deadline) {
        use ErrorKind::{NoAnswer, NoQuorum, Unavailable, Unknown};
        // A try that the end of the wait cut short says nothing about the store; the try or the
        // answer before it said more. (`LAST_CHANCE` allows for what a call does before its first
        // try.)
        let had = by.moment().since(since) + LAST_CHANCE;
        let no_time = had < self.lock.patience()
            && by.has_passed()
            && matches!(error.kind(), NoAnswer | NoQuorum | Unknown | Unavailable);
        let store = &mut self.state.store;
        if !no_time || (store.trouble.is_none() && !store.is_answered) {
            store.trouble = Some(error.clone());
        }
    }

    pub(super) fn was_answered(&mut self, by_look: bool) {
        self.core.answered.store(true, Ordering::Relaxed);
        let store = &mut self.state.store;
        (store.is_answered, store.trouble) = (true, None);
        store.stuck.answered(by_look, self.lock, self.core);
    }

    /// The deadline of a request that is sent at `now`. A wait shorter than `io_timeout` gives its
    /// first request that long all the same: a try gets an answer.
    pub(super) fn answer_by(&self, now: Moment) -> Deadline {
        Deadline::at(self.ends().min(now.plus(self.lock.patience())))
    }

    /// The end of the call: no request lasts longer.
    pub(super) fn ends(&self) -> Moment {
        let first = self.state.start.plus(self.lock.patience());
        if self.knows_store() { self.state.limit.max(first) } else { first }
    }

    fn owed(&self, token: Token, until: Moment) -> Owed {
        Owed { identity: self.identity(token, 0), until }
    }

    fn identity(&self, token: Token, fence: u64) -> Identity {
        Identity {
            name: Arc::clone(&self.lock.name),
            token,
            fence,
            ttl: self.state.terms.first_ttl(),
        }
    }

    /// A store that has answered this client before exists, so a wait outlasts its outage. One that
    /// never did may not exist.
    fn knows_store(&self) -> bool {
        self.core.answered.load(Ordering::Relaxed)
    }

    /// A request that is sent at `wake` could not be answered within the first `io_timeout` of the
    /// call.
    pub(super) fn is_too_late(&self, wake: Moment) -> bool {
        wake.plus(LAST_CHANCE) >= self.state.start.plus(self.lock.patience())
    }

    pub(super) fn is_nobody_there(&self, wake: Moment) -> bool {
        !self.knows_store() && self.is_too_late(wake)
    }

    /// Looks who has the lock, by the end of the wait.
    pub(super) fn look_who(&mut self) {
        let (name, limit) = (&self.lock.name, Deadline::at(self.state.limit));
        self.state.holder.due = Moment::NEVER;
        // Another waiter listens meanwhile.
        self.core.room.step_aside();
        if self.state.store.trouble.is_none() {
            self.state.holder.seen = self.core.holder(name, limit).ok().flatten().map(Box::new);
        }
    }

    /// The lease by which this thread holds the lock that it waits for. A future belongs to no
    /// thread.
    pub(super) fn own(&self) -> Option<Arc<Grant>> {
        let is_a_threads = self.state.parked.is_none() && self.state.policy != Policy::Return;
        let thread = std::thread::current().id();
        is_a_threads.then(|| held_by(self.core, thread, &self.lock.name)).flatten()
    }

    /// Why a wait ends without a lease. Counts a timeout, and takes the store's trouble out of the state.
    pub(super) fn take_end_error(&mut self) -> Error {
        if let Some(trouble) = self.state.store.trouble.take() {
            return trouble;
        }
        self.figures().timed_out.add_one();
        let (now, tries) = (Moment::now(), self.state.tries);
        let bound = match self.state.limit.since(self.state.start) {
            wait if now >= self.state.limit => {
                format!("wait, {}, asked {tries} times", spoken(wait))
            }
            _ => format!("{tries} attempts"),
        };
        let holder = self.state.holder.seen.take();
        // A shorter wait does not check whether the thread itself holds the lock.
        let looks = self.state.limit.since(self.state.start) >= LEAST_WAIT;
        let who = match (holder, looks && self.own().is_some()) {
            (Some(holder), true) => format!("{holder}, this very thread"),
            (Some(holder), false) => holder.to_string(),
            (None, true) => "this very thread".to_owned(),
            (None, false) => "an unknown holder".to_owned(),
        };
        Error::new(ErrorKind::Timeout, format!("held by {who}, not free within {bound}"))
    }
}

/// A call that ends without a lease, also by a panic in the caller's check, gives up its place
/// among the waiters. A child that was forked during the call leaves nothing.
impl Drop for AcquireCall<'_, '_> {
    fn drop(&mut self) {
        if let Some((turn, legacy)) = self.leave() {
            drop(self.turn(turn, legacy));
        }
        let stands = self.state.phase.trying().and_then(|trying| trying.stands);
        if let Some(until) = stands.filter(|_| self.keeper.is_here()) {
            self.core.owe_or_give(self.owed(self.state.token, until));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c3_what_is_handed_over_late_is_claimed_before_it_is_nearly_over() {
        let at = |millis: u64| Moment::from_nanos(millis * 1_000_000);
        let claimed = |late: u64, millis| {
            let claim = claim_at((at(1000), Duration::from_millis(millis)), at(1000 + late));
            claim.since(at(1000 + late)).as_millis()
        };
        assert_eq!([0, 300, 450].map(|late| claimed(late, 1000)), [50; 3]);
        assert_eq!([460, 920, 1100].map(|late| claimed(late, 1000)), [0; 3]);
        assert_eq!([0, 10, 20].map(|late| claimed(late, 40)), [10, 10, 0]);
    }
}
