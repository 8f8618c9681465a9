//! The particulars of a failure.

use std::ffi::c_char;

use super::boundary::{self, Failure};
use super::bytes::{Lent, one_line};
use super::status::{LEASEHOLD_OK, leasehold_status};
use super::table::{self, Handled, Kind};

/// The particulars of a failure, from the last argument of the call that failed. Free it with
/// leasehold_error_free().
pub struct leasehold_error(());

pub(super) struct ErrorObject {
    status: leasehold_status,
    message: Lent,
    detail: Lent,
}

impl ErrorObject {
    pub(super) fn new(failure: Failure) -> ErrorObject {
        ErrorObject {
            status: failure.status,
            message: Lent::new(one_line(&failure.message())),
            detail: Lent::new(one_line(&failure.detail)),
        }
    }
}

impl Handled for ErrorObject {
    type Handle = leasehold_error;
    const KIND: Kind = Kind::Error;
}

/// The status that the failed call returned; LEASEHOLD_OK for NULL, LEASEHOLD_ERR_HANDLE for what
/// is no error. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_error_status(error: *const leasehold_error) -> leasehold_status {
    if error.is_null() {
        return LEASEHOLD_OK;
    }
    boundary::call(std::ptr::null_mut(), || Ok(table::get::<ErrorObject>(error)?.status))
}

/// What went wrong and what to do about it, as one sentence of UTF-8 without a line end. It never
/// shows a password. Borrowed: it is valid until the error is freed. Never NULL: for NULL, and for
/// what is no error, it says so. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_error_message(error: *const leasehold_error) -> *const c_char {
    if error.is_null() {
        return c"no error".as_ptr();
    }
    boundary::value(c"not the handle of an error".as_ptr(), || {
        Ok(table::get::<ErrorObject>(error)?.message.start())
    })
}

/// Only what is special about this failure, without the sentences that
/// leasehold_status_message() and leasehold_status_advice() have for its status; may be empty.
/// Borrowed: it is valid until the error is freed. Never NULL. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_error_detail(error: *const leasehold_error) -> *const c_char {
    boundary::value(c"".as_ptr(), || Ok(table::get::<ErrorObject>(error)?.detail.start()))
}

/// Frees an error and its strings. Does nothing for NULL, and for a handle that is wrong. Any
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_error_free(error: *mut leasehold_error) {
    boundary::silent(|| table::take::<ErrorObject>(error).map(drop));
}
