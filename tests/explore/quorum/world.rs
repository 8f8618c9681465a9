//! All of it at one moment: the nodes, the clients with their rounds, and what is on its way.

mod steps;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use super::hearing::{Answers, Decision, End, Grant, informed, round};
use super::node::{Answer, Attempt, Node};
use super::post::{Kind, Letter, Post};
use super::setup::{Flaw, NODES, Setup};
use crate::store::quorum::round::Round;

/// What must hold does not; how, in words.
pub(super) type Broken = String;

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A client starts its next attempt, with a take on its way to every node.
    Start(u8),
    /// A request comes to a node, for the first time or again, and the holder of the key there has
    /// it still, or it expires just then.
    Carry {
        attempt: Attempt,
        kind: Kind,
        node: u8,
        again: bool,
        expires: bool,
    },
    /// Answers come back.
    Decide(u8, Rc<Decision>),
    /// A call that has won returns: all nodes have said that they have the key.
    Return(u8),
    /// It returns although that is not so, since it has waited for long enough.
    ReturnLate(u8),
    Release(u8),
    Forget(u8),
    /// A holder tells a node to store its key.
    Fill(u8, u8),
    /// A node's clock jumps ahead.
    Jump(u8),
    Restart(u8),
    /// Its quarantine is over.
    VoteAgain(u8),
}

/// What is worth counting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    Nothing,
    /// An attempt succeeded, after so many others and in one round trip or two.
    Success {
        before: usize,
        raised: bool,
    },
    Refusal,
    /// The last node that lacked a key was told to store it.
    Whole,
    /// A call returned that had waited until all nodes have the key.
    Returned,
}

#[derive(Clone)]
pub(super) struct World {
    nodes: [Node; NODES],
    clients: Vec<Client>,
    /// In the order in which they were decided.
    successes: Vec<Success>,
    repeats: u8,
    forgets: u8,
    fills: u8,
    jumps: u8,
    restarts: u8,
}

#[derive(Clone)]
struct Client {
    task: Task,
    /// The largest fence of those who had succeeded before its attempt began.
    floor: u8,
    /// Of each of its attempts, the last one being the current one.
    post: Vec<Post>,
    /// What came of the current attempt's requests.
    answers: Answers,
    grants: [Grant; NODES],
    /// All nodes have had the key that it holds.
    is_whole: bool,
}

#[derive(Clone)]
enum Task {
    Idle,
    Trying(Round),
    /// Its attempt has succeeded, and its call has not returned.
    Won(Round),
    Holding,
}

#[derive(Clone, Copy)]
struct Success {
    fence: u8,
    /// On each node that has confirmed it, the fence of its grant there.
    granted: [Option<u8>; NODES],
}

impl World {
    pub(super) fn new(setup: &Setup) -> World {
        let client = Client {
            task: Task::Idle,
            floor: 0,
            post: Vec::new(),
            answers: Default::default(),
            grants: Default::default(),
            is_whole: false,
        };
        World {
            nodes: setup.last.map(Node::new),
            clients: vec![client; setup.hints.len()],
            successes: Vec::new(),
            repeats: setup.repeats,
            forgets: u8::from(setup.flaw == Some(Flaw::Forgets)),
            fills: setup.fills,
            jumps: setup.jumps,
            restarts: setup.restarts,
        }
    }

    fn current(&self, c: usize) -> Option<Attempt> {
        let number = self.clients[c].post.len().checked_sub(1)?;
        Some(Attempt { client: c as u8, number: number as u8 })
    }

    fn holders(&self) -> impl Iterator<Item = usize> {
        let has_won = |client: &Client| matches!(client.task, Task::Won(_) | Task::Holding);
        let all = self.clients.iter().enumerate();
        all.filter(move |(_, client)| has_won(client)).map(|(c, _)| c)
    }

