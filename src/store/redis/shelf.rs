//! Where the slots lie that nobody uses: with r2d2, or, in a forked child, in a plain list.
//!
//! r2d2 and its executor sleep on parking_lot while they set up (see `sync`). A child whose parent
//! had done so at the moment of the fork would sleep for ever.

use std::convert::Infallible;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};

use r2d2::{ManageConnection, PooledConnection};
use scheduled_thread_pool::ScheduledThreadPool;

use super::pool::Slot;
use crate::error::{Error, ErrorKind};
use crate::fork::{OneProcess, without_signals};
use crate::sync::Mutex;

static R2D2_USED_IN: OneProcess = OneProcess::new();

pub(super) enum Shelf {
    // Dropped in this order: the pool has left its executor when the wait of that one's thread ends.
    Pool { slots: r2d2::Pool<Slots>, _executor_rests: Sender<Infallible> },
    List(Mutex<Vec<Slot>>),
}

impl Shelf {
    pub(super) fn new(size: u32) -> Result<Shelf, Error> {
        if R2D2_USED_IN.is_this() {
            return Shelf::pool(size);
        }
        Ok(Shelf::List(Mutex::new((0..size).map(|_| Slot::default()).collect())))
    }

    fn pool(size: u32) -> Result<Shelf, Error> {
        let failed = |what: &str| Error::new(ErrorKind::Exhausted, format!("the pool: {what}"));
        // It panics where no thread can be had.
        let build = || {
            ScheduledThreadPool::builder()
                .num_threads(1)
                .thread_name_pattern("leasehold-pool")
                .build()
        };
        let executor = std::panic::catch_unwind(|| without_signals(build));
        let executor = Arc::new(executor.map_err(|_| failed("no thread can be started"))?);
        let slots = r2d2::Pool::builder()
            .max_size(size)
            // A PING before each use would double the cost of a lock.
            .test_on_check_out(false)
            .idle_timeout(None)
            .max_lifetime(None)
            .thread_pool(Arc::clone(&executor))
            .build(Slots)
            .map_err(|error| failed(&error.to_string()))?;
        // All slots are made: the executor has nothing left to do.
        let (sender, rest) = mpsc::channel();
        executor.execute(move || {
            let _: Result<Infallible, _> = rest.recv();
        });
        Ok(Shelf::Pool { slots, _executor_rests: sender })
    }

    /// A slot, if one lies here.
    pub(super) fn take(&self) -> Option<Taken<'_>> {
        match self {
            Shelf::Pool { slots, .. } => slots.try_get().map(Taken::Pooled),
            Shelf::List(list) => {
                let slot = list.lock().pop();
                slot.map(|slot| Taken::Listed { slot, list })
            }
        }
    }
}

/// A slot in use; dropping it puts it back.
pub(super) enum Taken<'a> {
    Pooled(PooledConnection<Slots>),
    Listed { slot: Slot, list: &'a Mutex<Vec<Slot>> },
}

impl Deref for Taken<'_> {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        match self {
            Taken::Pooled(slot) => slot,
            Taken::Listed { slot, .. } => slot,
        }
    }
}

impl DerefMut for Taken<'_> {
    fn deref_mut(&mut self) -> &mut Slot {
        match self {
            Taken::Pooled(slot) => slot,
            Taken::Listed { slot, .. } => slot,
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Taken::Listed { slot, list } = self {
            list.lock().push(std::mem::take(slot));
        }
    }
}

/// Makes empty slots.
#[derive(Debug)]
pub(super) struct Slots;

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
