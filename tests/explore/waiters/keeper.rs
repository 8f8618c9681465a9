//! What a client's keeper does, as steps: it claims, renews, and gives what is owed.

use std::time::Duration;

use super::server::Op;
use super::setup::{Wrong, ms};
use super::world::{Client, Errand, Lease, Life, Owed, Task, World};
use crate::clock::Moment;
use crate::config::drift;
use crate::store::Reply;
use crate::token::Token;
use crate::wait::Owe;

/// Between two tries of what failed.
pub(super) const RETRY: Duration = ms(50);

impl World {
    pub(super) fn owe(&mut self, c: usize, Owe { token, ttl, until }: Owe) {
        let now = self.clock(c);
        let client = &mut self.clients[c];
        match client.owed.iter_mut().find(|owed| owed.token == token) {
            Some(owed) => {
                owed.until = owed.until.max(until);
                owed.again = true;
                if owed.sent.is_none() {
                    owed.due = now;
                }
            }
            None => {
                let (sent, again) = (None, false);
                client.owed.push(Owed { token, ttl, until, due: now, sent, again });
            }
        }
    }

    pub(super) fn keep(&mut self, c: usize, number: usize) {
        let now = self.clock(c);
        let owed = &mut self.clients[c].owed[number];
        (owed.sent, owed.again) = (Some(now), false);
        let (token, ttl) = (owed.token, owed.ttl);
        self.send(c, Errand::Owed(token), vec![Op::Give { token, fence: 0, ttl }]);
    }

    /// The keeper claims or renews.
    pub(super) fn raise(&mut self, c: usize, t: usize, claim: bool) {
        let Task::Holding(lease) = &mut self.clients[c].threads[t].task else { return };
        lease.raising = true;
        let Lease { token, ttl, first, fence, .. } = *lease;
        let op = if claim { Op::Claim { token, first, ttl } } else { Op::Extend { token, ttl } };
        self.send(c, Errand::Raise { token, fence }, vec![op]);
    }

    pub(super) fn raised(
        &mut self,
        c: usize,
        (token, fence): (Token, u64),
        reply: Reply,
        sent: Moment,
    ) {
        if reply != Reply::Extended {
            self.refused(c, token, fence);
            return;
        }
        let (now, renews) = (self.clock(c), self.setup.renew);
        let Some(lease) = self.clients[c].lease(fence).filter(|lease| lease.is_valid(now)) else {
            return;
        };
        let ttl = lease.ttl;
        lease.raising = false;
        lease.valid_until = lease.valid_until.max(sent.plus(ttl).minus(drift(ttl)));
        lease.claim = Moment::NEVER;
        lease.renew = if renews { sent.plus(ttl / 3).max(now) } else { Moment::NEVER };
    }

    /// The token does not have the lock: the turn under it has ended, whichever it is by now.
    fn refused(&mut self, c: usize, token: Token, fence: u64) {
        let now = self.clock(c);
        let one_turn = self.setup.wrong == Some(Wrong::RefusesOneTurn);
        self.spoil_ticket(c);
        let client = &mut self.clients[c];
        client.refused.push(token);
        let held = client.threads.iter().find_map(|thread| match &thread.task {
            Task::Holding(lease) if lease.token == token && !lease.lost => Some(lease.fence),
            _ => None,
        });
        match held {
            Some(held) if held == fence || !one_turn => self.lose(c, held),
            None if !one_turn => {
                let effects = client.queue.lost(token, now);
                self.follow(c, effects);
            }
            _ => {}
        }
    }

    pub(super) fn lose(&mut self, c: usize, fence: u64) {
        let now = self.clock(c);
        let client = &mut self.clients[c];
        let Some(lease) = client.lease(fence) else { return };
        lease.lost = true;
        let token = lease.token;
        self.spoil_ticket(c);
        let effects = self.clients[c].queue.lost(token, now);
        self.follow(c, effects);
    }
}

impl Client {
    pub(super) fn lease(&mut self, fence: u64) -> Option<&mut Lease> {
        self.threads.iter_mut().find_map(|thread| match &mut thread.task {
            Task::Holding(lease) if lease.fence == fence && !lease.lost => Some(lease),
            _ => None,
        })
    }

    /// A give of a token that is owed was answered.
    pub(super) fn given(&mut self, token: Token, now: Moment, pause: Duration) {
        let closing = self.life == Life::Closing;
        let Some(at) = self.owed.iter().position(|owed| owed.token == token) else { return };
        let owed = &mut self.owed[at];
        let sent = owed.sent.take();
        if owed.again {
            owed.due = now;
        } else if closing || sent.is_some_and(|sent| sent >= owed.until) {
            self.owed.remove(at);
        } else {
            owed.due = now.plus(pause).min(owed.until).max(now);
        }
    }
}
