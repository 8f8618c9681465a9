//! The scripts of a node on a real server.

mod fill;
mod give;
mod guard;
mod raise;
mod rights;
mod take;
mod walk;

use std::time::Duration;

use super::*;
use crate::store::Notice;
use crate::store::redis::several::world::{
    Guard, Listener, MARKER, NAME, NO_WAKEUP, QUEUE, SIDE, TTL, World, channel, marker_in_cluster,
    open, token,
};

fn quorum(guard: Guard) -> Quorum {
    Quorum(Format::guarded(guard))
}

const GUARD: Guard = Guard { max_ttl: TTL, clustered: false };
const HOUR: u64 = 3_600_000_000;

/// A server that is a node.
type Node = World<Quorum>;

impl Node {
    /// One that grants.
    fn new() -> Node {
        let node = Node::uninitialized();
        node.initialize(GUARD, false).unwrap();
        node
    }

    fn uninitialized() -> Node {
        let node = Node::asked(quorum(GUARD));
        node.load(&[&TAKE, &RAISE, &EXTEND, &FILL, &GIVE]);
        node
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
        self.side_words()
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
