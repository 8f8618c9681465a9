//! Waiting in line: what one thread does until it has its turn.

use std::sync::Arc;
use std::time::Duration;

use super::attempt::{Attempts, LAST_CHANCE};
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::grant::{Grant, Legacy};
use crate::lease::Lease;
use crate::store::{Failure, Identity, Lane, Outcome, Place, Reply, Request, no_reply};
use crate::token::Token;
use crate::wait::{Ask, Check, Next, Owe, Turn, Validity, Waiter};

/// A lease that is given back sooner than this needs no claim. A part of the claim window where that
/// is short.
const CLAIM_AFTER: Duration = Duration::from_millis(50);

/// What ends a wait in line.
pub(super) struct Bounds<'c> {
    pub(super) limit: Moment,
    pub(super) tries: u32,
    pub(super) refuse_deadlock: bool,
    pub(super) check: Option<Check<'c>>,
}

/// A waiter, and how often its thread has asked.
struct Waiting<'a, 'b> {
    /// What it is about to ask: the line counts on hearing what came of it.
    asking: Option<Ask>,
    /// It may have been sent.
    is_sent: bool,
    attempts: &'b mut Attempts<'a>,
    waiter: Option<Waiter<'b>>,
}

impl Attempts<'_> {
    pub(super) fn wait_in_line(&mut self, mut bounds: Bounds<'_>) -> Result<Lease, Error> {
        if bounds.refuse_deadlock {
            self.refuse_deadlock()?;
        }
        let mut token = self.token;
        loop {
            match self.wait_for_turn(token, &mut bounds)? {
                Some(lease) => return Ok(lease),
                // It came too late to be relied on.
                None => token = Token::random()?,
            }
        }
    }

    fn wait_for_turn(
        &mut self,
        token: Token,
        bounds: &mut Bounds<'_>,
    ) -> Result<Option<Lease>, Error> {
        let keeper = Arc::clone(&self.lock.keeper);
        let core = keeper.core()?;
        let pace = self.pace();
        let waiter = core.room.join(&self.lock.name, token, self.terms, pace);
        let (ended, left) = {
            let mut waiting =
                Waiting { asking: None, is_sent: false, attempts: self, waiter: Some(waiter) };
            (waiting.until_turn(bounds), waiting.leave())
        };
        match (ended, left) {
            (Ok((turn, legacy)), _) => self.lease(turn, legacy),
            // The turn came first, and a time that is over ends only what has not begun.
            (Err(error), Some((turn, legacy))) if error.kind() == ErrorKind::Timeout => {
                self.lease(turn, legacy)?.map_or(Err(error), |lease| Ok(Some(lease)))
            }
            (Err(error), Some((turn, legacy))) => {
                // Dropping it passes it on.
                drop(self.lease(turn, legacy));
                Err(error)
            }
            (Err(error), None) => Err(error),
        }
    }

    /// The lease of a turn; none if nothing of its validity is left.
    fn lease(&mut self, turn: Turn, legacy: Option<Legacy>) -> Result<Option<Lease>, Error> {
        let keeper = Arc::clone(&self.lock.keeper);
        let core = keeper.core_even_closed()?;
        let (terms, id) = (self.terms, keeper.next_id());
        let Turn { token, fence, validity, followed } = turn;
        let identity = self.identity(token, fence);
        let now = Moment::now();
        let grant = match (validity, legacy) {
            (Validity::Whole { sent }, _) => Grant::taken(identity.clone(), terms, id, sent, now),
            (Validity::Window { .. }, _) if core.store.abilities().claims_first => {
                self.claimed(&identity, id)
            }
            (Validity::Window { since, span }, _) => {
                // Who is followed makes use of the whole of it.
                let claim = if followed { now } else { now.plus(CLAIM_AFTER.min(span / 4)) };
                Grant::handed(identity.clone(), terms, id, (since, span), claim, now)
            }
            (Validity::Passed, Some(legacy)) if legacy.remaining(now) * 3 >= terms.ttl * 2 => {
                Grant::succeeding(identity.clone(), terms, id, legacy, now)
            }
            (Validity::Passed, Some(legacy)) => self.extended(&identity, id, legacy),
            (Validity::Passed, None) => None,
        };
        let Some(grant) = grant else {
            // Whoever comes next takes it up from here.
            let owing = core.room.lost(&identity, Moment::now());
            core.owe_all(owing);
            let until = now.plus(terms.ttl);
            core.owe_all([(identity.name, Owe { token, ttl: identity.ttl, until })]);
            return Ok(None);
        };
        let grant = Arc::new(grant);
        let lease = Lease::new(Arc::clone(&keeper), Arc::clone(&grant));
        if !core.keep(&grant) {
            // Nobody else will give it, and dropping it would not insist.
            let _ = lease.release();
            return Err(Error::bare(ErrorKind::Closed));
        }
        core.metrics.granted.add_one();
        Ok(Some(lease))
    }

    /// A grant that a message told of, and of which that is not enough. Asked again with the same
    /// token, it is granted for the whole ttl under the same fence. None if it cannot be relied on.
    fn claimed(&mut self, identity: &Identity, id: u64) -> Option<Grant> {
        let (name, token, ttl) = (&*identity.name, identity.token, identity.ttl);
        let take = Request::Take { name, token, ttl, place: Place::Try, block: 1 };
        let deadline = self.answer_by(self.limit);
        let outcome = self.core.ask(Lane::Caller, take, deadline);
        match outcome {
            Ok(answer) => match answer.reply {
                Reply::Granted { fence, .. } if fence == identity.fence => {
                    let now = Moment::now();
                    Grant::taken(identity.clone(), self.terms, id, answer.sent, now)
                }
                // It was lost meanwhile; whatever there is now under this token is given.
                _ => None,
            },
            Err(failure) => {
                let error = self.explain(failure);
                self.note(&error, false, deadline);
                None
            }
        }
    }

    /// A turn that begins with little of its grant's validity left is extended before it is relied
    /// on. None if the grant is lost; what is left of it, if the store did not answer.
    fn extended(&mut self, identity: &Identity, id: u64, legacy: Legacy) -> Option<Grant> {
        let (terms, now) = (self.terms, Moment::now());
        let Identity { name, token, fence, ttl } = identity;
        let request = Request::Extend {
            name,
            token: *token,
            fence: *fence,
            ttl: *ttl,
            reach: legacy.reach(now),
        };
        let deadline = Deadline::after(self.lock.keeper.io_timeout().min(legacy.remaining(now)));
        let lane = Lane::Give(deadline.left());
        let outcome = self.core.ask(lane, request, deadline);
        match outcome {
            Ok(answer) if answer.reply == Reply::Extended => {
                let grant = Grant::taken(identity.clone(), terms, id, answer.sent, Moment::now());
                grant.map(|grant| grant.keep_as_long(&legacy))
            }
            Ok(_) => None,
            Err(_) => Grant::succeeding(identity.clone(), terms, id, legacy, Moment::now()),
        }
    }

    /// Asks, for the place in line.
    fn ask(&mut self, ask: &Ask, deadline: Deadline) -> Outcome {
        self.core.metrics.attempts.add_one();
        let Ask { token, ttl, ticket, block, give } = *ask;
        let name = &self.lock.name;
        let take = Request::Take { name, token, ttl, place: Place::Join(ticket), block };
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
}

