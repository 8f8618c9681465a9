//! The threads that wait, in orders that no clock would ever bring about: whole clients, with
//! everything that waits in them, on a server in memory.
//!
//! Run by `RUSTFLAGS='--cfg shuttle' cargo test --lib explored`; an execution in which nobody can
//! go on is a failure, and no wait of more than a second ends by itself.

mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::thread;

use self::server::{Inbox, LONG, Link, Server};
use crate::clock::Moment;
use crate::config::Config;
use crate::error::{Error, ErrorKind};
use crate::keeper::Keeper;
use crate::lease::Lease;
use crate::lock::Lock;
use crate::sync::{Mutex, explored};

/// How a thread waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Visit {
    /// Until it has its turn.
    Stays,
    /// For so short a time that it may go at any moment.
    Hurries,
    /// Until its own check says stop, at any moment.
    Stops,
    /// Not at all.
    Tries,
}

use Visit::{Hurries, Stays, Stops, Tries};

/// Who comes, and what happens to them.
#[derive(Clone, Copy)]
struct Scenario {
    /// The threads of each client.
    clients: &'static [&'static [Visit]],
    /// How often each thread comes.
    rounds: u32,
    /// The most turns that a client takes under one grant.
    turns: u32,
    /// How often the first client's wake-up connection is cut.
    cuts: u32,
    /// Requests and openings may fail.
    trouble: bool,
    /// The first client must not listen.
    forbidden: bool,
    /// The first client is closed in the midst of it.
    closes: bool,
}

const CALM: Scenario = Scenario {
    clients: &[],
    rounds: 1,
    turns: 64,
    cuts: 0,
    trouble: false,
    forbidden: false,
    closes: false,
};

const NAME: &[u8] = b"name";

struct Client {
    keeper: Arc<Keeper>,
    inbox: Arc<Inbox>,
    closing: AtomicBool,
}

/// Who has the lock, as the threads themselves see it.
#[derive(Default)]
struct Watch {
    holders: Mutex<Vec<Arc<Client>>>,
    last_fence: AtomicU64,
}

impl Client {
    fn open(scenario: Scenario, server: &Arc<Server>, first: bool) -> Arc<Client> {
        let config = Config::from_url("redis://127.0.0.1").unwrap();
        let config = config.io_timeout(Duration::from_secs(30)).turns(scenario.turns);
        let link = Link::new(server, scenario.trouble, first && scenario.forbidden);
        let inbox = link.inbox();
        let keeper = Arc::new(Keeper::start(Box::new(link), &config).unwrap());
        Arc::new(Client { keeper, inbox, closing: AtomicBool::new(false) })
    }

    fn visit(self: &Arc<Client>, visit: Visit, watch: &Watch) {
        let lock = Lock::new(Arc::clone(&self.keeper), NAME).ttl(LONG).no_max_hold().wait(LONG);
        let got = match visit {
            Stays => lock.acquire(),
            Hurries => lock.acquire_timeout(Duration::from_millis(50)),
            Stops => {
                let mut patience = thread_rng().gen_range(1..4);
                lock.acquire_unless(|| {
                    patience -= 1;
                    patience == 0
                })
            }
            Tries => match lock.try_acquire() {
                Ok(Some(lease)) => Ok(lease),
                Ok(None) => return,
                Err(error) => Err(error),
            },
        };
        match got {
            Ok(lease) => self.hold(lease, watch),
            Err(error) => self.expect(visit, &error),
        }
    }

    fn hold(self: &Arc<Client>, lease: Lease, watch: &Watch) {
        let fence = lease.fence();
        let mut holders = watch.holders.lock();
        // What a client held when it was closed is somebody else's.
        holders.retain(|holder| !holder.closing.load(Ordering::Relaxed));
        assert!(holders.is_empty(), "two hold the lock");
        holders.push(Arc::clone(self));
        drop(holders);
        let before = watch.last_fence.swap(fence, Ordering::Relaxed);
        let closing = || self.closing.load(Ordering::Relaxed);
        assert!(fence > before || closing(), "fence {fence} after {before}");
        thread::yield_now();
        assert!(lease.is_valid() || closing());
        watch.holders.lock().retain(|holder| !Arc::ptr_eq(holder, self));
        if thread_rng().gen_bool(0.5) {
            drop(lease);
        } else if let Err(error) = lease.release() {
            assert!(closing(), "{error}");
        }
    }

