//! Spans for the crate `tracing`, behind the feature of that name: one of each call that acquires a lock, and
//! one of each lease. Without the feature there are none, and what stands here takes no place and no time.
//!
//! Lines of the log are not told here a second time: `tracing-log` shows them beside the spans.

#[cfg(not(feature = "tracing"))]
mod off;
#[cfg(feature = "tracing")]
mod on;

#[cfg(not(feature = "tracing"))]
pub(crate) use self::off::{CallSpan, LeaseSpan};
#[cfg(feature = "tracing")]
pub(crate) use self::on::{CallSpan, LeaseSpan};
