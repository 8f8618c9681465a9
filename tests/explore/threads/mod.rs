//! The threads that wait, in orders that no clock would ever bring about: whole clients, with
//! everything that waits in them, on a server in memory.
//!
//! Run by `tests/explore/run`. An execution in which nobody can go on is a failure, and no wait of more than
//! a second ends by itself.

mod server;
pub(crate) mod system;
mod tests;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use self::server::{Inbox, LONG, Link, Served, Server};
use crate::config::Config;
use crate::error::{Error, ErrorKind};
use crate::keeper::{Keeper, Keepers};
use crate::lease::Lease;
use crate::lock::Lock;
use crate::sync::{Condvar, Mutex};

/// How a thread waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Visit {
    /// Until it has its turn.
    Stays,
    /// For so short a time that it may go at any moment.
    Hurries,
    /// Until its own check says stop, at any moment.
    Stops,
    /// Until it has its turn; its own check may not return before "b" had one.
    Ponders,
    /// Until its own check closes the client.
    Closes,
    /// Until it has its turn, which it keeps until the client is closed.
    Keeps,
    /// Not at all.
    Tries,
    /// As a future, until it has its turn.
    Awaits,
    /// As a future that is dropped at any moment.
    Drops,
}

use Visit::{Awaits, Closes, Drops, Hurries, Keeps, Ponders, Stays, Stops, Tries};

/// A name, and how a thread waits for it.
type Wish = (&'static str, Visit);

/// Who comes, and what happens to them.
#[derive(Clone, Copy)]
struct Scenario {
    /// The threads of each client.
    clients: &'static [&'static [Wish]],
    /// How often each thread comes.
    rounds: u32,
    /// How often the first client's wake-up connection is cut.
    cuts: u32,
    /// Requests and openings may fail.
    trouble: bool,
    /// The first client must not listen.
    forbidden: bool,
    /// A waiter of the first client that asks again about "a" is answered after its turn on "b".
    slow: bool,
    /// The first client is closed in the midst of it.
    closes: bool,
    flaw: Option<Flaw>,
}

/// Ways to get it wrong, each of which leaves somebody asleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flaw {
    /// A thread that is woken just before it sleeps sleeps on.
    WakesOnlySleepers,
    /// A thread that has heard something goes without waking another one to listen.
    LeavesAfterNews,
    /// A thread whose time is over, or whose check is due, does so.
    LeavesInSilence,
    /// Nobody is told that the wake-up connection was cut and opened again.
    HidesCuts,
    /// A call that is woken just before it is parked sleeps on.
    WakesOnlyParked,
    /// Nobody listens for a call that was parked.
    ParksUnheard,
}

const CALM: Scenario = Scenario {
    clients: &[],
    rounds: 1,
    cuts: 0,
    trouble: false,
    forbidden: false,
    slow: false,
    closes: false,
    flaw: None,
};

const THREE: Scenario =
    Scenario { clients: &[&[("a", Stays), ("a", Stays), ("a", Stays)]], ..CALM };

const TWO_NAMES: Scenario =
    Scenario { clients: &[&[("a", Stays), ("b", Stays)], &[("a", Stays), ("b", Stays)]], ..CALM };

const ONE_LEAVES: Scenario =
    Scenario { clients: &[&[("a", Stays), ("b", Hurries)], &[("a", Stays), ("b", Stays)]], ..CALM };

const SLOW: Scenario = Scenario {
    clients: &[&[("a", Stays), ("b", Stays)], &[("a", Stays), ("b", Stays)], &[("a", Stays)]],
    slow: true,
    ..CALM
};

const PONDERING: Scenario =
    Scenario { clients: &[&[("a", Ponders), ("b", Stays)], &[("a", Stays), ("b", Stays)]], ..CALM };

const CLOSED_BY_A_CHECK: Scenario =
    Scenario { clients: &[&[("a", Stays), ("a", Stays), ("a", Closes)]], ..CALM };

const KEPT: Scenario =
    Scenario { clients: &[&[("a", Stays), ("a", Keeps), ("a", Stays)]], closes: true, ..CALM };

const FUTURES: Scenario = Scenario {
    clients: &[&[("a", Awaits), ("b", Awaits)], &[("a", Stays), ("b", Awaits), ("b", Stays)]],
    ..CALM
};

/// Beside the names on which a client was served.
const CLOSED: &str = "(closed)";

/// What wakes a thread that waits for a future.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock() = true;
        self.changed.notify_all();
    }
}

/// Waits for a future, or drops it after so many looks.
fn wait_for<F: Future>(future: F, mut looks: Option<u32>) -> Option<F::Output> {
    let (bell, mut future) = (Arc::new(Bell::default()), pin!(future));
    let waker = Waker::from(Arc::clone(&bell));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        match &mut looks {
            Some(0) => return None,
            Some(looks) => {
                *looks -= 1;
                thread::yield_now();
            }
            None => {
                let mut rung = bell.rung.lock();
                while !std::mem::take(&mut *rung) {
                    rung = bell.changed.wait(rung);
                }
            }
        }
    }
}

struct Client {
    keepers: Arc<Keepers>,
    inbox: Arc<Inbox>,
    served: Arc<Served>,
    closing: AtomicBool,
}

