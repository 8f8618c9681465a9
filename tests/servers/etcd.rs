//! What is an etcd's own: users and their rights, TLS, members that die and leaders that change, and
//! what is left of a client that was killed.

use std::path::Path;
use std::thread;

use kit::{End, Etcd, Mode, Proxy, eventually, eventually_some};
use leasehold::command::last_breach;
use leasehold::{Break, Client, Config, ErrorKind};

use crate::stores::{LIMIT, Store, holder, ms, open, secs};

/// Of each of two clients.
const TURNS: usize = 150;

/// The statements of the documentation: for all names, or for those of a prefix.
fn grants(block: usize) -> Vec<String> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operate/rights.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let block = guide.split("```etcdctl\n").nth(block).unwrap().split("```").next().unwrap();
    block.lines().map(str::to_owned).collect()
}

fn refused(url: &str) -> leasehold::Error {
    open(url).lock("n").try_acquire().map(drop).unwrap_err()
}

/// With users, of which the documentation's `app` may do what its statements say: those for all names,
/// or those of the second block instead for the names of a prefix.
fn with_users(is_narrow: bool) -> Etcd {
    let etcd = Etcd::start();
    etcd.ctl(&["user", "add", "root:root"]);
    etcd.ctl(&["user", "grant-role", "root", "root"]);
    for user in ["app:secret", "other:secret"] {
        etcd.ctl(&["user", "add", user]);
    }
    etcd.ctl(&["auth", "enable"]);
    let mut grants = grants(1);
    assert_eq!(grants.len(), 3);
    if is_narrow {
        let narrow = self::grants(2);
        assert_eq!(narrow.len(), 3);
        grants.splice(1..2, narrow);
    }
    for grant in &grants {
        as_root(&etcd, grant);
    }
    etcd
}

fn as_root(etcd: &Etcd, line: &str) {
    let words: Vec<_> = ["--user", "root:root"].into_iter().chain(line.split(' ')).collect();
    etcd.try_ctl(&words).unwrap();
}

/// All that programs and operators do.
fn uses_all(url: &str) {
    let (app, other) = (open(url), open(url));
    let lease = app.lock("n").acquire().unwrap();
    let known = || app.lock("n").inspect().unwrap().holder.unwrap().client.is_some();
    eventually(LIMIT, known);
    let waiting = thread::spawn(move || other.lock("n").acquire_within(LIMIT).unwrap().release());
    eventually(LIMIT, || app.lock("n").inspect().unwrap().waiters.len() == 1);
    lease.extend().unwrap();
    lease.release().unwrap();
    waiting.join().unwrap().unwrap();
    let lease = app.lock("n").acquire().unwrap();
    let listed: Vec<_> = app.list("*").map(|listed| listed.unwrap().name).collect();
    assert_eq!(listed, [b"n"]);
    assert!(matches!(app.lock("n").break_held(None, "root@web-3"), Ok(Break::Broken { .. })));
    let breach = last_breach(&app.lock("n")).unwrap().unwrap();
    assert_eq!(breach.by, "root@web-3");
    assert_eq!(lease.release().unwrap_err().kind(), ErrorKind::Lost);
}

#[test]
fn the_rights_of_the_documentation_are_enough_and_others_have_none() {
    let etcd = with_users(false);
    let url = |user: &str| format!("etcd://{user}@{}", etcd.hosts());
    uses_all(&url("app:secret"));
    assert_eq!(refused(&url("app:wrong")).kind(), ErrorKind::Auth);
    assert_eq!(refused(&etcd.url()).kind(), ErrorKind::Auth);
    let error = refused(&url("other:secret"));
    assert_eq!(error.kind(), ErrorKind::Permission);
    assert!(error.detail().contains("grant-permission"), "{error}");
    let app = open(&url("app:secret"));
    app.lock("n").acquire().unwrap().release().unwrap();
    // A token that the server has forgotten is made anew.
    as_root(&etcd, "role add another");
    app.lock("n").acquire().unwrap().release().unwrap();
    let none = Etcd::start();
    let unknown = format!("etcd://app:secret@{}", none.hosts());
    assert_eq!(refused(&unknown).kind(), ErrorKind::Auth, "no users are known there");
}

