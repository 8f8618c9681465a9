//! The one loop of a call that takes a lock: it asks, looks and sleeps until it has a lease, or its
//! time is over. While it is `Queued`, its process's queue for the name says what it does next;
//! while it is `Trying`, its own pace.

use std::sync::Arc;
use std::time::Duration;

use super::call::{AcquireCall, LAST_CHANCE, holder_look_due};
use super::state::{AcquirePhase, AcquireState, Asking, Policy, Queued};
use super::stuck::{OWN_AFTER, OWN_REFUSED_AFTER, describe_own_lease, log_own_lease};
use super::{Lock, WaitMode};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::grant::{StartingValidity, Terms};
use crate::jitter::Jitter;
use crate::keeper::{Core, held_in_client};
use crate::lease::Lease;
use crate::metrics::CallEnd;
use crate::store::{Abilities, Answer, Failure, Lane, Place, Reply, Request};
use crate::token::Token;
use crate::wait::crew::ParkedSleep;
use crate::wait::{Ask, Check, Next, Pace, Sleep, Turn};

/// How a call goes on after a step.
pub(super) enum AcquireStep {
    Granted(Lease),
    /// With the next step, at once.
    GoOn,
    SleepUntil(Moment),
}

/// Waits for a lock: for ever, where there is no limit.
pub(super) fn acquire(
    lock: &Lock,
    terms: Terms,
    wait: Option<Duration>,
    check: Option<Check<'_>>,
) -> Result<Lease, Error> {
    let keeper = lock.keepers.here()?;
    let token = Token::of(keeper.client())?;
    let mut state = AcquireState::waits(lock, token, terms, wait);
    state.own.due = state.start.plus(OWN_AFTER);
    state.own.may_deadlock = wait.is_none() && lock.wait_mode.backoff().attempts.is_none();
    AcquireCall::new(lock, keeper, &mut state, check)?.run()
}

/// Tries without waiting for a holder; `None` if there is one.
pub(super) fn try_acquire(lock: &Lock, terms: Terms) -> Result<Option<Lease>, Error> {
    let keeper = lock.keepers.here()?;
    let token = Token::of(keeper.client())?;
    let mut state = AcquireState::new(lock, token, terms, Policy::Return);
    match AcquireCall::new(lock, keeper, &mut state, None)?.run() {
        Err(error) if error.kind() == ErrorKind::Timeout => Ok(None),
        tried => tried.map(Some),
    }
}

impl AcquireState {
    /// The state of a call that waits; without end, if `wait` is `None`.
    pub(super) fn waits(
        lock: &Lock,
        token: Token,
        terms: Terms,
        wait: Option<Duration>,
    ) -> AcquireState {
        let mode = lock.wait_mode;
        let once = wait == Some(Duration::ZERO) || mode.backoff().attempts == Some(1);
        let spins = once || matches!(mode, WaitMode::Spin(_));
        let policy = if spins { Policy::Spin { keeps_place: !once } } else { Policy::Queue };
        let mut state = AcquireState::new(lock, token, terms, policy);
        state.limit = wait.map_or(Moment::NEVER, |wait| state.start.plus(wait));
        state.holder.due = holder_look_due(state.start, state.limit);
        state
    }
}

impl AcquireCall<'_, '_> {
    fn run(mut self) -> Result<Lease, Error> {
        let ended = self.until_lease();
        self.over_with(ended)
    }

    /// Counts how the call ended. A turn that came just before makes it a success.
    pub(super) fn over_with(&mut self, ended: Result<Lease, Error>) -> Result<Lease, Error> {
        let ended = self.with_turn(ended);
        let (end, now) = match &ended {
            Ok(_) => (CallEnd::Granted, self.state.granted_at),
            Err(error) => {
                let only_tries = self.state.policy == Policy::Return;
                (CallEnd::without_lease(error.kind(), only_tries), Moment::now())
            }
        };
        self.figures().called(end, self.state.start, now);
        self.state.span.ended(end.word());
        ended
    }

    /// A call that ends without a lease may have been given a turn just before.
    fn with_turn(&mut self, ended: Result<Lease, Error>) -> Result<Lease, Error> {
        if let (Err(error), Some((turn, legacy))) = (&ended, self.leave()) {
            let lease = self.turn(turn, legacy);
            // The turn came first, and a time limit ends only a wait without a turn. After any
            // other error the lease is dropped, which passes the turn on.
            if error.kind() == ErrorKind::Timeout
                && let Some(lease) = lease?
            {
                return Ok(lease);
            }
        }
        ended
    }

