//! Leasehold's own format: the lock under its name, the fence and the queue beside it.

#[cfg(test)]
pub(crate) mod model;
#[cfg(test)]
#[cfg(kit)]
pub(super) mod tests;

use std::time::Duration;

use redis::Value;

use super::guard::quarantined;
use super::{
    Arg, Batch, Dialect, Format, NO_WAKEUP, Packer, Script, Wakeup, Words, foreign, script,
    unreadable, write_member,
};
use crate::clock::Moment;
use crate::config::limits::MAX_FENCE;
use crate::error::Error;
use crate::store::{Failure, Place, Reach, Reply, Request, millis};
use crate::token::HEX;

/// A client that takes will give, perhaps with the last thing that it does, and may have to claim
/// what it is handed, in a short time.
static TAKE: Script =
    script!("../lock.lua", "quick_take.lua", "hand_over.lua", "take.lua").leading(&GIVE);
static GIVE: Script =
    script!("../lock.lua", "quick_give.lua", "hand_over.lua", "give.lua").leading(&EXTEND);
static EXTEND: Script = script!("../lock.lua", "extend.lua");
/// Where the server is guarded.
static GUARDED_TAKE: Script = script!(
    "../guard.lua",
    "../guarded.lua",
    "../lock.lua",
    "quick_take.lua",
    "hand_over.lua",
    "take.lua"
)
.guarded()
.leading(&GUARDED_GIVE);
static GUARDED_GIVE: Script = script!(
    "../guard.lua",
    "../lock.lua",
    "quick_give.lua",
    "hand_over.lua",
    "guarded_give.lua",
    "give.lua"
)
.guarded()
.leading(&GUARDED_EXTEND);
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

    fn pack<'a, 'e>(
        &self,
        requests: &[Self::Request<'a>],
        wakeup: &dyn Fn(&[u8]) -> Wakeup<'e>,
    ) -> Batch<'a> {
        let mut packer = Packer::new(&self.0, requests.len());
        let (mut hex, mut member) = ([0; HEX], Vec::new());
        for request in requests {
            let (Request::Take { name, token, ttl, .. }
            | Request::Extend { name, token, ttl, .. }
            | Request::Give { name, token, ttl, .. }) = *request;
            packer.begin(name, Some(*request));
            let script = self.script(request);
            let mine = token.hex(&mut hex).as_bytes();
            let span = ttl.min(self.0.claim_window);
            let (text, ttl) = (Arg::Text(mine), Arg::Number(millis(ttl)));
            match *request {
                Request::Take { place, block, .. } => {
                    let (wakeup, ticket) = match place {
                        Place::Join(ticket) => (wakeup(name), ticket),
                        Place::Try => (NO_WAKEUP, 0),
                    };
                    write_member(&mut member, mine, span, &wakeup.channel);
                    let may_stand = !member.is_empty();
                    let mode: &[u8] = if wakeup.is_open && may_stand { b"join" } else { b"try" };
                    let (mode, block) = (Arg::Text(mode), Arg::Number(block.into()));
                    let args = [text, ttl, mode, block, Arg::Text(&member), Arg::Number(ticket)];
                    packer.replicated(script, 3, &args[..if may_stand { 6 } else { 4 }]);
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
                    write_member(&mut member, mine, span, &wakeup(name).channel);
                    packer.call(script, 3, &[text, Arg::Number(fence), Arg::Text(&member)]);
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
                // A take that reports an error has not taken the lock, and the others are refused
                // before they write.
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
            (_, Value::BulkString(text)) => {
                match self.0.guard.and_then(|guard| guard.read(&text)) {
                    Some(refusal) => {
                        let refused =
                            refusal.map_or_else(|error| error, |(left, _)| quarantined(left));
                        return Err(Failure::not_done(refused));
                    }
                    None => read_taken(&text).unwrap_or_else(|| Err(unreadable(&text))),
                }
            }
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
