//! Who the clients are. Nothing is decided by it.

use std::sync::atomic::Ordering::Relaxed;

use super::requests::micros;
use super::statements::{FORGET_CLIENTS, RECORDS, REGISTER, UNREGISTER, Values, packet};
use super::wire::{Row, Said};
use super::{BREATH, MysqlStore, Purpose};
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::store::net::seat;
use crate::store::{Lane, Record, Registry};
use crate::token::ClientId;
use crate::who::LONGEST_RECORD;

impl Registry for MysqlStore {
    /// An older schema has no table for it, and this user may not have the right: then this client goes
    /// on without.
    fn register(&self, record: Record<'_>, deadline: Deadline) -> Result<(), Error> {
        let (text, ttl) = (record.text.as_bytes(), micros(record.ttl));
        let values = Values { clients: &[record.client], record: text, ttl, ..Values::default() };
        let text = packet(&[REGISTER, FORGET_CLIENTS], &values);
        self.about_clients(Lane::Give(deadline), &text, deadline).map(drop)
    }

    fn unregister(&self, client: ClientId) -> Result<(), Error> {
        let deadline = Deadline::after(BREATH);
        if self.is_anonymous.load(Relaxed) {
            return Ok(());
        }
        let values = Values { clients: &[client], ..Values::default() };
        let text = packet(&[UNREGISTER], &values);
        let told = self.pool.on_connection(Lane::Give(deadline), deadline, |lent| {
            let dial = || self.dialer.dial(Purpose::Locks, deadline);
            seat::send(lent, deadline, dial, |wire| wire.query(&text))?;
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
        let values = Values { clients, most: LONGEST_RECORD, ..Values::default() };
        let said = self.about_clients(Lane::Caller, &packet(&[RECORDS], &values), deadline)?;
        let rows = said.first().map_or(&[][..], |said| &said.rows);
        let record = |client: &ClientId| {
            let is_it = |row: &&Row| row.number(0).map(i64::unsigned_abs) == Some(client.number());
            Some(rows.iter().find(is_it)?.column(1)?.to_vec())
        };
        Ok(clients.iter().map(record).collect())
    }
}

impl MysqlStore {
    fn about_clients(
        &self,
        lane: Lane,
        text: &str,
        deadline: Deadline,
    ) -> Result<Vec<Said>, Error> {
        if self.is_anonymous.load(Relaxed) {
            return Ok(Vec::new());
        }
        self.query(lane, text, deadline).inspect_err(|error| {
            let is_for_good = matches!(error.kind(), ErrorKind::Storage | ErrorKind::Permission);
            self.is_anonymous.fetch_or(is_for_good, Relaxed);
        })
    }
}
