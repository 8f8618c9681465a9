//! What the counters count.

use crate::stores::{LIMIT, Store, in_time_on_each_store, ms, on_each_store, open, secs};
use kit::{End, Mode, Proxy, Server, eventually};
use leasehold::{Backoff, Client, Counters, ErrorKind, WaitMode};

on_each_store!(
    tries_grants_and_refusals_are_counted,
    counters_belong_to_one_client_and_outlive_it_closed,
);

in_time_on_each_store!(renewals_losses_and_late_releases_are_counted,);

/// What has changed since `before`, as (attempts, granted, busy, timed out).
fn asked(client: &Client, before: Counters) -> (u64, u64, u64, u64) {
    let now = client.counters();
    (
        now.attempts - before.attempts,
        now.granted - before.granted,
        now.busy - before.busy,
        now.timed_out - before.timed_out,
    )
}

fn tries_grants_and_refusals_are_counted(store: &Store) {
    let (one, two) = (store.client(), store.client());
    assert_eq!(one.counters(), Counters::default());
    let lease = one.lock("n").acquire().unwrap();
    assert_eq!(asked(&one, Counters::default()), (1, 1, 0, 0));

    assert!(two.lock("n").try_acquire().unwrap().is_none());
    assert_eq!(asked(&two, Counters::default()), (1, 0, 1, 0));

    let before = two.counters();
    let three_times = WaitMode::Spin(Backoff::default().attempts(3));
    let error = two.lock("n").wait_mode(three_times).acquire().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(asked(&two, before), (3, 0, 3, 1));

    // An argument that can never work is no attempt.
    let before = two.counters();
    assert!(two.lock("").acquire().is_err());
    assert_eq!(asked(&two, before), (0, 0, 0, 0));

    lease.extend().unwrap();
    lease.release().unwrap();
    let now = one.counters();
    assert_eq!((now.unknown, now.lost, now.released_late), (0, 0, 0));
    assert_eq!(now.renewed, 0, "those are the keeper's");
}

fn renewals_losses_and_late_releases_are_counted(store: &Store) {
    let client = store.client();
    let lease = client.lock("n").ttl(ms(600)).acquire().unwrap();
    eventually(LIMIT, || client.counters().renewed == 2);
    lease.release().unwrap();
    assert_eq!((client.counters().lost, client.counters().released_late), (0, 0));

    let lease = client.lock("n").ttl(ms(50)).acquire().unwrap();
    eventually(LIMIT, || client.counters().lost == 1);
    lease.release().unwrap_err();
    assert_eq!(client.counters().released_late, 1);
    drop(client.lock("n").acquire().unwrap());
    assert_eq!((client.counters().lost, client.counters().released_late), (1, 1));
}

fn counters_belong_to_one_client_and_outlive_it_closed(store: &Store) {
    let (one, two) = (store.client(), store.client());
    let clone = one.clone();
    one.lock("n").acquire().unwrap().release().unwrap();
    assert_eq!((clone.counters().granted, two.counters().granted), (1, 0));
    one.close().unwrap();
    assert_eq!(one.counters().granted, 1);
}

#[test]
fn c6_an_unknown_outcome_is_counted_and_not_as_a_grant() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    let client = open(&proxy.url());
    client.lock("n").acquire().unwrap().release().unwrap();
    let before = client.counters();
    proxy.set_only(b"EVALSHA", Mode::LoseReply(End::Reset));
    // The token of the first attempt is given before the second one asks, with another token.
    let lease = client.lock("n").ttl(secs(20)).acquire_within(LIMIT).unwrap();
    let now = client.counters();
    assert_eq!((now.unknown - before.unknown, now.granted - before.granted), (1, 1));
    assert!(now.attempts - before.attempts >= 2);
    assert!(lease.is_valid());
    lease.release().unwrap();
}
