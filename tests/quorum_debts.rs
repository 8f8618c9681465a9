//! What a node of a quorum is owed that could not be told of a give.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod stores;
mod support;

use leasehold::{Client, Config};
use redis::Value;
use stores::{LIMIT, Quorum, ms, secs};
use support::{Cluster, End, Mode, Server, eventually};

const NAME: &str = "n";

/// Three nodes through proxies, and a client that has connections to all of them.
fn start() -> (Quorum, Client) {
    let quorum = Quorum::builder(3).with_proxies().start();
    let client = patient(&quorum.url());
    eventually(LIMIT, || {
        let lease = client.lock("warm-up").wait(LIMIT).acquire().unwrap();
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
    Client::with_config(config.io_timeout(secs(10)).node_timeout(secs(2))).unwrap()
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