#[test]
fn the_rights_for_a_prefix_are_enough_for_its_names_and_for_no_others() {
    let etcd = with_users(true);
    let url = format!("etcd://app:secret@{}?prefix=app:", etcd.hosts());
    uses_all(&url);
    for others in [url.replace("?prefix=app:", ""), url.replace("prefix=app:", "prefix=other:")] {
        let error = refused(&others);
        assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
    }
    let is_mended = |error: &leasehold::Error, kind: &str| {
        let mend = "etcdctl role grant-permission ROLE --prefix=true readwrite leasehold/";
        let said = error.to_string();
        assert!(said.contains(&format!("a right is missing: {mend}{kind}/app:")), "{said}");
        assert_eq!(said.matches(mend).count(), 1, "{said}");
    };
    // Without one of them, something is missing.
    for kind in ["lock", "note", "client"] {
        let change = format!("--prefix=true locks leasehold/{kind}/app:");
        as_root(&etcd, &format!("role revoke-permission {change}"));
        let client = open(&url);
        let holder = || client.lock("n").inspect().map(|state| state.holder.unwrap());
        match kind {
            "lock" => {
                assert_eq!(refused(&url).kind(), ErrorKind::Permission);
                is_mended(&refused(&url), kind);
            }
            "note" => {
                let lease = client.lock("n").acquire().unwrap();
                let error = client.lock("n").break_held(None, "test").unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
                is_mended(&error, kind);
                lease.release().unwrap();
            }
            _ => {
                let lease = client.lock("n").acquire().unwrap();
                let error = || client.lock("n").acquire_within(ms(500)).unwrap_err();
                eventually(LIMIT, || error().to_string().contains("held by client "));
                assert!(holder().unwrap().client.is_none());
                lease.release().unwrap();
            }
        }
        let grant = format!("--prefix=true locks readwrite leasehold/{kind}/app:");
        as_root(&etcd, &format!("role grant-permission {grant}"));
    }
    uses_all(&url);
}

/// With a user, whose password is as costly to check as these settings say.
fn with_password(settings: &[&str]) -> (Etcd, String) {
    let etcd = Etcd::start_with(1, settings);
    etcd.ctl(&["user", "add", "root:root"]);
    etcd.ctl(&["user", "grant-role", "root", "root"]);
    etcd.ctl(&["auth", "enable"]);
    let url = format!("etcd://root:root@{}", etcd.hosts());
    (etcd, url)
}

const LOGIN: &str = "Authenticate";

#[test]
fn c7_a_login_that_takes_longer_than_a_call_goes_on_and_serves_the_next_one() {
    let (etcd, url) = with_password(&["--bcrypt-cost=4"]);
    let mut proxy = Proxy::start(etcd.port(0));
    let url = url.replace(&etcd.hosts(), &format!("127.0.0.1:{}", proxy.port()));
    let config = Config::from_url(&url).unwrap().io_timeout(ms(300));
    let (client, before) = (Client::with_config(config).unwrap(), etcd.calls(0, LOGIN));
    let lock = client.lock("n");
    // It is as if the server had not come to it yet.
    proxy.set_only(LOGIN.as_bytes(), Mode::HoldRequests);
    for _ in 0..2 {
        assert_eq!(lock.try_acquire().map(drop).unwrap_err().kind(), ErrorKind::NoAnswer);
        assert!(proxy.held() > 0);
        assert_eq!(proxy.accepted(), 1);
    }
    proxy.deliver();
    eventually(LIMIT, || lock.try_acquire().is_ok_and(|lease| lease.is_some()));
    assert_eq!(etcd.calls(0, LOGIN) - before, 1);
}

