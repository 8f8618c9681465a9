//! What is to be seen of a lock.

use std::ffi::c_char;

use super::boundary;
use super::bytes::{Lent, millis};
use super::table::{self, Handled, Kind};
use crate::Shown;

/// What was to be seen of a lock, from leasehold_lock_show(). It does not change any more. Free it
/// with leasehold_shown_free().
pub struct leasehold_shown(());

pub(super) struct ShownObject {
    held: bool,
    token_prefix: Lent,
    ttl_ms: i64,
    fence: u64,
    last_fence: u64,
}

impl ShownObject {
    pub(super) fn new(shown: &Shown) -> ShownObject {
        let holder = shown.holder.as_ref();
        ShownObject {
            held: holder.is_some(),
            token_prefix: Lent::new(holder.map_or("", |holder| &holder.token_prefix)),
            ttl_ms: holder.map_or(0, |holder| millis(holder.ttl)),
            fence: holder.and_then(|holder| holder.fence).unwrap_or(0),
            last_fence: shown.last_fence.unwrap_or(0),
        }
    }
}

impl Handled for ShownObject {
    type Handle = leasehold_shown;
    const KIND: Kind = Kind::Shown;
}

/// Whether somebody had the lock; false for a wrong handle. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_shown_is_held(shown: *const leasehold_shown) -> bool {
    boundary::value(false, || Ok(table::get::<ShownObject>(shown)?.held))
}

/// The first digits of the holder's token: enough to tell holders apart, too few to release with.
/// Empty when the lock was free. Borrowed: it is valid until `shown` is freed. Never NULL. Any
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_shown_token_prefix(
    shown: *const leasehold_shown,
) -> *const c_char {
    boundary::value(c"".as_ptr(), || Ok(table::get::<ShownObject>(shown)?.token_prefix.start()))
}

/// In how many milliseconds the lock would be free if nobody renewed it; 0 when it was free. Any
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_shown_ttl_ms(shown: *const leasehold_shown) -> i64 {
    boundary::value(0, || Ok(table::get::<ShownObject>(shown)?.ttl_ms))
}

/// The holder's fence; 0 when the lock was free, or another program holds it without a fence. Any
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_shown_fence(shown: *const leasehold_shown) -> u64 {
    boundary::value(0, || Ok(table::get::<ShownObject>(shown)?.fence))
}

/// The last fence that was given out; 0 where the store does not know it any more. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_shown_last_fence(shown: *const leasehold_shown) -> u64 {
    boundary::value(0, || Ok(table::get::<ShownObject>(shown)?.last_fence))
}

/// Frees what was shown, and its strings. Does nothing for NULL, and for a handle that is wrong.
/// Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_shown_free(shown: *mut leasehold_shown) {
    boundary::silent(|| table::take::<ShownObject>(shown).map(drop));
}
