//! What a ZooKeeper is like besides what all stores have in common.

use std::path::Path;
#[cfg(feature = "tls")]
use std::process::Command;
use std::thread;
use std::time::Instant;

use crate::stores::{Chroot, LIMIT, Store, eventually_free, holder, ms, secs};
#[cfg(feature = "tls")]
use kit::Certificates;
use kit::{End, Mode, Proxy, STALL, Zookeeper, eventually, unless_starved};
use leasehold::{Client, Error, ErrorKind};

fn client(url: &str) -> Client {
    Client::open(&with(url, "io_timeout=10s")).unwrap()
}

fn with(url: &str, parameter: &str) -> String {
    format!("{url}{}{parameter}", if url.contains('?') { '&' } else { '?' })
}

fn refused(url: &str) -> Error {
    client(url).lock("n").try_acquire().map(drop).unwrap_err()
}

fn of(store: &Store) -> &Chroot {
    let Store::Zookeeper(chroot) = store else { panic!() };
    chroot
}

#[test]
fn no_node_is_made_unasked_and_who_misses_it_is_told_what_to_run() {
    let server = Zookeeper::shared();
    let url = server.url(&format!("{}/a/b", server.chroot()));
    let client = client(&url);
    for error in [
        client.lock("n").try_acquire().map(drop).unwrap_err(),
        client.lock("n").acquire().map(drop).unwrap_err(),
        client.ping().unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
        assert!(error.detail().contains("leasehold init --store URL"), "{error}");
        assert!(error.detail().contains("create /leasehold 1 ("), "{error}");
    }
    assert_eq!(client.schema().unwrap(), Some("create /leasehold 1\n"));
    client.initialize(false).unwrap();
    let lease = client.lock("n").try_acquire().unwrap().unwrap();
    // It may be said again.
    client.initialize(false).unwrap();
    lease.extend().unwrap();
    lease.release().unwrap();
    assert_eq!(client.initialize(true).unwrap_err().kind(), ErrorKind::BadArgument);
}

#[test]
fn nodes_of_another_version_are_left_alone() {
    let store = Store::zookeeper();
    of(&store).server().shell(&format!("set {}/leasehold 2", of(&store).path));
    let error = refused(&store.url());
    assert_eq!(error.kind(), ErrorKind::Storage);
    assert!(error.detail().contains("of another kind ('2'"), "{error}");
}

/// What the documentation has an administrator say.
fn statement() -> String {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operate/rights.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let ours = guide.split("\n## ").find(|part| part.starts_with("ZooKeeper")).unwrap();
    ours.lines().find(|line| line.starts_with("create /leasehold")).unwrap().to_owned()
}

/// `app:secret`, as ZooKeeper writes it down: Base64 of SHA-1.
const HASH: &str = "F6Y+U5gIoCbNNoLQExmvxRFeatA=";

#[test]
fn the_rights_of_the_documentation_are_enough_and_none_is_too_many() {
    let server = Zookeeper::shared();
    let line = statement().replace("HASH", HASH);
    assert!(line.ends_with(":crd"), "{line}");
    let roots = ["crd", "cr", "rd", "cd"].map(|rights| (server.chroot(), rights));
    let lines: Vec<_> = roots
        .iter()
        .map(|(root, rights)| {
            let line = line.replace("/leasehold", &format!("{root}/leasehold"));
            format!("create {root}\n{}", line.replace(":crd", &format!(":{rights}")))
        })
        .collect();
    server.shell(&lines.join("\n"));
    for (root, rights) in roots {
        let url = server.url(&root).replace("://", "://app:secret@");
        let (app, other) = (client(&url), client(&url));
        let uses_all = || -> Result<(), Error> {
            let lease = app.lock("n").acquire()?;
            let known = || holder(&app, "n").is_some_and(|holder| holder.client.is_some());
            eventually(LIMIT, known);
            thread::scope(|scope| {
                let waiting = scope.spawn(|| other.lock("n").acquire_within(LIMIT)?.release());
                eventually(LIMIT, || app.lock("n").inspect().unwrap().waiters.len() == 1);
                lease.extend()?;
                lease.release()?;
                waiting.join().unwrap()
            })
        };
        if rights == "crd" {
            uses_all().unwrap();
        } else {
            // To connect, to take, or to ask the leader's clock whether the holder is over.
            let held = app.lock("n").acquire();
            let error = held.and_then(|_held| other.lock("n").acquire_within(ms(1)).map(drop));
            let error = error.expect_err(rights);
            assert_eq!(error.kind(), ErrorKind::Permission, "{rights}: {error}");
            let missing =
                ["create", "read", "delete"].into_iter().find(|it| !rights.contains(&it[..1]));
            let said = format!("the right to {} is missing", missing.unwrap());
            assert!(error.detail().contains(&said), "{error}");
        }
    }
}

