//! A server that comes back with less than it knew, and is guarded against that.

use std::time::Duration;

use crate::stores::{LIMIT, Quorum, Store, holder, ms, open, secs};
use kit::{Cluster, Server, Stopwatch, eventually};
use leasehold::{Client, Config, ErrorKind, Lease};

/// What cannot be had at the moment is asked for again until `io_timeout` is over.
fn guarded(server: &Server, max_ttl: &str) -> Client {
    let url = format!("{}?guard_data_loss=yes&max_ttl={max_ttl}", server.url());
    Client::with_config(Config::from_url(&url).unwrap().io_timeout(secs(2))).unwrap()
}

#[test]
fn a_new_server_grants_once_it_is_declared_to_be_new() {
    let server = Server::start();
    let client = guarded(&server, "60s");
    client.initialize(false).unwrap();
    let lease = client.lock("n").try_acquire().unwrap().expect("free");
    // Once more does no harm.
    client.initialize(false).unwrap();
    assert!(holder(&client, "n").is_some());
    lease.release().unwrap();
}

#[test]
fn a_server_that_may_have_forgotten_grants_nothing_and_says_why() {
    let server = Server::start();
    let client = guarded(&server, "60s");
    let refused = client.lock("n").try_acquire().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(refused.to_string().contains("is new or has lost its data"), "{refused}");
    assert!(client.lock("n").acquire_within(ms(100)).is_err());
    let refused = client.initialize(false).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    client.initialize(true).unwrap();
    assert!(client.lock("n").try_acquire().unwrap().is_some());
}

#[test]
fn c1_who_does_not_guard_is_refused_where_others_do() {
    let server = Server::start();
    let plain = || open(&server.url());
    // Before anybody guards it; such a connection goes on.
    let early = plain();
    early.lock("early").try_acquire().unwrap().expect("free").release().unwrap();
    let client = guarded(&server, "60s");
    assert_eq!(client.lock("n").try_acquire().unwrap_err().kind(), ErrorKind::Unavailable);
    for late in [plain(), plain()] {
        let refused = late.lock("n").try_acquire().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BadArgument);
        assert!(refused.to_string().contains("set guard_data_loss=yes"), "{refused}");
        assert_eq!(late.lock("n").acquire().unwrap_err().kind(), ErrorKind::BadArgument);
        assert_eq!(late.ping().unwrap_err().kind(), ErrorKind::BadArgument);
    }
    // Nor in another database, where nobody guards anything.
    let elsewhere = format!("{}/7", server.url());
    assert!(open(&elsewhere).lock("n").try_acquire().unwrap().is_some());
    // A client that may not look at the marker is served as before.
    let keys = ["~n", "~leasehold:{n}", "~leasehold:queue:{n}"];
    server.cmd(&[&["ACL", "SETUSER", "clerk", "on", ">pw", "+@all"][..], &keys].concat());
    let clerk = open(&format!("redis://clerk:pw@{}:{}", server.host(), server.port()));
    assert!(clerk.lock("n").try_acquire().unwrap().is_some());
}

#[test]
fn a_wait_goes_on_through_a_quarantine() {
    let server = Server::start();
    let client = guarded(&server, "1s");
    let watch = Stopwatch::start();
    let lease = client.lock("n").ttl(ms(500)).acquire_within(LIMIT).unwrap();
    // By two clocks, of which one may be slewed.
    watch.assert_at_least(ms(990));
    lease.release().unwrap();
    assert!(client.lock("n").ttl(ms(500)).try_acquire().unwrap().is_some());
}

#[test]
fn what_is_not_guarded_cannot_be_declared_new() {
    for store in [Store::redis(), Store::file()] {
        let refused = store.client().initialize(true).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BadArgument);
    }
}

/// Somebody takes a lock on a server, which is killed then and comes back without knowing of it;
/// another one wants it. Whether both had it at once.
fn overlaps(url_end: &str, ttl: Duration, lose: impl FnOnce(&mut Server)) -> bool {
    let mut server = Server::start();
    let url = format!("{}{url_end}", server.url());
    let config = Config::from_url(&url).unwrap().io_timeout(secs(10));
    let client = |config: &Config| Client::with_config(config.clone()).unwrap();
    let [one, two] = [client(&config), client(&config)];
    let _ = one.initialize(false);
    let take = |client: &Client| client.lock("n").ttl(ttl).renew(false).acquire_within(LIMIT);
    take(&two).unwrap().release().unwrap();
    server.save();
    let first = take(&one).unwrap();
    lose(&mut server);
    let second = loop {
        match take(&two) {
            Ok(lease) => break lease,
            Err(error) => assert!(error.is_retriable(), "{error}"),
        }
    };
    let overlap = first.is_valid();
    assert!(second.fence() > first.fence());
    let _ = first.release();
    overlap
}

#[test]
fn c1_no_two_hold_a_lock_though_the_server_forgot_the_first_one() {
    type Loss = fn(&mut Server);
    let with_an_older_file = |server: &mut Server| {
        server.kill();
        server.start_again();
    };
    let losses: [Loss; 3] = [Server::restart_empty, with_an_older_file, |server| {
        server.cmd(&["FLUSHALL"]);
    }];
    for lose in losses {
        assert!(!overlaps("?guard_data_loss=yes&max_ttl=2s", ms(1900), lose));
    }
}

