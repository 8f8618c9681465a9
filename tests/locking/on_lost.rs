//! What a program has called when one of its leases is lost.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::stores::{LIMIT, Store, ms, on_each_store, open, secs};
use kit::futures::block_on;
use kit::{Dice, Server, eventually};
use leasehold::{Client, ErrorKind, Event, EventKind, Lease, LossReason};

on_each_store!(
    c9_what_a_lease_has_registered_is_called_for_it_alone_and_once,
    c9_a_lease_that_was_lost_before_calls_at_once,
    c9_no_loss_falls_between_being_told_and_registering,
    c9_what_is_called_takes_its_time_and_nothing_is_renewed_later,
    c14_what_is_called_may_take_locks_and_close_the_client,
    c9_a_future_of_a_loss_ends_as_its_lease_does,
);

#[cfg(feature = "testing")]
crate::stores::in_time_on!(
    around_renewals_on_memory,
    memory,
    c9_no_release_around_a_renewal_is_told_as_a_loss
);
crate::stores::in_time_on!(
    around_renewals_on_redis,
    redis,
    c9_no_release_around_a_renewal_is_told_as_a_loss
);

/// A lease that is about to be lost, by its short ttl.
fn lose(client: &Client, name: &str) -> Lease {
    client.lock(name).ttl(ms(60)).acquire_within(LIMIT).unwrap()
}

fn tell(told: &Sender<Event>) -> impl FnOnce(Event) + Send + 'static {
    let told = told.clone();
    move |event| told.send(event).unwrap()
}

fn next(told: &Receiver<Event>) -> Event {
    told.recv_timeout(LIMIT).expect("it is called")
}

fn c9_a_future_of_a_loss_ends_as_its_lease_does(store: &Store) {
    let client = store.client();
    let take = |name| client.lock(name).acquire().unwrap();
    let lost = lose(&client, "lost");
    let event = block_on(lost.losing().unwrap(), LIMIT).unwrap();
    assert_eq!((&*event.name, event.fence), (&b"lost"[..], lost.fence()));
    assert!(matches!(event.kind, EventKind::Lost(_)));
    assert!(block_on(lost.losing().unwrap(), LIMIT).is_some(), "it was lost before");

    let [released, dropped, detached, replaced] = ["a", "b", "c", "d"].map(take);
    let futures = [&released, &dropped, &detached, &replaced].map(|lease| lease.losing().unwrap());
    let ends = std::thread::scope(|scope| {
        // Waited for by then, or not: both end.
        let ends = futures.map(|future| scope.spawn(|| block_on(future, LIMIT)));
        released.release().unwrap();
        drop(dropped);
        detached.detach().unwrap();
        let later = replaced.losing().unwrap();
        let ends = ends.map(|end| end.join().unwrap());
        drop(replaced.losing().unwrap());
        assert_eq!(block_on(later, LIMIT), None);
        ends
    });
    assert_eq!(ends, [None, None, None, None]);

    let held = take("e");
    let with_its_client = held.losing().unwrap();
    client.close().unwrap();
    assert_eq!(block_on(with_its_client, LIMIT), None);
}

fn c9_what_a_lease_has_registered_is_called_for_it_alone_and_once(store: &Store) {
    let client = store.client();
    let (sender, told) = channel();
    let (wrong, never) = channel();
    let leases = ["kept", "dropped", "released", "left", "detached"];
    let leases = leases.map(|name| client.lock(name).acquire().unwrap());
    let (replaced, taken_back) = (lose(&client, "replaced"), lose(&client, "taken back"));
    let registered = Arc::new(());
    for lease in leases.iter().chain([&replaced, &taken_back]) {
        let (registered, wrong) = (Arc::clone(&registered), tell(&wrong));
        lease.on_lost(move |event| drop((wrong(event), registered))).unwrap();
    }
    replaced.on_lost(tell(&sender)).unwrap();
    taken_back.forget_on_lost();
    let [kept, dropped, released, left, detached] = leases;
    drop(dropped);
    released.release().unwrap();
    left.let_expire().unwrap();
    detached.detach().unwrap();
    assert_eq!(Arc::strong_count(&registered), 2, "all but that of one lease are forgotten");

    let event = next(&told);
    assert_eq!(event.kind, EventKind::Lost(LossReason::Expired));
    assert_eq!((&*event.name, event.fence), (&b"replaced"[..], replaced.fence()));
    assert!(!replaced.is_valid());
    eventually(LIMIT, || client.counters().lost == 2);
    assert!(kept.is_valid());
    client.close().unwrap();
    assert!(never.recv_timeout(ms(100)).is_err(), "closing is no loss");
    assert!(told.try_recv().is_err(), "it is called twice");
    assert_eq!(kept.on_lost(tell(&wrong)).unwrap_err().kind(), ErrorKind::Closed);
    kept.forget_on_lost();
    assert_eq!(Arc::strong_count(&registered), 1);
}

