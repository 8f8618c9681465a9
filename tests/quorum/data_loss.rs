//! Nodes of a quorum that forget what they granted, or whose clocks jump.

use std::time::Duration;

use crate::stores::{LIMIT, Quorum, STALL, ms, open, secs};
use kit::{Hold, Offset, Server, Stopwatch, eventually, history, unless_starved};
use leasehold::{Client, ErrorKind, Lease};
use redis::Value;

const HOUR: Duration = secs(3600);

fn taken(client: &Client, name: &str) -> Lease {
    client.lock(name).wait(LIMIT).acquire().unwrap()
}

fn knows(node: &Server, name: &str) -> bool {
    node.cmd(&["EXISTS", name]) == Value::Int(1)
}

/// A lease that nobody renews, on every node.
fn held_everywhere(quorum: &Quorum, client: &Client, ttl: Duration) -> Lease {
    loop {
        let lease = client.lock("n").ttl(ttl).renew(false).wait(LIMIT).acquire().unwrap();
        for _ in 0..50 {
            if quorum.taken_on("n") == quorum.nodes.len() {
                return lease;
            }
            std::thread::sleep(ms(2));
        }
        // A node was slow, or was asked for the first time.
        lease.release().unwrap();
        quorum.eventually_free("n");
    }
}

/// A majority loses its data while a lease is held: nobody else gets the lock before it is over.
fn assert_nobody_else(quorum: &Quorum, held: Lease, lose: impl FnOnce()) {
    let fence = held.fence();
    lose();
    let other = quorum.client();
    let watch = Stopwatch::start();
    let next = taken(&other, "n");
    assert!(!held.is_valid(), "two hold the lock after {:?}", watch.elapsed());
    assert!(next.fence() > fence);
    assert!(next.is_valid());
    drop(held);
    next.release().unwrap();
}

#[test]
fn nodes_that_come_back_empty_have_no_vote_until_what_they_forgot_is_over() {
    let mut quorum = Quorum::builder(3).max_ttl(secs(2)).start();
    let client = quorum.client();
    let held = held_everywhere(&quorum, &client, secs(2));
    let mut nodes = quorum.nodes.drain(1..).collect::<Vec<_>>();
    nodes.iter_mut().for_each(Server::restart_empty);
    quorum.nodes.append(&mut nodes);
    assert_nobody_else(&quorum, held, || ());
    // They vote again when that is over, all of them.
    eventually(LIMIT, || {
        let lease = taken(&client, "m");
        std::thread::sleep(ms(50));
        let everywhere = quorum.taken_on("m") == 3;
        lease.release().unwrap();
        quorum.eventually_free("m");
        everywhere
    });
}

#[test]
fn nodes_that_come_back_with_what_they_once_saved_have_no_vote_either() {
    for older in [false, true] {
        unless_starved(STALL, || {
            let mut quorum = Quorum::builder(3).max_ttl(secs(5)).start();
            let client = quorum.client();
            taken(&client, "n").release().unwrap();
            quorum.eventually_free("n");
            let files: Vec<_> = quorum.nodes.iter().map(Server::keep_file).collect();
            let held = held_everywhere(&quorum, &client, secs(5));
            for (node, file) in quorum.nodes.iter_mut().zip(&files).skip(1) {
                if older {
                    node.restart_with(file);
                } else {
                    node.restart_with_data();
                }
                assert_eq!(knows(node, "n"), !older);
            }
            assert_nobody_else(&quorum, held, || ());
        });
    }
}

#[test]
fn nodes_that_are_flushed_have_no_vote_either() {
    let quorum = Quorum::builder(3).max_ttl(secs(2)).start();
    let client = quorum.client();
    let held = held_everywhere(&quorum, &client, secs(2));
    assert_nobody_else(&quorum, held, || {
        quorum.nodes.iter().take(2).for_each(|node| drop(node.cmd(&["FLUSHALL"])));
    });
}

#[test]
fn one_node_in_quarantine_stops_nobody_and_comes_back() {
    let mut quorum = Quorum::builder(3).max_ttl(secs(5)).start();
    let client = quorum.client();
    let held = held_everywhere(&quorum, &client, secs(5));
    held.extend().unwrap();
    quorum.nodes[0].restart_empty();
    held.extend().unwrap();
    held.release().unwrap();
    let lease = taken(&client, "n");
    assert!(!knows(&quorum.nodes[0], "n"));
    lease.release().unwrap();
    eventually(LIMIT, || {
        let lease = taken(&client, "n");
        std::thread::sleep(ms(50));
        let is_back = knows(&quorum.nodes[0], "n");
        lease.release().unwrap();
        is_back
    });
    // Now that it is back, another one may fail.
    quorum.nodes[1].kill();
    let lease = taken(&client, "n");
    lease.extend().unwrap();
    lease.release().unwrap();
}

#[test]
fn no_quarantine_can_be_declared_over_but_by_force() {
    let mut quorum = Quorum::builder(3).max_ttl(secs(60)).start();
    let client = quorum.client();
    taken(&client, "n").release().unwrap();
    quorum.nodes[0].restart_empty();
    quorum.nodes[1].restart_with_data();
    // Both know now that they may have lost something.
    assert!(quorum.brisk_client().lock("n").try_acquire().is_err());
    // Connections that have ended with their server are noticed one by one.
    eventually(LIMIT, || {
        let error = client.initialize(false).unwrap_err();
        error.detail().contains("may have forgotten")
    });
    assert!(quorum.brisk_client().lock("n").try_acquire().is_err());
    client.initialize(true).unwrap();
    taken(&client, "n").release().unwrap();
}

