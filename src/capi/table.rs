//! What C holds: numbers in the shape of pointers, and the table that they lead to.
//!
//! A handle is never followed as a pointer. Its bits say of which type it is, in which slot the
//! object lies and how often that slot had been used before, so a handle that was freed, is of
//! another type or comes from somewhere else finds nothing. Bit 0 is set: no pointer to a real
//! object can be taken for a handle.
//!
//! ```text
//! 63 ............ 32 | 31 ......... 5 | 4 .. 1 | 0
//!     generation     |   slot         |  kind  | 1
//! ```
//!
//! A call that looks an object up shares it until the call ends; freeing a handle takes it out of
//! the table only, so that nobody's call loses its object.
//!
//! A forked child may have inherited the table's mutex in any state. So the table remembers its
//! process, which is asked before the mutex is touched. A child that opens something gets a table
//! of its own, whose slots are numbered on from its parent's: a handle of the parent's stays
//! recognizable, and is told apart from a wrong one.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::failure::{Failure, LEASEHOLD_ERR_HANDLE, panic_point};
use crate::error::{Error, ErrorKind};
use crate::fork::OneProcess;
use crate::sync::Mutex;

/// An object that C can hold, by the type that the C compiler knows.
pub(super) trait Handled: Any + Send + Sync {
    /// Its number among the bits of a handle, and its name.
    const KIND: (u64, &'static str);
}

const KIND_SHIFT: u32 = 1;
const SLOT_SHIFT: u32 = 5;
const GENERATION_SHIFT: u32 = 32;
const KIND_MASK: u64 = 0xf;
const SLOT_MASK: u64 = (1 << (GENERATION_SHIFT - SLOT_SHIFT)) - 1;

/// A handle, read bit by bit.
#[derive(Clone, Copy)]
struct Parts {
    kind: u64,
    slot: u32,
    generation: u32,
}

impl Parts {
    fn read(value: usize) -> Option<Parts> {
        let value = value as u64;
        (value & 1 == 1).then_some(Parts {
            kind: value >> KIND_SHIFT & KIND_MASK,
            slot: (value >> SLOT_SHIFT & SLOT_MASK) as u32,
            generation: (value >> GENERATION_SHIFT) as u32,
        })
    }

    fn write(self) -> usize {
        let Parts { kind, slot, generation } = self;
        (u64::from(generation) << GENERATION_SHIFT
            | u64::from(slot) << SLOT_SHIFT
            | kind << KIND_SHIFT
            | 1) as usize
    }
}

type Object = Arc<dyn Any + Send + Sync>;

struct Table {
    process: OneProcess,
    /// The number of the first slot: those below are an ancestor's.
    first: u32,
    /// One more than the highest slot that was ever in use. Kept beside the mutex, for children.
    end: AtomicU32,
    slots: Mutex<Slots>,
}

struct Slots {
    slots: Vec<Slot>,
    /// The last slot that was freed, and so on by [`Slot::next_free`].
    free: Option<u32>,
    open: usize,
    /// With which generation a new slot begins at the least: larger than any that was in use, when
    /// the slots themselves have been let go.
    first_generation: u32,
}

struct Slot {
    generation: u32,
    /// Of the object that lies here, or lay here last.
    kind: u64,
    next_free: Option<u32>,
    object: Option<Object>,
}

impl Table {
    const fn new(first: u32) -> Table {
        Table {
            process: OneProcess::new(),
            first,
            end: AtomicU32::new(first),
            slots: Mutex::new(Slots {
                slots: Vec::new(),
                free: None,
                open: 0,
                first_generation: 0,
            }),
        }
    }

    /// Where generations begin. Two copies of the library in one process, one linked statically
    /// perhaps, lie at different addresses and so begin far apart: the handles of one are wrong
    /// for the other.
    fn origin(&self) -> u32 {
        const SPREAD: u32 = 0x9e37_79b1; // 2^32 over the golden ratio
        let page = (std::ptr::from_ref(self).addr() >> 12) as u32;
        page.wrapping_mul(SPREAD) >> 1
    }

    /// What a handle says, once it is clear that it can be of this process.
    fn check<T: Handled>(&self, handle: *const T) -> Result<Parts, Failure> {
        if handle.is_null() {
            return Err(wrong::<T>("is NULL"));
        }
        let parts = Parts::read(handle.addr()).filter(|parts| parts.kind == T::KIND.0);
        let parts = parts.ok_or_else(|| wrong::<T>("is of another type, or no handle at all"))?;
        let inherited = match self.process.is_this() {
            true => parts.slot < self.first,
            // Nothing was opened here yet, so whatever can be a handle is an ancestor's.
            false => parts.slot < self.end.load(Ordering::Relaxed),
        };
        if inherited {
            return Err(Error::bare(ErrorKind::Forked).into());
        }
        if !self.process.is_this() {
            return Err(wrong::<T>("was never one of this process"));
        }
        Ok(parts)
    }
}

impl Slots {
    fn slot(&mut self, first: u32, parts: Parts) -> Option<&mut Slot> {
        let index = parts.slot.checked_sub(first)?;
        let slot = self.slots.get_mut(index as usize)?;
        (slot.generation == parts.generation && slot.kind == parts.kind).then_some(slot)
    }

