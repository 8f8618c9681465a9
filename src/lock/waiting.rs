//! The one loop of a call that takes a lock: it asks, looks and sleeps until it has a lease, or its
//! time is over. What it does next is said by its process's queue for the name while it is in it, and
//! else by its own pace.

use std::time::Duration;

use super::attempt::{Attempt, LAST_CHANCE};
use super::{Lock, WaitMode};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::grant::{Legacy, Terms};
use crate::keeper::Core;
use crate::lease::Lease;
use crate::store::{Answer, Failure, Place, Reply};
use crate::token::Token;
use crate::wait::{Ask, Check, Next, Pace, Turn, Waiter};

/// What a call does where the lock is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Policy {
    /// It says so. Only trouble with the store is tried again.
    Return,
    /// It asks again and again.
    Spin,
    /// It joins its process's queue for the name.
    Queue,
}

pub(super) struct Waiting<'a, 'c> {
    attempt: Attempt<'a>,
    policy: Policy,
    /// The wait that the caller set; zero where there is no limit.
    span: Duration,
    check: Option<Check<'c>>,
    may_deadlock: bool,
    /// Spinning leaves no place behind, except where a store has no other order for anybody. A call
    /// that asks only once stands in nobody's way afterwards, itself included.
    leaves_place: bool,
    most_tries: Option<u32>,
    tries: u32,
    /// Made when it is first asked: most calls do not wait.
    pace: Option<Pace>,
    /// When a call that is not in the queue asks next.
    wake: Moment,
    waiter: Option<Waiter<'a>>,
    /// What it is about to ask for the queue, which counts on hearing what came of it.
    asking: Option<Ask>,
    /// It may have been sent.
    is_sent: bool,
    /// How long the last answer took.
    round_trip: Duration,
}

/// Waits for a lock: for ever, where there is no limit.
pub(super) fn acquire(
    lock: &Lock,
    terms: Terms,
    wait: Option<Duration>,
    check: Option<Check<'_>>,
) -> Result<Lease, Error> {
    let mode = lock.options.wait_mode;
    let most_tries = mode.backoff().attempts;
    let once = wait == Some(Duration::ZERO) || most_tries == Some(1);
    let spins = once || matches!(mode, WaitMode::Spin(_));
    let policy = if spins { Policy::Spin } else { Policy::Queue };
    let mut waiting = Waiting::new(lock, begin(lock)?, terms, policy);
    let start = waiting.attempt.start;
    waiting.attempt.limit = wait.map_or(Moment::NEVER, |wait| start.plus(wait));
    waiting.span = wait.unwrap_or_default();
    waiting.check = check;
    waiting.may_deadlock = wait.is_none() && most_tries.is_none();
    waiting.leaves_place =
        spins && !once && waiting.attempt.core.store.abilities().place_kept.is_some();
    waiting.most_tries = most_tries;
    waiting.run()?.ok_or_else(|| Error::bare(ErrorKind::Timeout))
}

/// Tries without waiting for a holder; none if there is one.
pub(super) fn try_acquire(lock: &Lock, terms: Terms) -> Result<Option<Lease>, Error> {
    Waiting::new(lock, begin(lock)?, terms, Policy::Return).run()
}

/// What may fail before there is anything to move about.
fn begin(lock: &Lock) -> Result<(&Core, Token), Error> {
    Ok((lock.keeper.core()?, Token::random()?))
}