#[test]
fn c1_control_without_the_guard_two_hold_it() {
    assert!(overlaps("", secs(30), |server| {
        server.cmd(&["FLUSHALL"]);
    }));
}

#[test]
fn a_lease_that_is_held_goes_on_through_a_restart_that_loses_nothing() {
    let mut server = Server::start();
    let client = guarded(&server, "60s");
    client.initialize(false).unwrap();
    let lease: Lease = client.lock("n").ttl(secs(50)).renew(false).acquire().unwrap();
    server.restart_with_data();
    // Who is the only one to want it keeps it, and can give it up.
    eventually(LIMIT, || lease.extend().is_ok());
    assert!(lease.is_valid());
    lease.release().unwrap();
    assert!(holder(&client, "n").is_none());
    assert_eq!(client.lock("n").try_acquire().unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn a_cluster_is_declared_new_in_every_slot() {
    let cluster = Cluster::start();
    let url = format!("{}?guard_data_loss=yes&max_ttl=60s", cluster.url());
    let client = Client::with_config(Config::from_url(&url).unwrap().io_timeout(secs(5))).unwrap();
    client.initialize(false).unwrap();
    let markers: u64 = (0..3)
        .map(|node| redis::from_redis_value::<u64>(cluster.server(node).cmd(&["DBSIZE"])).unwrap())
        .sum();
    assert_eq!(markers, 16384);
    for name in ["a", "b", "c", "d", "{x}y", "}{"] {
        client.lock(name).try_acquire().unwrap().expect(name).release().unwrap();
    }
    let emptied = cluster.server(cluster.node_of_key("a"));
    emptied.cmd(&["FLUSHALL"]);
    let refused = client.lock("a").try_acquire().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(refused.to_string().contains("is new or has lost its data"), "{refused}");
    assert!(client.initialize(false).is_err());
    client.initialize(true).unwrap();
    client.lock("a").try_acquire().unwrap().expect("free").release().unwrap();
}

/// Which run of the server its marker names, and when its quarantine is over; none where it has
/// none.
fn marker(server: &Server) -> Option<(String, u64)> {
    let marker: Option<String> =
        redis::from_redis_value(server.cmd(&["GET", "leasehold:marker"])).unwrap();
    let marker = marker?;
    let mut words = marker.split(' ').map(str::to_owned);
    Some((words.next().unwrap(), words.next().unwrap().parse().unwrap()))
}

fn is_in_quarantine(server: &Server) -> bool {
    let run = server.info("server");
    marker(server).is_some_and(|(known, over)| run.contains(&known) && over > 0)
}

#[test]
fn a_quarantine_begins_as_soon_as_a_client_is_back() {
    let mut server = Server::start();
    let client = guarded(&server, "60s");
    client.initialize(false).unwrap();
    let lease = client.lock("n").ttl(secs(6)).acquire().unwrap();
    assert!(!is_in_quarantine(&server));
    server.restart_with_data();
    // By the next renewal, and not by a next holder.
    eventually(LIMIT, || is_in_quarantine(&server));
    assert!(lease.is_valid());
    // Once for each run.
    let begun = marker(&server);
    server.cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
    eventually(LIMIT, || lease.extend().is_ok());
    assert_eq!(marker(&server), begun);
    lease.release().unwrap();
}

#[test]
fn a_quarantine_begins_with_a_ping() {
    let mut server = Server::start();
    let client = guarded(&server, "60s");
    client.initialize(false).unwrap();
    client.ping().unwrap();
    assert!(!is_in_quarantine(&server));
    server.restart_empty();
    assert_eq!(marker(&server), None);
    eventually(LIMIT, || client.ping().is_ok());
    assert!(is_in_quarantine(&server));
    // What came back empty is not new to those who had known it.
    assert_eq!(client.initialize(false).unwrap_err().kind(), ErrorKind::Unavailable);

    let quorum = Quorum::builder(3).uninitialized().start();
    quorum.client().ping().unwrap();
    assert!(quorum.nodes.iter().all(is_in_quarantine));
}

#[test]
fn a_server_that_still_reads_its_file_is_told_once_it_has() {
    let slowly = ["--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024"];
    let server = Server::builder().args(&slowly).start();
    for key in 0..300 {
        server.cmd(&["SET", &format!("key {key}"), &"x".repeat(100)]);
    }
    let client = guarded(&server, "60s");
    let mut told = Vec::new();
    std::thread::scope(|scope| {
        let reload = scope.spawn(|| server.cmd(&["DEBUG", "RELOAD"]));
        while !reload.is_finished() && told.is_empty() {
            told.extend(client.ping().err());
        }
        reload.join().unwrap();
    });
    assert!(told.iter().any(|error| error.to_string().contains("LOADING")), "{told:?}");
    eventually(LIMIT, || client.ping().is_ok());
    assert!(is_in_quarantine(&server));
}
