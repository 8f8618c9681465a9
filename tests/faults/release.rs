//! Giving back and extending when replies are lost or late.

use std::time::Duration;

use kit::scripts::{EXTEND, GIVE};
use kit::*;
use leasehold::{Client, ErrorKind, Lease};
use redis::Value;

const LIMIT: Duration = Duration::from_secs(10);

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// What a request that runs this script has in it.
fn mark(script: &str) -> Vec<u8> {
    redis::Script::new(script).get_hash().into()
}

/// A client behind the proxy, whose scripts the server knows already.
fn open(server: &Server, proxy: &Proxy, query: &str) -> Client {
    let client = Client::open(&format!("{}?{query}", server.url_through(proxy.port()))).unwrap();
    let lease = client.lock("warm-up").try_acquire().unwrap().unwrap();
    lease.extend().unwrap();
    lease.release().unwrap();
    client
}

fn take(client: &Client, ttl: Duration) -> Lease {
    client.lock("lock").ttl(ttl).renew(false).try_acquire().unwrap().expect("it is free")
}

fn holder(server: &Server) -> Option<String> {
    redis::from_redis_value(server.cmd(&["GET", "lock"])).unwrap()
}

fn ttl_left(server: &Server) -> i64 {
    redis::from_redis_value(server.cmd(&["PTTL", "lock"])).unwrap()
}

#[test]
fn c6_a_release_whose_reply_was_lost_is_sent_again_and_is_released() {
    for end in [End::Fin, End::Reset] {
        let server = Server::start();
        let mut proxy = Proxy::start(server.port());
        let client = open(&server, &proxy, "");
        let lease = take(&client, LIMIT);
        proxy.set_only(&mark(GIVE), Mode::LoseReply(end));
        lease.release().unwrap();
        assert_eq!(proxy.mode(), Mode::Pass, "the reply was lost");
        assert_eq!(holder(&server), None);
        assert_eq!(client.counters().unknown, 1);
    }
}

#[test]
fn c6_a_release_that_was_cut_on_its_way_is_sent_again() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    let client = open(&server, &proxy, "");
    let lease = take(&client, LIMIT);
    proxy.set_only(&mark(GIVE), Mode::CutRequest(60));
    lease.release().unwrap();
    assert_eq!(client.counters().unknown, 1);
    assert_eq!(holder(&server), None);
}

#[test]
fn c5_a_lost_reply_to_the_release_of_what_was_never_known_to_be_valid_is_unknown() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    let client = open(&server, &proxy, "");
    let (token, fence) = take(&client, LIMIT).detach().unwrap();
    let lease = client.lock("lock").ttl(LIMIT).attach(token, fence).unwrap();
    proxy.set_only(&mark(GIVE), Mode::LoseReply(End::Fin));
    assert_eq!(lease.release().unwrap_err().kind(), ErrorKind::Unknown);
    assert_eq!(holder(&server), None);
}

#[test]
fn c6_a_release_that_does_not_get_through_is_unknown_by_the_deadline_and_done_later() {
    unless_starved(STALL, || {
        let server = Server::start();
        let mut proxy = Proxy::start(server.port());
        let client = open(&server, &proxy, "io_timeout=300ms");
        let events = client.events().unwrap();
        let lease = take(&client, Duration::from_secs(60));
        proxy.set_only(&mark(GIVE), Mode::Silent);
        let watch = Stopwatch::start();
        let error = lease.release().unwrap_err();
        watch.assert_at_most(ms(300), ms(50));
        assert_eq!(error.kind(), ErrorKind::Unknown);
        assert!(holder(&server).is_some());
        proxy.set(Mode::Pass);
        eventually(LIMIT, || holder(&server).is_none());
        assert_eq!(events.try_next().unwrap(), None, "a release is no loss");
    });
}

#[test]
fn c5_a_give_that_arrives_late_never_removes_the_lock_of_another() {
    unless_starved(STALL, || {
        let server = Server::start();
        let mut proxy = Proxy::start(server.port());
        let client = open(&server, &proxy, "io_timeout=200ms");
        let lease = take(&client, LIMIT);
        let fence = lease.fence();
        proxy.set_only(&mark(GIVE), Mode::HoldRequests);
        assert_eq!(lease.release().unwrap_err().kind(), ErrorKind::Unknown);
        assert!(proxy.held() > 0);
        server.cmd(&["DEL", "lock"]);
        let other = Client::open(&server.url()).unwrap();
        let theirs = take(&other, LIMIT);
        assert!(theirs.fence() > fence);
        let mut watch = server.watch();
        proxy.deliver();
        eventually(LIMIT, || !watch.client_commands().is_empty());
        assert_eq!(holder(&server), Some(theirs.token().to_string()));
        theirs.release().unwrap();
    });
}

