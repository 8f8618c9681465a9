//! A lease that is dropped is released without waiting for the reply, and nobody notices but by
//! the time that it saves.

use std::fs;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::stores::{
    LIMIT, STALL, Store, eventually_free, holder, in_time_on_each_store, ms, on_each_store, open,
    secs,
};
use kit::scripts::GIVE;
use kit::{
    Child, Link, Mode, Proxy, Server, Stopwatch, child, eventually, eventually_some, unless_starved,
};
use leasehold::{Client, Lease};
use redis::Value;

on_each_store!(
    a_look_by_the_same_client_sees_the_release,
    more_may_be_dropped_than_one_connection_may_owe,
    c14_closing_after_dropping_leaves_nothing_behind,
    what_was_dropped_is_free_though_the_process_ends_at_once,
);

// What a machine that stands still keeps from being given in time is late.
in_time_on_each_store!(nobody_is_busy_against_himself,);

/// The others are slower, and what is rare shows on this one.
fn many_on_redis(store: &Store, many: usize) -> usize {
    if matches!(store, Store::Redis(_)) { many } else { many / 10 }
}

/// What a request that gives has in it.
fn give() -> Vec<u8> {
    kit::scripts::digest(GIVE).into()
}

/// Takes it or fails: nobody else has it.
#[track_caller]
fn take(client: &Client, name: &str) -> Lease {
    let taken = client.lock(name).ttl(secs(60)).try_acquire().unwrap();
    taken.unwrap_or_else(|| panic!("'{name}' is taken; {:?}", client.counters()))
}

fn exists(server: &Server, name: &str) -> bool {
    server.cmd(&["EXISTS", name]) == Value::Int(1)
}

#[test]
fn dropping_does_not_wait_for_the_reply_and_releasing_does() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    let client = open(&server.url_through(proxy.port()));
    let (dropped, released) = (take(&client, "n"), take(&client, "m"));
    let slow = ms(300);
    proxy.set(Mode::DelayReplies(slow));
    let watch = Stopwatch::start();
    drop(dropped);
    watch.assert_at_most(Duration::ZERO, ms(30));
    eventually(LIMIT, || !exists(&server, "n"));
    let watch = Stopwatch::start();
    released.release().unwrap();
    watch.assert_at_least(slow);
    assert_eq!(client.counters().released_late, 0);
}

#[test]
fn the_reply_is_read_before_its_connection_is_used_again() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    let url = server.url_through(proxy.port());
    let client = open(&format!("{url}?pool=1&register=no&advise=no"));
    let lease = take(&client, "n");
    let (connections, fence) = (proxy.accepted(), lease.fence());
    proxy.set_only(&give(), Mode::DelayReplies(ms(20)));
    drop(lease);
    // Each of these would take the reply that is owed for its own.
    client.ping().unwrap();
    let lease = take(&client, "other");
    lease.extend().unwrap();
    drop(lease);
    assert_eq!(client.lock("n").inspect().unwrap().last_fence, Some(fence));
    let lease = take(&client, "n");
    assert!(lease.fence() > fence);
    drop(lease);
    client.lock("third").acquire().unwrap().release().unwrap();
    assert_eq!(proxy.accepted(), connections);
    assert_eq!((client.counters().unknown, client.counters().released_late), (0, 0));
}

fn a_look_by_the_same_client_sees_the_release(store: &Store) {
    let client = store.client();
    for _ in 0..many_on_redis(store, 500) {
        drop(take(&client, "n"));
        assert!(holder(&client, "n").is_none());
    }
}

