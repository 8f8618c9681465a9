//! Leasehold's own format: the lock under its name, the fence and the queue beside it.

#[cfg(test)]
#[cfg(kit)]
pub(super) mod tests;

use std::time::Duration;

use redis::Value;

use super::guard::quarantined;
use super::{
    Arg, Batch, Dialect, Format, NO_WAKEUP, Packer, Script, Wakeup, Words, foreign, script,
    unreadable,
};
use crate::clock::Moment;
use crate::config::limits::MAX_FENCE;
use crate::error::Error;
use crate::store::{Failure, Place, Reach, Reply, Request, millis};
use crate::token::HEX;

/// A client that takes will give, perhaps with the last thing that it does, and may have to claim
/// what it is handed, in a short time.
static TAKE: Script =
    script!("quick_take.lua", "quick_join.lua", "../lock.lua", "hand_over.lua", "take.lua")
        .leading(&GIVE);
static GIVE: Script =
    script!("quick_give.lua", "quick_hand_over.lua", "hand_over.lua", "give.lua").leading(&EXTEND);
static EXTEND: Script = script!("../lock.lua", "extend.lua");
/// Where the server is guarded.
static GUARDED_TAKE: Script = script!(
    "../guard.lua",
    "../guarded.lua",
    "quick_take.lua",
    "quick_join.lua",
    "../lock.lua",
    "hand_over.lua",
    "take.lua"
)
.guarded()
.leading(&GUARDED_GIVE);
static GUARDED_GIVE: Script =
    script!("../guard.lua", "quick_give.lua", "hand_over.lua", "guarded_give.lua", "give.lua")
        .guarded()
        .leading(&GUARDED_EXTEND);
static BREAK: Script = script!("../break.lua", "hand_over.lua", "give.lua");
static GUARDED_BREAK: Script =
    script!("../guard.lua", "../break.lua", "hand_over.lua", "guarded_give.lua", "give.lua")
        .guarded();
static GUARDED_EXTEND: Script =
    script!("../guard.lua", "../guarded.lua", "../lock.lua", "extend.lua").guarded();

pub(in crate::store::redis) struct Native(pub(in crate::store::redis) Format);

impl Dialect for Native {
    type Request<'a> = Request<'a>;
    type Reply = Reply;
    /// The last one reserved may be one that nobody uses yet.
    const FENCE: usize = 2;

    fn format(&self) -> &Format {
        &self.0
    }

    fn breaking(&self) -> &'static Script {
        if self.0.guard.is_some() { &GUARDED_BREAK } else { &BREAK }
    }

    fn pack<'a, 'e>(
        &self,
        requests: &[Self::Request<'a>],
        wakeup: &dyn Fn(&[u8]) -> Wakeup<'e>,
    ) -> Batch<'a> {
        let mut packer = Packer::new(&self.0, requests.len());
        let mut hex = [0; HEX];
        for request in requests {
            let (Request::Take { name, token, ttl, .. }
            | Request::Extend { name, token, ttl, .. }
            | Request::Give { name, token, ttl, .. }) = *request;
            packer.begin(name, Some(*request));
            let script = self.script(request);
            let mine = token.hex(&mut hex).as_bytes();
            let span = Arg::Number(millis(ttl.min(self.0.claim_window)));
            let (text, ttl) = (Arg::Text(mine), Arg::Number(millis(ttl)));
            match *request {
                Request::Take { place: wanted, block, .. } => {
                    let (wakeup, ticket) = match wanted {
                        Place::Join(ticket) => (wakeup(name), ticket),
                        Place::Try => (NO_WAKEUP, 0),
                    };
                    let may_stand = !wakeup.channel.is_empty();
                    let at = [span, Arg::Text(&wakeup.channel)];
                    let at = Arg::Words(if may_stand { &at } else { &[] });
                    let join = [Arg::Text(b"join"), Arg::Number(ticket)];
                    let mode = match wakeup.is_open && may_stand {
                        true => Arg::Words(&join),
                        false => Arg::Text(b"try"),
                    };
                    let life = Arg::Number(self.0.fence_life.map_or(0, millis));
                    let args = [text, ttl, at, mode, Arg::Number(block.into()), life];
                    let count = match block {
                        _ if self.0.fence_life.is_some() => 6,
                        1 if may_stand => 4,
                        1 => 2,
                        _ => 5,
                    };
                    packer.replicated(script, 3, &args[..count]);
                }
                Request::Extend { fence, reach, .. } => {
                    let fence = Arg::Number(fence);
                    let mut call = |keys, args: &[Arg<'_>]| packer.call(script, keys, args);
                    match reach {
                        Reach::Grow => call(1, &[text, ttl, Arg::Text(b"grow")]),
                        Reach::Set => call(1, &[text, ttl, Arg::Text(b"set")]),
                        Reach::Claim => call(2, &[text, ttl, Arg::Text(b"claim"), fence]),
                        Reach::Pass(to) => {
                            let mut hex = [0; HEX];
                            let to = Arg::Text(to.hex(&mut hex).as_bytes());
                            call(2, &[text, ttl, Arg::Text(b"pass"), fence, to]);
                        }
                    }
                }
                Request::Give { fence, .. } => {
                    let (mut digits, channel) = (itoa::Buffer::new(), wakeup(name).channel);
                    let fence = Arg::Text(digits.format(fence).as_bytes());
                    let (side, place) =
                        ([Arg::Number(0), fence, fence, text], [span, Arg::Text(&channel)]);
                    let args = [Arg::Words(&side), Arg::Words(&place)];
                    packer.call(script, 3, &args[..if channel.is_empty() { 1 } else { 2 }]);
                }
            }
        }
        packer.batch
    }

    fn read(
        &self,
        request: &Request<'_>,
        (value, copies): (Value, Option<&Value>),
        sent: Moment,
    ) -> Result<(Reply, u64), Failure> {
        let read = match (request, value) {
            (request, Value::ServerError(error)) => {
                // Such a take has not taken the lock, and others are refused before they write.
                return Err(Failure::not_done(self.script(request).explain(&error)));
            }
            (Request::Give { .. }, Value::Int(1 | 3)) => Ok((Reply::Given, 0)),
            (Request::Give { .. }, Value::Int(2)) => Ok((Reply::NotMine, 0)),
            (Request::Give { .. } | Request::Extend { .. }, Value::Int(0)) => {
                Ok((Reply::NotMine, 0))
            }
            (Request::Extend { .. }, Value::Int(1)) => Ok((Reply::Extended, 0)),
            (Request::Extend { reach: Reach::Claim, .. }, Value::Int(server @ 1..)) => {
                Ok((Reply::Extended, server.unsigned_abs()))
            }
            (Request::Take { .. }, Value::Array(parts)) => {
                read_joined(&parts).ok_or_else(|| unreadable(format!("{parts:?}").as_bytes()))
            }
            (_, Value::BulkString(text)) => match self.0.read_refusal(&text) {
                Some(refusal) => {
                    let refused = refusal.map_or_else(|error| error, |(left, _)| quarantined(left));
                    return Err(Failure::not_done(refused));
                }
                None => read_taken(&text).unwrap_or_else(|| Err(unreadable(&text))),
            },
            (_, value) => Err(unreadable(format!("{value:?}").as_bytes())),
        };
        let (reply, server) = read.map_err(|error| Failure::unknown(error, sent))?;
        if matches!(reply, Reply::Granted { .. }) {
            self.0.check_copies(copies, sent)?;
        }
        Ok((reply, server))
    }

    fn give<'a>(give: &Request<'a>) -> Option<Request<'a>> {
        Some(*give)
    }

    fn given(reply: Reply) -> Reply {
        reply
    }
}

