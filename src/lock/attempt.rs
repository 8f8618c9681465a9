//! One call's requests for a lock: by when they have to be answered, what the answers mean, and what
//! an unknown outcome leaves to clean up.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Lock;
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::grant::{Grant, Legacy, Terms};
use crate::jitter::Jitter;
use crate::keeper::{Core, Owed};
use crate::lease::Lease;
use crate::store::{
    Abilities, Answer, Failure, Identity, Lane, Outcome, Place, Reply, Request, no_reply,
};
use crate::token::Token;
use crate::wait::{Ask, Owe, Pace, Turn, Validity};

pub(super) struct Attempt<'a> {
    pub(super) lock: &'a Lock,
    pub(super) core: &'a Core,
    pub(super) terms: Terms,
    pub(super) token: Token,
    pub(super) ticket: u64,
    pub(super) start: Moment,
    /// When the wait is over.
    pub(super) limit: Moment,
    /// The token stands in the store, at the latest until then: among the waiters, or as a holder
    /// that came too late.
    stands: Option<Moment>,
    /// The store has answered this call.
    answered: bool,
    /// The store has said that it is there, if only to say "not now".
    there: bool,
    /// What is wrong with the store, as far as the tries since its last answer tell.
    trouble: Option<Error>,
}

/// A try that starts with less than this left would often be cut short, and its outcome unknown.
pub(super) const LAST_CHANCE: Duration = Duration::from_millis(5);
/// A lease that is released sooner than this needs no claim. Where the claim window is short, a
/// part of it.
const CLAIM_AFTER: Duration = Duration::from_millis(50);

impl<'a> Attempt<'a> {
    pub(super) fn new(
        lock: &'a Lock,
        (core, token): (&'a Core, Token),
        terms: Terms,
    ) -> Attempt<'a> {
        let start = Moment::now();
        Attempt {
            lock,
            core,
            terms,
            token,
            ticket: 0,
            start,
            // No wait is shorter: a try gets an answer.
            limit: start.plus(lock.patience()),
            stands: None,
            answered: false,
            there: false,
            trouble: None,
        }
    }

    /// Asks for the lock, or for a place among the waiters, and gives up first what has to be.
    pub(super) fn ask(&mut self, ask: &Ask, place: Place, deadline: Deadline) -> Outcome {
        self.core.metrics.attempts.add_one();
        let Ask { token, ttl, block, give, .. } = *ask;
        let name = &self.lock.name;
        let take = Request::Take { name, token, ttl, place, block };
        let Some(Owe { token, ttl, until }) = give else {
            return self.core.ask(Lane::Caller, take, deadline);
        };
        let give = Request::Give { name, token, fence: 0, ttl };
        let mut outcomes = self.core.run(Lane::Caller, &[give, take], deadline);
        let take = outcomes.pop();
        if until > Moment::now() || !matches!(outcomes.pop(), Some(Ok(_))) {
            self.core.owe_all([(Arc::clone(name), Owe { token, ttl, until })]);
        }
        take.unwrap_or_else(no_reply)
    }

    /// The lease of an answer that grants the lock; none if nothing of its validity is left.
    pub(super) fn granted(&mut self, answer: Answer, fence: u64) -> Result<Option<Lease>, Error> {
        let (id, now) = (self.lock.keeper.next_id(), Moment::now());
        let identity = self.identity(self.token, fence);
        let Some(grant) = Grant::taken(identity, self.terms, id, answer.sent, now) else {
            // The same token again: it is granted anew, with validity of its own.
            self.stands = Some(now.plus(self.terms.ttl));
            let late = "the lock was granted too late to rely on it";
            self.trouble = Some(Error::new(ErrorKind::Unavailable, late));
            return Ok(None);
        };
        self.stands = None;
        self.hold(grant).map(Some)
    }

