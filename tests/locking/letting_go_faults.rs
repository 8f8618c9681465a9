//! Releases that nobody waits for, when the server or the network fails.

use std::collections::HashMap;
use std::time::Instant;

use crate::stores::{LIMIT, STALL, ms, open, secs};
use kit::scripts::GIVE;
use kit::{End, Mode, Proxy, Server, Stopwatch, eventually, unless_starved};
use leasehold::{Client, Event, EventKind, Events, Lease, LossReason};
use redis::Value;

/// What a request that gives has in it.
fn give() -> Vec<u8> {
    kit::scripts::digest(GIVE).into()
}

/// Takes it or fails: nobody else has it.
#[track_caller]
fn take(client: &Client, name: &str) -> Lease {
    let taken = client.lock(name).ttl(secs(60)).try_acquire().unwrap();
    taken.unwrap_or_else(|| panic!("'{name}' is taken; {:?}", client.counters()))
}

fn exists(server: &Server, name: &str) -> bool {
    server.cmd(&["EXISTS", name]) == Value::Int(1)
}

fn next(events: &Events) -> Event {
    events.next_within(LIMIT).unwrap().expect("an event comes")
}

#[test]
fn a_lease_that_was_gone_is_counted_and_told() {
    let server = Server::start();
    let client = open(&server.url());
    let events = client.events().unwrap();
    let by_the_keeper = |_: &Client| {};
    let by_the_next = |client: &Client| drop(take(client, "n"));
    let by_another = |client: &Client| drop(take(client, "m"));
    let readers: [&dyn Fn(&Client); 3] = [&by_the_keeper, &by_the_next, &by_another];
    for (count, read) in (1..).zip(readers) {
        let lease = take(&client, "n");
        let fence = lease.fence();
        server.cmd(&["DEL", "n"]);
        drop(lease);
        read(&client);
        let event = next(&events);
        assert_eq!((event.kind, event.fence), (EventKind::ReleasedLate, fence));
        assert_eq!(client.counters().released_late, count);
    }
    assert_eq!((client.counters().lost, client.counters().unknown), (0, 0));
}

#[test]
fn a_release_that_the_server_lacked_the_script_for_is_done_before_the_next_take() {
    let server = Server::start();
    for pool in [1, 8] {
        let client = open(&format!("{}?pool={pool}", server.url()));
        for _ in 0..50 {
            let lease = take(&client, "n");
            server.cmd(&["SCRIPT", "FLUSH"]);
            drop(lease);
            drop(take(&client, "n"));
        }
        assert_eq!((client.counters().busy, client.counters().released_late), (0, 0));
    }
}

#[test]
fn a_release_that_the_server_lacked_the_script_for_is_done_by_whoever_reads_that() {
    let server = Server::start();
    let client = open(&server.url());
    // The keeper.
    let lease = take(&client, "n");
    server.cmd(&["SCRIPT", "FLUSH"]);
    drop(lease);
    eventually(LIMIT, || !exists(&server, "n"));
    // A call that has brought the script back for itself, and one that knows nothing of it.
    for ping in [false, true] {
        let (lease, other) = (take(&client, "n"), take(&client, "m"));
        server.cmd(&["SCRIPT", "FLUSH"]);
        drop(lease);
        match ping {
            true => client.ping().unwrap(),
            false => other.release().unwrap(),
        }
        eventually(LIMIT, || !exists(&server, "n"));
    }
    assert_eq!((client.counters().unknown, client.counters().released_late), (0, 0));
}

#[test]
fn c6_a_release_whose_reply_or_request_was_lost_is_given_again() {
    for fault in [Mode::LoseReply(End::Fin), Mode::LoseReply(End::Reset), Mode::CutRequest(60)] {
        let server = Server::start();
        let mut proxy = Proxy::start(server.port());
        let client = open(&server.url_through(proxy.port()));
        let events = client.events().unwrap();
        let lease = take(&client, "n");
        let fence = lease.fence();
        proxy.set_only(&give(), fault);
        let watch = Stopwatch::start();
        drop(lease);
        watch.assert_at_most(ms(0), ms(30));
        eventually(LIMIT, || !exists(&server, "n"));
        let event = next(&events);
        assert_eq!((event.kind, event.fence), (EventKind::ReleasedLate, fence));
        assert_eq!((client.counters().unknown, client.counters().released_late), (1, 1));
        drop(take(&client, "n"));
    }
}

#[test]
fn c6_whoever_waits_for_the_name_outlasts_a_release_that_was_lost() {
    for fault in [Mode::LoseReply(End::Reset), Mode::CutRequest(60)] {
        let server = Server::start();
        let mut proxy = Proxy::start(server.port());
        let client = open(&format!("{}?pool=1", server.url_through(proxy.port())));
        let lease = take(&client, "n");
        proxy.set_only(&give(), fault);
        drop(lease);
        client.lock("n").acquire_within(LIMIT).unwrap().release().unwrap();
    }
}

#[test]
fn c6_a_release_after_a_longer_extension_is_owed_for_as_long_as_that_lasts() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    let url = format!("{}?io_timeout=300ms", server.url_through(proxy.port()));
    let client = Client::open(&url).unwrap();
    let lease = client.lock("n").ttl(ms(400)).renew(false).try_acquire().unwrap().unwrap();
    lease.extend_for(secs(60)).unwrap();
    proxy.set(Mode::Silent);
    drop(lease);
    std::thread::sleep(ms(1000));
    assert!(exists(&server, "n"));
    proxy.set(Mode::Pass);
    eventually(LIMIT, || !exists(&server, "n"));
}

