//! Who the clients are that use the file.

use rusqlite::{Connection, OptionalExtension, params};

use crate::clock::Moment;
use crate::store::Record;
use crate::token::ClientId;
use crate::who::LONGEST_RECORD;

/// Their table, as one request sees it.
pub(super) struct Clients<'a> {
    pub(super) connection: &'a Connection,
    pub(super) boot: &'a str,
    pub(super) now: Moment,
}

impl Clients<'_> {
    /// Keeps a record, and removes those that are over.
    pub(super) fn keep(&self, record: Record<'_>) -> rusqlite::Result<()> {
        self.connection.execute_batch(include_str!("clients.sql"))?;
        let over = "DELETE FROM client WHERE boot <> ?1 OR expiry <= ?2";
        self.connection.execute(over, params![self.boot, nanos(self.now)])?;
        let keep = "INSERT OR REPLACE INTO client VALUES (?1, ?2, ?3, ?4)";
        let Record { client, text, ttl, .. } = record;
        let values = params![client.to_string(), text, nanos(self.now.plus(ttl)), self.boot];
        self.connection.execute(keep, values).map(drop)
    }

    pub(super) fn forget(&self, client: ClientId) -> rusqlite::Result<()> {
        let forget = "DELETE FROM client WHERE id = ?1";
        self.connection.execute(forget, [client.to_string()]).map(drop)
    }

    pub(super) fn records(&self, clients: &[ClientId]) -> rusqlite::Result<Vec<Option<Vec<u8>>>> {
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
