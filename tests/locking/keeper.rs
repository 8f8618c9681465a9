//! Leases that are held on to, and the one thread that does it.

use std::time::Duration;

use crate::stores::{
    LIMIT, STALL, Store, eventually_free, holder, in_time_on_each_store, ms, open, secs,
};
use kit::{Server, Stopwatch, eventually, unless_starved};
use leasehold::{ErrorKind, EventKind, Events, LossReason};
use redis::Value;

in_time_on_each_store!(
    c9_a_renewed_lease_outlives_its_ttl_ten_times,
    c9_a_lease_that_is_not_renewed_expires_and_says_so,
    c9_max_hold_ends_a_lease_after_a_warning,
    c9_an_extension_never_reaches_beyond_max_hold,
    below_100_ms_nothing_is_renewed_and_asking_for_it_is_refused,
);

fn next(events: &Events) -> (EventKind, u64) {
    let event = events.next_within(LIMIT).unwrap().expect("an event comes");
    (event.kind, event.fence)
}

fn c9_a_renewed_lease_outlives_its_ttl_ten_times(store: &Store) {
    let (one, two) = (store.client(), store.client());
    let lease = one.lock("n").ttl(ms(800)).acquire().unwrap();
    let watch = Stopwatch::start();
    while watch.elapsed() < secs(8) {
        assert!(two.lock("n").try_acquire().unwrap().is_none(), "{:?}", one.counters());
        assert!(lease.is_valid(), "{:?}", one.counters());
        std::thread::sleep(ms(20));
    }
    assert!(one.counters().renewed >= 8, "{:?}", one.counters());
    assert_eq!(holder(&two, "n").unwrap().fence, Some(lease.fence()));
    lease.release().unwrap();
    assert_eq!(one.counters().lost, 0);
}

fn c9_a_lease_that_is_not_renewed_expires_and_says_so(store: &Store) {
    let client = store.client();
    let events = client.events().unwrap();
    let watch = Stopwatch::start();
    let lease = client.lock("n").ttl(ms(300)).renew(false).acquire().unwrap();
    assert_eq!(next(&events), (EventKind::Lost(LossReason::Expired), lease.fence()));
    watch.assert_at_least(ms(250));
    watch.assert_at_most(ms(295), ms(30));
    assert!(!lease.is_valid());
    eventually_free(&client, "n");
    assert_eq!((client.counters().renewed, client.counters().lost), (0, 1));
}

fn c9_max_hold_ends_a_lease_after_a_warning(store: &Store) {
    let client = store.client();
    let events = client.events().unwrap();
    let watch = Stopwatch::start();
    let lease = client.lock("n").ttl(ms(300)).max_hold(ms(900)).acquire().unwrap();
    assert_eq!(next(&events), (EventKind::AtRisk, lease.fence()));
    watch.assert_at_least(ms(750));
    assert!(lease.is_valid(), "told in time");
    assert_eq!(next(&events), (EventKind::Lost(LossReason::MaxHold), lease.fence()));
    watch.assert_at_least(ms(850));
    watch.assert_at_most(ms(900), ms(30));
    assert!(!lease.is_valid());
    eventually_free(&client, "n");
    watch.assert_at_most(ms(900), ms(100));
    let error = lease.release().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_eq!(error.detail(), "'n', max_hold of 900 ms was reached");
    assert_eq!(events.try_next().unwrap(), None);
}

fn c9_an_extension_never_reaches_beyond_max_hold(store: &Store) {
    let client = store.client();
    let lease = client.lock("n").ttl(secs(2)).max_hold(secs(4)).acquire().unwrap();
    lease.extend_for(secs(60)).unwrap();
    assert!(lease.remaining() < secs(4));
    assert!(holder(&client, "n").unwrap().ttl <= secs(4));
    lease.release().unwrap();

    // And where max_hold is shorter than the ttl, it is the ttl.
    let lease = client.lock("n").max_hold(secs(4)).acquire().unwrap();
    assert!(lease.remaining() < secs(4));
    assert!(holder(&client, "n").unwrap().ttl <= secs(4));
    lease.release().unwrap();

    for (ttl, most) in [(secs(1), Duration::ZERO), (secs(1), ms(2))] {
        let refused = client.lock("n").ttl(ttl).max_hold(most).try_acquire().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BadArgument);
        assert!(refused.to_string().contains("max_hold"), "{refused}");
    }
}

