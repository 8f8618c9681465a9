//! One server: which connection a request uses, and when it is sent again.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use redis::Value;

use super::first_word::FirstWord;
use super::peer::{KnownScripts, Letter, Peer, lacks_script, moved};
use super::{Carried, Gives, Heard, Pending, Route};
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::outbox::{Concern, ConnectionId, Outbox};
use crate::store::redis::dialect::Batch;
use crate::store::redis::fault;
use crate::store::redis::pool::{Lent, Pool, Pools};
use crate::store::redis::target::Target;
use crate::store::redis::unread::{About, MOST, Subject};
use crate::store::redis::wire::Wire;
use crate::store::{Failure, Identity, Lane, Owed, Request};
use crate::token::Token;

pub(in crate::store::redis) struct Single {
    peer: Peer,
    pool: Pool,
}

impl Single {
    /// Each run of the server is told the first word, if there is one.
    pub(in crate::store::redis) fn new(
        target: Arc<dyn Target>,
        pools: &Pools,
        (gives, outbox): (Arc<dyn Gives>, Arc<Outbox>),
        first_word: Option<Batch>,
    ) -> Result<Single, Error> {
        let (scripts, first_word) = (KnownScripts::default(), first_word.map(FirstWord::new));
        let peer = Peer { target, outbox, gives, scripts, first_word };
        Ok(Single { peer, pool: pools.make()? })
    }

