//! What a test does to a store: the store's side of `leasehold::testing`.

use std::time::Duration;

use super::{Locks, Memory};
use crate::clock::Moment;
use crate::config::limits::MAX_TTL;
use crate::error::{Error, ErrorKind};
use crate::store::{Reply, Seen};
use crate::token::Token;

impl Memory {
    /// What each name is to those who ask, of those that are held.
    fn held_in(locks: &Locks, now: Moment) -> impl Iterator<Item = (&Vec<u8>, Seen)> {
        let seen = locks.names.iter().map(move |(key, name)| (key, name.seen(now)));
        seen.filter(|(_, seen)| seen.is_held)
    }

    pub(crate) fn held(&self) -> Vec<Vec<u8>> {
        let locks = self.locks.lock();
        Memory::held_in(&locks, Moment::now()).map(|(key, _)| key.clone()).collect()
    }

    /// Ends a grant as if its ttl had run out; false where the lock is free.
    pub(crate) fn end(&self, key: &[u8]) -> bool {
        let (mut locks, now) = (self.locks.lock(), Moment::now());
        let Some(name) = locks.names.get_mut(key) else { return false };
        let Some(token) = name.seen(now).token else { return false };
        name.give(token, 0, now) == Reply::Given
    }

    /// Takes the lock for a holder that never ends by itself; `None` where it is held.
    pub(crate) fn occupy(&self, key: &[u8]) -> Result<Option<Token>, Error> {
        let token = Token::random()?;
        let (mut locks, now) = (self.locks.lock(), Moment::now());
        let name = locks.names.entry(key.to_vec()).or_default();
        let reply = name.take(token, MAX_TTL, None, 1, now);
        let is_granted = matches!(reply, Reply::Granted { .. });
        if is_granted {
            name.stays();
        }
        Ok(is_granted.then_some(token))
    }

    /// Releases what was occupied. A lock that is not the token's any more stays as it is.
    pub(crate) fn vacate(&self, key: &[u8], token: Token) {
        let mut locks = self.locks.lock();
        if let Some(name) = locks.names.get_mut(key) {
            name.give(token, 0, Moment::now());
        }
    }

    /// Turns the store's clock on: everything that it keeps is older by so much. Returns the names whose
    /// grants have ended by it.
    ///
    /// The clock itself stays the machine's. Clients date messages by it, which would count from too late
    /// after it had jumped ahead.
    pub(crate) fn advance(&self, by: Duration) -> Vec<Vec<u8>> {
        self.records.lock().values_mut().for_each(|(_, until)| *until = until.minus(by));
        let (mut locks, now) = (self.locks.lock(), Moment::now());
        let ended = locks.names.iter_mut().filter_map(|(key, name)| {
            let is_over = name.grow_older(by, now);
            is_over.then(|| key.clone())
        });
        ended.collect()
    }

    pub(crate) fn set_paused(&self, is_paused: bool) {
        self.gate.state.lock().is_paused = is_paused;
        self.gate.wake();
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.gate.is_paused()
    }

    pub(crate) fn fail_next(&self, kind: ErrorKind) {
        self.gate.state.lock().next.push_back(kind);
    }

    /// Until [`stop_failing`](Memory::stop_failing) has the number that this returns.
    pub(crate) fn fail_all(&self, kind: ErrorKind) -> u64 {
        let mut state = self.gate.state.lock();
        let number = state.failing.iter().map(|(number, _)| *number + 1).max().unwrap_or(0);
        state.failing.push((number, kind));
        number
    }

    pub(crate) fn stop_failing(&self, number: u64) {
        self.gate.state.lock().failing.retain(|(one, _)| *one != number);
    }
}
