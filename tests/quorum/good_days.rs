//! Locks on most of several servers, on good days. What holds for every store is checked on a quorum
//! too, where it is written.

use std::time::SystemTime;

use crate::stores::{LIMIT, Quorum, STALL, ms, open, secs};
use kit::{Server, Watch, eventually, unless_starved};
use leasehold::{Client, Config, ErrorKind, Lease};

fn taken(client: &Client, name: &str) -> Lease {
    client.lock(name).try_acquire().unwrap().expect("the lock is free")
}

fn kind<T>(result: Result<T, leasehold::Error>) -> ErrorKind {
    result.err().expect("an error").kind()
}

/// The last fence that each node knows of the name `n`.
fn fences(quorum: &Quorum) -> Vec<u64> {
    let known = |node: &Server| {
        let side: String = redis::from_redis_value(node.cmd(&["GET", "leasehold:{n}"])).ok()?;
        Some(side.split(' ').nth(1).unwrap().parse().unwrap())
    };
    quorum.nodes.iter().filter_map(known).collect()
}

#[test]
fn a_lock_is_on_most_nodes_and_then_on_none() {
    let quorum = Quorum::start(5);
    let (one, two) = (quorum.client(), quorum.client());
    let mut last = 0;
    for round in 0..20 {
        let (mine, other) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let lease = taken(mine, "n");
        assert!(quorum.taken_on("n") >= 3);
        assert!(lease.fence() > last, "{} after {last}", lease.fence());
        last = lease.fence();
        assert!(other.lock("n").try_acquire().unwrap().is_none());
        lease.extend().unwrap();
        lease.release().unwrap();
        assert!(quorum.taken_on("n") <= 2);
    }
    quorum.eventually_free("n");
    assert_eq!((one.counters().unknown, two.counters().unknown), (0, 0));
}

#[test]
fn a_turn_is_one_command_to_take_and_one_to_give_at_each_node() {
    let quorum = Quorum::start(5);
    let clients = [(); 3].map(|()| quorum.client());
    clients.iter().for_each(|client| quorum.warm_up(client));
    let mut watches: Vec<Watch<'_>> = quorum.nodes.iter().map(Server::watch).collect();
    watches.iter_mut().for_each(|watch| drop(watch.client_commands()));
    for turn in 0..30 {
        taken(&clients[turn % 3], "n").release().unwrap();
        // Who is slow is not behind when somebody else comes.
        quorum.eventually_free("n");
    }
    for watch in &mut watches {
        let mut sent = watch.client_commands();
        sent.retain(|command| command.starts_with("EVALSHA"));
        let twice = (0..sent.len()).find(|at| sent[..*at].contains(&sent[*at]));
        assert_eq!(sent.len(), 60, "{:?} twice", twice.map(|at| &sent[at]));
    }
}

#[test]
fn c2_fences_grow_although_the_nodes_remember_different_ones() {
    let quorum = Quorum::start(5);
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros();
    // Ahead of every clock: the first three by different locks, the others by none.
    for (index, node) in quorum.nodes.iter().take(3).enumerate() {
        let last = now + 60_000_000 * (3 + index as u128);
        node.cmd(&["SET", "leasehold:{n}", &format!("0 {last} 0 0"), "PX", "90000000"]);
    }
    let clients = [(); 2].map(|()| quorum.client());
    let before = quorum.scripts();
    let lease = taken(&clients[0], "n");
    // No majority agreed on a fence, so that some were told to raise theirs.
    eventually(LIMIT, || quorum.scripts() > before + 5);
    // Three of five are as far.
    let known = fences(&quorum);
    let as_far = known.iter().filter(|fence| **fence >= lease.fence()).count();
    assert!(as_far >= 3, "{known:?}");
    assert_eq!(clients[0].lock("n").inspect().unwrap().holder.unwrap().fence, Some(lease.fence()));
    let mut last = lease.fence();
    assert!(u128::from(last) > now + 180_000_000, "{last}");
    lease.release().unwrap();
    for round in 1..30 {
        quorum.eventually_free("n");
        let lease = taken(&clients[round % 2], "n");
        assert!(lease.fence() > last);
        last = lease.fence();
        lease.release().unwrap();
    }
}

