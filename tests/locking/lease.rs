//! What a lease is worth, and how it ends.

use std::time::{Duration, Instant};

use crate::stores::{
    LIMIT, STALL, Store, eventually_free, holder, in_time_on_each_store, ms, on_each_store, open,
    secs,
};
use kit::{Child, Mode, Proxy, Server, Stopwatch, child, eventually, unless_starved};
use leasehold::limits::MAX_TTL;
use leasehold::{Client, ErrorKind, EventKind, Lease, LossReason};

on_each_store!(
    c3_a_process_that_was_stopped_sees_its_leases_invalid,
    c4_loser_never_touches_ttl_nor_value,
    c5_release_frees_at_once_and_only_once,
    c5_a_lease_that_another_took_over_is_lost_and_the_others_stays,
    a_lease_that_goes_out_of_scope_is_released,
    a_lease_is_released_when_its_holder_panics,
    no_ttl_is_longer_than_the_stores_longest,
);

in_time_on_each_store!(
    c3_validity_is_the_ttl_less_drift_at_most,
    let_expire_leaves_the_lock_to_its_ttl,
    let_expire_in_sets_when_the_lock_is_free,
    c5_an_extension_lengthens_and_never_shortens,
);

fn kind<T>(result: Result<T, leasehold::Error>) -> ErrorKind {
    result.err().expect("an error").kind()
}

fn taken(client: &Client, name: &str, ttl: Duration) -> Lease {
    client.lock(name).ttl(ttl).renew(false).try_acquire().unwrap().expect("the lock is free")
}

fn until_invalid(lease: &Lease) {
    eventually(LIMIT, || !lease.is_valid());
}

fn c3_validity_is_the_ttl_less_drift_at_most(store: &Store) {
    let client = store.client();
    for ttl in [ms(50), secs(1), store.longest_ttl()] {
        let lease = taken(&client, "n", ttl);
        let most = ttl - ttl / 100 - ms(2);
        assert!(lease.remaining() <= most, "{:?} of {ttl:?}", lease.remaining());
        assert!(lease.is_valid() && lease.remaining() > most / 4);
        lease.extend().unwrap();
        assert!(lease.remaining() <= most);
    }
}

fn no_ttl_is_longer_than_the_stores_longest(store: &Store) {
    let client = Client::open(&format!("{}?max_ttl=10s", store.url())).unwrap();
    let (most, more) = (secs(10), secs(10) + ms(1));
    let lock = client.lock("n").ttl(more);
    for refused in [lock.try_acquire().err(), lock.acquire().err()] {
        let error = refused.unwrap();
        assert_eq!(error.kind(), ErrorKind::BadArgument);
        assert!(error.to_string().contains("3 ms to 10 s, this store's max_ttl"), "{error}");
    }
    let lease = client.lock("n").try_acquire().unwrap().unwrap();
    assert!(lease.remaining() < most);
    assert_eq!(kind(lease.extend_for(more)), ErrorKind::BadArgument);
    lease.extend_for(most).unwrap();
    let (token, fence) = lease.detach().unwrap();
    assert_eq!(kind(lock.attach(token, fence)), ErrorKind::BadArgument);
    let lease = lock.ttl(most).attach(token, fence).unwrap();
    assert_eq!(kind(lease.let_expire_in(more)), ErrorKind::BadArgument);
}

#[test]
fn c3_validity_counts_from_before_the_request_and_not_from_the_reply() {
    unless_starved(STALL, || {
        let server = Server::start();
        let mut proxy = Proxy::start(server.port());
        let client = open(&server.url_through(proxy.port()));
        // The server knows the scripts from here on, so that each call is one round trip.
        let lease = taken(&client, "n", secs(2));
        lease.extend().unwrap();
        lease.release().unwrap();
        proxy.set(Mode::DelayReplies(ms(400)));
        let before = Instant::now();
        let lease = taken(&client, "n", secs(2));
        let counted = secs(2) - ms(22);
        assert!(lease.remaining() <= counted.saturating_sub(ms(400)));
        let remaining = lease.remaining();
        assert!(remaining + before.elapsed() >= counted, "{remaining:?}");
        lease.extend().unwrap();
        assert!(lease.remaining() <= counted.saturating_sub(ms(400)));
    });
}

/// Takes two leases, says their fences, and is stopped for longer than their ttl.
fn sleeper(args: &[String]) {
    let client = open(&args[0]);
    let events = client.events().unwrap();
    let one = client.lock("renewed").ttl(ms(300)).acquire().unwrap();
    let two = client.lock("unrenewed").ttl(ms(300)).renew(false).acquire().unwrap();
    child::say(&format!("{} {}", one.fence(), two.fence()));
    child::hear().unwrap();
    child::say(&format!("{} {}", one.is_valid(), two.is_valid()));
    child::say(&format!("{:?} {:?}", kind(one.extend()), kind(two.release())));
    // It may have been told of a risk before.
    let mut told = std::iter::from_fn(|| events.next_within(LIMIT).unwrap());
    let lost = told.any(|event| matches!(event.kind, EventKind::Lost(_)));
    child::say(&format!("{lost}"));
}

