//! Ending a grant that is another's.

use std::ffi::c_char;

use super::boundary::{self, leasehold_error};
use super::bytes::{MAX_TEXT, bytes};
use super::failure::{Failure, LEASEHOLD_BUSY, LEASEHOLD_LOST, leasehold_status};
use super::lock::leasehold_lock;
use super::table;
use crate::Break;

/// Frees a lock that somebody else has and does not give: the first waiter is handed it at once, under a
/// larger fence. Nothing stops the holder before its next renewal, when its lease is lost, and its event,
/// error and log say who broke it: `by`, of `by_length` bytes or LEASEHOLD_NUL, such as "root@web-3". With
/// an `if_fence` other than 0, which leasehold_lock_state_fence() tells of a free lock, only the lease with
/// that fence is broken.
///
/// Returns LEASEHOLD_OK and writes the fence of the lease that is over, 0 where the store did not know
/// it; LEASEHOLD_BUSY when another lease has the lock than `if_fence` says; LEASEHOLD_LOST when nobody
/// has it; LEASEHOLD_UNKNOWN where the store did not confirm it: then the same call again tells. Any
/// thread. Errors: LEASEHOLD_ERR_WRONG_TYPE where what has the name is no lock of this library; others
/// what kept the store from answering, by io_timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_break(
    lock: *mut leasehold_lock,
    if_fence: u64,
    by: *const c_char,
    by_length: usize,
    fence: *mut u64,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::output(error, "fence", fence, || {
        // No option matters for it, so none that was refused is in the way.
        let lock = table::get(lock)?.plain();
        let by = String::from_utf8_lossy(bytes("operator", by, by_length, MAX_TEXT)?);
        match lock.break_held((if_fence != 0).then_some(if_fence), &by)? {
            Break::Broken { fence } => Ok(fence),
            Break::NotHeld => Err(Failure::new(LEASEHOLD_LOST, "nobody has it")),
            Break::OtherFence { .. } => Err(Failure::new(LEASEHOLD_BUSY, "")),
        }
    })
}