#[test]
fn members_that_came_back_empty_are_not_new_beside_others_that_are_in_use() {
    let mut quorum = Quorum::start(3);
    taken(&quorum.client(), "n").release().unwrap();
    quorum.nodes[1].restart_empty();
    quorum.nodes[2].restart_empty();
    // Nobody else was there first.
    let refused = quorum.client().initialize(false).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert_eq!(named(&quorum, &refused), [1, 2], "{refused}");
    assert!(!quorum.nodes[1..].iter().any(|node| knows(node, "leasehold:marker")));
    quorum.client().initialize(true).unwrap();
    taken(&quorum.client(), "n").release().unwrap();
}

/// Which members an error names.
fn named(quorum: &Quorum, error: &leasehold::Error) -> Vec<usize> {
    let said = error.to_string();
    let is_named = |node: &Server| said.contains(&format!("redis://127.0.0.1:{}/", node.port()));
    (0..quorum.nodes.len()).filter(|index| is_named(&quorum.nodes[*index])).collect()
}

#[test]
fn whoever_is_not_declared_new_is_named_and_keeps_no_other_from_it() {
    let mut quorum = Quorum::start(3);
    quorum.nodes[0].restart_with_data();
    let url = quorum.url() + "?max_ttl=90s";
    let refused = open(&url).initialize(false).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert_eq!(named(&quorum, &refused), [0], "{refused}");
    assert!(refused.to_string().contains("nothing for another"), "{refused}");
    for node in &quorum.nodes[1..] {
        let marker: String =
            redis::from_redis_value(node.cmd(&["GET", "leasehold:marker"])).unwrap();
        assert!(marker.ends_with(" 0 90000"), "{marker}");
    }

    let mut quorum = Quorum::builder(3).uninitialized().start();
    quorum.nodes[0].kill();
    let refused = quorum.client().initialize(true).unwrap_err();
    assert_eq!(named(&quorum, &refused), [0], "{refused}");
    assert!(quorum.running().all(|node| knows(node, "leasehold:marker")));
    quorum.nodes[0].start_again();
    quorum.nodes[1].stop();
    let config = quorum.config().io_timeout(secs(1));
    let refused = Client::with_config(config).unwrap().initialize(true).unwrap_err();
    assert_eq!(named(&quorum, &refused), [1], "{refused}");
    assert!(knows(&quorum.nodes[0], "leasehold:marker"));
}

#[test]
fn none_is_declared_new_unless_all_can_be_looked_at() {
    let mut quorum = Quorum::start(3);
    taken(&quorum.client(), "n").release().unwrap();
    quorum.nodes[0].restart_empty();
    quorum.nodes[1].restart_empty();
    quorum.nodes[2].kill();
    assert!(quorum.client().initialize(false).is_err());
    assert!(!quorum.running().any(|node| knows(node, "leasehold:marker")));
}

/// The clock of a node, which runs an hour ahead or behind from some moment on.
fn clocks(offset: Offset) {
    let quorum = Quorum::builder(3).servers(Server::builder().clocked()).max_ttl(secs(10)).start();
    let clients = [(); 2].map(|()| quorum.client());
    let mut holds = Vec::new();
    let take = |client: &Client, holds: &mut Vec<Hold>| {
        let asked = history::now();
        let lease = taken(client, "n");
        let mut hold = Hold::begin(asked, lease.fence());
        (0..20).for_each(|_| {
            std::thread::sleep(ms(1));
            hold.look(|| lease.is_valid());
        });
        lease.release().unwrap();
        holds.push(hold);
    };
    (0..6).for_each(|turn| take(&clients[turn % 2], &mut holds));
    let held = held_everywhere(&quorum, &clients[0], secs(10));
    let mut hold = Hold::begin(history::now(), held.fence());
    quorum.nodes[1].shift_clock(offset);
    let watch = Stopwatch::start();
    while hold.look(|| held.is_valid()) && watch.elapsed() < secs(1) {
        assert!(clients[1].lock("n").try_acquire().unwrap().is_none(), "a majority keeps time");
        std::thread::sleep(ms(20));
    }
    held.release().unwrap();
    holds.push(hold);
    (0..6).for_each(|turn| take(&clients[turn % 2], &mut holds));
    quorum.nodes[1].shift_clock(Offset::Ahead(Duration::ZERO));
    (0..6).for_each(|turn| take(&clients[turn % 2], &mut holds));
    let wrong = history::judge(&holds);
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn c1_c2_a_clock_that_jumps_ahead_on_one_node_makes_no_second_holder() {
    clocks(Offset::Ahead(HOUR));
}

#[test]
fn c1_c2_a_clock_that_jumps_back_on_one_node_makes_no_second_holder() {
    clocks(Offset::Behind(HOUR));
}

/// A quarantine is written down as a moment of the server's own clock: one that jumps ahead ends it
/// too soon, and one that goes back makes it begin anew, at the longest.
#[test]
fn a_quarantine_is_never_longer_than_the_longest_ttl() {
    unless_starved(STALL, || {
        let mut quorum =
            Quorum::builder(3).servers(Server::builder().clocked()).max_ttl(secs(1)).start();
        let client = quorum.client();
        taken(&client, "n").release().unwrap();
        quorum.nodes[0].restart_empty();
        taken(&client, "n").release().unwrap();
        quorum.nodes[0].shift_clock(Offset::Behind(HOUR));
        let watch = Stopwatch::start();
        eventually(LIMIT, || {
            let lease = taken(&client, "n");
            std::thread::sleep(ms(20));
            let votes = knows(&quorum.nodes[0], "n");
            lease.release().unwrap();
            votes
        });
        watch.assert_at_most(secs(1), secs(2));
    });
}
