//! Each request as statements, one or several round trips of them.

use std::time::Duration;

use super::statements::{self, Ticket, Values, add, packet};
use super::wire::{Lent, Row, Said, unexpected};
use super::{MysqlStore, Trouble};
use crate::clock::{Deadline, Moment};
use crate::config::limits::MAX_FENCE;
use crate::error::{Error, ErrorKind};
use crate::store::{Answer, By, Failure, Place, Reach, Reply, Request, ServerId};
use crate::token::Token;

/// A statement that may change something, and what was said to it.
type Done = (Moment, Vec<Said>);

/// What state.sql shows.
pub(super) struct State {
    pub(super) now: u64,
    pub(super) lease: Option<Lease>,
    /// How many wait, before the ticket that was asked for.
    pub(super) waiting: u32,
    alive_until: Option<u64>,
}

pub(super) struct Lease {
    /// Whose it is, and until when; of nobody that it was, too.
    pub(super) token: Option<Vec<u8>>,
    expiry: u64,
    pub(super) fence: u64,
    pub(super) last_fence: u64,
    turn: u64,
}

impl MysqlStore {
    pub(super) fn carry_out(
        &self,
        lent: &mut Lent<'_>,
        request: &Request<'_>,
        next: Option<&Request<'_>>,
        drawn: &mut Option<u64>,
        by: By,
    ) -> Result<Answer, Trouble> {
        let (Request::Take { name, token, ttl, .. }
        | Request::Extend { name, token, ttl, .. }
        | Request::Give { name, token, ttl, .. }) = *request;
        let name = self.key(name);
        let values = Values {
            name: &name,
            token: Some(token),
            ttl: micros(ttl),
            window: micros(self.life.window),
            ..Values::default()
        };
        match *request {
            Request::Take { place: Place::Try, block, .. } => {
                self.try_take(lent, Values { block, ..values }, by)
            }
            Request::Take { place: Place::Join(ticket), block, .. } => {
                if let Some(ticket) = drawn.take() {
                    // It stands already. The waiter knows its ticket, and asks for the lock, in this
                    // order: it keeps the one for its cohort when it has the other.
                    let free_in = Duration::ZERO;
                    let busy = Reply::Busy { free_in, ticket, rank: 0, ours: false };
                    return Ok(answer(lent, busy, Moment::now()));
                }
                self.wait(lent, Values { block, ticket: Ticket::of(ticket), ..values }, by)
            }
            Request::Extend { fence, reach, .. } => {
                let (statement, to) = extension(reach);
                let values = Values { fence, to, ..values };
                let (sent, said) = self.change(lent, &packet(&[statement], &values), by)?;
                Ok(extended(lent, said.first(), sent))
            }
            Request::Give { fence, .. } => {
                let values = Values { fence, ..values };
                let heir = match next.copied() {
                    Some(Request::Take { token, place: Place::Join(ticket), .. }) => {
                        Some(Values { token: Some(token), ticket: Ticket::of(ticket), ..values })
                    }
                    _ => None,
                };
                self.give(lent, &values, heir, drawn, by)
            }
        }
    }

    /// Takes the lock if it is free for anybody. Who waited a moment ago is looked for where this client
    /// has met that lately: else it costs as much as the rest of a take.
    fn try_take(&self, lent: &mut Lent<'_>, values: Values<'_>, by: By) -> Result<Answer, Trouble> {
        let is_calm = self.crowded.lock().has_passed();
        let mut take = if is_calm { statements::QUICK_TAKE } else { statements::TAKE };
        loop {
            let done = self.change(lent, &packet(&[take], &values), by)?;
            if let Some(answer) = granted(lent, &values, &done)? {
                return Ok(answer);
            }
            let state = self.state(lent, &values, by)?;
            match &state.lease {
                None => {
                    let done = self.change(lent, &packet(&[statements::TAKE_NEW], &values), by)?;
                    if let Some(answer) = granted(lent, &values, &done)? {
                        return Ok(answer);
                    }
                }
                Some(lease) if state.is_of(lease, values.token) => {
                    if let Some(answer) = self.mine(lent, &values, lease, by)? {
                        return Ok(answer);
                    }
                }
                Some(lease) => {
                    let left = state.left(lease);
                    if !left.is_zero() || state.waiting > 0 {
                        let free_in = if left.is_zero() { super::waiters::LONGEST } else { left };
                        let busy = Reply::Busy { free_in, ticket: 0, rank: 0, ours: false };
                        return Ok(answer(lent, busy, Moment::now()));
                    }
                    if take == statements::QUICK_TAKE {
                        *self.crowded.lock() = Deadline::after(self.life.window);
                        take = statements::TAKE;
                        continue;
                    }
                }
            }
            // Another one was faster, and has gone again.
            self.breathe(by)?;
        }
    }

