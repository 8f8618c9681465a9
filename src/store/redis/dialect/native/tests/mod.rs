//! The scripts on a real server.

mod give;
mod guard;
mod hand_over;
mod rights;
mod take;
mod walk;

use std::ops::Range;
use std::time::Duration;

use super::{
    Dialect, EXTEND, Format, GIVE, GUARDED_GIVE, GUARDED_TAKE, NO_WAKEUP, Native, TAKE, Wakeup,
};
use crate::clock::Moment;
use crate::store::redis::dialect::guard::Guard;
use crate::store::redis::dialect::world::{self, NAME, QUEUE, SIDE, TTL, channel, open, token};
use crate::store::{Notice, Place, Reach, Reply, Request};

/// What is handed over must not end during a test either.
const WINDOW: Duration = Duration::from_secs(60);

fn native(claim_window: Duration, guard: Option<Guard>) -> Native {
    Native(Format { claim_window, guard, ..Format::default() })
}

type World = world::World<Native>;

impl World {
    fn new() -> World {
        World::plain(native(WINDOW, None)).with_scripts()
    }

    /// Where scripts are told which run of the server this is.
    fn told_run() -> World {
        World::asked(native(WINDOW, None)).with_scripts()
    }

    fn with_scripts(self) -> World {
        self.load(&[&TAKE, &GIVE, &EXTEND]);
        self
    }

    #[track_caller]
    fn try_take(&self, client: u32) -> Reply {
        self.ask(take(client, Place::Try, 1), client)
    }

    #[track_caller]
    fn join(&self, client: u32, ticket: u64) -> Reply {
        self.ask(take(client, Place::Join(ticket), 1), client)
    }

    /// Joins and is told its ticket.
    #[track_caller]
    fn ticket(&self, client: u32) -> u64 {
        match self.join(client, 0) {
            Reply::Busy { ticket, .. } => ticket,
            reply => panic!("{reply:?}"),
        }
    }

    /// Several join, one after the other.
    #[track_caller]
    fn tickets(&self, clients: Range<u32>) -> Vec<u64> {
        clients.map(|client| self.ticket(client)).collect()
    }

    #[track_caller]
    fn give(&self, client: u32, fence: u64) -> Reply {
        self.ask(give(client, fence), client)
    }

    #[track_caller]
    fn claim(&self, client: u32, fence: u64) -> Reply {
        let (name, token, reach) = (NAME, token(client), Reach::Claim);
        self.ask(Request::Extend { name, token, fence, ttl: TTL, reach }, client)
    }

    /// The last fence reserved, whom the last grant was for, its first fence, and the flag.
    fn side(&self) -> Option<(u64, u32, u64, bool)> {
        let (queued, last, first, owner) = self.side_words()?;
        Some((last, owner, first, queued))
    }

    /// How a client stands in the queue.
    fn member(client: u32) -> String {
        format!("{} {} {}", token(client), WINDOW.as_millis(), channel(client))
    }
}

fn take(client: u32, place: Place, block: u32) -> Request<'static> {
    Request::Take { name: NAME, token: token(client), ttl: TTL, place, block }
}

fn give(client: u32, fence: u64) -> Request<'static> {
    Request::Give { name: NAME, token: token(client), fence, ttl: TTL }
}

#[track_caller]
fn granted(reply: Reply) -> (u64, u32) {
    match reply {
        Reply::Granted { fence, block } => (fence, block),
        reply => panic!("{reply:?}"),
    }
}
