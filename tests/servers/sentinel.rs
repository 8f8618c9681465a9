//! Locks on a master that Sentinels replace when it fails.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::stores::{LIMIT, ms, open, secs};
use kit::{BlackHole, SentinelGroup, Server, eventually, eventually_some, unless_starved};
use leasehold::{Client, ErrorKind, EventKind, Lock};

/// How a group comes to another master.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    StepDown,
    Kill,
    Stop,
}

const FAULTS: [Fault; 3] = [Fault::StepDown, Fault::Kill, Fault::Stop];

/// What the master has, its replicas have. (A fresh one is not sent anything before it has told
/// that it is there, which it does once a second.)
fn settle(group: &SentinelGroup) {
    let (mut master, replicas) = (group.master().connection(), group.servers.len() - 1);
    redis::cmd("SET").arg(&["settled", "yes", "PX", "1"]).exec(&mut master).unwrap();
    let settled = || redis::cmd("WAIT").arg(replicas).arg(1000).query::<usize>(&mut master);
    let mut settled = settled;
    eventually(LIMIT, || settled().unwrap() == replicas);
}

/// Gives the moment of the election. What was written before is with the new master.
fn strike(group: &mut SentinelGroup, fault: Fault) -> Instant {
    settle(group);
    let mut elections = group.elections();
    match fault {
        Fault::StepDown => return group.fail_over().at,
        Fault::Kill => group.master_mut().kill(),
        Fault::Stop => group.master().stop(),
    }
    // A Sentinel of before 7.0 that was given no processor for two seconds elects nobody for thirty.
    elections.next(LIMIT * 3).at
}

fn client(url: &str) -> Client {
    Client::open(url).unwrap()
}

/// A request under way when the machine stands still for so long would end late.
const STALL: Duration = ms(50);

#[test]
fn a_lock_is_taken_extended_and_released_where_the_sentinels_say() {
    let group = SentinelGroup::start();
    let client = open(&group.url());
    client.ping().unwrap();
    let lock = client.lock("n");
    let lease = lock.acquire().unwrap();
    lease.extend().unwrap();
    assert!(lock.try_acquire().unwrap().is_none());
    assert_eq!(group.master().cmd(&["EXISTS", "n"]), redis::Value::Int(1));
    lease.release().unwrap();
    assert_eq!(group.master().cmd(&["EXISTS", "n"]), redis::Value::Int(0));
    // A waiter is told, as anywhere.
    let held = lock.acquire().unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.acquire().unwrap().release().unwrap());
        eventually(LIMIT, || client.counters().busy >= 2);
        held.release().unwrap();
        waiter.join().unwrap();
    });
    client.close().unwrap();
}

#[test]
fn one_that_waits_has_the_lock_within_a_second_of_the_election() {
    for fault in FAULTS {
        unless_starved(STALL, || {
            let mut group = SentinelGroup::start();
            settle(&group);
            let (holder, waiter) = (client(&group.url()), client(&group.url()));
            // As from a holder that has died: nobody renews it and nobody releases it. It ends only
            // after the old master, which could grant it once more on its own.
            let ttl = if fault == Fault::StepDown { secs(4) } else { secs(1) };
            let lost = holder.lock("n").ttl(ttl).renew(false).acquire().unwrap();
            let (fence, expires) = (lost.fence(), Instant::now() + ttl);
            lost.let_expire().unwrap();
            std::thread::scope(|scope| {
                let lock = waiter.lock("n").wait(LIMIT);
                let waits = scope.spawn(move || (lock.acquire().unwrap(), Instant::now()));
                eventually(LIMIT, || waiter.counters().busy >= 1);
                let elected = strike(&mut group, fault);
                let (lease, had) = waits.join().unwrap();
                let after = had.saturating_duration_since(elected.max(expires));
                println!("{fault:?}: {after:?} after the election");
                assert!(after < secs(1), "{fault:?}: {after:?}");
                assert!(lease.fence() > fence);
                drop(lease);
            });
        });
    }
}

/// The one that waits sleeps, and nothing but the news of the election tells it that the server
/// which would have woken it is gone.
#[test]
fn one_that_sleeps_is_woken_by_the_new_master() {
    for fault in FAULTS {
        unless_starved(STALL, || {
            let mut group = SentinelGroup::start();
            let (holder, waiter) = (client(&group.url()), client(&group.url()));
            let held = holder.lock("n").acquire().unwrap();
            std::thread::scope(|scope| {
                let lock = waiter.lock("n").wait(LIMIT);
                let waits = scope.spawn(move || (lock.acquire().unwrap(), Instant::now()));
                eventually(LIMIT, || waiter.counters().busy >= 2);
                let elected = strike(&mut group, fault);
                let release = Instant::now();
                held.release().unwrap();
                let (lease, had) = waits.join().unwrap();
                let after = had.saturating_duration_since(elected.max(release));
                println!("{fault:?}: {after:?} after the election");
                assert!(after < secs(1), "{fault:?}: {after:?}");
                lease.release().unwrap();
            });
        });
    }
}

