//! What may happen next.

use super::setup::Kind;
use super::world::{Errand, Life, Link, Task, World};
use crate::clock::Moment;

/// The numbers are those of clients, of their threads, and of the requests under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Step {
    /// A thread wants the lock.
    Join(u8, u8),
    /// It asks its line what to do.
    Run(u8, u8),
    /// The server carries out the next command of a request.
    Carry(u8),
    /// The answer to a request is read.
    Answer(u8),
    /// The next notice is read.
    Hear(u8),
    Release(u8, u8),
    /// The keeper gives a token that is owed.
    Keep(u8, u8),
    /// The keeper confirms what a notice granted.
    Claim(u8, u8),
    Renew(u8, u8),
    /// The keeper sees that a lease has ended.
    Lose(u8, u8),
    /// Time passes, up to this moment.
    Pass(u64),
    /// A client that closes has done all that it owed.
    Depart(u8),

    // Faults.
    Late(u8),
    Mute(u8),
    Break(u8),
    Stop(u8),
    Die(u8),
    Close(u8),
    Cancel(u8, u8),
    TimeOut(u8, u8),
    Seize,
    LetExpire(u8, u8),
    Flush,
    Replace,

    // What follows from them, whenever it likes.
    /// The sender of a late request gives up; it may be carried out all the same.
    Abandon(u8),
    /// A late request was never sent, and its sender knows.
    Refuse(u8),
    /// A request that was given up is never carried out.
    Drop(u8),
    Continue(u8),
    /// The server notices that a wake-up connection is broken.
    Uncount(u8),
    /// The client does.
    Notice(u8),
    Reopen(u8),
    Unseize,
}

/// What may happen in one state.
#[derive(Default)]
pub(super) struct Choices {
    /// Before time passes.
    pub(super) prompt: Vec<Step>,
    /// Whenever it likes.
    pub(super) free: Vec<Step>,
    pub(super) faults: Vec<Step>,
}

impl World {
    pub(super) fn choices(&self) -> Choices {
        let mut choices = Choices::default();
        for (number, wire) in self.wires.iter().enumerate() {
            let at = number as u8;
            let step = if wire.replies.len() < wire.ops.len() {
                Step::Carry(at)
            } else if self.clients[wire.client].runs() {
                Step::Answer(at)
            } else {
                continue;
            };
            if !wire.slow && !wire.orphan {
                choices.prompt.push(step);
                self.fault(&mut choices, Kind::Late, Step::Late(at));
                continue;
            }
            choices.free.push(step);
            if wire.orphan {
                choices.free.push(Step::Drop(at));
            } else if self.clients[wire.client].runs() {
                choices.free.push(Step::Abandon(at));
                if wire.replies.is_empty() {
                    choices.free.push(Step::Refuse(at));
                }
            }
        }
        for client in 0..self.clients.len() {
            self.choices_of(client, &mut choices);
        }
        self.fault(&mut choices, Kind::Flush, Step::Flush);
        self.fault(&mut choices, Kind::Replace, Step::Replace);
        match self.server.holder(self.server_time()) {
            None => self.fault(&mut choices, Kind::Foreign, Step::Seize),
            Some((None, _)) => choices.free.push(Step::Unseize),
            Some((Some(_), _)) => {}
        }
        choices
    }

    fn fault(&self, choices: &mut Choices, kind: Kind, step: Step) {
        if self.faults > 0 && self.setup.kinds.contains(&kind) {
            choices.faults.push(step);
        }
    }

