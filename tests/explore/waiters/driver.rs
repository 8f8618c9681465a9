//! What a client does with its line: the threads' loop and the listener, as steps.

use super::keeper::RETRY;
use super::server::{Op, Word};
use super::setup::{Wrong, ms};
use super::world::{Broken, Client, Errand, Lease, Life, Link, Task, Wire, World};
use crate::clock::Moment;
use crate::config::drift;
use crate::jitter::Jitter;
use crate::store::{Answer, Reply, ServerId};
use crate::token::Token;
use crate::wait::{Ask, Backoff, Effects, Ending, Next, Owe, Pace, Turn, Validity};

use std::time::Duration;

/// The keeper claims so long after a turn began.
const CLAIM_AFTER: Duration = ms(10);

impl World {
    pub(super) fn join(&mut self, c: usize, t: usize) {
        let terms = self.setup.terms(t);
        let behind = self.stands(c) || self.clients[c].queue.is_held();
        let client = &mut self.clients[c];
        let id = client.next_id;
        client.next_id += 1;
        let seed = (c as u64) << 32 | id;
        let pace = Pace::new(Backoff::default(), ms(64), Jitter::seeded(seed));
        client.queue.join(id, token(c, id), terms, pace);
        let thread = &mut client.threads[t];
        (thread.task, thread.id) = (Task::Ready, id);
        (thread.stands, thread.overtaken) = (behind, [0; 8]);
    }

    pub(super) fn run(&mut self, c: usize, t: usize) -> Result<(), Broken> {
        let now = self.clock(c);
        let client = &mut self.clients[c];
        let id = client.threads[t].id;
        let never_looks = self.setup.wrong == Some(Wrong::NeverLooks);
        let next = match client.queue.next(id, now) {
            Next::Look(_) if never_looks => client.queue.next(id, now),
            next => next,
        };
        match next {
            Next::Turn(turn) => return self.begin(c, t, turn),
            Next::Sleep(until) => client.threads[t].task = Task::Sleeping(until),
            Next::Look(token) => {
                client.threads[t].task = Task::Asking;
                self.send(c, Errand::Look { id, token }, vec![Op::Look]);
            }
            Next::Ask(ask) => {
                client.threads[t].task = Task::Asking;
                self.send_ask(c, Errand::Ask { id, ask }, None, ask);
            }
        }
        Ok(())
    }

    /// With the give of the grant that has ended, if there is one.
    fn send_ask(&mut self, c: usize, errand: Errand, ended: Option<Op>, ask: Ask) {
        let now = self.clock(c);
        let mut ops: Vec<_> = ended.into_iter().collect();
        if let Some(give) = ask.give {
            ops.push(Op::Give { token: give.token, fence: 0, ttl: give.ttl });
            if give.until > now {
                self.owe(c, give);
            }
        }
        let listens = self.clients[c].listener.link != Link::Closed;
        let Ask { token, ttl, ticket, block, .. } = ask;
        let take = Op::Take { token, ttl, ticket, block, listens };
        let first = ticket != 0 && self.setup.wrong != Some(Wrong::GivesFirst);
        ops.insert(if first && ended.is_some() { 0 } else { ops.len() }, take);
        self.send(c, errand, ops);
    }

    pub(super) fn send(&mut self, client: usize, errand: Errand, ops: Vec<Op>) {
        let sent = self.clock(client);
        let (replies, slow, orphan) = (Vec::new(), false, false);
        self.wires.push(Wire { client, errand, ops, replies, sent, slow, orphan });
    }

