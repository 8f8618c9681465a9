//! Waiting for a lock: bounded, prompt, interruptible, and never for oneself.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::stores::{LIMIT, STALL, Store, in_time_on_each_store, ms, on_each_store, open, secs};
use kit::{Mode, Proxy, Server, Stopwatch, eventually, unless_starved};
use leasehold::limits::MAX_TTL;
use leasehold::{Backoff, Client, Config, ErrorKind, Lease, Lock, WaitMode};

on_each_store!(
    a_wait_of_zero_is_one_try,
    a_check_that_panics_leaves_nothing_behind,
    a_wait_without_limit_goes_on,
    what_can_never_work_is_refused,
    c1_many_waiters_all_get_their_turn,
);

in_time_on_each_store!(
    c7_a_wait_ends_by_its_time_and_not_before,
    a_wait_gets_the_lock_when_it_is_released,
    a_wait_gets_the_lock_when_the_holders_ttl_ends,
    a_check_runs_on_the_waiting_thread_and_ends_the_wait,
    a_thread_that_would_wait_for_itself_for_ever_is_refused,
    a_wait_ends_after_its_attempts,
    c10_a_wait_longer_than_io_timeout_runs_out_in_a_timeout,
);

fn kind<T>(result: Result<T, leasehold::Error>) -> ErrorKind {
    result.err().expect("an error").kind()
}

/// A lease that stays for as long as the test wants.
fn taken(client: &Client) -> Lease {
    client.lock("n").try_acquire().unwrap().expect("the lock is free")
}

fn c7_a_wait_ends_by_its_time_and_not_before(store: &Store) {
    let (one, two) = (store.client(), store.client());
    let _held = taken(&one);
    for wait in [ms(1), ms(80), ms(500)] {
        let watch = Stopwatch::start();
        assert_eq!(kind(two.lock("n").acquire_within(wait)), ErrorKind::Timeout);
        watch.assert_at_least(wait);
        watch.assert_at_most(wait, ms(50));
    }
    // Set on the lock it is the same, and whether the pauses are long makes no difference.
    let slow = WaitMode::Spin(Backoff::default().first(secs(10)).longest(secs(10)));
    let watch = Stopwatch::start();
    assert_eq!(kind(two.lock("n").wait(ms(300)).wait_mode(slow).acquire()), ErrorKind::Timeout);
    watch.assert_at_least(ms(300));
    watch.assert_at_most(ms(300), ms(50));
}

/// The last try has less than the io_timeout left; that is no trouble of the store's.
fn c10_a_wait_longer_than_io_timeout_runs_out_in_a_timeout(store: &Store) {
    let _held = taken(&store.client());
    // Longer than a busy machine takes for a request.
    let config = Config::from_url(&store.url()).unwrap().io_timeout(ms(400));
    let client = Client::with_config(config).unwrap();
    for wait in [ms(400), ms(401), ms(450), ms(900)].repeat(2) {
        assert_eq!(kind(client.lock("n").acquire_within(wait)), ErrorKind::Timeout, "{wait:?}");
    }
}

fn a_wait_of_zero_is_one_try(store: &Store) {
    let (one, two) = (store.client(), store.client());
    let held = taken(&one);
    assert_eq!(kind(two.lock("n").wait(Duration::ZERO).acquire()), ErrorKind::Timeout);
    assert_eq!((two.counters().attempts, two.counters().timed_out), (1, 1));
    held.release().unwrap();
    two.lock("n").wait(Duration::ZERO).acquire().unwrap().release().unwrap();
}

/// When a waiter that has begun to wait gets the lock.
fn gets(lock: Lock, client: &Client, meanwhile: impl FnOnce()) -> Instant {
    std::thread::scope(|scope| {
        let busy = client.counters().busy;
        let waiter = scope.spawn(move || {
            let lease = lock.acquire().unwrap();
            let got = Instant::now();
            lease.release().unwrap();
            got
        });
        eventually(LIMIT, || client.counters().busy > busy);
        meanwhile();
        waiter.join().unwrap()
    })
}

fn a_wait_gets_the_lock_when_it_is_released(store: &Store) {
    let (one, two) = (store.client(), store.client());
    let held = taken(&one);
    let mut released = None;
    let got = gets(two.lock("n"), &two, || {
        std::thread::sleep(ms(300));
        assert!(held.is_valid());
        released = Some(Instant::now());
        held.release().unwrap();
    });
    // Its pauses are 64 ms at most on one store, and not much longer on the other.
    assert!(got > released.unwrap() && got < released.unwrap() + ms(400));
}

