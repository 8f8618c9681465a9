//! Nodes of a quorum that are down, each in its own way: a minority, and too many.

use std::time::{Duration, Instant};

use crate::stores::{LIMIT, Quorum, STALL, ms, secs};
use kit::{End, Mode, Stopwatch, eventually, unless_starved};
use leasehold::{Client, Config, ErrorKind, EventKind, Lease, LossReason};
use redis::Value;

/// How a node is down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// Nobody listens there any more, and connections have ended.
    Kill,
    /// Connections are accepted, and nothing is answered.
    Stop,
    /// The same by the network: requests do not arrive.
    Silence,
    /// Requests arrive and are carried out; nobody hears of it.
    Deafness,
    /// New connections are refused, and the old ones are reset.
    Refuse,
}

const FAULTS: [Fault; 5] =
    [Fault::Kill, Fault::Stop, Fault::Silence, Fault::Deafness, Fault::Refuse];

fn strike(quorum: &mut Quorum, fault: Fault, nodes: &[usize]) {
    for node in nodes.iter().copied() {
        match fault {
            Fault::Kill => quorum.nodes[node].kill(),
            Fault::Stop => quorum.nodes[node].stop(),
            Fault::Silence => quorum.proxies[node].set(Mode::Silent),
            Fault::Deafness => quorum.proxies[node].set(Mode::SwallowReplies),
            Fault::Refuse => {
                quorum.proxies[node].set(Mode::Refuse);
                quorum.proxies[node].close_all(End::Reset);
            }
        }
    }
}

/// As they were; only one that was killed has forgotten everything.
fn heal(quorum: &mut Quorum, fault: Fault, nodes: &[usize]) {
    for node in nodes.iter().copied() {
        match fault {
            Fault::Kill => quorum.nodes[node].start_again(),
            Fault::Stop => quorum.nodes[node].cont(),
            Fault::Silence | Fault::Deafness | Fault::Refuse => {
                quorum.proxies[node].set(Mode::Pass);
            }
        }
    }
}

/// Of five, through proxies, with connections made.
fn start(max_ttl: Duration) -> Quorum {
    let quorum = Quorum::builder(5).with_proxies().max_ttl(max_ttl).start();
    quorum.warm_up(&quorum.client());
    quorum
}

fn client(quorum: &Quorum, config: impl Fn(Config) -> Config) -> Client {
    let client = Client::with_config(config(quorum.config())).unwrap();
    quorum.warm_up(&client);
    client
}

#[track_caller]
fn taken(client: &Client, name: &str) -> Lease {
    client.lock(name).wait(LIMIT).acquire().unwrap()
}

fn kind<T>(result: Result<T, leasehold::Error>) -> ErrorKind {
    result.err().expect("an error").kind()
}

#[test]
fn two_of_five_may_be_down_in_any_way() {
    for fault in FAULTS {
        unless_starved(STALL, || {
            let mut quorum = start(secs(60));
            let client = client(&quorum, |config| config);
            let events = client.events().unwrap();
            let held = client.lock("held").ttl(ms(1500)).acquire().unwrap();
            eventually(LIMIT, || quorum.taken_on("held") == 5);
            strike(&mut quorum, fault, &[1, 3]);
            let mut last = 0;
            for _ in 0..10 {
                let watch = Stopwatch::start();
                let lease = taken(&client, "n");
                assert!(lease.fence() > last);
                last = lease.fence();
                lease.extend().unwrap();
                lease.release().unwrap();
                // Three requests, for each of which no server is waited for longer than 100 ms.
                watch.assert_at_most(ms(3 * 110), ms(60));
            }
            held.extend().unwrap();
            let renewed = client.counters().renewed;
            eventually(LIMIT, || client.counters().renewed > renewed + 2);
            assert!(held.is_valid());
            assert_eq!(events.try_next().unwrap(), None);
            held.release().unwrap();
            heal(&mut quorum, fault, &[1, 3]);
            // What they were asked meanwhile is undone, by whom it was asked.
            quorum.eventually_free("n");
            quorum.eventually_free("held");
        });
    }
}

#[test]
fn c7_with_three_of_five_down_a_try_is_over_in_time_and_leaves_nothing() {
    for fault in FAULTS {
        unless_starved(STALL, || {
            let mut quorum = start(secs(60));
            let client = client(&quorum, |config| config.io_timeout(ms(400)));
            strike(&mut quorum, fault, &[0, 2, 4]);
            for _ in 0..2 {
                let watch = Stopwatch::start();
                let error = client.lock("n").try_acquire().unwrap_err();
                watch.assert_at_most(ms(400), ms(50));
                assert_eq!(error.kind(), ErrorKind::NoQuorum, "{fault:?}: {error}");
                assert!(error.is_retriable());
                assert!(error.detail().contains("of 5 servers gave a vote"), "{error}");
            }
            let watch = Stopwatch::start();
            assert_eq!(kind(client.lock("n").acquire_within(ms(700))), ErrorKind::NoQuorum);
            watch.assert_at_most(ms(700), ms(50));
            // At once on those that answer.
            eventually(LIMIT, || {
                [1, 3].iter().all(|at| quorum.nodes[*at].cmd(&["EXISTS", "n"]) == Value::Int(0))
            });
            heal(&mut quorum, fault, &[0, 2, 4]);
            // The ttl is longer than this.
            let healed = Instant::now();
            quorum.eventually_free("n");
            assert!(healed.elapsed() < secs(20));
            std::thread::sleep(ms(100));
            assert_eq!(quorum.taken_on("n"), 0);
            if fault != Fault::Kill {
                taken(&client, "n").release().unwrap();
            }
        });
    }
}