#[test]
fn c5_a_lease_is_extended_shortened_and_handed_on_where_most_nodes_have_it() {
    let quorum = Quorum::start(3);
    let (one, two) = (quorum.client(), quorum.client());
    quorum.warm_up(&one);
    let (token, fence) = taken(&one, "n").detach().unwrap();
    eventually(LIMIT, || quorum.taken_on("n") == 3);
    let lease = two.lock("n").ttl(secs(50)).attach(token, fence).unwrap();
    assert!(!lease.is_valid());
    lease.extend().unwrap();
    assert!(lease.remaining() > secs(40));
    quorum.nodes[0].cmd(&["DEL", "n"]);
    lease.extend().unwrap();
    quorum.nodes[1].cmd(&["DEL", "n"]);
    assert_eq!(kind(lease.extend()), ErrorKind::Lost);
    assert!(!lease.is_valid());
    drop(lease);
    quorum.nodes[2].cmd(&["DEL", "n"]);
    taken(&one, "n").let_expire_in(secs(2)).unwrap();
    assert!(two.lock("n").try_acquire().unwrap().is_none());
    // By its ttl, of which most nodes think alike.
    let lease = two.lock("n").wait(LIMIT).acquire().unwrap();
    assert!(lease.fence() > fence);
}

#[test]
fn a_holder_is_shown_who_has_most_nodes_and_no_other() {
    let quorum = Quorum::start(3);
    let client = quorum.client();
    let shown = || client.lock("n").inspect().unwrap();
    assert_eq!((shown().holder, shown().last_fence), (None, None));
    let lease = taken(&client, "n");
    let holder = shown().holder.unwrap();
    assert_eq!((holder.fence, shown().last_fence), (Some(lease.fence()), Some(lease.fence())));
    assert!(lease.token().to_string().starts_with(&holder.token_prefix));
    assert!(holder.ttl <= secs(30) && holder.ttl > secs(20));
    let fence = lease.fence();
    lease.release().unwrap();
    quorum.eventually_free("n");
    assert_eq!((shown().holder, shown().last_fence), (None, Some(fence)));
    quorum.nodes[0].cmd(&["SET", "n", &"0".repeat(32), "PX", "10000"]);
    assert_eq!(shown().holder, None);
}

#[test]
fn no_ttl_outlasts_a_quarantine() {
    let quorum = Quorum::builder(3).max_ttl(secs(2)).start();
    let client = quorum.client();
    assert_eq!(kind(client.lock("n").ttl(ms(2001)).try_acquire()), ErrorKind::BadArgument);
    let lease = taken(&client, "n");
    assert!(lease.remaining() <= secs(2), "{:?}", lease.remaining());
    assert_eq!(kind(lease.extend_for(secs(3))), ErrorKind::BadArgument);
    // One that was set up otherwise is refused by the nodes, with the reason.
    let config = quorum.config().max_ttl(secs(10)).io_timeout(secs(20));
    let other = Client::with_config(config).unwrap();
    let error = other.lock("m").try_acquire().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadArgument);
    assert!(error.detail().contains("up to 2 s"), "{error}");
    // A shorter one does no harm.
    let config = quorum.config().max_ttl(secs(1)).io_timeout(secs(20));
    taken(&Client::with_config(config).unwrap(), "m").release().unwrap();
}

#[test]
fn names_of_every_shape_are_locks_behind_any_prefix() {
    let quorum = Quorum::start(3);
    let plain = quorum.client();
    let prefixed = open(&format!("{}?prefix=blue%7B", quorum.url()));
    let mut shapes: Vec<Vec<u8>> =
        ["n", "{tag}rest", "a{}b", "}{", "stray}", "open{", " ", "\0\r\n"]
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
    shapes.extend([vec![0xff, 0xfe], vec![b'x'; 64 * 1024 - 5]]);
    for name in &shapes {
        let lease = plain.lock(name).try_acquire().unwrap().unwrap();
        let other = prefixed.lock(name).try_acquire().unwrap().expect("another lock");
        assert!(prefixed.lock(name).try_acquire().unwrap().is_none());
        other.extend().unwrap();
        let fence = other.fence();
        other.release().unwrap();
        assert!(prefixed.lock(name).wait(LIMIT).acquire().unwrap().fence() > fence);
        lease.release().unwrap();
    }
}

