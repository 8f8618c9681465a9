//! How locks are written in a server: keys, scripts and their replies. Knows no topology.

mod batch;
mod draft;
pub(super) mod fault;
pub(super) mod guard;
pub(super) mod keys;
pub(super) mod look;
pub(super) mod native;
pub(super) mod notice;
mod script;
pub(super) mod survey;
#[cfg(test)]
#[cfg(kit)]
pub(in crate::store) mod world;

use std::borrow::Cow;
use std::time::Duration;

use redis::Value;

pub(in crate::store) use self::batch::{Arg, Batch, Packer};
pub(super) use self::batch::{Call, RunId};
use self::draft::Drafts;
use self::guard::Guard;
pub(in crate::store) use self::script::{Script, script};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::store::{Failure, Reply, Request};

pub(in crate::store) trait Dialect: Send + Sync + 'static {
    type Request<'a>;
    type Reply;
    /// Which word of the side key is the fence of the lock's holder.
    const FENCE: usize;

    fn format(&self) -> &Format;

    /// How a grant is broken: break.lua, and what a give does about the waiters.
    fn breaking(&self) -> &'static Script;

    fn pack<'a, 'e>(
        &self,
        requests: &[Self::Request<'a>],
        wakeup: &dyn Fn(&[u8]) -> Wakeup<'e>,
    ) -> Batch<'a>;

    /// What a script's reply means, and the server's clock in microseconds, or 0 where it does not
    /// tell. With the reply comes what the server said to WAIT.
    fn read(
        &self,
        request: &Self::Request<'_>,
        reply: (Value, Option<&Value>),
        sent: Moment,
    ) -> Result<(Self::Reply, u64), Failure>;

    /// A give that is sent again, or that nobody waits for; `None` if it is none.
    fn give<'a>(give: &Request<'a>) -> Option<Self::Request<'a>>;

    fn given(reply: Self::Reply) -> Reply;
}

/// Which word of the side key tells when the lock was taken, in microseconds, by the server's clock or
/// by that of the client that took it.
const TAKEN: usize = 2;

/// Whether a reply to a take or an extension says that the token does not have the lock there.
pub(super) fn lacks_lock(reply: &Value) -> bool {
    match reply {
        Value::Int(done) => *done == 0,
        Value::BulkString(text) => text.starts_with(b"B "),
        // Of a take that joined a queue; that of a look begins otherwise.
        Value::Array(parts) => matches!(parts[..], [Value::Int(_), ..]),
        _ => false,
    }
}

/// What every dialect writes and reads in the same way.
#[derive(Default)]
pub(in crate::store) struct Format {
    pub(super) prefix: Vec<u8>,
    pub(super) claim_window: Duration,
    pub(super) fence_life: Option<Duration>,
    pub(super) guard: Option<Guard>,
    /// What grants, and what a grant rests on, is followed by WAIT.
    pub(super) copies: Option<Copies>,
    pub(super) drafts: Drafts,
}

impl Format {
    /// An error unless replicas have what was granted: it may be there, and must not be relied on.
    pub(in crate::store) fn check_copies(
        &self,
        said: Option<&Value>,
        sent: Moment,
    ) -> Result<(), Failure> {
        let checked = self.copies.map_or(Ok(()), |wanted| wanted.check(said));
        checked.map_err(|error| Failure::unknown(error, sent))
    }

    /// What guard.lua answered in place of a script, as [`Guard::read`] says.
    pub(in crate::store) fn read_refusal(
        &self,
        text: &[u8],
    ) -> Option<Result<(Duration, u64), Error>> {
        self.guard?.read(text)
    }
}

/// Where a client is told that it was granted a lock.
#[derive(Clone)]
pub(in crate::store) struct Wakeup<'a> {
    /// Always the same for one client and name. Empty where it has none: then no queue has it.
    pub(in crate::store) channel: Cow<'a, [u8]>,
    /// The client listens at this moment, and so may stand in queues.
    pub(in crate::store) is_open: bool,
}

pub(in crate::store) const NO_WAKEUP: Wakeup<'_> =
    Wakeup { channel: Cow::Borrowed(b""), is_open: false };

/// How many replicas must have a grant before it counts, and how long it may take them.
#[derive(Clone, Copy)]
pub(super) struct Copies {
    count: u32,
    patience: Duration,
}

impl Copies {
    pub(super) fn wanted(count: u32, timeout: Duration) -> Option<Copies> {
        // The rest is for the way there and back, and for a second try: WAIT also waits where the
        // call before it did nothing.
        let patience = timeout / 4;
        (count > 0).then_some(Copies { count, patience })
    }

    fn check(self, said: Option<&Value>) -> Result<(), Error> {
        match said {
            Some(Value::Int(acknowledged)) if *acknowledged >= i64::from(self.count) => Ok(()),
            Some(Value::Int(acknowledged)) => {
                let what = format!("{acknowledged} of {} replicas", self.count);
                Err(Error::new(ErrorKind::NotReplicated, what))
            }
            Some(Value::ServerError(error)) => Err(fault::server(error).at("WAIT")),
            _ => Err(Error::new(ErrorKind::Protocol, "WAIT was answered by something else")),
        }
    }
}

/// The words of a text, which spaces stand between.
pub(in crate::store) struct Words<'a>(pub(in crate::store) Option<&'a [u8]>);

impl<'a> Words<'a> {
    pub(in crate::store) fn word(&mut self) -> Option<&'a [u8]> {
        let mut parts = self.0?.splitn(2, |byte| *byte == b' ');
        let word = parts.next();
        self.0 = parts.next();
        word
    }

    pub(in crate::store) fn number(&mut self) -> Option<u64> {
        // So many digits fit. `parse` would take a sign, too.
        let word = self.word().filter(|word| (1..=19).contains(&word.len()))?;
        word.iter().try_fold(0, |number, byte| {
            Some(number * 10 + byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?)
        })
    }

    pub(in crate::store) fn rest(self) -> &'a [u8] {
        self.0.unwrap_or_default()
    }
}

pub(in crate::store) fn foreign(why: &str) -> Error {
    Error::new(ErrorKind::WrongType, why)
}

pub(in crate::store) fn unreadable(reply: &[u8]) -> Error {
    let shown = &reply[..reply.len().min(100)];
    Error::new(
        ErrorKind::Protocol,
        format!("a reply that cannot be read: {}", shown.escape_ascii()),
    )
}