#[test]
fn all_threads_of_a_client_log_in_once_and_again_once_when_the_server_has_forgotten_them() {
    let (mut etcd, url) = with_password(&[]);
    let (client, before) = (open(&url), etcd.calls(0, LOGIN));
    let all = || {
        thread::scope(|scope| {
            for at in 0..8 {
                let lock = client.lock(format!("n{at}"));
                scope.spawn(move || {
                    let lease = eventually_some(LIMIT, || lock.try_acquire().ok().flatten());
                    drop(lease);
                });
            }
        });
    };
    all();
    let (holder, waiter) = (client.lock("held"), client.lock("waited for"));
    let _held = holder.ttl(secs(10)).acquire().unwrap();
    assert_eq!(etcd.calls(0, LOGIN) - before, 1);
    // A server knows its tokens for as long as it runs, and those of which it reads in its log.
    as_root(&etcd, "defrag");
    etcd.kill(0);
    etcd.start_again(0);
    let before = client.counters().renewed;
    all();
    waiter.acquire_within(LIMIT).unwrap().release().unwrap();
    eventually(LIMIT, || client.counters().renewed > before);
    assert_eq!(etcd.calls(0, LOGIN), 1);
}

#[test]
fn a_token_is_used_again_on_the_next_connection() {
    let (etcd, url) = with_password(&["--bcrypt-cost=4"]);
    let proxy = Proxy::start(etcd.port(0));
    let url = url.replace(&etcd.hosts(), &format!("127.0.0.1:{}", proxy.port()));
    let (client, before) = (open(&url), etcd.calls(0, LOGIN));
    let takes = || {
        let lock = client.lock("n");
        eventually_some(LIMIT, || lock.try_acquire().ok().flatten()).release().unwrap();
    };
    takes();
    for end in [End::Reset, End::Fin] {
        let accepted = proxy.accepted();
        proxy.close_all(end);
        eventually(LIMIT, || proxy.open() == 0);
        takes();
        assert!(proxy.accepted() > accepted);
    }
    assert_eq!(etcd.calls(0, LOGIN) - before, 1);
}

#[test]
fn a_login_that_is_lost_on_its_way_is_made_again() {
    let (etcd, url) = with_password(&["--bcrypt-cost=4"]);
    let mut proxy = Proxy::start(etcd.port(0));
    let url = url.replace(&etcd.hosts(), &format!("127.0.0.1:{}", proxy.port()));
    let config = Config::from_url(&url).unwrap().io_timeout(ms(100));
    let client = Client::with_config(config).unwrap();
    let lock = client.lock("n");
    // Nothing comes back on this connection any more, not even that the server is there.
    proxy.set(Mode::Silent);
    assert!(lock.try_acquire().map(drop).unwrap_err().is_retriable());
    proxy.set(Mode::Pass);
    eventually(LIMIT, || lock.try_acquire().is_ok_and(|lease| lease.is_some()));
}

#[cfg(feature = "tls")]
#[test]
fn it_speaks_tls_and_shows_a_certificate() {
    use kit::{Certificates, ServerCertificate};

    let dir = tempfile::tempdir().unwrap();
    let all = Certificates::make(dir.path());
    let (cert, key) = all.server(ServerCertificate::Good);
    let (show, own) = all.client();
    let settings = [
        format!("--cert-file={}", cert.display()),
        format!("--key-file={}", key.display()),
        format!("--trusted-ca-file={}", all.ca().display()),
        "--client-cert-auth".to_owned(),
    ];
    let etcd = Etcd::start_with(1, &settings.each_ref().map(String::as_str));
    let ca = format!("etcds://{}?ca={}", etcd.hosts(), all.ca().display());
    let url = format!("{ca}&cert={}&key={}", show.display(), own.display());
    let (one, two) = (open(&url), open(&url));
    let lease = one.lock("n").acquire().unwrap();
    let waiting = thread::spawn(move || two.lock("n").acquire_within(LIMIT).unwrap().release());
    eventually(LIMIT, || one.lock("n").inspect().unwrap().waiters.len() == 1);
    lease.release().unwrap();
    waiting.join().unwrap().unwrap();
    for wrong in [ca.clone(), format!("etcds://{}", etcd.hosts())] {
        assert_eq!(refused(&wrong).kind(), ErrorKind::Tls, "{wrong}");
    }
    let plain = Config::from_url(&etcd.url()).unwrap().io_timeout(ms(500));
    let error = Client::with_config(plain).unwrap().lock("n").try_acquire().map(drop).unwrap_err();
    assert_ne!(error.kind(), ErrorKind::BadArgument, "{error}");
}

