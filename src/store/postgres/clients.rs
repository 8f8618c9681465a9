//! Who the clients are. Nothing is decided by it.

use std::sync::atomic::Ordering::Relaxed;

use super::explain::Need;
use super::statements::Statement;
use super::wire::{Row, Value};
use super::{BREATH, PostgresStore};
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::store::{Lane, Record, Registry, millis};
use crate::token::ClientId;
use crate::who::LONGEST_RECORD;

impl Registry for PostgresStore {
    /// An older schema has no table for it, and this user may not have the right: then this client goes
    /// on without.
    fn register(&self, record: Record<'_>, deadline: Deadline) -> Result<(), Error> {
        let values = [
            Value::Number(record.client.number()),
            Value::Bytes(record.text.as_bytes()),
            Value::Number(millis(record.ttl)),
        ];
        self.about_clients(Lane::Give(deadline), &[(Statement::Register, &values)], deadline)
            .map(drop)
    }

    fn unregister(&self, client: ClientId) -> Result<(), Error> {
        let deadline = Deadline::after(BREATH);
        if self.is_anonymous.load(Relaxed) {
            return Ok(());
        }
        let told = self.pool.on_connection(Lane::Give(deadline), deadline, |lent| {
            self.send(lent, deadline.into(), |wire| {
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

    fn records(
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
}

impl PostgresStore {
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
}