#[test]
fn c12_what_was_made_with_credentials_is_for_them_alone_and_nobody_is_shown_them() {
    let server = Zookeeper::shared();
    let root = server.chroot();
    let url = server.url(&root);
    let ours = url.replace("://", "://app:hunter2@");
    // As who misses the node is told.
    let said = refused(&ours).to_string();
    let [login, acl] = ["addauth digest USER:PASSWORD", "auth::cdrwa"];
    assert!(said.contains(login) && said.contains(acl), "{said}");
    let login = login.replace("USER:PASSWORD", "app:hunter2");
    server.shell(&format!("{login}\ncreate {root}\ncreate {root}/leasehold 1 {acl}"));
    let lease = client(&ours).lock("n").try_acquire().unwrap().unwrap();
    assert_eq!(refused(&url).kind(), ErrorKind::Permission);
    lease.release().unwrap();
    server.shell(&format!("{login}\ndeleteall {root}/leasehold"));
    client(&ours).initialize(false).unwrap();
    let lease = client(&ours).lock("n").try_acquire().unwrap().unwrap();
    let again = client(&with(&url, "auth=digest:app:hunter2"));
    assert!(again.lock("n").try_acquire().unwrap().is_none());
    for others in [url.clone(), url.replace("://", "://app:hunter3@")] {
        let error = refused(&others);
        assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
        assert!(!format!("{error:?}").contains("hunter"), "{error:?}");
    }
    server.shell(&format!("deleteall {root}/leasehold"));
    lease.extend().unwrap();
    lease.release().unwrap();
}

#[test]
fn c10_a_waiter_that_was_killed_costs_no_more_than_a_claim_window() {
    let store = Store::zookeeper();
    let mut proxy = Proxy::start(of(&store).server().port());
    let through =
        store.url().replace(&of(&store).server().port().to_string(), &proxy.port().to_string());
    let (gone, other) = (client(&with(&through, "claim_window=400ms")), store.client());
    let held = other.lock("n").acquire().unwrap();
    let waiters =
        |count| move |client: &Client| client.lock("n").inspect().unwrap().waiters.len() == count;
    thread::scope(|scope| {
        let lost = scope.spawn(|| gone.lock("n").acquire_within(secs(3)).map(drop));
        eventually(LIMIT, || waiters(1)(&other));
        let next = scope.spawn(|| other.lock("n").acquire_within(LIMIT).unwrap());
        eventually(LIMIT, || waiters(2)(&other));
        // As if it were gone: its session is there for some seconds.
        proxy.set(Mode::Silent);
        let released = Instant::now();
        held.release().unwrap();
        let lease = next.join().unwrap();
        let took = released.elapsed();
        assert!(took < ms(400) + secs(1), "{took:?}");
        lease.release().unwrap();
        proxy.set(Mode::Pass);
        let _ = lost.join().unwrap();
    });
}

/// The node of the name `n`, and what stands in it.
fn inside(store: &Store) -> (String, Vec<String>) {
    let said = of(store).server().shell(&format!("ls -R {}/leasehold", of(store).path));
    let all: Vec<_> = said.lines().filter_map(|line| line.split_once("/n/")).collect();
    let nodes = all.iter().map(|(_, child)| (*child).to_owned()).collect();
    (format!("{}/n", all[0].0), nodes)
}

