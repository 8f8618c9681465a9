//! Moving packed scripts to the right server. Knows no key.

pub(super) mod cluster;
pub(super) mod endpoints;
mod first_word;
mod peer;
pub(super) mod single;
pub(super) mod slots;

use std::os::fd::BorrowedFd;

use redis::Value;

use super::dialect::Batch;
use super::unread::About;
use crate::clock::{Deadline, Moment};
use crate::error::Error;
use crate::store::{Failure, Lane, Outcome, Owed, Request, ServerId};

/// How gives that nobody waits for are written, and what their replies mean.
pub(super) trait Gives: Send + Sync {
    fn pack(&self, give: &Request<'_>) -> Batch;

    fn read(&self, give: &Request<'_>, carried: Carried) -> Outcome;

    /// Whether a reply to a take or an extension says that the token does not have the lock there.
    fn lacks_lock(&self, _reply: &Value) -> bool {
        false
    }
}

/// A reply, or why there is none.
pub(super) type Carried = Result<Heard, Failure>;

/// A reply, the moment before its request was sent, and who sent it.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    pub(super) value: Value,
    pub(super) sent: Moment,
    pub(super) by: ServerId,
    /// What it said to the WAIT behind it, where there is one.
    pub(super) copies: Option<Value>,
}

/// The way to the servers that keep the locks, however many there are.
pub(super) trait Route: Send + Sync {
    /// Sends a batch and reads as many replies. It knows what they are about, not how they are
    /// written.
    fn carry(
        &self,
        lane: Lane,
        batch: &Batch,
        about: About<'_>,
        deadline: Deadline,
    ) -> Vec<Carried>;

    /// Sends a give and leaves its reply to the next user of that connection: the outbox hears of
    /// it.
    fn let_go(&self, owed: &Owed, lane: Lane, deadline: Deadline) -> Result<(), Failure>;

    /// Reads what has come of the replies that idle connections owe to what was sent before.
    fn read_unread(&self, before: Moment);

    /// Reaches every server that is needed, with the credentials that were given.
    fn ping(&self, deadline: Deadline) -> Result<(), Error>;

    /// Sends a batch and does not wait for the replies, so that others can be asked meanwhile.
    fn start<'a>(
        &'a self,
        lane: Lane,
        batch: &'a Batch,
        about: About<'a>,
        deadline: Deadline,
    ) -> Result<Box<dyn Pending + 'a>, Failure>;

    /// Whether a server has left a request unanswered and is silent still: another request would
    /// not be answered either.
    fn is_silent(&self) -> bool;
}

/// Replies that are waited for.
pub(super) trait Pending {
    /// What becomes readable when one comes; none where nothing will.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// Whether all of them have come by then, or there will be none.
    fn is_answered(&mut self, until: Deadline) -> bool;

    /// Whether it is known by now that nothing was carried out.
    fn is_in_vain(&self) -> bool {
        false
    }

    /// All of them, by the deadline of the batch.
    fn finish(self: Box<Self>) -> Vec<Carried>;

    /// Leaves them to the next user of the connection: the outbox hears of them. All of them are
    /// returned instead if they have come already.
    fn leave(self: Box<Self>) -> Vec<Carried>;
}
