//! What C holds: numbers in the shape of pointers, and the table that they lead to.
//!
//! A handle is never followed as a pointer. It is found in the table or not, so a handle that was
//! freed, is of another type or comes from somewhere else finds nothing. No number is given twice.
//! Bit 0 is set: no pointer to a real object can be taken for a handle.
//!
//! A call that looks an object up shares it until the call ends; freeing a handle takes it out of
//! the table only, so that nobody's call loses its object.
//!
//! A forked child gets a table of its own, whose objects are numbered on from its parent's: a handle
//! of the parent's is told apart from a wrong one. What a child may use of its parent's moves into its
//! table when it is first asked for. That needs the parent's table whole: one that was in the midst of
//! a change is not touched.

use std::any::{Any, type_name};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::failure::{Failure, LEASEHOLD_ERR_HANDLE, panic_point};
use crate::error::{Error, ErrorKind};
use crate::fork::{HANDLES, OneProcess};
use crate::sync::Mutex;

/// An object that C can hold.
pub(super) trait Handled: Any + Send + Sync + Sized {
    /// What a forked child has of it: nothing, unless it is said otherwise.
    fn in_child(&self) -> Option<Self> {
        None
    }
}

/// Numbers are multiplied by this, so that the neighbours of a handle are no handles.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15; // 2^64 over the golden ratio
/// What undoes that.
const GATHER: u64 = 0xf1de_83e1_9937_733d;
const _: () = assert!(SPREAD.wrapping_mul(GATHER) == 1);

/// What numbers are counted from. Two copies of the library in one process, one linked statically
/// perhaps, lie at different addresses and so count far apart: neither knows the other's handles.
fn origin() -> u64 {
    (std::ptr::from_ref(&FIRST).addr() as u64 >> 12) << 27
}

struct Table {
    process: OneProcess,
    /// The table of the process that this one was forked from, where it is whole.
    parent: Option<&'static Table>,
    /// The number of the first object: those below are an ancestor's.
    first: u64,
    /// The number of the next object. Beside the mutex, for children. It cannot run out.
    next: AtomicU64,
    /// By their handles.
    objects: Mutex<Objects>,
}

type Objects = HashMap<usize, Arc<dyn Any + Send + Sync>, BuildHasherDefault<Spread>>;

/// Hashes a handle by its bytes, the highest one last. The map looks first at the lowest bits of a
/// hash, and those of a handle are as far apart as the numbers that are in use: with 1 in 4096 of them
/// left, all others freed, nearly all would be looked for in the same few places. The highest bits of
/// the product are spread, whichever numbers are in use.
#[derive(Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn write_usize(&mut self, handle: usize) {
        self.0 = (handle as u64).swap_bytes();
    }

    fn write(&mut self, _: &[u8]) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Table {
    const fn new(first: u64, parent: Option<&'static Table>) -> Table {
        Table {
            process: OneProcess::new(),
            parent,
            first,
            next: AtomicU64::new(first),
            objects: Mutex::new(HashMap::with_hasher(BuildHasherDefault::new())),
        }
    }
}

static FIRST: Table = Table::new(0, None);
/// The table of a forked child. What it replaces is leaked: the parent's threads may have been in
/// the midst of using it, and what may be used of it is left there until it is asked for.
static LATER: AtomicPtr<Table> = AtomicPtr::new(std::ptr::null_mut());

/// The table of this process, made anew in a forked child.
fn current() -> &'static Table {
    loop {
        // Read once: what is replaced has to be the very table that was looked at. Another thread
        // may have made one meanwhile, with handles in it.
        let before = LATER.load(Ordering::Acquire);
        // SAFETY: what is stored in LATER comes from Box::leak, and nobody ever frees it.
        let table = unsafe { before.as_ref() }.unwrap_or(&FIRST);
        if table.process.is_this() {
            return table;
        }
        let (first, parent) =
            (table.next.load(Ordering::Relaxed), HANDLES.is_whole().then_some(table));
        let next = Box::leak(Box::new(Table::new(first, parent)));
        // Two threads of the child may be first together. The second one leaks its empty table.
        let _ = LATER.compare_exchange(before, next, Ordering::AcqRel, Ordering::Acquire);
    }
}

