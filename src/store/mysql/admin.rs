//! What operators see of the tables, and what they do there: breaking a grant, making the tables.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::dial::Purpose;
use super::requests::State;
use super::statements::{
    BEGIN, BREACH, BREAK, COMMIT, FORGET_BREACHES, LIST, NOTE, SCHEMA, STATE, Values, WAITERS,
    packet,
};
use super::wire::{Row, unexpected};
use super::{KEY, MysqlStore};
use crate::clock::Deadline;
use crate::error::Error;
#[cfg(feature = "examine")]
use crate::examination::{Examination, Subject};
use crate::store::breaking::{Breach, Breaches, LONGEST_BY, StoredGrant, each_until_refused};
use crate::store::listing::{Bookmark, PAGE, Page, Wanted};
use crate::store::{Admin, By, Failure, Lane, LockState, MOST_WAITERS, Seen, Waiter, unforced};
use crate::token::Token;

impl Admin for MysqlStore {
    fn inspect(&self, name: &[u8], deadline: Deadline) -> Result<LockState, Error> {
        let name = self.key(name);
        let values = Values { name: &name, most: MOST_WAITERS, ..Values::default() };
        let said = self.query(Lane::Caller, &packet(&[STATE, WAITERS], &values), deadline)?;
        let state = State::read(said.first()).ok_or_else(|| unexpected("nothing"))?;
        let waiter = |row: &Row| {
            let ticket = row.number(1).map(i64::unsigned_abs);
            let waited = ticket.and_then(|ticket| since(state.now, ticket));
            Some(Waiter { token_prefix: token(row.column(0)?)?.shown(), waited, client: None })
        };
        let waiters = said.last().map(|said| said.rows.iter().filter_map(waiter).collect());
        let waiters: Vec<Waiter> = waiters.unwrap_or_default();
        let more_waiters = u64::from(state.waiting).saturating_sub(waiters.len() as u64);
        let seen = seen(&state);
        Ok(LockState { waiters, more_waiters, ..seen.state() })
    }

    fn list(&self, wanted: &Wanted, from: &Bookmark, deadline: Deadline) -> Result<Page, Error> {
        let (first, end) = wanted.range(&self.prefix);
        let end = end.unwrap_or_else(|| vec![u8::MAX; KEY + 1]);
        let after = from.name.as_deref().unwrap_or_default();
        let values = Values { name: &first, after, until: &end, most: PAGE, ..Values::default() };
        let said = self.query(Lane::Caller, &packet(&[LIST], &values), deadline)?;
        let rows = said.first().map_or(&[][..], |said| &said.rows).iter();
        let wrong = || unexpected("something else than a list");
        Page::fill(rows.map(|row| read_row(row).ok_or_else(wrong)), wanted, &self.prefix)
    }

    fn held(&self, name: &[u8], deadline: Deadline) -> Result<Option<StoredGrant>, Error> {
        seen(&self.see(name, Lane::Caller, deadline)?).held(name)
    }

    fn break_grant(
        &self,
        held: &StoredGrant,
        by: &[u8],
        deadline: Deadline,
    ) -> Result<bool, Failure> {
        let (name, within) = (self.key(&held.name), By::from(deadline));
        let values = Values {
            name: &name,
            token: Some(held.token),
            fence: held.fence.unwrap_or(0),
            record: &by[..by.len().min(LONGEST_BY)],
            ..Values::default()
        };
        let text = packet(&[BEGIN, BREAK, NOTE, FORGET_BREACHES, COMMIT], &values);
        let (_, said) = self.pool.on_connection(Lane::Caller, deadline, |lent| {
            self.insist(within, || self.change(lent, &text, within))
        })?;
        if said.get(1).is_some_and(|said| said.changed > 0) {
            return Ok(true);
        }
        self.was_broken(held, deadline)
    }

    fn breaches(&self, lane: Lane, of: &[&[u8]], deadline: Deadline) -> Breaches {
        each_until_refused(of, |name| {
            let values = Values { name: &self.key(name), ..Values::default() };
            let said = self.query(lane, &packet(&[BREACH], &values), deadline)?;
            Ok(said.first().and_then(|said| said.rows.first()).and_then(|row| {
                let moment = row.number(1)?.unsigned_abs();
                Some(Breach::new(token(row.column(0)?)?, row.column(2)?, moment))
            }))
        })
    }

    #[cfg(feature = "examine")]
    fn examine(&self, subject: Subject<'_>, found: &mut Examination) -> Result<bool, Error> {
        self.look_around(subject, found)
    }

    fn initialize(&self, force: bool, deadline: Deadline) -> Result<(), Error> {
        unforced(force, "tables")?;
        let mut wire = self.dialer.dial(Purpose::Setup, deadline)?;
        match wire.ask(SCHEMA, deadline)? {
            (_, None) => Ok(()),
            (_, Some(refusal)) => Err(refusal.error),
        }
    }

    fn weakness(&self, _deadline: Deadline) -> Result<Option<String>, Error> {
        const UNSYNCED: &str = "a crash of the server may lose locks that are held \
             (innodb_flush_log_at_trx_commit is not 1 there); advise=no leaves this line out";
        let is_unsynced = self.dialer.is_unsynced.load(Ordering::Relaxed);
        Ok(is_unsynced.then(|| UNSYNCED.to_owned()))
    }
}

/// What state.sql tells of a name.
fn seen(state: &State) -> Seen {
    let Some(lease) = &state.lease else { return Seen::default() };
    let left = state.left(lease);
    Seen {
        is_held: !left.is_zero(),
        token: lease.token.as_deref().and_then(token),
        left,
        first: Some(lease.fence),
        last: Some(lease.last_fence),
        age: since(state.now, lease.fence),
        waiting: Some(state.waiting.into()),
    }
}

/// What a row of list.sql tells, and the key.
fn read_row(row: &Row) -> Option<(Vec<u8>, Seen)> {
    let number = |index| row.number(index).map(|number| u64::try_from(number).unwrap_or(0));
    let (key, now, fence) = (row.column(0)?.to_vec(), number(5)?, number(3)?);
    let token = row.column(1).and_then(token);
    let left = token.and_then(|_| number(2)?.checked_sub(now));
    let seen = Seen {
        is_held: left.is_some(),
        token,
        left: Duration::from_micros(left.unwrap_or(0)),
        first: Some(fence),
        last: number(4),
        age: since(now, fence),
        waiting: number(6),
    };
    Some((key, seen))
}

/// How long ago that was, in microseconds of one clock. A grant's first fence is its moment, a ticket
/// that of its waiter.
fn since(now: u64, moment: u64) -> Option<Duration> {
    Some(Duration::from_micros(now.checked_sub(moment)?))
}

fn token(bits: &[u8]) -> Option<Token> {
    Some(Token::from_bits(bits.try_into().ok()?))
}
