//! Ends are clean: of a client, of its last handle, of a process.

use std::fs;
use std::time::Duration;

use crate::stores::{
    LIMIT, Store, eventually_free, holder, in_time_on_each_store, ms, on_each_store, open, secs,
};
use kit::{Child, Mode, Proxy, Server, Stopwatch, child, eventually};
use leasehold::{Client, ErrorKind};

on_each_store!(
    c14_close_ends_and_releases_every_lease,
    c14_every_call_after_close_says_closed,
    c14_closing_ends_the_keepers_thread,
    c14_a_process_that_just_ends_leaves_its_locks_to_their_ttl,
    c14_many_threads_may_close_at_once,
    c14_no_lease_comes_out_of_a_client_that_closes,
);

in_time_on_each_store!(
    c14_close_wakes_waiters,
    c14_whoever_waits_behind_a_client_that_closes_is_not_held_up,
);

fn kind<T>(result: Result<T, leasehold::Error>) -> ErrorKind {
    result.err().expect("an error").kind()
}

fn c14_close_ends_and_releases_every_lease(store: &Store) {
    let (client, onlooker) = (store.client(), store.client());
    let leases: Vec<_> =
        (0..300).map(|index| client.lock(format!("n:{index}")).acquire().unwrap()).collect();
    client.close_within(LIMIT).unwrap();
    assert!(leases.iter().all(|lease| !lease.is_valid()));
    for index in 0..300 {
        assert!(holder(&onlooker, format!("n:{index}")).is_none());
    }
    // Those that are dropped later take nothing from the next holder.
    let later = onlooker.lock("n:7").acquire().unwrap();
    drop(leases);
    assert_eq!(holder(&onlooker, "n:7").unwrap().fence, Some(later.fence()));
    assert_eq!((client.counters().lost, client.counters().released_late), (0, 0));
}

fn c14_every_call_after_close_says_closed(store: &Store) {
    let client = store.client();
    let (lock, clone) = (client.lock("n"), client.clone());
    let lease = lock.acquire().unwrap();
    client.close().unwrap();
    client.close().unwrap();
    clone.close_within(Duration::ZERO).unwrap();
    assert_eq!(kind(lock.try_acquire()), ErrorKind::Closed);
    assert_eq!(kind(lock.acquire()), ErrorKind::Closed);
    assert_eq!(kind(clone.lock("m").acquire_within(ms(1))), ErrorKind::Closed);
    assert_eq!(kind(lock.inspect()), ErrorKind::Closed);
    assert_eq!(kind(lock.attach(lease.token(), lease.fence())), ErrorKind::Closed);
    assert_eq!(kind(client.ping()), ErrorKind::Closed);
    assert_eq!(kind(client.events()), ErrorKind::Closed);
    assert_eq!(kind(lease.extend()), ErrorKind::Closed);
    assert_eq!(kind(lease.release()), ErrorKind::Closed);
    assert_eq!(clone.counters().granted, 1, "what was counted stays");
}

fn c14_close_wakes_waiters(store: &Store) {
    let (one, two) = (store.client(), store.client());
    let _held = one.lock("n").acquire().unwrap();
    std::thread::scope(|scope| {
        let wait = |index: u64| {
            let lock = two.lock("n").wait_forever();
            let result = if index == 0 { lock.acquire_unless(|| false) } else { lock.acquire() };
            kind(result)
        };
        let waiters: Vec<_> = (0..4).map(|index| scope.spawn(move || wait(index))).collect();
        eventually(LIMIT, || two.counters().busy >= 2);
        let watch = Stopwatch::start();
        two.close().unwrap();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), ErrorKind::Closed);
        }
        watch.assert_at_most(ms(200), Duration::ZERO);
    });
}

/// Behind a waiter that is taken for dead only after half a second.
fn c14_whoever_waits_behind_a_client_that_closes_is_not_held_up(store: &Store) {
    let (one, two, three) = (store.client(), store.client(), store.client());
    let held = one.lock("n").acquire().unwrap();
    std::thread::scope(|scope| {
        let ahead: Vec<_> = (0..4).map(|_| scope.spawn(|| two.lock("n").acquire())).collect();
        eventually(LIMIT, || two.counters().busy >= 2);
        let behind = scope.spawn(|| three.lock("n").acquire().unwrap());
        eventually(LIMIT, || three.counters().busy >= 2);
        two.close().unwrap();
        for waiter in ahead {
            assert_eq!(kind(waiter.join().unwrap()), ErrorKind::Closed);
        }
        let watch = Stopwatch::start();
        held.release().unwrap();
        behind.join().unwrap().release().unwrap();
        watch.assert_at_most(ms(150), Duration::ZERO);
    });
}

fn c14_many_threads_may_close_at_once(store: &Store) {
    let (client, onlooker) = (store.client(), store.client());
    let _lease = client.lock("n").acquire().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                client.close_within(LIMIT).unwrap();
                assert!(holder(&onlooker, "n").is_none(), "each returns when all is done");
            });
        }
    });
}

fn c14_no_lease_comes_out_of_a_client_that_closes(store: &Store) {
    let onlooker = store.client();
    for round in 0..15u64 {
        let client = store.client();
        std::thread::scope(|scope| {
            for index in 0..3 {
                let client = &client;
                scope.spawn(move || {
                    let lock = client.lock(format!("n:{index}")).ttl(secs(60));
                    loop {
                        match lock.acquire() {
                            Ok(lease) => drop(lease.release()),
                            Err(error) => break assert_eq!(error.kind(), ErrorKind::Closed),
                        }
                    }
                });
            }
            eventually(LIMIT, || client.counters().granted > 3);
            std::thread::sleep(Duration::from_micros(round * 150));
            client.close_within(LIMIT).unwrap();
        });
        // Far within the ttl of a lease that nobody gave.
        (0..3).for_each(|index| eventually_free(&onlooker, &format!("n:{index}")));
    }
}

