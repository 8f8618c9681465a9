//! What a node of a quorum is owed that could not be told of a give.

use std::time::{Duration, Instant};

use crate::queueing::{NAME, in_line, judge};
use crate::stores::{LIMIT, Quorum, ms, secs};
use kit::{Cluster, End, Mode, Server, eventually};
use leasehold::{Client, Config, ErrorKind};
use redis::Value;

/// Three nodes through proxies, and a client that has connections to all of them, and has locked
/// nothing for long.
fn start() -> (Quorum, Client) {
    start_with(secs(20))
}

fn start_with(io_timeout: Duration) -> (Quorum, Client) {
    let quorum = Quorum::builder(3).with_proxies().start();
    let config = Config::from_url(&quorum.url()).unwrap().io_timeout(io_timeout);
    let client = Client::with_config(config.close_timeout(secs(10))).unwrap();
    eventually(LIMIT, || {
        let lease = client.lock("warm-up").ttl(secs(1)).wait(LIMIT).acquire().unwrap();
        std::thread::sleep(ms(50));
        let everywhere = quorum.taken_on("warm-up") == 3;
        lease.release().unwrap();
        quorum.eventually_free("warm-up");
        everywhere
    });
    (quorum, client)
}

/// One for which no node that answers is too late.
fn patient(url: &str) -> Client {
    let config = Config::from_url(url).unwrap();
    let config = config.io_timeout(secs(20)).close_timeout(secs(10));
    Client::with_config(config).unwrap()
}

fn cut(quorum: &mut Quorum, nodes: &[usize]) {
    for node in nodes {
        quorum.proxies[*node].set(Mode::Refuse);
        quorum.proxies[*node].close_all(End::Reset);
    }
}

/// What is sent there gets lost, and so do its connections.
fn silence(quorum: &mut Quorum, nodes: &[usize]) {
    nodes.iter().for_each(|node| quorum.proxies[*node].set(Mode::Silent));
}

fn mend(quorum: &mut Quorum, nodes: &[usize]) {
    nodes.iter().for_each(|node| quorum.proxies[*node].set(Mode::Pass));
}

fn is_taken(node: &Server) -> bool {
    node.cmd(&["EXISTS", NAME]) == Value::Int(1)
}

/// The place of a wait that ended is given up on one connection, and again on another one, in front of
/// the next take. The reply on the first one must not be forgotten: the node would be taken for silent.
#[test]
fn a_node_whose_replies_come_on_several_connections_goes_on_being_asked() {
    let quorum = Quorum::builder(3).start();
    let (holder, client) = (patient(&quorum.url()), Client::open(&quorum.url()).unwrap());
    let _held = holder.lock(NAME).ttl(secs(60)).acquire().unwrap();
    for round in 0..6 {
        for _ in 0..2 {
            let error = client.lock(NAME).acquire_within(ms(200)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout);
            std::thread::sleep(ms(10));
        }
        std::thread::sleep(ms(300));
        let name = format!("other:{round}");
        let lease = client.lock(&name).ttl(secs(60)).acquire().unwrap();
        eventually(LIMIT, || quorum.taken_on(&name) == 3);
        lease.release().unwrap();
    }
}

/// Not only for the ttl with which it was taken.
#[test]
fn a_node_is_owed_a_release_for_as_long_as_the_lock_may_last_there() {
    let (mut quorum, client) = start();
    for part in [cut, silence] {
        let lease = client.lock(NAME).ttl(secs(1)).renew(false).acquire().unwrap();
        lease.extend_for(secs(60)).unwrap();
        eventually(LIMIT, || {
            let Value::Int(left) = quorum.nodes[2].cmd(&["PTTL", NAME]) else {
                panic!("no number")
            };
            left > 30_000
        });
        part(&mut quorum, &[2]);
        lease.release().unwrap();
        // Until the connection is given up, too.
        std::thread::sleep(secs(3));
        assert!(is_taken(&quorum.nodes[2]));
        mend(&mut quorum, &[2]);
        quorum.eventually_free(NAME);
    }
}

/// By then there is no time left in which it could be told of a give. A node has a twentieth of
/// `io_timeout`, 3 s here, to answer on a new connection: far more than its replies are late.
#[test]
fn c7_what_an_attempt_took_that_ends_at_its_deadline_is_given_long_before_its_ttl() {
    for replies in [Mode::DelayReplies(ms(600)), Mode::SwallowReplies] {
        let (mut quorum, client) = start_with(secs(60));
        quorum.proxies.iter_mut().take(2).for_each(|proxy| proxy.set(replies));
        let lock = client.lock(NAME).ttl(secs(60)).io_timeout(ms(300));
        assert_eq!(lock.try_acquire().unwrap_err().kind(), ErrorKind::NoQuorum);
        assert!(quorum.taken_on(NAME) >= 2, "they have granted it");
        let ended = Instant::now();
        if replies == Mode::SwallowReplies {
            mend(&mut quorum, &[0, 1]);
        }
        quorum.eventually_free(NAME);
        assert!(ended.elapsed() < secs(20), "{:?}", ended.elapsed());
    }
}

