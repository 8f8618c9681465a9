//! What is told about leases, to whom, and what is never told.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::stores::{LIMIT, Store, ms, on_each_store, open, secs};
use kit::{Server, eventually};
use leasehold::{Client, ErrorKind, Event, EventKind, Events, LossReason};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

on_each_store!(
    c9_every_subscription_sees_every_loss_and_none_twice,
    c9_a_loss_is_never_dropped_however_slow_the_reader,
    c9_no_loss_is_told_once_release_has_begun,
    c14_subscriptions_end_when_the_client_closes,
    events_can_be_polled_beside_other_descriptors,
    a_subscription_hears_nothing_from_before_it,
);

fn is_lost(event: &Event) -> bool {
    matches!(event.kind, EventKind::Lost(_))
}

/// A lease that is about to be lost, by its short ttl.
fn lose(client: &Client, name: &str) -> leasehold::Lease {
    client.lock(name).ttl(ms(30)).acquire_within(LIMIT).unwrap()
}

fn all(events: &Events, count: usize) -> Vec<Event> {
    (0..count).map(|_| events.next_within(LIMIT).unwrap().expect("one more comes")).collect()
}

fn c9_every_subscription_sees_every_loss_and_none_twice(store: &Store) {
    let client = store.client();
    let subscriptions: Vec<_> = (0..3).map(|_| client.events().unwrap()).collect();
    let leases: Vec<_> = (0..20).map(|index| lose(&client, &format!("n:{index}"))).collect();
    let lost: BTreeSet<_> =
        leases.iter().map(|lease| (lease.name().to_vec(), lease.fence())).collect();
    for events in &subscriptions {
        let told = all(events, 20);
        assert!(told.iter().all(|event| event.kind == EventKind::Lost(LossReason::Expired)));
        let told: BTreeSet<_> =
            told.iter().map(|event| (event.name.to_vec(), event.fence)).collect();
        assert_eq!(told, lost);
    }
    assert!(leases.iter().all(|lease| !lease.is_valid()));
    drop(leases);
    assert_eq!(client.counters().lost, 20);
    // What was told as lost is not told as released late as well.
    assert!(subscriptions.iter().all(|events| events.try_next().unwrap().is_none()));
}

fn c9_a_loss_is_never_dropped_however_slow_the_reader(store: &Store) {
    const COUNT: u64 = 1200;
    let client = store.client();
    let events = client.events().unwrap();
    let threads = 4;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let client = &client;
            scope.spawn(move || {
                let take = |index| lose(client, &format!("n:{thread}:{index}"));
                // Until the keeper has told them all: a lease that is dropped is not lost.
                let leases: Vec<_> = (0..COUNT / threads).map(take).collect();
                eventually(LIMIT * 2, || client.counters().lost == COUNT);
                drop(leases);
            });
        }
    });
    let names: BTreeSet<_> =
        all(&events, COUNT as usize).into_iter().map(|event| event.name).collect();
    assert_eq!(names.len() as u64, COUNT);
    assert_eq!(events.dropped(), 0);
}

/// Releases race with the end of the ttl. Whatever comes of each: when the release says that all
/// was well, no loss is told.
fn c9_no_loss_is_told_once_release_has_begun(store: &Store) {
    let client = store.client();
    let events = client.events().unwrap();
    let (mut well, mut late) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..150u64 {
        let lease = lose(&client, "n");
        let fence = lease.fence();
        // The keeper ends it 1.5 ms before its validity ends.
        let left = lease.remaining().saturating_sub(Duration::from_micros(round % 40 * 100));
        std::thread::sleep(left);
        match lease.release() {
            Ok(()) => assert!(well.insert(fence)),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Lost);
                assert!(late.insert(fence));
            }
        }
    }
    client.close().unwrap();
    let mut told = BTreeSet::new();
    while let Ok(event) = events.next() {
        assert!(is_lost(&event) && told.insert(event.fence), "{event:?}");
    }
    assert!(told.is_disjoint(&well), "told: {told:?}, released well: {well:?}");
    assert!(told.is_subset(&late) && !told.is_empty());
}

fn c14_subscriptions_end_when_the_client_closes(store: &Store) {
    let client = store.client();
    let (blocked, idle, full) =
        (client.events().unwrap(), client.events().unwrap(), client.events().unwrap());
    let lease = lose(&client, "n");
    assert_eq!(blocked.next().unwrap().fence, lease.fence());
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| blocked.next().unwrap_err().kind());
        assert_eq!(idle.next().unwrap().fence, lease.fence());
        assert_eq!(idle.next_within(ms(50)).unwrap(), None);
        client.close().unwrap();
        assert_eq!(reader.join().unwrap(), ErrorKind::Closed);
    });
    assert_eq!(idle.next_within(LIMIT).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(idle.try_next().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(full.next().unwrap().fence, lease.fence(), "what was told can still be read");
    assert_eq!(full.next().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(client.events().err().unwrap().kind(), ErrorKind::Closed);

    // The end of the last handle is one too.
    let client = store.client();
    let events = client.events().unwrap();
    drop(client);
    assert_eq!(events.next().unwrap_err().kind(), ErrorKind::Closed);
}

fn events_can_be_polled_beside_other_descriptors(store: &Store) {
    let client = store.client();
    let events = client.events().unwrap();
    let (other, mut writer) = std::io::pipe().unwrap();
    let ready = |timeout: PollTimeout| {
        let mut watched =
            [events.as_fd(), other.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        poll(&mut watched, timeout).unwrap();
        watched.map(|fd| fd.any().unwrap())
    };
    assert_eq!(ready(PollTimeout::ZERO), [false, false]);
    std::io::Write::write_all(&mut writer, b"x").unwrap();
    assert_eq!(ready(PollTimeout::from(10_000u16)), [false, true]);
    let leases = [lose(&client, "a"), lose(&client, "b")];
    eventually(LIMIT, || ready(PollTimeout::from(1000u16))[0]);
    assert!(events.try_next().unwrap().is_some());
    eventually(LIMIT, || events.try_next().unwrap().is_some());
    assert_eq!(ready(PollTimeout::ZERO), [false, true], "nothing is left to read");
    client.close().unwrap();
    assert_eq!(ready(PollTimeout::ZERO), [true, true]);
    drop(leases);
}

fn a_subscription_hears_nothing_from_before_it(store: &Store) {
    let client = store.client();
    let early = client.events().unwrap();
    let lease = lose(&client, "n");
    // Only then it has been told to everybody.
    assert_eq!(early.next().unwrap().fence, lease.fence());
    drop(early);
    let events = client.events().unwrap();
    assert_eq!(events.try_next().unwrap(), None);
    drop(lease);
    drop(client.events().unwrap());
    let other = lose(&client, "m");
    assert_eq!(
        events.next().unwrap().fence,
        other.fence(),
        "a reader that left is in nobody's way"
    );
}

#[test]
fn a_lease_that_was_gone_when_it_went_out_of_scope_is_told() {
    let server = Server::start();
    let client = open(&server.url());
    let events = client.events().unwrap();
    let lease = client.lock("n").acquire().unwrap();
    let fence = lease.fence();
    server.cmd(&["DEL", "n"]);
    drop(lease);
    let event = events.next_within(secs(5)).unwrap().unwrap();
    assert_eq!((event.kind, event.fence), (EventKind::ReleasedLate, fence));
    assert_eq!(client.counters().released_late, 1);
    assert_eq!(client.counters().lost, 0);
}