    /// A turn becomes a lease.
    fn begin(&mut self, c: usize, t: usize, turn: Turn) -> Result<(), Broken> {
        let now = self.clock(c);
        let (ttl, renews) = (self.setup.terms(t).ttl, self.setup.renew);
        let whole = |sent: Moment| sent.plus(ttl).minus(drift(ttl));
        let Turn { token, fence, .. } = turn;
        let fresh = Lease {
            token,
            ttl,
            fence,
            first: fence,
            valid_until: Moment::ZERO,
            lost: false,
            claim: Moment::NEVER,
            renew: Moment::NEVER,
            raising: false,
        };
        let lease = match turn.validity {
            Validity::Whole { sent } => {
                let renew = if renews { sent.plus(ttl / 3) } else { Moment::NEVER };
                Lease { valid_until: whole(sent), renew, ..fresh }
            }
            Validity::Window { since, span } => Lease {
                valid_until: since.plus(span).minus(drift(span)),
                claim: now.plus(CLAIM_AFTER),
                ..fresh
            },
            Validity::Passed => match self.clients[c].passing.take() {
                Some(before) if before.token == token => Lease { fence, raising: false, ..before },
                _ => return Err("a turn is passed on of a grant that nobody had".to_owned()),
            },
        };
        let valid = lease.is_valid(now);
        if !valid && !self.record.held_up {
            return Err("a turn begins that is validity nothing".to_owned());
        }
        if lease.ttl != ttl {
            return Err("a turn passes to a lock with another ttl".to_owned());
        }
        self.clients[c].threads[t].task = Task::Holding(lease);
        if valid { self.began(c, t, fence) } else { Ok(()) }
    }

    pub(super) fn release(&mut self, c: usize, t: usize) -> Result<(), Broken> {
        let now = self.clock(c);
        self.spoil_ticket(c);
        let client = &mut self.clients[c];
        let thread = &mut client.threads[t];
        thread.rounds -= 1;
        let task = if thread.rounds > 0 { Task::Idle } else { Task::Done };
        let Task::Holding(lease) = std::mem::replace(&mut thread.task, task) else { return Ok(()) };
        if lease.lost {
            return Ok(());
        }
        let (token, in_time) = (lease.token, lease.is_valid(now));
        self.record.disturbed |= !in_time;
        if self.setup.wrong == Some(Wrong::PassesUnasked) {
            client.queue.nobody_waits(token);
        }
        if client.queue.has_to_look(token, lease.fence, in_time) {
            let errand = Errand::LookForWaiters { lease, in_time };
            self.send(c, errand, vec![Op::LookForWaiters { token }]);
            return Ok(());
        }
        self.end_turn(c, lease, in_time)
    }

    fn end_turn(&mut self, c: usize, lease: Lease, in_time: bool) -> Result<(), Broken> {
        let (now, client) = (self.clock(c), &mut self.clients[c]);
        let Lease { token, ttl, fence, .. } = lease;
        let give = Op::Give { token, fence, ttl };
        match client.queue.end_turn(token, fence, in_time, now) {
            Ending::Passed(_) if client.refused.contains(&token) => {
                return Err("a turn is passed on under a token that was refused".to_owned());
            }
            Ending::Passed(id) => {
                client.passing = Some(lease);
                client.wake(id);
            }
            Ending::Give { take, until } => {
                let errand = Errand::Release { token, ttl, ask: take };
                match take {
                    Some(ask) => self.send_ask(c, errand, Some(give), ask),
                    None => self.send(c, errand, vec![give]),
                }
                if let Some(until) = until {
                    self.owe(c, Owe { token, ttl, until });
                }
            }
        }
        Ok(())
    }

