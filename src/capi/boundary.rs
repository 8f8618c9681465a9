//! The boundary: everything that C calls runs in here, and comes out as a status or a plain value.
//!
//! No panic leaves it, since unwinding into C is undefined. Nor does a panic print anything: Rust
//! would write it to the standard error of a program that is not ours. Where it happened, never
//! what it says, goes to the log callback (the text may hold anything, a name or a URL).

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::{ErrorObject, leasehold_error};
use super::status::{
    self, LEASEHOLD_BUSY, LEASEHOLD_ERR_PANIC, LEASEHOLD_INTERRUPTED, LEASEHOLD_OK,
    LEASEHOLD_TIMEOUT, leasehold_status,
};
use super::table;
use crate::error::{Error, ErrorKind};
use crate::fork;

/// Why a body has nothing to hand out.
#[derive(Clone)]
pub(super) struct Failure {
    pub(super) status: leasehold_status,
    /// What is special about it; may be empty.
    pub(super) detail: String,
}

impl Failure {
    pub(super) fn new(status: leasehold_status, detail: impl Into<String>) -> Failure {
        Failure { status, detail: detail.into() }
    }

    /// The whole sentence.
    pub(super) fn message(&self) -> String {
        status::sentence(self.status, &self.detail)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let detail = match (error.kind(), error.detail()) {
            (ErrorKind::Closed, "") => "the client is closed",
            (_, detail) => detail,
        };
        Failure::new(status::of(error.kind()), detail)
    }
}

/// Runs the body of a function that says how it went. `error` gets the particulars of a failure,
/// and NULL otherwise.
pub(super) fn call(
    error: *mut *mut leasehold_error,
    body: impl FnOnce() -> Result<leasehold_status, Failure>,
) -> leasehold_status {
    let (status, failure) = match guarded(body) {
        Ok(status) => (status, None),
        Err(failure) => (failure.status, Some(failure)),
    };
    if !error.is_null() {
        let particular = failure.filter(|_| needs_particulars(status));
        let told = |failure| guarded(|| table::open(ErrorObject::new(failure))).ok();
        let handle = particular.and_then(told);
        // SAFETY: not NULL, so by the contract of every function it leads to room for a handle.
        unsafe { error.write(handle.unwrap_or(std::ptr::null_mut())) };
    }
    status
}

/// Outcomes that a program expects say everything by themselves. It may take them in a loop, and
/// would have to free an error each time.
fn needs_particulars(status: leasehold_status) -> bool {
    !matches!(status, LEASEHOLD_OK | LEASEHOLD_BUSY | LEASEHOLD_TIMEOUT | LEASEHOLD_INTERRUPTED)
}

/// Runs the body of a function that hands out a plain value, with one for the case that it fails.
pub(super) fn value<T>(otherwise: T, body: impl FnOnce() -> Result<T, Failure>) -> T {
    guarded(body).unwrap_or(otherwise)
}

/// Runs the body of a function that says nothing.
pub(super) fn silent(body: impl FnOnce() -> Result<(), Failure>) {
    let _ = guarded(body);
}

/// Writes an output. Called last, so that an output is written only on success.
///
/// # Safety
/// `place` is NULL or leads to room for a `T`.
pub(super) unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller's promise.
        unsafe { place.write(value) };
    }
}

/// Refuses NULL for an output, before anything is done that the caller could never learn of.
pub(super) fn wanted<T>(output: &str, place: *mut T) -> Result<(), Failure> {
    if !place.is_null() {
        return Ok(());
    }
    Err(super::bytes::bad(format!("the output '{output}' is NULL")))
}

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Where this thread has panicked, until somebody can be told.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

fn guarded<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    quieten();
    DEPTH.set(DEPTH.get() + 1);
    // What a body can leave half done is behind mutexes that do not poison, and whole at any time.
    let body = || {
        panic_point();
        body()
    };
    let result = catch_unwind(AssertUnwindSafe(body));
    let result = result.unwrap_or_else(|payload| {
        let _ = catch_unwind(|| ::log::error!("a call was abandoned"));
        discard(payload);
        Err(Failure::new(LEASEHOLD_ERR_PANIC, ""))
    });
    DEPTH.set(DEPTH.get() - 1);
    result
}

/// Where a test can have the library panic; nothing anywhere else.
#[track_caller]
#[inline(always)]
pub(super) fn panic_point() {
    #[cfg(test)]
    super::tests::panics::inject();
}

/// Dropping what was panicked with runs its code, which may panic again.
fn discard(payload: Box<dyn Any + Send>) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
}

/// Where this thread panicked since that was last asked.
pub(super) fn take_place() -> Option<String> {
    PLACE.try_with(|place| place.try_borrow_mut().ok()?.take()).ok().flatten()
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
        let _ = PLACE.try_with(|cell| cell.try_borrow_mut().map(|mut cell| *cell = place));
    }));
}