#[test]
fn many_leases_dropped_while_the_server_stands_still_are_free_when_it_goes_on() {
    // It goes on before and after anybody waits for the replies; and with no connection left.
    for (io_timeout, pause, is_cut) in
        [(20_000, 300, false), (200, 600, false), (20_000, 300, true)]
    {
        let server = Server::start();
        let url = format!("{}?pool=2&io_timeout={io_timeout}ms", server.url());
        let client = Client::open(&url).unwrap();
        let leases: Vec<_> = (0..100).map(|index| take(&client, &format!("n:{index}"))).collect();
        if is_cut {
            server.cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        }
        server.stop();
        let watch = Stopwatch::start();
        drop(leases);
        // One that finds no connection, or one that owes as much as it may, waits 50 ms; then no other
        // does for a second.
        watch.assert_at_most(ms(500), ms(500));
        std::thread::sleep(ms(pause));
        server.cont();
        eventually(LIMIT, || server.cmd(&["KEYS", "n:*"]) == Value::Array(Vec::new()));
        drop(take(&client, "n:0"));
    }
}

#[test]
fn c9_replies_that_do_not_come_keep_nobody_from_telling_what_is_at_risk_and_lost() {
    unless_starved(STALL, || {
        let server = Server::start();
        let client = open(&server.url());
        let events = client.events().unwrap();
        let held: Vec<_> = [300, 450, 700, 1000, 1500]
            .map(|ttl| client.lock(format!("h:{ttl}")).ttl(ms(ttl)).acquire().unwrap())
            .into();
        let dropped: Vec<_> = (0..40).map(|index| take(&client, &format!("n:{index}"))).collect();
        let renewed = client.counters().renewed;
        eventually(LIMIT, || client.counters().renewed >= renewed + 3);
        server.stop();
        // One after the other, all the while. Each may take 50 ms, which would delay who reads events.
        let dropping = std::thread::spawn(move || {
            for lease in dropped {
                drop(lease);
                std::thread::sleep(ms(20));
            }
        });
        let mut ends = HashMap::new();
        let (mut warned, mut lost) = (Vec::new(), 0);
        while lost < held.len() {
            // Not once: a reply that was sent before the server stood still is read after that.
            for lease in held.iter().filter(|lease| lease.is_valid()) {
                ends.insert(lease.fence(), Instant::now() + lease.remaining());
            }
            let Some(event) = events.next_within(ms(20)).unwrap() else { continue };
            match event.kind {
                EventKind::AtRisk => warned.push(event.fence),
                EventKind::Lost(reason) => {
                    assert_eq!(reason, LossReason::Expired);
                    assert!(warned.contains(&event.fence), "lost without a warning: {event:?}");
                    let late = Instant::now().saturating_duration_since(ends[&event.fence]);
                    assert!(late < ms(20), "{event:?} came {late:?} late");
                    lost += 1;
                }
                EventKind::ReleasedLate => {}
                other => panic!("{other:?}"),
            }
        }
        server.cont();
        dropping.join().unwrap();
        eventually(LIMIT, || server.cmd(&["KEYS", "n:*"]) == Value::Array(Vec::new()));
    });
}

#[test]
fn c9_renewal_goes_on_beside_a_connection_that_went_dead_with_a_release_on_it() {
    unless_starved(STALL, || {
        let server = Server::start();
        let mut proxy = Proxy::start(server.port());
        let client = Client::open(&server.url_through(proxy.port())).unwrap();
        let events = client.events().unwrap();
        let held = client.lock("held").ttl(ms(600)).acquire().unwrap();
        let lease = take(&client, "n");
        eventually(LIMIT, || client.counters().renewed >= 1);
        proxy.set_only(&give(), Mode::SwallowReplies);
        drop(lease);
        let renewed = client.counters().renewed;
        eventually(LIMIT, || client.counters().renewed >= renewed + 5);
        assert!(held.is_valid());
        // Nobody waits for that reply for ever.
        eventually(LIMIT, || client.counters().released_late == 1);
        while let Some(event) = events.try_next().unwrap() {
            assert!(!matches!(event.kind, EventKind::Lost(_)), "{event:?}");
        }
        proxy.set(Mode::Pass);
        held.release().unwrap();
    });
}

#[test]
fn c14_closing_ends_in_time_when_a_reply_does_not_come() {
    let server = Server::start();
    let client = Client::open(&format!("{}?close_timeout=300ms", server.url())).unwrap();
    // The server knows the script.
    take(&client, "n").release().unwrap();
    let lease = take(&client, "n");
    server.stop();
    drop(lease);
    let watch = Stopwatch::start();
    client.close().unwrap();
    watch.assert_at_least(ms(290));
    watch.assert_at_most(ms(300), ms(250));
    server.cont();
    eventually(LIMIT, || !exists(&server, "n"));
}

#[test]
fn letting_go_works_through_tls_and_unix_sockets() {
    let server = Server::builder().unix().start();
    let client = open(&server.unix_url());
    (0..200).for_each(|_| drop(take(&client, "n")));
    assert_eq!((client.counters().busy, client.counters().released_late), (0, 0));
    #[cfg(feature = "tls")]
    {
        let server = Server::builder().tls().start();
        let client = open(&server.tls_url());
        for index in 0..200 {
            drop(take(&client, "n"));
            drop(take(&client, &format!("n:{index}")));
        }
        eventually(LIMIT, || server.cmd(&["KEYS", "n*"]) == Value::Array(Vec::new()));
        assert_eq!((client.counters().busy, client.counters().released_late), (0, 0));
    }
}
