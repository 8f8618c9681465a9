//! Which connection a request may use, and how long it waits for one.
//!
//! The pool hands out slots, not connections: making a slot costs nothing and cannot fail, and
//! a caller that gets an empty one dials on its own thread, by its own deadline, and sees its own typed
//! error. (A pool that dials for its callers does so on threads of its own, with timeouts of its
//! own, and hands errors on as text.)
//!
//! Slots that are not in use lie in r2d2, or, in a forked child, in a plain list: r2d2 and its
//! executor sleep on parking_lot while they set up (see `sync`), and a child that was forked at this
//! moment would sleep for ever.

use std::convert::Infallible;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use r2d2::{ManageConnection, PooledConnection};

use super::executor::Executor;
use super::wire::Wire;
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::fork::OneProcess;
use crate::store::Lane;
use crate::sync::{Mutex, Permit, Permits, Turnstile, TurnstileGuard};

/// A place for one connection, empty at first and after every fault.
#[derive(Default)]
pub(super) struct Slot {
    // Slots are moved for every request, and a connection is large.
    pub(super) wire: Option<Box<Wire>>,
}

/// Makes the pools of one client, one for each server.
#[derive(Clone)]
pub(super) struct Pools {
    size: u32,
    executor: Arc<Executor>,
}

pub(super) struct Pool {
    size: u32,
    /// As many as there are slots: a caller that is let in finds a slot.
    entrance: Permits,
    idle: Idle,
    giver: Turnstile<Slot>,
    keeper: Turnstile<Slot>,
}

/// The callers' slots that are not in use.
enum Idle {
    // Dropped in this order: a pool leaves its executor before that one ends.
    Pool { slots: r2d2::Pool<Slots>, _executor: Arc<Executor> },
    List(Mutex<Vec<Slot>>),
}

/// A slot in use. One of the callers' is put back before the next caller is let in.
pub(super) enum Lent<'a> {
    Pooled { slot: PooledConnection<Slots>, _permit: Permit<'a> },
    Listed { slot: Listed<'a>, _permit: Permit<'a> },
    Reserved(TurnstileGuard<'a, Slot>),
}

/// A slot of a list; dropping it puts it back.
pub(super) struct Listed<'a> {
    slot: Slot,
    list: &'a Mutex<Vec<Slot>>,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.list.lock().push(std::mem::take(&mut self.slot));
    }
}

impl Pools {
    pub(super) fn new(size: u32) -> Pools {
        Pools { size, executor: Arc::default() }
    }

    pub(super) fn make(&self) -> Result<Pool, Error> {
        static R2D2_USED_IN: OneProcess = OneProcess::new();
        let Pools { size, executor } = self;
        let idle = if R2D2_USED_IN.is_this() {
            Idle::Pool { slots: executor.build(Slots, *size)?, _executor: Arc::clone(executor) }
        } else {
            Idle::List(Mutex::new((0..*size).map(|_| Slot::default()).collect()))
        };
        let (giver, keeper) = Default::default();
        Ok(Pool { size: *size, entrance: Permits::new(*size), idle, giver, keeper })
    }
}

impl Pool {
    fn take<'a>(&'a self, permit: Option<Permit<'a>>) -> Option<Lent<'a>> {
        let permit = permit?;
        match &self.idle {
            Idle::Pool { slots, .. } => {
                Some(Lent::Pooled { slot: slots.try_get()?, _permit: permit })
            }
            Idle::List(list) => {
                let slot = list.lock().pop()?;
                Some(Lent::Listed { slot: Listed { slot, list }, _permit: permit })
            }
        }
    }

    /// Lends the slot that the lane allows.
    pub(super) fn lend(&self, lane: Lane, deadline: Deadline) -> Result<Lent<'_>, Error> {
        let lent = match lane {
            Lane::Caller => self.take(self.entrance.take(deadline)),
            Lane::Give(_) => self
                .take(self.entrance.take_now())
                .or_else(|| self.giver.enter(deadline).map(Lent::Reserved)),
            Lane::Keeper => self.keeper.enter(deadline).map(Lent::Reserved),
        };
        lent.ok_or_else(|| {
            let what = match lane {
                Lane::Caller => format!("all {} connections of the pool were in use", self.size),
                _ => "every connection was in use".to_owned(),
            };
            Error::new(ErrorKind::Exhausted, what)
        })
    }

    /// Lends a slot while `with` runs.
    pub(super) fn with<T>(
        &self,
        lane: Lane,
        deadline: Deadline,
        with: impl FnOnce(&mut Slot) -> T,
    ) -> Result<T, Error> {
        self.lend(lane, deadline).map(|mut slot| with(&mut slot))
    }

    /// Lends the slots that are not in use, one after the other, until `lend` says stop.
    pub(super) fn each_idle(&self, mut lend: impl FnMut(&mut Slot) -> bool) {
        let callers = std::iter::from_fn(|| self.take(self.entrance.take_now()));
        let reserved = [&self.giver, &self.keeper].into_iter().filter_map(Turnstile::enter_now);
        let mut lent = Vec::new();
        for mut slot in callers.chain(reserved.map(Lent::Reserved)) {
            let goes_on = lend(&mut slot);
            lent.push(slot);
            if !goes_on {
                break;
            }
        }
        // The slot that was used last is the next to be used.
        while lent.pop().is_some() {}
    }

    /// Lends a slot that has a connection and is not in use, if there is one.
    pub(super) fn with_open<T>(&self, lend: impl FnOnce(&mut Slot) -> T) -> Option<T> {
        if let Some(mut slot) = self.giver.enter_now().filter(|slot| slot.wire.is_some()) {
            return Some(lend(&mut slot));
        }
        let mut empty = Vec::new();
        while let Some(mut slot) = self.take(self.entrance.take_now()) {
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

impl Deref for Lent<'_> {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        match self {
            Lent::Pooled { slot, .. } => slot,
            Lent::Listed { slot, .. } => &slot.slot,
            Lent::Reserved(slot) => slot,
        }
    }
}

impl DerefMut for Lent<'_> {
    fn deref_mut(&mut self) -> &mut Slot {
        match self {
            Lent::Pooled { slot, .. } => slot,
            Lent::Listed { slot, .. } => &mut slot.slot,
            Lent::Reserved(slot) => slot,
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
