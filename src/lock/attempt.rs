//! One call's way to a lock: tries, what an unknown outcome leaves to clean up, and the wait
//! between tries.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::queued::Bounds;
use super::{Lock, WaitMode};
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::grant::{Grant, Terms};
use crate::jitter::Jitter;
use crate::keeper::{Core, Owed};
use crate::lease::Lease;
use crate::store::{Abilities, Answer, Failure, Identity, Lane, Place, Reply, Request};
use crate::token::Token;
use crate::wait::{Check, Pace, Woken};

pub(super) struct Attempts<'a> {
    pub(super) lock: &'a Lock,
    pub(super) core: &'a Core,
    pub(super) terms: Terms,
    start: Moment,
    /// When the wait is over.
    pub(super) limit: Moment,
    pub(super) token: Token,
    ticket: u64,
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

enum Tried {
    Granted(Lease),
    Busy { free_at: Moment },
    Failed(Error),
}

impl<'a> Attempts<'a> {
    pub(super) fn new(lock: &'a Lock, terms: Terms) -> Result<Attempts<'a>, Error> {
        Ok(Attempts {
            lock,
            core: lock.keeper.core()?,
            terms,
            start: Moment::now(),
            limit: Moment::ZERO,
            token: Token::random()?,
            ticket: 0,
            stands: None,
            answered: false,
            there: false,
            trouble: None,
        })
    }

    /// Tries without waiting for the holder; only trouble with the store is tried again.
    pub(super) fn try_once(mut self) -> Result<Option<Lease>, Error> {
        let deadline = Deadline::at(self.first_answer_by());
        let mut pace = self.pace();
        loop {
            match self.once(Place::Try, deadline)? {
                Tried::Granted(lease) => return Ok(Some(lease)),
                Tried::Busy { .. } => return Ok(None),
                // Nobody listens there, or replicas were waited for; and the caller has said that it
                // does not wait.
                Tried::Failed(error)
                    if matches!(error.kind(), ErrorKind::Refused | ErrorKind::NotReplicated) =>
                {
                    return Err(error);
                }
                Tried::Failed(error) => {
                    let wake = pace.next(Moment::now(), Moment::NEVER).unwrap_or_else(Moment::now);
                    if wake.plus(LAST_CHANCE) >= deadline.moment() {
                        return Err(self.trouble.take().unwrap_or(error));
                    }
                    self.pause(wake, None)?;
                }
            }
        }
    }

    /// Tries until `wait` is over, the attempts are used up, or `check` says stop.
    pub(super) fn wait(
        mut self,
        wait: Option<Duration>,
        mut check: Option<Check<'_>>,
    ) -> Result<Lease, Error> {
        let mode = self.lock.options.wait_mode;
        let attempts = mode.backoff().attempts;
        let limit = wait.map_or(Moment::NEVER, |wait| self.start.plus(wait));
        self.limit = limit;
        let first_answer = self.first_answer_by();
        // Who asks only once stands in nobody's way afterwards, himself included.
        let once = wait == Some(Duration::ZERO) || attempts == Some(1);
        let (mut tries, mut may_deadlock) = (0u32, wait.is_none() && attempts.is_none());
        let (mut pace, mut round_trip) = (self.pace(), Duration::ZERO);
        let queues = !matches!(mode, WaitMode::Spin(_)) && !once;
        let mut in_line = queues && self.starts_in_line();
        loop {
            if in_line {
                let refuse_deadlock = may_deadlock;
                let bounds = Bounds { limit, tries, refuse_deadlock, check };
                return self.wait_in_line(bounds);
            }
            tries = tries.saturating_add(1);
            let sent = Moment::now();
            let by = self.answer_by(limit);
            let place = if once || queues { Place::Try } else { self.spin_place() };
            let free_at = match self.once(place, by)? {
                Tried::Granted(lease) => return Ok(lease),
                Tried::Busy { free_at } => {
                    if std::mem::take(&mut may_deadlock) {
                        self.refuse_deadlock()?;
                    }
                    in_line = queues;
                    round_trip = Moment::now().since(sent);
                    free_at
                }
                Tried::Failed(_) => Moment::NEVER,
            };
            if attempts.is_some_and(|most| tries >= most) {
                return Err(self.over(tries));
            }
            let now = Moment::now();
            // The last try has to be answered before the limit, so it starts a little earlier.
            let margin = LAST_CHANCE.min(wait.unwrap_or_default() / 10);
            let latest = limit.minus(margin.max(round_trip * 2));
            let wake = pace.next(now, free_at).unwrap_or(now).min(latest.max(now));
            if !self.knows_store() && wake.plus(LAST_CHANCE) >= first_answer {
                // Nobody is there; another try could not be answered in time.
                return Err(self.over(tries));
            }
            if now >= latest {
                self.pause(limit, check.as_mut())?;
                return Err(self.over(tries));
            }
            self.pause(wake, check.as_mut())?;
        }
    }

    /// One request for the lock, and whatever it leaves to do.
    fn once(&mut self, place: Place, deadline: Deadline) -> Result<Tried, Error> {
        // Asked each time: the client may have been closed since.
        self.core = self.lock.keeper.core()?;
        self.core.metrics.attempts.add_one();
        let cut_short = self.is_cut_short(deadline);
        let name = &*self.lock.name;
        let ttl = self.terms.first_ttl();
        let take = Request::Take { name, token: self.token, ttl, place, block: 1 };
        let outcome = self.core.ask(Lane::Caller, take, deadline);
        match outcome {
            Ok(answer) => self.answered(answer, place),
            Err(failure) => {
                let error = self.failed(failure)?;
                self.note(&error, cut_short, deadline);
                if error.is_retriable() { Ok(Tried::Failed(error)) } else { Err(error) }
            }
        }
    }

    fn answered(&mut self, answer: Answer, place: Place) -> Result<Tried, Error> {
        self.was_answered();
        match answer.reply {
            Reply::Granted { fence, .. } => {
                let identity = self.identity(self.token, fence);
                let id = self.lock.keeper.next_id();
                let now = Moment::now();
                let Some(grant) = Grant::taken(identity, self.terms, id, answer.sent, now) else {
                    // The same token again: it is granted anew, with validity of its own.
                    self.stands = Some(now.plus(self.terms.ttl));
                    let late = "the lock was granted too late to rely on it";
                    let error = Error::new(ErrorKind::Unavailable, late);
                    self.trouble = Some(error.clone());
                    return Ok(Tried::Failed(error));
                };
                self.stands = None;
                let grant = Arc::new(grant);
                let lease = Lease::new(Arc::clone(&self.lock.keeper), Arc::clone(&grant));
                if !self.core.keep(&grant) {
                    // Nobody else will give it, and dropping it would not insist.
                    let _ = lease.release();
                    return Err(Error::bare(ErrorKind::Closed));
                }
                self.core.metrics.granted.add_one();
                Ok(Tried::Granted(lease))
            }
            Reply::Busy { free_in, ticket, .. } => {
                self.core.metrics.busy.add_one();
                self.ticket = ticket;
                // Giving it once is enough: this was answered, so nothing is on its way.
                self.stands = (ticket != 0 && place != Place::Try).then_some(answer.sent);
                Ok(Tried::Busy { free_at: answer.sent.plus(free_in) })
            }
            reply => Err(Error::new(ErrorKind::Protocol, format!("{reply:?} to a take"))),
        }
    }

    /// A request that may have been carried out leaves a token that nobody counts as held. It is owed:
    /// given before the next try, and until that is confirmed, or a ttl has passed.
    fn failed(&mut self, failure: Failure) -> Result<Error, Error> {
        let Some(sent) = failure.sent else { return Ok(self.explain(failure)) };
        if failure.error.kind() != ErrorKind::NotReplicated {
            self.core.metrics.unknown.add_one();
        }
        let until = sent.plus(self.terms.ttl);
        self.core.owe(self.owed(until));
        self.token = Token::random()?;
        self.stands = None;
        Ok(self.explain(failure))
    }

    /// What a request that brought no answer means to the caller.
    pub(super) fn explain(&mut self, failure: Failure) -> Error {
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

    /// Remembers what is wrong with the store.
    pub(super) fn note(&mut self, error: &Error, cut_short: bool, deadline: Deadline) {
        // A try that had no time left says nothing about the store; the one before it, or the
        // answer before it, said more.
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

    /// By when a request must be answered that is sent now.
    pub(super) fn answer_by(&self, limit: Moment) -> Deadline {
        let first_answer = self.first_answer_by();
        let last = if self.knows_store() { limit.max(first_answer) } else { first_answer };
        Deadline::at(last.min(Moment::now().plus(self.lock.patience())))
    }

    /// Whether a request has less time than any request may take.
    pub(super) fn is_cut_short(&self, deadline: Deadline) -> bool {
        // The whole of it, but for what a call does before its first try.
        deadline.left() + Duration::from_millis(5) < self.lock.patience()
    }

    /// Whether others wait already, or can be told at once, so that a try before would be in vain.
    fn starts_in_line(&self) -> bool {
        self.core.store.listener().is_some_and(|listener| listener.are_open(&self.lock.name))
            || self.core.room.has(&self.lock.name)
    }

    /// Spinning leaves no place behind, except where a store has no other order for anybody.
    fn spin_place(&self) -> Place {
        match self.core.store.abilities().place_kept {
            Some(_) => Place::Join(self.ticket),
            None => Place::Try,
        }
    }

    fn owed(&self, until: Moment) -> Owed {
        Owed { identity: self.identity(self.token, 0), until }
    }

    pub(super) fn identity(&self, token: Token, fence: u64) -> Identity {
        Identity { name: Arc::clone(&self.lock.name), token, fence, ttl: self.terms.first_ttl() }
    }

    /// By when the first answer must have come: a wait that is shorter is a try, and a try gets
    /// an answer.
    pub(super) fn first_answer_by(&self) -> Moment {
        self.start.plus(self.lock.patience())
    }

    /// A store that has answered this client is there, and a wait outlasts its outage; one that
    /// never did may not exist.
    pub(super) fn knows_store(&self) -> bool {
        self.answered || self.there || self.core.answered.load(Ordering::Relaxed)
    }

    pub(super) fn pace(&self) -> Pace {
        let Abilities { longest_pause, place_kept, .. } = self.core.store.abilities();
        let backoff = self.lock.options.wait_mode.backoff();
        let backoff = place_kept.map_or(backoff, |kept| backoff.at_most(kept));
        Pace::new(backoff, longest_pause, Jitter::seeded(self.token.seed()))
    }

    fn pause(&self, wake: Moment, check: Option<&mut Check<'_>>) -> Result<(), Error> {
        match self.core.gate.pause(wake, check) {
            Woken::InTime => Ok(()),
            Woken::Closed => Err(Error::bare(ErrorKind::Closed)),
            Woken::Interrupted => {
                self.lock.keeper.core_even_closed()?;
                Err(Error::bare(ErrorKind::Interrupted))
            }
        }
    }

    pub(super) fn refuse_deadlock(&self) -> Result<(), Error> {
        if self.core.is_held_by(std::thread::current().id(), &self.lock.name) {
            return Err(Error::bare(ErrorKind::WouldDeadlock));
        }
        Ok(())
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
impl Drop for Attempts<'_> {
    fn drop(&mut self) {
        if let Some(until) = self.stands.filter(|_| self.lock.keeper.is_here()) {
            self.core.leave(self.owed(until));
        }
    }
}