impl<'a> Waiting<'a, '_> {
    fn new(lock: &'a Lock, begun: (&'a Core, Token), terms: Terms, policy: Policy) -> Self {
        Waiting {
            pace: None,
            attempt: Attempt::new(lock, begun, terms),
            policy,
            span: Duration::ZERO,
            check: None,
            may_deadlock: false,
            leaves_place: false,
            most_tries: None,
            tries: 0,
            wake: Moment::ZERO,
            waiter: None,
            asking: None,
            is_sent: false,
            round_trip: Duration::ZERO,
        }
    }

    fn run(&mut self) -> Result<Option<Lease>, Error> {
        let ended = self.until_lease();
        let (Err(error), Some((turn, legacy))) = (&ended, self.leave()) else { return ended };
        let lease = self.attempt.turn(turn, legacy);
        match error.kind() {
            // The turn came first; a time limit ends only a wait without a turn.
            ErrorKind::Timeout => lease?.map_or(ended, |lease| Ok(Some(lease))),
            // Dropping it passes it on.
            _ => ended,
        }
    }

    fn until_lease(&mut self) -> Result<Option<Lease>, Error> {
        if self.policy == Policy::Queue && self.goes_straight_to_the_queue() {
            self.join()?;
        }
        loop {
            let now = Moment::now();
            let (next, legacy) = match &self.waiter {
                Some(waiter) => waiter.next(now),
                None => (self.next(now), None),
            };
            if let Next::Turn(turn) = next {
                self.leave();
                if let Some(lease) = self.attempt.turn(turn, legacy)? {
                    return Ok(Some(lease));
                }
                // It came too late to be relied on.
                self.attempt.token = Token::random()?;
                self.join()?;
                continue;
            }
            if let (Next::Ask(ask), Some(_)) = (&next, &self.waiter) {
                (self.asking, self.is_sent) = (Some(*ask), false);
            }
            // Asked each time: the client may have been closed since.
            self.attempt.core = self.attempt.lock.keeper.core()?;
            // A wait asks once at least, and ends in time however often it has to ask.
            if self.tries > 0 || !matches!(next, Next::Ask(_)) {
                self.look_up(now)?;
            }
            match next {
                Next::Ask(ask) => {
                    if let Some(ended) = self.ask(&ask)? {
                        return Ok(ended);
                    }
                }
                Next::Look(token) => self.look(token),
                Next::Sleep(wake) => self.sleep(wake),
                Next::Turn(_) => {}
            }
        }
    }

    /// What a call does that is not in the queue.
    fn next(&self, now: Moment) -> Next {
        if now < self.wake {
            return Next::Sleep(self.wake);
        }
        let Attempt { token, terms, ticket, .. } = self.attempt;
        Next::Ask(Ask { token, ttl: terms.first_ttl(), ticket, block: 1, give: None })
    }

    /// Whether others wait already, or can be told at once, so that a try before would be in vain.
    fn goes_straight_to_the_queue(&self) -> bool {
        let Attempt { lock, core, .. } = self.attempt;
        core.store.listener().is_some_and(|listener| listener.are_open(&lock.name))
            || core.room.has(&lock.name)
    }

    fn join(&mut self) -> Result<(), Error> {
        self.refuse_deadlock()?;
        let Attempt { lock, core, terms, token, .. } = self.attempt;
        self.waiter = Some(core.room.join(&lock.name, token, terms, self.attempt.pace()));
        Ok(())
    }

    fn refuse_deadlock(&mut self) -> Result<(), Error> {
        let Attempt { lock, core, .. } = self.attempt;
        let asks = std::mem::take(&mut self.may_deadlock);
        if asks && core.is_held_by(std::thread::current().id(), &lock.name) {
            return Err(Error::bare(ErrorKind::WouldDeadlock));
        }
        Ok(())
    }

    /// An error if the wait ends here, by its limit or by the caller's check.
    fn look_up(&mut self, now: Moment) -> Result<(), Error> {
        if let Some(check) = &mut self.check {
            if check.due() <= now
                && let Some(waiter) = &self.waiter
            {
                // The check may take any time.
                waiter.step_aside();
            }
            let keeper = &self.attempt.lock.keeper;
            if check.says_stop(now) {
                keeper.core_even_closed()?;
                return Err(Error::bare(ErrorKind::Interrupted));
            }
            // It may have closed the client, or forked.
            keeper.core()?;
        }
        if now >= self.attempt.limit { Err(self.attempt.over(self.tries)) } else { Ok(()) }
    }

    fn sleep(&self, wake: Moment) {
        let until = self.check.as_ref().map_or(wake, |check| wake.min(check.due()));
        let until = until.min(self.attempt.limit);
        let core = self.attempt.core;
        match &self.waiter {
            Some(waiter) => {
                let open_by = self.attempt.answer_by(Moment::now());
                waiter.sleep(until, core.store.listener(), open_by);
            }
            None => core.room.pause(until),
        }
    }

    /// Looks at the lock. The next look makes up for one that fails.
    fn look(&mut self, token: Token) {
        let attempt = &mut self.attempt;
        let since = Moment::now();
        let by = attempt.answer_by(since);
        match attempt.core.free_in(&attempt.lock.name, by) {
            Ok(free_in) => {
                attempt.was_answered();
                attempt.core.room.seen(&attempt.lock.name, token, since, free_in);
            }
            Err(error) => attempt.note(&error, by.moment().since(since), by),
        }
    }

    /// One request for the lock. Some: how the call ends.
    fn ask(&mut self, ask: &Ask) -> Result<Option<Option<Lease>>, Error> {
        self.open()?;
        self.tries = self.tries.saturating_add(1);
        let now = Moment::now();
        let by = self.attempt.answer_by(now);
        let place = match self.waiter.is_some() || self.leaves_place {
            true => Place::Join(ask.ticket),
            false => Place::Try,
        };
        self.is_sent = true;
        let outcome = self.attempt.ask(ask, place, by);
        let core = self.attempt.core;
        if self.asking.take().is_some() {
            let name = &self.attempt.lock.name;
            core.owe_all(core.room.answered(name, ask, &outcome, Moment::now()));
        }
        match outcome {
            Ok(answer) => {
                self.attempt.was_answered();
                if matches!(answer.reply, Reply::Busy { .. }) {
                    core.metrics.busy.add_one();
                }
                if self.waiter.is_some() { Ok(None) } else { self.answered(answer, place) }
            }
            Err(failure) => {
                if self.waiter.is_none()
                    && let Some(sent) = failure.sent
                {
                    self.attempt.leave_token(sent)?;
                }
                let error = self.attempt.failed(failure, by.moment().since(now), by);
                self.failed(error).map(|()| None)
            }
        }
    }

    /// The connection on which waiters are told is made in the time that a request has.
    fn open(&self) -> Result<(), Error> {
        let Attempt { lock, core, .. } = self.attempt;
        if let (Some(waiter), Some(listener)) = (&self.waiter, core.store.listener()) {
            waiter.open(listener, self.attempt.answer_by(Moment::now()));
            if lock.options.wait_mode == WaitMode::Queue
                && !listener.are_open(&lock.name)
                && let Some(error) = core.room.refusal(&lock.name)
            {
                return Err(error);
            }
        }
        Ok(())
    }

    fn answered(&mut self, answer: Answer, place: Place) -> Result<Option<Option<Lease>>, Error> {
        match answer.reply {
            Reply::Granted { fence, .. } => match self.attempt.granted(answer, fence)? {
                Some(lease) => Ok(Some(Some(lease))),
                None => self.pause(Moment::NEVER).map(|()| None),
            },
            Reply::Busy { free_in, ticket, .. } => {
                self.attempt.busy(ticket, place, answer.sent);
                self.round_trip = Moment::now().since(answer.sent);
                if self.policy == Policy::Return {
                    return Ok(Some(None));
                }
                self.refuse_deadlock()?;
                if self.policy == Policy::Queue {
                    self.join()?;
                } else {
                    self.pause(answer.sent.plus(free_in))?;
                }
                Ok(None)
            }
            reply => Err(Error::new(ErrorKind::Protocol, format!("{reply:?} to a take"))),
        }
    }

    fn failed(&mut self, error: Error) -> Result<(), Error> {
        // Nobody listens there, or replicas were waited for; and the caller does not wait.
        let returns = self.policy == Policy::Return
            && matches!(error.kind(), ErrorKind::Refused | ErrorKind::NotReplicated);
        if !error.is_retriable() || returns {
            return Err(error);
        }
        if self.waiter.is_none() {
            return self.pause(Moment::NEVER);
        }
        let nobody_there = !self.attempt.knows_store() && self.attempt.is_too_late(Moment::now());
        if nobody_there { Err(error) } else { Ok(()) }
    }

    /// Says when a call that is not in the queue asks again; the error, if it does not.
    fn pause(&mut self, free_at: Moment) -> Result<(), Error> {
        let now = Moment::now();
        let pace = self.pace.get_or_insert_with(|| self.attempt.pace());
        let mut wake = pace.next(now, free_at).unwrap_or(now);
        if self.policy == Policy::Return {
            if self.attempt.is_too_late(wake) {
                return Err(self.attempt.over(self.tries));
            }
            self.wake = wake;
            return Ok(());
        }
        // The last try has to be answered before the limit, so it starts a little earlier.
        let margin = LAST_CHANCE.min(self.span / 10).max(self.round_trip * 2);
        let latest = self.attempt.limit.minus(margin);
        wake = wake.min(latest.max(now));
        let nobody_there = !self.attempt.knows_store() && self.attempt.is_too_late(wake);
        if nobody_there || self.most_tries.is_some_and(|most| self.tries >= most) {
            return Err(self.attempt.over(self.tries));
        }
        self.wake = if now >= latest { self.attempt.limit } else { wake };
        Ok(())
    }

    /// Leaves the queue: with the turn, if one was given and not fetched.
    fn leave(&mut self) -> Option<(Turn, Option<Legacy>)> {
        let waiter = self.waiter.take()?;
        let Attempt { lock, core, .. } = self.attempt;
        if !lock.keeper.is_here() {
            // A child that the caller's check has forked: the mutexes may be held by threads that it
            // does not have.
            return None;
        }
        if let Some(ask) = self.asking.take() {
            let (now, error) = (Moment::now(), "the wait ended before the answer");
            // After a panic, nobody knows.
            let sent = self.is_sent.then_some(now);
            let outcome = Err(Failure { error: Error::new(ErrorKind::Unknown, error), sent });
            core.owe_all(core.room.answered(&lock.name, &ask, &outcome, now));
            core.owe_all(ask.give.map(|give| (lock.name.clone(), give)));
        }
        let (turn, owing) = waiter.leave(Moment::now());
        core.owe_all(owing);
        turn
    }
}

/// A caller's check may panic.
impl Drop for Waiting<'_, '_> {
    fn drop(&mut self) {
        if let Some((turn, legacy)) = self.leave() {
            drop(self.attempt.turn(turn, legacy));
        }
    }
}