#[test]
fn c6_a_release_after_a_longer_extension_is_owed_for_as_long_as_that_lasts() {
    unless_starved(STALL, || {
        let server = Server::start();
        let mut proxy = Proxy::start(server.port());
        let client = open(&server, &proxy, "io_timeout=400ms");
        let lease = take(&client, ms(500));
        lease.extend_for(Duration::from_secs(60)).unwrap();
        proxy.set(Mode::Silent);
        assert_eq!(lease.release().unwrap_err().kind(), ErrorKind::Unknown);
        // Well past the lock's own ttl.
        std::thread::sleep(ms(1000));
        assert!(holder(&server).is_some());
        proxy.set(Mode::Pass);
        eventually(LIMIT, || holder(&server).is_none());
    });
}

#[test]
fn c6_an_extension_that_is_not_confirmed_leaves_the_lease_as_valid_as_it_was() {
    unless_starved(STALL, || {
        let server = Server::start();
        let mut proxy = Proxy::start(server.port());
        let client = open(&server, &proxy, "io_timeout=500ms");
        let lease = take(&client, LIMIT);
        let before = lease.remaining();
        for mode in [Mode::SwallowReplies, Mode::Silent] {
            // A new connection asks first whether others guard the server.
            proxy.set(Mode::Pass);
            client.ping().unwrap();
            proxy.set_only(&mark(EXTEND), mode);
            let watch = Stopwatch::start();
            let error = lease.extend_for(LIMIT * 6).unwrap_err();
            watch.assert_at_most(ms(500), ms(50));
            assert_eq!(error.kind(), ErrorKind::Unknown);
            assert!(lease.is_valid() && lease.remaining() < before);
        }
        proxy.set(Mode::Pass);
        lease.extend_for(LIMIT * 6).unwrap();
        assert!(lease.remaining() > LIMIT * 5);
        // A lost reply costs a second try and nothing else.
        proxy.set_only(&mark(EXTEND), Mode::LoseReply(End::Reset));
        lease.extend().unwrap();
        assert_eq!(proxy.mode(), Mode::Pass, "the reply was lost");
    });
}

#[test]
fn c3_an_extension_that_lands_late_never_shortens_a_later_one() {
    unless_starved(STALL, || {
        let server = Server::start();
        let mut proxy = Proxy::start(server.port());
        let client = open(&server, &proxy, "io_timeout=200ms");
        let lease = take(&client, LIMIT);
        proxy.set_only(b"$4\r\n4321\r\n", Mode::HoldRequests);
        assert_eq!(lease.extend_for(ms(4321)).unwrap_err().kind(), ErrorKind::Unknown);
        lease.extend_for(Duration::from_secs(60)).unwrap();
        let mut watch = server.watch();
        proxy.deliver();
        assert!(watch.client_commands().iter().any(|sent| sent.contains("\"4321\"")));
        assert!(ttl_left(&server) > 50_000);
        assert!(lease.remaining() > Duration::from_secs(50));
    });
}

#[test]
fn c3_a_short_extension_never_ends_a_longer_validity_even_if_its_reply_is_late() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    let client = open(&server, &proxy, "");
    let lease = take(&client, LIMIT * 3);
    proxy.set(Mode::DelayReplies(ms(100)));
    lease.extend_for(ms(20)).unwrap();
    assert!(lease.remaining() > LIMIT);
    assert_eq!(client.counters().lost, 0);
    assert!(ttl_left(&server) > 10_000);
}

#[test]
fn c5_what_is_left_of_a_let_go_lease_is_its_ttl_whatever_becomes_of_replies() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    let client = open(&server, &proxy, "");
    let lease = take(&client, LIMIT);
    proxy.set_only(&mark(EXTEND), Mode::LoseReply(End::Fin));
    lease.let_expire_in(ms(1500)).unwrap();
    assert_eq!(proxy.mode(), Mode::Pass, "the reply was lost");
    assert!(matches!(server.cmd(&["PTTL", "lock"]), Value::Int(..=1500)));
    eventually(LIMIT, || holder(&server).is_none());
}