    /// The lease of a turn; none if nothing of its validity is left.
    pub(super) fn turn(
        &mut self,
        turn: Turn,
        legacy: Option<Legacy>,
    ) -> Result<Option<Lease>, Error> {
        let core = self.lock.keeper.core_even_closed()?;
        let (terms, id) = (self.terms, self.lock.keeper.next_id());
        let Turn { token, fence, validity, followed } = turn;
        let identity = self.identity(token, fence);
        let now = Moment::now();
        let grant = match (validity, legacy) {
            (Validity::Whole { sent }, _) => Grant::taken(identity.clone(), terms, id, sent, now),
            (Validity::Window { .. }, _) if core.store.abilities().claims_first => {
                self.claimed(&identity, id)
            }
            (Validity::Window { since, span }, _) => {
                // A thread that is followed makes use of the whole of it.
                let claim = if followed { now } else { now.plus(CLAIM_AFTER.min(span / 4)) };
                Grant::handed(identity.clone(), terms, id, (since, span), claim, now)
            }
            (Validity::Passed, Some(legacy)) if legacy.remaining(now) * 3 >= terms.ttl * 2 => {
                Grant::succeeding(identity.clone(), terms, id, legacy, now)
            }
            (Validity::Passed, Some(legacy)) => self.extended(&identity, id, legacy),
            (Validity::Passed, None) => None,
        };
        if let Some(grant) = grant {
            return self.hold(grant).map(Some);
        }
        // The next one takes it up from here.
        core.owe_all(core.room.lost(&identity, Moment::now()));
        let until = now.plus(terms.ttl);
        core.owe_all([(identity.name, Owe { token, ttl: identity.ttl, until })]);
        Ok(None)
    }

    fn hold(&self, grant: Grant) -> Result<Lease, Error> {
        let core = self.lock.keeper.core_even_closed()?;
        let grant = Arc::new(grant);
        let lease = Lease::new(Arc::clone(&self.lock.keeper), Arc::clone(&grant));
        if !core.keep(&grant) {
            // Nobody else gives it, and dropping it would try only once.
            let _ = lease.release();
            return Err(Error::bare(ErrorKind::Closed));
        }
        core.metrics.granted.add_one();
        Ok(lease)
    }

    /// A grant of which a message told, where that is not enough. Asked again with the same token,
    /// it is granted for the whole ttl under the same fence. `None` if it cannot be relied on.
    fn claimed(&mut self, identity: &Identity, id: u64) -> Option<Grant> {
        let (name, token, ttl) = (&*identity.name, identity.token, identity.ttl);
        let take = Request::Take { name, token, ttl, place: Place::Try, block: 1 };
        let deadline = self.answer_by(Moment::now());
        match self.core.ask(Lane::Caller, take, deadline) {
            Ok(answer) => match answer.reply {
                Reply::Granted { fence, .. } if fence == identity.fence => {
                    let now = Moment::now();
                    Grant::taken(identity.clone(), self.terms, id, answer.sent, now)
                }
                // It was lost meanwhile; the caller gives what is under this token now.
                _ => None,
            },
            Err(failure) => {
                let error = self.explain(failure);
                self.note(&error, self.lock.patience(), deadline);
                None
            }
        }
    }

    /// A turn that begins with little of its grant's validity left is extended before it is relied
    /// on. None if the grant is lost; what is left of it, if the store did not answer.
    fn extended(&mut self, identity: &Identity, id: u64, legacy: Legacy) -> Option<Grant> {
        let (terms, now) = (self.terms, Moment::now());
        let Identity { name, token, fence, ttl } = identity;
        let (token, fence, ttl, reach) = (*token, *fence, *ttl, legacy.reach(now));
        let request = Request::Extend { name, token, fence, ttl, reach };
        let deadline = Deadline::after(self.lock.keeper.io_timeout().min(legacy.remaining(now)));
        match self.core.ask(Lane::Give(deadline.left()), request, deadline) {
            Ok(answer) if answer.reply == Reply::Extended => {
                let grant = Grant::taken(identity.clone(), terms, id, answer.sent, Moment::now());
                grant.map(|grant| grant.keep_as_long(&legacy))
            }
            Ok(_) => None,
            Err(_) => Grant::succeeding(identity.clone(), terms, id, legacy, Moment::now()),
        }
    }

    /// The lock is somebody else's. Giving a place that was left once is enough: this was answered,
    /// so nothing is on its way.
    pub(super) fn busy(&mut self, ticket: u64, place: Place, sent: Moment) {
        self.ticket = ticket;
        self.stands = (ticket != 0 && place != Place::Try).then_some(sent);
    }

    /// A request that may have been carried out leaves a token that nobody counts as held. It is
    /// owed: given before the next try, and until that is confirmed, or a ttl has passed.
    pub(super) fn leave_token(&mut self, sent: Moment) -> Result<(), Error> {
        let until = sent.plus(self.terms.ttl);
        self.core.owe(self.owed(until));
        self.token = Token::random()?;
        self.stands = None;
        Ok(())
    }