    /// What came of it, or what it broke; `None` if the step changes nothing.
    pub(super) fn apply(&mut self, step: &Step, setup: &Setup) -> Result<Option<Event>, Broken> {
        match *step {
            Step::Start(c) => self.start(usize::from(c)),
            Step::Carry { attempt, kind, node, again, expires } => {
                let n = usize::from(node);
                if expires {
                    self.nodes[n].expire();
                }
                if again {
                    self.repeats -= 1;
                }
                let is_changed = self.carry(attempt, kind, n, setup);
                self.note_whole(setup);
                let is_filled = kind == Kind::Fill && self.is_on_all(attempt);
                let event = if is_filled { Event::Whole } else { Event::Nothing };
                return Ok(is_changed.then_some(event));
            }
            Step::Decide(c, ref decision) => {
                return self.decide(usize::from(c), decision, setup).map(Some);
            }
            Step::Return(c) => {
                let c = usize::from(c);
                (self.clients[c].task, self.clients[c].is_whole) = (Task::Holding, true);
                if self.holders().any(|other| other != c) {
                    return Err("two hold the lock, and one of them waited".to_owned());
                }
                return Ok(Some(Event::Returned));
            }
            Step::ReturnLate(c) => self.clients[usize::from(c)].task = Task::Holding,
            Step::Release(c) => self.end(usize::from(c), setup),
            Step::Forget(n) => {
                self.forgets -= 1;
                self.nodes[usize::from(n)].forget();
            }
            Step::Fill(c, n) => {
                self.fills -= 1;
                let client = &mut self.clients[usize::from(c)];
                let fence = client.granted();
                if let Some(post) = client.post.last_mut() {
                    post.fence = post.fence.max(fence);
                    post.fills[usize::from(n)] = Letter::Sent;
                }
            }
            Step::Jump(n) => {
                self.jumps -= 1;
                self.nodes[usize::from(n)].expire();
            }
            Step::Restart(n) => {
                self.restarts -= 1;
                self.nodes[usize::from(n)].restart();
            }
            Step::VoteAgain(n) => self.nodes[usize::from(n)].votes_again(),
        }
        Ok(Some(Event::Nothing))
    }

    /// Who has come to stand on all nodes; of account only where clocks jump.
    fn note_whole(&mut self, setup: &Setup) {
        let holders: Vec<_> = self.holders().filter(|_| setup.jumps > 0).collect();
        for c in holders {
            let is_whole = self.current(c).is_some_and(|by| self.is_on_all(by));
            self.clients[c].is_whole |= is_whole;
        }
    }

    fn is_on_all(&self, by: Attempt) -> bool {
        self.nodes.iter().all(|node| node.is_held_by(by))
    }

    fn start(&mut self, c: usize) {
        let client = &mut self.clients[c];
        client.floor = self.successes.iter().map(|success| success.fence).max().unwrap_or(0);
        client.post.push(Post { takes: [Letter::Sent; NODES], ..Post::default() });
        client.task = Task::Trying(round());
    }

    /// Whether that changed anything.
    fn carry(&mut self, attempt: Attempt, kind: Kind, n: usize, setup: &Setup) -> bool {
        let client = &mut self.clients[usize::from(attempt.client)];
        let is_current = usize::from(attempt.number) + 1 == client.post.len();
        let post = &mut client.post[usize::from(attempt.number)];
        post.letters(kind)[n] = Letter::Carried;
        let node = &mut self.nodes[n];
        let before = *node;
        let answer = match kind {
            Kind::Take => node.take(attempt, setup.hint(attempt.client, attempt.number)),
            Kind::Raise => node.raise(attempt, post.raise_to, setup.flaw),
            Kind::Fill => node.fill(attempt, post.fence, setup.flaw),
            Kind::Give => {
                node.give(attempt, setup.flaw);
                None
            }
        };
        // Nobody reads the answers to an attempt that is decided.
        let hears = match &client.task {
            Task::Trying(_) => answer != Some(Answer::Filled),
            Task::Won(_) => true,
            Task::Idle | Task::Holding => false,
        };
        if is_current
            && hears
            && let Some(answer) = answer
            && let Err(place) = client.answers[n].binary_search(&answer)
        {
            client.answers[n].insert(place, answer);
            return true;
        }
        *node != before
    }

    fn decide(&mut self, c: usize, decision: &Decision, setup: &Setup) -> Result<Event, Broken> {
        let client = &mut self.clients[c];
        client.grants = decision.grants;
        match &decision.end {
            End::Raise { round, fence, nodes } => {
                client.task = Task::Trying(round.clone());
                if let Some(post) = client.post.last_mut() {
                    post.raise_to = *fence;
                    nodes.iter().for_each(|node| post.raises[*node] = Letter::Sent);
                }
                Ok(Event::Nothing)
            }
            End::Success { round, fence } => self.succeed(c, (round, *fence), setup),
            End::Refusal => {
                self.end(c, setup);
                Ok(Event::Refusal)
            }
        }
    }

