//! Who the clients are, and what people see of a name. Nothing is decided by it.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::PostgresStore;
use super::explain::Need;
use super::statements::Statement;
use super::wire::{Row, Value};
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::store::{Holder, Lane, Look, MOST_WAITERS, Record, Waiter, millis};
use crate::token::{ClientId, Token};
use crate::who::LONGEST_RECORD;

impl PostgresStore {
    pub(super) fn inspect(&self, name: &[u8], deadline: Deadline) -> Result<Look, Error> {
        let key = self.key(name);
        let values = [Value::Bytes(&key), Value::Number(MOST_WAITERS as u64)];
        let need = Need::Look(Some(&key));
        let mut rows =
            self.query(Lane::Caller, &[(Statement::Inspect, &values)], need, deadline)?;
        let Some(row) = rows.pop().flatten() else { return Ok(Look::default()) };
        let ago = |at: usize| {
            let micros = u64::try_from(row.number(at)?).ok()?;
            Some(Duration::from_micros(micros))
        };
        let token = |bytes: &[u8]| Some(Token::from_bits(bytes.try_into().ok()?).shown());
        let holder = row.column(0).map(|held| Holder {
            token_prefix: token(held).unwrap_or_default(),
            ttl: Duration::from_micros(row.count(1).unwrap_or(0)),
            fence: row.count(2),
            held: ago(5),
            client: None,
        });
        let waiters = read_waiters(row.column(6).unwrap_or_default());
        let more_waiters = row.count(4).unwrap_or(0).saturating_sub(waiters.len() as u64);
        Ok(Look { holder, last_fence: row.count(3), waiters, more_waiters })
    }

    /// An older schema has no table for it, and this user may not have the right: then this client goes
    /// on without.
    pub(super) fn keep_record(&self, record: Record<'_>, deadline: Deadline) -> Result<(), Error> {
        let values = [
            Value::Number(record.client.number()),
            Value::Bytes(record.text.as_bytes()),
            Value::Number(millis(record.ttl)),
        ];
        self.about_clients(Lane::Give(deadline), &[(Statement::Register, &values)], deadline)
            .map(drop)
    }

    pub(super) fn forget_record(&self, client: ClientId, deadline: Deadline) -> Result<(), Error> {
        if self.is_anonymous.load(Relaxed) {
            return Ok(());
        }
        let told = self.pool.on_connection(Lane::Give(deadline), deadline, |lent| {
            self.send(lent, (deadline, deadline), |wire| {
                wire.call(Statement::Unregister, &[Value::Number(client.number())])?;
                wire.sync();
                Ok(())
            })?;
            // Nobody reads the answer, so nothing else can be said here.
            lent.wire = None;
            Ok(())
        });
        told.map_err(|failure| failure.error)
    }

    pub(super) fn read_records(
        &self,
        clients: &[ClientId],
        deadline: Deadline,
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let longest = Value::Number(LONGEST_RECORD as u64);
        let values: Vec<_> =
            clients.iter().map(|client| [Value::Number(client.number()), longest]).collect();
        let calls: Vec<_> = values.iter().map(|it| (Statement::Record, &it[..])).collect();
        let rows = self.about_clients(Lane::Caller, &calls, deadline)?;
        Ok(rows.iter().map(|row| Some(row.as_ref()?.column(0)?.to_vec())).collect())
    }

    fn about_clients(
        &self,
        lane: Lane,
        calls: &[(Statement, &[Value<'_>])],
        deadline: Deadline,
    ) -> Result<Vec<Option<Row>>, Error> {
        if self.is_anonymous.load(Relaxed) {
            return Ok(calls.iter().map(|_| None).collect());
        }
        self.query(lane, calls, Need::Client, deadline).inspect_err(|error| {
            let is_for_good = matches!(error.kind(), ErrorKind::Storage | ErrorKind::Permission);
            self.is_anonymous.fetch_or(is_for_good, Relaxed);
        })
    }

    /// Statements that only look, or matter to nobody, together.
    pub(super) fn query(
        &self,
        lane: Lane,
        calls: &[(Statement, &[Value<'_>])],
        need: Need<'_>,
        deadline: Deadline,
    ) -> Result<Vec<Option<Row>>, Error> {
        let told = self.transact(lane, deadline, (calls.len(), need), &|wire| {
            calls.iter().try_for_each(|(statement, values)| wire.call(*statement, values))
        });
        told.map_err(|refused| refused.failure.error)
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
