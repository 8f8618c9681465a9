//! Who the clients are, and what people see of a name. Nothing is decided by it.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::requests::{State, micros};
use super::statements::{
    FORGET_CLIENTS, RECORDS, REGISTER, STATE, UNREGISTER, Values, WAITERS, packet,
};
use super::wire::{Row, Said, unexpected};
use super::{MysqlStore, Purpose};
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::store::net::seat;
use crate::store::{Holder, Lane, Look, MOST_WAITERS, Record, Waiter};
use crate::token::{ClientId, Token};
use crate::who::LONGEST_RECORD;

impl MysqlStore {
    pub(super) fn inspect(&self, name: &[u8], deadline: Deadline) -> Result<Look, Error> {
        let name = self.key(name);
        let values = Values { name: &name, most: MOST_WAITERS, ..Values::default() };
        let said = self.query(Lane::Caller, &packet(&[STATE, WAITERS], &values), deadline)?;
        let state = State::read(said.first()).ok_or_else(|| unexpected("nothing"))?;
        let since = |moment: u64| Some(Duration::from_micros(state.now.checked_sub(moment)?));
        let waiter = |row: &Row| {
            let waited = row.number(1).and_then(|ticket| since(ticket.unsigned_abs()));
            Some(Waiter { token_prefix: shown(row.column(0)?)?, waited, client: None })
        };
        let waiters = said.last().map(|said| said.rows.iter().filter_map(waiter).collect());
        let waiters: Vec<Waiter> = waiters.unwrap_or_default();
        let more_waiters = u64::from(state.waiting).saturating_sub(waiters.len() as u64);
        let holder = state.lease.as_ref().filter(|lease| !state.left(lease).is_zero());
        let holder = holder.map(|lease| Holder {
            token_prefix: lease.token.as_deref().and_then(shown).unwrap_or_default(),
            ttl: state.left(lease),
            fence: Some(lease.fence),
            held: since(lease.fence),
            client: None,
        });
        let last_fence = state.lease.as_ref().map(|lease| lease.last_fence);
        Ok(Look { holder, last_fence, waiters, more_waiters })
    }

    /// An older schema has no table for it, and this user may not have the right: then this client goes
    /// on without.
    pub(super) fn keep_record(&self, record: Record<'_>, deadline: Deadline) -> Result<(), Error> {
        let (text, ttl) = (record.text.as_bytes(), micros(record.ttl));
        let values = Values { clients: &[record.client], record: text, ttl, ..Values::default() };
        let text = packet(&[REGISTER, FORGET_CLIENTS], &values);
        self.about_clients(Lane::Give(deadline), &text, deadline).map(drop)
    }

    pub(super) fn forget_record(&self, client: ClientId, deadline: Deadline) -> Result<(), Error> {
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

    pub(super) fn read_records(
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

    /// Statements that only look, or matter to nobody.
    pub(super) fn query(
        &self,
        lane: Lane,
        text: &str,
        deadline: Deadline,
    ) -> Result<Vec<Said>, Error> {
        let when = (deadline, deadline);
        let said = self.pool.on_connection(lane, deadline, |lent| {
            self.insist(when, || self.read(lent, text, when))
        });
        said.map_err(|failure| failure.error)
    }
}

fn shown(token: &[u8]) -> Option<String> {
    Some(Token::from_bits(token.try_into().ok()?).shown())
}
