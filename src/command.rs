//! What the `leasehold` command and tests use beside the public interface. It may change at any time.

pub use crate::client::note_run;
pub use crate::config::parse_duration;
pub use crate::election::Limits;
pub use crate::error::plain;
pub use crate::lock::{break_shown, last_breach};
pub use crate::store::breaking::Breach;
