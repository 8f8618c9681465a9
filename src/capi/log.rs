//! Where the library's log goes.

mod socket;

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

use log::{LevelFilter, Log, Metadata, Record};

use super::boundary::{self, leasehold_error, take_place};
use super::bytes::one_line;
use super::failure::{Failure, bad, leasehold_status};
use crate::fork::Birth;

/// How important a record of the log is: one of LEASEHOLD_LOG_...
pub type leasehold_log_level = i32;
/// No records at all.
pub const LEASEHOLD_LOG_OFF: leasehold_log_level = 0;
/// A defect, or a server that makes no sense.
pub const LEASEHOLD_LOG_ERROR: leasehold_log_level = 1;
/// A lease that was lost or is at risk, renewals that fail.
pub const LEASEHOLD_LOG_WARN: leasehold_log_level = 2;
/// Milestones.
pub const LEASEHOLD_LOG_INFO: leasehold_log_level = 3;
/// What helps to find a fault.
pub const LEASEHOLD_LOG_DEBUG: leasehold_log_level = 4;
/// Everything.
pub const LEASEHOLD_LOG_TRACE: leasehold_log_level = 5;

/// The most bytes of a record in the socket of leasehold_log_socket(); the message is cut there.
pub const LEASEHOLD_LOG_RECORD: usize = 4096;

/// Gets a record of the log: UTF-8 without a line end, valid during the call, never with a
/// password. It is called on any thread, the library's own included, and on several at once. It may
/// call this library; what the library logs meanwhile on the same thread is dropped. It must
/// return, not longjmp() or throw; a child that is forked within it must not return, but exec or
/// exit.
pub type leasehold_log_fn = Option<
    unsafe extern "C" fn(
        user_data: *mut c_void,
        level: leasehold_log_level,
        message: *const c_char,
    ),
>;

/// Sends the library's log to `function`, from `level` on (LEASEHOLD_LOG_WARN suits most programs).
/// NULL, or LEASEHOLD_LOG_OFF, ends that. There is one for the process; without it, nothing is
/// written anywhere.
///
/// When this returns, no other thread is in the former function any more, so that what its
/// `user_data` leads to can be freed. Within the function itself, it can only be ended, and that
/// does not wait for others. Any thread. Errors: LEASEHOLD_ERR_BAD_ARGUMENT for a level that there
/// is not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_log_set(
    function: leasehold_log_fn,
    user_data: *mut c_void,
    level: leasehold_log_level,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || set(function, user_data, level))
}

/// Sends the library's log, from `level` on, to a socket in place of a function: for languages whose
/// code cannot be called on any thread at any time. `*descriptor` is the end to read from, and the
/// caller's to close. Each read(2) of it brings one record: a digit that is its level, and the
/// message, with no zero byte behind it; of LEASEHOLD_LOG_RECORD bytes at most. It does not block:
/// poll(2) tells when a record waits. Records that nobody reads are dropped when it is full.
///
/// It ends as a function does, by leasehold_log_set() or another call of this; then it can be read to
/// its end. A forked child writes nothing into what it inherited, and can have one of its own. Any
/// thread. Errors: as leasehold_log_set(), for LEASEHOLD_LOG_OFF too; LEASEHOLD_ERR_EXHAUSTED when no
/// descriptors are left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_log_socket(
    level: leasehold_log_level,
    descriptor: *mut c_int,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::output(error, "descriptor", descriptor, || socket::open(level))
}