#[test]
fn c10_dead_waiters_in_a_row_cost_the_claim_window_of_the_first() {
    let store = Store::zookeeper();
    let client = store.client();
    let held = client.lock("n").acquire().unwrap();
    let (node, _) = inside(&store);
    // Their nodes stay, and each but the first would have the lock for longer than this test takes.
    let dead = |at: u32| {
        let span = if at == 0 { 400 } else { 60_000 };
        format!("create -s {node}/w-{at:032x}-{span}- \"\"")
    };
    of(&store).server().shell(&(0..5).map(dead).collect::<Vec<_>>().join("\n"));
    assert_eq!(client.lock("n").inspect().unwrap().waiters.len(), 5);
    thread::scope(|scope| {
        let other = store.client();
        let next = scope.spawn(move || other.lock("n").acquire_within(LIMIT).unwrap());
        eventually(LIMIT, || client.lock("n").inspect().unwrap().waiters.len() == 6);
        let fence = held.fence();
        held.release().unwrap();
        let lease = next.join().unwrap();
        assert!(lease.fence() > fence);
        assert_eq!(client.lock("n").inspect().unwrap().waiters.len(), 0);
        lease.release().unwrap();
    });
    eventually_free(&client, "n");
}

#[test]
fn c10_a_living_waiter_whose_place_was_passed_over_has_it_again_where_it_was() {
    let store = Store::zookeeper();
    let (client, other) = (store.client(), store.client());
    let held = client.lock("n").acquire().unwrap();
    thread::scope(|scope| {
        let next = scope.spawn(move || other.lock("n").acquire_within(LIMIT * 2).unwrap());
        let waiting = || client.lock("n").inspect().unwrap().waiters.len();
        eventually(LIMIT, || waiting() == 1);
        let (node, before) = inside(&store);
        let place = before.iter().find(|child| child.starts_with("w-")).unwrap();
        of(&store).server().shell(&format!("delete {node}/{place}"));
        eventually(LIMIT, || waiting() == 1);
        let (_, after) = inside(&store);
        assert!(after.contains(place), "{after:?}, and not {place}");
        held.release().unwrap();
        next.join().unwrap().release().unwrap();
    });
}

#[test]
fn c7_a_take_whose_answer_was_lost_is_undone() {
    let store = Store::zookeeper();
    let port = of(&store).server().port();
    let mut proxy = Proxy::start(port);
    let url = store.url().replace(&port.to_string(), &proxy.port().to_string());
    let (client, other) = (client(&url), store.client());
    for round in 0..6 {
        client.lock("m").acquire().unwrap().release().unwrap();
        let end = if round % 2 == 0 { End::Fin } else { End::Reset };
        let name = format!("n{round}");
        proxy.set_only(format!("{name}/l-").as_bytes(), Mode::LoseReply(end));
        // It is given back before the try goes on, or that would find it taken.
        let lease = client.lock(&name).ttl(secs(60)).try_acquire().unwrap().unwrap();
        assert_eq!(client.counters().unknown, round + 1);
        lease.release().unwrap();
        eventually_free(&other, &name);
    }
}

#[test]
fn c9_c10_a_session_that_ends_costs_waiters_no_more_than_asking_again_and_leases_nothing() {
    let store = Store::zookeeper();
    let port = of(&store).server().port();
    let mut proxy = Proxy::start(port);
    let url = store.url().replace(&port.to_string(), &proxy.port().to_string());
    let away = Client::open(&with(&url, "io_timeout=300ms")).unwrap();
    let other = store.client();
    let lease = away.lock("held").ttl(secs(60)).acquire().unwrap();
    let held = other.lock("n").acquire().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| away.lock("n").acquire_within(LIMIT * 2).unwrap());
        let queued = || other.lock("n").inspect().unwrap().waiters.len();
        eventually(LIMIT, || queued() == 1);
        proxy.set(Mode::Silent);
        eventually(LIMIT, || queued() == 0);
        proxy.set(Mode::Pass);
        proxy.close_all(End::Reset);
        eventually(LIMIT, || queued() == 1);
        held.release().unwrap();
        assert!(waits.join().unwrap().is_valid());
    });
    eventually(LIMIT, || lease.extend().is_ok());
}