/// Who has which lock, as the threads themselves see it.
#[derive(Default)]
struct Watch(Mutex<BTreeMap<&'static str, Watched>>);

#[derive(Default)]
struct Watched {
    holders: Vec<Arc<Client>>,
    fence: u64,
}

impl Client {
    fn open(scenario: Scenario, server: &Arc<Server>, first: bool) -> Arc<Client> {
        let config = Config::from_url("redis://127.0.0.1").unwrap();
        let config = config.claim_window(Duration::from_secs(60));
        // So few threads of a crew that they all have something to do.
        let config = config.io_timeout(Duration::from_secs(30)).pool(2);
        let (mut link, served) = (Link::new(server), Arc::new(Served::default()));
        link.trouble = scenario.trouble;
        link.slow = (first && scenario.slow).then(|| Arc::clone(&served));
        if first && scenario.forbidden {
            link.forbid();
        }
        link.flaw = scenario.flaw;
        let inbox = link.inbox();
        let keeper = Keeper::start(Box::new(link), Arc::default(), config).unwrap();
        let keepers = Arc::new(Keepers::new(keeper, |_| unreachable!()));
        inbox.belongs_to(keepers.here().unwrap());
        Arc::new(Client { keepers, inbox, served, closing: AtomicBool::new(false) })
    }

    fn visit(self: &Arc<Client>, (name, visit): Wish, watch: &Watch) {
        let lock = Lock::new(Arc::clone(&self.keepers), name.as_bytes());
        let lock = lock.ttl(LONG).no_max_hold().wait(LONG);
        let mut patience: i32 = thread_rng().gen_range(1..4);
        let got = match visit {
            Stays | Keeps => lock.acquire(),
            Hurries => lock.acquire_within(Duration::from_millis(50)),
            Stops => lock.acquire_unless(|| {
                patience -= 1;
                patience == 0
            }),
            Closes => lock.acquire_unless(|| {
                patience -= 1;
                if patience == 0 {
                    self.close();
                }
                false
            }),
            Ponders => lock.acquire_unless(|| {
                patience -= 1;
                if patience == 0 {
                    self.served.wait_for("b");
                }
                false
            }),
            Tries => match lock.try_acquire() {
                Ok(Some(lease)) => Ok(lease),
                Ok(None) => return,
                Err(error) => Err(error),
            },
            Awaits => wait_for(lock.acquire_async(), None).unwrap(),
            Drops => match wait_for(lock.acquire_async(), Some(thread_rng().gen_range(0..8))) {
                Some(got) => got,
                None => return,
            },
        };
        match got {
            Ok(lease) => self.hold(lease, (name, visit), watch),
            Err(error) => self.expect(visit, &error),
        }
    }

    fn hold(self: &Arc<Client>, lease: Lease, (name, visit): Wish, watch: &Watch) {
        self.served.add(name);
        let mut names = watch.0.lock();
        let watched = names.entry(name).or_default();
        let (fence, closing) = (lease.fence(), || self.closing.load(Ordering::Relaxed));
        // What a client held when it was closed may be somebody else's.
        if lease.is_valid() {
            watched.holders.retain(|holder| !holder.closing.load(Ordering::Relaxed));
            assert!(watched.holders.is_empty(), "two hold the lock");
            assert!(fence > watched.fence, "fence {fence} after {}", watched.fence);
            watched.holders.push(Arc::clone(self));
            watched.fence = fence;
        } else {
            assert!(closing(), "a lease that is over");
        }
        drop(names);
        match visit {
            Keeps => self.served.wait_for(CLOSED),
            _ => thread::yield_now(),
        }
        let mut names = watch.0.lock();
        let watched = names.entry(name).or_default();
        assert!(lease.is_valid() || closing(), "a lease that has ended by itself");
        watched.holders.retain(|holder| !Arc::ptr_eq(holder, self));
        drop(names);
        if thread_rng().gen_bool(0.5) {
            drop(lease);
        } else if let Err(error) = lease.release() {
            assert!(closing(), "{error}");
        }
    }

    fn expect(&self, visit: Visit, error: &Error) {
        let closed = self.closing.load(Ordering::Relaxed) && error.kind() == ErrorKind::Closed;
        let expected = match visit {
            Stays | Ponders | Closes | Keeps | Awaits | Drops => false,
            Hurries | Tries => error.is_retriable(),
            Stops => error.kind() == ErrorKind::Interrupted,
        };
        assert!(expected || closed, "{visit:?}: {error}");
    }

    fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.keepers.close(LONG).unwrap();
        self.served.add(CLOSED);
    }

    /// Nobody waits or listens here any more, and nothing is left of those who did.
    fn is_empty(&self, closed: bool, forbidden: bool) -> bool {
        self.keepers.here().unwrap().core_even_closed().unwrap().room.is_empty(closed, forbidden)
    }
}

/// One execution.
fn play(scenario: Scenario) {
    system::restart();
    let (server, watch) = (Arc::new(Server::default()), Arc::new(Watch::default()));
    let clients: Vec<_> = (0..scenario.clients.len())
        .map(|index| Client::open(scenario, &server, index == 0))
        .collect();
    let mut threads = Vec::new();
    for (client, wishes) in clients.iter().zip(scenario.clients) {
        for wish in *wishes {
            let (client, watch) = (Arc::clone(client), Arc::clone(&watch));
            threads.push(thread::spawn(move || {
                (0..scenario.rounds).for_each(|_| client.visit(*wish, &watch));
            }));
        }
    }
    for _ in 0..scenario.cuts {
        let inbox = Arc::clone(&clients[0].inbox);
        threads.push(thread::spawn(move || inbox.cut()));
    }
    if scenario.closes {
        let client = Arc::clone(&clients[0]);
        threads.push(thread::spawn(move || client.close()));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    for (index, client) in clients.iter().enumerate() {
        // The crew may have yet to give back what a dropped future was given.
        let drops = scenario.clients[index].iter().any(|(_, visit)| *visit == Drops);
        let closed = client.closing.load(Ordering::Relaxed) || drops;
        client.close();
        let forbidden = scenario.forbidden && index == 0;
        assert!(client.is_empty(closed, forbidden), "somebody was left behind");
    }
    assert!(server.is_idle(), "the server was left something");
}
