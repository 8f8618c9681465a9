//! One server.

use std::collections::BTreeMap;
use std::sync::Arc;

use redis::{ServerErrorKind, Value};

use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::{Failure, Lane};

use super::super::dial::Dialer;
use super::super::dialect::Batch;
use super::super::fault;
use super::super::pool::{Pool, Slot};
use super::super::wire::Wire;

pub(in crate::store::redis) struct Single {
    pool: Pool,
    dialer: Arc<Dialer>,
}

/// A reply and the moment before its request was sent, or why there is none.
pub(in crate::store::redis) type Carried = Result<(Value, Moment), Failure>;

impl Single {
    pub(in crate::store::redis) fn new(dialer: Arc<Dialer>, pool: u32) -> Result<Single, Error> {
        Ok(Single { dialer, pool: Pool::new(pool)? })
    }

    /// Sends a batch over one connection and reads as many replies.
    pub(in crate::store::redis) fn carry(
        &self,
        lane: Lane,
        batch: &Batch,
        deadline: Deadline,
    ) -> Vec<Carried> {
        // Making a connection is a part of waiting for one.
        let connect_by = match lane {
            Lane::Give(patience) => deadline.min(Deadline::after(patience)),
            Lane::Caller | Lane::Keeper => deadline,
        };
        let lend = |slot: &mut Slot| {
            let mut carried = self.send(slot, batch, connect_by, deadline);
            self.reload(slot, batch, &mut carried, deadline);
            carried
        };
        let carried = self.pool.with(lane, connect_by, lend);
        let carried = carried.unwrap_or_else(|error| all(batch, &Failure::not_done(error)));
        if lane != Lane::Caller && lacks_descriptors(&carried) {
            // There is nothing to make a connection of; what was taken must be kept and given all
            // the same.
            return self.pool.with_open(lend).unwrap_or(carried);
        }
        carried
    }

    pub(in crate::store::redis) fn ping(&self, deadline: Deadline) -> Result<(), Error> {
        let pong = self.pool.with(Lane::Caller, deadline, |slot| {
            let wire = self.ready(slot, deadline)?;
            let sent = wire.send(&redis::cmd("PING").get_packed_command(), deadline);
            let reply = match sent {
                Ok(()) => wire.receive(deadline),
                Err((_, error)) => Err(fault::io("PING", &error)),
            };
            if reply.is_err() {
                slot.wire = None;
            }
            reply
        })?;
        match pong? {
            Value::ServerError(error) => Err(fault::server(&error)),
            _ => Ok(()),
        }
    }

    /// The slot's connection, made now if there is none that works.
    fn ready<'a>(&self, slot: &'a mut Slot, connect_by: Deadline) -> Result<&'a mut Wire, Error> {
        let wire = match slot.wire.take().and_then(Wire::unless_stale) {
            Some(wire) => wire,
            None => self.dialer.dial(connect_by)?,
        };
        Ok(slot.wire.insert(wire))
    }

    fn send(
        &self,
        slot: &mut Slot,
        batch: &Batch,
        connect_by: Deadline,
        deadline: Deadline,
    ) -> Vec<Carried> {
        let was_open = slot.wire.is_some();
        let mut sent;
        loop {
            if deadline.has_passed() {
                let late = Error::new(ErrorKind::NoAnswer, "the deadline had passed");
                return all(batch, &Failure::not_done(late));
            }
            let wire = match self.ready(slot, connect_by) {
                Ok(wire) => wire,
                Err(error) => return all(batch, &Failure::not_done(error)),
            };
            sent = Moment::now();
            let Err((count, error)) = wire.send(&batch.bytes, deadline) else { break };
            slot.wire = None;
            let error = fault::io("sending", &error);
            if count > 0 {
                return all(batch, &Failure::unknown(error, sent));
            }
            // Nothing went out on a connection that had died unseen: a new one may do.
            if !was_open || error.kind() == ErrorKind::NoAnswer || deadline.has_passed() {
                return all(batch, &Failure::not_done(error));
            }
        }
        let mut carried = Vec::with_capacity(batch.calls.len());
        while carried.len() < batch.calls.len() {
            let Some(wire) = &mut slot.wire else { break };
            match wire.receive(deadline) {
                Ok(value) => carried.push(Ok((value, sent))),
                Err(error) => {
                    // Poisoned: the next reply on it could be to something else.
                    slot.wire = None;
                    let failure = Failure::unknown(error, sent);
                    carried.resize(batch.calls.len(), Err(failure));
                }
            }
        }
        carried
    }

    /// Loads scripts that the server does not have (it was restarted, or its cache flushed) and
    /// sends the calls that needed them once more: those were not carried out.
    fn reload(&self, slot: &mut Slot, batch: &Batch, carried: &mut [Carried], deadline: Deadline) {
        let missing: Vec<usize> =
            (0..carried.len()).filter(|index| lacks_script(&carried[*index])).collect();
        if missing.is_empty() {
            return;
        }
        let scripts: BTreeMap<_, _> = missing
            .iter()
            .map(|index| batch.calls[*index].script)
            .map(|script| (script.digest(), script.source))
            .collect();
        let mut load = Vec::new();
        for source in scripts.values() {
            redis::cmd("SCRIPT").arg("LOAD").arg(*source).write_packed_command(&mut load);
        }
        let loaded = match self.ready(slot, deadline) {
            Ok(wire) => match wire.send(&load, deadline) {
                Ok(()) => receive_loaded(wire, scripts.len(), deadline),
                Err((_, error)) => Err((fault::io("sending", &error), true)),
            },
            Err(error) => Err((error, false)),
        };
        if let Err((error, broken)) = loaded {
            if broken {
                slot.wire = None;
            }
            for index in missing {
                carried[index] = Err(Failure::not_done(error.clone()));
            }
            return;
        }
        let again = self.send(slot, &batch.only(&missing), deadline, deadline);
        for (index, result) in missing.into_iter().zip(again) {
            carried[index] = result;
        }
    }
}

/// The error, and whether the connection is of no use after it.
fn receive_loaded(wire: &mut Wire, count: usize, deadline: Deadline) -> Result<(), (Error, bool)> {
    let mut refused = Ok(());
    for _ in 0..count {
        match wire.receive(deadline) {
            Ok(Value::ServerError(error)) => refused = Err((fault::server(&error), false)),
            Ok(_) => {}
            Err(error) => return Err((error, true)),
        }
    }
    refused
}

/// No connection could be made, for want of descriptors or the like. (A pool that was in use is
/// not meant, and would give nothing either.)
fn lacks_descriptors(carried: &[Carried]) -> bool {
    matches!(carried.first(), Some(Err(failure))
        if failure.sent.is_none() && failure.error.kind() == ErrorKind::Exhausted)
}

fn lacks_script(carried: &Carried) -> bool {
    matches!(carried, Ok((Value::ServerError(error), _))
        if error.kind() == Some(ServerErrorKind::NoScript))
}

fn all(batch: &Batch, failure: &Failure) -> Vec<Carried> {
    batch.calls.iter().map(|_| Err(failure.clone())).collect()
}
