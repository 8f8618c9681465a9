//! Leasehold's own format: the lock under its name, the fence and the queue beside it.

#[cfg(test)]
pub(crate) mod model;
#[cfg(test)]
pub(super) mod tests;

use std::borrow::Cow;
use std::time::Duration;

use redis::Value;

use super::guard::{Guard, quarantined};
use super::keys::Keys;
use super::{
    Batch, Copies, Decimal, Guarding, Script, explain, foreign, look, notice, script, unreadable,
    write_member,
};
use crate::config::MAX_FENCE;
use crate::error::Error;
use crate::store::{Look, Notice, Place, Reach, Reply, Request, millis};
use crate::token::HEX;

/// Whoever takes will give, perhaps with the last thing that it does.
static TAKE: Script = script!(leading: "hand_over.lua", "take.lua"; GIVE);
static GIVE: Script = script!(new: "hand_over.lua", "give.lua");
/// Where the server is guarded.
static GUARDED_TAKE: Script =
    script!(leading: "../guard.lua", "guarded_take.lua", "hand_over.lua", "take.lua"; GUARDED_GIVE);
static GUARDED_GIVE: Script =
    script!(new: "../guard.lua", "hand_over.lua", "guarded_give.lua", "give.lua");
static EXTEND: Script = script!(new: "extend.lua");
static PASS: Script = script!(new: "pass.lua");
/// As a take: a server that lost data may know of a lock that was passed on since.
static GUARDED_PASS: Script = script!(new: "../guard.lua", "guarded_take.lua", "pass.lua");

/// Without the guard, and with it.
static TAKES: [&Script; 2] = [&TAKE, &GUARDED_TAKE];
static GIVES: [&Script; 2] = [&GIVE, &GUARDED_GIVE];
static PASSES: [&Script; 2] = [&PASS, &GUARDED_PASS];

/// The keys of one client: every name behind the same prefix.
pub(in crate::store::redis) struct Native {
    prefix: Vec<u8>,
    claim_window: Duration,
    guard: Option<Guard>,
    copies: Option<Copies>,
}

/// Where a client is told that it was granted a lock.
#[derive(Clone)]
pub(in crate::store::redis) struct Wakeup<'a> {
    /// Always the same for one client and name. Empty where it has none: then it has no place in any queue.
    pub(in crate::store::redis) channel: Cow<'a, [u8]>,
    /// It listens at this moment, and so may stand in queues.
    pub(in crate::store::redis) is_open: bool,
}

impl Native {
    pub(in crate::store::redis) fn new(prefix: &[u8], claim_window: Duration) -> Native {
        Native { prefix: prefix.to_vec(), claim_window, guard: None, copies: None }
    }

    /// Takes are followed by WAIT.
    pub(in crate::store::redis) fn replicated(self, copies: Option<Copies>) -> Native {
        Native { copies, ..self }
    }

    /// Of servers that grant nothing while they may have lost data.
    pub(in crate::store::redis) fn guarded(self, guard: Option<Guard>) -> Native {
        Native { guard, ..self }
    }

