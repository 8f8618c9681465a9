//! Leases on a quorum that go out of scope: nobody waits for the nodes, and all else is as for a release.

use crate::stores::{LIMIT, Quorum, secs};
use kit::{Mode, Server, Watch, eventually};
use leasehold::{Client, EventKind, Lease};
use redis::Value;

#[track_caller]
fn taken(client: &Client, name: &str) -> Lease {
    client.lock(name).try_acquire().unwrap().expect("the lock is free")
}

/// Late releases, and those among them of which nobody knows.
fn counted(client: &Client) -> (u64, u64) {
    let counters = client.counters();
    (counters.released_late, counters.unknown)
}

#[test]
fn dropping_waits_for_no_node_and_releasing_does() {
    let mut quorum = Quorum::builder(3).with_proxies().start();
    // A node is waited for longer than this test takes.
    let client = Client::with_config(quorum.config().io_timeout(secs(200))).unwrap();
    quorum.warm_up(&client);
    let (dropped, released) = (taken(&client, "n"), taken(&client, "m"));
    eventually(LIMIT, || quorum.taken_on("n") + quorum.taken_on("m") == 6);
    quorum.proxies.iter_mut().for_each(|proxy| proxy.set(Mode::HoldRequests));
    drop(dropped);
    // No node has heard of it yet.
    assert_eq!(quorum.taken_on("n"), 3);
    std::thread::scope(|scope| {
        let release = scope.spawn(|| released.release());
        eventually(LIMIT, || quorum.proxies.iter().all(|proxy| proxy.held() >= 2));
        assert!(!release.is_finished());
        for proxy in &mut quorum.proxies {
            proxy.set(Mode::Pass);
            proxy.deliver();
        }
        release.join().unwrap().unwrap();
    });
    quorum.eventually_free("n");
    quorum.eventually_free("m");
    // One that had waited in vain would be counted.
    assert_eq!(counted(&client), (0, 0));
}

#[test]
fn a_turn_that_is_dropped_is_two_commands_at_each_node_too() {
    let quorum = Quorum::start(5);
    let client = quorum.client();
    quorum.warm_up(&client);
    let mut watches: Vec<Watch<'_>> = quorum.nodes.iter().map(Server::watch).collect();
    watches.iter_mut().for_each(|watch| drop(watch.client_commands()));
    for _ in 0..30 {
        drop(taken(&client, "n"));
    }
    quorum.eventually_free("n");
    for watch in &mut watches {
        let mut sent = watch.client_commands();
        sent.retain(|command| command.starts_with("EVALSHA"));
        assert_eq!(sent.len(), 60, "{sent:?}");
    }
    assert_eq!((client.counters().busy, counted(&client)), (0, (0, 0)));
}

#[test]
fn a_dropped_lease_that_was_gone_is_counted_and_told() {
    let quorum = Quorum::start(3);
    let client = quorum.client();
    quorum.warm_up(&client);
    let events = client.events().unwrap();
    let by_the_keeper = |_: &Client| {};
    let by_the_next = |client: &Client| drop(taken(client, "m"));
    let readers: [&dyn Fn(&Client); 2] = [&by_the_keeper, &by_the_next];
    for (count, read) in (1..).zip(readers) {
        let lease = taken(&client, "n");
        eventually(LIMIT, || quorum.taken_on("n") == 3);
        let fence = lease.fence();
        // On one node it is still there, which is no majority.
        quorum.nodes.iter().take(2).for_each(|node| drop(node.cmd(&["DEL", "n"])));
        drop(lease);
        read(&client);
        let event = events.next_within(LIMIT).unwrap().expect("an event comes");
        assert_eq!((event.kind, event.fence), (EventKind::ReleasedLate, fence));
        assert_eq!(counted(&client), (count, 0));
        quorum.eventually_free("n");
    }
    // A majority had it: that is a release.
    let lease = taken(&client, "n");
    eventually(LIMIT, || quorum.taken_on("n") == 3);
    quorum.nodes[0].cmd(&["DEL", "n"]);
    drop(lease);
    quorum.eventually_free("n");
    client.close_within(LIMIT).unwrap();
    assert_eq!(counted(&client), (2, 0));
}