#[test]
fn c1_c2_leases_outlive_the_leader_and_fences_grow() {
    let mut etcd = Etcd::start_with(3, &[]);
    let (holding, waiting) = (open(&etcd.url()), open(&etcd.url()));
    let lease = holding.lock("n").ttl(secs(6)).acquire().unwrap();
    let fence = lease.fence();
    let next = thread::spawn(move || {
        let lease = waiting.lock("n").acquire_within(LIMIT * 2).unwrap();
        (lease.fence(), lease.release())
    });
    eventually(LIMIT, || holding.lock("n").inspect().unwrap().waiters.len() == 1);
    for _ in 0..2 {
        let leader = etcd.leader();
        etcd.kill(leader);
        let renewed = holding.counters().renewed;
        eventually(LIMIT, || holding.counters().renewed > renewed);
        assert!(lease.is_valid());
        etcd.start_again(leader);
    }
    lease.release().unwrap();
    let (later, released) = next.join().unwrap();
    released.unwrap();
    assert!(later > fence);
}

#[test]
fn a_client_that_closes_leaves_no_lease() {
    let etcd = Etcd::start();
    let leases = || etcd.ctl(&["lease", "list"]).lines().skip(1).count();
    let client = open(&etcd.url());
    let locks: Vec<_> = (0..40).map(|at| client.lock(format!("n{at}")).ttl(secs(3600))).collect();
    let mut held: Vec<_> = locks.iter().map(|lock| lock.acquire().unwrap()).collect();
    assert!(leases() >= 40);
    held.drain(20..).for_each(|lease| lease.release().unwrap());
    client.close_within(LIMIT).unwrap();
    assert_eq!(leases(), 0);
}

#[test]
fn without_a_majority_nobody_gets_a_lock() {
    let mut etcd = Etcd::start_with(3, &[]);
    let client = open(&etcd.url());
    client.lock("n").acquire().unwrap().release().unwrap();
    let lease = client.lock("held").ttl(secs(3)).acquire().unwrap();
    etcd.kill(0);
    etcd.kill(1);
    let config = Config::from_url(&etcd.url()).unwrap().io_timeout(secs(1));
    let other = Client::with_config(config).unwrap();
    let error = other.lock("n").try_acquire().map(drop).unwrap_err();
    assert!(error.is_retriable(), "{error}");
    eventually(LIMIT, || !lease.is_valid());
    etcd.start_again(0);
    etcd.start_again(1);
    let later = other.lock("held").acquire_within(LIMIT * 2).unwrap();
    assert!(later.fence() > lease.fence());
}

/// An etcd walks by each key that ever was under a name: new ones would make later turns slower.
#[test]
fn turns_that_go_to_and_fro_leave_few_keys_behind() {
    let store = Store::etcd();
    let Store::Etcd(etcd) = &store else { panic!() };
    let clients = [(); 2].map(|()| store.client());
    thread::scope(|scope| {
        for client in &clients {
            scope.spawn(move || {
                for turn in 0..TURNS {
                    let lease = client.lock("n").acquire_within(LIMIT).unwrap();
                    // Every other one is given without waiting for the answer.
                    if turn % 2 == 0 {
                        lease.release().unwrap();
                    }
                }
            });
        }
    });
    let keys = etcd.keys_ever("leasehold/lock/n/");
    assert!(keys.len() <= 8, "{keys:?}");
}

#[test]
fn what_is_no_longer_used_is_gone() {
    let store = Store::etcd();
    let Store::Etcd(etcd) = &store else { panic!() };
    {
        let clients = [(); 3].map(|()| store.client());
        thread::scope(|scope| {
            for client in &clients {
                scope.spawn(move || {
                    for turn in 0..20 {
                        let lock = client.lock(format!("n{}", turn % 2)).ttl(secs(2));
                        lock.acquire_within(LIMIT).unwrap().release().unwrap();
                    }
                });
            }
        });
        assert!(holder(&clients[0], "n0").is_none());
    }
    eventually(LIMIT, || etcd.ctl(&["get", "--prefix", "--keys-only", "leasehold/"]).is_empty());
    eventually(LIMIT, || etcd.ctl(&["lease", "list"]).lines().count() == 1);
}