    /// Takes the lock if it is the ticket's turn, and else stands in line.
    fn wait(&self, lent: &mut Lent<'_>, values: Values<'_>, by: By) -> Result<Answer, Trouble> {
        if let Ticket::Known(ticket) = values.ticket {
            return self.stand(lent, values, (ticket, None), by);
        }
        let joined = [
            statements::BEGIN,
            statements::AWAIT,
            statements::JOIN,
            statements::COMMIT,
            statements::BURY,
        ];
        let mut text = packet(&joined, &values);
        add(&mut text, statements::STATE, &Values { ticket: Ticket::Just, ..values });
        let (sent, said) = self.change(lent, &text, by)?;
        let ticket = said.get(2).map(|said| said.id).filter(|ticket| *ticket > 0);
        let ticket = ticket.ok_or_else(unreadable)?;
        let values = Values { ticket: Ticket::Known(ticket), ..values };
        // However this ends, there is a place that was not there before.
        self.stand(lent, values, (ticket, State::read(said.last())), by).map_err(|trouble| {
            trouble.map(|failure| Failure { sent: failure.sent.or(Some(sent)), ..failure })
        })
    }

    fn stand(
        &self,
        lent: &mut Lent<'_>,
        values: Values<'_>,
        (ticket, mut seen): (u64, Option<State>),
        by: By,
    ) -> Result<Answer, Trouble> {
        loop {
            let asked = Moment::now();
            let state = match seen.take() {
                Some(state) => state,
                None => self.state(lent, &values, by)?,
            };
            let so_far = match &state.lease {
                None => match self.take_and_leave(lent, statements::TAKE_NEW, &values, by)? {
                    Some(answer) => return Ok(answer),
                    None => continue,
                },
                Some(lease) if state.is_of(lease, values.token) => {
                    if let Some(answer) = self.mine(lent, &values, lease, by)? {
                        return Ok(answer);
                    }
                    Duration::ZERO
                }
                Some(lease) => {
                    if state.left(lease).is_zero() && state.waiting == 0 {
                        let taken = self.take_and_leave(lent, statements::TAKE, &values, by)?;
                        if let Some(answer) = taken {
                            return Ok(answer);
                        }
                    }
                    Duration::from_micros(state.now.saturating_sub(lease.fence))
                }
            };
            let fresh_until = micros(self.life.window - self.life.fresh_for) + state.now;
            // Behind a clock that was set back, a place from before counts as a dead one's.
            let sound = fresh_until..=micros(self.life.window) + state.now;
            if state.alive_until.is_none_or(|until| !sound.contains(&until)) {
                let stamped =
                    [statements::BEGIN, statements::AWAIT, statements::STAMP, statements::COMMIT];
                self.change(lent, &packet(&stamped, &values), by)?;
            }
            let turn = state.lease.as_ref().map_or(0, |lease| lease.turn);
            let pause = self.life.pause(state.waiting, so_far, Duration::from_micros(turn));
            let left = state.lease.as_ref().map_or(Duration::ZERO, |lease| state.left(lease));
            let free_in = if left.is_zero() { pause } else { left.max(super::waiters::SHORTEST) };
            let busy = Reply::Busy { free_in, ticket, rank: state.waiting, ours: false };
            let again = Some(pause.min(free_in));
            return Ok(Answer { again, ..answer(lent, busy, asked) });
        }
    }

    /// Takes the lock, and leaves the line with it.
    fn take_and_leave(
        &self,
        lent: &mut Lent<'_>,
        take: &str,
        values: &Values<'_>,
        by: By,
    ) -> Result<Option<Answer>, Trouble> {
        let taken = [statements::BEGIN, take, statements::LEAVE_WON, statements::COMMIT];
        let (sent, said) = self.change(lent, &packet(&taken, values), by)?;
        granted(lent, values, &(sent, said.into_iter().skip(1).collect()))
    }

    /// A take that was sent before has it already.
    fn mine(
        &self,
        lent: &mut Lent<'_>,
        values: &Values<'_>,
        lease: &Lease,
        by: By,
    ) -> Result<Option<Answer>, Trouble> {
        let values = Values { fence: lease.fence, ..*values };
        let (sent, said) =
            self.change(lent, &packet(&[statements::MINE, statements::LEAVE], &values), by)?;
        if said.first().is_none_or(|said| said.changed == 0) {
            return Ok(None);
        }
        let block = u32::try_from(lease.last_fence.saturating_sub(lease.fence) + 1);
        let block = block.map_err(|_| unreadable())?;
        Ok(Some(answer(lent, Reply::Granted { fence: lease.fence, block }, sent)))
    }