fn set(
    function: leasehold_log_fn,
    user_data: *mut c_void,
    level: leasehold_log_level,
) -> Result<(), Failure> {
    let filter = match level {
        LEASEHOLD_LOG_OFF => LevelFilter::Off,
        LEASEHOLD_LOG_ERROR => LevelFilter::Error,
        LEASEHOLD_LOG_WARN => LevelFilter::Warn,
        LEASEHOLD_LOG_INFO => LevelFilter::Info,
        LEASEHOLD_LOG_DEBUG => LevelFilter::Debug,
        LEASEHOLD_LOG_TRACE => LevelFilter::Trace,
        _ => return Err(bad(format!("there is no log level {level}"))),
    };
    let receiver = function.filter(|_| filter != LevelFilter::Off);
    if receiver.is_some() && INSIDE.get() {
        return Err(bad("a log function can be ended from within, not replaced"));
    }
    if INSIDE.get() {
        // A thread that sets another one at this moment waits for this very call to end.
        FUNCTION.store(std::ptr::null_mut(), Ordering::SeqCst);
        return Ok(());
    }
    let _setting = loop {
        match Visit::enter(SETTING) {
            Some(setting) => break setting,
            None => pause(),
        }
    };
    install()?;
    while Visit::calls() > 0 {
        pause();
    }
    let function = receiver.map_or(std::ptr::null_mut(), |receiver| receiver as *mut ());
    // A child that is forked in between finds no function, never the former one with the new data.
    let former = FUNCTION.swap(std::ptr::null_mut(), Ordering::SeqCst);
    let former_data = USER_DATA.swap(user_data, Ordering::SeqCst);
    if former == socket::write as Function as *mut () {
        socket::close(former_data);
    }
    FUNCTION.store(function, Ordering::SeqCst);
    log::set_max_level(receiver.map_or(LevelFilter::Off, |_| filter));
    Ok(())
}

type Function = unsafe extern "C" fn(*mut c_void, leasehold_log_level, *const c_char);

static FUNCTION: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
static USER_DATA: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// This thread is in the log function.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether this call was made by the log function.
pub(super) fn is_inside() -> bool {
    INSIDE.get()
}

/// How many threads are in the log function, [`SETTING`] if one sets it, and in the upper half the
/// process of both. Not a mutex: a forked child, which logs too, could inherit it locked.
static VISITS: AtomicU64 = AtomicU64::new(0);

const CALL: u64 = 1;
const SETTING: u64 = 1 << 31;
const PROCESS: u64 = !0 << 32;

/// A call of the log function, or the one thread that sets it.
struct Visit {
    kind: u64,
    birth: Birth,
}

impl Visit {
    /// `None` while a thread sets the function.
    fn enter(kind: u64) -> Option<Visit> {
        let birth = Birth::here();
        let enter = |visits| (visits & SETTING == 0).then_some(visits + kind);
        let visits = |visits| enter(Visit::of(birth, visits));
        VISITS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, visits).ok()?;
        Some(Visit { kind, birth })
    }

    /// Without the visits of a parent, whose threads a child does not have.
    fn of(birth: Birth, visits: u64) -> u64 {
        let here = birth.number() << 32;
        if visits & PROCESS == here { visits } else { here }
    }

    fn calls() -> u64 {
        Visit::of(Birth::here(), VISITS.load(Ordering::SeqCst)) & !PROCESS & !SETTING
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        // A thread that forked within the function is not counted in the child.
        if self.birth.is_here() {
            VISITS.fetch_sub(self.kind, Ordering::SeqCst);
        }
    }
}

fn pause() {
    std::thread::sleep(Duration::from_millis(1));
}

/// Only called by the thread that sets.
fn install() -> Result<(), Failure> {
    if std::ptr::addr_eq(log::logger(), &raw const LOGGER) {
        return Ok(());
    }
    // Not set_logger: a child that is forked while another thread is in it would spin for ever.
    // SAFETY: one thread sets at a time, and a host in Rust sets its own logger before it calls C.
    unsafe { log::set_logger_racy(&LOGGER) }
        .map_err(|_| bad("this program has a logger already, in Rust"))
}

/// Not empty, so that no other static has its address.
struct Logger(#[allow(dead_code)] u8);

static LOGGER: Logger = Logger(0);

impl Log for Logger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        !INSIDE.get()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let Some(_call) = Visit::enter(CALL) else { return };
        let function = FUNCTION.load(Ordering::SeqCst);
        if function.is_null() {
            return;
        }
        // SAFETY: what is stored there and is not null was a Function.
        let function = unsafe { std::mem::transmute::<*mut (), Function>(function) };
        let mut text = record.args().to_string();
        if let Some(place) = take_place() {
            text.push_str(&format!(" (panicked at {place})"));
        }
        let text = CString::new(one_line(&text)).unwrap_or_default();
        INSIDE.set(true);
        // SAFETY: the header asks for a function that may be called so, from any thread, until it
        // is ended; `_call` is what ending waits for.
        unsafe {
            function(USER_DATA.load(Ordering::SeqCst), record.level() as i32, text.as_ptr());
        }
        INSIDE.set(false);
    }

    fn flush(&self) {}
}
