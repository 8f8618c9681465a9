//! Members of a quorum that are reached in different ways, or are several servers themselves.

use crate::stores::{LIMIT, ms, secs};
use kit::{Cluster, SentinelGroup, Server, eventually};
use leasehold::{Client, Config, Lease};
use redis::Value;

#[track_caller]
fn taken(client: &Client, name: &str) -> Lease {
    client.lock(name).wait(LIMIT).acquire().unwrap()
}

fn client(urls: &[String], more: &str) -> Client {
    let config = Config::from_url(&format!("{}{more}", urls.join(","))).unwrap();
    Client::with_config(config.io_timeout(secs(20))).unwrap()
}

/// Turns of two clients, one of which waits for the other.
#[track_caller]
fn turns(clients: [&Client; 2], names: &[&str]) {
    for name in names {
        let held = taken(clients[0], name);
        held.extend().unwrap();
        let fence = held.fence();
        std::thread::scope(|scope| {
            let busy = clients[1].counters().busy;
            let next = scope.spawn(|| taken(clients[1], name));
            eventually(LIMIT, || clients[1].counters().busy > busy || next.is_finished());
            held.release().unwrap();
            let next = next.join().unwrap();
            assert!(next.fence() > fence);
            next.release().unwrap();
        });
    }
}

#[cfg(feature = "tls")]
#[test]
fn each_member_is_reached_in_its_own_way() {
    let mut nodes = [
        Server::start(),
        Server::builder().unix().start(),
        Server::builder().tls().start(),
        Server::builder().arg("--requirepass", "p-w").start(),
        Server::builder().user("bob", "p-w").unix().start(),
    ];
    let bob = nodes[4].unix_url().replace("?password=", "?user=bob&password=");
    let urls = [nodes[0].url(), nodes[1].unix_url(), nodes[2].tls_url(), nodes[3].url(), bob];
    let clients = [(); 2].map(|()| client(&urls, ""));
    clients[0].initialize(false).unwrap();
    turns([&clients[0], &clients[1]], &["n", "m"]);
    // Each of them counts.
    for down in [[0, 1], [2, 3]] {
        down.iter().for_each(|node| nodes[*node].stop());
        turns([&clients[0], &clients[1]], &["n"]);
        down.iter().for_each(|node| nodes[*node].cont());
    }
    nodes[4].kill();
    nodes[0].kill();
    turns([&clients[0], &clients[1]], &["n"]);
}

#[test]
fn a_sentinel_group_is_one_member_which_has_no_vote_for_a_while_after_a_failover() {
    let group = SentinelGroup::start();
    let mut nodes = [Server::start(), Server::start()];
    let urls = [nodes[0].url(), group.url(), nodes[1].url()];
    let clients = [(); 2].map(|()| client(&urls, "?max_ttl=3s"));
    clients[0].initialize(false).unwrap();
    turns([&clients[0], &clients[1]], &["n", "m"]);
    let has = |name: &str| group.master().cmd(&["EXISTS", name]) == Value::Int(1);
    let held = clients[0].lock("held").ttl(secs(3)).wait(LIMIT).acquire().unwrap();
    eventually(LIMIT, || has("held"));
    group.fail_over();
    // The quorum goes on meanwhile, and the lease lives.
    turns([&clients[0], &clients[1]], &["n"]);
    held.extend().unwrap();
    held.release().unwrap();
    // The new master knows of another run, and grants nothing before older leases are over.
    eventually(LIMIT, || {
        let lease = taken(&clients[1], "later");
        std::thread::sleep(ms(100));
        let votes = has("later");
        lease.release().unwrap();
        votes
    });
    // Then it counts as before.
    nodes[0].kill();
    turns([&clients[0], &clients[1]], &["n"]);
}

#[test]
fn a_cluster_is_one_member_with_a_vote_for_every_name() {
    let cluster = Cluster::start();
    let mut nodes = [Server::start(), Server::start()];
    let urls = [nodes[0].url(), cluster.url(), nodes[1].url()];
    let clients = [(); 2].map(|()| client(&urls, ""));
    clients[0].initialize(false).unwrap();
    let markers = (0..3).map(|node| cluster.server(node).cmd(&["DBSIZE"]));
    let markers: i64 = markers.map(|count| redis::from_redis_value::<i64>(count).unwrap()).sum();
    assert_eq!(markers, 16_384);
    let names = ["a", "b", "c", "{x}y", "stray}", "open{"];
    turns([&clients[0], &clients[1]], &names);
    // It is needed now, and its notices too.
    nodes[0].kill();
    turns([&clients[0], &clients[1]], &names);
    for name in ["a", "b", "c"] {
        let lease = taken(&clients[0], name);
        let node = cluster.node_of_key(name);
        assert_eq!(cluster.server(node).cmd(&["EXISTS", name]), Value::Int(1));
        lease.release().unwrap();
    }
}