/// What may become of a call in the midst of a failover, which is asynchronous.
fn may_be(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Unknown
            | ErrorKind::Lost
            | ErrorKind::Unavailable
            | ErrorKind::NoAnswer
            | ErrorKind::Refused
    )
}

/// Takes, extends and releases until told to stop; tells of each cycle that went well. No call takes
/// longer than its deadline.
fn cycle(lock: &Lock, over: &AtomicBool, mut well: impl FnMut()) -> Vec<u64> {
    let mut fences = Vec::new();
    let check = |began: Instant, error: leasehold::Error| {
        assert!(may_be(error.kind()), "{error}");
        assert!(began.elapsed() < ms(1050) + STALL * 3, "{error}: {:?}", began.elapsed());
    };
    while !over.load(Ordering::Relaxed) {
        let began = Instant::now();
        let lease = match lock.try_acquire() {
            Ok(Some(lease)) => lease,
            // An earlier lease, of which is not known whether it was released.
            Ok(None) => {
                std::thread::sleep(ms(1));
                continue;
            }
            Err(error) => {
                check(began, error);
                continue;
            }
        };
        fences.push(lease.fence());
        let began = Instant::now();
        let extended = lease.extend().map_err(|error| check(began, error));
        let began = Instant::now();
        let released = lease.release().map_err(|error| check(began, error));
        if extended.and(released).is_ok() {
            well();
        }
    }
    fences
}

/// Also where a test fails in between, and others would go on for ever.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn cycles_go_on_over_failovers_and_fences_grow() {
    for fault in FAULTS {
        unless_starved(STALL, || {
            let mut group = SentinelGroup::start();
            let (one, over) = (client(&group.url()), AtomicBool::new(false));
            let (well, is_well) = channel();
            std::thread::scope(|scope| {
                let names = ["a", "b", "c"];
                let cycles: Vec<_> = names
                    .map(|name| {
                        // A release that the old master did not pass on is undone by the ttl.
                        let lock = one.lock(name).ttl(secs(1));
                        let (well, over) = (well.clone(), &over);
                        let tell = move || well.send((name, Instant::now())).unwrap();
                        scope.spawn(move || cycle(&lock, over, tell))
                    })
                    .into_iter()
                    .collect();
                let ends = Ends(&over);
                let elected = strike(&mut group, fault);
                // Each of them comes through, and soon.
                let mut waiting = names.to_vec();
                while !waiting.is_empty() {
                    let (name, at) = is_well.recv_timeout(LIMIT).unwrap();
                    if at > elected {
                        waiting.retain(|waiting| *waiting != name);
                        let after = at - elected;
                        assert!(after < secs(3), "{fault:?}, {name}: {after:?}, {waiting:?}");
                    }
                }
                drop(ends);
                for cycle in cycles {
                    let fences = cycle.join().unwrap();
                    assert!(fences.is_sorted_by(|one, two| one < two), "{fences:?}");
                }
            });
            one.close().unwrap();
        });
    }
}

#[test]
fn a_lease_that_the_new_master_knows_lives_on_and_another_is_told_lost_in_time() {
    unless_starved(STALL, || {
        let mut group = SentinelGroup::start();
        let client = client(&group.url());
        let lock = |name: &str| client.lock(name).ttl(secs(3));
        let (kept, gone) = (lock("kept").acquire().unwrap(), lock("gone").acquire().unwrap());
        let events = client.events().unwrap();
        strike(&mut group, Fault::StepDown);
        // What the old master did not pass on.
        group.master().cmd(&["DEL", "gone"]);
        // A slow election puts both of them at risk first.
        let lost = || {
            let event = events.next_within(LIMIT).unwrap().expect("an event");
            (event.kind != EventKind::AtRisk).then_some(event)
        };
        let event = eventually_some(LIMIT, lost);
        assert_eq!(*event.name, *b"gone");
        assert!(matches!(event.kind, EventKind::Lost(_)), "{event:?}");
        assert!(!gone.is_valid());
        assert_eq!(gone.release().unwrap_err().kind(), ErrorKind::Lost);
        // Long enough to have been renewed at the new one.
        std::thread::sleep(secs(3));
        assert!(kept.is_valid());
        kept.release().unwrap();
    });
}

