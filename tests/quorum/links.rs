//! Nodes of a quorum that are reached badly, and nodes that refuse.

use std::time::{Duration, Instant};

use crate::stores::{LIMIT, Quorum, STALL, ms, open, secs};
use kit::{End, Mode, Server, Stopwatch, eventually, unless_starved};
use leasehold::{Client, Config, ErrorKind, Lease};
use redis::Value;

#[track_caller]
fn taken(client: &Client, name: &str) -> Lease {
    client.lock(name).wait(LIMIT).acquire().unwrap()
}

fn kind<T>(result: Result<T, leasehold::Error>) -> ErrorKind {
    result.err().expect("an error").kind()
}

/// A few turns, each of a longer fence than the one before.
#[track_caller]
fn turns(client: &Client, name: &str, count: usize) {
    let mut last = 0;
    for _ in 0..count {
        let lease = taken(client, name);
        assert!(lease.fence() > last && lease.is_valid());
        last = lease.fence();
        lease.extend().unwrap();
        lease.release().unwrap();
    }
}

#[test]
fn nobody_waits_for_a_slow_minority_which_has_the_locks_all_the_same() {
    unless_starved(STALL, || {
        for slow in [1, 2] {
            let mut quorum = Quorum::builder(5).with_proxies().start();
            let client = quorum.client();
            quorum.warm_up(&client);
            for proxy in quorum.proxies.iter_mut().take(slow) {
                proxy.set(Mode::DelayReplies(ms(60)));
            }
            turns(&client, "n", 1);
            let watch = Stopwatch::start();
            turns(&client, "m", 1);
            watch.assert_at_most(ms(60), ms(60));
            // Late replies are to what is over, for this name and for others.
            turns(&client, "n", 3);
            turns(&client, "m", 3);
            quorum.warm_up(&client);
            quorum.eventually_free("n");
            assert_eq!(client.counters().unknown, 0);
        }
    });
}

/// Nor until the next time that all of them are waited for. Where one is waited for a little, which is
/// 2 ms, no take is faster than that; where none is, many are, however busy the machine is.
#[test]
fn a_slow_minority_is_soon_not_even_waited_for_a_little() {
    const LEARNT: usize = 140;
    const A_LITTLE: Duration = ms(2);
    let took = |client: &Client| {
        let start = Instant::now();
        let lease = taken(client, "n");
        let took = start.elapsed();
        lease.release().unwrap();
        took
    };
    unless_starved(STALL, || {
        let mut quorum = Quorum::builder(3).with_proxies().start();
        let client = quorum.client();
        for slow in 0..3 {
            quorum.warm_up(&client);
            turns(&client, "n", LEARNT);
            quorum.proxies[slow].set(Mode::DelayReplies(ms(20)));
            for when in ["soon", "later"] {
                let mut all: Vec<_> = (0..61).map(|_| took(&client)).collect();
                all.sort_unstable();
                assert!(all[6] < A_LITTLE, "node {slow}, {when}: {all:?}");
                turns(&client, "n", LEARNT);
            }
            quorum.proxies[slow].set(Mode::Pass);
        }
    });
}

/// Its scripts too: nobody would hear in time that it lacks them.
#[test]
fn a_node_that_is_always_later_than_the_others_learns_what_it_needs() {
    let mut quorum = Quorum::builder(3).with_proxies().start();
    quorum.proxies[2].set(Mode::DelayReplies(ms(20)));
    let client = quorum.client();
    eventually(LIMIT, || {
        let lease = taken(&client, "n");
        std::thread::sleep(ms(100));
        let everywhere = quorum.taken_on("n") == 3;
        lease.release().unwrap();
        everywhere
    });
}

#[test]
fn a_slow_majority_is_waited_for() {
    let mut quorum = Quorum::builder(3).with_proxies().start();
    let client = quorum.client();
    quorum.warm_up(&client);
    quorum.proxies.iter_mut().take(2).for_each(|proxy| proxy.set(Mode::DelayReplies(ms(30))));
    turns(&client, "n", 3);
    assert_eq!(client.counters().unknown, 0);
}

/// Replies that come after the decision that there is no majority belong to what has been given up.
#[test]
fn c6_replies_that_come_too_late_harm_nothing() {
    unless_starved(STALL, || {
        let mut quorum = Quorum::builder(3).with_proxies().start();
        let config = quorum.config().io_timeout(ms(300));
        let client = Client::with_config(config).unwrap();
        quorum.warm_up(&client);
        for _ in 0..3 {
            for proxy in quorum.proxies.iter_mut().take(2) {
                proxy.set(Mode::DelayReplies(ms(250)));
            }
            assert_eq!(kind(client.lock("n").try_acquire()), ErrorKind::NoQuorum);
            quorum.proxies.iter_mut().for_each(|proxy| proxy.set(Mode::Pass));
            turns(&client, "n", 3);
            turns(&client, "m", 3);
        }
        quorum.eventually_free("n");
    });
}

#[test]
fn a_node_that_dribbles_is_no_hindrance() {
    unless_starved(STALL, || {
        let mut quorum = Quorum::builder(3).with_proxies().start();
        let client = quorum.brisk_client();
        quorum.warm_up(&client);
        quorum.proxies[0].set(Mode::Dribble(ms(30)));
        let watch = Stopwatch::start();
        turns(&client, "n", 10);
        watch.assert_at_most(secs(1), ms(500));
        quorum.proxies[0].set(Mode::Pass);
        quorum.eventually_free("n");
        turns(&client, "n", 3);
    });
}

