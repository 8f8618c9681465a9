//! Takes a step.

use std::time::Duration;

use super::server::Op;
use super::setup::ms;
use super::step::Step;
use super::world::{Broken, Errand, Life, Link, Task, Wire, World};
use crate::store::Reply;

const SEIZED: Duration = ms(300);
/// Who cannot be told asks as often as this.
const BACKOFF: Duration = ms(70);

impl World {
    /// What the step broke, or what does not hold after it.
    pub(super) fn apply(&mut self, step: Step) -> Result<(), Broken> {
        self.take_step(step)?;
        self.check()
    }

    fn take_step(&mut self, step: Step) -> Result<(), Broken> {
        let i = usize::from;
        match step {
            Step::Join(c, t) => self.join(i(c), i(t)),
            Step::Run(c, t) => self.run(i(c), i(t))?,
            Step::Carry(at) => self.carry_on(i(at))?,
            Step::Answer(at) => self.answer(i(at))?,
            Step::Hear(c) => self.hear(i(c)),
            Step::Release(c, t) => self.release(i(c), i(t))?,
            Step::Keep(c, k) => self.keep(i(c), i(k)),
            Step::Claim(c, t) => self.raise(i(c), i(t), true),
            Step::Renew(c, t) => self.raise(i(c), i(t), false),
            Step::Lose(c, t) => {
                if let Task::Holding(lease) = &self.clients[i(c)].threads[i(t)].task {
                    self.lose(i(c), lease.fence);
                }
            }
            Step::Pass(now) => self.now = now,
            Step::Depart(c) => self.vanish(i(c)),
            Step::Abandon(at) => self.fail(i(at), true)?,
            Step::Refuse(at) => self.fail(i(at), false)?,
            Step::Drop(at) => drop(self.wires.remove(i(at))),
            Step::Continue(c) => self.clients[i(c)].life = Life::Running,
            Step::Uncount(c) => self.clients[i(c)].listener.link = Link::Torn { counted: false },
            Step::Notice(c) => self.notice_closed(i(c)),
            Step::Reopen(c) => self.reopen(i(c)),
            Step::Unseize => self.server.foreign_give(),
            fault => self.fault_happens(fault)?,
        }
        Ok(())
    }

    fn fault_happens(&mut self, fault: Step) -> Result<(), Broken> {
        self.faults -= 1;
        let i = usize::from;
        let mut patience = Duration::ZERO;
        match fault {
            Step::Stop(c) | Step::Die(c) | Step::Close(c) => patience = self.trouble(i(c)),
            Step::Cancel(..) | Step::TimeOut(..) => {}
            Step::Seize | Step::Break(_) => patience = BACKOFF,
            Step::Replace => patience = self.setup.window + BACKOFF,
            Step::LetExpire(..) => patience = self.setup.ttl,
            Step::Late(_) => patience = self.setup.ttl + self.setup.window + ms(100),
            // Somebody looks by then.
            _ => patience = self.setup.window,
        }
        self.record.disturbed = true;
        self.record.patience += patience;
        match fault {
            Step::Late(at) => {
                self.record.held_up = true;
                self.wires[i(at)].slow = true;
            }
            Step::Mute(c) => self.clients[i(c)].listener.slow = true,
            Step::Break(c) => {
                let listener = &mut self.clients[i(c)].listener;
                listener.said.clear();
                listener.link = Link::Torn { counted: true };
            }
            Step::Stop(c) => {
                self.record.held_up = true;
                self.clients[i(c)].life = Life::Stopped;
            }
            Step::Die(c) => self.vanish(i(c)),
            Step::Close(c) => self.close(i(c))?,
            Step::Cancel(c, t) => self.leave(i(c), i(t), false)?,
            Step::TimeOut(c, t) => self.leave(i(c), i(t), true)?,
            Step::Seize => self.server.foreign_take(self.server_time(), SEIZED),
            Step::LetExpire(c, t) => self.let_expire(i(c), i(t)),
            Step::Flush => self.forget(),
            Step::Replace => {
                self.server_ahead += 3_600_000_000;
                self.forget();
                for listener in self.clients.iter_mut().map(|client| &mut client.listener) {
                    if listener.link != Link::Closed {
                        listener.said.clear();
                        listener.link = Link::Torn { counted: false };
                    }
                }
            }
            other => return Err(format!("{other:?} is no fault")),
        }
        Ok(())
    }

    fn forget(&mut self) {
        // Fences go on from the server's clock, which is past those of a block by then.
        self.now += 1_000_000;
        self.server.flush();
        self.record.forgotten = self.server_time();
    }

    /// For how long a client that takes no steps from now on holds up the others.
    fn trouble(&self, c: usize) -> Duration {
        let client = &self.clients[c];
        let holds = client.threads.iter().any(|thread| matches!(thread.task, Task::Holding(_)));
        let window = self.setup.window;
        if holds || client.queue.is_held() || !client.owed.is_empty() || self.may_be_granted(c) {
            // It has the lock, or its poll may be granted it.
            return self.setup.ttl + window;
        }
        window
    }

    fn may_be_granted(&self, c: usize) -> bool {
        let asks = |wire: &Wire| !matches!(wire.errand, Errand::Look { .. });
        self.wires.iter().any(|wire| wire.client == c && !wire.orphan && asks(wire))
    }

    fn vanish(&mut self, c: usize) {
        let client = &mut self.clients[c];
        client.life = Life::Gone;
        client.listener.link = Link::Closed;
        client.listener.said.clear();
        self.wires.retain(|wire| wire.client != c || wire.replies.len() < wire.ops.len());
        for wire in self.wires.iter_mut().filter(|wire| wire.client == c) {
            wire.orphan = true;
        }
    }

    fn carry_on(&mut self, at: usize) -> Result<(), Broken> {
        let wire = &self.wires[at];
        let left = wire.ops.len() - wire.replies.len();
        if !self.setup.ordered {
            return self.carry(at);
        }
        for _ in 0..left {
            // A script takes its time, and no two tickets are the same.
            self.now += 2_000;
            self.carry(at)?;
        }
        Ok(())
    }

    /// The server carries out the next command of a request.
    fn carry(&mut self, at: usize) -> Result<(), Broken> {
        let (now, true_now) = (self.server_time(), self.now);
        let wire = &self.wires[at];
        let (channel, op) = (wire.client as u8, wire.ops[wire.replies.len()]);
        let ahead = self.clients[wire.client].ahead;
        if let Op::Take { ttl, .. } = op
            && wire.orphan
            && wire.sent.plus(ttl).as_nanos() - ahead <= true_now
        {
            self.record.ghosts = true;
        }
        let before = self.server.holder(now);
        let clients = &self.clients;
        let hears = |channel: u8| clients[usize::from(channel)].is_counted();
        let (reply, server, said) = self.server.run(&op, channel, now, &hears);
        for (channel, word) in said {
            let listener = &mut self.clients[usize::from(channel)].listener;
            if listener.link == Link::Up {
                listener.said.push_back(word);
            }
        }
        if let (Op::Give { token, .. }, Errand::Release { .. }) = (op, &self.wires[at].errand) {
            let was_mine = before.is_some_and(|(holder, _)| holder == Some(token));
            if reply == Reply::Given && !was_mine {
                return Err("a release was answered with released, and nothing was".to_owned());
            }
        }
        self.stood(usize::from(channel));
        let wire = &mut self.wires[at];
        wire.replies.push((reply, server));
        if wire.orphan && wire.replies.len() == wire.ops.len() {
            self.wires.remove(at);
        }
        Ok(())
    }
}