    fn choices_of(&self, index: usize, choices: &mut Choices) {
        let (client, c, now) = (&self.clients[index], index as u8, self.clock(index));
        match client.life {
            Life::Gone => return,
            Life::Stopped => {
                choices.free.push(Step::Continue(c));
                return;
            }
            Life::Closing if client.owed.is_empty() && !self.has_wires(index) => {
                choices.prompt.push(Step::Depart(c));
            }
            Life::Closing => {}
            Life::Running => {
                self.fault(choices, Kind::Stop, Step::Stop(c));
                self.fault(choices, Kind::Die, Step::Die(c));
                self.fault(choices, Kind::Close, Step::Close(c));
            }
        }
        match client.listener.link {
            Link::Up => {
                let said = !client.listener.said.is_empty();
                if said && client.listener.slow {
                    choices.free.push(Step::Hear(c));
                } else if said {
                    choices.prompt.push(Step::Hear(c));
                    self.fault(choices, Kind::Mute, Step::Mute(c));
                }
                self.fault(choices, Kind::Break, Step::Break(c));
            }
            Link::Torn { counted } => {
                if counted {
                    choices.free.push(Step::Uncount(c));
                }
                choices.free.push(Step::Notice(c));
            }
            Link::Closed => choices.free.push(Step::Reopen(c)),
        }
        for (number, owed) in client.owed.iter().enumerate() {
            if owed.sent.is_none() && owed.due <= now {
                choices.prompt.push(Step::Keep(c, number as u8));
            }
        }
        for (number, thread) in client.threads.iter().enumerate() {
            let t = number as u8;
            match &thread.task {
                Task::Idle => choices.free.push(Step::Join(c, t)),
                Task::Ready => choices.prompt.push(Step::Run(c, t)),
                Task::Sleeping(until) if *until <= now => choices.prompt.push(Step::Run(c, t)),
                Task::Holding(lease) => {
                    choices.free.push(Step::Release(c, t));
                    if lease.is_valid(now) {
                        self.fault(choices, Kind::LetExpire, Step::LetExpire(c, t));
                    }
                    if !lease.lost && !lease.is_valid(now) {
                        choices.prompt.push(Step::Lose(c, t));
                    } else if !lease.lost && !lease.raising && lease.claim <= now {
                        choices.prompt.push(Step::Claim(c, t));
                    } else if !lease.lost && !lease.raising && lease.renew <= now {
                        choices.prompt.push(Step::Renew(c, t));
                    }
                }
                Task::Asking | Task::Sleeping(_) | Task::Done => {}
            }
            if thread.is_waiting() {
                self.fault(choices, Kind::Cancel, Step::Cancel(c, t));
                self.fault(choices, Kind::TimeOut, Step::TimeOut(c, t));
            }
        }
    }

    pub(super) fn has_wires(&self, client: usize) -> bool {
        self.wires.iter().any(|wire| wire.client == client && !wire.orphan)
    }

    /// The next moment at which something is due or ends, in true time.
    pub(super) fn next_moment(&self) -> Option<u64> {
        let lock = self.server.holder(self.server_time()).map(|held| self.true_time(held.1));
        let mut next = lock.unwrap_or(u64::MAX);
        for client in self.clients.iter().filter(|client| client.life != Life::Gone) {
            let mut at = |moment: Moment| {
                let moment = moment.as_nanos();
                if moment != u64::MAX && moment - client.ahead > self.now {
                    next = next.min(moment - client.ahead);
                }
            };
            for owed in client.owed.iter().filter(|owed| owed.sent.is_none()) {
                at(owed.due);
            }
            for thread in &client.threads {
                match &thread.task {
                    Task::Sleeping(until) if *until != Moment::ZERO => at(*until),
                    Task::Holding(lease) if !lease.lost && lease.valid_until != Moment::ZERO => {
                        at(lease.valid_until);
                        at(lease.claim);
                        at(lease.renew);
                    }
                    _ => {}
                }
            }
        }
        (next != u64::MAX).then_some(next)
    }

    /// Whether a step can be told: it is one of those that may happen now.
    pub(super) fn choices_hold(&self, step: Step) -> bool {
        let at = |at: u8| usize::from(at) < self.wires.len();
        match step {
            Step::Carry(w) | Step::Answer(w) | Step::Late(w) | Step::Abandon(w) => at(w),
            Step::Refuse(w) | Step::Drop(w) => at(w),
            _ => true,
        }
    }

    /// A step, for the reader of what led to something.
    pub(super) fn tell(&self, step: Step) -> String {
        let wire = |at: u8| {
            let wire = &self.wires[at as usize];
            let why = match &wire.errand {
                Errand::Ask { .. } => "ask",
                Errand::Look { .. } => "look",
                Errand::LookForWaiters { .. } => "look for waiters",
                Errand::Release { .. } => "release",
                Errand::Owed(_) => "owed",
                Errand::Raise { .. } => "raise",
            };
            let next = wire.ops.get(wire.replies.len());
            format!("client {} {why}: {next:?} after {:?}", wire.client, wire.replies)
        };
        let more = match step {
            Step::Carry(at)
            | Step::Answer(at)
            | Step::Late(at)
            | Step::Abandon(at)
            | Step::Refuse(at)
            | Step::Drop(at) => wire(at),
            Step::Hear(c) => format!("{:?}", self.clients[c as usize].listener.said.front()),
            Step::Keep(c, k) => format!("{:?}", self.clients[c as usize].owed[k as usize]),
            Step::Release(c, t) => {
                format!("{:?}", self.clients[c as usize].threads[t as usize].task)
            }
            _ => String::new(),
        };
        let millis = self.elapsed().as_secs_f64() * 1000.0;
        format!("{millis:>9.2} ms  {step:?}  {more}")
    }
}
