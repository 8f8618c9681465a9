//! One server: what each run of it is told first.
//!
//! One that may have lost data waits from the first guarded word on, and should not wait for
//! somebody to want a lock: so whoever connects says it.

use redis::Value;

use super::replies::pack_loads;
use super::single::{Letter, Single};
use crate::error::Error;
use crate::store::redis::dialect::{Batch, RunId, guard};
use crate::store::redis::fault;
use crate::store::redis::wire::Wire;
use crate::sync::Mutex;

/// The first word, and the run that has heard it.
pub(super) struct Meeting {
    word: Batch,
    met: Mutex<Option<RunId>>,
}

impl Single {
    /// Tells each run of the server this word first.
    pub(in crate::store::redis) fn meeting(self, word: Option<Batch>) -> Single {
        let meeting = word.map(|word| Meeting { word, met: Mutex::default() });
        Single { meeting, ..self }
    }

    /// Says the first word on a new connection, if this is a new run. Not before one that declares
    /// it new: it would be in quarantine by then. An error means that it is not worth a connection
    /// at the moment; nothing else has been sent.
    pub(super) fn meet(&self, wire: &mut Wire, letter: &Letter<'_>) -> Result<(), Error> {
        let Some(Meeting { word, met }) = &self.meeting else { return Ok(()) };
        if *met.lock() == wire.run || guard::is_init(letter.batch) {
            return Ok(());
        }
        let (mut bytes, loads) = pack_loads(word);
        bytes.extend_from_slice(&word.for_run(wire.run.as_ref())?);
        let sent = wire.send(&bytes, letter.connect_by);
        sent.map_err(|(_, error)| fault::io("the first word", &error))?;
        for _ in 0..loads {
            // Whoever may not load it may still call it.
            wire.receive(letter.connect_by)?;
        }
        match wire.receive(letter.connect_by)? {
            // It still reads its file, and would answer nothing else either.
            Value::ServerError(error) if error.code() == "LOADING" => {
                return Err(fault::server(&error));
            }
            // What is in the way is in the way of a grant, too, which begins the quarantine then.
            Value::ServerError(error) => {
                log::debug!("the first word to a server: {}", fault::server(&error));
            }
            _ => *met.lock() = wire.run,
        }
        Ok(())
    }
}
