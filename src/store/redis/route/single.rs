//! One server: which connection takes what, and writing.

use std::borrow::Cow;
use std::sync::Arc;

use redis::Value;

use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::outbox::{Again, Concern, Outbox};
use crate::store::{Failure, Lane, Outcome, Owed, Request, ServerId};
use crate::sync::Mutex;

use super::super::dialect::{Batch, Script};
use super::super::fault;
use super::super::pool::{Pool, Pools, Slot};
use super::super::target::Target;
use super::super::unread::{About, MOST, Subject};
use super::super::wire::Wire;
use super::meeting::Meeting;
use super::replies::pack_loads;
use super::{Pending, Route};

pub(in crate::store::redis) struct Single {
    pub(super) pool: Pool,
    pub(super) target: Arc<dyn Target>,
    pub(super) outbox: Arc<Outbox>,
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

    /// Whether a reply to a take or an extension says that the token does not have the lock there.
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
    /// The gives of names that it takes or looks at go in front of it.
    pub(super) about: About<'a>,
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
    pub(super) fn more(batch: &'a Batch, about: About<'a>, deadline: Deadline) -> Letter<'a> {
        Letter {
            batch,
            about,
            most: usize::MAX,
            connect_by: deadline,
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
        outbox: Arc<Outbox>,
    ) -> Result<Single, Error> {
        let pool = pools.make()?;
        Ok(Single { pool, target, outbox, gives, told: Told::default(), meeting: None })
    }