    fn succeed(
        &mut self,
        c: usize,
        (round, fence): (&Round, u8),
        setup: &Setup,
    ) -> Result<Event, Broken> {
        let client = &mut self.clients[c];
        let granted = client.grants.map(|grant| match grant {
            Grant::Counts(granted, raised) if raised || granted == fence => Some(granted),
            _ => None,
        });
        let raised = client.grants.iter().any(|grant| matches!(grant, Grant::Counts(_, true)));
        if fence <= client.floor {
            let floor = client.floor;
            return Err(format!("fence {fence}, and {floor} was given out before it began"));
        }
        for other in &self.successes {
            if other.fence == fence {
                return Err(format!("fence {fence} is given out twice"));
            }
            for (mine, others) in granted.iter().zip(other.granted) {
                // A node that was restarted counts anew.
                if let (Some(mine), Some(others)) = (*mine, others)
                    && setup.restarts == 0
                    && (mine < others) != (fence < other.fence)
                {
                    return Err(format!("fence {fence} is not in a node's order of grants"));
                }
            }
        }
        if let Some(post) = client.post.last_mut() {
            post.fence = fence;
        }
        // Where a clock has jumped, only those have the lock for themselves that all nodes had.
        let has_jumped = self.jumps < setup.jumps && setup.flaw != Some(Flaw::NeverFills);
        let counts = |c: usize| !has_jumped || self.clients[c].is_whole;
        if !setup.expiry && self.holders().any(counts) {
            return Err("two hold the lock".to_owned());
        }
        let client = &mut self.clients[c];
        if setup.jumps > 0 && setup.flaw != Some(Flaw::ReturnsBare) {
            client.task = Task::Won(round.clone());
        } else {
            client.task = Task::Holding;
            client.forget();
        }
        client.is_whole = setup.flaw == Some(Flaw::ReturnsBare);
        self.note_whole(setup);
        let before = self.successes.len();
        self.successes.push(Success { fence, granted });
        Ok(Event::Success { before, raised })
    }

    /// What a client's attempt, which has succeeded, can know by now of where its key is.
    fn informed(&self, c: usize, flaw: Option<Flaw>) -> Option<Round> {
        let client = &self.clients[c];
        let (Task::Won(round), Some(post)) = (&client.task, client.post.last()) else {
            return None;
        };
        let by = self.current(c)?;
        let is_told = |n: usize| post.fills[n] != Letter::Unsent;
        // Its take changes nothing where another has the key, so it is answered without being carried.
        let is_busy = std::array::from_fn(|n| {
            let has_granted = client.answers[n].iter().any(|answer| *answer != Answer::Filled);
            let node = &self.nodes[n];
            !has_granted && (is_told(n) || node.is_held() && !node.is_held_by(by))
        });
        let mut answers = client.answers.clone();
        if flaw == Some(Flaw::CountsSentFills) {
            (0..NODES).filter(|n| is_told(*n)).for_each(|n| answers[n].push(Answer::Filled));
        }
        Some(informed(round, is_busy, &answers))
    }

    /// The client gives its current attempt up.
    fn end(&mut self, c: usize, setup: &Setup) {
        let client = &mut self.clients[c];
        client.task = Task::Idle;
        client.forget();
        if let Some(post) = client.post.last_mut()
            && !setup.expiry
        {
            post.gives = [Letter::Sent; NODES];
        }
    }

    /// The same for all worlds that differ in the order of the nodes only.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut columns: [u64; NODES] = std::array::from_fn(|n| self.column(n));
        columns.sort_unstable();
        let mut print = DefaultHasher::new();
        columns.hash(&mut print);
        print.write_u8(self.repeats);
        print.write_u32(u32::from_le_bytes([self.forgets, self.fills, self.jumps, self.restarts]));
        for client in &self.clients {
            let task = match &client.task {
                Task::Idle => 0,
                // What it knows is in the answers, the grants and the fence to raise to.
                Task::Trying(_) => 1,
                Task::Holding => 2,
                Task::Won(_) => 3,
            };
            let is_whole = u8::from(client.is_whole);
            let rest = [client.floor, client.post.len() as u8, task, is_whole];
            print.write_u32(u32::from_le_bytes(rest));
            client.post.iter().for_each(|post| print.write(&[post.raise_to, post.fence]));
        }
        self.successes.iter().for_each(|success| print.write_u8(success.fence));
        print.finish()
    }

    fn column(&self, n: usize) -> u64 {
        let mut print = DefaultHasher::new();
        self.nodes[n].hash(&mut print);
        for client in &self.clients {
            client.answers[n].hash(&mut print);
            client.grants[n].hash(&mut print);
            client.post.iter().for_each(|post| print.write_u8(post.column(n)));
        }
        self.successes.iter().for_each(|success| success.granted[n].hash(&mut print));
        print.finish()
    }
}

impl Client {
    fn is_over(&self, hints: &[u8]) -> bool {
        !matches!(self.task, Task::Trying(_) | Task::Won(_)) && self.post.len() == hints.len()
    }

    fn forget(&mut self) {
        (self.answers, self.grants, self.is_whole) = Default::default();
    }

    /// The largest fence that its attempt was granted, as far as it has heard.
    fn granted(&self) -> u8 {
        let granted = |answer: &Answer| match answer {
            Answer::Granted(fence) => Some(*fence),
            Answer::Raised(_) | Answer::Filled => None,
        };
        self.answers.iter().flatten().filter_map(granted).max().unwrap_or(0)
    }
}
