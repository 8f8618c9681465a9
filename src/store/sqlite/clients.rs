//! Who the clients are that use the file.

use rusqlite::{Connection, OptionalExtension, params};

use super::SqliteStore;
use crate::clock::{Deadline, Moment};
use crate::error::Error;
use crate::store::{Record, Registry};
use crate::token::ClientId;
use crate::who::LONGEST_RECORD;

impl Registry for SqliteStore {
    fn register(&self, record: Record<'_>, deadline: Deadline) -> Result<(), Error> {
        let opened = self.opened(false, deadline)?;
        let kept = opened.quick.change(deadline, |connection, now| {
            Ok(Clients { connection, boot: &self.boot, now }.keep(record)?)
        });
        kept.map_err(|failure| failure.error)
    }

    fn unregister(&self, client: ClientId) -> Result<(), Error> {
        let Some(opened) = self.current.lock().clone() else { return Ok(()) };
        // A file that others keep locked is not waited for.
        let forgotten = opened.quick.change(Deadline::at(Moment::ZERO), |connection, now| {
            Ok(Clients { connection, boot: &self.boot, now }.forget(client)?)
        });
        forgotten.map_err(|failure| failure.error)
    }

    fn records(
        &self,
        clients: &[ClientId],
        deadline: Deadline,
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let opened = self.opened(false, deadline)?;
        opened.quick.read(deadline, None, |connection| {
            Clients { connection, boot: &self.boot, now: Moment::now() }.records(clients)
        })
    }
}

/// Their table, as one request sees it.
struct Clients<'a> {
    connection: &'a Connection,
    boot: &'a str,
    now: Moment,
}

impl Clients<'_> {
    /// Keeps a record, and removes those that are over.
    fn keep(&self, record: Record<'_>) -> rusqlite::Result<()> {
        self.connection.execute_batch(include_str!("clients.sql"))?;
        let over = "DELETE FROM client WHERE boot <> ?1 OR expiry <= ?2";
        self.connection.execute(over, params![self.boot, nanos(self.now)])?;
        let keep = "INSERT OR REPLACE INTO client VALUES (?1, ?2, ?3, ?4)";
        let Record { client, text, ttl, .. } = record;
        let values = params![client.to_string(), text, nanos(self.now.plus(ttl)), self.boot];
        self.connection.execute(keep, values).map(drop)
    }

    fn forget(&self, client: ClientId) -> rusqlite::Result<()> {
        let forget = "DELETE FROM client WHERE id = ?1";
        self.connection.execute(forget, [client.to_string()]).map(drop)
    }

    fn records(&self, clients: &[ClientId]) -> rusqlite::Result<Vec<Option<Vec<u8>>>> {
        let is_there = "SELECT 1 FROM sqlite_schema WHERE name = 'client'";
        if !self.connection.prepare(is_there)?.exists([])? {
            return Ok(vec![None; clients.len()]);
        }
        let mut read = self.connection.prepare(
            "SELECT CAST(substr(record, 1, ?2) AS BLOB) FROM client WHERE id = ?1 AND boot = ?3 AND expiry > ?4",
        )?;
        let most = i64::try_from(LONGEST_RECORD).unwrap_or(i64::MAX);
        let mut record = |client: &ClientId| {
            let values = params![client.to_string(), most, self.boot, nanos(self.now)];
            read.query_row(values, |row| row.get(0)).optional()
        };
        clients.iter().map(&mut record).collect()
    }
}

fn nanos(moment: Moment) -> i64 {
    i64::try_from(moment.as_nanos()).unwrap_or(i64::MAX)
}