    /// The connection for a letter: the slot's, or a new one. Also whether it is new.
    fn ready<'a>(
        &self,
        slot: &'a mut Slot,
        letter: &Letter<'_>,
    ) -> Result<(&'a mut Wire, bool), Error> {
        while let Some(wire) = &mut slot.wire {
            if wire.is_demoted || !self.target.is_trusted(wire) {
                self.discard(slot, &moved());
            } else if wire.is_stale() {
                let gone = "the server has closed the connection";
                self.discard(slot, &Error::new(ErrorKind::Refused, gone));
            } else if wire.unread.len() > letter.most {
                let now = Deadline::at(Moment::ZERO);
                self.catch_up(slot, if letter.is_scattered { now } else { letter.connect_by });
                if slot.wire.as_ref().is_some_and(|wire| wire.unread.len() > letter.most) {
                    let behind = "the server is behind with its replies";
                    return Err(Error::new(ErrorKind::Exhausted, behind));
                }
            } else {
                break;
            }
        }
        let is_new = slot.wire.is_none();
        if is_new {
            let mut wire = self.target.dial(letter.connect_by, &|_| Ok(()))?;
            self.meet(&mut wire, letter)?;
            wire.unread.outbox = Arc::clone(&self.outbox);
            slot.wire = Some(wire);
        }
        let none = || Error::bare(ErrorKind::Refused);
        slot.wire.as_mut().map(|wire| (wire, is_new)).ok_or_else(none)
    }

    /// Writes a letter. On an error nothing of it is under way in the slot.
    pub(super) fn send(&self, slot: &mut Slot, letter: &Letter<'_>) -> Result<Moment, Failure> {
        let Letter { batch, about, deadline, .. } = *letter;
        loop {
            if deadline.has_passed() {
                let late = Error::new(ErrorKind::NoAnswer, "the deadline had passed");
                return Err(Failure::not_done(late));
            }
            let (wire, is_new) = self.ready(slot, letter).map_err(Failure::not_done)?;
            if is_new {
                // Behind it may be a server that was started again.
                self.told.forget();
            }
            let mut bytes = batch.for_run(wire.run.as_ref()).map_err(Failure::not_done)?;
            let (requests, look, on) = (about.requests(), about.look(), wire.unread.on);
            let again = self.outbox.in_front(requests, look, Some(on), deadline);
            let (sent, before) = (Moment::now(), wire.unread.len());
            if !again.is_empty() {
                bytes = Cow::Owned(self.put_in_front(wire, again, batch, (sent, deadline))?);
            }
            let mut loads = 0;
            if letter.is_scattered && self.told.lacks(batch) {
                let (mut all, count) = pack_loads(batch);
                all.extend_from_slice(&bytes);
                (bytes, loads) = (Cow::Owned(all), count);
            }
            let Err((count, error)) = wire.send(&bytes, deadline) else {
                if loads > 0 {
                    self.told.learn(batch);
                    // Whoever may not load them may still call them; else the calls say what is wrong.
                    let owed = wire.unread.len() - before;
                    (0..loads).for_each(|_| wire.unread.insert(owed, (sent, deadline)));
                }
                return Ok(sent);
            };
            let error = fault::io("sending", &error);
            if count == 0 {
                wire.unread.take_back(wire.unread.len() - before, &error);
            }
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

    /// A batch behind gives that are owed, whose replies nobody waits for but to read what follows.
    fn put_in_front(
        &self,
        wire: &mut Wire,
        again: Vec<Again>,
        batch: &Batch,
        when: (Moment, Deadline),
    ) -> Result<Vec<u8>, Failure> {
        let requests: Vec<_> = again.iter().map(|again| again.identity.give()).collect();
        let mut gives = self.gives.pack(&requests);
        let each = if batch.is_asking() { 3 } else { 1 };
        if batch.is_asking() {
            let all = (0..gives.calls.len()).map(|index| gives.asking(index));
            gives = all.fold(Batch::default(), |all, one| all.and(&one));
        }
        for Again { id, identity } in again {
            (1..each).for_each(|_| wire.unread.push(Subject::Nothing, when));
            wire.unread.push(Subject::Give(id, identity), when);
        }
        let bytes = gives.and(batch);
        let bytes = bytes.for_run(wire.run.as_ref()).map_err(Failure::not_done)?;
        Ok(bytes.into_owned())
    }

    /// Reads what has come of the replies that connections owe which nobody uses, as long as any are
    /// unread to what was sent until then. One that owes a reply which nobody waits for any longer is
    /// `given_up`.
    pub(super) fn read_idle(&self, before: Moment, given_up: bool) {
        if !self.outbox.has_unread(before) {
            return;
        }
        self.pool.each_idle(|slot| {
            if slot.wire.as_ref().and_then(|wire| wire.unread.since()).is_some() {
                self.catch_up(slot, Deadline::at(Moment::ZERO));
                if given_up && slot.wire.as_ref().is_some_and(|wire| wire.unread.is_overdue()) {
                    let late = "a reply did not come in time";
                    self.discard(slot, &Error::new(ErrorKind::NoAnswer, late));
                }
            }
            self.outbox.has_unread(before)
        });
    }

    /// Throws the slot's wire away; what it owes stays unknown.
    pub(super) fn discard(&self, slot: &mut Slot, error: &Error) {
        if let Some(wire) = slot.wire.take() {
            self.target.doubt(&wire);
            if !wire.unread.is_empty() {
                log::debug!("a connection that owes replies is given up: {error}");
            }
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
        let letter =
            Letter { batch, about, most: usize::MAX, connect_by, deadline, is_scattered: false };
        let lend = |slot: &mut Slot| {
            let sent = match self.send(slot, &letter) {
                Ok(sent) => sent,
                Err(failure) => return all(batch, &failure),
            };
            let mut carried = self.collect(slot, &batch.calls, sent, deadline);
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
        let letter =
            Letter { batch, about, most: MOST - 1, connect_by, deadline, is_scattered: false };
        let lend = |slot: &mut Slot| {
            let sent = self.send(slot, &letter)?;
            if let Some(wire) = &mut slot.wire {
                let (concern, when) = (Concern::Release, (sent, deadline));
                let id = self.outbox.written(owed.clone(), concern, wire.unread.on, when);
                wire.unread.push(Subject::Give(id, owed.identity.clone()), when);
            }
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

    fn read_unread(&self, before: Moment) {
        self.read_idle(before, true);
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
        if !self.outbox.is_overdue() {
            return false;
        }
        // They may have come, and nobody has read them.
        self.read_idle(Moment::NEVER, false);
        self.outbox.is_overdue()
    }

    fn ping(&self, deadline: Deadline) -> Result<(), Error> {
        let ping = &Batch::plain(redis::cmd("PING").get_packed_command());
        let pong = self.pool.with(Lane::Caller, deadline, |slot| {
            let sent = self.send(slot, &Letter::more(ping, About::Nothing, deadline))?;
            let pong = self.collect_plain(slot, 1, sent, deadline).pop();
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
