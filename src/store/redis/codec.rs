//! One Redis, of a single store or of a quorum: its dialect, where it tells us, and the way to it.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::dialect::guard::Guard;
use super::dialect::keys::SLOTS;
use super::dialect::{Batch, Dialect, NO_WAKEUP, Wakeup, fault, look};
use super::listener::Listener;
use super::route::{Carried, Gives, Heard, Parcel, Route};
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::store::{Answer, Failure, Lane, Listener as _, Outcome, Request, Seen, unguarded};

pub(super) struct Codec<D> {
    pub(super) dialect: D,
    pub(super) listener: Arc<Listener>,
    /// Which one of a quorum it is.
    pub(super) member: Option<u8>,
}

/// A name as the listener of a quorum knows it, with its member before it.
pub(super) fn name_at(member: u8, name: &[u8]) -> Vec<u8> {
    [&[member], name].concat()
}

impl<D: Dialect> Codec<D> {
    pub(super) fn pack<'a>(&self, requests: &[D::Request<'a>]) -> Batch<'a> {
        let Codec { listener, member, .. } = self;
        self.dialect.pack(requests, &|name| match listener.are_known() {
            true => Wakeup {
                channel: listener.channel(name),
                is_open: match member {
                    None => listener.are_open(name),
                    Some(member) => listener.are_open(&name_at(*member, name)),
                },
            },
            false => NO_WAKEUP,
        })
    }

    pub(super) fn read(
        &self,
        request: &D::Request<'_>,
        carried: Carried,
    ) -> Result<Answer<D::Reply>, Failure> {
        let Heard { value, sent, by, copies } = carried?;
        let (reply, server) = self.dialect.read(request, (value, copies.as_deref()), sent)?;
        Ok(Answer { reply, sent, server, by, again: None })
    }
}

impl<D: Dialect> Gives for Codec<D> {
    fn pack<'a>(&self, give: &Request<'a>) -> Batch<'a> {
        Codec::pack(self, D::give(give).as_slice())
    }

    fn read(&self, give: &Request<'_>, carried: Carried) -> Outcome {
        let none = || Failure::not_done(Error::bare(ErrorKind::Protocol));
        let give = D::give(give).ok_or_else(none)?;
        let Answer { reply, sent, server, by, again } = Codec::read(self, &give, carried)?;
        Ok(Answer { reply: D::given(reply), sent, server, by, again })
    }
}

pub(super) struct Deployment<D> {
    pub(super) codec: Arc<Codec<D>>,
    pub(super) route: Box<dyn Route>,
}

impl<D: Dialect> Deployment<D> {
    pub(super) fn look(&self, name: &[u8], deadline: Deadline) -> Result<Seen, Error> {
        look::read(self.see(name, Lane::Caller, deadline)?, D::FENCE)
    }

    pub(super) fn free_in(&self, name: &[u8], deadline: Deadline) -> Result<Duration, Error> {
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
    pub(super) fn is_marked(&self, deadline: Deadline) -> Result<bool, Error> {
        let guard = self.guard()?;
        let mut said = self.ask(Lane::Caller, &guard.pack_init(0..SLOTS, None), deadline);
        said.try_fold(false, |any, carried| Ok(guard.read_init(carried?)? || any))
    }

    pub(super) fn initialize(&self, force: bool, deadline: Deadline) -> Result<(), Error> {
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
