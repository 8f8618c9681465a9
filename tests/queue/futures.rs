//! Futures stand in line with threads, and a few threads serve any number of them.

use std::time::Duration;

use crate::queueing::{
    NAME, Queues, assert_all_keys_end, client, config, eventually_queued, in_line, judge, now,
    on_each_queue,
};
use crate::stores::{LIMIT, STALL, Store, ms, open, secs};
use kit::futures::{Futures, block_on};
use kit::{End, Hold, Mode, Proxy, Server, eventually, unless_starved};
use leasehold::{Acquiring, Backoff, Client, Lock, WaitMode};

on_each_queue!(
    c10_futures_and_threads_have_their_turns_in_the_order_of_coming,
    c10_a_future_that_is_dropped_lets_the_next_one_pass_at_once,
);

/// Futures that wait.
fn begin(futures: &mut Futures<Acquiring>, lock: &Lock, count: usize) {
    for _ in 0..count {
        let number = futures.add(lock.acquire_async());
        assert!(futures.poll(number).is_none(), "a poll does not wait for the store");
    }
}

/// Threads of this process that go on with futures.
fn crew() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name == b"leasehold-wait\n").count()
}

/// How many places there are in the queues of all names.
fn places(server: &Server) -> usize {
    let mut connection = server.connection();
    let keys: Vec<String> =
        redis::cmd("KEYS").arg("leasehold:queue:*").query(&mut connection).unwrap();
    let places = keys
        .iter()
        .map(|key| -> usize { redis::cmd("ZCARD").arg(key).query(&mut connection).unwrap() });
    places.sum()
}

#[test]
fn c10_six_hundred_names_and_two_hundred_of_one_wait_with_few_threads() {
    kit::child::alone(|| {
        let server = Server::start();
        let (holder, client) = (open(&server.url()), open(&server.url()));
        let names: Vec<_> = (0..600).map(|index| format!("of 600: {index}")).collect();
        let mut held: Vec<_> =
            names.iter().map(|name| holder.lock(name).acquire().unwrap()).collect();
        let of_all = holder.lock(NAME).acquire().unwrap();
        let mut futures = Futures::default();
        for name in &names {
            begin(&mut futures, &client.lock(name).wait_forever(), 1);
        }
        begin(&mut futures, &client.lock(NAME).wait_forever(), 200);
        eventually(LIMIT, || places(&server) == 601);
        eventually_queued(&server, 1);
        // With the pool's eight, which are not all needed.
        assert!((1..=10).contains(&crew()), "{} threads", crew());

        // One name is as soon served as if nobody else waited.
        let released = now();
        held.pop().unwrap().release().unwrap();
        let (number, lease) = futures.next(LIMIT);
        println!("the last of 600: {:?}", now() - released);
        assert_eq!(number, 599);
        drop((lease.unwrap(), held));
        let mut turns = Vec::new();
        of_all.release().unwrap();
        for _ in 1..800 {
            let (number, lease) = futures.next(LIMIT);
            let (lease, from) = (lease.unwrap(), now());
            assert!(lease.is_valid());
            if number >= 600 {
                turns.push((number, Hold::at(released, from, lease.fence())));
            }
            lease.release().unwrap();
        }
        assert!(turns.is_sorted_by_key(|(number, _)| *number), "in the order of the first polls");
        judge(turns.into_iter().map(|(_, turn)| turn).collect());
        assert!(crew() <= 10, "{} threads", crew());
        eventually(LIMIT, || crew() == 0);
        assert_eq!(places(&server), 0);
        assert_all_keys_end(&server);

        // They come back, and close ends them.
        let held = open(&server.url()).lock(NAME).acquire().unwrap();
        begin(&mut futures, &client.lock(NAME).wait_forever(), 1);
        eventually_queued(&server, 1);
        assert!(crew() > 0);
        client.close().unwrap();
        eventually(ms(200), || crew() == 0);
        drop(held);
    });
}

fn c10_futures_and_threads_have_their_turns_in_the_order_of_coming(fresh: fn() -> Store) {
    let server = fresh();
    let (holder, client) = (open(&server.url()), open(&server.url()));
    let held = holder.lock(NAME).acquire().unwrap();
    let lock = client.lock(NAME).wait(LIMIT);
    let (mut futures, asked) = (Futures::default(), now());
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for _ in 0..4 {
            begin(&mut futures, &lock, 2);
            threads.push(in_line(scope, lock.clone(), ms(1)));
        }
        held.release().unwrap();
        let mut turns = Vec::new();
        for round in 0..4 {
            for which in 0..2 {
                let (number, lease) = futures.next(LIMIT);
                assert_eq!(number, 2 * round + which);
                let lease = lease.unwrap();
                turns.push(Hold::at(asked, now(), lease.fence()));
                lease.release().unwrap();
            }
            turns.push(threads.remove(0).join().unwrap());
        }
        assert!(turns.is_sorted_by_key(|turn| turn.fence), "{turns:?}");
        judge(turns);
    });
    eventually_queued(&server, 0);
    server.assert_all_ends();
}

