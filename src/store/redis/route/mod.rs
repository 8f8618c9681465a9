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

pub(in crate::store) type Carried = Result<Heard, Failure>;

/// A reply, the moment before its request was sent, and who sent it.
#[derive(Clone, Debug)]
pub(in crate::store) struct Heard {
    pub(super) value: Value,
    pub(super) sent: Moment,
    pub(super) by: ServerId,
    /// What it said to the WAIT behind it, where there is one.
    pub(super) copies: Option<Box<Value>>,
}

/// A batch that is to be sent: on which connections, and by when it is answered.
#[derive(Clone, Copy)]
pub(super) struct Parcel<'a> {
    pub(super) lane: Lane,
    pub(super) batch: &'a Batch<'a>,
    pub(super) deadline: Deadline,
}

/// What stands in the place of an answer until there is one.
pub(super) fn unanswered() -> Carried {
    Err(Failure::not_done(Error::bare(ErrorKind::NoAnswer)))
}

/// How requests get to the servers of one Redis: to the only one, or to that which has the slot.
pub(super) trait Route: Send + Sync {
    /// Sends a batch and reads the reply to each of its calls into its place.
    fn carry(&self, parcel: &Parcel<'_>, carried: &mut [Carried]);

    fn carry_all(&self, parcel: &Parcel<'_>) -> Vec<Carried> {
        let mut carried = vec![unanswered(); parcel.batch.calls.len()];
        self.carry(parcel, &mut carried);
        carried
    }

    /// Asks one of the servers that have locks: the first from this number on. Tells its own number, and
    /// what it said; `None` behind the last one.
    fn ask_master(&self, from: u32, parcel: &Parcel<'_>) -> Option<(u32, Carried)>;

    /// Sends a batch and does not wait for the replies, so that others can be asked meanwhile.
    fn start<'a>(&'a self, parcel: Parcel<'a>) -> Result<Pending<'a>, Failure>;

    /// Sends a plain command about one key, and waits for no answer: none matters.
    fn tell(&self, parcel: Parcel<'_>) -> Result<(), Failure>;

    /// Sends a give, and leaves its reply to the next user of that connection: the outbox hears of it.
    fn let_go(&self, owed: &Owed, give: &Parcel<'_>) -> Result<(), Failure>;

    /// Reads what has come of the replies that idle connections owe to what was sent before.
    fn read_unread(&self, before: Moment);

    /// Reaches every server that is needed, with the credentials that were given.
    fn ping(&self, deadline: Deadline) -> Result<(), Error>;

    /// Whether a server has left a request unanswered, and would another one now.
    fn is_silent(&self) -> bool;
}
