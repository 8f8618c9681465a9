//! Which connection a request may use, and how long it waits for one.
//!
//! The pool hands out slots, not connections: making a slot costs nothing and cannot fail, and
//! whoever gets an empty one dials on its own thread, by its own deadline, and sees its own typed
//! error. (A pool that dials for its callers does so on threads of its own, with timeouts of its
//! own, and hands errors on as text.)

use std::convert::Infallible;
use std::sync::Arc;

use parking_lot::Mutex;
use r2d2::ManageConnection;
use scheduled_thread_pool::ScheduledThreadPool;

use super::wire::Wire;
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::store::Lane;

/// A place for one connection, empty at first and after every fault.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) wire: Option<Wire>,
}

pub(super) struct Pool {
    callers: r2d2::Pool<Slots>,
    giver: Mutex<Slot>,
    keeper: Mutex<Slot>,
}

impl Pool {
    pub(super) fn new(size: u32) -> Pool {
        let executor = ScheduledThreadPool::builder()
            .num_threads(1)
            .thread_name_pattern("leasehold-pool")
            .build();
        let callers = r2d2::Pool::builder()
            .max_size(size)
            // A PING before each use would double the cost of a lock.
            .test_on_check_out(false)
            .idle_timeout(None)
            .max_lifetime(None)
            // One thread, which makes the slots at the start and then sleeps, instead of three.
            .thread_pool(Arc::new(executor))
            .build_unchecked(Slots);
        Pool { callers, giver: Mutex::default(), keeper: Mutex::default() }
    }

    /// Lends the slot that the lane allows.
    pub(super) fn with<T>(
        &self,
        lane: Lane,
        deadline: Deadline,
        lend: impl FnOnce(&mut Slot) -> T,
    ) -> Result<T, Error> {
        let busy = |what: String| Error::new(ErrorKind::Exhausted, what);
        match lane {
            Lane::Caller => match self.callers.get_timeout(deadline.left()) {
                Ok(mut slot) => Ok(lend(&mut slot)),
                Err(_) => Err(busy(format!(
                    "all {} connections of the pool were in use",
                    self.callers.max_size()
                ))),
            },
            Lane::Give(patience) => {
                if let Some(mut slot) = self.callers.try_get() {
                    return Ok(lend(&mut slot));
                }
                match self.giver.try_lock_for(patience.min(deadline.left())) {
                    Some(mut slot) => Ok(lend(&mut slot)),
                    None => Err(busy("every connection was in use".to_owned())),
                }
            }
            Lane::Keeper => Ok(lend(&mut self.keeper.lock())),
        }
    }

    /// Lends a slot that has a connection and is not in use, if there is one.
    pub(super) fn with_open<T>(&self, lend: impl FnOnce(&mut Slot) -> T) -> Option<T> {
        if let Some(mut slot) = self.giver.try_lock().filter(|slot| slot.wire.is_some()) {
            return Some(lend(&mut slot));
        }
        let mut empty = Vec::new();
        while let Some(mut slot) = self.callers.try_get() {
            if slot.wire.is_some() {
                // Others may fill them meanwhile.
                drop(empty);
                return Some(lend(&mut slot));
            }
            empty.push(slot);
        }
        None
    }
}

/// Makes empty slots.
#[derive(Debug)]
struct Slots;

impl ManageConnection for Slots {
    type Connection = Slot;
    type Error = Infallible;

    fn connect(&self) -> Result<Slot, Infallible> {
        Ok(Slot::default())
    }

    fn is_valid(&self, _: &mut Slot) -> Result<(), Infallible> {
        Ok(())
    }

    /// A slot whose connection failed has been emptied already.
    fn has_broken(&self, _: &mut Slot) -> bool {
        false
    }
}
