//! Taking a lock when nobody knows whether it was taken: unknown is not held, and what may have
//! been left behind is cleaned up.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kit::scripts::{GIVE, TAKE};
use kit::*;
use leasehold::{Backoff, Client, ErrorKind, Lease, WaitMode};
use redis::Value;

use crate::far::{Far, Said, on_each_server};
use crate::stores::ms;

const LIMIT: Duration = Duration::from_secs(10);

on_each_server! {
    c6_a_take_whose_reply_was_lost_is_made_anew,
    c6_a_swallowed_reply_is_unknown_by_the_deadline_and_the_lock_goes_when_the_network_heals,
    c6_a_ghost_of_a_closed_client_is_gone_after_one_ttl,
    c6_a_take_that_was_cut_on_its_way_is_made_anew,
    c6_a_wait_goes_on_after_an_unknown_outcome,
}

fn c6_a_take_whose_reply_was_lost_is_made_anew(far: &mut Far) {
    for end in [End::Fin, End::Reset] {
        let client = far.warm("");
        far.set_only(Said::Take, Mode::LoseReply(end));
        let lease = client.lock("lock").try_acquire().unwrap().expect("nobody else wants it");
        far.assert_holds(&lease);
        assert_eq!(client.counters().unknown, 1);
        lease.release().unwrap();
        assert_eq!(far.holder("lock"), None);
    }
}

fn c6_a_swallowed_reply_is_unknown_by_the_deadline_and_the_lock_goes_when_the_network_heals(
    far: &mut Far,
) {
    let client = far.warm("io_timeout=400ms");
    far.proxy.set(Mode::SwallowReplies);
    let error = std::thread::scope(|scope| {
        let call = scope.spawn(|| {
            let watch = Stopwatch::start();
            let error = client.lock("lock").try_acquire().map(drop).unwrap_err();
            watch.assert_at_most(ms(400), ms(50));
            error
        });
        eventually(LIMIT, || far.holder("lock").is_some());
        far.proxy.set(Mode::Silent);
        call.join().unwrap()
    });
    assert_eq!(error.kind(), ErrorKind::Unknown);
    assert!(error.is_retriable());
    let before = far.proxy.accepted();
    eventually(LIMIT, || far.proxy.accepted() >= before + 2);
    assert!(far.holder("lock").is_some(), "nothing has reached the server since");
    far.proxy.set(Mode::Pass);
    eventually(LIMIT, || far.holder("lock").is_none());
    assert!(client.lock("lock").try_acquire().unwrap().is_some());
}

fn c6_a_ghost_of_a_closed_client_is_gone_after_one_ttl(far: &mut Far) {
    let landed = kit::eventually_some(LIMIT * 3, || {
        let client = far.warm("io_timeout=200ms");
        far.set_only(Said::Take, Mode::HoldRequests);
        let error = client.lock("lock").ttl(ms(700)).try_acquire().map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unknown);
        assert_eq!(far.holder("lock"), None);
        client.close_within(ms(100)).unwrap();
        let landed = Stopwatch::start();
        far.proxy.deliver();
        if !far.may_drop_what_arrives_late() {
            eventually(LIMIT, || far.holder("lock").is_some());
            return Some(landed);
        }
        let has_landed = (0..100).any(|_| far.holder("lock").is_some());
        has_landed.then_some(landed)
    });
    eventually(LIMIT, || far.holder("lock").is_none());
    landed.assert_at_most(far.free_after(ms(700)), ms(300));
}

fn c6_a_take_that_was_cut_on_its_way_is_made_anew(far: &mut Far) {
    for length in [1, 20, 80] {
        let client = far.warm("");
        far.set_only(Said::Take, Mode::CutRequest(length));
        let lease = client.lock("lock").try_acquire().unwrap().expect("nobody else wants it");
        far.assert_holds(&lease);
        assert_eq!(client.counters().unknown, 1, "the cut struck");
        lease.release().unwrap();
    }
}