/// Passes a name round among threads, while others keep connections busy: the thread that gets the
/// name takes it at the first try.
fn pass_round(client: &Client, turns: usize) {
    let end = Instant::now() + LIMIT;
    let (to_second, second) = channel();
    let (to_first, first) = channel();
    std::thread::scope(|scope| {
        let over = Arc::new(());
        for noise in 0..3 {
            let over = Arc::downgrade(&over);
            scope.spawn(move || {
                while over.strong_count() > 0 {
                    drop(take(client, &format!("noise:{noise}")));
                }
            });
        }
        scope.spawn(move || {
            for () in second {
                drop(take(client, "n"));
                to_first.send(()).unwrap();
            }
        });
        // Gone when this ends in whatever way, and then the others end.
        let (_over, to_second) = (over, to_second);
        for _ in 0..turns {
            for _ in 0..2 {
                drop(take(client, "n"));
            }
            to_second.send(()).unwrap();
            first.recv_timeout(LIMIT).expect("the other thread took it at once");
            assert!(Instant::now() < end, "it takes too long");
        }
    });
    assert_eq!((client.counters().busy, client.counters().released_late), (0, 0));
    client.close_within(LIMIT).unwrap();
}

fn nobody_is_busy_against_himself(store: &Store) {
    pass_round(&store.client(), many_on_redis(store, 1000));
}

#[test]
fn nobody_is_busy_against_himself_however_many_connections_there_are() {
    let server = Server::start();
    for pool in [1, 2] {
        pass_round(&open(&format!("{}?pool={pool}", server.url())), 1000);
    }
}

#[test]
fn nobody_is_busy_against_himself_where_some_connections_are_slower() {
    const DELAYS: &[Duration] = &[ms(5), ms(0), ms(2)];
    let server = Server::start();
    for pool in [2, 8] {
        let link = Link::to(&server);
        link.slow_in_turn(DELAYS);
        let url = server.url_through(link.port());
        pass_round(&open(&format!("{url}?pool={pool}")), 60);
    }
}

#[test]
fn a_release_and_the_next_take_travel_together() {
    unless_starved(STALL, || {
        let server = Server::start();
        let link = Link::to(&server);
        link.slow(ms(10));
        let client = open(&server.url_through(link.port()));
        let timed = |cycle: &dyn Fn()| {
            cycle();
            let start = Instant::now();
            (0..20).for_each(|_| cycle());
            start.elapsed()
        };
        let waited = timed(&|| take(&client, "n").release().unwrap());
        let together = timed(&|| drop(take(&client, "n")));
        assert!(together < waited * 3 / 4, "{together:?} and {waited:?}");
    });
}

#[test]
fn a_cycle_sends_two_commands() {
    let server = Server::start();
    let client = open(&format!("{}?register=no&advise=no", server.url()));
    drop(take(&client, "n"));
    assert!(holder(&client, "n").is_none());
    let mut watch = server.watch();
    (0..100).for_each(|_| drop(take(&client, "n")));
    // Whatever the keeper reads, it sends nothing.
    std::thread::sleep(ms(150));
    assert_eq!(watch.count(), 200);
}

#[test]
fn connections_are_not_more_than_those_of_the_pool_and_the_reserved_ones() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    let client = open(&format!("{}?pool=3", server.url_through(proxy.port())));
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let client = &client;
            scope.spawn(move || {
                for turn in 0..300 {
                    let lease = take(client, &format!("n:{thread}"));
                    let other = take(client, &format!("m:{thread}"));
                    if turn % 50 == 0 {
                        // Long enough for the keeper to come.
                        drop(other);
                        std::thread::sleep(ms(60));
                    }
                    drop(lease);
                }
            });
        }
    });
    eventually(LIMIT, || proxy.open() <= 5);
    // On a busy machine connecting may take longer than a dropped lease waits for it.
    assert!(proxy.accepted() <= 10, "{}", proxy.accepted());
    assert_eq!(client.counters().busy, 0);
}

