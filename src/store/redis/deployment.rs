//! One Redis, alone in its store or one of several, whatever its topology: all that it can be asked.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::codec::Codec;
use super::dialect::guard::Guard;
use super::dialect::keys::SLOTS;
use super::dialect::{Batch, Dialect, fault, look};
use super::route::single::Pending;
use super::route::{Carried, Parcel, Route};
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::{Answer, Failure, Lane, Seen, unguarded};

pub(in crate::store) struct Deployment<D> {
    pub(super) codec: Arc<Codec<D>>,
    pub(super) route: Box<dyn Route>,
}

impl<D: Dialect> Deployment<D> {
    pub(in crate::store) fn pack<'a>(&self, requests: &[D::Request<'a>]) -> Batch<'a> {
        self.codec.pack(requests)
    }

    /// A batch that it packed is over: the next one of its kind is written over it.
    pub(in crate::store) fn keep(&self, batch: Batch<'_>) {
        self.codec.dialect.format().drafts.keep(batch);
    }

    /// Sends a batch and does not wait for the replies, so that others can be asked meanwhile.
    pub(in crate::store) fn start<'a>(
        &'a self,
        lane: Lane,
        batch: &'a Batch<'a>,
        deadline: Deadline,
    ) -> Result<Pending<'a>, Failure> {
        self.route.start(Parcel { lane, batch, deadline })
    }

    /// What the reply to a request says.
    pub(in crate::store) fn read(
        &self,
        request: &D::Request<'_>,
        carried: Carried,
    ) -> Result<Answer<D::Reply>, Failure> {
        self.codec.read(request, carried)
    }

    pub(in crate::store) fn ping(&self, deadline: Deadline) -> Result<(), Error> {
        self.route.ping(deadline)
    }

    /// Whether it has left earlier requests unanswered for too long.
    pub(in crate::store) fn is_silent(&self) -> bool {
        self.route.is_silent()
    }

    /// Reads what has come of the replies that idle connections owe to what was sent before.
    pub(in crate::store) fn read_unread(&self, before: Moment) {
        self.route.read_unread(before);
    }

    pub(super) fn look(&self, name: &[u8], deadline: Deadline) -> Result<Seen, Error> {
        look::read(self.see(name, Lane::Caller, deadline)?, D::FENCE)
    }

    pub(in crate::store) fn free_in(
        &self,
        name: &[u8],
        deadline: Deadline,
    ) -> Result<Duration, Error> {
        self.look(name, deadline).map(|seen| seen.left)
    }

    /// What one of the servers that have locks says of itself, on a connection that is there if any is
    /// idle.
    pub(super) fn info(&self, deadline: Deadline) -> Result<Vec<u8>, Error> {
        let (batch, lane) = (Batch::default().command(&["INFO"]), Lane::Give(deadline));
        let parcel = Parcel { lane, batch: &batch, deadline };
        let none = || Error::bare(ErrorKind::Protocol);
        let (_, carried) = self.route.ask_master(0, &parcel).ok_or_else(none)?;
        match carried.map_err(|failure| failure.error)?.value {
            Value::BulkString(info) => Ok(info),
            Value::ServerError(error) => Err(fault::server(&error)),
            _ => Err(none()),
        }
    }

    pub(super) fn see(&self, name: &[u8], lane: Lane, deadline: Deadline) -> Result<Value, Error> {
        self.ask_one(lane, &self.codec.dialect.format().pack_look(name), deadline)
    }

    pub(super) fn ask_one(
        &self,
        lane: Lane,
        batch: &Batch<'_>,
        by: Deadline,
    ) -> Result<Value, Error> {
        let none = || Err(Error::bare(ErrorKind::Protocol));
        self.ask(lane, batch, by).next().unwrap_or_else(none)
    }

    fn guard(&self) -> Result<Guard, Error> {
        self.codec.dialect.format().guard.ok_or_else(unguarded)
    }

    /// Whether there is any marker: none is on a server that is new, or came back empty.
    pub(in crate::store) fn is_marked(&self, deadline: Deadline) -> Result<bool, Error> {
        let guard = self.guard()?;
        let mut said = self.ask(Lane::Caller, &guard.pack_init(0..SLOTS, None), deadline);
        said.try_fold(false, |any, carried| Ok(guard.read_init(carried?)? || any))
    }

    pub(in crate::store) fn initialize(
        &self,
        force: bool,
        deadline: Deadline,
    ) -> Result<(), Error> {
        let guard = self.guard()?;
        let mut said = self.ask(Lane::Caller, &guard.pack_init(0..SLOTS, Some(force)), deadline);
        said.try_for_each(|carried| guard.read_init(carried?).map(drop))
    }

    pub(super) fn ask(
        &self,
        lane: Lane,
        batch: &Batch<'_>,
        deadline: Deadline,
    ) -> impl Iterator<Item = Result<Value, Error>> + use<D> {
        let carried = self.route.carry_all(&Parcel { lane, batch, deadline });
        carried.into_iter().map(|carried| Ok(carried.map_err(|failure| failure.error)?.value))
    }
}
