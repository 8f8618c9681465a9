//! One node of a quorum: the lock under its name, as everywhere, and beside it the fence, the attempt
//! that it was granted to, and who waits. What the nodes' votes add up to is decided elsewhere.

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::time::Duration;

use redis::Value;

use super::guard::Guard;
use super::keys::Keys;
use super::native::Wakeup;
use super::{
    Batch, Copies, Decimal, Guarding, Script, explain, foreign, look, notice, script, unreadable,
    write_member,
};
use crate::config::MAX_FENCE;
use crate::error::Error;
use crate::store::{Look, Notice, Place, Reach, millis};
use crate::token::{HEX, Token};

static TAKE: Script = script!(leading: "../guard.lua", "take.lua"; GIVE);
static RAISE: Script = script!(new: "../guard.lua", "raise.lua");
static EXTEND: Script = script!(new: "../guard.lua", "extend.lua");
static FILL: Script = script!(new: "../guard.lua", "fill.lua");
static GIVE: Script = script!(new: "give.lua");

/// The keys of one client on one node: every name behind the same prefix.
pub(in crate::store::redis) struct Quorum {
    prefix: Vec<u8>,
    guard: Guard,
    copies: Option<Copies>,
}

/// One thing asked of a node. Each is safe to send twice, and safe to arrive late.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) enum Ballot<'a> {
    /// Grant `token` the lock, with a block of so many fences, if it is free. `attempt` is the
    /// client's own clock in microseconds, and larger than in any ballot that it sent before (but
    /// for those that were numbered by a clock too far ahead for any node).
    Take { name: &'a [u8], token: Token, ttl: Duration, place: Place, attempt: u64, block: u32 },
    /// Grant nobody a fence up to this one any more, if the lock is this attempt's.
    Raise { name: &'a [u8], token: Token, attempt: u64, fence: u64 },
    /// Make a lock that is `token`'s last for `ttl` from now on. `fence` is the one it is held under.
    Extend { name: &'a [u8], token: Token, fence: u64, ttl: Duration, reach: Reach },
    /// Store the lock for `token`, which has it on most nodes without this one, if it is free here.
    /// `fence` is the one it is held under.
    Fill { name: &'a [u8], token: Token, fence: u64, ttl: Duration },
    /// Forget that the lock is `token`'s: by this attempt or an earlier one, or, without any, by
    /// whichever. `leaves`: its place among the waiters as well; `tells`: those who wait are told
    /// where it made the lock free.
    Give { name: &'a [u8], token: Token, attempt: Option<u64>, leaves: bool, tells: bool },
}

/// What a node said to a ballot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::store) enum Said {
    /// To a take: the lock is the attempt's there, under this fence and the rest of its block.
    Granted { fence: u64 },
    /// To a take: it is not, and can be free by its ttl after `free_in`. Where a place was taken,
    /// `ticket` is not 0 and so many stand before it.
    Busy {
        free_in: Duration,
        rank: u32,
        ticket: u64,
        /// The same for the same holder, on every node.
        holder: u64,
        /// The holder is one of ours, and whoever waits is told when it gives.
        ours: bool,
    },
    /// To all but a give: the node lost its data, and has no vote for so long.
    Quarantined { left: Duration },
    /// To a raise.
    Raised,
    /// To an extension.
    Extended,
    /// To a fill: the lock is the token's there.
    Filled,
    /// To a give.
    Given,
    /// To all but a take: the lock is not the token's there, or not as was said.
    NotMine,
}

impl Quorum {
    pub(in crate::store::redis) fn new(prefix: &[u8], guard: Guard) -> Quorum {
        Quorum { prefix: prefix.to_vec(), guard, copies: None }
    }

    /// What grants, and what a grant rests on, is followed by WAIT.
    pub(in crate::store::redis) fn replicated(self, copies: Option<Copies>) -> Quorum {
        Quorum { copies, ..self }
    }

    pub(in crate::store::redis) fn pack<'e>(
        &self,
        ballots: &[Ballot<'_>],
        wakeup: &dyn Fn(&[u8]) -> Wakeup<'e>,
    ) -> Batch {
        let mut batch = Batch::with_room_for(ballots.len());
        let (mut keys, mut hex) = (Keys::new(), [0; HEX]);
        let (mut marker, mut member) = (Vec::new(), Vec::new());
        let longest = self.guard.longest();
        for ballot in ballots {
            let (Ballot::Take { name, token, .. }
            | Ballot::Raise { name, token, .. }
            | Ballot::Extend { name, token, .. }
            | Ballot::Fill { name, token, .. }
            | Ballot::Give { name, token, .. }) = *ballot;
            keys.write(&self.prefix, name);
            let Keys { lock, side, queue } = &keys;
            self.guard.write_marker(&mut marker, lock);
            let guarding = Guarding { marker: &marker, longest: longest.digits() };
            let token = token.hex(&mut hex).as_bytes();
            match *ballot {
                Ballot::Take { ttl, place, attempt, block, .. } => {
                    let wakeup = wakeup(name);
                    write_member(&mut member, token, Duration::ZERO, &wakeup.channel);
                    let (mode, ticket): (&[u8], u64) = match place {
                        Place::Join(ticket) if wakeup.is_open && !member.is_empty() => {
                            (b"join", ticket)
                        }
                        _ => (b"try", 0),
                    };
                    let numbers = [millis(ttl), attempt, ticket, block.into()].map(Decimal::of);
                    let [ttl, attempt, ticket, block] = numbers.each_ref().map(Decimal::digits);
                    let args = [token, ttl, attempt, mode, &member, ticket, block];
                    batch.push_guarded(&TAKE, &[lock, side, queue], guarding, &args);
                }
                Ballot::Raise { attempt, fence, .. } => {
                    let numbers = [attempt, fence].map(Decimal::of);
                    let [attempt, fence] = numbers.each_ref().map(Decimal::digits);
                    let args = [token, attempt, fence];
                    batch.push_guarded(&RAISE, &[lock, side], guarding, &args);
                }
                Ballot::Extend { fence, ttl, reach, .. } => {
                    let numbers = [millis(ttl), fence].map(Decimal::of);
                    let [ttl, fence] = numbers.each_ref().map(Decimal::digits);
                    if let Reach::Pass(to) = reach {
                        let mut other = [0; HEX];
                        let args = [token, ttl, b"pass", fence, to.hex(&mut other).as_bytes()];
                        batch.push_guarded(&EXTEND, &[lock, side], guarding, &args);
                        continue;
                    }
                    let mode: &[u8] = match reach {
                        Reach::Grow | Reach::Pass(_) => b"grow",
                        Reach::Refresh => b"refresh",
                        Reach::Set => b"set",
                    };
                    let args = [token, ttl, mode, fence];
                    batch.push_guarded(&EXTEND, &[lock, side], guarding, &args);
                }
                Ballot::Fill { fence, ttl, .. } => {
                    let numbers = [millis(ttl), fence].map(Decimal::of);
                    let [ttl, fence] = numbers.each_ref().map(Decimal::digits);
                    batch.push_guarded(&FILL, &[lock, side], guarding, &[token, ttl, fence]);
                }
                Ballot::Give { attempt, leaves, tells, .. } => {
                    let wakeup = wakeup(name);
                    let channel: &[u8] = if leaves { &wakeup.channel } else { b"" };
                    write_member(&mut member, token, Duration::ZERO, channel);
                    let attempt = Decimal::of(attempt.unwrap_or(0));
                    let tells: &[u8] = if tells { b"1" } else { b"0" };
                    let args = [token, attempt.digits(), &member, tells];
                    batch.push(&GIVE, &[lock, side, queue], &args);
                }
            }
            if let (Some(copies), Ballot::Take { .. } | Ballot::Raise { .. }) =
                (self.copies, ballot)
            {
                batch.wait(copies);
            }
        }
        batch
    }

    /// What a script's reply says to the ballot that it answers, and the server's clock in
    /// microseconds, or 0 where it does not tell.
    pub(in crate::store::redis) fn read(
        &self,
        ballot: &Ballot<'_>,
        value: Value,
    ) -> Result<(Said, u64), Error> {
        match (ballot, value) {
            (ballot, Value::ServerError(error)) => Err(explain(script(ballot), &error)),
            (Ballot::Raise { .. }, Value::Int(1)) => Ok((Said::Raised, 0)),
            (Ballot::Extend { .. }, Value::Int(1)) => Ok((Said::Extended, 0)),
            (Ballot::Fill { .. }, Value::Int(1)) => Ok((Said::Filled, 0)),
            (Ballot::Give { .. }, Value::Int(1)) => Ok((Said::Given, 0)),
            (ballot, Value::Int(0)) if !matches!(ballot, Ballot::Take { .. }) => {
                Ok((Said::NotMine, 0))
            }
            (ballot, Value::BulkString(text)) => {
                self.read_text(ballot, &text).unwrap_or_else(|| Err(unreadable(&text)))
            }
            (_, value) => Err(unreadable(format!("{value:?}").as_bytes())),
        }
    }

    /// Whether a reply to a take or to an extension says that the lock is not the token's, on a node
    /// that has a vote.
    pub(in crate::store::redis) fn lacks_lock(&self, reply: &Value) -> bool {
        match reply {
            Value::Int(done) => *done == 0,
            Value::BulkString(text) => text.starts_with(b"B "),
            _ => false,
        }
    }

    pub(in crate::store::redis) fn guard(&self) -> Guard {
        self.guard
    }

    /// What was published to a client; `None` if it can make nothing of it.
    pub(in crate::store::redis) fn read_notice(&self, payload: &[u8]) -> Option<Notice> {
        notice::read(payload, &self.prefix)
    }

    pub(in crate::store::redis) fn pack_look(&self, name: &[u8]) -> Batch {
        look::pack(&self.prefix, name)
    }

    /// What one node knows. Only a majority of them says who holds the lock.
    pub(in crate::store::redis) fn read_look(&self, value: Value) -> Result<Look, Error> {
        look::read(value, look::Fence::Last)
    }

    fn read_text(&self, ballot: &Ballot<'_>, text: &[u8]) -> Option<Result<(Said, u64), Error>> {
        let text = std::str::from_utf8(text).ok()?;
        if matches!(ballot, Ballot::Give { .. }) {
            return None;
        }
        if let Some(refusal) = self.guard.read(text) {
            return Some(refusal.map(|(left, server)| (Said::Quarantined { left }, server)));
        }
        if !matches!(ballot, Ballot::Take { .. }) {
            return None;
        }
        let (sign, rest) = text.split_once(' ')?;
        let mut words = rest.split(' ');
        let mut number = |radix| u64::from_str_radix(words.next()?, radix).ok();
        Some(match sign {
            "G" => {
                let (fence, server) = (number(10)?, number(10)?);
                let known = (1..=MAX_FENCE).contains(&fence);
                Ok((Said::Granted { fence: known.then_some(fence)? }, server))
            }
            "B" => {
                let (left, server, rank) = (number(10)?, number(10)?, number(10)?);
                let (ticket, holder, ours) = (number(10)?, number(16)?, number(10)? == 1);
                let (free_in, rank) = (Duration::from_millis(left), u32::try_from(rank).ok()?);
                Ok((Said::Busy { free_in, rank, ticket, holder, ours }, server))
            }
            "F" => Err(foreign(rest)),
            _ => return None,
        })
    }
}

fn script(ballot: &Ballot<'_>) -> &'static Script {
    match ballot {
        Ballot::Take { .. } => &TAKE,
        Ballot::Raise { .. } => &RAISE,
        Ballot::Extend { .. } => &EXTEND,
        Ballot::Fill { .. } => &FILL,
        Ballot::Give { .. } => &GIVE,
    }
}
