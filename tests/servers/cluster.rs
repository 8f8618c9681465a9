//! Locks on a Cluster: every name in one slot, every slot on the server that has it.

use std::net::SocketAddr;
use std::time::Duration;

use crate::stores::{LIMIT, STALL, ms, open, secs};
use kit::{BlackHole, Cluster, Server, eventually, unless_starved};
use leasehold::{Client, Config, ErrorKind};

fn client(url: &str) -> Client {
    open(url)
}

/// A port at which nobody listens, for as long as the socket is kept.
fn closed() -> (socket2::Socket, u16) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let port = socket.local_addr().unwrap().as_socket().unwrap().port();
    (socket, port)
}

/// Names of which each of the three servers has some.
fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("name-{number}")).collect()
}

/// So many names, all on one server.
fn names_on(cluster: &Cluster, node: usize, count: usize) -> Vec<String> {
    let all = (0..).map(|number| format!("n{number}"));
    all.filter(|name| cluster.node_of_key(name) == node).take(count).collect()
}

fn number(cluster: &Cluster, node: usize, words: &[&str]) -> i64 {
    redis::from_redis_value(cluster.server(node).cmd(words)).unwrap()
}

fn channels(cluster: &Cluster, node: usize) -> Vec<String> {
    let said = cluster.server(node).cmd(&["PUBSUB", "SHARDCHANNELS"]);
    redis::from_redis_value(said).unwrap()
}

#[test]
fn names_of_every_shape_lie_in_one_slot_and_work() {
    let cluster = Cluster::start();
    let client = client(&cluster.url());
    let mut shapes: Vec<Vec<u8>> = vec![
        b"plain".to_vec(),
        b"{tag}rest".to_vec(),
        b"a{}b".to_vec(),
        b"}{".to_vec(),
        b"{{x}}".to_vec(),
        b"stray}brace".to_vec(),
        b"open{only".to_vec(),
        b"\0\xff\r\n$3\r\n".to_vec(),
        b" ".to_vec(),
        vec![b'x'; 60_000],
    ];
    shapes.extend((0..30u8).map(|number| vec![number, b'{', number, b'}', b'}']));
    for name in &shapes {
        let lock = client.lock(name).wait(secs(20));
        let first = lock.try_acquire().unwrap().unwrap();
        assert!(lock.try_acquire().unwrap().is_none());
        assert!(lock.inspect().unwrap().holder.is_some());
        first.extend().unwrap();
        let fence = first.fence();
        first.release().unwrap();
        let second = lock.acquire().unwrap();
        assert!(second.fence() > fence);
    }
    client.ping().unwrap();
    client.close().unwrap();
}

#[test]
fn a_prefix_is_a_part_of_what_is_hashed() {
    let cluster = Cluster::start();
    let url = format!("{}?prefix=blue{{", cluster.url());
    let (one, other) = (client(&url), client(&url));
    for name in ["a}b", "c", "}", "x{y}"] {
        let lock = one.lock(name).wait(secs(20));
        let held = lock.acquire().unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| other.lock(name).wait(secs(20)).acquire().unwrap().fence());
            let key = format!("blue{{{name}");
            let queue = || redis::cmd("KEYS").arg("leasehold:queue:*").to_owned();
            let node = cluster.node_of_key(&key);
            let mut connection = cluster.server(node).connection();
            eventually(LIMIT, || {
                !queue().query::<Vec<Vec<u8>>>(&mut connection).unwrap().is_empty()
            });
            let fence = held.fence();
            drop(held);
            assert!(waits.join().unwrap() > fence);
        });
    }
}

#[test]
fn one_client_holds_and_renews_locks_on_all_servers_at_once() {
    unless_starved(STALL, || {
        let cluster = Cluster::start();
        let client = client(&cluster.url());
        let names = names(300);
        let leases: Vec<_> = names
            .iter()
            .map(|name| client.lock(name).ttl(ms(1500)).try_acquire().unwrap().unwrap())
            .collect();
        for node in 0..3 {
            assert!(number(&cluster, node, &["DBSIZE"]) > 100);
        }
        // Three times their ttl.
        std::thread::sleep(ms(4500));
        assert!(leases.iter().all(|lease| lease.is_valid()));
        for lease in leases {
            lease.release().unwrap();
        }
        assert_eq!(client.counters().lost, 0);
    });
}