fn c6_a_wait_goes_on_after_an_unknown_outcome(far: &mut Far) {
    let client = far.warm("io_timeout=400ms");
    let held = far.near.lock("lock").try_acquire().unwrap().unwrap();
    let lease = std::thread::scope(|scope| {
        // Less than twice the io_timeout: the try that fails must not be taken for a measure of
        // how long the last one will need.
        let call = scope.spawn(|| {
            let spin = WaitMode::Spin(Backoff::default());
            client.lock("lock").wait_mode(spin).acquire_within(ms(900))
        });
        eventually(LIMIT, || client.counters().busy > 0);
        far.proxy.set(Mode::SwallowReplies);
        eventually(LIMIT, || {
            // The warm-up was granted, all others were answered but for one.
            let under_way = || {
                let counters = client.counters();
                (counters.attempts == counters.busy + 2).then_some(counters.attempts)
            };
            let before = under_way();
            std::thread::sleep(ms(100));
            before.is_some() && under_way() == before
        });
        far.proxy.set(Mode::Pass);
        held.release().unwrap();
        call.join().unwrap().unwrap()
    });
    far.assert_holds(&lease);
    assert!(client.counters().unknown >= 1 || far.looks_before_it_takes());
}

/// What a request that runs this script has in it.
fn mark(script: &str) -> String {
    kit::scripts::digest(script)
}

/// A client behind the proxy, whose scripts the server knows already.
fn open(server: &Server, proxy: &Proxy, query: &str) -> Client {
    let client = Client::open(&format!("{}?{query}", server.url_through(proxy.port()))).unwrap();
    client.lock("warm-up").try_acquire().unwrap().unwrap().release().unwrap();
    client
}

fn holder(server: &Server, name: &str) -> Option<String> {
    redis::from_redis_value(server.cmd(&["GET", name])).unwrap()
}

#[track_caller]
fn assert_holds(server: &Server, lease: &Lease) {
    assert!(lease.is_valid());
    assert_eq!(holder(server, "lock"), Some(lease.token().to_string()));
}

#[test]
fn c6_a_take_whose_reply_was_lost_is_given_and_made_anew() {
    for end in [End::Fin, End::Reset] {
        let server = Server::start();
        let mut proxy = Proxy::start(server.port());
        let client = open(&server, &proxy, "");
        let mut watch = server.watch();
        proxy.set_only(mark(TAKE).as_bytes(), Mode::LoseReply(end));
        let lease = client.lock("lock").try_acquire().unwrap().expect("nobody else wants it");
        assert_holds(&server, &lease);
        assert_eq!(client.counters().unknown, 1);

        // The call gives the first token, or the keeper does, if it comes first.
        let mut seen = watch.client_commands();
        eventually(LIMIT, || {
            seen.extend(watch.client_commands());
            seen.iter().filter(|command| command.contains(&mark(TAKE))).count() >= 2
        });
        let takes: Vec<_> = seen.iter().filter(|command| command.contains(&mark(TAKE))).collect();
        assert_eq!(takes.len(), 2, "{seen:#?}");
        let token = lease.token().to_string();
        assert!(!takes[0].contains(&token), "an unknown token was used again: {seen:#?}");
        assert!(takes[1].contains(&token));
        let second = seen.iter().position(|command| command == takes[1]).unwrap();
        let is_give = |command: &String| command.contains(&mark(GIVE));
        assert!(seen[..second].iter().any(is_give), "the old token is given first: {seen:#?}");
        assert!(
            !seen.iter().any(|command| command.contains(&mark(GIVE)) && command.contains(&token))
        );
        assert_holds(&server, &lease);
        lease.release().unwrap();
        assert_eq!(holder(&server, "lock"), None);
    }
}

/// A take that is kept on its way until its client has given up, and the token that it carries.
fn delayed_take(server: &Server, proxy: &mut Proxy, client: &Client, ttl: Duration) {
    proxy.set_only(mark(TAKE).as_bytes(), Mode::HoldRequests);
    let error = client.lock("lock").ttl(ttl).try_acquire().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown);
    assert!(proxy.held() > 0);
    assert_eq!(holder(server, "lock"), None);
}

#[test]
fn c6_a_take_that_lands_after_its_call_gave_up_is_given_again() {
    unless_starved(STALL, || {
        let server = Server::start();
        let mut proxy = Proxy::start(server.port());
        let client = open(&server, &proxy, "io_timeout=200ms");
        let mut watch = server.watch();
        delayed_take(&server, &mut proxy, &client, Duration::from_secs(60));
        // The first give finds nothing, which proves nothing.
        eventually(LIMIT, || watch.client_commands().iter().any(|sent| sent.contains(&mark(GIVE))));
        proxy.deliver();
        let took = watch.client_commands().iter().any(|sent| sent.contains(&mark(TAKE)));
        assert!(took, "the delayed take was executed");
        eventually(LIMIT, || holder(&server, "lock").is_none());
        assert_eq!(client.counters().granted, 1, "the warm-up and nothing else");
    });
}

