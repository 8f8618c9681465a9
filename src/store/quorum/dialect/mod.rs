//! One node of a quorum: the lock under its name, as everywhere, and beside it the fence, the attempt
//! that it was granted to, and who waits. What the nodes' votes add up to is decided elsewhere.

#[cfg(test)]
#[cfg(kit)]
mod tests;

use std::time::Duration;

use redis::Value;

use crate::clock::Moment;
use crate::config::limits::MAX_FENCE;
use crate::error::{Error, ErrorKind};
use crate::store::redis::several::{
    Arg, Batch, Dialect, Format, Packer, Script, Wakeup, Words, foreign, script, unreadable,
};
use crate::store::{Failure, Place, Reach, Reply, Request, millis};
use crate::token::{HEX, Token};

/// What comes before every vote: whether the node has one, and whose the lock is.
macro_rules! ballot {
    ($file:literal) => {
        script!(
            "../../redis/dialect/guard.lua",
            "../../redis/dialect/guarded.lua",
            "../../redis/dialect/lock.lua",
            $file
        )
        .guarded()
    };
}

static TAKE: Script = script!(
    "quick_take.lua",
    "../../redis/dialect/guard.lua",
    "../../redis/dialect/guarded.lua",
    "line.lua",
    "../../redis/dialect/lock.lua",
    "take.lua"
)
.guarded()
.leading(&GIVE);
static RAISE: Script = ballot!("raise.lua");
static EXTEND: Script = ballot!("extend.lua");
static FILL: Script = ballot!("fill.lua");
static BREAK: Script = script!("../../redis/dialect/break.lua", "give.lua");
static GIVE: Script =
    script!("quick_give.lua", "line.lua", "../../redis/dialect/lock.lua", "give.lua");

/// No block has more fences.
pub(super) const LONGEST_BLOCK: u32 = 1024;

pub(super) struct Quorum(pub(super) Format);

/// One thing asked of a node about a token, as docs/protocol.md says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ballot<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) token: Token,
    pub(crate) asks: Asks,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asks {
    /// `attempt` is the client's own clock in microseconds, and larger than in any ballot before,
    /// except those numbered by a clock too far ahead for any node.
    Take { ttl: Duration, place: Place, attempt: u64, block: u32 },
    /// The lock that this attempt was granted is kept under this fence.
    Raise { attempt: u64, fence: u64 },
    /// A lock that is the token's lasts longer, or becomes another token's.
    Extend { fence: u64, ttl: Duration, reach: Reach },
    /// The lock of a token that has it on most nodes is stored, where it is free. `block`: how many
    /// fences from this one on may be its own.
    Fill { fence: u64, ttl: Duration, block: u32 },
    /// By this attempt or an earlier one; without an attempt, by any. `leaves`: its place in the queue
    /// too. `tells`: waiters are told if that made the lock free. `ttl` is what its takes asked for.
    Give { ttl: Duration, attempt: Option<u64>, leaves: bool, tells: bool },
}

impl Asks {
    fn script(&self) -> &'static Script {
        match self {
            Asks::Take { .. } => &TAKE,
            Asks::Raise { .. } => &RAISE,
            Asks::Extend { .. } => &EXTEND,
            Asks::Fill { .. } => &FILL,
            Asks::Give { .. } => &GIVE,
        }
    }
}