fn took(act: impl FnOnce()) -> Duration {
    let start = now();
    act();
    now() - start
}

fn c10_a_future_that_is_dropped_lets_the_next_one_pass_at_once(fresh: fn() -> Store) {
    unless_starved(STALL, || {
        let server = fresh();
        let [holder, client, other] = [(); 3].map(|()| open(&server.url()));
        let held = holder.lock(NAME).acquire().unwrap();
        let mut futures = Futures::default();
        begin(&mut futures, &client.lock(NAME).wait(LIMIT), 1);
        eventually_queued(&server, 1);
        std::thread::scope(|scope| {
            let next = in_line(scope, other.lock(NAME).wait(LIMIT), ms(0));
            // While it waits: nobody else of its process is there to take its place.
            futures.stop(0);
            eventually_queued(&server, 1);
            held.release().unwrap();
            let took = took(|| _ = next.join().unwrap());
            assert!(took < ms(100), "{took:?}");
        });
        // When it has the lock, and nobody has asked it yet.
        begin(&mut futures, &client.lock(NAME).wait(LIMIT), 1);
        assert_eq!(futures.woken(LIMIT), 1);
        std::thread::scope(|scope| {
            let next = in_line(scope, other.lock(NAME).wait(LIMIT), ms(0));
            futures.stop(1);
            let took = took(|| _ = next.join().unwrap());
            assert!(took < ms(100), "{took:?}");
        });
        eventually_queued(&server, 0);
    });
}

/// A server that answers nothing about some names, each of which keeps a thread busy.
fn silent_about(text: &str) -> (Server, Proxy, Client) {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    let client = client(config(&proxy.url()).io_timeout(ms(300)));
    // It has answered once, so that waits outlast what follows.
    client.lock("first").acquire().unwrap().release().unwrap();
    proxy.set_only(text.as_bytes(), Mode::SwallowReplies);
    (server, proxy, client)
}

#[test]
fn c7_futures_end_in_time_however_many_are_not_answered() {
    unless_starved(STALL, || {
        let (_server, _proxy, client) = silent_about("mute");
        let mut futures = Futures::default();
        let (start, wait) = (now(), secs(2));
        for index in 0..200 {
            begin(&mut futures, &client.lock(format!("mute {index}")).wait(wait), 1);
        }
        for _ in 0..200 {
            let (number, lease) = futures.next(LIMIT);
            let took = now() - start;
            assert!(lease.is_err());
            // The requests of a crew's threads under way, and none for those that had no turn.
            assert!(took < wait + ms(600), "future {number}: {took:?}");
        }
        client.close().unwrap();
    });
}

#[test]
fn futures_go_on_beside_those_that_are_not_answered() {
    unless_starved(STALL, || {
        let (_server, _proxy, client) = silent_about("mute");
        let mut futures = Futures::default();
        for index in 0..20 {
            begin(&mut futures, &client.lock(format!("mute {index}")).wait_forever(), 1);
        }
        // Each of them has asked once.
        eventually(LIMIT, || client.counters().unknown >= 20);
        let start = now();
        for index in 0..50 {
            begin(&mut futures, &client.lock(format!("well {index}")).wait(LIMIT), 1);
        }
        for _ in 0..50 {
            let (number, lease) = futures.next(LIMIT);
            assert!(number >= 20);
            drop(lease.unwrap());
        }
        let took = now() - start;
        println!("beside those that are not answered: {took:?}");
        assert!(took < secs(2), "{took:?}");
        client.close().unwrap();
    });
}

#[test]
fn a_future_outlasts_a_lost_reply() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    let client = open(&proxy.url());
    client.lock("first").acquire().unwrap().release().unwrap();
    proxy.set(Mode::LoseReply(End::Reset));
    // One that spins asks for the lock before anything else.
    let lock = client.lock(NAME).wait_mode(WaitMode::Spin(Backoff::default()));
    let lease = block_on(lock.acquire_async(), LIMIT).unwrap();
    assert_eq!(proxy.mode(), Mode::Pass, "the reply was lost");
    lease.release().unwrap();
}
