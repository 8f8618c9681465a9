//! What a program asks about a status, an error, and the library itself.

use std::ffi::c_char;

use super::boundary::{self, leasehold_error};
use super::failure::{Failure, LEASEHOLD_OK, is_retriable, leasehold_status, texts};
use super::table;

/// The short, stable name of a status, such as "busy", also of a number that is none. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn leasehold_status_name(status: leasehold_status) -> *const c_char {
    boundary::value(c"".as_ptr(), || Ok(texts(status)[0].as_ptr()))
}

/// What a status means, as a part of a sentence. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn leasehold_status_message(status: leasehold_status) -> *const c_char {
    boundary::value(c"".as_ptr(), || Ok(texts(status)[1].as_ptr()))
}

/// What to do about a status, as a part of a sentence; empty for LEASEHOLD_ERR_BAD_ARGUMENT, where the
/// error itself says it. An error of another status may say itself what to do, too: then its message
/// leaves this out. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn leasehold_status_advice(status: leasehold_status) -> *const c_char {
    boundary::value(c"".as_ptr(), || Ok(texts(status)[2].as_ptr()))
}

/// Whether the same call can succeed later without anybody changing anything. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn leasehold_status_is_retriable(status: leasehold_status) -> bool {
    boundary::value(false, || Ok(is_retriable(status)))
}

/// The status that the failed call returned; LEASEHOLD_OK for NULL, LEASEHOLD_ERR_HANDLE for what
/// is no error. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_error_status(error: *const leasehold_error) -> leasehold_status {
    if error.is_null() {
        return LEASEHOLD_OK;
    }
    boundary::call(std::ptr::null_mut(), || Err(Failure::new(table::get(error)?.status, "")))
}

/// What went wrong and what to do about it, as one sentence of UTF-8 without a line end, never with
/// a password. For NULL, and for what is no error, it says so. Borrowed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_error_message(error: *const leasehold_error) -> *const c_char {
    if error.is_null() {
        return c"no error".as_ptr();
    }
    boundary::get(error, c"not the handle of an error".as_ptr(), |error| error.message.start())
}

/// Only what is special about this failure, without the sentences that leasehold_status_message()
/// and leasehold_status_advice() have for its status; may be empty. Borrowed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_error_detail(error: *const leasehold_error) -> *const c_char {
    boundary::string(error, std::ptr::null_mut(), |error| &error.detail)
}

/// Frees an error and its strings. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_error_free(error: *mut leasehold_error) {
    boundary::free(error, drop);
}

/// Who had the lock when the last wait of the calling thread ran out (LEASEHOLD_TIMEOUT, for which there
/// is no error), and how long it was: "'n', held by web-3 (python worker.py, pid 4711) since 12 s, not
/// free within wait, 5 s, asked 2 times". Empty before there was any. Borrowed until the next one of
/// this thread. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn leasehold_timeout_detail() -> *const c_char {
    boundary::value(c"".as_ptr(), || Ok(boundary::timeout_detail()))
}

/// The version of the binary interface that this header describes. Within one, functions and
/// constants may be added, and nothing changes. The shared library has it in its name:
/// libleasehold.so.0.
pub const LEASEHOLD_ABI_VERSION: u32 = 0;

/// The version of the library that runs, as "0.1.0". Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn leasehold_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The LEASEHOLD_ABI_VERSION of the library that runs. A program that loads the library itself
/// compares it with the header's. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn leasehold_abi_version() -> u32 {
    LEASEHOLD_ABI_VERSION
}

/// How many handles of all types are open in this process: what has been made and not freed, by a
/// forked child itself. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn leasehold_handle_count() -> usize {
    boundary::value(0, || Ok(table::count()))
}