fn below_100_ms_nothing_is_renewed_and_asking_for_it_is_refused(store: &Store) {
    let client = store.client();
    let events = client.events().unwrap();
    let short = client.lock("n").ttl(ms(99));
    assert_eq!(short.clone().renew(true).acquire().unwrap_err().kind(), ErrorKind::BadArgument);
    let lease = short.acquire().unwrap();
    assert_eq!(next(&events), (EventKind::Lost(LossReason::Expired), lease.fence()));
    assert_eq!(client.counters().renewed, 0);
    client.lock("m").ttl(ms(100)).renew(true).acquire().unwrap().release().unwrap();
}

#[test]
fn c9_renewal_comes_at_a_third_of_the_ttl_and_stops_with_the_release() {
    unless_starved(STALL, || {
        let server = Server::start();
        let client = open(&server.url());
        let lease = client.lock("n").ttl(ms(900)).acquire().unwrap();
        // The server knows the script from here on.
        lease.extend().unwrap();
        let mut watch = server.watch();
        std::thread::sleep(ms(1500));
        let mut sent = watch.client_commands();
        // The keeper's connection is new, and looks once whether others guard this server.
        assert_eq!(sent.remove(0), "GET \"leasehold:marker\"");
        assert!((3..=5).contains(&sent.len()), "{sent:?}");
        assert!(sent.iter().all(|command| command.starts_with("EVALSHA ")), "{sent:?}");
        lease.release().unwrap();
        watch.client_commands();
        std::thread::sleep(ms(700));
        assert_eq!(watch.client_commands(), [""; 0]);
    });
}

#[test]
fn c9_renewal_stops_with_let_expire() {
    unless_starved(STALL, || {
        let server = Server::start();
        let client = open(&server.url());
        client.lock("n").ttl(ms(450)).acquire().unwrap().let_expire().unwrap();
        let mut watch = server.watch();
        std::thread::sleep(ms(500));
        assert_eq!(watch.client_commands(), [""; 0]);
        assert_eq!(server.cmd(&["EXISTS", "n"]), Value::Int(0));
    });
}

#[test]
fn c9_a_key_that_was_deleted_by_hand_is_told_by_the_next_renewal() {
    unless_starved(STALL, || {
        let server = Server::start();
        let client = open(&server.url());
        let events = client.events().unwrap();
        for name in ["deleted", "taken", "of another type"] {
            let lease = client.lock(name).ttl(ms(900)).acquire().unwrap();
            match name {
                "deleted" => server.cmd(&["DEL", name]),
                "taken" => server.cmd(&["SET", name, "somebody", "PX", "60000"]),
                _ => {
                    server.cmd(&["DEL", name]);
                    server.cmd(&["LPUSH", name, "1"])
                }
            };
            let watch = Stopwatch::start();
            assert_eq!(next(&events), (EventKind::Lost(LossReason::NotHeld), lease.fence()));
            watch.assert_at_most(ms(300), ms(50));
            assert!(!lease.is_valid());
            drop(lease);
        }
        assert_eq!(server.cmd(&["GET", "taken"]), Value::BulkString(b"somebody".to_vec()));
        assert_eq!(server.cmd(&["LLEN", "of another type"]), Value::Int(1));
    });
}

#[test]
fn one_keeper_renews_two_thousand_leases_and_what_piles_up_goes_in_pipelines() {
    unless_starved(STALL, || {
        let server = Server::start();
        let client = open(&server.url());
        let take =
            |index: u64| client.lock(format!("n:{index}")).ttl(ms(1500 + index % 500)).acquire();
        let leases: Vec<_> = (0..2000).map(|index| take(index).unwrap()).collect();
        let renewed = || client.counters().renewed;
        let reads = || {
            let stats = server.info("stats");
            let line = stats.lines().find_map(|line| line.strip_prefix("total_reads_processed:"));
            line.unwrap().parse::<u64>().unwrap()
        };
        let start = renewed();
        eventually(LIMIT, || renewed() > start + 8000);

        let (read, before) = (reads(), renewed());
        server.stop();
        std::thread::sleep(ms(300));
        let standing = renewed();
        server.cont();
        eventually(LIMIT, || renewed() > standing + 600);
        let (read, renewed) = (reads() - read, renewed() - before);
        // A pipeline of 128 is read in two pieces or three.
        assert!(read * 4 < renewed, "{read} reads for {renewed} renewals");

        assert!(leases.iter().all(|lease| lease.is_valid()));
        assert_eq!(client.counters().lost, 0);
        // A lock and a side key each, and who the client is.
        assert_eq!(server.cmd(&["DBSIZE"]), Value::Int(4001));
        client.close_within(LIMIT).unwrap();
        // Closing gave all of them, and waits for no answer to the rest.
        eventually(LIMIT, || server.cmd(&["DBSIZE"]) == Value::Int(2000));
    });
}
