//! What is locked in the table, and breaking a grant there.

use std::time::Duration;

use super::explain::Need;
use super::statements::Statement;
use super::wire::{Row, Value, Wire, unexpected};
use super::{PostgresStore, explained};
use crate::clock::Deadline;
use crate::error::Error;
use crate::store::breaking::{Breach, Breaches, Held, LONGEST_BY, each_until_refused};
use crate::store::listing::{Bookmark, Listed, Page, Wanted};
use crate::store::{Failure, Holder, Lane, LockState};
use crate::token::Token;

/// The table is not there: it was made by an older program.
const NO_TABLE: &str = "42P01";

impl PostgresStore {
    pub(super) fn list_page(
        &self,
        wanted: &Wanted,
        from: &Bookmark,
        deadline: Deadline,
    ) -> Result<Page, Error> {
        let (first, end) = wanted.range(&self.prefix);
        let after = Value::Bytes(from.name.as_deref().unwrap_or_default());
        let (until, ends) = (Value::Bytes(end.as_deref().unwrap_or_default()), end.is_some());
        let values = [Value::Bytes(&first), after, until, Value::Switch(ends)];
        let said = self.transact(Lane::Caller, deadline, (1, Need::Look(None)), &|wire| {
            wire.call(Statement::List, &values)
        });
        let row = said.map_err(|refused| refused.failure.error)?.pop().flatten();
        let mut records = row.as_ref().and_then(|row| row.column(0)).unwrap_or_default();
        let mut page = Page::default();
        while !records.is_empty() {
            let wrong = || unexpected("something else than a list");
            let record = Record::read(&mut records).ok_or_else(wrong)?;
            let listed = record.listed(&self.prefix);
            page.next = Some(Bookmark { name: Some(record.key.to_vec()), ..Bookmark::default() });
            if wanted.glob.matches(&listed.name) && wanted.has(listed.state.holder.as_ref()) {
                page.listed.push(listed);
            }
        }
        Ok(page)
    }

    pub(super) fn held_by(&self, name: &[u8], deadline: Deadline) -> Result<Option<Held>, Error> {
        let Some(row) = self.see(name, Lane::Caller, deadline)? else { return Ok(None) };
        let held = row.column(0).and_then(token).map(|token| Held {
            name: name.into(),
            token,
            fence: row.count(2),
            last: row.count(3).unwrap_or(0),
            left: Duration::from_micros(row.count(1).unwrap_or(0)),
        });
        Ok(held)
    }

    /// A give behind a note, in one transaction.
    pub(super) fn break_held(
        &self,
        held: &Held,
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
        let last = self.breaches_of(Lane::Caller, &[&held.name], deadline).pop().transpose();
        let last = last.map_err(Failure::not_done)?.flatten();
        Ok(last.is_some_and(|breach| breach.token == held.token))
    }

    pub(super) fn breaches_of(&self, lane: Lane, of: &[&[u8]], deadline: Deadline) -> Breaches {
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

    /// So many statements in one transaction, and what they are for. Returns the last row of each.
    pub(super) fn transact(
        &self,
        lane: Lane,
        deadline: Deadline,
        (count, need): (usize, Need<'_>),
        write: &dyn Fn(&mut Wire) -> Result<(), Error>,
    ) -> Result<Vec<Option<Row>>, Refused> {
        let mut code = String::new();
        let said = self.pool.on_connection(lane, deadline, |lent| {
            let sent = self.send(lent, (deadline, deadline), |wire| {
                wire.settle()?;
                write(wire)?;
                wire.sync();
                Ok(())
            })?;
            let preface = lent.wire.as_ref().map_or(0, |wire| wire.preface);
            match self.answers(lent, preface + count, deadline) {
                Ok((rows, None)) => Ok(rows.into_iter().skip(preface).collect()),
                Ok((_, Some(refusal))) => {
                    let sent = refusal.is_doubt.then_some(sent);
                    let error = explained(lent, refusal.error, need, deadline);
                    // A statement that could not be prepared is not there the next time.
                    lent.wire = None;
                    code = refusal.code;
                    Err(Failure { error, sent })
                }
                Err(error) => Err(Failure::unknown(error, sent)),
            }
        });
        said.map_err(|failure| Refused { code, failure })
    }
}

/// Why there are no rows, with the server's code where it has said that.
pub(super) struct Refused {
    code: String,
    pub(super) failure: Failure,
}

/// What list.sql tells of a name.
struct Record<'a> {
    key: &'a [u8],
    token: &'a [u8],
    /// For how long it is held, its first and its last fence, how many wait, and the server's time.
    numbers: [i64; 5],
}

impl<'a> Record<'a> {
    /// Takes it off the records.
    fn read(records: &mut &'a [u8]) -> Option<Record<'a>> {
        let mut take = |count: usize| {
            let (taken, rest) = records.split_at_checked(count)?;
            *records = rest;
            Some(taken)
        };
        let length = usize::try_from(number(take(8)?)?).ok()?;
        let (key, token) = (take(length)?, take(16)?);
        let mut next = || number(take(8)?);
        Some(Record { key, token, numbers: [next()?, next()?, next()?, next()?, next()?] })
    }

    fn listed(&self, prefix: &[u8]) -> Listed {
        let [left, first, last, waiting, now] =
            self.numbers.map(|number| u64::try_from(number).ok());
        let holder = left.map(|left| Holder {
            token_prefix: token(self.token).map_or_else(String::new, Token::shown),
            ttl: Duration::from_micros(left),
            fence: first,
            held: first.and_then(|first| Some(Duration::from_micros(now?.checked_sub(first)?))),
            client: None,
        });
        let name = self.key.strip_prefix(prefix).unwrap_or(self.key).to_vec();
        let state = LockState { holder, last_fence: last, ..LockState::default() };
        Listed { name, state, waiting }
    }
}

fn number(bytes: &[u8]) -> Option<i64> {
    Some(i64::from_be_bytes(bytes.try_into().ok()?))
}

fn token(bits: &[u8]) -> Option<Token> {
    let digits: String = bits.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.parse().ok()
}
