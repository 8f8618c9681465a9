//! What clients say of themselves: a key for each.

use std::time::Duration;

use redis::Value;

use super::RedisStore;
use super::deployment::Deployment;
use super::dialect::{Batch, Dialect, fault, look};
use super::route::Parcel;
use crate::clock::Deadline;
use crate::error::Error;
use crate::said::say;
use crate::store::{Lane, Record, Registry};
use crate::token::ClientId;

/// No longer is a connection waited for that is only needed for what nobody waits for.
const SOON: Duration = Duration::from_millis(10);

impl Registry for RedisStore {
    /// What a server refuses is an error here, too.
    fn register(&self, record: Record<'_>, deadline: Deadline) -> Result<(), Error> {
        let batch = look::pack_register(record);
        // On a connection that is there, if any is idle.
        match self.deployment.ask_one(Lane::Give(deadline), &batch, deadline)? {
            Value::ServerError(error) => Err(fault::server(&error)),
            _ => Ok(()),
        }
    }

    fn unregister(&self, client: ClientId) -> Result<(), Error> {
        self.deployment.drop_record(client, Deadline::after(SOON))
    }

    fn records(
        &self,
        clients: &[ClientId],
        deadline: Deadline,
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        self.deployment.records(clients, deadline)
    }
}

impl<D: Dialect> Deployment<D> {
    /// Sends what a client says of itself, and waits for no answer.
    pub(in crate::store) fn send_record(&self, it: Record<'_>, by: Deadline) -> Result<(), Error> {
        self.tell(&look::pack_register(it), by)
    }

    /// The client has closed. No answer is waited for.
    pub(in crate::store) fn drop_record(&self, of: ClientId, by: Deadline) -> Result<(), Error> {
        self.tell(&look::pack_unregister(of), by)
    }

    fn tell(&self, batch: &Batch<'_>, deadline: Deadline) -> Result<(), Error> {
        let told = self.route.tell(Parcel { lane: Lane::Give(deadline), batch, deadline });
        told.map_err(|failure| failure.error)
    }

    /// The records that are there, and may be read.
    pub(in crate::store) fn records(
        &self,
        clients: &[ClientId],
        deadline: Deadline,
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let said = self.ask(Lane::Caller, &look::pack_records(clients), deadline);
        let record = |said: Result<Value, Error>| match said? {
            Value::BulkString(record) => Ok(Some(record)),
            Value::ServerError(error) => {
                say!(Debug, "records-unread", error = fault::server(&error));
                Ok(None)
            }
            _ => Ok(None),
        };
        said.map(record).collect()
    }
}