/// A client that listens is taken for a waiter by a node on which it has a place, and two such at the
/// head of a queue would be told for all others.
#[test]
fn no_place_is_left_where_a_waiter_was_that_has_had_its_turn() {
    for hold in [ms(0), secs(3)] {
        let (mut quorum, client) = start();
        let near: Vec<_> = quorum.nodes.iter().map(Server::url).collect();
        let near = patient(&near.join(","));
        let held = near.lock(NAME).wait(LIMIT).acquire().unwrap();
        std::thread::scope(|scope| {
            let turn = in_line(scope, client.lock(NAME).wait(secs(100)), hold);
            eventually(LIMIT, || quorum.waited_for_on(NAME) == 3);
            // It still listens to what is said there.
            quorum.proxies[2].set_only(b"EVALSHA", Mode::Silent);
            held.release().unwrap();
            judge(vec![turn.join().unwrap()]);
        });
        assert_eq!(quorum.waited_for_on(NAME), 1);
        mend(&mut quorum, &[2]);
        eventually(LIMIT, || quorum.waited_for_on(NAME) == 0);
        quorum.eventually_free(NAME);
    }
}

/// However short its ttl is: a place lasts longer.
#[test]
fn no_place_is_left_where_a_waiter_was_that_has_given_up() {
    for away in [&[2][..], &[1, 2]] {
        for part in [cut, silence] {
            let (mut quorum, client) = start();
            let near: Vec<_> = quorum.nodes.iter().map(Server::url).collect();
            let near = patient(&near.join(","));
            let held = near.lock(NAME).acquire().unwrap();
            std::thread::scope(|scope| {
                let lock = client.lock(NAME).ttl(secs(1)).wait(secs(2));
                let waiter = scope.spawn(move || lock.acquire());
                eventually(LIMIT, || quorum.waited_for_on(NAME) == 3);
                part(&mut quorum, away);
                assert!(waiter.join().unwrap().is_err());
            });
            std::thread::sleep(secs(3));
            eventually(LIMIT, || quorum.waited_for_on(NAME) == away.len());
            mend(&mut quorum, away);
            eventually(LIMIT, || {
                // Somebody has to come by.
                drop(client.lock("other").ttl(secs(1)).try_acquire());
                quorum.waited_for_on(NAME) == 0
            });
            held.release().unwrap();
        }
    }
}

/// Nobody listens any more who could be taken for a waiter, and its locks are over.
#[test]
fn c14_closing_does_not_wait_for_a_node_that_only_keeps_a_place() {
    let (mut quorum, client) = start();
    let near: Vec<_> = quorum.nodes.iter().map(Server::url).collect();
    let near = patient(&near.join(","));
    let held = near.lock(NAME).acquire().unwrap();
    std::thread::scope(|scope| {
        let lock = client.lock(NAME).ttl(secs(1)).wait(secs(2));
        let waiter = scope.spawn(move || lock.acquire());
        eventually(LIMIT, || quorum.waited_for_on(NAME) == 3);
        cut(&mut quorum, &[2]);
        assert!(waiter.join().unwrap().is_err());
    });
    std::thread::sleep(secs(3));
    client.lock("other").ttl(secs(1)).try_acquire().unwrap().unwrap().release().unwrap();
    let begun = Instant::now();
    client.close().unwrap();
    assert!(begun.elapsed() < secs(5), "{:?}", begun.elapsed());
    assert_eq!(quorum.waited_for_on(NAME), 1);
    held.release().unwrap();
    eventually(LIMIT, || quorum.waited_for_on(NAME) == 0);
}

/// A Cluster answers, or fails, before the others are read, and what it says is mostly not needed.
#[test]
fn a_cluster_is_owed_what_it_could_not_be_told() {
    let (cluster, nodes) = (Cluster::start(), [Server::start(), Server::start()]);
    let client = patient(&[nodes[0].url(), cluster.url(), nodes[1].url()].join(","));
    client.initialize(false).unwrap();
    let owner = cluster.server(cluster.node_of_key(NAME));
    let lock = client.lock(NAME).ttl(secs(60)).renew(false);

    let lease = lock.acquire().unwrap();
    eventually(LIMIT, || is_taken(owner));
    owner.cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
    owner.stop();
    lease.release().unwrap();
    owner.cont();
    eventually(LIMIT, || !is_taken(owner));

    // The same for a lease that goes out of scope.
    let mut lease = None;
    eventually(LIMIT, || {
        // It may be left alone for a while, after it has not answered.
        drop(lease.take());
        lease = Some(lock.clone().wait(LIMIT).acquire().unwrap());
        is_taken(owner)
    });
    owner.cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
    owner.stop();
    drop(lease);
    owner.cont();
    eventually(LIMIT, || !is_taken(owner));

    // The same for an attempt that failed.
    nodes.iter().for_each(|node| drop(node.cmd(&["SET", NAME, "another's", "PX", "100000"])));
    owner.cmd(&["ACL", "SETUSER", "default", "-del"]);
    eventually(LIMIT, || {
        assert!(lock.try_acquire().unwrap().is_none());
        is_taken(owner)
    });
    owner.cmd(&["ACL", "SETUSER", "default", "+del"]);
    eventually(LIMIT, || !is_taken(owner));
}
