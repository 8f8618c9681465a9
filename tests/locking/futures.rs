//! Futures take a lock as threads do, on each store.

use std::time::Duration;

use crate::stores::{LIMIT, Store, eventually_free, holder, ms, on_each_store, secs};
use kit::Stopwatch;
use kit::futures::{Futures, block_on};
use leasehold::{Acquiring, ErrorKind, Lease, Lock};

on_each_store!(
    c1_c2_futures_and_threads_hold_one_after_the_other,
    c3_a_future_tries_once,
    c10_a_future_waits_for_so_long,
    c10_a_future_that_is_dropped_leaves_no_lock_behind,
    c13_a_future_refuses_what_can_never_work,
    c14_close_ends_futures,
    a_future_does_nothing_before_it_is_polled,
);

fn kind<T>(result: Result<T, leasehold::Error>) -> ErrorKind {
    result.err().expect("an error").kind()
}

/// Futures that have begun.
fn begin(futures: &mut Futures<Acquiring>, lock: &Lock, count: usize) {
    for _ in 0..count {
        let number = futures.add(lock.acquire_async());
        assert!(futures.poll(number).is_none(), "a poll does not wait for the store");
    }
}

fn c1_c2_futures_and_threads_hold_one_after_the_other(store: &Store) {
    let client = store.client();
    let lock = client.lock("n").wait(LIMIT * 2);
    let held = lock.acquire().unwrap();
    let last = std::sync::Mutex::new(held.fence());
    let hold = |lease: Lease| {
        let mut last = last.try_lock().expect("nobody else holds it");
        assert!(lease.is_valid() && lease.fence() > *last);
        *last = lease.fence();
        std::thread::sleep(ms(1));
        drop(last);
        lease.release().unwrap();
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..5).for_each(|_| hold(lock.acquire().unwrap())));
        }
        let mut futures = Futures::default();
        begin(&mut futures, &lock, 20);
        held.release().unwrap();
        (0..20).for_each(|_| hold(futures.next(LIMIT).1.unwrap()));
    });
    eventually_free(&client, "n");
}

fn c3_a_future_tries_once(store: &Store) {
    let client = store.client();
    let lock = client.lock("n");
    let once = lock.wait(Duration::ZERO);
    let lease = block_on(once.acquire_async(), LIMIT).expect("it is free");
    assert!(lease.remaining() > secs(20));
    assert_eq!(kind(block_on(once.acquire_async(), LIMIT)), ErrorKind::Timeout);
    assert_eq!(client.counters().attempts, 2);
    assert_eq!(holder(&client, "n").unwrap().fence, Some(lease.fence()));
    lease.release().unwrap();
}

fn c10_a_future_waits_for_so_long(store: &Store) {
    let client = store.client();
    let lock = client.lock("n").wait(ms(300));
    // The task that has it may be another one: nobody knows which would wait for itself.
    let held = block_on(lock.clone().wait_forever().acquire_async(), LIMIT).unwrap();
    let watch = Stopwatch::start();
    assert_eq!(kind(block_on(lock.acquire_async(), LIMIT)), ErrorKind::Timeout);
    watch.assert_at_least(ms(300));
    assert!(watch.elapsed() < secs(5), "{:?}", watch.elapsed());
    held.release().unwrap();
}

fn c10_a_future_that_is_dropped_leaves_no_lock_behind(store: &Store) {
    let (client, other) = (store.client(), store.client());
    let lock = client.lock("n").wait(LIMIT);
    let held = lock.acquire().unwrap();
    let mut futures = Futures::default();
    begin(&mut futures, &lock, 3);
    // One that waits, before others.
    futures.stop(0);
    held.release().unwrap();
    // One that has it and does not know yet.
    assert_eq!(futures.woken(LIMIT), 1);
    futures.stop(1);
    let (number, lease) = futures.next(LIMIT);
    assert_eq!(number, 2);
    // One that has not come to wait, and one of another kind.
    begin(&mut futures, &lock, 1);
    futures.stop(3);
    begin(&mut futures, &client.lock("n").wait(LIMIT).ttl(secs(20)), 1);
    futures.stop(4);
    lease.unwrap().release().unwrap();
    // Sooner than by its ttl.
    other.lock("n").acquire_within(LIMIT).unwrap().release().unwrap();
    begin(&mut futures, &lock, 1);
    assert_eq!(futures.woken(LIMIT), 5);
    futures.stop(5);
    eventually_free(&other, "n");
}

fn c13_a_future_refuses_what_can_never_work(store: &Store) {
    let client = store.client();
    assert_eq!(kind(block_on(client.lock("").acquire_async(), LIMIT)), ErrorKind::BadArgument);
    let lock = client.lock("n").ttl(ms(1));
    assert_eq!(kind(block_on(lock.acquire_async(), LIMIT)), ErrorKind::BadArgument);
}

fn c14_close_ends_futures(store: &Store) {
    let (holder, client) = (store.client(), store.client());
    let held = holder.lock("n").acquire().unwrap();
    let mut futures = Futures::default();
    begin(&mut futures, &client.lock("n").wait_forever(), 50);
    begin(&mut futures, &client.lock("m").wait_forever(), 1);
    let (number, lease) = futures.next(LIMIT);
    assert_eq!(number, 50);
    begin(&mut futures, &client.lock("m").wait_forever(), 1);
    client.close().unwrap();
    for _ in 0..51 {
        assert_eq!(kind(futures.next(secs(1)).1), ErrorKind::Closed);
    }
    assert!(!lease.unwrap().is_valid());
    assert_eq!(kind(block_on(client.lock("n").acquire_async(), LIMIT)), ErrorKind::Closed);
    held.release().unwrap();
    eventually_free(&holder, "m");
}

fn a_future_does_nothing_before_it_is_polled(store: &Store) {
    let client = store.client();
    let before = client.counters();
    drop(client.lock("n").acquire_async());
    assert_eq!(client.counters(), before);
}