    fn until_lease(&mut self) -> Result<Lease, Error> {
        if self.state.policy == Policy::Queue && self.goes_straight_to_the_queue() {
            self.join()?;
        }
        loop {
            match self.step()? {
                AcquireStep::Granted(lease) => return Ok(lease),
                AcquireStep::GoOn => {}
                AcquireStep::SleepUntil(wake) => drop(self.sleep(wake)),
            }
        }
    }

    pub(super) fn step(&mut self) -> Result<AcquireStep, Error> {
        let now = self.now();
        let (next, legacy) = self.next(now);
        if !matches!(next, Next::Turn(_)) {
            // Asked each time: the client may have been closed since.
            self.keeper.core()?;
            // A wait asks once at least, and ends in time however often it has to ask.
            if self.state.tries > 0 || !matches!(next, Next::Ask(_)) {
                self.check_end(now)?;
            }
        }
        let lease = match next {
            Next::Turn(turn) => {
                self.leave();
                let lease = self.turn(turn, legacy)?;
                if lease.is_none() {
                    // It came too late to be relied on.
                    self.state.token = Token::of(self.core.client)?;
                    self.join()?;
                }
                lease
            }
            Next::Ask(ask) => self.ask(&ask)?,
            Next::Look(token) => {
                self.look(token);
                None
            }
            Next::Sleep(_) if now >= self.state.holder.due => {
                self.look_who();
                None
            }
            Next::Sleep(wake) => return Ok(AcquireStep::SleepUntil(wake)),
        };
        Ok(lease.map_or(AcquireStep::GoOn, AcquireStep::Granted))
    }

    /// What the call does next, as its pace says or the queue. What the queue has it ask is under way
    /// from here on.
    fn next(&mut self, now: Moment) -> (Next, Option<StartingValidity>) {
        let (token, ttl) = (self.state.token, self.state.terms.first_ttl());
        let queued = match &mut self.state.phase {
            AcquirePhase::Trying(trying) if now < trying.wake => {
                return (Next::Sleep(trying.wake), None);
            }
            AcquirePhase::Trying(trying) => {
                let ticket = trying.ticket;
                return (Next::Ask(Ask { token, ttl, ticket, block: 1, give: None }), None);
            }
            AcquirePhase::Queued(queued) => queued,
        };
        let (next, legacy) = queued.waiter.next(&self.core.room, now);
        if let Next::Ask(ask) = next {
            queued.asking = Some(Asking { ask, is_sent: false });
            self.core.owe_all(ask.give.map(|give| (Arc::clone(&self.lock.name), give)));
        }
        (next, legacy)
    }

    /// The time, without reading the clock for a call that has done nothing yet.
    fn now(&self) -> Moment {
        if self.state.tries == 0 && !self.state.phase.is_queued() {
            self.state.start
        } else {
            Moment::now()
        }
    }

    /// Whether a try before the queue would be useless: threads of this process wait for the name
    /// already, or the wake-up connection is open, so that the first request can join the store's
    /// queue.
    fn goes_straight_to_the_queue(&self) -> bool {
        let (name, listener) = (&self.lock.name, self.core.store.listener());
        listener.is_some_and(|listener| listener.are_open(name)) || self.core.room.has(name)
    }

    pub(super) fn join(&mut self) -> Result<(), Error> {
        self.refuse_deadlock()?;
        self.core.note_use();
        let AcquireState { token, terms, parked, .. } = *self.state;
        let pace = pace(self.lock, self.core, token);
        let waiter = self.core.room.join(&self.lock.name, token, terms, pace, parked);
        self.state.phase = AcquirePhase::Queued(Queued { waiter, asking: None });
        Ok(())
    }

