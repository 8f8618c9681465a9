//! What each run of a server is told first.
//!
//! A server that may have lost data waits from the first guarded word on, and should not wait for
//! a client that wants a lock: so every new connection to a new run says it.

use redis::Value;

use crate::clock::Deadline;
use crate::error::Error;
use crate::store::redis::dialect::{Batch, RunId};
use crate::store::redis::fault;
use crate::store::redis::wire::Wire;
use crate::sync::Mutex;

/// The word, and the last run that was told.
pub(super) struct FirstWord {
    word: Batch,
    told: Mutex<Option<RunId>>,
}

impl FirstWord {
    pub(super) fn new(word: Batch) -> FirstWord {
        FirstWord { word, told: Mutex::default() }
    }

    /// Says the word on a new connection, if this is a new run. An error means that the connection
    /// is of no use at the moment; nothing else has been sent.
    pub(super) fn say(&self, wire: &mut Wire, by: Deadline) -> Result<(), Error> {
        if *self.told.lock() == wire.run {
            return Ok(());
        }
        let (mut bytes, loads) = self.word.loads();
        bytes.extend_from_slice(&self.word.for_run(wire.run.as_ref())?);
        wire.send(&bytes, by).map_err(|(_, error)| fault::io("the first word", &error))?;
        for _ in 0..loads {
            // A user that may not load it may still call it.
            wire.receive(by)?;
        }
        match wire.receive(by)? {
            // It still reads its file, and would answer nothing else either.
            Value::ServerError(error) if error.code() == "LOADING" => Err(fault::server(&error)),
            // What prevents this prevents a grant, too, and the first grant begins the quarantine.
            Value::ServerError(error) => {
                log::debug!("the first word to a server: {}", fault::server(&error));
                Ok(())
            }
            _ => {
                *self.told.lock() = wire.run;
                Ok(())
            }
        }
    }
}