pub(super) fn handle_of(number: u64) -> usize {
    (number.wrapping_mul(SPREAD) << 1 | 1) as usize
}

/// Hands an object out to C.
pub(super) fn open<T: Handled>(object: T) -> Result<*mut T, Failure> {
    panic_point();
    let table = current();
    let number = table.next.fetch_add(1, Ordering::Relaxed).wrapping_add(origin());
    let handle = handle_of(number);
    let _steady = HANDLES.steady();
    table.objects.lock().insert(handle, Arc::new(object));
    Ok(std::ptr::without_provenance_mut(handle))
}

/// The table that a handle can be in.
fn table_of<T: Handled>(handle: *const T) -> Result<&'static Table, Failure> {
    panic_point();
    if handle.is_null() {
        return Err(wrong::<T>("is NULL"));
    }
    let bits = handle.addr() as u64;
    if bits & 1 == 0 {
        return Err(wrong::<T>("is of another type, or no handle at all"));
    }
    let table = current();
    let number = (bits >> 1).wrapping_mul(GATHER).wrapping_sub(origin()) & u64::MAX >> 1;
    if number < table.first {
        inherit::<T>(table, handle.addr())?;
    }
    Ok(table)
}

/// Moves an object of an ancestor's into the table, if a child may use it.
fn inherit<T: Handled>(table: &'static Table, handle: usize) -> Result<(), Failure> {
    let _steady = HANDLES.steady();
    let mut own = table.objects.lock();
    if own.contains_key(&handle) {
        return Ok(());
    }
    for ancestor in std::iter::successors(table.parent, |one| one.parent) {
        let mut objects = ancestor.objects.lock();
        let object = objects.get(&handle).cloned().and_then(|object| object.downcast::<T>().ok());
        if let Some(object) = object.and_then(|object| object.in_child()) {
            own.insert(handle, Arc::new(object));
            objects.remove(&handle);
            return Ok(());
        }
    }
    Err(Error::bare(ErrorKind::Forked).into())
}

/// The object that a handle stands for, shared with calls that use or free it meanwhile.
pub(super) fn get<T: Handled>(handle: *const T) -> Result<Arc<T>, Failure> {
    let table = table_of(handle)?;
    let steady = HANDLES.steady();
    let object = table.objects.lock().get(&handle.addr()).cloned();
    drop(steady);
    object.and_then(|object| object.downcast::<T>().ok()).ok_or_else(unknown::<T>)
}

/// Takes the object out of the table: its handle is wrong from now on.
pub(super) fn take<T: Handled>(handle: *const T) -> Result<Arc<T>, Failure> {
    let table = table_of(handle)?;
    let _steady = HANDLES.steady();
    let mut objects = table.objects.lock();
    let object = match objects.entry(handle.addr()) {
        Entry::Occupied(object) if object.get().is::<T>() => Some(object.remove()),
        _ => None,
    };
    if objects.is_empty() {
        // A program that has freed everything finds that nothing is left, not even the table.
        *objects = Objects::default();
    }
    object.and_then(|object| object.downcast::<T>().ok()).ok_or_else(unknown::<T>)
}

fn unknown<T: Handled>() -> Failure {
    wrong::<T>("was freed, is of another type, or never was one")
}

fn wrong<T: Handled>(how: &str) -> Failure {
    let name = type_name::<T>().rsplit("leasehold_").next().unwrap_or_default().replace('_', " ");
    Failure::new(LEASEHOLD_ERR_HANDLE, format!("what was given for the {name} {how}"))
}

/// How many handles are open in this process.
pub(super) fn count() -> usize {
    let _steady = HANDLES.steady();
    current().objects.lock().len()
}