fn a_wait_gets_the_lock_when_the_holders_ttl_ends(store: &Store) {
    let (one, two) = (store.client(), store.client());
    // Its pauses alone would make it come seconds too late.
    let slow = WaitMode::Spin(Backoff::default().first(secs(10)).longest(secs(10)));
    for mode in [slow, WaitMode::Auto] {
        let mut late = Vec::new();
        for _ in 0..3 {
            let asked = Instant::now();
            let held = one.lock("n").ttl(ms(300)).renew(false).acquire().unwrap();
            let taken = Instant::now();
            held.let_expire().unwrap();
            let got = gets(two.lock("n").wait_mode(mode), &two, || ());
            assert!(got >= asked + ms(290), "the holder's time is its own");
            late.push(got.saturating_duration_since(taken + ms(300)));
        }
        // One may have been unlucky with the machine.
        late.sort();
        assert!(late[1] < ms(50), "{mode:?}: {late:?}");
    }
}

fn asking(most: u32) -> WaitMode {
    WaitMode::Spin(Backoff::default().attempts(most))
}

fn a_wait_ends_after_its_attempts(store: &Store) {
    let (one, two) = (store.client(), store.client());
    let _held = taken(&one);
    for most in [1, 2, 5] {
        let before = two.counters();
        assert_eq!(kind(two.lock("n").wait_mode(asking(most)).acquire()), ErrorKind::Timeout);
        assert_eq!(two.counters().attempts - before.attempts, u64::from(most));
        assert_eq!(
            kind(two.lock("n").wait_forever().wait_mode(asking(most)).acquire()),
            ErrorKind::Timeout
        );
    }
    // Whichever comes first.
    let watch = Stopwatch::start();
    let lock = two.lock("n").wait_mode(asking(1_000_000)).wait(ms(50));
    assert_eq!(kind(lock.acquire()), ErrorKind::Timeout);
    watch.assert_at_most(ms(50), ms(50));
}

fn a_check_runs_on_the_waiting_thread_and_ends_the_wait(store: &Store) {
    let (one, two) = (store.client(), store.client());
    let _held = taken(&one);
    let me = std::thread::current().id();
    let (mut asked, start) = (Vec::new(), Stopwatch::start());
    let stop = || {
        assert_eq!(std::thread::current().id(), me);
        asked.push(start.elapsed());
        asked.len() == 6
    };
    assert_eq!(kind(two.lock("n").wait_forever().acquire_unless(stop)), ErrorKind::Interrupted);
    start.assert_at_least(ms(450));
    start.assert_at_most(ms(500), ms(250));

    // A lock that is free needs no check.
    let free = two.lock("free").acquire_unless(|| panic!("nobody waits"));
    free.unwrap().release().unwrap();
}

fn a_check_that_panics_leaves_nothing_behind(store: &Store) {
    let (one, two) = (store.client(), store.client());
    let held = taken(&one);
    let wait = || two.lock("n").acquire_unless(|| panic!("on purpose"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(wait)).is_err());
    held.release().unwrap();
    // Its place among the waiters is given up in the background, where there are places.
    two.lock("n").acquire().unwrap().release().unwrap();
    taken(&one).release().unwrap();
}

fn a_thread_that_would_wait_for_itself_for_ever_is_refused(store: &Store) {
    let client = store.client();
    let held = taken(&client);
    let lock = client.lock("n");
    let forever = lock.clone().wait_forever();
    let watch = Stopwatch::start();
    assert_eq!(kind(forever.acquire()), ErrorKind::WouldDeadlock);
    watch.assert_at_most(Duration::ZERO, ms(500));
    assert!(held.is_valid());
    assert_eq!(kind(forever.acquire_unless(|| false)), ErrorKind::WouldDeadlock);

    // Another client of the same store is as much in its way, and another name is not.
    let another = store.client();
    let said = another.lock("n").wait_forever().acquire().unwrap_err();
    assert_eq!(said.kind(), ErrorKind::WouldDeadlock);
    let text = format!(", with fence {}", held.fence());
    assert!(
        said.to_string().contains("held by this very thread since ")
            && said.to_string().contains(&text),
        "{said}"
    );
    let elsewhere = Config::from_url(&store.url()).unwrap().prefix("elsewhere:");
    let elsewhere = Client::with_config(elsewhere.io_timeout(secs(10))).unwrap();
    std::thread::scope(|scope| {
        let _theirs = scope.spawn(|| taken(&elsewhere)).join().unwrap();
        let waits = elsewhere.lock("n").wait_forever();
        assert_eq!(kind(waits.acquire_unless(|| true)), ErrorKind::Interrupted);
    });

    // With a limit of any kind it is an ordinary wait.
    assert_eq!(kind(lock.acquire_within(ms(20))), ErrorKind::Timeout);
    assert_eq!(kind(forever.clone().wait_mode(asking(2)).acquire()), ErrorKind::Timeout);

    // Another thread may release meanwhile, so that one may wait.
    std::thread::scope(|scope| {
        let busy = client.counters().busy;
        let waiter = scope.spawn(|| forever.acquire().unwrap());
        eventually(LIMIT, || client.counters().busy > busy);
        held.release().unwrap();
        waiter.join().unwrap().release().unwrap();
    });

    // Nor is a lease in the way that this thread has let go of.
    client.lock("n").ttl(ms(100)).acquire().unwrap().let_expire().unwrap();
    forever.acquire().unwrap().release().unwrap();
}