    pub(in crate::store::redis) fn pack<'e>(
        &self,
        requests: &[Request<'_>],
        wakeup: &dyn Fn(&[u8]) -> Wakeup<'e>,
    ) -> Batch {
        let mut batch = Batch::with_room_for(requests.len());
        let (mut keys, mut hex, mut member) = (Keys::new(), [0; HEX], Vec::new());
        let (mut marker, longest) = (Vec::new(), self.guard.map(Guard::longest));
        for request in requests {
            let (Request::Take { name, token, ttl, .. }
            | Request::Extend { name, token, ttl, .. }
            | Request::Give { name, token, ttl, .. }) = *request;
            keys.write(&self.prefix, name);
            let Keys { lock, side, queue } = &keys;
            let all: [&[u8]; 3] = [lock, side, queue];
            if let Some(guard) = self.guard {
                guard.write_marker(&mut marker, lock);
            }
            let guarding = longest
                .as_ref()
                .map(|longest| Guarding { marker: &marker, longest: longest.digits() });
            let mut push = |[plain, guarded]: [&'static Script; 2],
                            keys: &[&[u8]],
                            args: &[&[u8]]| match guarding {
                None => batch.push(plain, keys, args),
                Some(guarding) => batch.push_guarded(guarded, keys, guarding, args),
            };
            let token = token.hex(&mut hex).as_bytes();
            let millis = Decimal::of(millis(ttl));
            match *request {
                Request::Take { place, block, .. } => {
                    let block = Decimal::of(block.into());
                    let [mine, millis, block] = [token, millis.digits(), block.digits()];
                    let wakeup = match place {
                        Place::Join(_) => wakeup(name),
                        Place::Try => super::super::NO_WAKEUP,
                    };
                    match place {
                        Place::Join(ticket) if !wakeup.channel.is_empty() => {
                            let span = ttl.min(self.claim_window);
                            write_member(&mut member, mine, span, &wakeup.channel);
                            let mode: &[u8] = if wakeup.is_open { b"join" } else { b"try" };
                            let ticket = Decimal::of(ticket);
                            let place = [mine, millis, mode, block, &member, ticket.digits()];
                            push(TAKES, &all, &place);
                        }
                        _ => push(TAKES, &all, &[mine, millis, b"try", block]),
                    }
                    if let Some(copies) = self.copies {
                        batch.wait(copies);
                    }
                }
                Request::Extend { fence, reach, .. } => {
                    let millis = millis.digits();
                    match reach {
                        Reach::Grow => batch.push(&EXTEND, &all[..1], &[token, millis, b"grow"]),
                        Reach::Set => batch.push(&EXTEND, &all[..1], &[token, millis, b"set"]),
                        Reach::Pass(to) => {
                            let (mut other, fence) = ([0; HEX], Decimal::of(fence));
                            let other = to.hex(&mut other).as_bytes();
                            let pass = [token, millis, other, fence.digits()];
                            push(PASSES, &all[..2], &pass);
                        }
                        Reach::Refresh => {
                            let fence = Decimal::of(fence);
                            // A claim has nothing to do in the queue, and must not wait for it
                            // while a Cluster moves the slot.
                            let claim = [token, millis, b"claim", fence.digits()];
                            push(TAKES, &all[..2], &claim);
                        }
                    }
                }
                Request::Give { fence, .. } => {
                    let span = ttl.min(self.claim_window);
                    write_member(&mut member, token, span, &wakeup(name).channel);
                    push(GIVES, &all, &[token, Decimal::of(fence).digits(), &member]);
                }
            }
        }
        batch
    }

    /// What a script's reply means to the request that it answers, and the server's clock in
    /// microseconds, where it tells.
    pub(in crate::store::redis) fn read(
        &self,
        request: &Request<'_>,
        value: Value,
    ) -> Result<(Reply, u64), Error> {
        match (request, value) {
            (request, Value::ServerError(error)) => Err(explain(self.script(request), &error)),
            (Request::Give { .. }, Value::Int(1 | 3)) => Ok((Reply::Given, 0)),
            (Request::Give { .. }, Value::Int(2)) => Ok((Reply::NotMine, 0)),
            (Request::Extend { .. }, Value::Int(1)) => Ok((Reply::Extended, 0)),
            (Request::Give { .. } | Request::Extend { .. }, Value::Int(0)) => {
                Ok((Reply::NotMine, 0))
            }
            (request, Value::BulkString(text)) => match self.refusal(&text) {
                Some(refused) => Err(refused),
                None => read_taken(request, &text).unwrap_or_else(|| Err(unreadable(&text))),
            },
            (_, value) => Err(unreadable(format!("{value:?}").as_bytes())),
        }
    }

    /// Whether a give set the lock free and met more waiters that are gone than it could remove.
    pub(in crate::store::redis) fn is_unfinished(value: &Value) -> bool {
        matches!(value, Value::Int(2 | 3))
    }

    /// Why a guarded server did not do what it was asked, and never will.
    pub(in crate::store::redis) fn refusal(&self, text: &[u8]) -> Option<Error> {
        match self.guard?.read(std::str::from_utf8(text).ok()?)? {
            Ok((left, _)) => Some(quarantined(left)),
            Err(error) => Some(error),
        }
    }

    fn script(&self, request: &Request<'_>) -> &'static Script {
        let guarded = usize::from(self.guard.is_some());
        match request {
            Request::Take { .. } | Request::Extend { reach: Reach::Refresh, .. } => TAKES[guarded],
            Request::Extend { reach: Reach::Pass(_), .. } => PASSES[guarded],
            // Without the guard, which lets a claim pass as well: they grant nothing, and only
            // prolong what the server says is the token's. Of a server that lost data, this can be
            // a lease that was given up since, or that ran out, and then nobody extends it; or the
            // holder's own, whom no other follows before it has ended.
            Request::Extend { .. } => &EXTEND,
            Request::Give { .. } => GIVES[guarded],
        }
    }

    /// What was published to a client; `None` if it can make nothing of it.
    pub(in crate::store::redis) fn read_notice(&self, payload: &[u8]) -> Option<Notice> {
        notice::read(payload, &self.prefix)
    }

    pub(in crate::store::redis) fn pack_look(&self, name: &[u8]) -> Batch {
        look::pack(&self.prefix, name)
    }

    pub(in crate::store::redis) fn read_look(&self, value: Value) -> Result<Look, Error> {
        look::read(value, look::Fence::Second)
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