    /// Gives the lock up, and stands in line for the next thread of this process in the same step: who
    /// came later never sees the lock free, and nobody in front.
    fn give(
        &self,
        lent: &mut Lent<'_>,
        values: &Values<'_>,
        heir: Option<Values<'_>>,
        drawn: &mut Option<u64>,
        by: By,
    ) -> Result<Answer, Trouble> {
        let mut text = packet(
            heir.map_or(&[statements::GIVE], |_| &[statements::BEGIN, statements::GIVE]),
            values,
        );
        if let Some(heir) = &heir {
            let is_known = matches!(heir.ticket, Ticket::Known(_));
            add(&mut text, statements::AWAIT, heir);
            add(&mut text, if is_known { statements::STAMP } else { statements::JOIN }, heir);
            add(&mut text, statements::COMMIT, heir);
        }
        let (sent, said) = self.change(lent, &text, by)?;
        *drawn = heir.and_then(|heir| match heir.ticket {
            Ticket::Known(ticket) => Some(ticket),
            _ => said.get(3).map(|said| said.id).filter(|ticket| *ticket > 0),
        });
        if said.get(usize::from(heir.is_some())).is_some_and(|said| said.changed > 0) {
            return Ok(answer(lent, Reply::Given, sent));
        }
        let rest = packet(&[statements::GIVE_REST, statements::LEAVE], values);
        let (sent, _) = self.change(lent, &rest, by)?;
        Ok(answer(lent, Reply::NotMine, sent))
    }

    fn state(&self, lent: &mut Lent<'_>, values: &Values<'_>, by: By) -> Result<State, Trouble> {
        let said = self.read(lent, &packet(&[statements::STATE], values), by)?;
        State::read(said.last()).ok_or_else(unreadable)
    }
}

/// The statement that does it, and for whom.
pub(super) fn extension(reach: Reach) -> (&'static str, Option<Token>) {
    match reach {
        Reach::Grow | Reach::Claim => (statements::EXTEND, None),
        Reach::Set => (statements::SET, None),
        Reach::Pass(to) => (statements::PASS, Some(to)),
    }
}

/// What a take was granted, if it was.
fn granted(
    lent: &Lent<'_>,
    values: &Values<'_>,
    (sent, said): &Done,
) -> Result<Option<Answer>, Trouble> {
    let Some(said) = said.first().filter(|said| said.changed > 0) else { return Ok(None) };
    let (fence, block) = (said.id, values.block);
    if !(1..=MAX_FENCE).contains(&fence) {
        let name: String = values.name.iter().map(|byte| format!("{byte:02x}")).collect();
        let detail = format!(
            "the row of leasehold_lease with name = x'{name}' leads to fence {fence}, which no program \
             of Leasehold uses: once nobody relies on that lock, DELETE FROM leasehold_lease WHERE name \
             = x'{name}';"
        );
        let error = Error::mended(ErrorKind::WrongType, detail);
        return Err(Trouble::Failed(Failure::unknown(error, *sent)));
    }
    Ok(Some(answer(lent, Reply::Granted { fence, block }, *sent)))
}

/// Whether an extension found the lock.
pub(super) fn extended(lent: &Lent<'_>, said: Option<&Said>, sent: Moment) -> Answer {
    let is_done = said.is_some_and(|said| said.changed > 0);
    answer(lent, if is_done { Reply::Extended } else { Reply::NotMine }, sent)
}

fn answer(lent: &Lent<'_>, reply: Reply, sent: Moment) -> Answer {
    let by = lent.wire.as_ref().map_or_else(ServerId::default, |wire| wire.server);
    Answer { reply, sent, server: 0, by, again: None }
}

fn unreadable() -> Trouble {
    Trouble::Failed(Failure::not_done(unexpected("something else than is known")))
}

/// Whole milliseconds, as of every store.
pub(super) fn micros(span: Duration) -> u64 {
    crate::store::millis(span).saturating_mul(1000)
}

impl State {
    pub(super) fn read(said: Option<&Said>) -> Option<State> {
        let row: &Row = said?.rows.first()?;
        let count = |index| row.number(index).map(|number| u64::try_from(number).unwrap_or(0));
        let lease = match count(2) {
            None => None,
            Some(expiry) => Some(Lease {
                token: row.column(1).map(<[u8]>::to_vec),
                expiry,
                fence: count(3)?,
                last_fence: count(4)?,
                turn: count(5)?,
            }),
        };
        let waiting = u32::try_from(count(6)?).unwrap_or(u32::MAX);
        Some(State { now: count(0)?, lease, waiting, alive_until: count(7) })
    }

    /// For how long the lock is taken still.
    pub(super) fn left(&self, lease: &Lease) -> Duration {
        let left = lease.token.as_ref().map_or(0, |_| lease.expiry.saturating_sub(self.now));
        Duration::from_micros(left)
    }

    /// Whether a token has it.
    pub(super) fn is_of(&self, lease: &Lease, token: Option<Token>) -> bool {
        let token = token.map(Token::bits);
        !self.left(lease).is_zero()
            && lease.token.as_deref() == token.as_ref().map(|bits| &bits[..])
    }
}