    /// A request for the lock brought no answer; what that means to the caller.
    pub(super) fn failed(&mut self, failure: Failure, had: Duration, deadline: Deadline) -> Error {
        if failure.sent.is_some() && failure.error.kind() != ErrorKind::NotReplicated {
            self.core.metrics.unknown.add_one();
        }
        let error = self.explain(failure);
        self.note(&error, had, deadline);
        error
    }

    fn explain(&mut self, failure: Failure) -> Error {
        let kind = failure.error.kind();
        if failure.sent.is_none() || kind == ErrorKind::NotReplicated {
            // A server that says "not now" is there.
            self.there |= matches!(kind, ErrorKind::Unavailable | ErrorKind::NotReplicated);
            return failure.error;
        }
        if !failure.error.is_retriable() {
            // What answers there will not do better next time; its own kind says more.
            return failure.error;
        }
        let detail = format!("whether the lock was taken ({})", failure.error);
        Error::new(ErrorKind::Unknown, detail)
    }

    /// Remembers what is wrong with the store, by a request that had so much time.
    pub(super) fn note(&mut self, error: &Error, had: Duration, deadline: Deadline) {
        // A try that had less time than any may take says nothing about the store; the one before
        // it, or the answer before it, said more. (A call does a little before its first try.)
        let cut_short = had + Duration::from_millis(5) < self.lock.patience();
        let no_time = cut_short
            && deadline.has_passed()
            && matches!(
                error.kind(),
                ErrorKind::NoAnswer
                    | ErrorKind::NoQuorum
                    | ErrorKind::Unknown
                    | ErrorKind::Unavailable
            );
        if !no_time || (self.trouble.is_none() && !self.answered) {
            self.trouble = Some(error.clone());
        }
    }

    pub(super) fn was_answered(&mut self) {
        self.answered = true;
        self.core.answered.store(true, Ordering::Relaxed);
        self.trouble = None;
    }

    /// By when a request must be answered that is sent at `now`.
    pub(super) fn answer_by(&self, now: Moment) -> Deadline {
        let first = self.first_answer_by();
        let last = if self.knows_store() { self.limit.max(first) } else { first };
        Deadline::at(last.min(now.plus(self.lock.patience())))
    }

    fn owed(&self, until: Moment) -> Owed {
        Owed { identity: self.identity(self.token, 0), until }
    }

    fn identity(&self, token: Token, fence: u64) -> Identity {
        Identity { name: Arc::clone(&self.lock.name), token, fence, ttl: self.terms.first_ttl() }
    }

    /// By when the first answer must have come: a wait that is shorter is a try, and a try gets
    /// an answer.
    fn first_answer_by(&self) -> Moment {
        self.start.plus(self.lock.patience())
    }

    /// A store that has answered this client is there, and a wait outlasts its outage; one that
    /// never did may not exist.
    pub(super) fn knows_store(&self) -> bool {
        self.answered || self.there || self.core.answered.load(Ordering::Relaxed)
    }

    /// A request that is sent then could not be answered in the time that a first answer has.
    pub(super) fn is_too_late(&self, wake: Moment) -> bool {
        wake.plus(LAST_CHANCE) >= self.first_answer_by()
    }

    pub(super) fn pace(&self) -> Pace {
        let Abilities { longest_pause, place_kept, .. } = self.core.store.abilities();
        let backoff = self.lock.options.wait_mode.backoff();
        let backoff = place_kept.map_or(backoff, |kept| backoff.at_most(kept));
        Pace::new(backoff, longest_pause, Jitter::seeded(self.token.seed()))
    }

    /// Why a wait ends without a lease.
    pub(super) fn over(&mut self, tries: u32) -> Error {
        if let Some(trouble) = self.trouble.take() {
            return trouble;
        }
        self.core.metrics.timed_out.add_one();
        let waited = Moment::now().since(self.start).as_millis();
        Error::new(ErrorKind::Timeout, format!("{waited} ms, asked {tries} times"))
    }
}

/// A call that ends without a lease leaves its place among the waiters; not in a child that was
/// forked in the midst of it.
impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if let Some(until) = self.stands.filter(|_| self.lock.keeper.is_here()) {
            self.core.leave(self.owed(until));
        }
    }
}