#[test]
fn a_dropped_lease_that_most_nodes_do_not_answer_for_is_told_and_given_to_them_later() {
    let quorum = Quorum::start(3);
    let config = quorum.config().io_timeout(secs(1));
    let client = Client::with_config(config).unwrap();
    quorum.warm_up(&client);
    let events = client.events().unwrap();
    let lease = client.lock("n").ttl(secs(60)).try_acquire().unwrap().expect("it is free");
    eventually(LIMIT, || quorum.taken_on("n") == 3);
    let fence = lease.fence();
    quorum.nodes.iter().skip(1).for_each(Server::stop);
    drop(lease);
    let event = events.next_within(LIMIT).unwrap().expect("an event comes");
    assert_eq!((event.kind, event.fence), (EventKind::ReleasedLate, fence));
    assert_eq!(client.counters().released_late, 1);
    quorum.nodes.iter().skip(1).for_each(Server::cont);
    // Long before its ttl is over.
    quorum.eventually_free("n");
}

#[test]
fn a_node_that_was_cut_off_when_a_lease_was_dropped_is_told_when_it_is_back() {
    let mut quorum = Quorum::builder(3).with_proxies().start();
    let client = quorum.brisk_client();
    quorum.warm_up(&client);
    let lease = client.lock("n").ttl(secs(60)).wait(LIMIT).acquire().unwrap();
    eventually(LIMIT, || quorum.taken_on("n") == 3);
    quorum.proxies[2].set(Mode::Refuse);
    quorum.proxies[2].close_all(kit::End::Reset);
    drop(lease);
    eventually(LIMIT, || quorum.taken_on("n") == 1);
    quorum.proxies[2].set(Mode::Pass);
    quorum.eventually_free("n");
    assert_eq!(client.counters().released_late, 0);
}

#[test]
fn closing_waits_for_what_was_dropped() {
    let quorum = Quorum::start(3);
    for _ in 0..5 {
        let client = quorum.client();
        let leases: Vec<_> = (0..20).map(|at| taken(&client, &format!("n:{at}"))).collect();
        drop(leases);
        quorum.nodes[1].cmd(&["SCRIPT", "FLUSH"]);
        client.close_within(LIMIT).unwrap();
        let is_free = |at: &u32| {
            let name = format!("n:{at}");
            quorum.nodes.iter().all(|node| node.cmd(&["EXISTS", &name]) == Value::Int(0))
        };
        assert!((0..20).all(|at| is_free(&at)));
        assert_eq!(counted(&client), (0, 0));
    }
}

/// It has nothing to give up then. Each cycle of the client would go over all that it is owed.
#[test]
fn a_node_that_is_down_for_longer_than_a_ttl_is_not_owed_what_is_dropped() {
    const DROPS: u64 = 300;
    let mut quorum = Quorum::builder(3).with_proxies().start();
    let client = quorum.client();
    let take = |name: &str, ttl| client.lock(name).ttl(ttl).renew(false).wait(LIMIT).acquire();
    // It was asked to keep no other lock for longer.
    let mut last = None;
    eventually(LIMIT, || {
        drop(last.take());
        last = Some(take("last", secs(3)).unwrap());
        quorum.taken_on("last") == 3
    });
    quorum.proxies[2].set(Mode::Refuse);
    quorum.proxies[2].close_all(kit::End::Reset);
    drop(take("n", secs(1)).unwrap());
    eventually(LIMIT, || quorum.nodes[2].cmd(&["EXISTS", "last"]) == Value::Int(0));
    for at in 0..DROPS {
        drop(take(&format!("n:{at}"), secs(60)).unwrap());
    }
    let before = quorum.nodes[2].calls("evalsha");
    quorum.proxies[2].set(Mode::Pass);
    // It keeps a lock again, so closing does not forget what it is owed.
    eventually(LIMIT, || {
        drop(last.take());
        last = Some(take("last", secs(60)).unwrap());
        quorum.taken_on("last") == 3
    });
    client.close_within(LIMIT).unwrap();
    let told = quorum.nodes[2].calls("evalsha") - before;
    assert!(told < DROPS / 2, "{told}");
}
