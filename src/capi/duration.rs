//! Durations as people write them.

use std::ffi::c_char;

use super::boundary::{self, leasehold_error};
use super::bytes::text;
use super::failure::leasehold_status;
use crate::parse_duration;

/// Reads a duration as people write it, of `text_length` bytes or LEASEHOLD_NUL: "250ms", "10s",
/// "1.5s", "5m", "1h" or "1d". A bare "0" is a duration too; any other number needs its unit.
///
/// Writes `*ms` on success, in milliseconds, rounded up. Any thread. Errors:
/// LEASEHOLD_ERR_BAD_ARGUMENT for anything else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_duration_parse(
    text: *const c_char,
    text_length: usize,
    ms: *mut i64,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::output(error, "ms", ms, || {
        // SAFETY: the header asks for text of that length.
        let span = parse_duration(unsafe { self::text("duration", text, text_length)? })?;
        let whole = span.as_nanos().div_ceil(1_000_000);
        Ok(i64::try_from(whole).unwrap_or(i64::MAX))
    })
}
