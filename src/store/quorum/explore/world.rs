//! All of it at one moment: the nodes, the clients with their rounds, and what is on its way.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use super::hearing::{Answers, Decision, Decisions, End, Grant, round};
use super::node::{Attempt, Node};
use super::setup::{Flaw, NODES, Setup};
use crate::store::quorum::round::Round;

/// What must hold does not; how, in words.
pub(super) type Broken = String;

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A client starts its next attempt, with a take on its way to every node.
    Start(u8),
    /// A request comes to a node, for the first time or again, and whoever has the key there has
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
    Release(u8),
    Forget(u8),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Kind {
    Take,
    Raise,
    Give,
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
}

#[derive(Clone)]
pub(super) struct World {
    nodes: [Node; NODES],
    clients: Vec<Client>,
    /// In the order in which they were decided.
    successes: Vec<Success>,
    repeats: u8,
    forgets: u8,
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
}

#[derive(Clone)]
enum Task {
    Idle,
    Trying(Round),
    Holding,
}

/// The requests of one attempt.
#[derive(Clone, Copy, Default)]
struct Post {
    raise_to: u8,
    takes: [Letter; NODES],
    raises: [Letter; NODES],
    gives: [Letter; NODES],
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Letter {
    #[default]
    Unsent,
    Sent,
    Carried,
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
        };
        World {
            nodes: setup.last.map(Node::new),
            clients: vec![client; setup.hints.len()],
            successes: Vec::new(),
            repeats: setup.repeats,
            forgets: u8::from(setup.flaw == Some(Flaw::Forgets)),
        }
    }

    /// Carrying something out may turn out to change nothing.
    pub(super) fn steps(&self, setup: &Setup, decisions: &Decisions) -> Vec<Step> {
        let mut steps = Vec::new();
        // Only successes can be wrong, and who is idle for good has no more of them.
        if self.clients.iter().zip(&setup.hints).all(|(client, hints)| client.is_over(hints)) {
            return steps;
        }
        for (c, client) in self.clients.iter().enumerate() {
            let is_last = client.post.len() == setup.hints[c].len();
            match &client.task {
                Task::Idle if !is_last && self.may_start(c, setup) => {
                    steps.push(Step::Start(c as u8));
                }
                Task::Idle => {}
                Task::Trying(round) => {
                    let raising = client.post.last().is_some_and(|post| post.raise_to > 0);
                    let all = decisions.of(round, raising, client.grants, &client.answers);
                    let matters =
                        |end: &End| !(matches!(end, End::Refusal) && is_last && setup.expiry);
                    let some = all.iter().filter(|decision| matters(&decision.end));
                    steps.extend(some.map(|decision| Step::Decide(c as u8, Rc::clone(decision))));
                }
                Task::Holding if is_last && setup.expiry => {}
                Task::Holding => steps.push(Step::Release(c as u8)),
            }
            for (number, post) in client.post.iter().enumerate() {
                let attempt = Attempt { client: c as u8, number: number as u8 };
                self.arrivals(attempt, post, setup, &mut steps);
            }
        }
        if self.forgets > 0 {
            steps.extend((0..NODES).map(|n| Step::Forget(n as u8)));
        }
        steps
    }

    fn may_start(&self, c: usize, setup: &Setup) -> bool {
        let have_started = |c: usize| !self.clients[c].post.is_empty();
        c == 0 || have_started(c) || have_started(c - 1) || !setup.is_alike()
    }

    fn arrivals(&self, attempt: Attempt, post: &Post, setup: &Setup, steps: &mut Vec<Step>) {
        let kinds =
            [(Kind::Take, &post.takes), (Kind::Raise, &post.raises), (Kind::Give, &post.gives)];
        for (kind, letters) in kinds {
            for (n, letter) in letters.iter().enumerate() {
                let again = *letter == Letter::Carried;
                if *letter == Letter::Unsent || again && self.repeats == 0 {
                    continue;
                }
                let carry = |expires| Step::Carry { attempt, kind, node: n as u8, again, expires };
                steps.push(carry(false));
                if kind == Kind::Take && setup.expiry && self.nodes[n].is_held() {
                    steps.push(carry(true));
                }
            }
        }
    }

    /// What came of it, or what it broke; `None` if the step changes nothing.
    pub(super) fn apply(&mut self, step: &Step, setup: &Setup) -> Result<Option<Event>, Broken> {
        match *step {
            Step::Start(c) => self.start(usize::from(c), setup),
            Step::Carry { attempt, kind, node, again, expires } => {
                let n = usize::from(node);
                if expires {
                    self.nodes[n].expire();
                }
                if again {
                    self.repeats -= 1;
                }
                return Ok(self.carry(attempt, kind, n, setup).then_some(Event::Nothing));
            }
            Step::Decide(c, ref decision) => {
                return self.decide(usize::from(c), decision, setup).map(Some);
            }
            Step::Release(c) => self.end(usize::from(c), setup),
            Step::Forget(n) => {
                self.forgets -= 1;
                self.nodes[usize::from(n)].forget();
            }
        }
        Ok(Some(Event::Nothing))
    }

    fn start(&mut self, c: usize, setup: &Setup) {
        let client = &mut self.clients[c];
        client.floor = self.successes.iter().map(|success| success.fence).max().unwrap_or(0);
        client.post.push(Post { takes: [Letter::Sent; NODES], ..Post::default() });
        client.task = Task::Trying(round().wrong(setup.mutant()));
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
            Kind::Take => node.take(attempt, setup),
            Kind::Raise => node.raise(attempt, post.raise_to, setup.flaw),
            Kind::Give => {
                node.give(attempt, setup.flaw);
                None
            }
        };
        // Nobody reads the answers to an attempt that is decided.
        if is_current
            && let (Task::Trying(_), Some(answer)) = (&client.task, answer)
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
            End::Success { fence } => self.succeed(c, *fence, setup),
            End::Refusal => {
                self.end(c, setup);
                Ok(Event::Refusal)
            }
        }
    }

    fn succeed(&mut self, c: usize, fence: u8, setup: &Setup) -> Result<Event, Broken> {
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
                if let (Some(mine), Some(others)) = (*mine, others)
                    && (mine < others) != (fence < other.fence)
                {
                    return Err(format!("fence {fence} is not in a node's order of grants"));
                }
            }
        }
        client.task = Task::Holding;
        client.forget();
        let is_held = |client: &&Client| matches!(client.task, Task::Holding);
        if !setup.expiry && self.clients.iter().filter(is_held).count() > 1 {
            return Err("two hold the lock".to_owned());
        }
        let before = self.successes.len();
        self.successes.push(Success { fence, granted });
        Ok(Event::Success { before, raised })
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
        print.write_u8(self.forgets);
        for client in &self.clients {
            let task = match &client.task {
                Task::Idle => 0,
                // What it knows is in the answers, the grants and the fence to raise to.
                Task::Trying(_) => 1,
                Task::Holding => 2,
            };
            print.write_u32(u32::from_le_bytes([client.floor, client.post.len() as u8, task, 0]));
            client.post.iter().for_each(|post| print.write_u8(post.raise_to));
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
            for Post { takes, raises, gives, .. } in &client.post {
                print.write_u8(takes[n] as u8 | (raises[n] as u8) << 2 | (gives[n] as u8) << 4);
            }
        }
        self.successes.iter().for_each(|success| success.granted[n].hash(&mut print));
        print.finish()
    }
}

impl Client {
    fn is_over(&self, hints: &[u8]) -> bool {
        !matches!(self.task, Task::Trying(_)) && self.post.len() == hints.len()
    }

    fn forget(&mut self) {
        (self.answers, self.grants) = Default::default();
    }
}

impl Post {
    fn letters(&mut self, kind: Kind) -> &mut [Letter; NODES] {
        match kind {
            Kind::Take => &mut self.takes,
            Kind::Raise => &mut self.raises,
            Kind::Give => &mut self.gives,
        }
    }
}