    fn put(&mut self, table: &Table, kind: u64, object: &Object) -> Option<Parts> {
        let index = match self.free {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.slots.len()).ok()?;
                if u64::from(table.first) + u64::from(index) > SLOT_MASK {
                    return None;
                }
                let generation = self.first_generation.max(table.origin());
                self.slots.push(Slot { generation, kind, next_free: None, object: None });
                table.end.fetch_max(table.first + index + 1, Ordering::Relaxed);
                index
            }
        };
        let slot = self.slots.get_mut(index as usize)?;
        self.free = slot.next_free.take();
        slot.kind = kind;
        slot.object = Some(Arc::clone(object));
        self.open += 1;
        Some(Parts { kind, slot: table.first + index, generation: slot.generation })
    }

    fn take(&mut self, first: u32, parts: Parts) -> Option<Object> {
        let free = self.free;
        let slot = self.slot(first, parts)?;
        let object = slot.object.take()?;
        // A slot whose generations are used up is never used again: its number would come back.
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            slot.next_free = free;
            self.free = Some(parts.slot - first);
        }
        self.open -= 1;
        if self.open == 0 {
            self.let_go();
        }
        Some(object)
    }

    /// A program that has freed everything finds that nothing is left, not even the table.
    fn let_go(&mut self) {
        let highest = self.slots.iter().map(|slot| slot.generation).max().unwrap_or(0);
        if highest < u32::MAX {
            self.first_generation = self.first_generation.max(highest);
            self.slots = Vec::new();
            self.free = None;
        }
    }
}

static FIRST: Table = Table::new(0);
/// The table of a forked child. What it replaces is leaked: the parent's threads may have been in
/// the midst of using it.
static LATER: AtomicPtr<Table> = AtomicPtr::new(std::ptr::null_mut());

fn current() -> &'static Table {
    table_at(LATER.load(Ordering::Acquire))
}

fn table_at(later: *mut Table) -> &'static Table {
    // SAFETY: what is stored in LATER comes from Box::leak, and nobody ever frees it.
    unsafe { later.as_ref() }.unwrap_or(&FIRST)
}

/// The table of this process, made anew in a forked child.
fn own() -> &'static Table {
    loop {
        // Read once: what is replaced has to be the very table that was looked at. Another thread
        // may have made one meanwhile, with handles in it.
        let before = LATER.load(Ordering::Acquire);
        let table = table_at(before);
        if table.process.is_this() {
            return table;
        }
        let next = Box::leak(Box::new(Table::new(table.end.load(Ordering::Relaxed))));
        // Two threads of the child may be first together. The second one leaks its empty table.
        let _ = LATER.compare_exchange(before, next, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// Hands an object out to C.
pub(super) fn open<T: Handled>(object: T) -> Result<*mut T, Failure> {
    panic_point();
    let table = own();
    let object: Object = Arc::new(object);
    // An object that finds no place is dropped when the mutex is free again: it may be a lease.
    let parts = table.slots.lock().put(table, T::KIND.0, &object);
    let full = || Error::new(ErrorKind::Exhausted, "too many handles are open");
    Ok(std::ptr::without_provenance_mut(parts.ok_or_else(full)?.write()))
}

/// The object that a handle stands for, shared with calls that use or free it meanwhile.
pub(super) fn get<T: Handled>(handle: *const T) -> Result<Arc<T>, Failure> {
    panic_point();
    let table = current();
    let parts = table.check::<T>(handle)?;
    let object = table.slots.lock().slot(table.first, parts).and_then(|slot| slot.object.clone());
    typed(object)
}

/// Takes the object out of the table: its handle is wrong from now on.
pub(super) fn take<T: Handled>(handle: *const T) -> Result<Arc<T>, Failure> {
    panic_point();
    let table = current();
    let parts = table.check::<T>(handle)?;
    let object = table.slots.lock().take(table.first, parts);
    typed(object)
}

fn typed<T: Handled>(object: Option<Object>) -> Result<Arc<T>, Failure> {
    object
        .and_then(|object| object.downcast::<T>().ok())
        .ok_or_else(|| wrong::<T>("was freed, or never was one"))
}

fn wrong<T: Handled>(how: &str) -> Failure {
    Failure::new(LEASEHOLD_ERR_HANDLE, format!("what was given for the {} {how}", T::KIND.1))
}

/// How many handles are open in this process.
pub(super) fn count() -> usize {
    let table = current();
    if table.process.is_this() { table.slots.lock().open } else { 0 }
}