impl<'a> Ballot<'a> {
    /// The request that it stands for. A give that leaves the queue gives up all that the token has.
    pub(super) fn request(&self) -> Option<Request<'a>> {
        let Ballot { name, token, asks } = *self;
        Some(match asks {
            Asks::Take { ttl, place, block, .. } => {
                Request::Take { name, token, ttl, place, block }
            }
            Asks::Extend { fence, ttl, reach } => {
                Request::Extend { name, token, fence, ttl, reach }
            }
            Asks::Fill { fence, ttl, .. } => {
                Request::Extend { name, token, fence, ttl, reach: Reach::Grow }
            }
            Asks::Give { ttl, attempt, leaves, .. } => {
                let fence = attempt.filter(|_| !leaves).unwrap_or(0);
                Request::Give { name, token, fence, ttl }
            }
            Asks::Raise { .. } => return None,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    /// To a take: the lock is the attempt's there, under this fence and the rest of its block.
    Granted { fence: u64 },
    /// To a take: it is not, and can be free by its ttl after `free_in`. Where a place was taken,
    /// `ticket` is not 0 and `rank` waiters stand before it. `holder` tells holders apart, and is the
    /// same for one holder on every node; `ours`: it is a client of this library, and tells waiters
    /// when it gives.
    Busy { free_in: Duration, rank: u32, ticket: u64, holder: u64, ours: bool },
    /// To all but a give: the node lost its data, and has no vote until `left` is over.
    Quarantined { left: Duration },
    /// To a raise: the attempt's lock has the fence there.
    Raised,
    /// To an extension: the lock is the token's there.
    Extended,
    /// To a fill: the lock is the token's there.
    Filled,
    /// To a give: it was the token's there, and is free.
    Given,
    /// To all but a take: the lock is not the token's there, or not as was said.
    NotMine,
}

impl Dialect for Quorum {
    type Request<'a> = Ballot<'a>;
    type Reply = Said;
    const FENCE: usize = 1;

    fn format(&self) -> &Format {
        &self.0
    }

    fn breaking(&self) -> &'static Script {
        &BREAK
    }

    fn pack<'a, 'e>(
        &self,
        ballots: &[Self::Request<'a>],
        wakeup: &dyn Fn(&[u8]) -> Wakeup<'e>,
    ) -> Batch<'a> {
        let mut packer = Packer::new(&self.0, ballots.len());
        let mut hex = [0; HEX];
        for ballot in ballots {
            let Ballot { name, token, asks } = *ballot;
            let script = asks.script();
            packer.begin(name, ballot.request());
            let text = Arg::Text(token.hex(&mut hex).as_bytes());
            let number = Arg::Number;
            match asks {
                Asks::Take { ttl, place, attempt, block } => {
                    let Wakeup { channel, is_open } = wakeup(name);
                    let (count, ticket) = match place {
                        _ if channel.is_empty() => (if block == 1 { 2 } else { 3 }, 0),
                        Place::Join(ticket) if is_open => (5, ticket),
                        _ => (4, 0),
                    };
                    let line = line(attempt, text);
                    let [ttl, block, ticket] = [millis(ttl), block.into(), ticket].map(number);
                    let args = [Arg::Words(&line), ttl, block, Arg::Text(&channel), ticket];
                    packer.replicated(script, 3, &args[..count]);
                }
                Asks::Raise { attempt, fence } => {
                    packer.replicated(script, 2, &[text, number(attempt), number(fence)]);
                }
                Asks::Extend { fence, ttl, reach } => {
                    let mut other = [0; HEX];
                    let (mode, to): (&[u8], &[u8]) = match reach {
                        Reach::Pass(to) => (b"pass", to.hex(&mut other).as_bytes()),
                        Reach::Grow => (b"grow", b""),
                        // Not "claim", which the guard lets through: a node that lost data has no vote.
                        Reach::Claim => (b"refresh", b""),
                        Reach::Set => (b"set", b""),
                    };
                    let (ttl, mode) = (number(millis(ttl)), Arg::Text(mode));
                    let args = [text, ttl, mode, number(fence), Arg::Text(to)];
                    packer.call(script, 2, &args[..if to.is_empty() { 4 } else { 5 }]);
                }
                Asks::Fill { fence, ttl, block } => {
                    let [ttl, block] = [millis(ttl), block.into()].map(number);
                    packer.call(script, 2, &[text, ttl, number(fence), block]);
                }
                Asks::Give { attempt, leaves, tells, .. } => {
                    let Wakeup { channel, .. } = wakeup(name);
                    let count = if leaves && !channel.is_empty() {
                        3
                    } else if tells {
                        1
                    } else {
                        2
                    };
                    let line = line(attempt.unwrap_or(0), text);
                    let args = [Arg::Words(&line), number(tells.into()), Arg::Text(&channel)];
                    packer.call(script, 3, &args[..count]);
                }
            }
        }
        packer.batch
    }

    fn read(
        &self,
        ballot: &Ballot<'_>,
        (value, copies): (Value, Option<&Value>),
        sent: Moment,
    ) -> Result<(Said, u64), Failure> {
        let read = match (ballot.asks, value) {
            (asks, Value::ServerError(error)) => {
                return Err(Failure::not_done(asks.script().explain(&error)));
            }
            (Asks::Take { attempt, .. }, Value::Int(1)) if attempt <= MAX_FENCE => {
                Ok((Said::Granted { fence: attempt }, 0))
            }
            (Asks::Raise { .. }, Value::Int(1)) => Ok((Said::Raised, 0)),
            (Asks::Extend { .. }, Value::Int(1)) => Ok((Said::Extended, 0)),
            (Asks::Fill { .. }, Value::Int(1)) => Ok((Said::Filled, 0)),
            (Asks::Give { .. }, Value::Int(1)) => Ok((Said::Given, 0)),
            (asks, Value::Int(0)) if !matches!(asks, Asks::Take { .. }) => Ok((Said::NotMine, 0)),
            (asks, Value::BulkString(text)) => {
                self.read_text(asks, &text).unwrap_or_else(|| Err(unreadable(&text)))
            }
            (_, value) => Err(unreadable(format!("{value:?}").as_bytes())),
        };
        let (said, server) = read.map_err(|error| match error.kind() {
            // In words of our own scripts, instead of doing it.
            ErrorKind::BadArgument | ErrorKind::WrongType => Failure::not_done(error),
            _ => Failure::unknown(error, sent),
        })?;
        if matches!(said, Said::Granted { .. } | Said::Raised) {
            self.0.check_copies(copies, sent)?;
        }
        Ok((said, server))
    }

    /// Without a fence the token is given up altogether. With a fence, only one attempt of it is:
    /// by now the token may have made another attempt and have a place in the queue.
    fn give<'a>(give: &Request<'a>) -> Option<Ballot<'a>> {
        let Request::Give { name, token, fence, ttl } = *give else { return None };
        let attempt = (fence != 0).then_some(fence);
        let asks = Asks::Give { ttl, attempt, leaves: attempt.is_none(), tells: true };
        Some(Ballot { name, token, asks })
    }

    fn given(said: Said) -> Reply {
        if said == Said::Given { Reply::Given } else { Reply::NotMine }
    }
}

