//! Which connection a request may use, and how long it waits for one.
//!
//! The pool hands out slots, not connections: making a slot costs nothing and cannot fail, and
//! whoever gets an empty one dials on its own thread, by its own deadline, and sees its own typed
//! error. (A pool that dials for its callers does so on threads of its own, with timeouts of its
//! own, and hands errors on as text.)

use super::wire::Wire;
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::Lane;
use crate::sync::{Condvar, Mutex, Turnstile};

/// A place for one connection, empty at first and after every fault.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) wire: Option<Wire>,
}

pub(super) struct Pool {
    /// The slots that nobody uses; the one that was used last comes first.
    idle: Mutex<Vec<Slot>>,
    returned: Condvar,
    size: u32,
    giver: Turnstile<Slot>,
    keeper: Mutex<Slot>,
}

impl Pool {
    pub(super) fn new(size: u32) -> Pool {
        Pool {
            idle: Mutex::new((0..size).map(|_| Slot::default()).collect()),
            returned: Condvar::default(),
            size,
            giver: Turnstile::default(),
            keeper: Mutex::default(),
        }
    }

    /// One of the idle slots, waited for until the deadline.
    fn borrow(&self, deadline: Deadline) -> Option<Loan<'_>> {
        let mut idle = self.idle.lock();
        loop {
            if let Some(slot) = idle.pop() {
                return Some(Loan { pool: self, slot });
            }
            let left = deadline.left();
            if left.is_zero() {
                return None;
            }
            idle = self.returned.wait_for(idle, left);
        }
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
            Lane::Caller => match self.borrow(deadline) {
                Some(mut loan) => Ok(lend(&mut loan.slot)),
                None => Err(busy(format!("all {} connections of the pool were in use", self.size))),
            },
            Lane::Give(_) => {
                if let Some(mut loan) = self.borrow(Deadline::at(Moment::ZERO)) {
                    return Ok(lend(&mut loan.slot));
                }
                match self.giver.enter(deadline) {
                    Some(mut slot) => Ok(lend(&mut slot)),
                    None => Err(busy("every connection was in use".to_owned())),
                }
            }
            Lane::Keeper => Ok(lend(&mut self.keeper.lock())),
        }
    }
}

/// A slot in use; it goes back when this is dropped.
struct Loan<'a> {
    pool: &'a Pool,
    slot: Slot,
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        self.pool.idle.lock().push(std::mem::take(&mut self.slot));
        self.pool.returned.notify_one();
    }
}
