//! Leasehold's own format: the lock under its name, the fence beside it.

mod keys;

use std::time::Duration;

use redis::{ServerError, Value};

use super::super::fault;
use super::{Batch, Decimal, Script};
use crate::config::MAX_FENCE;
use crate::error::{Error, ErrorKind};
use crate::store::{Held, Look, Place, Reach, Reply, Request, millis};
use crate::token::HEX;

macro_rules! script {
    ($name:ident, $file:literal) => {
        static $name: Script = Script::new(include_str!($file), || {
            redis::Script::new(include_str!($file)).get_hash().to_owned()
        });
    };
}
script!(TAKE, "take.lua");
script!(GIVE, "give.lua");
script!(EXTEND, "extend.lua");
script!(LOOK, "look.lua");

/// Room for the key of an everyday name.
const KEY: usize = 96;

/// The keys of one client: every name behind the same prefix.
pub(in crate::store::redis) struct Native {
    prefix: Vec<u8>,
}

impl Native {
    pub(in crate::store::redis) fn new(prefix: &[u8]) -> Native {
        Native { prefix: prefix.to_vec() }
    }

    pub(in crate::store::redis) fn pack(&self, requests: &[Request<'_>]) -> Batch {
        let mut batch = Batch::with_room_for(requests.len());
        let (mut lock, mut side) = (Vec::with_capacity(KEY), Vec::with_capacity(KEY));
        let mut hex = [0; HEX];
        for request in requests {
            let (Request::Take { name, .. }
            | Request::Extend { name, .. }
            | Request::Give { name, .. }) = *request;
            keys::write(&self.prefix, name, &mut lock, &mut side);
            let both: [&[u8]; 2] = [&lock, &side];
            match *request {
                Request::Take { token, ttl, place: Place::Try | Place::Join(_), .. } => {
                    let (token, ttl) = (token.hex(&mut hex).as_bytes(), Decimal::of(millis(ttl)));
                    batch.push(&TAKE, &both, &[token, ttl.digits(), b"try"]);
                }
                Request::Extend { token, ttl, reach, .. } => {
                    let (token, ttl) = (token.hex(&mut hex).as_bytes(), Decimal::of(millis(ttl)));
                    match reach {
                        Reach::Grow => {
                            batch.push(&EXTEND, &both[..1], &[token, ttl.digits(), b"grow"])
                        }
                        Reach::Set => {
                            batch.push(&EXTEND, &both[..1], &[token, ttl.digits(), b"set"])
                        }
                        Reach::Refresh => {
                            batch.push(&TAKE, &both, &[token, ttl.digits(), b"claim"])
                        }
                    }
                }
                Request::Give { token, fence, .. } => {
                    let (token, fence) = (token.hex(&mut hex).as_bytes(), Decimal::of(fence));
                    batch.push(&GIVE, &both, &[token, fence.digits()]);
                }
            }
        }
        batch
    }

    /// What a script's reply means to the request that it answers.
    pub(in crate::store::redis) fn read(
        &self,
        request: &Request<'_>,
        value: Value,
    ) -> Result<Reply, Error> {
        match (request, value) {
            (request, Value::ServerError(error)) => Err(explain(script(request), &error)),
            (Request::Give { .. }, Value::Int(1)) => Ok(Reply::Given),
            (Request::Extend { .. }, Value::Int(1)) => Ok(Reply::Extended),
            (Request::Give { .. } | Request::Extend { .. }, Value::Int(0)) => Ok(Reply::NotMine),
            (request, Value::BulkString(text)) => {
                read_taken(request, &text).unwrap_or_else(|| Err(unreadable(&text)))
            }
            (_, value) => Err(unreadable(format!("{value:?}").as_bytes())),
        }
    }

    pub(in crate::store::redis) fn pack_look(&self, name: &[u8]) -> Batch {
        let (mut batch, mut lock, mut side) = (Batch::default(), Vec::new(), Vec::new());
        keys::write(&self.prefix, name, &mut lock, &mut side);
        batch.push(&LOOK, &[&lock, &side], &[]);
        batch
    }

    pub(in crate::store::redis) fn read_look(&self, value: Value) -> Result<Look, Error> {
        let values = match value {
            Value::ServerError(error) => return Err(explain(&LOOK, &error)),
            Value::Array(values) => values,
            value => return Err(unreadable(format!("{value:?}").as_bytes())),
        };
        let [holder, Value::Int(left), side] = &values[..] else {
            return Err(unreadable(b"to a look"));
        };
        let text = |value: &Value| match value {
            Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        };
        let side = text(side);
        let (last_fence, owner) = match side.as_deref().and_then(|side| side.split_once(' ')) {
            Some((fence, owner)) => (fence.parse().ok(), Some(owner)),
            None => (None, None),
        };
        let Some(holder) = text(holder) else {
            return Ok(Look { holder: None, last_fence });
        };
        let Ok(left) = u64::try_from(*left) else {
            return Err(foreign("it has no ttl"));
        };
        Ok(Look {
            holder: Some(Held {
                token_prefix: holder.chars().take(8).collect(),
                ttl: Duration::from_millis(left),
                fence: last_fence.filter(|_| owner == Some(&holder)),
            }),
            last_fence,
        })
    }
}

fn script(request: &Request<'_>) -> &'static Script {
    match request {
        Request::Take { .. } | Request::Extend { reach: Reach::Refresh, .. } => &TAKE,
        Request::Extend { .. } => &EXTEND,
        Request::Give { .. } => &GIVE,
    }
}

/// An error of a script; one about a right says which command lacks it.
fn explain(script: &Script, error: &ServerError) -> Error {
    let explained = fault::server(error);
    match script.command_of(explained.detail()) {
        Some(command) if explained.kind() == ErrorKind::Permission => {
            Error::new(ErrorKind::Permission, format!("{command}: {}", explained.detail()))
        }
        _ if explained.kind() == ErrorKind::WrongType => foreign("it is of another type"),
        _ => explained,
    }
}

/// Reads a reply of take.lua; `None` if it is none.
fn read_taken(request: &Request<'_>, text: &[u8]) -> Option<Result<Reply, Error>> {
    let text = std::str::from_utf8(text).ok()?;
    let (sign, rest) = text.split_at_checked(1)?;
    let first = rest.trim_start().split(' ').next().and_then(|number| number.parse::<u64>().ok());
    let claim = matches!(request, Request::Extend { .. });
    Some(Ok(match sign {
        "G" if claim => Reply::Extended,
        "G" => Reply::Granted {
            fence: first.filter(|fence| (1..=MAX_FENCE).contains(fence))?,
            block: 1,
        },
        "B" => {
            Reply::Busy { free_in: Duration::from_millis(first?), ticket: 0, rank: 0, ours: false }
        }
        "L" => Reply::NotMine,
        "F" if claim => Reply::NotMine,
        "F" => return Some(Err(foreign(rest.trim_start()))),
        _ => return None,
    }))
}

fn foreign(why: &str) -> Error {
    Error::new(ErrorKind::WrongType, why)
}

fn unreadable(reply: &[u8]) -> Error {
    let shown = &reply[..reply.len().min(100)];
    Error::new(
        ErrorKind::Protocol,
        format!("a reply that cannot be read: {}", shown.escape_ascii()),
    )
}