    fn expect(&self, visit: Visit, error: &Error) {
        let closed = self.closing.load(Ordering::Relaxed) && error.kind() == ErrorKind::Closed;
        let expected = match visit {
            Stays => false,
            Hurries | Tries => error.is_retriable(),
            Stops => error.kind() == ErrorKind::Interrupted,
        };
        assert!(expected || closed, "{visit:?}: {error}");
    }

    fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.keeper.close(LONG).unwrap();
    }

    /// Nobody waits here any more, and nothing is left of those who did.
    fn is_empty(&self) -> bool {
        let room = &self.keeper.desk_even_closed().unwrap().room;
        let hall = room.hall.lock();
        !room.is_occupied()
            && hall.lines.is_empty()
            && hall.seats.is_empty()
            && hall.able.is_empty()
            && hall.listener.is_none()
    }
}

/// One execution.
fn play(scenario: Scenario) {
    explored::restart();
    let (server, watch) = (Arc::new(Server::default()), Arc::new(Watch::default()));
    let clients: Vec<_> = (0..scenario.clients.len())
        .map(|index| Client::open(scenario, &server, index == 0))
        .collect();
    let mut threads = Vec::new();
    for (client, visits) in clients.iter().zip(scenario.clients) {
        for visit in *visits {
            let (client, watch) = (Arc::clone(client), Arc::clone(&watch));
            threads.push(thread::spawn(move || {
                (0..scenario.rounds).for_each(|_| client.visit(*visit, &watch));
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
    for client in &clients {
        client.close();
        assert!(client.is_empty(), "somebody was left behind");
    }
    assert!(server.is_idle(), "the server was left something");
}

/// Executions of one scenario in an ordinary run.
const EXECUTIONS: usize = 1000;

fn explore(scenario: Scenario) {
    let long = std::env::var_os("LEASEHOLD_LONG").is_some();
    let executions = if long { 50 * EXECUTIONS } else { EXECUTIONS };
    let seed = if long { Moment::now().as_nanos() } else { 7 };
    run(RandomScheduler::new_from_seed(seed, executions), scenario);
    run(PctScheduler::new_from_seed(seed, 3, executions), scenario);
}

fn run(scheduler: impl Scheduler + 'static, scenario: Scenario) {
    let mut config = shuttle::Config::new();
    config.stack_size = 256 << 10;
    config.silence_warnings = true;
    config.failure_persistence = shuttle::FailurePersistence::None;
    config.max_steps = shuttle::MaxSteps::FailAfter(20_000);
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    shuttle::Runner::new(scheduler, config).run(move || play(scenario));
}

#[test]
fn whoever_stays_has_a_turn() {
    explore(Scenario { clients: &[&[Stays, Stays, Stays]], ..CALM });
}

#[test]
fn turns_go_from_client_to_client() {
    explore(Scenario { clients: &[&[Stays, Stays], &[Stays, Stays]], ..CALM });
}

#[test]
fn whoever_comes_again_takes_turns() {
    let clients: &[&[Visit]] = &[&[Stays, Stays], &[Stays]];
    explore(Scenario { clients, rounds: 2, turns: 1, ..CALM });
}

#[test]
fn whoever_leaves_keeps_nobody_waiting() {
    explore(Scenario { clients: &[&[Stays, Hurries, Stays, Hurries]], ..CALM });
    explore(Scenario { clients: &[&[Stops, Stays, Stays], &[Stays, Tries]], ..CALM });
}

#[test]
fn what_a_cut_connection_did_not_tell_is_asked_for() {
    let clients: &[&[Visit]] = &[&[Stays, Stays], &[Stays, Hurries]];
    explore(Scenario { clients, cuts: 2, ..CALM });
    explore(Scenario { clients, cuts: 1, trouble: true, ..CALM });
}

#[test]
fn closing_ends_every_wait() {
    explore(Scenario { clients: &[&[Stays, Stays, Stays]], closes: true, ..CALM });
    let clients: &[&[Visit]] = &[&[Stays, Stays, Hurries], &[Stays]];
    explore(Scenario { clients, closes: true, cuts: 1, trouble: true, ..CALM });
}

#[test]
fn whoever_may_not_listen_asks() {
    explore(Scenario { clients: &[&[Stays, Stays], &[Stays]], forbidden: true, ..CALM });
}