#[test]
fn a_frozen_server_keeps_nobody_from_renewing_on_the_others() {
    unless_starved(STALL, || {
        let cluster = Cluster::builder().node_timeout(secs(60)).start();
        let config = Config::from_url(&cluster.url()).unwrap().io_timeout(ms(300));
        let client = Client::with_config(config).unwrap();
        let by_node: Vec<_> = (0..3).map(|node| names_on(&cluster, node, 20)).collect();
        let take = |name: &String| client.lock(name).ttl(secs(4)).try_acquire().unwrap().unwrap();
        let leases: Vec<Vec<_>> =
            by_node.iter().map(|names| names.iter().map(take).collect()).collect();
        cluster.server(0).stop();
        std::thread::sleep(secs(9));
        for lease in leases[1].iter().chain(&leases[2]) {
            assert!(lease.is_valid());
        }
        assert!(leases[0].iter().all(|lease| !lease.is_valid()));
        cluster.server(0).cont();
    });
}

#[test]
fn waiters_on_all_servers_are_told_each_by_its_own() {
    let cluster = Cluster::start();
    let (holder, waiter) = (client(&cluster.url()), client(&cluster.url()));
    let names: Vec<_> = (0..3).flat_map(|node| names_on(&cluster, node, 4)).collect();
    let mut leases: Vec<_> =
        names.iter().map(|name| holder.lock(name).acquire().unwrap()).collect();
    std::thread::scope(|scope| {
        let waits: Vec<_> = names
            .iter()
            .map(|name| {
                let lock = waiter.lock(name).wait(secs(60));
                scope.spawn(move || lock.acquire().unwrap().release().unwrap())
            })
            .collect();
        for node in 0..3 {
            eventually(LIMIT, || channels(&cluster, node).len() == 4);
        }
        // Each is in its queue, and asks nothing more by itself for a long time.
        let queued = |name: &String| {
            let node = cluster.node_of_key(name);
            number(&cluster, node, &["ZCARD", &format!("leasehold:queue:{{{name}}}")]) == 1
        };
        eventually(LIMIT, || names.iter().all(queued));
        let asked = waiter.counters().attempts;
        while let Some(lease) = leases.pop() {
            lease.release().unwrap();
        }
        waits.into_iter().for_each(|wait| wait.join().unwrap());
        // By message: nobody had to ask again for it, but for what a machine that stands still does.
        let more = waiter.counters().attempts - asked;
        assert!(more <= names.len() as u64 / 2, "{more} of {}", names.len());
    });
    // One connection to each server, whatever the number of names.
    for node in 0..3 {
        let list = cluster.server(node).cmd(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        let list: String = redis::from_redis_value(list).unwrap();
        assert_eq!(list.lines().count(), 1, "{list}");
    }
}

#[test]
fn a_wake_up_connection_that_is_killed_on_one_server_disturbs_nobody_on_the_others() {
    let cluster = Cluster::start();
    let (holder, waiter) = (client(&cluster.url()), client(&cluster.url()));
    let [quiet, killed] = [0, 1].map(|node| names_on(&cluster, node, 1).remove(0));
    let leases = [&quiet, &killed].map(|name| holder.lock(name).acquire().unwrap());
    std::thread::scope(|scope| {
        let waits = [&quiet, &killed].map(|name| {
            let lock = waiter.lock(name).wait(secs(60));
            scope.spawn(move || lock.acquire().unwrap().fence())
        });
        let queue = |name: &str| format!("leasehold:queue:{{{name}}}");
        let card = |node, name| number(&cluster, node, &["ZCARD", &queue(name)]);
        eventually(LIMIT, || card(0, &quiet) == 1 && card(1, &killed) == 1);
        let polls = |node| {
            let stats = cluster.server(node).info("commandstats");
            let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap();
            line.split([',', '=']).nth(1).unwrap().parse::<u64>().unwrap()
        };
        let (undisturbed, before) = (polls(0), polls(1));
        for _ in 0..3 {
            cluster.server(1).cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            eventually(LIMIT, || channels(&cluster, 1).len() == 1);
        }
        eventually(LIMIT, || polls(1) > before);
        assert_eq!(polls(0), undisturbed);
        leases.into_iter().for_each(|lease| lease.release().unwrap());
        waits.into_iter().for_each(|wait| assert!(wait.join().unwrap() > 0));
    });
}

#[test]
fn who_may_not_use_channels_of_slots_is_told_on_one_of_its_own() {
    let cluster = Cluster::start();
    for node in 0..3 {
        let rules = ["ACL", "SETUSER", "plain", "on", ">p", "~*", "&*", "+@all", "-ssubscribe"];
        cluster.server(node).cmd(&rules);
    }
    let url = cluster.url().replace("://", "://plain:p@");
    let (holder, waiter) = (client(&url), client(&url));
    for name in names(6) {
        let lease = holder.lock(&name).acquire().unwrap();
        std::thread::scope(|scope| {
            let lock = waiter.lock(&name).wait(secs(60));
            let waits = scope.spawn(move || lock.acquire().unwrap().fence());
            let queue = format!("leasehold:queue:{{{name}}}");
            let node = cluster.node_of_key(&name);
            eventually(LIMIT, || number(&cluster, node, &["ZCARD", &queue]) == 1);
            assert!(channels(&cluster, node).is_empty());
            let fence = lease.fence();
            lease.release().unwrap();
            assert!(waits.join().unwrap() > fence);
        });
    }
}

/// What was opened before it refused tells on, and so does what is opened afterwards.
#[test]
fn a_server_that_refuses_to_be_listened_to_keeps_nobody_from_hearing_the_others() {
    let cluster = Cluster::start();
    let password = |node: usize, word: &str| {
        cluster.server(node).cmd(&["ACL", "SETUSER", "ann", "resetpass", "on", word]);
    };
    for node in 0..3 {
        password(node, ">p");
        cluster.server(node).cmd(&["ACL", "SETUSER", "ann", "~*", "&*", "+@all"]);
    }
    // What the keeper asks beside them would need a second connection of a pool.
    let url = cluster.url().replace("://", "://ann:p@") + "?register=no&advise=no";
    let [holder, waiter] = [(); 2].map(|()| client(&url));
    let names = [names_on(&cluster, 0, 2), names_on(&cluster, 1, 1), names_on(&cluster, 2, 1)];
    let [told, refused, later] = [&names[0], &names[1], &names[2]];
    let queued = |name: &str| {
        let queue = format!("leasehold:queue:{{{name}}}");
        number(&cluster, cluster.node_of_key(name), &["ZCARD", &queue]) == 1
    };
    // Each server has a connection of the pool, which outlasts the change of the password.
    for name in names.iter().flatten() {
        waiter.lock(name).acquire().unwrap().release().unwrap();
    }
    std::thread::scope(|scope| {
        let hold = |name: &str| holder.lock(name).ttl(secs(120)).acquire().unwrap();
        let wait = |name: &str| {
            let lock = waiter.lock(name).wait(secs(100));
            scope.spawn(move || lock.acquire().unwrap().release().unwrap())
        };
        let first = (hold(&told[0]), wait(&told[0]));
        eventually(LIMIT, || queued(&told[0]));
        let spun = hold(&refused[0]);
        password(1, ">other");
        let (asked, spins) = (waiter.counters().attempts, wait(&refused[0]));
        eventually(LIMIT, || waiter.counters().attempts > asked + 3);
        first.0.release().unwrap();
        first.1.join().unwrap();
        for name in [&told[1], &later[0]] {
            let (held, wait) = (hold(name), wait(name));
            eventually(LIMIT, || queued(name));
            held.release().unwrap();
            // Nobody asks before half a minute is over.
            eventually(secs(20), || wait.is_finished());
        }
        spun.release().unwrap();
        spins.join().unwrap();
    });
}

#[test]
fn c12_a_cluster_with_a_password_is_used_with_it_and_not_without() {
    let cluster = Cluster::builder().login("ann", "s3cret").start();
    let name = "n";
    client(&cluster.url()).lock(name).acquire().unwrap().release().unwrap();
    let bare = cluster.url().replace("ann:s3cret@", "");
    let wrong = cluster.url().replace("s3cret", "wr0ng");
    for (url, kinds) in [
        (bare, [ErrorKind::Auth, ErrorKind::Permission]),
        (wrong, [ErrorKind::Auth, ErrorKind::Auth]),
    ] {
        let error = client(&url).lock(name).try_acquire().unwrap_err();
        assert!(kinds.contains(&error.kind()), "{error}");
        assert!(!error.to_string().contains("wr0ng"), "{error}");
    }
}

#[cfg(feature = "tls")]
#[test]
fn a_cluster_is_spoken_to_over_tls() {
    let cluster = Cluster::builder().tls().start();
    let (holder, waiter) = (client(&cluster.tls_url()), client(&cluster.tls_url()));
    for name in names(6) {
        let lease = holder.lock(&name).acquire().unwrap();
        std::thread::scope(|scope| {
            let lock = waiter.lock(&name).wait(secs(60));
            let waits = scope.spawn(move || lock.acquire().unwrap().fence());
            let queue = format!("leasehold:queue:{{{name}}}");
            let node = cluster.node_of_key(&name);
            eventually(LIMIT, || number(&cluster, node, &["ZCARD", &queue]) == 1);
            lease.release().unwrap();
            waits.join().unwrap();
        });
    }
}

#[test]
fn seeds_that_are_dead_or_silent_are_passed_over() {
    let cluster = Cluster::start();
    let (_kept, nobody) = closed();
    let hole = BlackHole::open();
    let silent = hole.url().rsplit_once(':').unwrap().1.parse().unwrap();
    let seeds = [nobody, silent, cluster.server(1).port()];
    let config = Config::from_url(&cluster.url_through(&seeds)).unwrap().io_timeout(secs(3));
    let client = Client::with_config(config).unwrap();
    for name in names(9) {
        client.lock(name).try_acquire().unwrap().unwrap().release().unwrap();
    }
}

#[test]
fn c13_seeds_that_are_all_dead_are_named() {
    let cluster = Cluster::start();
    let kept = [closed(), closed()];
    let ports = kept.each_ref().map(|(_, port)| *port);
    let error = open(&cluster.url_through(&ports)).lock("n").try_acquire().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    for port in ports {
        assert!(error.to_string().contains(&port.to_string()), "{error}");
    }
}

#[test]
fn c13_a_server_that_is_no_cluster_is_told_apart_from_one_that_is() {
    let single = Server::start();
    let url = single.url().replace("redis://", "redis+cluster://");
    let error = open(&url).lock("n").try_acquire().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
    assert!(error.to_string().contains(&single.url()), "{error}");
    let cluster = Cluster::start();
    let one = open(&cluster.server(0).url());
    let elsewhere = names_on(&cluster, 1, 1).remove(0);
    let error = one.lock(elsewhere).try_acquire().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
    assert!(error.to_string().contains("redis+cluster://"), "{error}");
}

#[test]
fn c7_slots_that_nobody_serves_are_an_outage_and_no_more() {
    unless_starved(STALL, || {
        let mut cluster =
            Cluster::builder().require_full_coverage(true).node_timeout(ms(500)).start();
        let config = Config::from_url(&cluster.url()).unwrap().io_timeout(ms(500));
        let client = Client::with_config(config).unwrap();
        let name = names_on(&cluster, 0, 1).remove(0);
        client.lock(&name).acquire().unwrap().release().unwrap();
        cluster.nodes[1].server.kill();
        let down = || {
            client.lock(&name).try_acquire().is_err_and(|error| {
                assert!(error.is_retriable(), "{error}");
                error.kind() == ErrorKind::Unavailable
            })
        };
        eventually(LIMIT, down);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| client.lock(&name).wait(secs(60)).acquire().map(drop));
            std::thread::sleep(Duration::from_millis(300));
            cluster.nodes[1].server.start_again();
            waits.join().unwrap().unwrap();
        });
    });
}

#[test]
fn a_new_cluster_that_is_guarded_grants_at_once_when_it_was_initialized() {
    let cluster = Cluster::start();
    let client = client(&format!("{}?guard_data_loss=yes", cluster.url()));
    client.initialize(false).unwrap();
    for name in names(30) {
        client.lock(name).try_acquire().unwrap().unwrap().release().unwrap();
    }
    // Where one slot after the other is marked, none is left out.
    let marked: i64 = (0..3).map(|node| number(&cluster, node, &["DBSIZE"])).sum();
    assert!(marked >= 16_384, "{marked}");
}