fn more_may_be_dropped_than_one_connection_may_owe(store: &Store) {
    let client = match store {
        Store::Redis(server) => open(&format!("{}?pool=1", server.url())),
        _ => store.client(),
    };
    let many = many_on_redis(store, 1000);
    let leases: Vec<_> = (0..many).map(|index| take(&client, &format!("n:{index}"))).collect();
    drop(leases);
    (0..many).for_each(|index| drop(take(&client, &format!("n:{index}"))));
    assert_eq!((client.counters().busy, client.counters().released_late), (0, 0));
}

fn c14_closing_after_dropping_leaves_nothing_behind(store: &Store) {
    let other = store.client();
    let names: Vec<_> = (0..40).map(|index| format!("n:{index}")).collect();
    for round in 0..many_on_redis(store, 20) {
        let client = store.client();
        let leases: Vec<_> = names.iter().map(|name| take(&client, name)).collect();
        drop(leases);
        if let (Store::Redis(server), 0) = (store, round % 2) {
            server.cmd(&["SCRIPT", "FLUSH"]);
        }
        match store {
            Store::Redis(_) => client.close().unwrap(),
            _ => client.close_within(LIMIT).unwrap(),
        }
        assert!(names.iter().all(|name| holder(&other, name).is_none()));
        assert_eq!(client.counters().released_late, 0);
    }
}

/// Ends without a word right after it has dropped its lease. (Of several, the last may be lost: a
/// socket that is closed with a reply unread takes back what the server has not read.)
fn leaver(args: &[String]) {
    let client = open(&args[0]);
    drop(take(&client, "n:0"));
    std::process::exit(0);
}

fn what_was_dropped_is_free_though_the_process_ends_at_once(store: &Store) {
    let mut leaver = Child::start("leaver", &[&store.url()]);
    assert!(leaver.wait(LIMIT).success());
    eventually_free(&store.client(), "n:0");
}

/// How often the keeper of this process has gone to sleep.
fn sleeps() -> u64 {
    // A thread gives itself its name once it runs.
    let keeper = eventually_some(LIMIT, || {
        let mut tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
        tasks.find(|task| {
            fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "leasehold")
        })
    });
    let status = fs::read_to_string(keeper.join("status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

/// Alone in its process, so that the keeper is its own.
fn dropper(args: &[String]) {
    let client = open(&args[0]);
    let lock = client.lock("n").ttl(ms(600));
    let end = |lease: Lease| match args[1].as_str() {
        "drop" => drop(lease),
        _ => lease.release().unwrap(),
    };
    end(lock.acquire().unwrap());
    let (start, before) = (Instant::now(), sleeps());
    let mut cycles = 0;
    while start.elapsed() < secs(1) {
        end(lock.acquire().unwrap());
        // The keeper is not kept from looking between two leases.
        std::thread::sleep(ms(1));
        cycles += 1;
    }
    let slept = sleeps() - before;
    child::say(&format!("{cycles} {slept} {}", start.elapsed().as_millis()));
    // It comes back two or three times after the last one, and then no more.
    std::thread::sleep(ms(500));
    let before = sleeps();
    std::thread::sleep(secs(1));
    child::say(&(sleeps() - before).to_string());
}

#[test]
fn the_keeper_comes_now_and_then_and_sleeps_when_all_is_done() {
    // A renewal of these leases would be due after 200 ms.
    for (ending, often) in [("drop", 50), ("release", 150)] {
        unless_starved(STALL, || {
            let server = Server::start();
            let mut dropper = Child::start("dropper", &[&server.url(), ending]);
            let line = dropper.line(LIMIT);
            let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
            let [cycles, slept, millis] = numbers[..] else { panic!("{line}") };
            // Whenever it comes, it may have to sleep once more for a mutex whose owner does not run.
            let most = 2 * (millis / often) + 4;
            assert!(slept <= most, "{slept} times in {cycles} cycles, {millis} ms");
            assert_eq!(dropper.line(LIMIT), "0");
            assert!(dropper.wait(LIMIT).success());
        });
    }
}

pub(crate) const ROLES: kit::child::Roles = &[("leaver", leaver), ("dropper", dropper)];
