//! The server: the model of the scripts, as clients and the network reach it.

use std::time::Duration;

use super::setup::Wrong;
use crate::explore::models::ModelWakeup;
use crate::explore::models::redis::{self, Flaws, ModelServer};
use crate::store::{Notice, Place, Reach, Reply, Request};
use crate::token::Token;

/// What a client is told on its wake-up connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Word {
    Granted { token: Token, fence: u64, block: u32, server: u64, span: Duration },
}

impl From<Notice> for Word {
    fn from(notice: Notice) -> Word {
        match notice {
            Notice::Granted { token, fence, block, server, span, .. } => {
                Word::Granted { token, fence, block, server, span }
            }
            Notice::Free { .. } => unreachable!("one server tells no more"),
        }
    }
}

/// One command of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Op {
    /// `listens`: the client could be told, so that it may stand in the queue.
    Take {
        token: Token,
        ttl: Duration,
        ticket: u64,
        block: u32,
        listens: bool,
    },
    Give {
        token: Token,
        fence: u64,
        ttl: Duration,
    },
    Extend {
        token: Token,
        ttl: Duration,
    },
    Claim {
        token: Token,
        first: u64,
        ttl: Duration,
    },
    /// When is it free?
    Look,
    /// Is the lock the token's, and nobody in the queue?
    LookForWaiters {
        token: Token,
    },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Server {
    model: ModelServer,
}

impl Server {
    pub(super) fn new(window: Duration, wrong: Option<Wrong>) -> Server {
        let flaws = Flaws {
            full_ttl_at_hand_over: wrong == Some(Wrong::FullTtl),
            undo_without_hand_over: wrong == Some(Wrong::UndoFreesOnly),
        };
        Server { model: ModelServer::new(window, flaws) }
    }

    /// The token that has the lock (`None` for a foreign client's) and until when.
    pub(super) fn holder(&self, now: u64) -> Option<(Option<Token>, u64)> {
        let held = self.model.lock.as_ref().filter(|held| held.until > now);
        held.map(|held| (held.token, held.until))
    }

    /// Who stands in the queue, and where each is told.
    pub(super) fn queue(&self) -> impl Iterator<Item = (Token, u8)> {
        self.model.queue.iter().map(|entry| (entry.token, entry.channel))
    }

    /// SET NX PX of a foreign client.
    pub(super) fn foreign_take(&mut self, now: u64, ttl: Duration) {
        self.model.seize(now + ttl.as_micros() as u64);
    }

    pub(super) fn foreign_give(&mut self) {
        self.model.lock.take_if(|held| held.token.is_none());
    }

    /// FLUSHALL.
    pub(super) fn flush(&mut self) {
        (self.model.lock, self.model.side) = (None, None);
        self.model.queue.clear();
    }

    /// Carries out one command of the client on this channel. Returns the reply, the time in it
    /// (or 0) and what is said to whom.
    pub(super) fn run(
        &mut self,
        op: &Op,
        channel: u8,
        now: u64,
        hears: &dyn Fn(u8) -> bool,
    ) -> (Reply, u64, Vec<(u8, Word)>) {
        let name = redis::NAME;
        let mut is_open = true;
        let request = match *op {
            Op::Take { token, ttl, ticket, block, listens } => {
                is_open = listens;
                Request::Take { name, token, ttl, place: Place::Join(ticket), block }
            }
            Op::Give { token, fence, ttl } => Request::Give { name, token, fence, ttl },
            Op::Extend { token, ttl } => {
                Request::Extend { name, token, fence: 0, ttl, reach: Reach::Grow }
            }
            Op::Look => {
                let until = self.holder(now).map_or(now, |(_, until)| until);
                let free_in = Duration::from_millis((until - now) / 1000);
                return (Reply::Busy { free_in, ticket: 0, rank: 0, ours: false }, 0, Vec::new());
            }
            Op::LookForWaiters { token } => {
                let is_held = self.holder(now).is_some_and(|(holder, _)| holder == Some(token));
                let side = self.model.side.as_ref();
                let is_alone = side.is_some_and(|side| {
                    !side.queued && side.grant.is_some_and(|(owner, _)| owner == token)
                });
                let reply = if is_held && is_alone { Reply::Extended } else { Reply::NotMine };
                return (reply, 0, Vec::new());
            }
            Op::Claim { token, first, ttl } => {
                Request::Extend { name, token, fence: first, ttl, reach: Reach::Claim }
            }
        };
        let wakeup = ModelWakeup { channel: Some(channel), is_open };
        let (reply, said) = self.model.answer(now, &request, wakeup, hears);
        let timed = matches!(op, Op::Take { .. })
            || matches!(op, Op::Claim { .. }) && reply == Reply::Extended;
        let said = said.into_iter().map(|(channel, notice)| (channel, notice.into())).collect();
        (reply, if timed { now } else { 0 }, said)
    }
}