impl Native {
    /// What a break says that set the lock free and met more waiters that are gone than it could remove.
    pub(in crate::store::redis) const UNFINISHED: i64 = 3;

    /// Whether a give set the lock free and met more waiters that are gone than it could remove.
    pub(in crate::store::redis) fn is_unfinished(value: &Value) -> bool {
        matches!(value, Value::Int(2 | 3))
    }

    fn script(&self, request: &Request<'_>) -> &'static Script {
        let guarded = self.0.guard.is_some();
        match request {
            Request::Take { .. } if guarded => &GUARDED_TAKE,
            Request::Take { .. } => &TAKE,
            Request::Give { .. } if guarded => &GUARDED_GIVE,
            Request::Give { .. } => &GIVE,
            // A server that lost data may know of a lock that was passed on since.
            Request::Extend { reach: Reach::Claim | Reach::Pass(_), .. } if guarded => {
                &GUARDED_EXTEND
            }
            // The others only prolong what the server says is the token's. On one that lost data, this
            // can be a lease that was given up or ran out since, which nobody extends; or the holder's
            // own, and nobody else is granted the lock before that has ended.
            Request::Extend { .. } => &EXTEND,
        }
    }
}

/// Reads a reply of take.lua; `None` if it is none.
fn read_taken(text: &[u8]) -> Option<Result<(Reply, u64), Error>> {
    let mut words = Words(Some(text));
    let sign = words.word()?;
    if sign == b"F" {
        return Some(Err(foreign(&String::from_utf8_lossy(words.rest()))));
    }
    let mut number = || words.number();
    Some(Ok(match sign {
        // The everyday take: its fence is the server's time.
        b"0" => {
            let fence = number().filter(|fence| (1..=MAX_FENCE).contains(fence))?;
            (Reply::Granted { fence, block: 1 }, fence)
        }
        b"G" => {
            let (fence, block, server) = (number()?, number()?, number()?);
            let known = (1..=MAX_FENCE).contains(&fence) && block > 0;
            let block = u32::try_from(block).ok().filter(|_| known)?;
            (Reply::Granted { fence, block }, server)
        }
        b"B" => {
            let (free_in, server) = (Duration::from_millis(number()?), number()?);
            let (rank, ticket, ours) = (number()?, number()?, number()? == 1);
            let rank = u32::try_from(rank).ok()?;
            (Reply::Busy { free_in, ticket, rank, ours }, server)
        }
        _ => return None,
    }))
}

/// The same of quick_join.lua.
fn read_joined(parts: &[Value]) -> Option<(Reply, u64)> {
    let [Value::Int(left), Value::Int(rank), Value::BulkString(ticket)] = parts else {
        return None;
    };
    let ticket = Words(Some(ticket)).number()?;
    let free_in = Duration::from_millis(u64::try_from(*left).ok()?);
    let rank = u32::try_from(*rank).ok()?;
    Some((Reply::Busy { free_in, ticket, rank, ours: true }, ticket))
}