#[test]
fn what_is_no_quorum_is_refused() {
    let hosts = ["redis://a", "redis://b", "redis://a:6379", "unix:///c"];
    for (urls, why) in [
        (&[hosts[0], hosts[1]][..], "grants nothing once"),
        (&hosts[..], "grants nothing once"),
        (&[hosts[0], hosts[1], hosts[2]], "same"),
    ] {
        let error = Config::from_urls(urls).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadArgument);
        println!("{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn c12_no_member_tells_its_password() {
    let secrets = ["first-secret", "second-secret", "third-secret"];
    let mut nodes = secrets.map(|secret| Server::builder().arg("--requirepass", secret).start());
    let urls = nodes.each_ref().map(Server::url);
    let client = open(&urls.join(","));
    client.initialize(false).unwrap();
    taken(&client, "n").release().unwrap();
    let mut said = vec![format!("{client:?} {}", client.store())];
    // One that is wrong is a node that is down.
    let wrong = |count: usize| {
        let mut urls = urls.clone();
        let wrong = |(url, secret): (&mut String, &str)| *url = url.replace(&encoded(secret), "no");
        urls.iter_mut().zip(secrets).take(count).for_each(wrong);
        open(&urls.join(","))
    };
    taken(&wrong(1), "n").release().unwrap();
    let error = wrong(2).lock("n").try_acquire().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
    said.push(format!("{error} {error:?}"));
    nodes.iter_mut().take(2).for_each(Server::kill);
    let brisk = Client::with_config(Config::from_urls(&urls).unwrap().io_timeout(ms(300))).unwrap();
    let error = brisk.lock("n").try_acquire().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoQuorum, "{error}");
    said.push(format!("{error} {error:?} {brisk:?}"));
    for said in said {
        assert!(!secrets.iter().any(|secret| said.contains(secret)), "{said}");
        assert!(!secrets.iter().any(|secret| said.contains(&encoded(secret))), "{said}");
    }
}

fn encoded(secret: &str) -> String {
    secret.replace('-', "%2D")
}

#[test]
fn a_new_deployment_is_declared_once_and_anew_only_by_force() {
    let quorum = Quorum::builder(3).uninitialized().max_ttl(secs(2)).start();
    let client = quorum.client();
    client.initialize(false).unwrap();
    client.initialize(false).unwrap();
    let lease = client.lock("n").acquire().unwrap();
    client.initialize(false).expect("it says what it said before");
    assert!(client.lock("n").try_acquire().unwrap().is_none(), "nothing was forgotten");
    drop(lease);
    // One that was asked for a lock first has begun its quarantine, and is not new.
    let fresh = Quorum::builder(3).uninitialized().max_ttl(secs(60)).start();
    let brisk = Client::with_config(fresh.config().io_timeout(ms(300))).unwrap();
    let error = brisk.lock("n").try_acquire().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "they are there");
    assert!(error.detail().contains("are new or have lost their data"), "{error}");
    let client = fresh.client();
    assert_eq!(kind(client.initialize(false)), ErrorKind::Unavailable);
    assert_eq!(kind(brisk.lock("n").try_acquire()), ErrorKind::Unavailable);
    client.initialize(true).unwrap();
    taken(&client, "n").release().unwrap();
    // All have to be reached.
    let mut quorum = quorum;
    quorum.nodes[2].kill();
    assert_eq!(kind(quorum.brisk_client().initialize(false)), ErrorKind::Refused);
}

#[test]
fn a_node_that_was_left_out_is_told_of_a_release_and_asked_again() {
    unless_starved(STALL, || {
        let quorum = Quorum::start(3);
        let client = quorum.brisk_client();
        quorum.warm_up(&client);
        let lease = taken(&client, "n");
        eventually(LIMIT, || quorum.taken_on("n") == 3);
        quorum.nodes[2].stop();
        // It is waited for once, and then no more.
        for _ in 0..10 {
            taken(&client, "m").release().unwrap();
            std::thread::sleep(ms(20));
        }
        lease.release().unwrap();
        quorum.nodes[2].cont();
        // Long before the ttl would have ended it.
        quorum.eventually_free("n");
        quorum.warm_up(&client);
    });
}

#[test]
fn a_lease_that_is_only_renewed_takes_no_more_connections() {
    unless_starved(STALL, || {
        let quorum = Quorum::start(3);
        let client = quorum.client();
        quorum.warm_up(&client);
        let connected = || {
            let count = |node: &Server| {
                let text = node.info("clients");
                let count = text.lines().find_map(|line| line.strip_prefix("connected_clients:"));
                count.unwrap().parse::<u64>().unwrap()
            };
            quorum.nodes.iter().map(count).sum::<u64>()
        };
        let lease = client.lock("n").ttl(ms(300)).acquire().unwrap();
        eventually(LIMIT, || client.counters().renewed >= 5);
        let before = connected();
        eventually(LIMIT, || client.counters().renewed >= 30);
        let after = connected();
        // Another one of each node at most, and those that this test is closing.
        assert!(after <= before + 6, "{before}, then {after}");
        lease.release().unwrap();
    });
}