    fn refuse_deadlock(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.state.own.may_deadlock) {
            return Ok(());
        }
        // A lease of another client may still be released by the caller's check or by another
        // thread. Such a wait goes on for a while.
        let held = held_in_client(self.core, std::thread::current().id(), &self.lock.name);
        held.map_or(Ok(()), |held| {
            Err(Error::new(ErrorKind::WouldDeadlock, describe_own_lease(&held)))
        })
    }

    /// A thread that waits for itself: first the log is told, and then a wait without limit is refused.
    fn look_own(&mut self, now: Moment) -> Result<(), Error> {
        if now < self.state.own.due {
            return Ok(());
        }
        let refused_at = self.state.start.plus(OWN_REFUSED_AFTER);
        let is_refused = self.state.own.due >= refused_at;
        let has_limit =
            self.state.limit < Moment::NEVER || self.lock.wait_mode.backoff().attempts.is_some();
        self.state.own.due = if is_refused || has_limit { Moment::NEVER } else { refused_at };
        match self.own() {
            Some(held) if is_refused => {
                return Err(Error::new(ErrorKind::WouldDeadlock, describe_own_lease(&held)));
            }
            Some(held) => log_own_lease(self.lock, &held, now),
            None => {}
        }
        Ok(())
    }

    /// An error if the wait ends here, by its limit or by the caller's check.
    fn check_end(&mut self, now: Moment) -> Result<(), Error> {
        self.state.store.stuck.log(now, self.state.start, self.lock, self.core);
        self.look_own(now)?;
        if let Some(check) = &mut self.check {
            if check.due() <= now && self.state.phase.is_queued() {
                // The check may take any time.
                self.core.room.step_aside();
            }
            let keeper = self.keeper;
            if check.says_stop(now) {
                keeper.core_even_closed()?;
                return Err(Error::bare(ErrorKind::Interrupted));
            }
            // It may have closed the client, or forked.
            keeper.core()?;
        }
        if now >= self.state.limit { Err(self.take_end_error()) } else { Ok(()) }
    }

    /// Sleeps until a moment, or until it is woken; a call that is parked is told how to sleep.
    pub(super) fn sleep(&self, wake: Moment) -> Option<ParkedSleep> {
        let until = self.check.as_ref().map_or(wake, |check| wake.min(check.due()));
        let AcquireState { limit, holder, own, .. } = &*self.state;
        let until = until.min(*limit).min(holder.due).min(own.due);
        let room = &self.core.room;
        let Sleep { until, needs_listener } = match &self.state.phase {
            AcquirePhase::Queued(queued) => {
                let open_by = self.answer_by(Moment::now());
                queued.waiter.sleep(room, until, self.core.store.listener(), open_by)?
            }
            AcquirePhase::Trying(_) if self.state.parked.is_some() => {
                Sleep { until, needs_listener: false }
            }
            AcquirePhase::Trying(_) => {
                room.pause(until);
                return None;
            }
        };
        let (ends, is_stuck) = (self.ends(), self.state.store.trouble.is_some());
        Some(ParkedSleep { until, ends, needs_listener, is_stuck })
    }

    /// Looks at the lock. The next look makes up for one that fails.
    fn look(&mut self, token: Token) {
        let (name, since) = (&self.lock.name, Moment::now());
        let by = self.answer_by(since);
        match self.core.with_store(|store| store.free_in(name, by)) {
            Ok(free_in) => {
                self.was_answered(true);
                self.core.room.seen(name, token, since, free_in);
            }
            Err(error) => {
                self.state.store.stuck.failed(&error, true, since);
                self.note(&error, since, by);
            }
        }
    }

    /// One request for the lock.
    fn ask(&mut self, ask: &Ask) -> Result<Option<Lease>, Error> {
        self.open();
        let (name, core, now) = (&self.lock.name, self.core, self.now());
        self.state.tries = self.state.tries.saturating_add(1);
        let by = self.answer_by(now);
        let place = if self.joins() { Place::Join(ask.ticket) } else { Place::Try };
        let Ask { token, ttl, block, .. } = *ask;
        if let Some(asking) = self.asking() {
            asking.is_sent = true;
        }
        self.figures().attempts.add_one();
        let take = Request::Take { name, token, ttl, place, block };
        let outcome = core.ask(self.lock.group, Lane::Caller, take, by);
        let is_queued = self.state.phase.is_queued();
        if self.take_asking().is_some() {
            core.owe_all(core.room.answered(name, ask, &outcome, Moment::now()));
        }
        match outcome {
            Ok(answer) => {
                self.was_answered(false);
                if matches!(answer.reply, Reply::Busy { .. }) {
                    self.figures().busy.add_one();
                }
                if is_queued { Ok(None) } else { self.answered(answer, place) }
            }
            Err(failure) => {
                if let (false, Some(sent)) = (is_queued, failure.sent) {
                    self.leave_token(sent)?;
                }
                let error = self.failed(failure, now, by);
                self.goes_on_after(error).map(|()| None)
            }
        }
    }

    /// Opens the wake-up connection, within the deadline of a request.
    fn open(&self) {
        let AcquireCall { core, state, .. } = self;
        if let (AcquirePhase::Queued(queued), Some(listener)) =
            (&state.phase, core.store.listener())
        {
            queued.waiter.open(&core.room, listener, self.answer_by(Moment::now()));
        }
    }

    fn answered(&mut self, answer: Answer, place: Place) -> Result<Option<Lease>, Error> {
        match answer.reply {
            Reply::Granted { fence, .. } => match self.granted(answer, fence)? {
                Some(lease) => return Ok(Some(lease)),
                None => self.pause(Moment::NEVER)?,
            },
            Reply::Busy { free_in, ticket, .. } => {
                if let Some(trying) = self.state.phase.trying() {
                    trying.ticket = ticket;
                    // This request was answered, so none is on its way: one give of the place is
                    // enough.
                    trying.stands = (ticket != 0 && place != Place::Try).then_some(answer.sent);
                    trying.round_trip = Moment::now().since(answer.sent);
                }
                if self.state.policy == Policy::Return {
                    return Err(Error::bare(ErrorKind::Timeout));
                }
                self.refuse_deadlock()?;
                match self.state.policy {
                    Policy::Queue => self.join()?,
                    _ => self.pause(answer.sent.plus(free_in))?,
                }
            }
            reply => return Err(Error::new(ErrorKind::Protocol, format!("{reply:?} to a take"))),
        }
        Ok(None)
    }

    fn goes_on_after(&mut self, error: Error) -> Result<(), Error> {
        // A single try does not wait for a server that is not running, nor for replicas again.
        let returns = self.state.policy == Policy::Return
            && matches!(error.kind(), ErrorKind::Refused | ErrorKind::NotReplicated);
        if !error.is_retriable() || returns {
            return Err(error);
        }
        match self.state.phase {
            AcquirePhase::Trying(_) => self.pause(Moment::NEVER),
            AcquirePhase::Queued(_) if self.is_nobody_there(Moment::now()) => {
                Err(self.take_end_error())
            }
            AcquirePhase::Queued(_) => Ok(()),
        }
    }

    /// Sets when a call that is not in the queue asks again; an error, if its time is over.
    fn pause(&mut self, free_at: Moment) -> Result<(), Error> {
        let (now, token) = (Moment::now(), self.state.token);
        let Some(trying) = self.state.phase.trying() else { return Ok(()) };
        let pace = trying.pace.get_or_insert_with(|| pace(self.lock, self.core, token));
        let wake = pace.next(now, free_at).unwrap_or(now);
        let round_trip = trying.round_trip;
        let wake = self.next_try(wake, now, round_trip)?;
        if let Some(trying) = self.state.phase.trying() {
            trying.wake = wake;
        }
        Ok(())
    }

    /// When the call asks again, if its pace says `wake`; an error, if its time is over.
    fn next_try(
        &mut self,
        wake: Moment,
        now: Moment,
        round_trip: Duration,
    ) -> Result<Moment, Error> {
        if self.state.policy == Policy::Return {
            return if self.is_too_late(wake) { Err(self.take_end_error()) } else { Ok(wake) };
        }
        // The last try has to be answered before the limit, so it starts a little earlier.
        let span = self.state.limit.since(self.state.start);
        let latest = self.state.limit.minus(LAST_CHANCE.min(span / 10).max(round_trip * 2));
        let wake = wake.min(latest.max(now));
        let most_tries = self.lock.wait_mode.backoff().attempts;
        if self.is_nobody_there(wake) || most_tries.is_some_and(|most| self.state.tries >= most) {
            return Err(self.take_end_error());
        }
        self.core.note_use();
        Ok(if now >= latest { self.state.limit } else { wake })
    }

    /// Whether the next request takes a place in the store's queue, or keeps the one that it has.
    fn joins(&self) -> bool {
        match self.state.policy {
            Policy::Spin { keeps_place } => {
                keeps_place && self.core.store.abilities().place_kept.is_some()
            }
            Policy::Return | Policy::Queue => self.state.phase.is_queued(),
        }
    }

    fn asking(&mut self) -> Option<&mut Asking> {
        self.state.phase.queued()?.asking.as_mut()
    }

    fn take_asking(&mut self) -> Option<Asking> {
        self.state.phase.queued()?.asking.take()
    }

    /// Leaves the queue, with the turn that was given to it and not fetched, if any.
    pub(super) fn leave(&mut self) -> Option<(Turn, Option<StartingValidity>)> {
        let Queued { waiter, asking } = self.state.phase.leave_queue()?;
        let (lock, core) = (self.lock, self.core);
        if !self.keeper.is_here() {
            // A child that the caller's check has forked: the mutexes may be held by threads that it
            // does not have.
            return None;
        }
        if let Some(Asking { ask, is_sent }) = asking {
            let (now, error) = (Moment::now(), "the wait ended before the answer");
            // If the request was sent, a panic came before the answer: its outcome is unknown.
            let sent = is_sent.then_some(now);
            let outcome = Err(Failure { error: Error::new(ErrorKind::Unknown, error), sent });
            core.owe_all(core.room.answered(&lock.name, &ask, &outcome, now));
        }
        let (turn, owing) = waiter.leave(&core.room, Moment::now());
        core.owe_all(owing);
        turn
    }
}

fn pace(lock: &Lock, core: &Core, token: Token) -> Pace {
    let Abilities { longest_pause, place_kept, .. } = core.store.abilities();
    let backoff = lock.wait_mode.backoff();
    let backoff = place_kept.map_or(backoff, |kept| backoff.at_most(kept));
    Pace::new(backoff, longest_pause, Jitter::seeded(token.seed()))
}