    pub(super) fn answer(&mut self, at: usize) -> Result<(), Broken> {
        let wire = self.wires.remove(at);
        let (c, sent, now) = (wire.client, wire.sent, self.clock(wire.client));
        let client = &mut self.clients[c];
        for (_, server) in &wire.replies {
            client.dating.sample(sent, *server);
        }
        let is_take = |op: &Op| matches!(op, Op::Take { .. });
        let asked = wire.ops.iter().position(is_take).unwrap_or(wire.ops.len() - 1);
        let &(reply, server) = wire.replies.get(asked).ok_or("an answer without a reply")?;
        let answer = Answer { reply, sent, server, by: ServerId::default(), again: None };
        match wire.errand {
            Errand::Ask { id, ask } => {
                let effects = client.queue.answered(&ask, &answer, now);
                client.asked(id);
                self.follow(c, effects);
            }
            Errand::Look { id, token } => {
                let asks = self.setup.wrong != Some(Wrong::LooksWithoutAsking);
                if let Reply::Busy { free_in, .. } = reply
                    && (asks || !free_in.is_zero())
                {
                    client.queue.seen(token, sent, free_in, now);
                }
                client.asked(id);
            }
            Errand::LookForWaiters { lease, in_time } => {
                if reply == Reply::Extended {
                    client.queue.nobody_waits(lease.token);
                    if self.setup.wrong == Some(Wrong::PassesLater) {
                        client.queue.let_in_who_comes_later();
                    }
                }
                self.spoil_ticket(c);
                self.end_turn(c, lease, in_time)?;
            }
            Errand::Release { ask: Some(ask), .. } => {
                let effects = client.queue.answered(&ask, &answer, now);
                // The turn that it stood for is over already: what is given again now can come
                // before what the end of that turn has sent.
                self.record.disturbed |= effects.owe.is_some();
                self.follow(c, effects);
            }
            Errand::Release { ask: None, .. } => {}
            Errand::Owed(token) => client.given(token, now, ms(300)),
            Errand::Raise { token, fence } => self.raised(c, (token, fence), reply, sent),
        }
        Ok(())
    }

    /// The sender of a request gives up; it was `sent`, unless it was not.
    pub(super) fn fail(&mut self, at: usize, was_sent: bool) -> Result<(), Broken> {
        let wire = self.wires[at].clone();
        let (c, now) = (wire.client, self.clock(wire.client));
        if was_sent && wire.replies.len() < wire.ops.len() {
            self.wires[at].orphan = true;
        } else {
            self.wires.remove(at);
        }
        let sent = was_sent.then_some(wire.sent);
        let client = &mut self.clients[c];
        match wire.errand {
            Errand::Ask { id, ask } => {
                let effects = client.queue.failed(&ask, sent, now);
                client.asked(id);
                self.follow(c, effects);
                if let Some(give) = ask.give {
                    self.owe(c, give);
                }
            }
            Errand::Look { id, .. } => client.asked(id),
            Errand::LookForWaiters { lease, in_time } => self.end_turn(c, lease, in_time)?,
            Errand::Release { token, ttl, ask } => {
                self.owe(c, Owe { token, ttl, until: now });
                if let Some(ask) = ask {
                    let effects = self.clients[c].queue.failed(&ask, sent, now);
                    self.follow(c, effects);
                }
            }
            Errand::Owed(token) => {
                for owed in client.owed.iter_mut().filter(|owed| owed.token == token) {
                    (owed.sent, owed.due) = (None, now.plus(RETRY));
                }
            }
            Errand::Raise { fence, .. } => {
                if let Some(lease) = client.lease(fence) {
                    lease.raising = false;
                    let later = |at: Moment| if at <= now { now.plus(RETRY) } else { at };
                    (lease.claim, lease.renew) = (later(lease.claim), later(lease.renew));
                }
            }
        }
        Ok(())
    }

    pub(super) fn hear(&mut self, c: usize) {
        let (now, ttl, wrong) = (self.clock(c), self.setup.ttl, self.setup.wrong);
        let client = &mut self.clients[c];
        let Some(word) = client.listener.said.pop_front() else { return };
        let effects = match word {
            Word::Granted { token, span, .. }
                if wrong == Some(Wrong::UndoesNotices)
                    && client.queue.standing() != Some(token)
                    && !client.queue.is_held_by(token) =>
            {
                let owe = Owe { token, ttl: span.min(ttl), until: now };
                Effects { wake: None, owe: Some(owe) }
            }
            Word::Granted { token, .. }
                if wrong == Some(Wrong::LateRegistration) && client.queue.is_on_its_way(token) =>
            {
                Effects::default()
            }
            Word::Granted { token, fence, block, server, span } => {
                let since = match wrong {
                    Some(Wrong::DatedFromReceipt) => Some(now),
                    Some(Wrong::DatedWithoutDrift) => client.dating.date_without_drift(server, now),
                    _ => client.dating.date(server, now),
                };
                let head = client.queue.handed(token, (fence, block), since, span.min(ttl), now);
                Effects { wake: head, owe: None }
            }
        };
        self.follow(c, effects);
    }