fn a_wait_without_limit_goes_on(store: &Store) {
    let (one, two) = (store.client(), store.client());
    let held = taken(&one);
    let (sender, got) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.send(two.lock("n").wait_forever().acquire()).unwrap());
        assert!(got.recv_timeout(secs(2)).is_err(), "it waits");
        held.release().unwrap();
        got.recv_timeout(LIMIT).unwrap().unwrap().release().unwrap();
    });
    assert_eq!(two.counters().timed_out, 0);
}

fn what_can_never_work_is_refused(store: &Store) {
    let client = store.client();
    let lock = client.lock("n");
    for backoff in [Backoff::default().first(ms(0)), Backoff::default().longest(ms(0))] {
        assert_eq!(
            kind(lock.clone().wait_mode(WaitMode::Spin(backoff)).acquire()),
            ErrorKind::BadArgument
        );
        assert_eq!(
            kind(lock.clone().wait_mode(WaitMode::Spin(backoff)).try_acquire()),
            ErrorKind::BadArgument
        );
    }
    assert_eq!(kind(lock.clone().wait_mode(asking(0)).acquire()), ErrorKind::BadArgument);
    for ttl in [Duration::ZERO, Duration::from_micros(999), ms(2), MAX_TTL + ms(1), Duration::MAX] {
        assert_eq!(kind(lock.clone().ttl(ttl).acquire()), ErrorKind::BadArgument);
        assert_eq!(kind(lock.clone().ttl(ttl).try_acquire()), ErrorKind::BadArgument);
    }
    assert_eq!(client.counters().attempts, 0);
    // The largest that work.
    let most = WaitMode::Spin(Backoff::default().first(Duration::MAX).longest(Duration::MAX));
    let lease =
        lock.ttl(store.longest_ttl()).wait(Duration::MAX).wait_mode(most).acquire().unwrap();
    lease.release().unwrap();
}

fn c1_many_waiters_all_get_their_turn(store: &Store) {
    let clients = [store.client(), store.client()];
    std::thread::scope(|scope| {
        for index in 0..24 {
            let client = &clients[index % 2];
            scope.spawn(move || {
                let lease = client.lock("n").wait(LIMIT).acquire().unwrap();
                assert!(lease.is_valid());
                std::thread::sleep(ms(5));
                lease.release().unwrap();
            });
        }
    });
    assert_eq!(clients.iter().map(|client| client.counters().granted).sum::<u64>(), 24);
}

#[test]
fn a_try_is_one_command_and_a_cycle_exactly_two() {
    let server = Server::start();
    // What the keeper asks beside it may need a connection more, on which it asks for a marker first.
    let client = open(&format!("{}?register=no&advise=no", server.url()));
    // The server learns the scripts, and one connection is made.
    client.lock("n").acquire().unwrap().release().unwrap();
    let mut watch = server.watch();
    let held = client.lock("n").acquire().unwrap();
    assert_eq!(watch.count(), 1);
    for _ in 0..10 {
        assert!(client.lock("n").try_acquire().unwrap().is_none());
    }
    assert_eq!(watch.count(), 10);
    held.release().unwrap();
    assert_eq!(watch.count(), 1);
    for _ in 0..50 {
        client.lock("n").acquire().unwrap().release().unwrap();
        drop(client.lock("n").try_acquire().unwrap().unwrap());
    }
    let mut sent = watch.client_commands();
    // The last release is not waited for.
    eventually(LIMIT, || {
        sent.extend(watch.client_commands());
        sent.len() >= 200
    });
    let is_other = |(at, command): &(usize, &String)| {
        !command.starts_with("EVALSHA ") || sent[..*at].contains(command)
    };
    let others: Vec<_> = sent.iter().enumerate().filter(is_other).collect();
    assert!(others.is_empty() && sent.len() == 200, "{} were sent: {others:?}", sent.len());
}

