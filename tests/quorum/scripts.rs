//! Nodes of a quorum that do not know the scripts yet have a vote all the same, also those that
//! answer last and are not waited for.

use crate::stores::{LIMIT, open};
use kit::{Server, eventually};
use leasehold::Client;

fn quorum() -> (Vec<Server>, Client) {
    let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
    let client = open(&servers.iter().map(Server::url).collect::<Vec<_>>().join(","));
    client.initialize(false).unwrap();
    (servers, client)
}

fn stands_on_all(servers: &[Server], name: &str) -> bool {
    servers.iter().all(|server| server.cmd(&["EXISTS", name]) == redis::Value::Int(1))
}

#[test]
fn the_first_lock_on_new_servers_stands_on_all_of_them() {
    for _ in 0..3 {
        let (servers, client) = quorum();
        let lease = client.lock("a").acquire().unwrap();
        // Who is not waited for has been asked, and does it in a moment.
        eventually(LIMIT, || stands_on_all(&servers, "a"));
        lease.release().unwrap();
    }
}

#[test]
fn servers_that_forget_their_scripts_are_told_again_whoever_is_waited_for() {
    /// More than a connection may owe replies before they are read.
    const CYCLES: usize = 100;
    let (servers, client) = quorum();
    for _ in 0..3 {
        for server in &servers {
            server.cmd(&["SCRIPT", "FLUSH"]);
        }
        let cycle = || client.lock("a").acquire().unwrap().release().unwrap();
        (0..CYCLES).for_each(|_| cycle());
        let lease = client.lock("b").acquire().unwrap();
        eventually(LIMIT, || stands_on_all(&servers, "b"));
        lease.release().unwrap();
    }
}
