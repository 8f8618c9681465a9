//! Moving packed scripts to the right server. Knows no key.

pub(super) mod cluster;
mod peer;
pub(super) mod single;
pub(super) mod slots;

use redis::Value;

use self::single::Pending;
use super::dialect::Batch;
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::{Failure, Lane, Outcome, Owed, Request, ServerId};

/// How gives that nobody waits for are written, and what their replies mean.
pub(super) trait Gives: Send + Sync {
    fn pack<'a>(&self, give: &Request<'a>) -> Batch<'a>;

    fn read(&self, give: &Request<'_>, carried: Carried) -> Outcome;
}

pub(super) type Carried = Result<Heard, Failure>;

/// A reply, the moment before its request was sent, and who sent it.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    pub(super) value: Value,
    pub(super) sent: Moment,
    pub(super) by: ServerId,
    /// What it said to the WAIT behind it, where there is one.
    pub(super) copies: Option<Box<Value>>,
}

/// What stands in the place of an answer until there is one.
pub(super) fn unanswered() -> Carried {
    Err(Failure::not_done(Error::bare(ErrorKind::NoAnswer)))
}

pub(super) trait Route: Send + Sync {
    /// Sends a batch and reads the reply to each of its calls into its place.
    fn carry(&self, lane: Lane, batch: &Batch<'_>, carried: &mut [Carried], deadline: Deadline);

    fn carry_all(&self, lane: Lane, batch: &Batch<'_>, deadline: Deadline) -> Vec<Carried> {
        let mut carried = vec![unanswered(); batch.calls.len()];
        self.carry(lane, batch, &mut carried, deadline);
        carried
    }

    /// Sends a batch and does not wait for the replies, so that others can be asked meanwhile.
    fn start<'a>(
        &'a self,
        lane: Lane,
        batch: &'a Batch<'a>,
        deadline: Deadline,
    ) -> Result<Pending<'a>, Failure>;

    /// Sends a give, which is this batch, and leaves its reply to the next user of that connection:
    /// the outbox hears of it.
    fn let_go(
        &self,
        owed: &Owed,
        give: &Batch<'_>,
        lane: Lane,
        deadline: Deadline,
    ) -> Result<(), Failure>;

    /// Reads what has come of the replies that idle connections owe to what was sent before.
    fn read_unread(&self, before: Moment);

    /// Reaches every server that is needed, with the credentials that were given.
    fn ping(&self, deadline: Deadline) -> Result<(), Error>;

    /// Whether a server has left a request unanswered and is silent still: another request would
    /// not be answered either.
    fn is_silent(&self) -> bool;
}