#[test]
fn c9_leases_are_at_risk_and_then_lost_while_too_many_are_down() {
    for fault in FAULTS {
        unless_starved(STALL, || {
            let mut quorum = start(secs(60));
            let client = client(&quorum, |config| config);
            let events = client.events().unwrap();
            let lease = client.lock("n").ttl(ms(900)).acquire().unwrap();
            let renewed = client.counters().renewed;
            eventually(LIMIT, || client.counters().renewed > renewed);
            strike(&mut quorum, fault, &[0, 1, 2]);
            std::thread::sleep(ms(20));
            let end = Instant::now() + lease.remaining();
            let told = || events.next_within(LIMIT).unwrap().expect("an event comes").kind;
            assert_eq!(told(), EventKind::AtRisk, "{fault:?}");
            assert!(lease.is_valid());
            assert_eq!(told(), EventKind::Lost(LossReason::Expired), "{fault:?}");
            assert!(Instant::now() <= end + ms(10), "{fault:?}: told after the end");
            assert!(!lease.is_valid());
            assert_eq!(kind(lease.extend()), ErrorKind::Lost);
            heal(&mut quorum, fault, &[0, 1, 2]);
        });
    }
}

#[test]
fn a_wait_outlasts_an_outage_of_too_many() {
    for fault in FAULTS {
        unless_starved(STALL, || {
            let mut quorum = start(secs(1));
            let client = client(&quorum, |config| config.io_timeout(ms(300)));
            let fence = {
                let lease = taken(&client, "n");
                let fence = lease.fence();
                lease.release().unwrap();
                fence
            };
            strike(&mut quorum, fault, &[0, 2, 3]);
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| client.lock("n").acquire_within(LIMIT));
                // Longer than io_timeout, which is what a try would last.
                std::thread::sleep(ms(700));
                assert!(!waiter.is_finished(), "{fault:?}");
                heal(&mut quorum, fault, &[0, 2, 3]);
                let healed = Instant::now();
                let lease = waiter.join().unwrap().unwrap();
                println!("{fault:?}: {:?} after they were back", healed.elapsed());
                assert!(lease.fence() > fence);
                assert!(lease.is_valid());
                lease.release().unwrap();
            });
        });
    }
}

/// Requests lie in the sockets of servers that stand still, and in a network that is cut: they are
/// carried out when nobody remembers them.
#[test]
fn c6_what_arrives_late_is_undone_and_harms_nobody_after_it() {
    for fault in [Fault::Stop, Fault::Silence] {
        unless_starved(STALL, || {
            let mut quorum = start(secs(60));
            let client = client(&quorum, |config| config.io_timeout(ms(300)));
            let other = quorum.client();
            quorum.warm_up(&other);
            if fault == Fault::Silence {
                for node in [0, 1, 2] {
                    quorum.proxies[node].set(Mode::HoldRequests);
                }
            } else {
                strike(&mut quorum, fault, &[0, 1, 2]);
            }
            for name in ["n", "m"] {
                assert_eq!(kind(client.lock(name).try_acquire()), ErrorKind::NoQuorum);
            }
            let fence = {
                if fault == Fault::Silence {
                    quorum.proxies.iter_mut().take(3).for_each(|proxy| proxy.deliver());
                } else {
                    heal(&mut quorum, fault, &[0, 1, 2]);
                }
                // The next client is never busy for good because of them.
                let lease = taken(&other, "n");
                assert!(lease.is_valid());
                lease.extend().unwrap();
                let fence = lease.fence();
                lease.release().unwrap();
                fence
            };
            quorum.eventually_free("n");
            quorum.eventually_free("m");
            assert!(taken(&client, "n").fence() > fence);
        });
    }
}

#[test]
fn c14_closing_ends_in_time_while_a_node_is_silent() {
    for fault in [Fault::Stop, Fault::Silence] {
        unless_starved(STALL, || {
            let mut quorum = start(secs(60));
            for silent in [&[0][..], &[0, 1, 2]] {
                let client = client(&quorum, |config| config.close_timeout(ms(400)));
                let leases: Vec<_> =
                    (0..20).map(|index| taken(&client, &format!("n{index}"))).collect();
                strike(&mut quorum, fault, silent);
                let watch = Stopwatch::start();
                client.close().unwrap();
                watch.assert_at_most(ms(400), ms(150));
                assert!(leases.iter().all(|lease| !lease.is_valid()));
                drop(leases);
                heal(&mut quorum, fault, silent);
                // What was not given back by then is free by its ttl.
                for node in &quorum.nodes {
                    node.cmd(&["FLUSHDB"]);
                }
                quorum.client().initialize(true).unwrap();
            }
        });
    }
}