#[test]
fn dead_and_silent_sentinels_are_passed_over() {
    unless_starved(STALL, || {
        let mut group = SentinelGroup::start();
        let hole = BlackHole::open();
        group.sentinels[0].kill();
        let ports = [hole.port(), group.sentinels[0].port(), group.sentinels[1].port()];
        let client = client(&group.url_through(&ports));
        let began = Instant::now();
        let lease = client.lock("n").try_acquire().unwrap().unwrap();
        assert!(began.elapsed() < ms(1050), "{:?}", began.elapsed());
        lease.release().unwrap();
        // From now on the one that answered is asked first.
        group.master().cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
        let began = Instant::now();
        client.lock("n").try_acquire().unwrap().unwrap().release().unwrap();
        assert!(began.elapsed() < ms(200), "{:?}", began.elapsed());
    });
}

#[test]
fn where_no_sentinel_helps_the_error_says_how_by_the_deadline() {
    unless_starved(STALL, || {
        let group = SentinelGroup::start();
        let url = group.url();
        let kind_of = |url: &str| {
            let (began, client) = (Instant::now(), client(url));
            let error = client.lock("n").try_acquire().unwrap_err();
            assert!(began.elapsed() < ms(1050) + STALL, "{error}: {:?}", began.elapsed());
            (error.kind(), error.detail().to_owned())
        };
        let (kind, said) = kind_of(&group.url().replace("mymaster", "another"));
        assert_eq!(kind, ErrorKind::BadArgument);
        assert!(said.contains("'another'") && said.contains("3 of 3"), "{said}");
        let holes = [(); 3].map(|()| BlackHole::open());
        let (kind, said) = kind_of(&group.url_through(&holes.each_ref().map(BlackHole::port)));
        assert_eq!(kind, ErrorKind::NoAnswer);
        assert!(said.contains("none of the 3 Sentinels"), "{said}");
        let mut gone = Server::start();
        let (kind, said) = (gone.kill(), kind_of(&group.url_through(&[gone.port()]))).1;
        assert_eq!(kind, ErrorKind::Refused);
        assert!(said.contains(&gone.port().to_string()), "{said}");
        // A server is no Sentinel.
        let (kind, said) = kind_of(&group.url_through(&[group.servers[0].port()]));
        assert_eq!(kind, ErrorKind::Protocol, "{said}");
        // And a master that is not there, in time.
        let master = group.master_index().unwrap();
        let mut group = group;
        group.sentinels.iter().skip(1).for_each(Server::stop);
        group.servers[master].kill();
        let (kind, said) = kind_of(&url);
        assert_eq!(kind, ErrorKind::Refused, "{said}");
        assert!(said.contains("the master 'mymaster' at"), "{said}");
    });
}

/// How often the library warned that Sentinels cannot be told apart.
static WARNINGS: AtomicU64 = AtomicU64::new(0);

struct Counting;

impl log::Log for Counting {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() == log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata())
            && record.args().to_string().starts_with("sentinel-rights ")
        {
            WARNINGS.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self) {}
}

#[test]
fn who_may_not_ask_a_sentinel_for_its_epoch_is_served_and_says_so_once() {
    kit::child::alone(|| {
        log::set_logger(&Counting).unwrap();
        log::set_max_level(log::LevelFilter::Warn);
        let group = SentinelGroup::start();
        let needed =
            ["+sentinel|get-master-addr-by-name", "+subscribe", "resetchannels", "&+switch-master"];
        for (user, more, warnings) in [("rich", &["+sentinel|master"][..], 0), ("poor", &[], 1)] {
            let user_with = ["ACL", "SETUSER", user, "on", ">pw", "-@all"];
            let set = [&user_with[..], &needed, more].concat();
            group.sentinels.iter().for_each(|sentinel| drop(sentinel.cmd(&set)));
            let client =
                open(&format!("{}?sentinel_user={user}&sentinel_password=pw", group.url()));
            for _ in 0..3 {
                client.lock("n").acquire().unwrap().release().unwrap();
                // They are asked again.
                group.master().cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
            }
            assert_eq!(WARNINGS.load(Ordering::Relaxed), warnings, "{user}");
        }
    });
}

const SECRETS: [&str; 2] = ["masters-secret", "sentinels-secret"];

