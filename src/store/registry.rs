//! What clients say of themselves, so that people see who has a lock and who waits.

use std::time::Duration;

use crate::clock::Deadline;
use crate::error::Error;
use crate::token::ClientId;

/// Where clients introduce themselves. Nothing is decided by it: a store that keeps no records has the
/// methods as they stand here, and a user who may not write or read them locks all the same.
pub(crate) trait Registry {
    /// Keeps what a client says of itself for its ttl, in place of what it has said before. May be sent
    /// again at any time.
    fn register(&self, _record: Record<'_>, _deadline: Deadline) -> Result<(), Error> {
        Ok(())
    }

    /// Forgets a client's record, where that can be done without waiting for an answer.
    fn unregister(&self, _client: ClientId) -> Result<(), Error> {
        Ok(())
    }

    /// The records of these clients, one for each and in the same order; `None` where there is none that
    /// may be read. Anybody may have written one: a reader looks at `LONGEST_RECORD` bytes of it.
    fn records(
        &self,
        clients: &[ClientId],
        _deadline: Deadline,
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        Ok(vec![None; clients.len()])
    }
}

/// What a client says of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) client: ClientId,
    pub(crate) text: &'a str,
    /// For how long the store keeps it.
    pub(crate) ttl: Duration,
    /// It is kept for as long although the client has ended.
    #[cfg_attr(
        not(feature = "zookeeper"),
        allow(dead_code, reason = "where nothing else ends it")
    )]
    pub(crate) outlives: bool,
}
