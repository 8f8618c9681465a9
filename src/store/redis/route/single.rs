//! One server: which connection takes what, and writing.

use std::sync::Arc;

use redis::Value;

use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::{Failure, Lane, Outcome, Owed, Request};

use super::super::dial::Dialer;
use super::super::dialect::Batch;
use super::super::fault;
use super::super::owing::{About, Debt, Fetched, MOST, Owing};
use super::super::pool::{Pool, Slot};
use super::super::wire::Wire;
use super::replies::Again;

pub(in crate::store::redis) struct Single {
    pool: Pool,
    dialer: Arc<Dialer>,
    pub(super) owing: Owing,
    pub(super) gives: Box<dyn Gives>,
}

/// How gives that nobody waits for are written, and what their replies mean.
pub(in crate::store::redis) trait Gives: Send + Sync {
    fn pack(&self, gives: &[Request<'_>]) -> Batch;

    fn read(&self, give: &Request<'_>, carried: Carried) -> Outcome;
}

/// A reply and the moment before its request was sent, or why there is none.
pub(in crate::store::redis) type Carried = Result<(Value, Moment), Failure>;

/// Something to be sent, and how.
pub(super) struct Letter<'a> {
    pub(super) bytes: &'a [u8],
    /// Where it must come behind a give, it goes out on the same wire.
    pub(super) about: About<'a>,
    pub(super) lane: Lane,
    /// A wire that owes more replies than this has to be read first.
    pub(super) most: usize,
    pub(super) connect_by: Deadline,
    pub(super) deadline: Deadline,
}

impl<'a> Letter<'a> {
    /// What still belongs to an earlier one, and goes out where that did.
    pub(super) fn more(bytes: &'a [u8], deadline: Deadline) -> Letter<'a> {
        let (lane, connect_by) = (Lane::Caller, deadline);
        Letter { bytes, about: About::Nothing, lane, most: usize::MAX, connect_by, deadline }
    }
}

impl Single {
    pub(in crate::store::redis) fn new(
        dialer: Arc<Dialer>,
        pool: u32,
        gives: Box<dyn Gives>,
    ) -> Result<Single, Error> {
        Ok(Single { pool: Pool::new(pool)?, dialer, owing: Owing::default(), gives })
    }

    /// Sends a batch over one connection and reads as many replies. It knows what
    /// they are about, not how they are written.
    pub(in crate::store::redis) fn carry(
        &self,
        lane: Lane,
        batch: &Batch,
        about: About<'_>,
        deadline: Deadline,
    ) -> Vec<Carried> {
        let connect_by = connect_by(lane, deadline);
        let bytes = &batch.bytes;
        let letter = Letter { bytes, about, lane, most: usize::MAX, connect_by, deadline };
        let lend = |slot: &mut Slot| {
            let sent = match self.send(slot, &letter) {
                Ok(sent) => sent,
                Err(failure) => return all(batch, &failure),
            };
            let mut carried = self.collect(slot, batch.calls.len(), sent, deadline, Again::Yes);
            self.reload(slot, batch, about, &mut carried, deadline);
            carried
        };
        let carried = self.pool.with(lane, connect_by, lend);
        let carried = carried.unwrap_or_else(|error| all(batch, &Failure::not_done(error)));
        if lane != Lane::Caller && carried.first().is_some_and(lacks_descriptors) {
            // There is nothing to make a connection of; what was taken must be kept and given all
            // the same.
            return self.pool.with_open(lend).unwrap_or(carried);
        }
        carried
    }

    /// Sends a give and leaves its reply to whoever uses that connection next, or settles.
    pub(in crate::store::redis) fn let_go(
        &self,
        owed: &Owed,
        lane: Lane,
        deadline: Deadline,
    ) -> Result<(), Failure> {
        let connect_by = connect_by(lane, deadline);
        let batch = self.gives.pack(&[owed.identity.give()]);
        let (bytes, about) = (&batch.bytes, About::Nothing);
        let letter = Letter { bytes, about, lane, most: MOST - 1, connect_by, deadline };
        let lend = |slot: &mut Slot| {
            let sent = self.send(slot, &letter)?;
            if let Some(wire) = &mut slot.wire {
                wire.account.debts.push_back(Debt { owed: owed.clone(), sent, by: deadline });
            }
            self.owing.lay_down(slot);
            Ok(())
        };
        let sent = self.pool.with(lane, connect_by, lend);
        let sent = sent.unwrap_or_else(|error| Err(Failure::not_done(error)));
        match sent {
            Err(_) if lane != Lane::Caller && lacks_descriptors(&sent) => {
                self.pool.with_open(lend).unwrap_or(sent)
            }
            sent => sent,
        }
    }

    /// Reads the replies to gives that nobody waits for, as far as they have come.
    pub(in crate::store::redis) fn settle(
        &self,
        before: Moment,
        deadline: Deadline,
    ) -> Vec<(Owed, Outcome)> {
        let round = Moment::now();
        let read = |slot: &mut Slot| {
            while self.owing.fetch_due(slot, before, round) {
                // What went wrong is told with each give.
                let _ = self.settle_slot(slot, deadline, deadline);
            }
        };
        // The keeper's slot is always there.
        let _ = self.pool.with(Lane::Keeper, deadline, read);
        self.owing.take_ended()
    }

    /// When the oldest give was sent of which `settle` has not told yet.
    pub(in crate::store::redis) fn owed_since(&self) -> Option<Moment> {
        self.owing.since()
    }

    pub(in crate::store::redis) fn ping(&self, deadline: Deadline) -> Result<(), Error> {
        let bytes = &redis::cmd("PING").get_packed_command();
        let pong = self.pool.with(Lane::Caller, deadline, |slot| {
            let sent = self.send(slot, &Letter::more(bytes, deadline))?;
            let pong = self.collect(slot, 1, sent, deadline, Again::Yes).pop();
            self.reload(slot, &Batch::default(), About::Nothing, &mut [], deadline);
            pong.unwrap_or_else(|| Err(Failure::not_done(Error::bare(ErrorKind::Protocol))))
        })?;
        match pong.map_err(|failure| failure.error)? {
            (Value::ServerError(error), _) => Err(fault::server(&error)),
            _ => Ok(()),
        }
    }

    /// The connection for a letter: the one that it must use, else the slot's, else one that lies
    /// about, else a new one. Also whether it is new.
    fn ready<'a>(
        &self,
        slot: &'a mut Slot,
        letter: &Letter<'_>,
    ) -> Result<(&'a mut Wire, bool), Error> {
        loop {
            let fetched = self.owing.fetch(slot, letter.about, letter.lane, letter.connect_by)?;
            let Some(wire) = &mut slot.wire else { break };
            if wire.is_stale() {
                let gone = "the server has closed the connection";
                self.discard(slot, &Error::new(ErrorKind::Refused, gone));
            } else if fetched == Fetched::ReadFirst || wire.account.debts.len() > letter.most {
                self.settle_slot(slot, letter.connect_by, letter.deadline)?;
            } else {
                break;
            }
        }
        let is_new = slot.wire.is_none();
        if is_new {
            match self.dialer.dial(letter.connect_by) {
                Ok(wire) => slot.wire = Some(wire),
                Err(error) if error.kind() == ErrorKind::Exhausted => {
                    self.owing.fetch(slot, About::Nothing, Lane::Caller, letter.connect_by)?;
                    return slot.wire.as_mut().map(|wire| (wire, false)).ok_or(error);
                }
                Err(error) => return Err(error),
            }
        }
        let none = || Error::bare(ErrorKind::Refused);
        slot.wire.as_mut().map(|wire| (wire, is_new)).ok_or_else(none)
    }

    /// Writes a letter. On an error nothing of it is under way in the slot.
    pub(super) fn send(&self, slot: &mut Slot, letter: &Letter<'_>) -> Result<Moment, Failure> {
        loop {
            if letter.deadline.has_passed() {
                let late = Error::new(ErrorKind::NoAnswer, "the deadline had passed");
                return Err(Failure::not_done(late));
            }
            let (wire, is_new) = self.ready(slot, letter).map_err(Failure::not_done)?;
            let sent = Moment::now();
            let Err((count, error)) = wire.send(letter.bytes, letter.deadline) else {
                return Ok(sent);
            };
            let error = fault::io("sending", &error);
            self.discard(slot, &error);
            if count > 0 {
                return Err(Failure::unknown(error, sent));
            }
            // Nothing went out on a connection that had died unseen: a new one may do.
            if is_new || error.kind() == ErrorKind::NoAnswer {
                return Err(Failure::not_done(error));
            }
        }
    }

    /// Throws the slot's wire away; what it owes stays unknown.
    pub(super) fn discard(&self, slot: &mut Slot, error: &Error) {
        if let Some(wire) = slot.wire.take() {
            self.owing.abandon(wire, error);
        }
    }
}

/// Making a connection is a part of waiting for one.
fn connect_by(lane: Lane, deadline: Deadline) -> Deadline {
    match lane {
        Lane::Give(patience) => deadline.min(Deadline::after(patience)),
        Lane::Caller | Lane::Keeper => deadline,
    }
}

/// No connection could be made, for want of descriptors or the like. (A pool that was in use is
/// not meant, and would give nothing either.)
fn lacks_descriptors<T>(carried: &Result<T, Failure>) -> bool {
    matches!(carried, Err(failure)
        if failure.sent.is_none() && failure.error.kind() == ErrorKind::Exhausted)
}

fn all(batch: &Batch, failure: &Failure) -> Vec<Carried> {
    batch.calls.iter().map(|_| Err(failure.clone())).collect()
}
