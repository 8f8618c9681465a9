//! What was measured, as text.

use std::ffi::c_char;

use super::bytes::CBytes;
use super::{boundary, table};

/// What leasehold_client_metrics() found. It does not change any more. Free it with
/// leasehold_metrics_free().
pub struct leasehold_metrics {
    text: CBytes,
}

impl table::Handled for leasehold_metrics {}

impl leasehold_metrics {
    pub(super) fn new(text: String) -> leasehold_metrics {
        leasehold_metrics { text: CBytes::new(text) }
    }
}

/// The text, in Prometheus' format 0.0.4, and its length, unless `length` is NULL. Borrowed. Any
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_metrics_text(
    metrics: *const leasehold_metrics,
    length: *mut usize,
) -> *const c_char {
    boundary::string(metrics, length, |metrics| &metrics.text)
}

/// Frees metrics and their text. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_metrics_free(metrics: *mut leasehold_metrics) {
    boundary::free(metrics, drop);
}
