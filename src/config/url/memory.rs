//! URLs of stores in memory: `memory:`, `memory:name` and, since others write it so, `memory://name`.

use super::{Parts, decode, text};
use crate::error::Error;

/// The name: whatever opens the same name in one process has the same store.
pub(super) fn read(parts: &Parts<'_>) -> Result<String, Error> {
    text(decode("name", parts.body.strip_prefix("//").unwrap_or(parts.body))?)
}
