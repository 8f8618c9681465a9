//! One server: which connection takes what, and writing.

use std::borrow::Cow;
use std::sync::Arc;

use redis::Value;

use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::{Failure, Lane, Outcome, Owed, Request, ServerId};
use crate::sync::Mutex;
use crate::token::Token;

use super::super::dialect::{Batch, Script};
use super::super::fault;
use super::super::owing::{About, Debt, Due, Fetched, MOST, Owing};
use super::super::pool::{Pool, Pools, Slot};
use super::super::target::Target;
use super::super::wire::Wire;
use super::meeting::Meeting;
use super::replies::{Again, pack_loads};
use super::{Pending, Route};

pub(in crate::store::redis) struct Single {
    pub(super) pool: Pool,
    pub(super) target: Arc<dyn Target>,
    pub(super) owing: Owing,
    pub(super) gives: Arc<dyn Gives>,
    pub(super) told: Told,
    pub(super) meeting: Option<Meeting>,
}

/// The scripts that a server was told and should know.
#[derive(Default)]
pub(super) struct Told(Mutex<Vec<&'static Script>>);

impl Told {
    /// It has lacked one, or may have been started again.
    pub(super) fn forget(&self) {
        self.0.lock().clear();
    }

    fn lacks(&self, batch: &Batch) -> bool {
        let told = self.0.lock();
        let knows = |script| told.iter().any(|told| std::ptr::eq(*told, script));
        !batch.calls.iter().all(|call| knows(call.script))
    }

    fn learn(&self, batch: &Batch) {
        let scripts = batch.calls.iter().flat_map(|call| [Some(call.script), call.script.follower]);
        self.0.lock().extend(scripts.flatten());
    }
}

/// How gives that nobody waits for are written, and what their replies mean.
pub(in crate::store::redis) trait Gives: Send + Sync {
    fn pack(&self, gives: &[Request<'_>]) -> Batch;

    fn read(&self, give: &Request<'_>, carried: Carried) -> Outcome;

    /// Whether a reply to a take or an extension, read late, says that the token does not have the
    /// lock there.
    fn lacks_lock(&self, _reply: &Value) -> bool {
        false
    }
}

/// A reply, or why there is none.
pub(in crate::store::redis) type Carried = Result<Heard, Failure>;

/// A reply, the moment before its request was sent, and who sent it.
#[derive(Clone, Debug)]
pub(in crate::store::redis) struct Heard {
    pub(in crate::store::redis) value: Value,
    pub(in crate::store::redis) sent: Moment,
    pub(in crate::store::redis) by: ServerId,
    /// What it said to the WAIT behind it, where there is one.
    pub(in crate::store::redis) copies: Option<Value>,
}

/// Something to be sent, and how.
pub(super) struct Letter<'a> {
    pub(super) batch: &'a Batch,
    /// Where it must come behind a give, it goes out on the same wire.
    pub(super) about: About<'a>,
    pub(super) lane: Lane,
    /// A wire that owes more replies than this has to be read first.
    pub(super) most: usize,
    pub(super) connect_by: Deadline,
    pub(super) deadline: Deadline,
    /// It goes to one of several servers, and the others are not to wait for this one: replies that
    /// are owed are read only as far as they have come. And scripts are loaded along with it, unless
    /// the server is known to know them: that it does not, nobody may hear in time of the slowest
    /// server, and it would grant nothing, first of all to the client that comes first.
    pub(super) is_scattered: bool,
}

impl<'a> Letter<'a> {
    /// What still belongs to an earlier one, and goes out where that did.
    pub(super) fn more(batch: &'a Batch, deadline: Deadline) -> Letter<'a> {
        let (lane, connect_by) = (Lane::Caller, deadline);
        Letter {
            batch,
            about: About::Nothing,
            lane,
            most: usize::MAX,
            connect_by,
            deadline,
            is_scattered: false,
        }
    }
}

impl Single {
    pub(in crate::store::redis) fn new(
        target: Arc<dyn Target>,
        pools: &Pools,
        gives: Arc<dyn Gives>,
    ) -> Result<Single, Error> {
        let (pool, owing) = (pools.make()?, Owing::default());
        Ok(Single { pool, target, owing, gives, told: Told::default(), meeting: None })
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
            if wire.is_demoted || !self.target.is_trusted(wire) {
                self.discard(slot, &moved());
            } else if wire.is_stale() {
                let gone = "the server has closed the connection";
                self.discard(slot, &Error::new(ErrorKind::Refused, gone));
            } else if fetched == Fetched::ReadFirst || wire.account.debts.len() > letter.most {
                let must_be_read = fetched == Fetched::ReadFirst;
                if !letter.is_scattered {
                    self.settle_slot(slot, letter.connect_by, letter.deadline)?;
                } else if !self.read_some(slot, letter, must_be_read)? {
                    break;
                }
            } else {
                break;
            }
        }
        let is_new = slot.wire.is_none();
        if is_new {
            match self.target.dial(letter.connect_by, &|_| Ok(())) {
                Ok(mut wire) => {
                    self.meet(&mut wire, letter)?;
                    slot.wire = Some(wire);
                }
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
            if is_new {
                // Behind it may be a server that was started again.
                self.told.forget();
            }
            let mut bytes = letter.batch.for_run(wire.run.as_ref()).map_err(Failure::not_done)?;
            let mut loads = 0;
            if letter.is_scattered && self.told.lacks(letter.batch) {
                let (mut all, count) = pack_loads([letter.batch]);
                all.extend_from_slice(&bytes);
                (bytes, loads) = (Cow::Owned(all), count);
            }
            let sent = Moment::now();
            let Err((count, error)) = wire.send(&bytes, letter.deadline) else {
                if loads > 0 {
                    self.told.learn(letter.batch);
                    // Whoever may not load them may still call them; else the calls say what is wrong.
                    wire.account.owe_nobody(loads, sent, letter.deadline);
                }
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

    /// Reads the reply to a give of a name, if one is owed, by the deadline.
    pub(super) fn hear_of(&self, name: &[u8], lane: Lane, deadline: Deadline) {
        if !self.owing.is_for(name) {
            return;
        }
        // What became of it is told with the give.
        let _ = self.pool.with(lane, deadline, |slot| {
            while self.owing.is_for(name) && !deadline.has_passed() {
                self.owing.fetch(slot, About::Name(name), lane, deadline)?;
                self.settle_slot(slot, deadline, deadline)?;
            }
            Ok::<(), Error>(())
        });
    }

    /// Throws the slot's wire away; what it owes stays unknown.
    pub(super) fn discard(&self, slot: &mut Slot, error: &Error) {
        if let Some(wire) = slot.wire.take() {
            self.target.doubt(&wire);
            self.owing.abandon(wire, error);
        }
    }
}

impl Route for Single {
    fn carry(
        &self,
        lane: Lane,
        batch: &Batch,
        about: About<'_>,
        deadline: Deadline,
    ) -> Vec<Carried> {
        let connect_by = connect_by(lane, deadline);
        let letter = Letter {
            batch,
            about,
            lane,
            most: usize::MAX,
            connect_by,
            deadline,
            is_scattered: false,
        };
        let lend = |slot: &mut Slot| {
            let sent = match self.send(slot, &letter) {
                Ok(sent) => sent,
                Err(failure) => return all(batch, &failure),
            };
            let mut carried = self.collect(slot, &batch.calls, sent, deadline, Again::Yes);
            self.reload(slot, batch, about, &mut carried, deadline);
            self.pass_over_refusals(&mut carried);
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

    fn let_go(&self, owed: &Owed, lane: Lane, deadline: Deadline) -> Result<(), Failure> {
        let connect_by = connect_by(lane, deadline);
        let batch = self.gives.pack(&[owed.identity.give()]);
        let (batch, about) = (&batch, About::Nothing);
        let letter = Letter {
            batch,
            about,
            lane,
            most: MOST - 1,
            connect_by,
            deadline,
            is_scattered: false,
        };
        let lend = |slot: &mut Slot| {
            let sent = self.send(slot, &letter)?;
            if let Some(wire) = &mut slot.wire {
                let due = Due::Give(owed.clone());
                wire.account.debts.push_back(Debt { due, sent, by: deadline });
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

    fn settle(&self, before: Moment, deadline: Deadline) -> Vec<(Owed, Outcome)> {
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

    fn take_lacking(&self) -> Vec<Token> {
        self.owing.take_lacking()
    }

    fn owed_since(&self) -> Option<Moment> {
        self.owing.since()
    }

    fn start<'a>(
        &'a self,
        lane: Lane,
        batch: &'a Batch,
        about: About<'a>,
        deadline: Deadline,
    ) -> Result<Box<dyn Pending + 'a>, Failure> {
        // Others are asked after this one: it may not take all of their time only to be reached.
        let ready_by = Deadline::after(deadline.left() / 2);
        Ok(Box::new(self.begin(lane, batch, about, ready_by, deadline, true)?))
    }

    fn is_silent(&self) -> bool {
        self.owing.is_silent()
    }

    fn ping(&self, deadline: Deadline) -> Result<(), Error> {
        let ping = &Batch::plain(redis::cmd("PING").get_packed_command());
        let pong = self.pool.with(Lane::Caller, deadline, |slot| {
            let sent = self.send(slot, &Letter::more(ping, deadline))?;
            let pong = self.collect_plain(slot, 1, sent, deadline).pop();
            self.reload(slot, &Batch::default(), About::Nothing, &mut [], deadline);
            pong.unwrap_or_else(|| Err(Failure::not_done(Error::bare(ErrorKind::Protocol))))
        })?;
        match pong.map_err(|failure| failure.error)? {
            Heard { value: Value::ServerError(error), .. } => Err(fault::server(&error)),
            _ => Ok(()),
        }
    }
}

/// What a connection is worth that leads to where a server was.
pub(super) fn moved() -> Error {
    Error::new(ErrorKind::Unavailable, "another server has taken its place")
}

/// Making a connection is a part of waiting for one.
pub(super) fn connect_by(lane: Lane, deadline: Deadline) -> Deadline {
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

pub(super) fn all(batch: &Batch, failure: &Failure) -> Vec<Carried> {
    batch.calls.iter().map(|_| Err(failure.clone())).collect()
}
