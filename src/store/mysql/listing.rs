//! What is locked in the table, and breaking a grant there.

use std::time::Duration;

use super::requests::State;
use super::statements::{
    BEGIN, BREACH, BREAK, COMMIT, FORGET_BREACHES, LIST, NOTE, Values, packet,
};
use super::wire::{Row, unexpected};
use super::{KEY, MysqlStore};
use crate::clock::Deadline;
use crate::error::Error;
use crate::store::breaking::{Breach, Breaches, Held, LONGEST_BY, each_until_refused};
use crate::store::listing::{Bookmark, Listed, PAGE, Page, Wanted};
use crate::store::{Failure, Holder, Lane, LockState};
use crate::token::Token;

impl MysqlStore {
    pub(super) fn list_page(
        &self,
        wanted: &Wanted,
        from: &Bookmark,
        deadline: Deadline,
    ) -> Result<Page, Error> {
        let (first, end) = wanted.range(&self.prefix);
        let end = end.unwrap_or_else(|| vec![u8::MAX; KEY + 1]);
        let after = from.name.as_deref().unwrap_or_default();
        let values = Values { name: &first, after, until: &end, most: PAGE, ..Values::default() };
        let said = self.query(Lane::Caller, &packet(&[LIST], &values), deadline)?;
        let mut page = Page::default();
        for row in said.first().map_or(&[][..], |said| &said.rows) {
            let wrong = || unexpected("something else than a list");
            let (key, listed) = listed(row, &self.prefix).ok_or_else(wrong)?;
            page.next = Some(Bookmark { name: Some(key), ..Bookmark::default() });
            if wanted.glob.matches(&listed.name) && wanted.has(listed.state.holder.as_ref()) {
                page.listed.push(listed);
            }
        }
        Ok(page)
    }

    pub(super) fn held_by(&self, name: &[u8], deadline: Deadline) -> Result<Option<Held>, Error> {
        let state: State = self.see(name, Lane::Caller, deadline)?;
        let lease = state.lease.as_ref().filter(|lease| !state.left(lease).is_zero());
        Ok(lease.and_then(|lease| {
            Some(Held {
                name: name.into(),
                token: token(lease.token.as_deref()?)?,
                fence: Some(lease.fence),
                last: lease.last_fence,
                left: state.left(lease),
            })
        }))
    }

    pub(super) fn break_held(
        &self,
        held: &Held,
        by: &[u8],
        deadline: Deadline,
    ) -> Result<bool, Failure> {
        let (name, when) = (self.key(&held.name), (deadline, deadline));
        let values = Values {
            name: &name,
            token: Some(held.token),
            fence: held.fence.unwrap_or(0),
            record: &by[..by.len().min(LONGEST_BY)],
            ..Values::default()
        };
        let text = packet(&[BEGIN, BREAK, NOTE, FORGET_BREACHES, COMMIT], &values);
        let (_, said) = self.pool.on_connection(Lane::Caller, deadline, |lent| {
            self.insist(when, || self.change(lent, &text, when))
        })?;
        if said.get(1).is_some_and(|said| said.changed > 0) {
            return Ok(true);
        }
        let last = self.breaches_of(Lane::Caller, &[&held.name], deadline).pop().transpose();
        let last = last.map_err(Failure::not_done)?.flatten();
        Ok(last.is_some_and(|breach| breach.token == held.token))
    }

    pub(super) fn breaches_of(&self, lane: Lane, of: &[&[u8]], deadline: Deadline) -> Breaches {
        each_until_refused(of, |name| {
            let values = Values { name: &self.key(name), ..Values::default() };
            let said = self.query(lane, &packet(&[BREACH], &values), deadline)?;
            Ok(said.first().and_then(|said| said.rows.first()).and_then(|row| {
                let moment = row.number(1)?.unsigned_abs();
                Some(Breach::new(token(row.column(0)?)?, row.column(2)?, moment))
            }))
        })
    }
}

/// What a row of list.sql tells, and the key where it goes on.
fn listed(row: &Row, prefix: &[u8]) -> Option<(Vec<u8>, Listed)> {
    let number = |index| row.number(index).map(|number| u64::try_from(number).unwrap_or(0));
    let (key, now, fence) = (row.column(0)?.to_vec(), number(5)?, number(3)?);
    let holder = row.column(1).and_then(token).map(|token| (token, number(2)));
    let holder = holder.and_then(|(token, expiry)| {
        Some(Holder {
            token_prefix: token.shown(),
            ttl: Duration::from_micros(expiry?.checked_sub(now)?),
            fence: Some(fence),
            held: now.checked_sub(fence).map(Duration::from_micros),
            client: None,
        })
    });
    let name = key.strip_prefix(prefix).unwrap_or(&key).to_vec();
    let state = LockState { holder, last_fence: number(4), ..LockState::default() };
    Some((key, Listed { name, state, waiting: number(6) }))
}

fn token(bits: &[u8]) -> Option<Token> {
    Some(Token::from_bits(bits.try_into().ok()?))
}