    pub(super) fn begin<'a>(
        &'a self,
        lane: Lane,
        batch: &'a Batch,
        about: About<'a>,
        connected_by: Deadline,
        deadline: Deadline,
        is_scattered: bool,
    ) -> Result<Started<'a>, Failure> {
        let connect_by = connect_by(lane, deadline).min(connected_by);
        let mut lent = self.pool.lend(lane, connect_by).map_err(Failure::not_done)?;
        let most = MOST.saturating_sub(batch.replies());
        let letter = Letter { batch, about, most, connect_by, deadline, is_scattered };
        let sent = self.peer.send(&mut lent, &letter)?;
        Ok(Started { single: self, lent, batch, about, sent, deadline })
    }

    /// Reads the replies that have come on connections that are not in use, while any to requests
    /// before that moment are unread. With `given_up`, a connection whose reply is overdue is
    /// thrown away.
    pub(super) fn read_idle(&self, before: Moment, given_up: bool) {
        if !self.peer.outbox.has_unread(before) {
            return;
        }
        self.pool.each_idle(|lent| {
            if lent.wire.as_ref().is_some_and(|wire| !wire.unread.is_empty()) {
                self.peer.catch_up(lent, Deadline::at(Moment::ZERO));
                if given_up && lent.wire.as_ref().is_some_and(|wire| wire.unread.is_overdue()) {
                    let late = "a reply did not come in time";
                    self.peer.discard(lent, &Error::new(ErrorKind::NoAnswer, late));
                }
            }
            self.peer.outbox.has_unread(before)
        });
    }

    /// Uses a connection. Where none can be made, one that is open does for renewals and releases.
    fn on_connection<T>(
        &self,
        lane: Lane,
        connect_by: Deadline,
        run: impl Fn(&mut Lent<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let lent = self.pool.lend(lane, connect_by).map_err(Failure::not_done);
        match lent.and_then(|mut lent| run(&mut lent)) {
            Err(failure) if lane != Lane::Caller && lacks_descriptors(&failure) => {
                self.pool.lend_open().map_or(Err(failure), |mut lent| run(&mut lent))
            }
            done => done,
        }
    }

    /// Reads the replies to a batch, and repeats the calls that have to be.
    fn finish(
        &self,
        lent: &mut Lent<'_>,
        batch: &Batch,
        about: About<'_>,
        sent: Moment,
        deadline: Deadline,
    ) -> Vec<Carried> {
        let mut carried =
            self.peer.collect(lent, (batch.calls.len(), &batch.calls), sent, deadline);
        self.reload(lent, batch, about, &mut carried, deadline);
        carried.into_iter().map(|one| self.peer.without_refusal(one)).collect()
    }

    /// Loads scripts that the server does not have (it was restarted, or its cache flushed) and
    /// sends the calls that needed them again: those were not carried out. If the server is no
    /// master any more, it sends them to the new master. It also repeats a take or a look behind a
    /// give that was not done.
    fn reload(
        &self,
        lent: &mut Lent<'_>,
        batch: &Batch,
        about: About<'_>,
        carried: &mut [Carried],
        deadline: Deadline,
    ) {
        let is_behind =
            |call| about.sees(call).is_some_and(|name| self.peer.outbox.has_undone(name));
        // A call that was cut off may have been carried out: that stays the answer.
        let is_again = |call: &usize| {
            self.is_undone(&carried[*call]) || (carried[*call].is_ok() && is_behind(*call))
        };
        let again: Vec<usize> = (0..carried.len()).filter(is_again).collect();
        if again.is_empty() {
            return;
        }
        if lent.wire.as_ref().is_some_and(|wire| wire.is_demoted) {
            self.peer.discard(lent, &moved());
        }
        let own = batch.only(&again);
        let requests: Vec<_> =
            again.iter().filter_map(|call| about.requests().get(*call).copied()).collect();
        let about = if requests.is_empty() { about } else { About::Requests(&requests) };
        let sent = self
            .load(lent, &own, deadline)
            .and_then(|()| self.peer.send(lent, &Letter::new(&own, about, deadline)));
        match sent {
            Ok(sent) => {
                let answers =
                    self.peer.collect(lent, (own.calls.len(), &own.calls), sent, deadline);
                for (index, answer) in again.into_iter().zip(answers) {
                    carried[index] = answer;
                }
            }
            Err(failure) => {
                for index in again {
                    // Earlier answers stand for calls that were not sent again.
                    if self.is_undone(&carried[index]) || failure.sent.is_some() {
                        carried[index] = Err(failure.clone());
                    }
                }
            }
        }
    }

    /// Whether the call was not carried out, and can be elsewhere or in a moment.
    fn is_undone(&self, carried: &Carried) -> bool {
        lacks_script(carried) || self.peer.is_refused(carried)
    }

    /// Loads the scripts that these calls need. A failure means that none of them was made.
    fn load(&self, lent: &mut Lent<'_>, batch: &Batch, deadline: Deadline) -> Result<(), Failure> {
        let (load, count) = batch.loads();
        let sent =
            self.peer.send(lent, &Letter::new(&Batch::plain(load), About::Nothing, deadline));
        let sent = sent.map_err(|failure| Failure::not_done(failure.error))?;
        for answer in self.peer.collect(lent, (count, &[]), sent, deadline) {
            match answer {
                Ok(Heard { value: Value::ServerError(error), .. }) => {
                    return Err(Failure::not_done(fault::server(&error)));
                }
                Ok(_) => {}
                Err(failure) => return Err(Failure::not_done(failure.error)),
            }
        }
        Ok(())
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
        let letter = Letter { connect_by, ..Letter::new(batch, about, deadline) };
        let carried = self.on_connection(lane, connect_by, |lent| {
            let sent = self.peer.send(lent, &letter)?;
            Ok(self.finish(lent, batch, about, sent, deadline))
        });
        carried.unwrap_or_else(|failure| all(batch, &failure))
    }

    fn let_go(&self, owed: &Owed, lane: Lane, deadline: Deadline) -> Result<(), Failure> {
        let connect_by = connect_by(lane, deadline);
        let batch = self.peer.gives.pack(&owed.identity.give());
        let about = About::Nothing;
        let letter = Letter { connect_by, most: MOST - 1, ..Letter::new(&batch, about, deadline) };
        self.on_connection(lane, connect_by, |lent| {
            let sent = self.peer.send(lent, &letter)?;
            if let Some(wire) = &mut lent.wire {
                let (concern, when) = (Concern::Release, (sent, deadline));
                let id = self.peer.outbox.written(owed.clone(), concern, wire.unread.on);
                wire.unread.push(Subject::Give(id, owed.identity.clone()), when);
            }
            Ok(())
        })
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
        if !self.peer.outbox.is_overdue() {
            return false;
        }
        // They may have come, and nobody has read them.
        self.read_idle(Moment::NEVER, false);
        self.peer.outbox.is_overdue()
    }

    fn ping(&self, deadline: Deadline) -> Result<(), Error> {
        let ping = &Batch::plain(redis::cmd("PING").get_packed_command());
        let pong = self.on_connection(Lane::Caller, deadline, |lent| {
            let sent = self.peer.send(lent, &Letter::new(ping, About::Nothing, deadline))?;
            let pong = self.peer.collect(lent, (1, &[]), sent, deadline).pop();
            pong.unwrap_or_else(|| Err(Failure::not_done(Error::bare(ErrorKind::Protocol))))
        });
        match pong.map_err(|failure| failure.error)? {
            Heard { value: Value::ServerError(error), .. } => Err(fault::server(&error)),
            _ => Ok(()),
        }
    }
}