impl Quorum {
    fn read_text(&self, asks: Asks, text: &[u8]) -> Option<Result<(Said, u64), Error>> {
        if matches!(asks, Asks::Give { .. }) {
            return None;
        }
        if let Some(refusal) = self.0.read_refusal(text) {
            return Some(refusal.map(|(left, server)| (Said::Quarantined { left }, server)));
        }
        if !matches!(asks, Asks::Take { .. }) {
            return None;
        }
        let mut words = Words(Some(text));
        Some(match words.word()? {
            b"B" => {
                let (left, rank) = (words.number()?, words.number()?);
                let (ticket, holder) = (words.number()?, hex(words.word()?)?);
                let ours = words.number()? == 1;
                let (free_in, rank) = (Duration::from_millis(left), u32::try_from(rank).ok()?);
                Ok((Said::Busy { free_in, rank, ticket, holder, ours }, 0))
            }
            b"G" => {
                let fence = words.number().filter(|fence| (1..=MAX_FENCE).contains(fence))?;
                Ok((Said::Granted { fence }, 0))
            }
            b"F" => Err(foreign(&String::from_utf8_lossy(words.rest()))),
            _ => return None,
        })
    }
}

/// What the side key reads after an everyday take.
fn line(attempt: u64, token: Arg<'_>) -> [Arg<'_>; 4] {
    [Arg::Number(0), Arg::Number(attempt), Arg::Number(attempt), token]
}

fn hex(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}
