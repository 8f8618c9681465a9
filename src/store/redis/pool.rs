//! Which connection a request may use, and how long it waits for one.
//!
//! The pool hands out slots, not connections: making a slot costs nothing and cannot fail, and
//! whoever gets an empty one dials on its own thread, by its own deadline, and sees its own typed
//! error. (A pool that dials for its callers does so on threads of its own, with timeouts of its
//! own, and hands errors on as text.)

use std::ops::{Deref, DerefMut};

use super::shelf::{Shelf, Taken};
use super::wire::Wire;
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::store::Lane;
use crate::sync::{Permit, Permits, Turn, Turnstile};

/// A place for one connection, empty at first and after every fault.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) wire: Option<Wire>,
}

pub(super) struct Pool {
    size: u32,
    /// As many as there are slots: whoever has one finds a slot.
    entrance: Permits,
    callers: Shelf,
    giver: Turnstile<Slot>,
    /// Only the keeper's thread comes here.
    keeper: parking_lot::Mutex<Slot>,
}

/// A slot in use.
// A box would be an allocation for every request.
#[allow(clippy::large_enum_variant)]
pub(super) enum Lent<'a> {
    Pooled(Loan<'a>),
    Giver(Turn<'a, Slot>),
    Keeper(parking_lot::MutexGuard<'a, Slot>),
}

/// A slot of the pool in use.
pub(super) struct Loan<'a> {
    // Dropped in this order: first the slot is back, then the next one is let in.
    slot: Taken<'a>,
    _permit: Permit<'a>,
}

impl Pool {
    pub(super) fn new(size: u32) -> Result<Pool, Error> {
        Ok(Pool {
            size,
            entrance: Permits::new(size),
            callers: Shelf::new(size)?,
            giver: Turnstile::default(),
            keeper: parking_lot::Mutex::default(),
        })
    }

    fn loan<'a>(&'a self, permit: Option<Permit<'a>>) -> Option<Loan<'a>> {
        let permit = permit?;
        Some(Loan { slot: self.callers.take()?, _permit: permit })
    }

    /// Lends the slot that the lane allows.
    pub(super) fn lend(&self, lane: Lane, deadline: Deadline) -> Result<Lent<'_>, Error> {
        let busy = |what: String| Error::new(ErrorKind::Exhausted, what);
        match lane {
            Lane::Caller => match self.loan(self.entrance.take(deadline)) {
                Some(loan) => Ok(Lent::Pooled(loan)),
                None => Err(busy(format!("all {} connections of the pool were in use", self.size))),
            },
            Lane::Give(_) => {
                if let Some(loan) = self.loan(self.entrance.take_now()) {
                    return Ok(Lent::Pooled(loan));
                }
                match self.giver.enter(deadline) {
                    Some(slot) => Ok(Lent::Giver(slot)),
                    None => Err(busy("every connection was in use".to_owned())),
                }
            }
            Lane::Keeper => Ok(Lent::Keeper(self.keeper.lock())),
        }
    }

    /// The same, for as long as `with` takes.
    pub(super) fn with<T>(
        &self,
        lane: Lane,
        deadline: Deadline,
        with: impl FnOnce(&mut Slot) -> T,
    ) -> Result<T, Error> {
        self.lend(lane, deadline).map(|mut slot| with(&mut slot))
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

impl Deref for Lent<'_> {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        match self {
            Lent::Pooled(loan) => &loan.slot,
            Lent::Giver(slot) => slot,
            Lent::Keeper(slot) => slot,
        }
    }
}

impl DerefMut for Lent<'_> {
    fn deref_mut(&mut self) -> &mut Slot {
        match self {
            Lent::Pooled(loan) => &mut loan.slot,
            Lent::Giver(slot) => slot,
            Lent::Keeper(slot) => slot,
        }
    }
}
