//! Who has a lock, where there are several servers: a client's record lies in a slot of its own.

use std::thread;

use crate::stores::{LIMIT, ms, open};
use kit::{Cluster, SentinelGroup, eventually};
use leasehold::{Client, Config, LockState};

fn labelled(url: &str, label: &str) -> Client {
    let config = Config::from_url(url).unwrap().io_timeout(LIMIT / 2);
    Client::with_config(config.label(label)).unwrap()
}

fn look(client: &Client, name: &str) -> LockState {
    client.lock(name).inspect().unwrap()
}

/// The labels of the holder and of all that wait, as far as each of them is known.
fn labels(state: &LockState) -> Option<Vec<String>> {
    let holder = state.holder.as_ref().map(|holder| holder.client.as_ref());
    let waiters = state.waiters.iter().map(|waiter| waiter.client.as_ref());
    holder.into_iter().chain(waiters).map(|client| client?.label.clone()).collect()
}

/// Some have a lock each, and one waits for all of them.
fn assert_all_are_told(url: &str) {
    let looker = open(url);
    let holders: Vec<_> = (0..4).map(|number| labelled(url, &format!("holder {number}"))).collect();
    let names: Vec<_> = (0..4).map(|number| format!("name-{number}")).collect();
    let both = holders.iter().zip(&names);
    let leases: Vec<_> = both.map(|(client, name)| client.lock(name).acquire().unwrap()).collect();
    let waiter = labelled(url, "waiter");
    thread::scope(|scope| {
        for name in &names {
            let lock = waiter.lock(name);
            scope.spawn(move || lock.acquire_within(LIMIT * 2).unwrap().release().unwrap());
        }
        for (number, name) in names.iter().enumerate() {
            let expected = vec![format!("holder {number}"), "waiter".to_owned()];
            eventually(LIMIT, || labels(&look(&looker, name)).as_ref() == Some(&expected));
        }
        drop(leases);
    });
    let lock = holders[0].lock("n");
    let _lease = lock.acquire().unwrap();
    let error = || looker.lock("n").acquire_within(ms(500)).unwrap_err().to_string();
    eventually(LIMIT, || error().contains("label holder 0) since "));
}

#[test]
fn on_a_cluster_holders_and_waiters_are_told_whichever_slot_they_are_in() {
    let cluster = Cluster::start();
    assert_all_are_told(&cluster.url());
}

#[test]
fn behind_sentinels_holders_and_waiters_are_told() {
    let group = SentinelGroup::start();
    assert_all_are_told(&group.url());
}