#[test]
fn a_wait_that_spins_asks_less_and_less_often() {
    unless_starved(STALL, || {
        let server = Server::start();
        let client = open(&server.url());
        let _held = client.lock("n").acquire().unwrap();
        let before = client.counters().attempts;
        let spin = client.lock("n").wait_mode(WaitMode::Spin(Backoff::default()));
        assert_eq!(kind(spin.acquire_within(secs(1))), ErrorKind::Timeout);
        let asked = client.counters().attempts - before;
        // Four at once, then pauses of up to 1, 2, 4 ms and so on to 64 ms: about 10 and 30 more.
        assert!((12..100).contains(&asked), "{asked}");
        let brief = Backoff::default().first(ms(1)).longest(ms(2));
        let lock = spin.wait_mode(WaitMode::Spin(brief));
        let before = client.counters().attempts;
        assert_eq!(kind(lock.acquire_within(secs(1))), ErrorKind::Timeout);
        let often = client.counters().attempts - before;
        assert!(often > asked * 2, "{often} against {asked}");
    });
}

/// The name is another program's, who tells nobody, so that it is asked for again and again.
#[test]
fn c7_a_wait_that_hardly_pauses_ends_by_its_time_and_by_its_check() {
    unless_starved(STALL, || {
        let server = Server::start();
        let client = open(&server.url());
        server.cmd(&["SET", "n", "another's", "NX", "PX", "5000"]);
        let shortest = Duration::from_nanos(1);
        let hasty = Backoff::default().first(shortest).longest(shortest);
        let lock = client.lock("n").wait_mode(WaitMode::Spin(hasty));
        let watch = Stopwatch::start();
        assert_eq!(kind(lock.acquire_within(ms(300))), ErrorKind::Timeout);
        watch.assert_at_least(ms(300));
        watch.assert_at_most(ms(300), ms(50));
        let mut asked = 0;
        let third = || {
            asked += 1;
            asked == 3
        };
        assert_eq!(kind(lock.wait(LIMIT).acquire_unless(third)), ErrorKind::Interrupted);
        // What was not sent is not owed for a ttl.
        let gives = server.calls("evalsha");
        std::thread::sleep(ms(200));
        assert!(server.calls("evalsha") <= gives + 2);
    });
}

#[test]
fn a_last_try_that_the_limit_cuts_short_is_a_timeout_all_the_same() {
    unless_starved(STALL, || {
        let server = Server::start();
        let mut proxy = Proxy::start(server.port());
        let _held = open(&server.url()).lock("n").acquire().unwrap();
        let client = Client::open(&proxy.url()).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| kind(client.lock("n").acquire_within(ms(1500))));
            std::thread::sleep(ms(900));
            proxy.set(Mode::SwallowReplies);
            assert_eq!(waiter.join().unwrap(), ErrorKind::Timeout);
        });
        assert_eq!(client.counters().timed_out, 1);
    });
}

#[test]
fn c13_an_error_names_the_lock_and_whose_bound_was_broken() {
    unless_starved(STALL, || {
        let server = Server::start();
        let client = open(&server.url());
        let lock = client.lock("stock:17").io_timeout(ms(200));
        let _lease = lock.acquire().unwrap();
        // Too short for a look at who has it.
        let said = lock.clone().wait(ms(40)).acquire().unwrap_err().to_string();
        let start = "the lock was held for the whole wait: 'stock:17', held by an unknown holder, not \
                     free within wait, 40 ms, asked ";
        assert!(said.starts_with(start), "{said}");
        let said = lock.clone().wait_mode(asking(2)).acquire().unwrap_err().to_string();
        assert!(
            said.contains("'stock:17', held by this very thread, not free within 2 attempts"),
            "{said}"
        );
        // Else what it sends next would have to connect first.
        client.ping().unwrap();
        server.stop();
        let sent = lock.try_acquire().unwrap_err().to_string();
        let client = Client::open(&server.url()).unwrap();
        let unsent =
            client.lock("stock:17").io_timeout(ms(200)).try_acquire().unwrap_err().to_string();
        server.cont();
        let start = "the outcome is unknown: 'stock:17', whether the lock was taken (the store did not \
                     answer in time: within io_timeout, 200 ms, the reply: ";
        assert!(sent.starts_with(start), "{sent}");
        let start = "the store did not answer in time: 'stock:17', within io_timeout, 200 ms, the server at ";
        assert!(unsent.starts_with(start), "{unsent}");
    });
}
