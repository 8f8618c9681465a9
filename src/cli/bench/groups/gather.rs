//! The bare limit of a quorum: one scatter and one gather over as many sockets as there are nodes.
//!
//! The bytes of a take are written to all of them, then all replies are read, in the same order;
//! and the same for the give. Nobody can ask all nodes and hear all of them in less.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold::Lock;

use super::super::bare::Bare;
use super::super::limit::{Template, count_in, fence_in, unexpected};
use super::super::ours;
use super::super::record::Recorded;
use super::servers::{Group, address, connect};
use crate::exit::Failure;

/// Until all nodes know the scripts.
const ROUNDS: usize = 4;
const CYCLES: usize = 20;
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Gather {
    nodes: Vec<Node>,
    token: Vec<u8>,
    turn: u64,
}

struct Node {
    bare: Bare,
    take: Template,
    give: Template,
    fence_length: usize,
    /// How the server answers a give that found nothing to give.
    nothing: Vec<u8>,
}

impl Gather {
    /// What the library sends, as each server saw it: they differ in what they call themselves.
    pub(super) fn new(lock: &Lock, group: &Group) -> Result<Gather, Failure> {
        // The first replies of the slowest ones are read only now and then, and so they are told
        // the scripts a little later.
        for _ in 0..ROUNDS {
            (0..CYCLES).try_for_each(|_| ours::cycle(lock))?;
            std::thread::sleep(PAUSE);
        }
        let (mut nodes, mut token) = (Vec::new(), Vec::new());
        for server in &group.servers {
            let mut bare = connect(server)?;
            let recorded = Recorded::of(lock, &address(server)?, &mut bare)?;
            nodes.push(Node {
                bare,
                take: Template::new(&recorded.take, &recorded),
                give: Template::new(&recorded.give, &recorded),
                fence_length: recorded.fence.len(),
                nothing: Vec::new(),
            });
            token.clone_from(&recorded.token);
        }
        let mut gather = Gather { nodes, token, turn: 0 };
        gather.prepare();
        for node in &mut gather.nodes {
            node.nothing = node.bare.exchange(&node.give.bytes)?.to_vec();
            if node.nothing.starts_with(b"-") {
                return Err(unexpected("give", &node.nothing));
            }
        }
        Ok(gather)
    }

    /// Takes the lock and gives it back; tells how long each of them took.
    pub(super) fn cycle(&mut self) -> Result<(Duration, Duration), Failure> {
        self.prepare();
        let begun = Instant::now();
        for node in &mut self.nodes {
            node.bare.ask(&node.take.bytes)?;
        }
        for node in &mut self.nodes {
            let reply = node.bare.answer()?;
            let fence = fence_in(reply, node.fence_length);
            match fence.filter(|_| reply.windows(3).any(|three| three == b"\nG ")) {
                Some(fence) => Template::put(&mut node.give.bytes, &node.give.fences, fence),
                None => return Err(unexpected("take", reply)),
            }
        }
        let taken = begun.elapsed();
        let begun = Instant::now();
        for node in &mut self.nodes {
            node.bare.ask(&node.give.bytes)?;
        }
        for node in &mut self.nodes {
            let reply = node.bare.answer()?;
            if reply == node.nothing || reply.starts_with(b"-") {
                return Err(unexpected("give", reply));
            }
        }
        Ok((taken, begun.elapsed()))
    }

    /// A new token, and the clock as the attempt's number: what an attempt's number is.
    fn prepare(&mut self) {
        self.turn += 1;
        count_in(&mut self.token, self.turn);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let attempt = now.as_micros().to_string();
        for node in &mut self.nodes {
            for command in [&mut node.take, &mut node.give] {
                Template::put(&mut command.bytes, &command.tokens, &self.token);
            }
            if attempt.len() == node.fence_length {
                Template::put(&mut node.take.bytes, &node.take.fences, attempt.as_bytes());
            }
        }
    }
}