fn c3_a_process_that_was_stopped_sees_its_leases_invalid(store: &Store) {
    let client = store.client();
    let mut sleeper = Child::start("sleeper", &[&store.url()]);
    let said = sleeper.line(LIMIT);
    sleeper.stop();
    let fences: Vec<u64> = said.split(' ').map(|fence| fence.parse().unwrap()).collect();
    for (name, fence) in ["renewed", "unrenewed"].iter().zip(fences) {
        let lease = client.lock(name).acquire_within(LIMIT).unwrap();
        assert!(lease.fence() > fence, "the resource refuses what the sleeper writes");
        lease.release().unwrap();
    }
    sleeper.tell("go on");
    sleeper.cont();
    assert_eq!(sleeper.line(LIMIT), "false false");
    assert_eq!(sleeper.line(LIMIT), "Lost Lost");
    assert_eq!(sleeper.line(LIMIT), "true");
    assert!(sleeper.wait(LIMIT).success());
}

pub(crate) const ROLES: kit::child::Roles = &[("sleeper", sleeper)];

fn c4_loser_never_touches_ttl_nor_value(store: &Store) {
    let (owner, loser) = (store.client(), store.client());
    let lease = taken(&owner, "n", secs(10));
    let (outer, before) = (Instant::now(), holder(&owner, "n").unwrap());
    let inner = Instant::now();
    for ttl in [ms(3), ms(500), secs(60)] {
        let lock = loser.lock("n").ttl(ttl);
        assert!((0..5).all(|_| lock.try_acquire().unwrap().is_none()));
        assert_eq!(kind(lock.acquire_within(ms(50))), ErrorKind::Timeout);
        // Nor with what it never got: a token of its own.
        let other = lock.attach("00112233445566778899aabbccddeeff".parse().unwrap(), 1).unwrap();
        assert_eq!(kind(other.extend()), ErrorKind::Lost);
        drop(other);
    }
    let inner = inner.elapsed();
    let after = holder(&owner, "n").unwrap();
    assert_eq!((&before.token_prefix, before.fence), (&after.token_prefix, after.fence));
    assert!(after.ttl + inner <= before.ttl + ms(2), "{before:?} {after:?} in {inner:?}");
    assert!(after.ttl + outer.elapsed() + ms(2) >= before.ttl, "{before:?} {after:?}");
    lease.release().unwrap();
}

fn c5_release_frees_at_once_and_only_once(store: &Store) {
    let (one, two) = (store.client(), store.client());
    // A second release of one lease does not compile: the first one takes it.
    one.lock("n").acquire().unwrap().release().unwrap();
    two.lock("n").try_acquire().unwrap().expect("free at once").release().unwrap();
    one.lock("n").try_acquire().unwrap().expect("free at once").release().unwrap();
}

fn c5_a_lease_that_another_took_over_is_lost_and_the_others_stays(store: &Store) {
    let (one, two) = (store.client(), store.client());
    let ends: [fn(Lease) -> Result<(), leasehold::Error>; 3] =
        [Lease::release, |lease| lease.extend(), |lease| lease.let_expire_in(secs(3))];
    for end in ends {
        let late = taken(&one, "n", ms(30));
        let new = two.lock("n").acquire_within(LIMIT).unwrap();
        let before = holder(&two, "n").unwrap();
        assert_eq!(kind(end(late)), ErrorKind::Lost);
        let after = holder(&two, "n").unwrap();
        assert_eq!((before.token_prefix, before.fence), (after.token_prefix, after.fence));
        // What was handed over is claimed a moment later.
        eventually(LIMIT, || holder(&two, "n").unwrap().ttl > secs(20));
        new.release().unwrap();
    }
}

#[test]
fn c5_a_lease_whose_turn_is_over_sends_nothing() {
    let server = Server::start();
    let client = open(&server.url());
    let leases: Vec<_> = ["a", "b", "c", "d"].map(|name| taken(&client, name, ms(30))).into();
    let valid = |leases: &[Lease]| leases.iter().any(Lease::is_valid);
    eventually(LIMIT, || !valid(&leases));
    // The keeper has seen it too; without that, a release asks the store how it stands.
    eventually(LIMIT, || client.counters().lost == 4);
    let mut watch = server.watch();
    let mut leases = leases.into_iter();
    let mut next = || leases.next().unwrap();
    drop(next());
    assert_eq!(kind(next().release()), ErrorKind::Lost);
    let lost = next().extend().unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::Lost);
    assert!(!lost.is_retriable(), "validity that has ended never comes back");
    assert_eq!(kind(next().let_expire_in(secs(1))), ErrorKind::Lost);
    assert_eq!(watch.client_commands(), [""; 0]);
}

fn c5_an_extension_lengthens_and_never_shortens(store: &Store) {
    let client = store.client();
    let lease = taken(&client, "n", ms(400));
    lease.extend_for(secs(20)).unwrap();
    assert!(lease.remaining() > secs(15) && lease.remaining() < secs(20));
    assert!(holder(&client, "n").unwrap().ttl > secs(15));
    for _ in 0..20 {
        lease.extend_for(ms(3)).unwrap();
    }
    lease.extend().unwrap();
    assert!(lease.remaining() > secs(15));
    assert!(holder(&client, "n").unwrap().ttl > secs(15));
    for bad in [Duration::ZERO, ms(2), MAX_TTL + ms(1)] {
        assert_eq!(kind(lease.extend_for(bad)), ErrorKind::BadArgument);
    }
    assert!(lease.is_valid());
    lease.release().unwrap();
}

