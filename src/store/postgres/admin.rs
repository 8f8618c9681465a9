//! What operators see of the table, and what they do there: breaking a grant, making the table.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::PostgresStore;
use super::dial::Purpose;
use super::explain::Need;
use super::statements::{SCHEMA, Statement};
use super::wire::{Row, Value, Wire, unexpected};
use crate::clock::Deadline;
use crate::error::Error;
#[cfg(feature = "examine")]
use crate::examination::{Examination, Subject};
use crate::store::breaking::{Breach, Breaches, LONGEST_BY, StoredGrant, each_until_refused};
use crate::store::listing::{Bookmark, Page, Wanted};
use crate::store::{Admin, Failure, Lane, LockState, MOST_WAITERS, Seen, Waiter, unforced};
use crate::token::Token;

/// The table is not there: it was made by an older program.
const NO_TABLE: &str = "42P01";

impl Admin for PostgresStore {
    fn inspect(&self, name: &[u8], deadline: Deadline) -> Result<LockState, Error> {
        let key = self.key(name);
        let values = [Value::Bytes(&key), Value::Number(MOST_WAITERS as u64)];
        let need = Need::Look(Some(&key));
        let mut rows =
            self.query(Lane::Caller, &[(Statement::Inspect, &values)], need, deadline)?;
        let Some(row) = rows.pop().flatten() else { return Ok(LockState::default()) };
        let age = row.number(5).and_then(|micros| u64::try_from(micros).ok());
        let seen = Seen { age: age.map(Duration::from_micros), ..seen(&row) };
        let waiters = read_waiters(row.column(6).unwrap_or_default());
        let more_waiters = seen.waiting.unwrap_or(0).saturating_sub(waiters.len() as u64);
        Ok(LockState { waiters, more_waiters, ..seen.state() })
    }

    fn list(&self, wanted: &Wanted, from: &Bookmark, deadline: Deadline) -> Result<Page, Error> {
        let (first, end) = wanted.range(&self.prefix);
        let after = Value::Bytes(from.name.as_deref().unwrap_or_default());
        let (until, ends) = (Value::Bytes(end.as_deref().unwrap_or_default()), end.is_some());
        let values = [Value::Bytes(&first), after, until, Value::Switch(ends)];
        let said = self.transact(Lane::Caller, deadline, (1, Need::Look(None)), &|wire| {
            wire.call(Statement::List, &values)
        });
        let row = said.map_err(|refused| refused.failure.error)?.pop().flatten();
        let mut records = row.as_ref().and_then(|row| row.column(0)).unwrap_or_default();
        let rows = std::iter::from_fn(|| {
            let wrong = || unexpected("something else than a list");
            (!records.is_empty()).then(|| read_record(&mut records).ok_or_else(wrong))
        });
        Page::fill(rows, wanted, &self.prefix)
    }

    fn held(&self, name: &[u8], deadline: Deadline) -> Result<Option<StoredGrant>, Error> {
        let row = self.see(name, Lane::Caller, deadline)?;
        row.map_or(Ok(None), |row| seen(&row).held(name))
    }

    /// A give behind a note, in one transaction.
    fn break_grant(
        &self,
        held: &StoredGrant,
        by: &[u8],
        deadline: Deadline,
    ) -> Result<bool, Failure> {
        let (key, token) = (self.key(&held.name), Value::Token(Some(held.token)));
        let by = Value::Bytes(&by[..by.len().min(LONGEST_BY)]);
        let note = [Value::Bytes(&key), token, Value::Number(held.fence.unwrap_or(0)), by];
        let give = [Value::Bytes(&key), token, Value::Number(0)];
        let need = Need::Break(&key);
        let noted = self.transact(Lane::Caller, deadline, (2, need), &|wire| {
            wire.call(Statement::Note, &note)?;
            wire.call(Statement::Give, &give)
        });
        let freed = match noted {
            Err(refused) if refused.code == NO_TABLE => {
                let give = |wire: &mut Wire| wire.call(Statement::Give, &give);
                self.transact(Lane::Caller, deadline, (1, need), &give)
            }
            noted => noted,
        };
        if freed.map_err(|refused| refused.failure)?.pop().flatten().is_some() {
            return Ok(true);
        }
        self.was_broken(held, deadline)
    }

