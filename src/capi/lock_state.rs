//! Who has a lock.

use std::ffi::c_char;

use super::boundary;
use super::bytes::{Lent, millis};
use super::table::{self, Handled, Kind};
use crate::LockState;

/// Who had a lock when leasehold_lock_inspect() asked. It does not change any more. Free it with
/// leasehold_lock_state_free().
pub struct leasehold_lock_state(());

pub(super) struct LockStateObject {
    held: bool,
    token_prefix: Lent,
    ttl_ms: i64,
    fence: u64,
    last_fence: u64,
}

impl LockStateObject {
    pub(super) fn new(state: &LockState) -> LockStateObject {
        let holder = state.holder.as_ref();
        LockStateObject {
            held: holder.is_some(),
            token_prefix: Lent::new(holder.map_or("", |holder| &holder.token_prefix)),
            ttl_ms: holder.map_or(0, |holder| millis(holder.ttl)),
            fence: holder.and_then(|holder| holder.fence).unwrap_or(0),
            last_fence: state.last_fence.unwrap_or(0),
        }
    }
}

impl Handled for LockStateObject {
    type Handle = leasehold_lock_state;
    const KIND: Kind = Kind::LockState;
}

/// Whether somebody had the lock; false for a wrong handle. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_state_is_held(state: *const leasehold_lock_state) -> bool {
    boundary::value(false, || Ok(table::get::<LockStateObject>(state)?.held))
}

/// The first digits of the holder's token: enough to tell holders apart, too few to release with.
/// Empty when the lock was free. Borrowed: it is valid until `state` is freed. Never NULL. Any
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_state_token_prefix(
    state: *const leasehold_lock_state,
) -> *const c_char {
    boundary::value(c"".as_ptr(), || Ok(table::get::<LockStateObject>(state)?.token_prefix.start()))
}

/// In how many milliseconds the lock would be free if nobody renewed it; 0 when it was free. Any
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_state_ttl_ms(state: *const leasehold_lock_state) -> i64 {
    boundary::value(0, || Ok(table::get::<LockStateObject>(state)?.ttl_ms))
}

/// The holder's fence; 0 when the lock was free, or another program holds it without a fence. Any
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_state_fence(state: *const leasehold_lock_state) -> u64 {
    boundary::value(0, || Ok(table::get::<LockStateObject>(state)?.fence))
}

/// The last fence that was given out; 0 where the store does not know it any more. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_state_last_fence(
    state: *const leasehold_lock_state,
) -> u64 {
    boundary::value(0, || Ok(table::get::<LockStateObject>(state)?.last_fence))
}

/// Frees a lock state and its strings. Does nothing for NULL, and for a handle that is wrong.
/// Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_state_free(state: *mut leasehold_lock_state) {
    boundary::silent(|| table::take::<LockStateObject>(state).map(drop));
}
