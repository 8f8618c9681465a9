//! All of it at one moment: the server, the clients, and what is on its way between them.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::time::Duration;

use super::server::{Op, Server, Word};
use super::setup::Setup;
use crate::clock::Moment;
use crate::store::Reply;
use crate::token::Token;
use crate::wait::{Ask, Dating, LocalQueue};

/// What must hold does not; how, in words.
pub(super) type Broken = String;

#[derive(Clone, Hash)]
pub(super) struct World {
    pub(super) setup: Fixed,
    /// True time in nanoseconds. The clients' clocks run at its rate, and none shows it.
    pub(super) now: u64,
    pub(super) server: Server,
    /// How much its clock is ahead of true time, in microseconds.
    pub(super) server_ahead: u64,
    pub(super) clients: Vec<Client>,
    pub(super) wires: Vec<Wire>,
    pub(super) faults: u8,
    pub(super) record: Record,
}

/// The setup, which is no part of the state.
#[derive(Clone)]
pub(super) struct Fixed(pub(super) Rc<Setup>);

impl Hash for Fixed {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl std::ops::Deref for Fixed {
    type Target = Setup;

    fn deref(&self) -> &Setup {
        &self.0
    }
}

/// What the checks have to remember.
#[derive(Clone, Hash, Default)]
pub(super) struct Record {
    pub(super) last_fence: u64,
    /// For how long the lock may lie unused while somebody waits, after the faults so far.
    pub(super) patience: Duration,
    /// Something was late, lost or foreign, so that the order is not exact.
    pub(super) disturbed: bool,
    /// Fences below this were granted by a server that forgot them.
    pub(super) forgotten: u64,
    /// A client was stopped or waited for a late answer, and what it was given meanwhile may have
    /// ended before it read of it.
    pub(super) held_up: bool,
    /// A request of a sender that had given up was carried out later than anybody cares for.
    pub(super) ghosts: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Life {
    Running,
    Stopped,
    /// Its waiters are gone, and it finishes what it owes.
    Closing,
    Gone,
}

#[derive(Clone, Hash)]
pub(super) struct Client {
    pub(super) life: Life,
    /// How much its clock is ahead of true time, in nanoseconds.
    pub(super) ahead: u64,
    pub(super) queue: LocalQueue,
    pub(super) dating: Dating,
    pub(super) listener: Listener,
    pub(super) threads: Vec<Thread>,
    pub(super) owed: Vec<Owed>,
    /// A grant whose next turn was given and not fetched.
    pub(super) passing: Option<Lease>,
    /// Leases that ended with the lock left taken: another process may go on with them.
    pub(super) left: Vec<Lease>,
    /// Tokens of which the server has said that they do not have the lock.
    pub(super) refused: Vec<Token>,
    pub(super) next_id: u64,
}

/// The wake-up connection.
#[derive(Clone, Hash)]
pub(super) struct Listener {
    pub(super) link: Link,
    /// What is on its way or unread.
    pub(super) said: VecDeque<Word>,
    /// It may stay so for as long as it likes.
    pub(super) slow: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Link {
    Up,
    /// Nothing arrives any more, and the client does not know. The server may count it still.
    Torn {
        counted: bool,
    },
    Closed,
}

#[derive(Clone, Hash)]
pub(super) struct Thread {
    pub(super) task: Task,
    /// Its number in the line.
    pub(super) id: u64,
    pub(super) rounds: u8,
    /// It stands in the queue, or behind one of its client who does or has the lock.
    pub(super) stands: bool,
    /// How many turns each of the others has begun since then.
    pub(super) overtaken: [u8; 8],
}

#[derive(Clone, Hash, Debug)]
pub(super) enum Task {
    Idle,
    /// It asks its line what to do.
    Ready,
    Asking,
    Sleeping(Moment),
    Holding(Lease),
    Done,
}

/// A turn, or a grant that passes from one to the next.
#[derive(Clone, Hash, Debug)]
pub(super) struct Lease {
    pub(super) token: Token,
    pub(super) ttl: Duration,
    pub(super) fence: u64,
    /// Of the grant's first turn.
    pub(super) first: u64,
    pub(super) valid_until: Moment,
    pub(super) lost: bool,
    /// When the keeper claims; NEVER once it was confirmed.
    pub(super) claim: Moment,
    pub(super) renew: Moment,
    pub(super) raising: bool,
}

/// A token that the keeper gives, again and again until then.
#[derive(Clone, Hash, Debug)]
pub(super) struct Owed {
    pub(super) token: Token,
    pub(super) ttl: Duration,
    pub(super) until: Moment,
    pub(super) due: Moment,
    pub(super) sent: Option<Moment>,
    /// Something was heard of it since.
    pub(super) again: bool,
}

/// A request on its way there or back.
#[derive(Clone, Hash, Debug)]
pub(super) struct Wire {
    pub(super) client: usize,
    pub(super) errand: Errand,
    pub(super) ops: Vec<Op>,
    /// Of those that were carried out, with the server's time.
    pub(super) replies: Vec<(Reply, u64)>,
    pub(super) sent: Moment,
    /// It may stay on its way for as long as it likes.
    pub(super) slow: bool,
    /// Its sender has given up.
    pub(super) orphan: bool,
}

/// Why a request was sent.
#[derive(Clone, Hash, Debug)]
pub(super) enum Errand {
    /// For the thread with this number.
    Ask {
        id: u64,
        ask: Ask,
    },
    /// For the same.
    Look {
        id: u64,
        token: Token,
    },
    /// For the turn that is about to end, in time or not.
    LookForWaiters {
        lease: Lease,
        in_time: bool,
    },
    Release {
        token: Token,
        ttl: Duration,
        ask: Option<Ask>,
    },
    Owed(Token),
    /// The lease with this fence is to last longer.
    Raise {
        token: Token,
        fence: u64,
    },
}

impl World {
    pub(super) fn new(setup: Setup) -> World {
        // None of the clocks is near another.
        let client = |(index, count): (usize, &usize)| Client {
            life: Life::Running,
            ahead: 3_600_000_000_000 * index as u64,
            queue: LocalQueue::new(setup.limits),
            dating: Dating::default(),
            listener: Listener { link: Link::Up, said: VecDeque::new(), slow: false },
            threads: vec![Thread::new(setup.rounds); *count],
            owed: Vec::new(),
            passing: None,
            left: Vec::new(),
            refused: Vec::new(),
            next_id: 1,
        };
        World {
            now: START,
            server: Server::new(setup.window, setup.wrong),
            server_ahead: 1_000_000_000,
            clients: setup.threads.iter().enumerate().map(client).collect(),
            wires: Vec::new(),
            faults: setup.faults,
            record: Record { patience: SLACK, ..Record::default() },
            setup: Fixed(Rc::new(setup)),
        }
    }

