//! The threads that wait, in orders that no clock would ever bring about: whole clients, with
//! everything that waits in them, on a server in memory.
//!
//! Run by `RUSTFLAGS='--cfg shuttle' cargo test --lib explored`; an execution in which nobody can
//! go on is a failure, and no wait of more than a second ends by itself.

mod server;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::thread;

use self::server::{Inbox, LONG, Link, Served, Server};
use super::Mutant;
use crate::config::Config;
use crate::error::{Error, ErrorKind};
use crate::keeper::Keeper;
use crate::lease::Lease;
use crate::lock::Lock;
use crate::sync::{Mutex, explored};
use crate::token::Token;

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
}

use Visit::{Closes, Hurries, Keeps, Ponders, Stays, Stops, Tries};

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
    /// Whoever of the first client asks again about "a" is answered after its turn on "b".
    slow: bool,
    /// The first client is closed in the midst of it.
    closes: bool,
}

const CALM: Scenario = Scenario {
    clients: &[],
    rounds: 1,
    cuts: 0,
    trouble: false,
    forbidden: false,
    slow: false,
    closes: false,
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

/// Beside the names on which a client was served.
const CLOSED: &str = "(closed)";

struct Client {
    keeper: Arc<Keeper>,
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
        let config = config.io_timeout(Duration::from_secs(30));
        let (mut link, served) = (Link::new(server), Arc::new(Served::default()));
        link.trouble = scenario.trouble;
        link.slow = (first && scenario.slow).then(|| Arc::clone(&served));
        if first && scenario.forbidden {
            link.forbid();
        }
        let inbox = link.inbox();
        let keeper = Arc::new(Keeper::start(Box::new(link), &config).unwrap());
        Arc::new(Client { keeper, inbox, served, closing: AtomicBool::new(false) })
    }

    fn visit(self: &Arc<Client>, (name, visit): Wish, watch: &Watch) {
        let lock = Lock::new(Arc::clone(&self.keeper), name.as_bytes());
        let lock = lock.ttl(LONG).no_max_hold().wait(LONG);
        let mut patience: i32 = thread_rng().gen_range(1..4);
        let got = match visit {
            Stays | Keeps => lock.acquire(),
            Hurries => lock.acquire_timeout(Duration::from_millis(50)),
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
            Stays | Ponders | Closes | Keeps => false,
            Hurries | Tries => error.is_retriable(),
            Stops => error.kind() == ErrorKind::Interrupted,
        };
        assert!(expected || closed, "{visit:?}: {error}");
    }

    fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.keeper.close(LONG).unwrap();
        self.served.add(CLOSED);
    }

    /// Nobody waits or listens here any more, and nothing is left of those who did.
    fn is_empty(&self, closed: bool, forbidden: bool) -> bool {
        let room = &self.keeper.core_even_closed().unwrap().room;
        let hall = room.hall.lock();
        // The turn that closing has ended is told to nobody: nobody could follow.
        assert!(!hall.has_warned || forbidden, "what closing did is taken for a refusal");
        let lines = closed || (hall.lines.is_empty() && !room.is_occupied());
        lines && hall.seats.is_empty() && hall.able.is_empty() && hall.listener.is_none()
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
        let closed = client.closing.load(Ordering::Relaxed);
        client.close();
        let forbidden = scenario.forbidden && index == 0;
        assert!(client.is_empty(closed, forbidden), "somebody was left behind");
    }
    assert!(server.is_idle(), "the server was left something");
}

/// Executions of one scenario in an ordinary run, by each scheduler.
const EXECUTIONS: usize = 1000;
/// A mutant is caught in one of so many.
const PATIENCE: usize = 20 * EXECUTIONS;

fn explore(scenario: Scenario) {
    if std::env::var_os("LEASEHOLD_LONG").is_some() {
        let seed = Token::random().unwrap().seed();
        println!("seed {seed}");
        run_all(seed, 50 * EXECUTIONS, scenario);
    } else {
        run_all(7, EXECUTIONS, scenario);
    }
}

fn run_all(seed: u64, executions: usize, scenario: Scenario) {
    run(PctScheduler::new_from_seed(seed, 3, executions), scenario);
    run(RandomScheduler::new_from_seed(seed, executions), scenario);
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

thread_local! {
    static MUTANT: Cell<Option<Mutant>> = const { Cell::new(None) };
}

pub(super) fn is(mutant: Mutant) -> bool {
    MUTANT.get() == Some(mutant)
}

/// Under the mutant, somebody is left asleep in the scenario.
fn catch(mutant: Mutant, scenario: Scenario) {
    MUTANT.set(Some(mutant));
    let caught = catch_unwind(|| run_all(7, PATIENCE, scenario));
    MUTANT.set(None);
    let caught = caught.expect_err(&format!("{mutant:?} lives"));
    let said = caught.downcast_ref::<String>().map_or("", String::as_str);
    assert!(said.starts_with("deadlock!"), "{mutant:?}: {said}");
}

#[test]
fn every_way_to_get_it_wrong_is_noticed() {
    catch(Mutant::WakesWithoutMark, THREE);
    catch(Mutant::LeavesWithoutNominating, ONE_LEAVES);
    catch(Mutant::GoesWithoutNominating, SLOW);
    catch(Mutant::ListensToItsCheck, PONDERING);
    catch(Mutant::ReopensWithoutAsking, Scenario { cuts: 2, ..TWO_NAMES });
}

#[test]
fn whoever_stays_has_a_turn() {
    explore(THREE);
    explore(TWO_NAMES);
}

#[test]
fn turns_go_from_client_to_client() {
    let clients: &[&[Wish]] = &[&[("a", Stays), ("a", Stays)], &[("a", Stays), ("a", Stays)]];
    explore(Scenario { clients, ..CALM });
    explore(Scenario { rounds: 2, ..TWO_NAMES });
}

#[test]
fn whoever_leaves_keeps_nobody_waiting() {
    let clients: &[&[Wish]] = &[&[("a", Stays), ("a", Hurries), ("a", Stays), ("a", Stops)]];
    explore(Scenario { clients, ..CALM });
    let clients: &[&[Wish]] =
        &[&[("a", Stays), ("b", Hurries), ("c", Stops)], &[("a", Stays), ("b", Tries)]];
    explore(Scenario { clients, rounds: 2, ..CALM });
}

#[test]
fn while_one_is_busy_elsewhere_another_listens() {
    explore(SLOW);
    explore(PONDERING);
}

#[test]
fn what_a_cut_connection_did_not_tell_is_asked_for() {
    explore(Scenario { cuts: 2, ..TWO_NAMES });
    explore(Scenario { cuts: 1, trouble: true, ..ONE_LEAVES });
}

#[test]
fn closing_ends_every_wait() {
    explore(Scenario { closes: true, ..THREE });
    explore(CLOSED_BY_A_CHECK);
    explore(KEPT);
    explore(Scenario { closes: true, cuts: 1, trouble: true, ..ONE_LEAVES });
}

#[test]
fn whoever_may_not_listen_asks() {
    let clients: &[&[Wish]] = &[&[("a", Stays), ("a", Stays)], &[("a", Stays)]];
    explore(Scenario { clients, forbidden: true, ..CALM });
}
