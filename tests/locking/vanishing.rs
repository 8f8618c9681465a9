//! A grant that vanishes from the store while its holder lives: somebody has deleted what keeps it.

use std::sync::mpsc::channel;

use crate::stores::{LIMIT, Store, holder, in_time_on_each_store, ms, on_each_store, secs};
use kit::Stopwatch;
use leasehold::{Client, Error, ErrorKind, EventKind, Lease, LossReason};

in_time_on_each_store!(
    c9_a_lease_that_vanishes_is_told_by_the_next_renewal,
    c9_one_of_many_leases_that_vanishes_is_told_and_the_others_stay,
);
on_each_store!(
    c5_whatever_is_done_with_a_lease_that_has_vanished_says_so_and_leaves_the_next_alone,
);

fn c9_a_lease_that_vanishes_is_told_by_the_next_renewal(store: &Store) {
    let (client, other) = (store.client(), store.client());
    told(store, |name| store.forget(name), [&client, &other]);
}

/// Which is told in other words, and means the same.
#[cfg(feature = "etcd")]
#[test]
fn c9_a_lease_whose_etcd_lease_was_revoked_is_told_by_the_next_renewal() {
    kit::unless_starved(kit::STALL, || {
        let store = Store::etcd();
        let (client, other) = (store.client(), store.client());
        told(&store, |name| store.revoke(name), [&client, &other]);
    });
}

/// Told once, in each way, before the ttl would have ended; and the next one has a larger fence.
fn told(store: &Store, vanish: impl Fn(&str), [client, other]: [&Client; 2]) {
    let (sender, called) = channel();
    let events = client.events().unwrap();
    let lease = client.lock("n").ttl(ms(2400)).acquire().unwrap();
    lease.on_lost(move |event| sender.send(event).unwrap()).unwrap();
    assert_eq!(holder(other, "n").unwrap().fence, Some(lease.fence()));
    vanish("n");
    let watch = Stopwatch::start();
    assert_eq!(holder(other, "n"), None);
    let event = events.next_within(LIMIT).unwrap().expect("an event comes");
    assert_eq!((event.kind, event.fence), (EventKind::Lost(LossReason::NotHeld), lease.fence()));
    watch.assert_at_most(ms(800), ms(200));
    assert_eq!(called.recv_timeout(LIMIT).unwrap(), event);
    assert!(!lease.is_valid());
    assert_eq!(lease.extend().unwrap_err().kind(), ErrorKind::Lost);
    let next = other.lock("n").ttl(secs(60)).try_acquire().unwrap().expect("it is free");
    assert!(next.fence() > lease.fence());
    assert_eq!(lease.release().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(holder(other, "n").unwrap().fence, Some(next.fence()), "{}", store.url());
    next.release().unwrap();
    assert_eq!(client.counters().lost, 1);
    assert_eq!(events.try_next().unwrap(), None);
}

fn c9_one_of_many_leases_that_vanishes_is_told_and_the_others_stay(store: &Store) {
    let client = store.client();
    let events = client.events().unwrap();
    let names: Vec<_> = (0..12).map(|index| format!("n:{index}")).collect();
    let take = |name| client.lock(name).ttl(ms(2400)).acquire().unwrap();
    let mut leases: Vec<_> = names.iter().map(take).collect();
    store.forget("n:7");
    let gone = leases.remove(7);
    let event = events.next_within(LIMIT).unwrap().expect("an event comes");
    assert_eq!((event.kind, event.fence), (EventKind::Lost(LossReason::NotHeld), gone.fence()));
    // Each is renewed once more.
    let renewed = client.counters().renewed;
    kit::eventually(LIMIT, || client.counters().renewed >= renewed + 22);
    assert!(leases.iter().all(Lease::is_valid));
    leases.into_iter().for_each(|lease| lease.release().unwrap());
    assert_eq!(client.counters().lost, 1);
}

/// Of one that nobody renews, so that no one knows before.
fn c5_whatever_is_done_with_a_lease_that_has_vanished_says_so_and_leaves_the_next_alone(
    store: &Store,
) {
    let (client, other) = (store.client(), store.client());
    let events = client.events().unwrap();
    type Act = fn(Lease) -> Result<(), Error>;
    let acts: [(&str, Act); 4] = [
        ("extended", |lease| lease.extend()),
        ("released", Lease::release),
        ("left", |lease| lease.let_expire_in(secs(5))),
        ("dropped", |lease| {
            drop(lease);
            Ok(())
        }),
    ];
    for (name, act) in acts {
        let lease = client.lock(name).ttl(secs(60)).renew(false).acquire().unwrap();
        store.forget(name);
        let next = other.lock(name).ttl(secs(60)).try_acquire().unwrap().expect("it is free");
        assert!(next.fence() > lease.fence(), "{name}");
        let fence = lease.fence();
        match act(lease) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Lost, "{name}: {error}"),
            Ok(()) => {
                assert_eq!(name, "dropped");
                // Behind what those before it have told.
                let told = || events.next_within(LIMIT).unwrap().expect("it was late");
                let event = std::iter::repeat_with(told).find(|event| event.fence == fence);
                assert_eq!(event.unwrap().kind, EventKind::ReleasedLate);
            }
        }
        assert_eq!(holder(&other, name).unwrap().fence, Some(next.fence()), "{name}");
        next.extend().unwrap();
        next.release().unwrap();
    }
}