/// The names of this process's threads that are the library's.
fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    // One may end while it is being looked at.
    let name = |task: std::io::Result<fs::DirEntry>| {
        fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    let names = tasks.filter_map(name).map(|name| name.trim().to_owned());
    names.filter(|name| name.starts_with("leasehold")).collect()
}

/// Alone in its process, so that the threads are its own.
fn closer(args: &[String]) {
    let keepers = || threads().iter().filter(|name| *name == "leasehold").count();
    assert_eq!(keepers(), 0);
    let client = open(&args[0]);
    let lease = client.lock("n").acquire().unwrap();
    eventually(LIMIT, || keepers() == 1);
    client.close().unwrap();
    assert_eq!(keepers(), 0, "joined before close returned");
    drop(lease);
    drop(client);

    let client = open(&args[0]);
    let (clone, lease) = (client.clone(), client.lock("n").acquire().unwrap());
    drop(client);
    drop(clone);
    // A thread names itself, a moment after it has begun.
    eventually(LIMIT, || keepers() == 1);
    assert!(lease.is_valid());
    drop(lease);
    eventually(LIMIT, || threads().is_empty());
    child::say("done");
}

fn c14_closing_ends_the_keepers_thread(store: &Store) {
    let mut closer = Child::start("closer", &[&store.url()]);
    assert!(closer.wait(LIMIT).success());
    assert_eq!(closer.rest(LIMIT), ["done"]);
    assert!(holder(&store.client(), "n").is_none());
}

/// Ends without a word to anybody while it holds, waits and reads events.
fn quitter(args: &[String]) {
    let client = open(&args[0]);
    let events = client.events().unwrap();
    let lease = client.lock("n").ttl(secs(5)).acquire().unwrap();
    std::thread::spawn(move || events.next());
    let lock = client.lock("n").wait_forever();
    std::thread::spawn(move || lock.acquire());
    eventually(LIMIT, || client.counters().busy >= 2);
    child::say(&lease.fence().to_string());
    std::process::exit(7);
}

fn c14_a_process_that_just_ends_leaves_its_locks_to_their_ttl(store: &Store) {
    let client = store.client();
    let mut quitter = Child::start("quitter", &[&store.url()]);
    let fence = quitter.line(LIMIT).parse().unwrap();
    assert_eq!(quitter.wait(LIMIT).code(), Some(7));
    let left = holder(&client, "n").expect("its ttl has not run out");
    assert_eq!(left.fence, Some(fence));
    assert!(left.ttl <= secs(5));
    let next = client.lock("n").acquire().unwrap();
    assert!(next.fence() > fence);
}

pub(crate) const ROLES: kit::child::Roles = &[("closer", closer), ("quitter", quitter)];

#[test]
fn c14_dropping_the_last_handle_sends_nothing() {
    let server = Server::start();
    let client = open(&server.url());
    client.lock("n").acquire().unwrap().let_expire().unwrap();
    client.lock("m").acquire().unwrap().release().unwrap();
    let events = client.events().unwrap();
    let mut watch = server.watch();
    drop(client);
    assert_eq!(kind(events.next()), ErrorKind::Closed, "the keeper has ended");
    assert_eq!(watch.client_commands(), [""; 0]);
    assert!(holder(&open(&server.url()), "n").is_some(), "what was let expire stays");
}

#[test]
fn c14_close_returns_in_time_from_a_server_that_is_silent() {
    let server = Server::start();
    let client = Client::open(&format!("{}?close_timeout=300ms", server.url())).unwrap();
    let lease = client.lock("n").acquire().unwrap();
    server.stop();
    let watch = Stopwatch::start();
    client.close().unwrap();
    watch.assert_at_most(ms(300), ms(250));
    assert!(!lease.is_valid());
    server.cont();
}

#[test]
fn c13_an_extension_that_is_under_way_while_its_client_closes_says_closed() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    let client = open(&server.url_through(proxy.port()));
    let lease = client.lock("n").acquire().unwrap();
    let sent = proxy.request_bytes();
    proxy.set(Mode::DelayReplies(ms(300)));
    std::thread::scope(|scope| {
        let extend = scope.spawn(|| lease.extend());
        eventually(LIMIT, || proxy.request_bytes() > sent);
        client.close().unwrap();
        assert_eq!(kind(extend.join().unwrap()), ErrorKind::Closed);
    });
    assert_eq!(client.counters().lost, 0);
}

/// A lease that the keeper has not heard of yet: it is in its book from the first extension on.
#[test]
fn c14_a_lease_attached_while_its_client_closes_is_not_valid_afterwards() {
    let server = Server::start();
    let other = open(&server.url());
    for round in 0..40u64 {
        let name = format!("n:{round}");
        let (token, fence) = other.lock(&name).acquire().unwrap().detach().unwrap();
        let client = open(&server.url());
        client.ping().unwrap();
        let lease = client.lock(&name).attach(token, fence).unwrap();
        std::thread::scope(|scope| {
            let extend = scope.spawn(|| lease.extend());
            std::thread::sleep(Duration::from_micros(round * 20));
            client.close().unwrap();
            let extended = extend.join().unwrap();
            assert!(extended.is_ok() || kind(extended) != ErrorKind::BadArgument);
        });
        assert!(!lease.is_valid(), "round {round}");
    }
}