    /// What the server's clock says, in microseconds.
    pub(super) fn server_time(&self) -> u64 {
        let passed = (self.now - START) as i64 / 1000;
        let drifted = passed + passed * self.setup.drift / 10_000;
        START / 1000 + drifted as u64 + self.server_ahead
    }

    /// What a client's clock says.
    pub(super) fn clock(&self, client: usize) -> Moment {
        Moment::from_nanos(self.now + self.clients[client].ahead)
    }

    /// True time of a moment on the server's clock: the first one at which it shows that.
    pub(super) fn true_time(&self, server: u64) -> u64 {
        let drifted = (server - self.server_ahead - START / 1000) as i64 * 10_000;
        START + (drifted as u64).div_ceil((10_000 + self.setup.drift) as u64) * 1000
    }

    pub(super) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.now - START)
    }

    pub(super) fn is_over(&self) -> bool {
        self.now > START + self.setup.horizon.as_nanos() as u64
    }
}

/// The lock outlasts the lease by the drift, and those behind others ask a little later.
const SLACK: Duration = Duration::from_millis(80);
const START: u64 = 7_000_000_000_000;

impl Thread {
    fn new(rounds: u8) -> Thread {
        Thread { task: Task::Idle, id: 0, rounds, stands: false, overtaken: [0; 8] }
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.task, Task::Ready | Task::Asking | Task::Sleeping(_))
    }
}

impl Client {
    /// It takes steps.
    pub(super) fn runs(&self) -> bool {
        matches!(self.life, Life::Running | Life::Closing)
    }

    pub(super) fn is_counted(&self) -> bool {
        matches!(self.listener.link, Link::Up | Link::Torn { counted: true })
    }
}

impl Lease {
    pub(super) fn is_valid(&self, now: Moment) -> bool {
        !self.lost && now < self.valid_until
    }
}
