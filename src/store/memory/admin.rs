//! What operators see, and breaking a grant. An operator of a store in memory is the program itself.

use std::ops::Bound::{Excluded, Included, Unbounded};

use super::MemoryStore;
use super::gate::Whose;
use crate::clock::{Deadline, Moment, wall_micros};
use crate::error::Error;
use crate::store::breaking::{Breaches, StoredGrant};
use crate::store::listing::{Bookmark, PAGE, Page, Wanted};
use crate::store::{Admin, Failure, Lane, LockState};

impl Admin for MemoryStore {
    fn inspect(&self, name: &[u8], deadline: Deadline) -> Result<LockState, Error> {
        self.memory.gate.pass_to_look(Whose::Call, deadline)?;
        let (locks, now) = (self.memory.locks.lock(), Moment::now());
        let Some(lock) = locks.names.get(&self.key(name)) else { return Ok(LockState::default()) };
        let (waiters, more_waiters) = lock.waiting(now);
        Ok(LockState { waiters, more_waiters, ..lock.seen(now).state() })
    }

    fn list(&self, wanted: &Wanted, from: &Bookmark, deadline: Deadline) -> Result<Page, Error> {
        self.memory.gate.pass_to_look(Whose::Call, deadline)?;
        let (locks, now) = (self.memory.locks.lock(), Moment::now());
        let (first, end) = wanted.range(&self.prefix);
        let begin = from.name.clone().map_or(Included(first), Excluded);
        let rows = locks.names.range((begin, Unbounded));
        let rows = rows.take_while(|(key, _)| end.as_ref().is_none_or(|end| *key < end));
        let rows = rows.take(PAGE).map(|(key, lock)| Ok((key.clone(), lock.seen(now))));
        Page::fill(rows, wanted, &self.prefix)
    }

    fn held(&self, name: &[u8], deadline: Deadline) -> Result<Option<StoredGrant>, Error> {
        self.memory.gate.pass_to_look(Whose::Call, deadline)?;
        self.seen(name).held(name)
    }

    fn break_grant(
        &self,
        held: &StoredGrant,
        by: &[u8],
        deadline: Deadline,
    ) -> Result<bool, Failure> {
        let (sent, fate) = (Moment::now(), self.memory.gate.pass(Whose::Call, deadline)?);
        let (mut locks, times) = (self.memory.locks.lock(), (Moment::now(), wall_micros()));
        let lock = locks.names.get_mut(&self.key(&held.name));
        fate.reply(sent, lock.is_some_and(|lock| lock.break_grant(held, by, times)))
    }

    fn breaches(&self, _lane: Lane, of: &[&[u8]], deadline: Deadline) -> Breaches {
        if let Err(error) = self.memory.gate.pass_to_look(Whose::Background, deadline) {
            return vec![Err(error)];
        }
        let (locks, now) = (self.memory.locks.lock(), Moment::now());
        let breach = |name: &&[u8]| locks.names.get(&self.key(name))?.breach(now).cloned();
        of.iter().map(|name| Ok(breach(name))).collect()
    }
}
