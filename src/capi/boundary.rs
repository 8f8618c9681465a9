//! The boundary: everything that C calls runs in here, and comes out as a status or a plain value.
//!
//! No panic leaves it, since unwinding into C is undefined. Nor does a panic print anything: Rust
//! would write it to the standard error of a program that is not ours. Where it happened, never
//! what it says, goes to the log callback (the text may hold anything, a name or a URL).

use std::cell::{Cell, RefCell};
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::bytes::{CBytes, one_line};
use super::failure::{
    Failure, LEASEHOLD_BUSY, LEASEHOLD_ERR_PANIC, LEASEHOLD_INTERRUPTED, LEASEHOLD_OK,
    LEASEHOLD_TIMEOUT, bad, leasehold_status, panic_point,
};
use super::table::{self, Handled};
use crate::fork;
use crate::said::say;

/// The particulars of a failure, from the last argument of the call that failed. Free it with
/// leasehold_error_free().
pub struct leasehold_error {
    pub(super) status: leasehold_status,
    pub(super) message: CBytes,
    pub(super) detail: CBytes,
}

impl Handled for leasehold_error {}

impl leasehold_error {
    pub(super) fn new(failure: Failure) -> leasehold_error {
        leasehold_error {
            status: failure.status,
            message: CBytes::new(one_line(&failure.message())),
            detail: CBytes::new(one_line(&failure.detail)),
        }
    }
}

/// Runs the body of a function that says how it went. `error` gets particulars of a failure, or NULL.
pub(super) fn call(
    error: *mut *mut leasehold_error,
    body: impl FnOnce() -> Result<(), Failure>,
) -> leasehold_status {
    let failure = guarded(body).err();
    let status = failure.as_ref().map_or(LEASEHOLD_OK, |failure| failure.status);
    if let Some(failure) = failure.as_ref().filter(|it| it.status == LEASEHOLD_TIMEOUT) {
        note_timeout(&failure.detail);
    }
    if !error.is_null() {
        // Outcomes that a program expects say everything by themselves. It may take them in a loop,
        // and would have to free an error each time.
        let expected = [LEASEHOLD_BUSY, LEASEHOLD_TIMEOUT, LEASEHOLD_INTERRUPTED];
        let told = |failure| guarded(|| table::open(leasehold_error::new(failure))).ok();
        let handle = failure.filter(|_| !expected.contains(&status)).and_then(told);
        // SAFETY: not NULL, so by the contract of every function it leads to room for a handle.
        unsafe { error.write(handle.unwrap_or(std::ptr::null_mut())) };
    }
    status
}

/// The same with an output, which is written last, and so on success only. NULL is refused for it
/// before anything is done that the caller could never learn of.
pub(super) fn output<T>(
    error: *mut *mut leasehold_error,
    what: &str,
    place: *mut T,
    body: impl FnOnce() -> Result<T, Failure>,
) -> leasehold_status {
    call(error, || {
        if place.is_null() {
            return Err(bad(format!("the output '{what}' is NULL")));
        }
        let value = body()?;
        // SAFETY: not NULL, so by the contract of every function it leads to room for the value.
        unsafe { place.write(value) };
        Ok(())
    })
}

/// The same with an object, whose handle is the output.
pub(super) fn open<T: Handled>(
    error: *mut *mut leasehold_error,
    what: &str,
    place: *mut *mut T,
    body: impl FnOnce() -> Result<T, Failure>,
) -> leasehold_status {
    output(error, what, place, || table::open(body()?))
}

/// Runs the body of a function that hands out a plain value, with one for the case that it fails.
pub(super) fn value<T>(otherwise: T, body: impl FnOnce() -> Result<T, Failure>) -> T {
    guarded(body).unwrap_or(otherwise)
}

/// The same with a value of an object.
pub(super) fn get<T: Handled, V>(handle: *const T, otherwise: V, read: impl FnOnce(&T) -> V) -> V {
    value(otherwise, || Ok(read(&*table::get(handle)?)))
}

/// The same with a string, whose length goes to `length` unless that is NULL.
pub(super) fn string<T: Handled>(
    handle: *const T,
    length: *mut usize,
    read: impl FnOnce(&T) -> &CBytes,
) -> *const c_char {
    let (start, bytes) = get(handle, (c"".as_ptr(), 0), |object| {
        let string = read(object);
        (string.start(), string.bytes().len())
    });
    if !length.is_null() {
        // SAFETY: not NULL, so by the contract of every function it leads to room for a length.
        unsafe { length.write(bytes) };
    }
    start
}

/// Runs the body of a function that frees an object, and says nothing.
pub(super) fn free<T: Handled>(handle: *const T, body: impl FnOnce(Arc<T>)) {
    value((), || table::take(handle).map(body));
}

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Where this thread has panicked, until somebody can be told.
    static PLACE: Cell<Option<String>> = const { Cell::new(None) };
}

thread_local! {
    /// The particulars of the last wait of this thread that ran out.
    static TIMEOUT: RefCell<Option<CBytes>> = const { RefCell::new(None) };
}

fn note_timeout(detail: &str) {
    if !detail.is_empty() {
        let note =
            || Ok(TIMEOUT.try_with(|kept| kept.replace(Some(CBytes::new(one_line(detail))))));
        drop(guarded(note));
    }
}

/// They are there until the next wait of this thread runs out.
pub(super) fn timeout_detail() -> *const c_char {
    let start = TIMEOUT.try_with(|kept| kept.borrow().as_ref().map(CBytes::start));
    start.ok().flatten().unwrap_or(c"".as_ptr())
}

fn guarded<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    quieten();
    DEPTH.set(DEPTH.get() + 1);
    // What a body can leave half done is behind mutexes that do not poison, and whole at any time.
    let result = catch_unwind(AssertUnwindSafe(|| {
        panic_point();
        body()
    }));
    let result = result.unwrap_or_else(|payload| {
        let _ = catch_unwind(|| say!(Error, "call-abandoned"));
        // Dropping what was panicked with runs its code, which may panic again.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(payload))).map_err(std::mem::forget);
        Err(Failure::new(LEASEHOLD_ERR_PANIC, ""))
    });
    DEPTH.set(DEPTH.get() - 1);
    result
}

/// Where this thread panicked since that was last asked.
pub(super) fn take_place() -> Option<String> {
    PLACE.try_with(Cell::take).ok().flatten()
}

/// Keeps panics of this library off the standard error. In a C library all panics are; in a Rust
/// program, which never gets here, others would go to the hook that was there before.
fn quieten() {
    // Not a Once: a child that is forked while another thread is in it would wait for ever.
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.load(Ordering::Relaxed) || DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current();
        let pool = thread.name().is_some_and(|name| name.starts_with("leasehold"));
        if DEPTH.get() == 0 && !pool && !fork::is_ours() {
            return before(panic);
        }
        // Not logged here: the code that panics may hold what the log callback asks for.
        let place = panic.location().map(ToString::to_string);
        let _ = PLACE.try_with(|cell| cell.set(place));
    }));
}
