//! The scripts of a node on a real server.

mod fill;
mod give;
mod guard;
mod raise;
mod rights;
mod take;
mod walk;

use std::ops::Deref;
use std::time::Duration;

use super::super::native::tests::{Listener, NAME, QUEUE, SIDE, TTL, World, channel, open, token};
use super::*;
use crate::store::Notice;
use crate::store::redis::dialect::NO_WAKEUP;
use crate::store::redis::dialect::guard::Guard;
use kit::Server;

fn quorum(guard: Guard) -> Quorum {
    Quorum(Format { guard: Some(guard), ..Format::default() })
}

const MARKER: &str = "leasehold:marker";
const GUARD: Guard = Guard { max_ttl: TTL, clustered: false };
const HOUR: u64 = 3_600_000_000;

/// A server that is a node, and how scripts are sent there. Clients are numbers.
struct Node {
    world: World,
    quorum: Quorum,
}

impl Deref for Node {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl Node {
    /// One that grants.
    fn new() -> Node {
        let node = Node::uninitialized();
        node.initialize(GUARD, false).unwrap();
        node
    }

    fn uninitialized() -> Node {
        let node = Node::of(World::asked());
        for script in [&TAKE, &RAISE, &EXTEND, &FILL, &GIVE] {
            node.server.cmd(&["SCRIPT", "LOAD", script.source]);
        }
        node
    }

    fn of(world: World) -> Node {
        Node { world, quorum: quorum(GUARD) }
    }

    fn restarted(self, how: impl FnOnce(&mut Server)) -> Node {
        Node::of(self.world.restarted(how))
    }

    fn try_ask(&self, ballot: Ballot<'_>, wakeup: Wakeup<'_>) -> Result<(Said, u64), Error> {
        let batch = self.quorum.pack(&[ballot], &|_| wakeup.clone());
        let read = self.quorum.read(&ballot, (self.carry(&batch), None), Moment::now());
        read.map_err(|failure| failure.error)
    }

    #[track_caller]
    fn ask(&self, ballot: Ballot<'_>, client: u32) -> Said {
        self.try_ask(ballot, open(&channel(client))).unwrap().0
    }

    #[track_caller]
    fn take(&self, client: u32, attempt: u64) -> Said {
        self.ask(take(client, Place::Try, attempt), client)
    }

    #[track_caller]
    fn join(&self, client: u32, attempt: u64) -> Said {
        self.ask(take(client, Place::Join(0), attempt), client)
    }

    #[track_caller]
    fn raise(&self, client: u32, attempt: u64, fence: u64) -> Said {
        self.ask(ballot(token(client), Asks::Raise { attempt, fence }), client)
    }

    #[track_caller]
    fn extend(&self, client: u32, fence: u64, ttl: Duration, reach: Reach) -> Said {
        self.ask(ballot(token(client), Asks::Extend { fence, ttl, reach }), client)
    }

    #[track_caller]
    fn fill(&self, client: u32, fence: u64) -> Said {
        self.ask(
            ballot(token(client), Asks::Fill { fence, ttl: TTL, block: LONGEST_BLOCK }),
            client,
        )
    }

    #[track_caller]
    fn give(&self, client: u32, attempt: Option<u64>) -> Said {
        self.ask(give(client, attempt), client)
    }

    /// How a client stands in the queue.
    fn member(client: u32) -> String {
        format!("{} 0 {}", token(client), channel(client))
    }

    /// Whether anybody waits, the last fence, its attempt, and whose.
    fn side(&self) -> Option<(bool, u64, u64, u32)> {
        let (last, owner, attempt, queued) = self.world.side()?;
        Some((queued, last, attempt, owner))
    }

    fn marker(&self) -> Option<(String, u64, u64)> {
        let marker = self.text(&["GET", MARKER])?;
        let words: Vec<&str> = marker.split(' ').collect();
        let [run, over, longest] = words[..] else { panic!("{marker}") };
        Some((run.to_owned(), over.parse().unwrap(), longest.parse().unwrap()))
    }

    /// What the server calls itself.
    fn run(&self) -> String {
        let info = self.server.info("server");
        let line = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        line.unwrap().trim().to_owned()
    }

    /// As if its quarantine was over.
    fn wait_out(&self) {
        let (run, _, longest) = self.marker().unwrap();
        let over = self.time() - 1;
        self.cmd(&["SET", MARKER, &format!("{run} {over} {longest}")]);
    }
}

fn take(client: u32, place: Place, attempt: u64) -> Ballot<'static> {
    ballot(token(client), Asks::Take { ttl: TTL, place, attempt, block: 1 })
}

fn ballot(token: Token, asks: Asks) -> Ballot<'static> {
    Ballot { name: NAME, token, asks }
}

/// Leaves, and tells.
fn give(client: u32, attempt: Option<u64>) -> Ballot<'static> {
    ballot(token(client), Asks::Give { ttl: TTL, attempt, leaves: true, tells: true })
}

#[track_caller]
fn granted(said: Said) -> u64 {
    match said {
        Said::Granted { fence } => fence,
        said => panic!("{said:?}"),
    }
}

/// How long it can take, how many stand before, the ticket, and whether the holder is one of ours.
#[track_caller]
fn busy(said: Said) -> (Duration, u32, u64, bool) {
    match said {
        Said::Busy { free_in, rank, ticket, ours, .. } => (free_in, rank, ticket, ours),
        said => panic!("{said:?}"),
    }
}
