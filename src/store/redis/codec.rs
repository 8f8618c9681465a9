//! What requests become on the wire, and what replies mean: a dialect, and where waiters are told.

use std::sync::Arc;

use super::dialect::{Batch, Dialect, NO_WAKEUP, Wakeup};
use super::listener::{Listener, name_on};
use super::route::{Carried, Gives, Heard};
use crate::error::{Error, ErrorKind};
use crate::store::{Answer, Failure, Listener as _, Outcome, Request};

pub(super) struct Codec<D> {
    pub(super) dialect: D,
    pub(super) listener: Arc<Listener>,
    /// Which one it is of several that this listener hears.
    pub(super) index: Option<u8>,
}

impl<D: Dialect> Codec<D> {
    pub(super) fn pack<'a>(&self, requests: &[D::Request<'a>]) -> Batch<'a> {
        let Codec { listener, index, .. } = self;
        self.dialect.pack(requests, &|name| match listener.are_known() {
            true => Wakeup {
                channel: listener.channel(name),
                is_open: match index {
                    None => listener.are_open(name),
                    Some(index) => listener.are_open(&name_on(*index, name)),
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