#[test]
fn c6_the_giving_of_a_ghost_never_touches_another_holder() {
    unless_starved(STALL, || {
        let server = Server::start();
        let mut proxy = Proxy::start(server.port());
        let client = open(&server, &proxy, "io_timeout=200ms");
        delayed_take(&server, &mut proxy, &client, Duration::from_secs(60));
        let other = Client::open(&server.url()).unwrap();
        let lease = other.lock("lock").ttl(Duration::from_secs(50)).try_acquire().unwrap().unwrap();
        let mut watch = server.watch();
        proxy.deliver();
        let mut gives = 0;
        eventually(LIMIT, || {
            let seen = watch.client_commands();
            gives += seen.iter().filter(|command| command.contains(&mark(GIVE))).count();
            gives >= 2
        });
        assert_holds(&server, &lease);
        // C4: nor did the losing take touch the ttl.
        let Value::Int(left) = server.cmd(&["PTTL", "lock"]) else { panic!() };
        assert!((1..=50_000).contains(&left), "{left}");
        lease.release().unwrap();
    });
}

#[test]
fn c6_a_wait_with_many_unknown_outcomes_does_not_give_all_of_them_for_ever() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    let client = open(&server, &proxy, "");
    let rival = Client::open(&server.url()).unwrap();
    let held = rival.lock("lock").try_acquire().unwrap().unwrap();
    let lock = client.lock("lock").wait_mode(WaitMode::Spin(Backoff::default()));
    std::thread::scope(|scope| {
        let call = scope.spawn(|| lock.acquire_within(LIMIT).map(drop).unwrap());
        for unknown in 1..=20 {
            proxy.set_only(mark(TAKE).as_bytes(), Mode::LoseReply(End::Fin));
            eventually(LIMIT, || client.counters().unknown >= unknown);
        }
        // Between two tries, and not in the middle of one.
        let busy = client.counters().busy;
        eventually(LIMIT, || client.counters().busy >= busy + 2);
        let mut watch = server.watch();
        let mut seen = Vec::new();
        eventually(LIMIT, || {
            seen.extend(watch.client_commands());
            seen.iter().filter(|command| command.contains(&mark(TAKE))).count() >= 10
        });
        // What the keeper sends is in it too: less and less, but never with every try.
        let gives = seen.iter().filter(|command| command.contains(&mark(GIVE))).count();
        assert!(gives < 120, "{gives} gives with 10 tries");
        held.release().unwrap();
        call.join().unwrap();
    });
}

/// A proxy whose server is gone: it takes connections, greets, reads a request and hangs up.
#[test]
fn c6_what_a_long_outage_leaves_to_give_does_not_pile_up_in_every_try() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let largest = Arc::new(AtomicUsize::new(0));
    std::thread::spawn({
        let largest = Arc::clone(&largest);
        let taken = mark(TAKE);
        move || {
            for (index, mut stream) in listener.incoming().map_while(Result::ok).enumerate() {
                let mut request = vec![0; 1 << 20];
                stream.set_read_timeout(Some(LIMIT)).unwrap();
                // Who connects asks first whether others guard the server.
                let _ = stream.read(&mut request);
                let _ = stream.write_all(b"$-1\r\n");
                let count = stream.read(&mut request).unwrap_or(0);
                if index == 0 {
                    // It has answered once, so that a wait outlasts the outage.
                    let _ = stream.write_all(b"$15\r\nB 60000 1 0 0 0\r\n");
                } else if request[..count].windows(taken.len()).any(|part| part == taken.as_bytes())
                {
                    largest.fetch_max(count, Ordering::SeqCst);
                }
            }
        }
    });
    let client = Client::open(&url).unwrap();
    let spin = WaitMode::Spin(Backoff::default().longest(ms(2)));
    let lock = client.lock("lock").ttl(Duration::from_secs(60)).wait_mode(spin);
    assert!(lock.try_acquire().unwrap().is_none());
    let ended = lock.wait(LIMIT * 6).acquire_unless(|| client.counters().unknown > 100);
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Interrupted);
    let largest = largest.load(Ordering::SeqCst);
    assert!((4_000..8_000).contains(&largest), "{largest} bytes: some are given, and not all");
}