    /// Nobody is told anything any more, and a waiter has to ask by itself.
    pub(super) fn notice_closed(&mut self, c: usize) {
        let now = self.clock(c);
        let client = &mut self.clients[c];
        client.listener.link = Link::Closed;
        let effects = Effects { wake: client.queue.reopened(now), owe: None };
        self.follow(c, effects);
    }

    pub(super) fn reopen(&mut self, c: usize) {
        let now = self.clock(c);
        let client = &mut self.clients[c];
        (client.listener.link, client.listener.slow) = (Link::Up, false);
        client.dating.restart(now);
        let effects = Effects { wake: client.queue.reopened(now), owe: None };
        self.follow(c, effects);
    }

    pub(super) fn follow(&mut self, c: usize, effects: Effects) {
        if let Some(id) = effects.wake {
            self.clients[c].wake(id);
        }
        if let Some(owe) = effects.owe {
            self.owe(c, owe);
        }
    }

    pub(super) fn let_expire(&mut self, c: usize, t: usize) {
        self.spoil_ticket(c);
        let forgets = self.setup.wrong == Some(Wrong::ForgetsWhatWasLeft);
        let client = &mut self.clients[c];
        let thread = &mut client.threads[t];
        let Task::Holding(lease) = std::mem::replace(&mut thread.task, Task::Done) else { return };
        let effects = Effects { wake: client.queue.left_taken(lease.token), owe: None };
        if forgets {
            client.queue.forget_what_was_left();
        }
        client.left.push(lease);
        self.follow(c, effects);
    }

    /// Before the grant ends.
    pub(super) fn spoil_ticket(&mut self, c: usize) {
        if self.setup.wrong == Some(Wrong::NewTicketForTheRest) {
            self.clients[c].queue.forget_ticket();
        }
    }

    /// A waiter goes. A turn that it was given meanwhile is used, unless nobody wants it any more.
    pub(super) fn leave(&mut self, c: usize, t: usize, wanted: bool) -> Result<(), Broken> {
        let now = self.clock(c);
        let client = &mut self.clients[c];
        let (turn, effects) = client.queue.leave(client.threads[t].id, now);
        client.threads[t].task = Task::Done;
        self.follow(c, effects);
        if let Some(turn) = turn {
            self.begin(c, t, turn)?;
            if !wanted {
                self.release(c, t)?;
            }
        }
        Ok(())
    }

    pub(super) fn close(&mut self, c: usize) -> Result<(), Broken> {
        self.clients[c].life = Life::Closing;
        for t in 0..self.clients[c].threads.len() {
            if self.clients[c].threads[t].is_waiting() {
                self.leave(c, t, false)?;
            }
        }
        for t in 0..self.clients[c].threads.len() {
            if matches!(self.clients[c].threads[t].task, Task::Holding(_)) {
                self.release(c, t)?;
            }
            self.clients[c].threads[t].task = Task::Done;
        }
        Ok(())
    }
}

impl Client {
    fn wake(&mut self, id: u64) {
        for thread in self.threads.iter_mut().filter(|thread| thread.id == id) {
            if matches!(thread.task, Task::Sleeping(_)) {
                thread.task = Task::Ready;
            }
        }
    }

    /// The request of a waiter is over.
    fn asked(&mut self, id: u64) {
        for thread in self.threads.iter_mut().filter(|thread| thread.id == id) {
            if matches!(thread.task, Task::Asking) {
                thread.task = Task::Ready;
            }
        }
    }
}

/// Another for each wait.
fn token(client: usize, id: u64) -> Token {
    let text = format!("{:016x}{id:016x}", client + 1);
    text.parse().unwrap()
}
