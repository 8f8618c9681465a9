//! Leasehold's own format: the lock under its name, the fence and the queue beside it.

mod keys;
#[cfg(test)]
pub(crate) mod model;
mod notice;
#[cfg(test)]
mod tests;

use std::time::Duration;

use redis::{ServerError, Value};

use self::keys::Keys;
use super::super::fault;
use super::{Batch, Decimal, Script};
use crate::config::MAX_FENCE;
use crate::error::{Error, ErrorKind};
use crate::store::{Held, Look, Notice, Place, Reach, Reply, Request, millis};
use crate::token::HEX;

/// A script of one file, or of several one after the other.
macro_rules! script {
    ($new:ident: $($file:literal),+ $(; $follower:ident)?) => {
        Script::$new(
            concat!($(include_str!($file)),+),
            || redis::Script::new(concat!($(include_str!($file)),+)).get_hash().to_owned(),
            $(&$follower)?
        )
    };
}
/// Whoever takes will give, perhaps with the last thing that it does.
static TAKE: Script = script!(leading: "hand_over.lua", "take.lua"; GIVE);
static GIVE: Script = script!(new: "hand_over.lua", "give.lua");
static EXTEND: Script = script!(new: "extend.lua");
static LOOK: Script = script!(new: "look.lua");

/// The keys of one client: every name behind the same prefix.
pub(in crate::store::redis) struct Native {
    prefix: Vec<u8>,
    claim_window: Duration,
}

/// Where a client is told that it was granted a lock.
#[derive(Clone, Copy)]
pub(in crate::store::redis) struct Ear<'a> {
    /// Always the same for one client. Empty where it has none: then it has no place in any queue.
    pub(in crate::store::redis) channel: &'a [u8],
    /// It listens at this moment, and so may stand in queues.
    pub(in crate::store::redis) is_open: bool,
}

impl Native {
    pub(in crate::store::redis) fn new(prefix: &[u8], claim_window: Duration) -> Native {
        Native { prefix: prefix.to_vec(), claim_window }
    }

