//! Requests as statements, and what the rows mean that answer them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use super::statements::Statement;
use super::wire::{Lent, Row, Value, Wire, unexpected};
use super::{PostgresStore, is_told};
use crate::clock::Moment;
use crate::config::limits::MAX_FENCE;
use crate::error::Error;
use crate::store::{Answer, Failure, Outcome, Place, Reach, Reply, Request, ServerId, millis};

/// Of more names than these it is not known that somebody waits.
const MOST_CROWDED: usize = 4096;

impl PostgresStore {
    /// Whether a request is likely to need no more than an everyday statement.
    pub(super) fn is_everyday(&self, request: &Request<'_>) -> bool {
        match *request {
            Request::Take { name, place: Place::Try, block: 1, .. } => !self.is_crowded(name),
            Request::Give { fence, .. } => fence != 0,
            _ => false,
        }
    }

    fn is_crowded(&self, name: &[u8]) -> bool {
        self.crowded.lock().contains(&hash(name))
    }

    /// Notes whether anybody waits for a name.
    pub(super) fn note(&self, request: &Request<'_>, row: Option<&Row>) {
        let (name, is_awaited) = match (*request, row) {
            (Request::Take { name, .. }, Some(row)) if row.number(1) == Some(0) => (name, true),
            // Set free, or told to the next one.
            (Request::Give { name, .. }, Some(row)) => (name, row.column(0) != Some(b"off")),
            _ => return,
        };
        let mut crowded = self.crowded.lock();
        if !is_awaited {
            crowded.remove(&hash(name));
        } else if crowded.len() < MOST_CROWDED {
            crowded.insert(hash(name));
        }
    }

    pub(super) fn write(
        &self,
        wire: &mut Wire,
        request: &Request<'_>,
        is_everyday: bool,
    ) -> Result<(), Error> {
        let (Request::Take { name, token, ttl, .. }
        | Request::Extend { name, token, ttl, .. }
        | Request::Give { name, token, ttl, .. }) = *request;
        let key = self.key(name);
        let (key, token) = (Value::Bytes(&key), Value::Token(Some(token)));
        let span = Value::Number(millis(ttl.min(self.claim_window)));
        let ttl = Value::Number(millis(ttl));
        match *request {
            Request::Take { .. } if is_everyday => {
                wire.call(Statement::QuickTake, &[key, token, ttl])
            }
            Request::Take { place, block, .. } => {
                let ear = self.listener.ear().filter(|_| is_told(&self.prefix, name));
                let ticket = match (place, ear) {
                    (Place::Join(ticket), Some(_)) => Value::Number(ticket),
                    _ => Value::Signed(-1),
                };
                let (ear, block) = (Value::Number(ear.unwrap_or(0)), Value::Number(block.into()));
                wire.call(Statement::Take, &[key, token, ttl, block, ticket, ear, span])
            }
            Request::Extend { fence, reach, .. } => {
                let to = match reach {
                    Reach::Pass(to) => Some(to),
                    Reach::Grow | Reach::Claim | Reach::Set => None,
                };
                let (fence, grows) = (Value::Number(fence), Value::Switch(reach != Reach::Set));
                wire.call(Statement::Extend, &[key, token, fence, ttl, grows, Value::Token(to)])
            }
            Request::Give { fence, .. } => {
                let give = match is_everyday {
                    true if self.is_crowded(name) => Statement::QuickHandOver,
                    true if !wire.is_synced => Statement::BriefGive,
                    true => Statement::QuickGive,
                    false => Statement::Give,
                };
                wire.call(give, &[key, token, Value::Number(fence)])
            }
        }
    }
}

fn hash(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// What the row means that a request was answered with, or that there was none.
pub(super) fn read(
    lent: &Lent<'_>,
    request: &Request<'_>,
    row: Option<&Row>,
    sent: Moment,
) -> Outcome {
    let by = lent.wire.as_ref().map_or_else(ServerId::default, |wire| wire.server);
    let unreadable = || Failure::unknown(unexpected("something else than is known"), sent);
    let server = row.and_then(|row| row.count(0)).unwrap_or(0);
    let reply = match (request, row) {
        (Request::Take { .. }, Some(row)) => read_taken(row).ok_or_else(unreadable)?,
        (Request::Take { .. }, None) => return Err(unreadable()),
        (Request::Extend { .. }, Some(_)) => Reply::Extended,
        (Request::Give { .. }, Some(_)) => {
            return Ok(Answer { reply: Reply::Given, sent, server: 0, by, again: None });
        }
        (Request::Extend { .. } | Request::Give { .. }, None) => Reply::NotMine,
    };
    Ok(Answer { reply, sent, server, by, again: None })
}

/// Reads what take.sql answers; `None` if it is not that.
fn read_taken(row: &Row) -> Option<Reply> {
    if row.number(1)? == 1 {
        let (fence, block) = (row.count(2)?, u32::try_from(row.count(3)?).ok()?);
        let is_known = (1..=MAX_FENCE).contains(&fence) && block > 0;
        return is_known.then_some(Reply::Granted { fence, block });
    }
    Some(Reply::Busy {
        free_in: Duration::from_micros(row.count(2)?),
        ticket: row.count(3).unwrap_or(0),
        rank: row.count(4).and_then(|rank| u32::try_from(rank).ok()).unwrap_or(0),
        ours: true,
    })
}