impl Waiting<'_, '_> {
    fn until_turn(&mut self, bounds: &mut Bounds<'_>) -> Result<(Turn, Option<Legacy>), Error> {
        loop {
            let now = Moment::now();
            let (next, legacy) = self.waiter()?.next(now);
            let wake = match next {
                Next::Turn(turn) => return Ok((turn, legacy)),
                Next::Ask(ask) => {
                    (self.asking, self.is_sent) = (Some(ask), false);
                    None
                }
                Next::Look(token) => {
                    self.attempts.lock.keeper.core()?;
                    self.look_up(bounds, now)?;
                    self.look(token, bounds);
                    continue;
                }
                Next::Sleep(wake) => Some(wake),
            };
            self.attempts.lock.keeper.core()?;
            // A wait asks once at least; but however often it has to, it ends in time.
            if wake.is_some() || bounds.tries > 0 {
                self.look_up(bounds, now)?;
            }
            let Some(wake) = wake else {
                self.ask(bounds)?;
                continue;
            };
            let until = bounds.check.as_ref().map_or(wake, |check| wake.min(check.due()));
            let until = until.min(bounds.limit);
            let core = self.attempts.core;
            self.waiter()?.sleep(until, core.store.listener(), self.open_by(bounds));
        }
    }

    fn waiter(&self) -> Result<&Waiter<'_>, Error> {
        self.waiter.as_ref().ok_or_else(|| Error::bare(ErrorKind::Closed))
    }

    /// An error if the wait ends here, by its limit or by the caller's check.
    fn look_up(&mut self, bounds: &mut Bounds<'_>, now: Moment) -> Result<(), Error> {
        if now >= bounds.limit {
            return Err(self.attempts.over(bounds.tries));
        }
        let (Some(check), Some(waiter)) = (&mut bounds.check, &self.waiter) else { return Ok(()) };
        if check.due() <= now {
            // It takes as long as it likes.
            waiter.step_aside();
        }
        if check.says_stop(now) {
            self.attempts.lock.keeper.core_even_closed()?;
            return Err(Error::bare(ErrorKind::Interrupted));
        }
        // It may have closed the client, or forked.
        self.attempts.lock.keeper.core()?;
        Ok(())
    }

    /// Looks at the lock. What fails is made up for by the next look.
    fn look(&mut self, token: Token, bounds: &Bounds<'_>) {
        let attempts = &mut *self.attempts;
        let (lock, core, since) = (attempts.lock, attempts.core, Moment::now());
        let by = attempts.answer_by(bounds.limit);
        match core.free_in(&lock.name, by) {
            Ok(free_in) => {
                attempts.was_answered();
                core.room.seen(&lock.name, token, since, free_in);
            }
            Err(error) => attempts.note(&error, attempts.is_cut_short(by), by),
        }
    }

    fn ask(&mut self, bounds: &mut Bounds<'_>) -> Result<(), Error> {
        let (Some(waiter), Some(ask)) = (&self.waiter, self.asking) else { return Ok(()) };
        let core = self.attempts.core;
        if let Some(listener) = core.store.listener() {
            waiter.open(listener, self.open_by(bounds));
            if self.attempts.lock.options.wait_mode == super::WaitMode::Queue
                && !listener.are_open(&self.attempts.lock.name)
                && let Some(error) = core.room.refusal(&self.attempts.lock.name)
            {
                return Err(error);
            }
        }
        let attempts = &mut *self.attempts;
        bounds.tries = bounds.tries.saturating_add(1);
        let by = attempts.answer_by(bounds.limit);
        let cut_short = attempts.is_cut_short(by);
        self.is_sent = true;
        let outcome = attempts.ask(&ask, by);
        self.asking = None;
        let now = Moment::now();
        let owing = core.room.answered(&attempts.lock.name, &ask, &outcome, now);
        core.owe_all(owing);
        match outcome {
            Ok(answer) => {
                attempts.was_answered();
                if matches!(answer.reply, Reply::Busy { .. }) {
                    core.metrics.busy.add_one();
                }
                Ok(())
            }
            Err(failure) => {
                if failure.sent.is_some() && failure.error.kind() != ErrorKind::NotReplicated {
                    core.metrics.unknown.add_one();
                }
                let error = attempts.explain(failure);
                attempts.note(&error, cut_short, by);
                let nobody_there =
                    !attempts.knows_store() && now.plus(LAST_CHANCE) >= attempts.first_answer_by();
                if error.is_retriable() && !nobody_there { Ok(()) } else { Err(error) }
            }
        }
    }

    /// The wake-up connection is made in the time that a request has.
    fn open_by(&self, bounds: &Bounds<'_>) -> Deadline {
        self.attempts.answer_by(bounds.limit)
    }

    fn leave(&mut self) -> Option<(Turn, Option<Legacy>)> {
        let waiter = self.waiter.take()?;
        if !self.attempts.lock.keeper.is_here() {
            // A child that the caller's check has forked: the mutexes may be held by threads that it
            // does not have.
            return None;
        }
        if let Some(ask) = self.asking.take() {
            let core = self.attempts.core;
            let error = Error::new(ErrorKind::Unknown, "the wait ended before the answer");
            let now = Moment::now();
            // After a panic, nobody knows.
            let outcome = Err(match self.is_sent {
                true => Failure::unknown(error, now),
                false => Failure::not_done(error),
            });
            core.owe_all(core.room.answered(&self.attempts.lock.name, &ask, &outcome, now));
            core.owe_all(ask.give.map(|give| (Arc::clone(&self.attempts.lock.name), give)));
        }
        let (turn, owing) = waiter.leave(Moment::now());
        self.attempts.core.owe_all(owing);
        turn
    }
}

/// A caller's check may panic.
impl Drop for Waiting<'_, '_> {
    fn drop(&mut self) {
        if let Some((turn, legacy)) = self.leave() {
            drop(self.attempts.lease(turn, legacy));
        }
    }
}