fn c9_a_lease_that_was_lost_before_calls_at_once(store: &Store) {
    let client = store.client();
    let (sender, told) = channel();
    let lease = lose(&client, "n");
    eventually(LIMIT, || client.counters().lost == 1);
    for _ in 0..2 {
        lease.on_lost(tell(&sender)).unwrap();
        let event = next(&told);
        assert_eq!(event.kind, EventKind::Lost(LossReason::Expired));
        assert_eq!((&*event.name, event.fence), (lease.name(), lease.fence()));
    }
    drop(lease);
    client.close().unwrap();
    assert!(told.recv_timeout(ms(100)).is_err());
}

/// Registered just before, while, and just after the loss is told.
fn c9_no_loss_falls_between_being_told_and_registering(store: &Store) {
    let client = store.client();
    for round in 0..60u64 {
        let lease = lose(&client, "n");
        std::thread::sleep(lease.remaining().saturating_sub(ms(6)));
        std::thread::sleep(Duration::from_micros(round % 30 * 200));
        let count = Arc::new(AtomicU32::new(0));
        let calls = Arc::clone(&count);
        lease
            .on_lost(move |_| {
                calls.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
        eventually(LIMIT, || count.load(Ordering::Relaxed) == 1);
        // It goes once it has been called.
        eventually(LIMIT, || Arc::strong_count(&count) == 1);
    }
}

fn c9_what_is_called_takes_its_time_and_nothing_is_renewed_later(store: &Store) {
    let client = store.client();
    let events = client.events().unwrap();
    let held = client.lock("held").ttl(ms(1500)).acquire().unwrap();
    let (go_on, wait) = channel::<()>();
    let (sender, told) = channel();
    let (slow, other) = (lose(&client, "slow"), lose(&client, "other"));
    let slows = sender.clone();
    slow.on_lost(move |event| {
        wait.recv().unwrap();
        slows.send(event).unwrap();
    })
    .unwrap();
    other.on_lost(tell(&sender)).unwrap();
    let losses = [(); 2].map(|()| events.next_within(LIMIT).unwrap().unwrap());
    assert!(losses.iter().all(|event| event.kind == EventKind::Lost(LossReason::Expired)));
    let renewed = client.counters().renewed;
    eventually(LIMIT, || client.counters().renewed >= renewed + 3);
    assert!(held.is_valid() && told.try_recv().is_err());
    // What waits to be called can be taken back, and what is being called ends nobody's release.
    assert_eq!(slow.release().unwrap_err().kind(), ErrorKind::Lost);
    let third = lose(&client, "third");
    third.on_lost(tell(&sender)).unwrap();
    eventually(LIMIT, || client.counters().lost == 3);
    third.forget_on_lost();
    go_on.send(()).unwrap();
    let called = [(); 2].map(|()| next(&told).name.to_vec());
    assert_eq!(called, [b"slow".to_vec(), b"other".to_vec()]);
    drop(other);
    client.close().unwrap();
    assert!(told.recv_timeout(ms(100)).is_err(), "what was taken back is called");
}

fn c14_what_is_called_may_take_locks_and_close_the_client(store: &Store) {
    // On a busy machine, closing may take longer than it lasts by default.
    let client = Client::open(&format!("{}?close_timeout=20s", store.url())).unwrap();
    let other = store.client();
    let (give, taken) = channel::<Lease>();
    let (done, is_done) = channel();
    let lease = lose(&client, "n");
    lease
        .on_lost({
            let client = client.clone();
            move |_| {
                let lease = taken.recv().unwrap();
                assert_eq!(lease.release().unwrap_err().kind(), ErrorKind::Lost);
                let again = client.lock("n").ttl(secs(10)).acquire_within(LIMIT).unwrap();
                again.on_lost(|_| ()).unwrap();
                client.close().unwrap();
                done.send(client.ping().unwrap_err().kind()).unwrap();
            }
        })
        .unwrap();
    give.send(lease).unwrap();
    assert_eq!(is_done.recv_timeout(LIMIT).unwrap(), ErrorKind::Closed);
    // Closing there has given it back, as it always does.
    other.lock("n").acquire_within(secs(5)).unwrap().release().unwrap();
    client.close().unwrap();
}

#[test]
fn c9_a_panic_in_what_is_called_ends_nothing_else() {
    let server = Server::start();
    let client = open(&server.url());
    let (sender, told) = channel();
    let leases = ["a", "b", "c"].map(|name| client.lock(name).ttl(ms(600)).acquire().unwrap());
    leases[0].on_lost(|_| std::panic::panic_any(PanicsAgain)).unwrap();
    leases[1].on_lost(|_| panic!("of the program")).unwrap();
    leases[2].on_lost(tell(&sender)).unwrap();
    for lease in &leases {
        server.cmd(&["DEL", std::str::from_utf8(lease.name()).unwrap()]);
        eventually(LIMIT, || !lease.is_valid());
    }
    assert_eq!(next(&told).fence, leases[2].fence());
    client.lock("d").acquire().unwrap().release().unwrap();
}

struct PanicsAgain;

impl Drop for PanicsAgain {
    fn drop(&mut self) {
        panic!("what was panicked with");
    }
}

/// Name and fence do not tell them apart: two have attached the same lease, and one gets it.
#[test]
fn c9_a_loss_is_told_to_the_very_lease_that_was_lost() {
    let server = Server::start();
    let client = open(&server.url());
    let (token, fence) = client.lock("n").acquire().unwrap().detach().unwrap();
    let [winner, loser] = [(); 2].map(|()| client.lock("n").attach(token, fence).unwrap());
    winner.extend().unwrap();
    let (sender, told) = channel();
    let (wrong, never) = channel();
    winner.on_lost(tell(&wrong)).unwrap();
    loser.on_lost(tell(&sender)).unwrap();
    assert_eq!(loser.extend().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(next(&told).fence, fence);
    assert!(winner.is_valid() && never.try_recv().is_err());
    winner.release().unwrap();
}

/// A hundred thousand leases, each released from 40 ms before to 80 ms after the moment when it is due to be
/// renewed: nobody is told that one of them was lost, and each release says that it was held to the end.
fn c9_no_release_around_a_renewal_is_told_as_a_loss(store: &Store) {
    const THREADS: u64 = 4;
    let is_cheap = store.url().starts_with("memory:");
    let is_long = is_cheap || std::env::var_os("KIT_LONG").is_some();
    let (leases, ttl) = (if is_long { 100_000 } else { 20_000 }, secs(6));
    let client = store.client();
    let events = client.events().unwrap();
    let told = Arc::new(AtomicU32::new(0));
    let hold = |thread: u64| {
        let mut dice = Dice::new(thread);
        let mut held = VecDeque::new();
        let release_due = |held: &mut VecDeque<(Instant, Lease)>, is_last: bool| {
            while let Some((at, _)) = held.front() {
                let left = at.saturating_duration_since(Instant::now());
                if !left.is_zero() && !is_last {
                    return;
                }
                std::thread::sleep(left);
                let (_, lease) = held.pop_front().unwrap();
                lease.release().unwrap();
            }
        };
        for number in 0..leases / THREADS {
            let name = format!("{thread}:{number}");
            let lease = client.lock(&name).ttl(ttl).acquire().unwrap();
            lease.on_lost(tell_of(&told)).unwrap();
            let renewed = Instant::now() + ttl / 3;
            held.push_back((renewed + dice.ms_below(120) - ms(40), lease));
            release_due(&mut held, false);
        }
        release_due(&mut held, true);
    };
    std::thread::scope(|scope| {
        let hold = &hold;
        (0..THREADS).for_each(|thread| drop(scope.spawn(move || hold(thread))));
    });
    assert_eq!(told.load(Ordering::Relaxed), 0, "called for a lease that was released");
    assert_eq!((events.try_next().unwrap(), client.counters().lost), (None, 0));
    // Many were released before their renewal, and many after.
    let renewed = client.counters().renewed;
    assert!((leases / 20..leases * 2).contains(&renewed), "{renewed} renewals");
    println!("{leases} leases, {renewed} renewals");
    // What is counted would be seen.
    let lost = lose(&client, "lost");
    lost.on_lost(tell_of(&told)).unwrap();
    eventually(LIMIT, || told.load(Ordering::Relaxed) == 1);
    assert!(matches!(events.next_within(LIMIT).unwrap().unwrap().kind, EventKind::Lost(_)));
}

fn tell_of(told: &Arc<AtomicU32>) -> impl FnOnce(Event) + Send + 'static {
    let told = Arc::clone(told);
    move |_| {
        told.fetch_add(1, Ordering::Relaxed);
    }
}