    pub(in crate::store::redis) fn pack(&self, requests: &[Request<'_>], ear: Ear<'_>) -> Batch {
        let mut batch = Batch::with_room_for(requests.len());
        let (mut keys, mut hex, mut member) = (Keys::new(), [0; HEX], Vec::new());
        for request in requests {
            let (Request::Take { name, token, ttl, .. }
            | Request::Extend { name, token, ttl, .. }
            | Request::Give { name, token, ttl, .. }) = *request;
            keys.write(&self.prefix, name);
            let Keys { lock, side, queue } = &keys;
            let all: [&[u8]; 3] = [lock, side, queue];
            let token = token.hex(&mut hex).as_bytes();
            let millis = Decimal::of(millis(ttl));
            match *request {
                Request::Take { place, block, .. } => {
                    let block = Decimal::of(block.into());
                    let [mine, millis, block] = [token, millis.digits(), block.digits()];
                    match place {
                        Place::Join(ticket) if !ear.channel.is_empty() => {
                            self.write_member(&mut member, mine, ttl, ear);
                            let mode: &[u8] = if ear.is_open { b"join" } else { b"try" };
                            let ticket = Decimal::of(ticket);
                            let place = [mine, millis, mode, block, &member, ticket.digits()];
                            batch.push(&TAKE, &all, &place);
                        }
                        _ => batch.push(&TAKE, &all, &[mine, millis, b"try", block]),
                    }
                }
                Request::Extend { fence, reach, .. } => {
                    let millis = millis.digits();
                    match reach {
                        Reach::Grow => batch.push(&EXTEND, &all[..1], &[token, millis, b"grow"]),
                        Reach::Set => batch.push(&EXTEND, &all[..1], &[token, millis, b"set"]),
                        Reach::Refresh => {
                            let fence = Decimal::of(fence);
                            batch.push(&TAKE, &all, &[token, millis, b"claim", fence.digits()]);
                        }
                    }
                }
                Request::Give { fence, .. } => {
                    self.write_member(&mut member, token, ttl, ear);
                    batch.push(&GIVE, &all, &[token, Decimal::of(fence).digits(), &member]);
                }
            }
        }
        batch
    }

    /// A token's place in a queue: what its takes asked for is a part of it. Nothing where the
    /// client can have none.
    fn write_member(&self, member: &mut Vec<u8>, token: &[u8], ttl: Duration, ear: Ear<'_>) {
        member.clear();
        if !ear.channel.is_empty() {
            let span = Decimal::of(millis(ttl.min(self.claim_window)));
            [token, b" ", span.digits(), b" ", ear.channel]
                .iter()
                .for_each(|part| member.extend_from_slice(part));
        }
    }

    /// What a script's reply means to the request that it answers, and the server's clock in
    /// microseconds, where it tells.
    pub(in crate::store::redis) fn read(
        &self,
        request: &Request<'_>,
        value: Value,
    ) -> Result<(Reply, u64), Error> {
        match (request, value) {
            (request, Value::ServerError(error)) => Err(explain(script(request), &error)),
            (Request::Give { .. }, Value::Int(1)) => Ok((Reply::Given, 0)),
            (Request::Extend { .. }, Value::Int(1)) => Ok((Reply::Extended, 0)),
            (Request::Give { .. } | Request::Extend { .. }, Value::Int(0)) => {
                Ok((Reply::NotMine, 0))
            }
            (request, Value::BulkString(text)) => {
                read_taken(request, &text).unwrap_or_else(|| Err(unreadable(&text)))
            }
            (_, value) => Err(unreadable(format!("{value:?}").as_bytes())),
        }
    }

    /// What was published to a client; `None` if it can make nothing of it.
    pub(in crate::store::redis) fn read_notice(&self, payload: &[u8]) -> Option<Notice> {
        notice::read(payload, &self.prefix)
    }

    pub(in crate::store::redis) fn pack_look(&self, name: &[u8]) -> Batch {
        let (mut batch, mut keys) = (Batch::default(), Keys::new());
        keys.write(&self.prefix, name);
        batch.push(&LOOK, &[&keys.lock, &keys.side], &[]);
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
        let words: Vec<&str> = side.as_deref().unwrap_or_default().split(' ').collect();
        let (last, first, owner) = match words[..] {
            [_, last, first, owner] => (last, first, Some(owner)),
            _ => ("", "", None),
        };
        // A 0 stands where none was given out yet.
        let fence = |digits: &str| digits.parse().ok().filter(|fence| *fence != 0);
        let last_fence = fence(last);
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
                fence: fence(first).filter(|_| owner == Some(&holder)),
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
fn read_taken(request: &Request<'_>, text: &[u8]) -> Option<Result<(Reply, u64), Error>> {
    let text = std::str::from_utf8(text).ok()?;
    let (sign, rest) = text.split_at_checked(1)?;
    let claim = matches!(request, Request::Extend { .. });
    let mut words = rest.trim_start().split(' ');
    let mut number = || words.next()?.parse::<u64>().ok();
    Some(Ok(match sign {
        "G" => {
            let (fence, block, server) = (number()?, number()?, number()?);
            let known = (1..=MAX_FENCE).contains(&fence) && block > 0;
            let block = u32::try_from(block).ok().filter(|_| known)?;
            (if claim { Reply::Extended } else { Reply::Granted { fence, block } }, server)
        }
        "B" => {
            let (free_in, server) = (Duration::from_millis(number()?), number()?);
            let (rank, ticket, ours) = (number()?, number()?, number()? == 1);
            let rank = u32::try_from(rank).ok()?;
            (Reply::Busy { free_in, ticket, rank, ours }, server)
        }
        "L" => (Reply::NotMine, 0),
        "F" if claim => (Reply::NotMine, 0),
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