#[test]
fn c6_connections_may_be_cut_in_the_middle_of_anything() {
    let mut quorum = Quorum::builder(5).with_proxies().start();
    let client = quorum.client();
    quorum.warm_up(&client);
    let cuts = [Mode::LoseReply(End::Fin), Mode::LoseReply(End::Reset), Mode::CutRequest(40)];
    for cut in cuts {
        let mut strike = |nodes: &[usize]| {
            nodes.iter().for_each(|node| quorum.proxies[*node].set(cut));
        };
        for nodes in [&[0][..], &[0, 1], &[0, 1, 2]] {
            strike(nodes);
            let lease = taken(&client, "n");
            strike(nodes);
            lease.extend().unwrap();
            strike(nodes);
            lease.release().unwrap();
            // Whatever was left, the next one has it.
            let lease = taken(&client, "n");
            assert!(lease.is_valid());
            lease.release().unwrap();
        }
        quorum.proxies.iter_mut().for_each(|proxy| proxy.set(Mode::Pass));
    }
    quorum.eventually_free("n");
}

#[test]
fn c6_scripts_that_were_flushed_on_one_node_are_loaded_again() {
    let quorum = Quorum::start(3);
    let client = quorum.client();
    quorum.warm_up(&client);
    for _ in 0..5 {
        let lease = taken(&client, "n");
        quorum.nodes[0].cmd(&["SCRIPT", "FLUSH"]);
        lease.extend().unwrap();
        quorum.nodes[0].cmd(&["SCRIPT", "FLUSH"]);
        lease.release().unwrap();
        quorum.eventually_free("n");
    }
    quorum.warm_up(&client);
    assert_eq!(client.counters().unknown, 0);
}

/// What one node refuses is one vote less; what most refuse is the reason.
fn refused(wanted: ErrorKind, refuse: impl Fn(&Server), allow: impl Fn(&Server)) {
    unless_starved(STALL, || {
        let quorum = Quorum::start(3);
        let config = quorum.config().io_timeout(secs(3));
        let client = Client::with_config(config).unwrap();
        quorum.warm_up(&client);
        refuse(&quorum.nodes[0]);
        turns(&client, "n", 5);
        refuse(&quorum.nodes[1]);
        let error = client.lock("n").try_acquire().unwrap_err();
        assert_eq!(error.kind(), wanted, "{error}");
        println!("{error}");
        quorum.nodes.iter().take(2).for_each(&allow);
        // Some have lost their data by that.
        quorum.client().initialize(true).unwrap();
        turns(&client, "n", 5);
        quorum.eventually_free("n");
    });
}

#[test]
fn c13_a_key_of_another_type_is_one_vote_less() {
    refused(
        ErrorKind::WrongType,
        |node| drop(node.cmd(&["LPUSH", "n", "x"])),
        |node| drop(node.cmd(&["DEL", "n"])),
    );
}

#[test]
fn c13_a_key_without_a_ttl_is_one_vote_less() {
    refused(
        ErrorKind::WrongType,
        |node| drop(node.cmd(&["SET", "n", "x"])),
        |node| drop(node.cmd(&["DEL", "n"])),
    );
}

#[test]
fn c13_a_node_without_memory_is_one_vote_less() {
    refused(
        ErrorKind::NoQuorum,
        |node| node.config_set("maxmemory", "1"),
        |node| node.config_set("maxmemory", "0"),
    );
}

#[test]
fn c13_a_replica_is_one_vote_less() {
    let master = Server::start();
    let port = master.port().to_string();
    refused(
        ErrorKind::ReadOnly,
        |node| {
            node.cmd(&["REPLICAOF", "127.0.0.1", &port]);
            eventually(LIMIT, || node.info("replication").contains("master_link_status:up"));
        },
        |node| drop(node.cmd(&["REPLICAOF", "NO", "ONE"])),
    );
}

#[test]
fn c13_a_user_who_may_not_is_one_vote_less() {
    refused(
        ErrorKind::Permission,
        |node| drop(node.cmd(&["ACL", "SETUSER", "default", "-evalsha"])),
        |node| drop(node.cmd(&["ACL", "SETUSER", "default", "+@all"])),
    );
}

/// Leases are extended and released although nodes are out of memory.
#[test]
fn memory_is_not_needed_to_extend_and_to_release() {
    let quorum = Quorum::start(3);
    let client = quorum.client();
    quorum.warm_up(&client);
    let lease = taken(&client, "n");
    eventually(LIMIT, || quorum.taken_on("n") == 3);
    quorum.nodes.iter().for_each(|node| node.config_set("maxmemory", "1"));
    lease.extend().unwrap();
    lease.release().unwrap();
    quorum.eventually_free("n");
}

#[test]
fn a_node_that_nobody_can_find_is_a_node_that_is_down() {
    let nodes = [Server::start(), Server::start()];
    let urls = format!("{},{}", nodes[0].url(), nodes[1].url());
    let good = open(&format!("{urls},{}", Server::start().url()));
    assert!(good.initialize(false).is_err(), "the third one is gone");
    let config = Config::from_url(&format!("{urls},redis://nowhere.invalid?max_ttl=1s")).unwrap();
    let client = Client::with_config(config.io_timeout(secs(10))).unwrap();
    assert!(client.initialize(false).is_err());
    let lease = taken(&client, "n");
    lease.extend().unwrap();
    lease.release().unwrap();
    let free = |node: &Server| node.cmd(&["EXISTS", "n"]) == Value::Int(0);
    eventually(LIMIT, || nodes.iter().all(free));
}