#[test]
fn names_whose_holders_have_ended_are_removed_as_one_goes() {
    let store = Store::zookeeper();
    let client = store.client();
    for index in 0..40 {
        let lock = client.lock(format!("left:{index}")).ttl(ms(100)).renew(false);
        lock.acquire().unwrap().let_expire().unwrap();
    }
    thread::sleep(ms(200));
    let dead = || (0..40).filter(|at| last_fence(&client, &format!("left:{at}")).is_some()).count();
    assert_eq!(dead(), 40);
    // Each of the folders in turn.
    for _ in 0..64 * 33 {
        client.lock("n").acquire().unwrap().release().unwrap();
    }
    assert_eq!(dead(), 0);
}

fn last_fence(client: &Client, name: &str) -> Option<u64> {
    client.lock(name).inspect().unwrap().last_fence
}

#[test]
fn a_turn_costs_as_many_messages_however_many_wait() {
    let server = Zookeeper::start();
    let root = server.chroot();
    client(&server.url(&root)).initialize(false).unwrap();
    let received = || {
        let said = server.word("mntr").unwrap();
        let line = said.lines().find(|line| line.starts_with("zk_packets_received")).unwrap();
        line.split_whitespace().last().unwrap().parse::<u64>().unwrap()
    };
    let each = [2, 32].map(|count| {
        let url = with(&server.url(&root), "register=no");
        let clients: Vec<_> = (0..count).map(|_| client(&url)).collect();
        // Enough that connecting does not count.
        let turns = 640 / count;
        let before = received();
        thread::scope(|scope| {
            for client in &clients {
                scope.spawn(move || {
                    for _ in 0..turns {
                        let lock = client.lock("n").wait(LIMIT * 3);
                        lock.acquire().unwrap().release().unwrap();
                    }
                });
            }
        });
        (received() - before) as f64 / (turns * count) as f64
    });
    // Looking now and then, and heartbeats are in it.
    assert!(each[1] < each[0] + 2.0, "{each:?} messages a turn");
}

/// A fence is the number of the change that makes the grant, and one that is refused has a number too.
#[test]
fn the_first_who_comes_to_wait_is_handed_the_lock_by_one_change() {
    unless_starved(STALL, || {
        let server = Zookeeper::start();
        client(&server.url("")).initialize(false).unwrap();
        let last_change = || {
            let said = server.word("srvr").unwrap();
            let line = said.lines().find_map(|line| line.strip_prefix("Zxid: 0x")).unwrap();
            u64::from_str_radix(line, 16).unwrap()
        };
        let url = with(&server.url(""), "register=no");
        let [giver, taker, looks] = [(); 3].map(|()| client(&url));
        let held = giver.lock("n").try_acquire().unwrap().unwrap();
        let next = thread::scope(|scope| {
            let waits = scope.spawn(|| taker.lock("n").wait(LIMIT).acquire().unwrap());
            eventually(LIMIT, || !looks.lock("n").inspect().unwrap().waiters.is_empty());
            thread::sleep(ms(100));
            let before = last_change();
            held.release().unwrap();
            waits.join().unwrap().fence() - before
        });
        assert_eq!(next, 1);
    });
}

