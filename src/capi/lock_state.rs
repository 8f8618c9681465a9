//! Who has a lock.

use std::ffi::c_char;

use super::bytes::{CBytes, millis};
use super::{boundary, table};
use crate::{Holder, LockState};

/// Who had a lock when leasehold_lock_inspect() asked. It does not change any more. Free it with
/// leasehold_lock_state_free().
pub struct leasehold_lock_state {
    state: LockState,
    token_prefix: CBytes,
}

impl table::Handled for leasehold_lock_state {}

impl leasehold_lock_state {
    pub(super) fn new(state: LockState) -> leasehold_lock_state {
        let token_prefix = state.holder.as_ref().map_or("", |holder| &holder.token_prefix);
        leasehold_lock_state { token_prefix: CBytes::new(token_prefix), state }
    }

    fn holder(&self) -> Option<&Holder> {
        self.state.holder.as_ref()
    }
}

/// Whether somebody had the lock. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_state_is_held(state: *const leasehold_lock_state) -> bool {
    boundary::get(state, false, |state| state.holder().is_some())
}

/// The first digits of the holder's token: enough to tell holders apart, too few to release with.
/// Empty when the lock was free, and where the key holds no token: it is an application's own key, or
/// another library's lock. Borrowed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_state_token_prefix(
    state: *const leasehold_lock_state,
) -> *const c_char {
    boundary::string(state, std::ptr::null_mut(), |state| &state.token_prefix)
}

/// In how many milliseconds the lock would be free if not renewed; 0 when it was free. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_state_ttl_ms(state: *const leasehold_lock_state) -> i64 {
    boundary::get(state, 0, |state| state.holder().map_or(0, |holder| millis(holder.ttl)))
}

/// The holder's fence; 0 when the lock was free, or is held without a fence. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_state_fence(state: *const leasehold_lock_state) -> u64 {
    boundary::get(state, 0, |state| state.holder().and_then(|holder| holder.fence).unwrap_or(0))
}

/// The last fence that was given out; 0 where the store does not know it any more. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_state_last_fence(
    state: *const leasehold_lock_state,
) -> u64 {
    boundary::get(state, 0, |state| state.state.last_fence.unwrap_or(0))
}

/// Frees a lock state and its strings. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_state_free(state: *mut leasehold_lock_state) {
    boundary::free(state, drop);
}