#[test]
fn c12_both_passwords_are_used_and_neither_is_told() {
    let group =
        SentinelGroup::builder().login("bob", SECRETS[0]).sentinel_login("eve", SECRETS[1]).start();
    let right = client(&group.url());
    right.lock("n").acquire().unwrap().release().unwrap();
    let mut said = vec![format!("{right:?} {}", right.store())];
    for secret in SECRETS {
        let client = client(&group.url().replace(secret, "hunter2"));
        let error = client.lock("n").try_acquire().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
        said.push(format!("{error} {error:?} {} {client:?} {}", error.detail(), client.store()));
    }
    for said in said {
        let secrets = ["hunter2", "bob", "eve"].iter().chain(&SECRETS);
        secrets.for_each(|secret| assert!(!said.contains(secret), "{said}"));
    }
}

#[cfg(feature = "tls")]
#[test]
fn tls_is_spoken_with_both() {
    let mut group = SentinelGroup::builder().tls().start();
    let client = client(&group.tls_url());
    let lock = client.lock("n").wait(LIMIT);
    lock.acquire().unwrap().release().unwrap();
    strike(&mut group, Fault::Kill);
    lock.acquire().unwrap().release().unwrap();
}

#[test]
fn an_old_master_that_comes_back_as_a_replica_is_left_alone() {
    // Sentinels that are given no processor elect once more.
    unless_starved(STALL, || {
        let mut group = SentinelGroup::start();
        let client = open(&group.url());
        // Longer than an election takes where a Sentinel was given no processor for a while.
        let lock = client.lock("n").ttl(secs(300)).wait(LIMIT);
        let first = group.master_index().unwrap();
        let before = lock.acquire().unwrap();
        let fence = before.fence();
        strike(&mut group, Fault::Stop);
        let new = group.master_index().unwrap();
        // It would grant everything until it learns what it is now.
        before.release().unwrap();
        let lease = lock.acquire().unwrap();
        assert!(lease.fence() > fence);
        group.servers[first].cont();
        for _ in 0..20 {
            assert!(lock.try_acquire().unwrap().is_none());
            std::thread::sleep(ms(20));
        }
        group.wait_until_ready();
        assert_eq!(group.master_index(), Some(new));
        lease.release().unwrap();
        lock.acquire().unwrap().release().unwrap();
    });
}

/// Nobody cut the connections, and no Sentinel has said anything: the server itself says that it is
/// no master any more.
#[test]
fn a_server_that_has_become_read_only_is_left_for_the_master() {
    unless_starved(STALL, || {
        let group = SentinelGroup::start();
        settle(&group);
        let client = client(&group.url());
        let lock = client.lock("n");
        let held = client.lock("held").acquire().unwrap();
        lock.acquire().unwrap().release().unwrap();
        // The Sentinels hear of it when they look next, and put it right.
        let master = group.master();
        let replica = group.replicas()[0].port().to_string();
        let mut connection = master.connection();
        redis::cmd("REPLICAOF").arg("127.0.0.1").arg(&replica).exec(&mut connection).unwrap();
        let began = Instant::now();
        let kind = match lock.try_acquire() {
            Ok(Some(lease)) => return drop((lease, held)),
            Ok(None) => panic!("nobody else has it"),
            Err(error) => error.kind(),
        };
        assert_eq!(kind, ErrorKind::Unavailable);
        assert!(began.elapsed() < ms(1050) + STALL, "{:?}", began.elapsed());
        redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut connection).unwrap();
        lock.acquire().unwrap().release().unwrap();
        held.release().unwrap();
    });
}

/// They often run on one machine.
#[test]
fn a_sentinel_that_falls_silent_with_the_master_keeps_nobody_waiting() {
    unless_starved(STALL, || {
        let group = SentinelGroup::start();
        settle(&group);
        let (holder, waiter) = (client(&group.url()), client(&group.url()));
        holder.lock("n").acquire().unwrap().let_expire().unwrap();
        std::thread::scope(|scope| {
            let lock = waiter.lock("n").wait(LIMIT * 4);
            let waits = scope.spawn(move || (lock.acquire().unwrap(), Instant::now()));
            eventually(LIMIT, || waiter.counters().busy >= 2);
            group.master().cmd(&["PEXPIRE", "n", "100"]);
            settle(&group);
            let mut elections = group.elections();
            // The one that was asked, and goes on telling.
            group.sentinels[0].stop();
            group.servers[0].stop();
            let elected = elections.next(LIMIT * 3).at;
            let (lease, had) = waits.join().unwrap();
            let after = had.saturating_duration_since(elected);
            assert!(after < secs(1), "{after:?}");
            drop(lease);
        });
    });
}
