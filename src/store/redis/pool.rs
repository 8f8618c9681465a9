//! Which connection a request may use, and how long it waits for one.
//!
//! The pool hands out slots, not connections: making a slot costs nothing and cannot fail, and
//! whoever gets an empty one dials on its own thread, by its own deadline, and sees its own typed
//! error. (A pool that dials for its callers does so on threads of its own, with timeouts of its
//! own, and hands errors on as text.)

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};

use parking_lot::Mutex;
use r2d2::{ManageConnection, PooledConnection};
use scheduled_thread_pool::ScheduledThreadPool;

use super::wire::Wire;
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::store::Lane;
use crate::sync::{Permit, Permits, Turnstile};

/// A place for one connection, empty at first and after every fault.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) wire: Option<Wire>,
}

pub(super) struct Pool {
    /// As many as there are slots: whoever has one finds a slot and never sleeps in the pool,
    /// where a forked child would trip over him (see `sync`).
    entrance: Permits,
    callers: r2d2::Pool<Slots>,
    giver: Turnstile<Slot>,
    /// Only the keeper's thread comes here.
    keeper: Mutex<Slot>,
    /// Ends the wait of the executor's thread when the pool is dropped.
    _executor_rests: Sender<Infallible>,
}

/// A slot of the pool in use.
struct Loan<'a> {
    // Dropped in this order: first the slot is back, then the next one is let in.
    slot: PooledConnection<Slots>,
    _permit: Permit<'a>,
}

impl Pool {
    pub(super) fn new(size: u32) -> Result<Pool, Error> {
        let failed = |what: &str| Error::new(ErrorKind::Exhausted, format!("the pool: {what}"));
        // It panics where no thread can be had.
        let executor = std::panic::catch_unwind(|| {
            ScheduledThreadPool::builder()
                .num_threads(1)
                .thread_name_pattern("leasehold-pool")
                .build()
        });
        let executor = Arc::new(executor.map_err(|_| failed("no thread can be started"))?);
        let callers = r2d2::Pool::builder()
            .max_size(size)
            // A PING before each use would double the cost of a lock.
            .test_on_check_out(false)
            .idle_timeout(None)
            .max_lifetime(None)
            .thread_pool(Arc::clone(&executor))
            .build(Slots)
            .map_err(|error| failed(&error.to_string()))?;
        // All slots are made: the executor has nothing left to do, and is kept from sleeping
        // where a forked child would trip over it.
        let (sender, rest) = mpsc::channel();
        executor.execute(move || {
            let _: Result<Infallible, _> = rest.recv();
        });
        Ok(Pool {
            entrance: Permits::new(size),
            callers,
            giver: Turnstile::default(),
            keeper: Mutex::default(),
            _executor_rests: sender,
        })
    }

    fn loan<'a>(&'a self, permit: Option<Permit<'a>>) -> Option<Loan<'a>> {
        let permit = permit?;
        Some(Loan { slot: self.callers.try_get()?, _permit: permit })
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
            Lane::Caller => match self.loan(self.entrance.take(deadline)) {
                Some(mut loan) => Ok(lend(&mut loan.slot)),
                None => Err(busy(format!(
                    "all {} connections of the pool were in use",
                    self.callers.max_size()
                ))),
            },
            Lane::Give(_) => {
                if let Some(mut loan) = self.loan(self.entrance.take_now()) {
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

    /// Lends a slot that has a connection and is not in use, if there is one.
    pub(super) fn with_open<T>(&self, lend: impl FnOnce(&mut Slot) -> T) -> Option<T> {
        if let Some(mut slot) = self.giver.enter_now().filter(|slot| slot.wire.is_some()) {
            return Some(lend(&mut slot));
        }
        let mut empty = Vec::new();
        while let Some(mut loan) = self.loan(self.entrance.take_now()) {
            if loan.slot.wire.is_some() {
                // Others may fill them meanwhile.
                drop(empty);
                return Some(lend(&mut loan.slot));
            }
            empty.push(loan);
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