    fn breaches(&self, lane: Lane, of: &[&[u8]], deadline: Deadline) -> Breaches {
        each_until_refused(of, |name| {
            let key = self.key(name);
            let ask = |wire: &mut Wire| wire.call(Statement::Breach, &[Value::Bytes(&key)]);
            let mut told = match self.transact(lane, deadline, (1, Need::Breach(&key)), &ask) {
                Err(refused) if refused.code == NO_TABLE => Vec::new(),
                told => told.map_err(|refused| refused.failure.error)?,
            };
            Ok(told.pop().flatten().and_then(|row| {
                Some(Breach::new(token(row.column(0)?)?, row.column(2)?, row.count(1)?))
            }))
        })
    }

    #[cfg(feature = "examine")]
    fn examine(&self, subject: Subject<'_>, found: &mut Examination) -> Result<bool, Error> {
        self.look_around(subject, found)
    }

    fn initialize(&self, force: bool, deadline: Deadline) -> Result<(), Error> {
        unforced(force, "tables")?;
        let mut wire = self.dialer.dial(Purpose::Setup, deadline, &|_| Ok(()))?;
        wire.begin_with(SCHEMA)?;
        wire.ask("", 1, deadline).map(drop)
    }

    fn weakness(&self, _deadline: Deadline) -> Result<Option<String>, Error> {
        const UNSYNCED: &str = "a crash of the server may lose locks that are held \
             (synchronous_commit is off for this session); advise=no leaves this line out";
        let is_unsynced = self.dialer.is_unsynced.load(Ordering::Relaxed);
        Ok(is_unsynced.then(|| UNSYNCED.to_owned()))
    }
}

/// What look.sql and inspect.sql tell first.
fn seen(row: &Row) -> Seen {
    let held = row.column(0);
    Seen {
        is_held: held.is_some(),
        token: held.and_then(token),
        left: Duration::from_micros(row.count(1).unwrap_or(0)),
        first: row.count(2),
        last: row.count(3),
        age: None,
        waiting: row.count(4),
    }
}

/// Reads the last column of inspect.sql.
fn read_waiters(text: &[u8]) -> Vec<Waiter> {
    let text = String::from_utf8_lossy(text);
    let words: Vec<&str> = text.split(' ').collect();
    let waiter = |pair: &[&str]| {
        let token: Token = pair.first()?.parse().ok()?;
        let waited = pair.get(1)?.parse().ok().map(Duration::from_micros);
        Some(Waiter { token_prefix: token.shown(), waited, client: None })
    };
    words.chunks(2).filter_map(waiter).collect()
}

/// Takes what list.sql tells of a name off the records.
fn read_record(records: &mut &[u8]) -> Option<(Vec<u8>, Seen)> {
    let mut take = |count: usize| {
        let (taken, rest) = records.split_at_checked(count)?;
        *records = rest;
        Some(taken)
    };
    let length = usize::try_from(number(take(8)?)?).ok()?;
    let (key, holder) = (take(length)?.to_vec(), take(16)?);
    let mut next = || Some(u64::try_from(number(take(8)?)?).ok());
    let (left, first, last, waiting, now) = (next()?, next()?, next()?, next()?, next()?);
    let since = first.and_then(|first| now?.checked_sub(first));
    let seen = Seen {
        is_held: left.is_some(),
        token: token(holder),
        left: Duration::from_micros(left.unwrap_or(0)),
        first,
        last,
        age: since.map(Duration::from_micros),
        waiting,
    };
    Some((key, seen))
}

fn number(bytes: &[u8]) -> Option<i64> {
    Some(i64::from_be_bytes(bytes.try_into().ok()?))
}

fn token(bits: &[u8]) -> Option<Token> {
    Some(Token::from_bits(bits.try_into().ok()?))
}