#[test]
fn c1_c2_c10_an_ensemble_that_loses_its_leader_keeps_leases_places_and_order() {
    let mut servers = Zookeeper::ensemble();
    let root = servers[0].chroot();
    let hosts: Vec<_> = servers.iter().map(|it| format!("127.0.0.1:{}", it.port())).collect();
    let url = format!("zookeeper://{}{root}", hosts.join(","));
    let (one, two, three) = (client(&url), client(&url), client(&url));
    one.initialize(false).unwrap();
    let lease = one.lock("n").ttl(secs(60)).acquire().unwrap();
    // Its holder is dead, and the leader who dated it will be.
    two.lock("dead").ttl(secs(3)).renew(false).acquire().unwrap().let_expire().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| two.lock("n").acquire_within(LIMIT * 3).unwrap());
        eventually(LIMIT, || three.lock("n").inspect().unwrap().waiters.len() == 1);
        let leader = servers.iter().position(Zookeeper::is_leader).unwrap();
        servers[leader].crash();
        eventually(LIMIT * 2, || lease.extend().is_ok());
        let fence = lease.fence();
        lease.release().unwrap();
        let next = waits.join().unwrap();
        // The upper half counts elections.
        assert!(next.fence() >> 32 > fence >> 32 && next.is_valid());
        next.release().unwrap();
        let third = three.lock("dead").acquire_within(LIMIT * 2).unwrap();
        third.release().unwrap();
        // Of the two that are left one goes: nobody has a majority.
        let other = (0..3).find(|at| *at != leader).unwrap();
        let held = three.lock("m").ttl(secs(60)).acquire().unwrap();
        servers[other].crash();
        let asked = Instant::now();
        let fast = Client::open(&with(&url, "io_timeout=500ms")).unwrap();
        let error = fast.lock("n").try_acquire().map(drop).unwrap_err();
        assert!(error.is_retriable() && asked.elapsed() < secs(2), "{error}");
        servers[other].start_again();
        eventually(LIMIT * 2, || held.extend().is_ok());
        held.release().unwrap();
        assert!(one.lock("m").acquire_within(LIMIT).unwrap().is_valid());
    });
}

#[cfg(feature = "tls")]
#[test]
fn c12_with_tls_both_ends_know_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let certificates = Certificates::make(dir.path());
    let (shown, key) = certificates.server(kit::ServerCertificate::Good);
    let store = dir.path().join("server.p12");
    let mut openssl = Command::new("openssl");
    openssl.args(["pkcs12", "-export", "-passout", "pass:secret", "-in"]).arg(shown);
    openssl.arg("-inkey").arg(key).arg("-out").arg(&store);
    assert!(openssl.status().unwrap().success());
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = Zookeeper::start_with(
        &[
            "-Dzookeeper.forceSync=no",
            "-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            &format!("-Dzookeeper.ssl.keyStore.location={}", store.display()),
            "-Dzookeeper.ssl.keyStore.type=PKCS12",
            "-Dzookeeper.ssl.keyStore.password=secret",
            &format!("-Dzookeeper.ssl.trustStore.location={}", certificates.ca().display()),
            "-Dzookeeper.ssl.trustStore.type=PEM",
        ],
        &[&format!("secureClientPort={port}"), "secureClientPortAddress=127.0.0.1"],
    );
    let root = server.chroot();
    client(&server.url(&root)).initialize(false).unwrap();
    let ca = certificates.ca().display().to_string();
    let (cert, key) = certificates.client();
    let secure = format!("zookeeper://localhost:{port}{root}?tls=yes&ca={ca}");
    let known = format!("{secure}&cert={}&key={}", cert.display(), key.display());
    let (one, two) = (client(&known), client(&known));
    let lease = one.lock("n").acquire().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| two.lock("n").acquire_within(LIMIT).unwrap());
        eventually(LIMIT, || one.lock("n").inspect().unwrap().waiters.len() == 1);
        lease.release().unwrap();
        assert!(waits.join().unwrap().is_valid());
    });
    #[cfg(feature = "examine")]
    {
        let found = one.examine(&leasehold::Checkup::default()).unwrap();
        assert!(found.measured.iter().any(|it| it.what == "version"), "{found:?}");
    }
    let nobody = refused(&secure);
    assert!(matches!(nobody.kind(), ErrorKind::Tls | ErrorKind::Refused), "{nobody}");
    let plain = refused(&with(&server.url(&root), &format!("tls=yes&ca={ca}")));
    assert!(plain.detail().contains("zookeeper:// without tls=yes"), "{plain}");
}
