//! What C holds: numbers in the shape of pointers, and the table that they lead to.
//!
//! A handle is never followed as a pointer. It is found in the table or not, so a handle that was
//! freed, is of another type or comes from somewhere else finds nothing. No number is given twice.
//! Bit 0 is set: no pointer to a real object can be taken for a handle. The bits above it say the
//! type, those from bit 5 on which object it is.
//!
//! A call that looks an object up shares it until the call ends; freeing a handle takes it out of
//! the table only, so that nobody's call loses its object.
//!
//! A forked child may have inherited the table's mutex in any state. So the table remembers its
//! process, which is asked before the mutex is touched. A child that opens something gets a table
//! of its own, whose objects are numbered on from its parent's: a handle of the parent's stays
//! recognizable, and is told apart from a wrong one.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

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
const KIND_MASK: u64 = 0xf;
const NUMBER_SHIFT: u32 = 5;
const NUMBER_MASK: u64 = u64::MAX >> NUMBER_SHIFT;

/// Numbers are multiplied by this, so that the neighbours of a handle are no handles.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15; // 2^64 over the golden ratio
/// What undoes that: each round of Newton's doubles how many bits are right, and 3 are at first.
const GATHER: u64 = {
    let (mut inverse, mut bits) = (SPREAD, 3);
    while bits < u64::BITS {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(SPREAD.wrapping_mul(inverse)));
        bits *= 2;
    }
    inverse
};

/// What numbers are counted from. Two copies of the library in one process, one linked statically
/// perhaps, lie at different addresses and so count far apart: the handles of one are wrong for the
/// other.
fn origin() -> u64 {
    (std::ptr::from_ref(&FIRST).addr() as u64 >> 12) << 27
}

type Object = Arc<dyn Any + Send + Sync>;

struct Table {
    process: OneProcess,
    /// The number of the first object: those below are an ancestor's.
    first: u64,
    /// The number of the next object. Beside the mutex, for children. It cannot run out.
    next: AtomicU64,
    /// By their handles.
    objects: Mutex<BTreeMap<usize, Object>>,
}

impl Table {
    const fn new(first: u64) -> Table {
        Table {
            process: OneProcess::new(),
            first,
            next: AtomicU64::new(first),
            objects: Mutex::new(BTreeMap::new()),
        }
    }

    /// Makes sure that the handle can be of this process, whose mutex may be touched then.
    fn check<T: Handled>(&self, handle: *const T) -> Result<(), Failure> {
        if handle.is_null() {
            return Err(wrong::<T>("is NULL"));
        }
        let bits = handle.addr() as u64;
        if bits & 1 == 0 || bits >> KIND_SHIFT & KIND_MASK != T::KIND.0 {
            return Err(wrong::<T>("is of another type, or no handle at all"));
        }
        let spread = bits >> NUMBER_SHIFT;
        let number = spread.wrapping_mul(GATHER).wrapping_sub(origin()) & NUMBER_MASK;
        let inherited = match self.process.is_this() {
            true => number < self.first,
            // Nothing was opened here yet, so whatever can be a handle is an ancestor's.
            false => number < self.next.load(Ordering::Relaxed),
        };
        if inherited {
            return Err(Error::bare(ErrorKind::Forked).into());
        }
        if !self.process.is_this() {
            return Err(wrong::<T>("was never one of this process"));
        }
        Ok(())
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
        let next = Box::leak(Box::new(Table::new(table.next.load(Ordering::Relaxed))));
        // Two threads of the child may be first together. The second one leaks its empty table.
        let _ = LATER.compare_exchange(before, next, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// Hands an object out to C.
pub(super) fn open<T: Handled>(object: T) -> Result<*mut T, Failure> {
    panic_point();
    let table = own();
    let number = table.next.fetch_add(1, Ordering::Relaxed).wrapping_add(origin());
    let bits = number.wrapping_mul(SPREAD) << NUMBER_SHIFT | T::KIND.0 << KIND_SHIFT | 1;
    table.objects.lock().insert(bits as usize, Arc::new(object));
    Ok(std::ptr::without_provenance_mut(bits as usize))
}

/// The object that a handle stands for, shared with calls that use or free it meanwhile.
pub(super) fn get<T: Handled>(handle: *const T) -> Result<Arc<T>, Failure> {
    panic_point();
    let table = current();
    table.check(handle)?;
    let object = table.objects.lock().get(&handle.addr()).cloned();
    typed(object)
}

/// Takes the object out of the table: its handle is wrong from now on.
pub(super) fn take<T: Handled>(handle: *const T) -> Result<Arc<T>, Failure> {
    panic_point();
    let table = current();
    table.check(handle)?;
    let mut objects = table.objects.lock();
    let object = objects.remove(&handle.addr());
    if objects.is_empty() {
        // A program that has freed everything finds that nothing is left, not even the table.
        *objects = BTreeMap::new();
    }
    drop(objects);
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
    if table.process.is_this() { table.objects.lock().len() } else { 0 }
}