/// A batch that was sent and not answered yet.
pub(super) struct Started<'a> {
    single: &'a Single,
    lent: Lent<'a>,
    batch: &'a Batch,
    about: About<'a>,
    sent: Moment,
    deadline: Deadline,
}

impl Pending for Started<'_> {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.lent.wire.as_deref().map(Wire::fd)
    }

    fn is_answered(&mut self, until: Deadline) -> bool {
        let Some(wire) = &mut self.lent.wire else { return true };
        let count = wire.unread.len() + self.batch.replies();
        wire.has_whole(count, until)
    }

    fn finish(mut self: Box<Self>) -> Vec<Carried> {
        let Started { single, ref mut lent, batch, about, sent, deadline } = *self;
        single.finish(lent, batch, about, sent, deadline)
    }

    fn leave(mut self: Box<Self>) -> Vec<Carried> {
        let Started { single, ref mut lent, batch, about, sent, deadline: by } = *self;
        let Some(wire) = &mut lent.wire else { return Vec::new() };
        let (on, when) = (wire.unread.on, (sent, by));
        for (index, call) in batch.calls.iter().enumerate() {
            let subject = match about.requests().get(index) {
                Some(&Request::Give { name, token, fence, ttl }) => {
                    let identity = Identity { name: Arc::from(name), token, fence, ttl };
                    let owed = Owed { identity: identity.clone(), until: sent.plus(ttl) };
                    let id = single.peer.outbox.written(owed, Concern::Copy, on);
                    Subject::Give(id, identity)
                }
                Some(&Request::Take { token, .. }) => vote(single, token, on),
                Some(&Request::Extend { token, reach, .. }) => {
                    vote(single, reach.holder(token), on)
                }
                None => Subject::Nothing,
            };
            wire.unread.push(subject, when);
            if call.is_awaited {
                wire.unread.push(Subject::Nothing, when);
            }
        }
        Vec::new()
    }
}

fn vote(single: &Single, token: Token, on: ConnectionId) -> Subject {
    single.peer.outbox.asked(token, on);
    Subject::Vote(token)
}

/// Making a connection is a part of waiting for one.
pub(super) fn connect_by(lane: Lane, deadline: Deadline) -> Deadline {
    match lane {
        Lane::Give(patience) => deadline.min(Deadline::after(patience)),
        Lane::Caller | Lane::Keeper => deadline,
    }
}

/// No connection could be made, for want of descriptors or the like. (A pool that is in use is not
/// meant.)
fn lacks_descriptors(failure: &Failure) -> bool {
    failure.sent.is_none() && failure.error.kind() == ErrorKind::Exhausted
}

pub(super) fn all(batch: &Batch, failure: &Failure) -> Vec<Carried> {
    batch.calls.iter().map(|_| Err(failure.clone())).collect()
}