#[test]
fn a_short_extension_over_a_slow_network_does_not_end_a_lease() {
    unless_starved(STALL, || {
        let server = Server::start();
        let mut proxy = Proxy::start(server.port());
        let client = open(&server.url_through(proxy.port()));
        let lease = taken(&client, "n", secs(30));
        proxy.set(Mode::DelayReplies(ms(30)));
        lease.extend_for(ms(10)).unwrap();
        assert!(lease.remaining() > secs(20));
        assert_eq!(client.counters().lost, 0);
        lease.release().unwrap();
    });
}

fn a_lease_that_goes_out_of_scope_is_released(store: &Store) {
    let (one, two) = (store.client(), store.client());
    {
        let _lease = one.lock("n").acquire().unwrap();
        assert!(two.lock("n").try_acquire().unwrap().is_none());
    }
    // Without waiting for the store: another client may come before.
    eventually(LIMIT, || two.lock("n").try_acquire().unwrap().is_some());
    assert_eq!(one.counters().released_late, 0);
}

/// A drop waits for 50 ms at most, and the rest is the keeper's.
#[cfg(feature = "sqlite")]
#[test]
fn a_drop_that_finds_the_file_busy_is_late_only_where_its_release_is() {
    let store = Store::file();
    let Store::File(dir) = &store else { panic!("it is a file") };
    let client = store.client();
    let lease = client.lock("n").ttl(secs(60)).acquire().unwrap();
    let other = rusqlite::Connection::open(dir.path().join("locks.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    drop(lease);
    assert!(holder(&client, "n").is_some());
    other.execute_batch("COMMIT").unwrap();
    crate::stores::eventually_free(&client, "n");
    assert_eq!(client.counters().released_late, 0);
}

fn a_lease_is_released_when_its_holder_panics(store: &Store) {
    let client = store.client();
    let ended = std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let _lease = client.lock("n").acquire().unwrap();
            panic!("on purpose");
        });
        holder.join()
    });
    assert!(ended.is_err());
    assert!(client.lock("n").try_acquire().unwrap().is_some());
}

fn let_expire_leaves_the_lock_to_its_ttl(store: &Store) {
    let client = store.client();
    let lease = client.lock("n").ttl(ms(400)).acquire().unwrap();
    let before = Stopwatch::start();
    lease.let_expire().unwrap();
    // A renewed lease is renewed at a third of its ttl; this one is not any more.
    let renewed = client.counters().renewed;
    assert!(holder(&client, "n").unwrap().ttl <= ms(400));
    eventually_free(&client, "n");
    before.assert_at_most(ms(400), ms(100));
    assert!(client.counters().renewed <= renewed + 1, "one may have been under way");
    assert_eq!(client.counters().lost, 0);
}

fn let_expire_in_sets_when_the_lock_is_free(store: &Store) {
    let client = store.client();
    let ends = |ttl, after| {
        let lease = client.lock("n").ttl(ttl).acquire().unwrap();
        lease.let_expire_in(after).unwrap();
        holder(&client, "n").unwrap().ttl
    };
    let left = ends(ms(500), secs(4));
    assert!(left > secs(3) && left <= secs(4), "longer than its ttl: {left:?}");
    let server_side = client.lock("n").ttl(secs(5)).acquire_within(LIMIT).unwrap();
    server_side.release().unwrap();
    let watch = Stopwatch::start();
    assert!(ends(secs(30), ms(200)) <= ms(200), "shorter than its ttl");
    eventually_free(&client, "n");
    watch.assert_at_least(ms(198));
    watch.assert_at_most(ms(200), ms(150));
}

#[test]
fn let_expire_for_good_needs_a_ttl_that_a_lock_can_have() {
    let server = Server::start();
    let client = open(&server.url());
    for bad in [Duration::ZERO, ms(2), MAX_TTL + ms(1), Duration::MAX] {
        let lease = taken(&client, "n", secs(5));
        assert_eq!(kind(lease.let_expire_in(bad)), ErrorKind::BadArgument);
        assert!(holder(&client, "n").is_none(), "released, as by any drop");
    }
}

#[test]
fn a_key_that_was_deleted_by_hand_is_lost_and_the_event_says_why() {
    let server = Server::start();
    let client = open(&server.url());
    let events = client.events().unwrap();
    let lease = taken(&client, "n", secs(30));
    server.cmd(&["DEL", "n"]);
    assert!(lease.is_valid(), "nobody has been asked yet");
    assert_eq!(kind(lease.extend()), ErrorKind::Lost);
    until_invalid(&lease);
    let event = events.next_within(LIMIT).unwrap().unwrap();
    assert_eq!(event.kind, EventKind::Lost(LossReason::NotHeld));
    assert_eq!(event.fence, lease.fence());
}
