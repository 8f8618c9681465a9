//! Every call ends by its deadline, whatever does not answer.

use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use kit::*;
use leasehold::command::last_breach;
use leasehold::{Client, Error, ErrorKind, Lease};
use redis::Value;

use crate::far::{Far, SLACK, Said, on_each_own_server, on_each_server};
use crate::stores::ms;

const LIMIT: Duration = Duration::from_secs(10);
const IO: Duration = Duration::from_millis(200);

fn open(url: &str) -> Client {
    Client::open(&format!("{url}?io_timeout=200ms")).unwrap()
}

type Call<'a> = &'a dyn Fn() -> Result<(), Error>;

/// The calls that take nothing and need nothing; none of them gets an answer.
#[track_caller]
fn assert_in_time(client: &Client, kinds: &[ErrorKind]) {
    let lock = client.lock("lock");
    let calls: [(&str, Call<'_>); 7] = [
        ("try_acquire", &|| lock.try_acquire().map(drop)),
        ("acquire", &|| lock.acquire_within(IO).map(drop)),
        ("a short acquire", &|| lock.acquire_within(ms(20)).map(drop)),
        ("a wait of zero", &|| lock.acquire_within(ms(0)).map(drop)),
        ("show", &|| lock.inspect().map(drop)),
        ("last_breach", &|| last_breach(&lock).map(drop)),
        ("ping", &|| client.ping()),
    ];
    for (name, call) in calls {
        let watch = Stopwatch::start();
        let error = call().unwrap_err();
        watch.assert_at_most(IO, SLACK);
        assert!(kinds.contains(&error.kind()), "{name}: {error}");
        assert!(error.is_retriable(), "{name}: {error}");
    }
}

/// The same for what is done with a lease.
#[track_caller]
fn assert_ends_in_time(leases: [Lease; 3]) {
    let [extended, released, dropped] = leases;
    let watch = Stopwatch::start();
    extended.extend().unwrap_err();
    watch.assert_at_most(IO, SLACK);
    let watch = Stopwatch::start();
    assert_eq!(released.release().unwrap_err().kind(), ErrorKind::Unknown);
    watch.assert_at_most(IO, SLACK);
    let watch = Stopwatch::start();
    drop(dropped);
    watch.assert_at_most(IO, SLACK);
    drop(extended);
}

fn leases(client: &Client, suffix: &str) -> [Lease; 3] {
    ["one", "two", "three"]
        .map(|name| client.lock(format!("{name}{suffix}")).try_acquire().unwrap().unwrap())
}

on_each_server! {
    c7_a_lock_may_leave_a_silent_server_less_time_than_its_client,
    c7_connections_that_carry_nothing_or_byte_by_byte,
    c7_a_wait_ends_by_its_own_limit_whatever_happens_meanwhile,
    c7_a_pool_that_is_used_up,
    c7_a_connection_that_went_mute_costs_one_call_its_time,
    a_server_that_does_not_answer_does_not_say_that_nobody_has_broken_a_lock,
}

fn a_server_that_does_not_answer_does_not_say_that_nobody_has_broken_a_lock(far: &mut Far) {
    let client = far.warm("io_timeout=2s");
    let lock = client.lock("broken");
    let _lease = lock.try_acquire().unwrap().unwrap();
    far.near.lock("broken").break_held(None, "root@desk-3").unwrap();
    far.proxy.set(Mode::Silent);
    let error = last_breach(&lock).unwrap_err();
    assert!(error.is_retriable() && error.to_string().contains("'broken'"), "{error}");
    far.heal();
    let by = eventually_some(LIMIT, || last_breach(&lock).ok()).map(|breach| breach.by);
    assert_eq!(by.as_deref(), Some("root@desk-3"));
}

/// A caller that turns duplicates away has an answer by then, or an error that is not "busy".
fn c7_a_lock_may_leave_a_silent_server_less_time_than_its_client(far: &mut Far) {
    for mode in [Mode::SwallowReplies, Mode::Silent] {
        far.proxy.set(Mode::Pass);
        let client = far.warm("io_timeout=2s");
        let held = client.lock("held").try_acquire().unwrap().unwrap();
        // So that an etcd's next take makes no lease of its own first, which takes nothing.
        client.lock("other").try_acquire().unwrap().unwrap().release().unwrap();
        far.proxy.set(mode);
        let lock = client.lock("lock").io_timeout(ms(50));
        let calls: [(Duration, Call<'_>); 4] = [
            (ms(50), &|| lock.try_acquire().map(drop)),
            (ms(50), &|| lock.acquire_within(ms(0)).map(drop)),
            (ms(50), &|| lock.acquire_within(ms(20)).map(drop)),
            (ms(200), &|| lock.acquire_within(ms(200)).map(drop)),
        ];
        for (span, call) in calls {
            let watch = Stopwatch::start();
            let error = call().unwrap_err();
            watch.assert_at_most(span, SLACK);
            let kinds = [ErrorKind::NoAnswer, ErrorKind::Unknown];
            assert!(kinds.contains(&error.kind()), "{error}");
        }
        assert!(client.counters().unknown > 0);
        // What may have been taken is given back.
        far.heal();
        eventually(LIMIT, || far.holder("lock").is_none());
        held.release().unwrap();
    }
}

/// The next one has another connection.
fn c7_a_connection_that_went_mute_costs_one_call_its_time(far: &mut Far) {
    let client = far.warm("io_timeout=300ms");
    for turn in 0..5 {
        far.proxy.set(Mode::Silent);
        client.lock("lock").inspect().unwrap_err();
        far.proxy.set(Mode::Pass);
        client.lock(format!("lock-{turn}")).try_acquire().unwrap().unwrap().release().unwrap();
    }
}

#[test]
fn c7_no_time_and_more_than_an_hour_are_no_io_timeout() {
    let client = open("redis://127.0.0.1");
    for wrong in [Duration::ZERO, Duration::from_secs(3601)] {
        let error = client.lock("lock").io_timeout(wrong).try_acquire().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadArgument);
        assert!(error.detail().contains("io_timeout"), "{error}");
    }
}

fn c7_connections_that_carry_nothing_or_byte_by_byte(far: &mut Far) {
    // The shortest answers have four bytes, and three pauses between them.
    for mode in [Mode::Silent, Mode::Dribble(ms(130)), Mode::SwallowReplies] {
        far.proxy.set(Mode::Pass);
        let client = far.warm("io_timeout=200ms");
        let leases = leases(&client, &format!("{mode:?}"));
        far.proxy.set(mode);
        assert_in_time(&client, &[ErrorKind::NoAnswer, ErrorKind::Unknown]);
        assert_ends_in_time(leases);
        far.proxy.set(Mode::Pass);
        eventually(LIMIT, || far.holder("lock").is_none());
    }
}

fn c7_a_wait_ends_by_its_own_limit_whatever_happens_meanwhile(far: &mut Far) {
    let client = far.open("io_timeout=200ms");
    let held = far.near.lock("lock").try_acquire().unwrap().unwrap();
    for mode in [Mode::Pass, Mode::Silent, Mode::Dribble(ms(80)), Mode::DelayReplies(ms(150))] {
        far.proxy.set(Mode::Pass);
        std::thread::scope(|scope| {
            let busy = client.counters().busy;
            let waiter = scope.spawn(|| {
                let watch = Stopwatch::start();
                client.lock("lock").acquire_within(ms(900)).map(drop).unwrap_err();
                watch.assert_at_least(ms(890));
                watch.assert_at_most(ms(900), SLACK);
            });
            eventually(LIMIT, || client.counters().busy > busy);
            far.proxy.set(mode);
            waiter.join().unwrap();
        });
    }
    held.release().unwrap();
}

fn c7_a_pool_that_is_used_up(far: &mut Far) {
    let client = far.warm("io_timeout=200ms&pool=1");
    let lease = client.lock("held").try_acquire().unwrap().unwrap();
    // Only takes get no answer.
    far.set_only(Said::Take, Mode::SwallowReplies);
    let several = |meanwhile: &mut dyn FnMut()| -> Vec<ErrorKind> {
        std::thread::scope(|scope| {
            let call = || {
                let watch = Stopwatch::start();
                let error = client.lock("lock").try_acquire().map(drop).unwrap_err();
                watch.assert_at_most(IO, SLACK);
                error.kind()
            };
            let callers: Vec<_> = (0..6).map(|_| scope.spawn(call)).collect();
            meanwhile();
            callers.into_iter().map(|caller| caller.join().unwrap()).collect()
        })
    };
    let (before, mut lease) = (far.proxy.request_bytes(), Some(lease));
    let mut kinds = several(&mut || {
        eventually(LIMIT, || far.proxy.request_bytes() > before);
        let watch = Stopwatch::start();
        lease.take().unwrap().release().unwrap();
        watch.assert_at_most(ms(0), ms(200));
    });
    // Who comes a moment later than the others may be lent the connection for that moment.
    for _ in 0..20 {
        if !kinds.contains(&ErrorKind::Exhausted) {
            kinds.extend(several(&mut || {}));
        }
    }
    let expected = [ErrorKind::Exhausted, ErrorKind::Unknown, ErrorKind::NoAnswer];
    assert!(kinds.iter().all(|kind| expected.contains(kind)), "{kinds:?}");
    assert!(kinds.contains(&ErrorKind::Exhausted), "{kinds:?}");
}

on_each_own_server! {
    c7_a_server_that_stands_still,
}

fn c7_a_server_that_stands_still(far: &mut Far) {
    let [fresh, used] = [open(&far.store.url()), open(&far.store.url())];
    let leases = leases(&used, "");
    far.store.stop();
    // Nothing has ever answered this one, so it does not wait for the end of an outage.
    let watch = Stopwatch::start();
    fresh.lock("lock").acquire().unwrap_err();
    watch.assert_at_most(IO, SLACK);
    for client in [&fresh, &used] {
        assert_in_time(client, &[ErrorKind::NoAnswer, ErrorKind::Unknown]);
    }
    assert_ends_in_time(leases);
    let watch = Stopwatch::start();
    used.close_within(ms(100)).unwrap();
    watch.assert_at_most(IO, SLACK);
    far.store.go_on();
}

#[test]
fn c7_a_server_with_a_password_that_stands_still() {
    let server = Server::builder().arg("--requirepass", "secret").start();
    let client = open(&server.url());
    server.stop();
    assert_in_time(&client, &[ErrorKind::NoAnswer]);
    server.cont();
}

#[test]
fn c7_connecting_that_leads_nowhere() {
    let hole = BlackHole::open();
    assert_in_time(&open(&hole.url()), &[ErrorKind::NoAnswer]);
}

#[test]
fn c7_connecting_that_is_refused() {
    let mut server = Server::start();
    let url = server.url();
    server.kill();
    let refused = open(&url);
    assert_in_time(&refused, &[ErrorKind::Refused]);
    let dir = tempfile::tempdir().unwrap();
    let missing = open(&format!("unix://{}/missing", dir.path().display()));
    assert_in_time(&missing, &[ErrorKind::Refused]);
}

#[test]
fn c14_dropping_a_lease_waits_shortly_for_a_connection_and_leaves_the_rest_to_the_keeper() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    let client = Client::open(&format!("{}?io_timeout=1s&pool=1", proxy.url())).unwrap();
    let [one, two, three] = leases(&client, "");
    drop(three);
    proxy.set(Mode::Silent);
    std::thread::scope(|scope| {
        // One waits on the pool's only connection, the other on the one reserved for releases.
        for call in [
            Box::new(|| drop(client.lock("lock").try_acquire())) as Box<dyn FnOnce() + Send>,
            Box::new(move || drop(one.release())),
        ] {
            let before = proxy.request_bytes();
            scope.spawn(call);
            eventually(LIMIT, || proxy.request_bytes() > before);
        }
        let watch = Stopwatch::start();
        drop(two);
        watch.assert_at_most(ms(50), SLACK);
        proxy.set(Mode::Pass);
        // Given by the keeper, at once, while both of them still wait.
        eventually(LIMIT, || server.cmd(&["EXISTS", "two"]) == Value::Int(0));
    });
}

#[test]
fn c14_dropping_a_lease_waits_shortly_for_connecting() {
    unless_starved(STALL, || {
        let server = Server::builder().arg("--tcp-backlog", "1").start();
        let client = Client::open(&format!("{}?io_timeout=1s", server.url())).unwrap();
        let lease = client.lock("lock").try_acquire().unwrap().unwrap();
        server.cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
        server.stop();
        // Its queue full, a server that stands still takes no further connection.
        let address = SocketAddr::from(([127, 0, 0, 1], server.port()));
        let mut queued = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, ms(300)) {
            queued.push(stream);
            assert!(queued.len() < 16, "the queue never fills");
        }
        let watch = Stopwatch::start();
        drop(lease);
        watch.assert_at_most(ms(50), SLACK);
        drop(queued);
        server.cont();
        eventually(LIMIT, || server.cmd(&["EXISTS", "lock"]) == Value::Int(0));
    });
}

/// Runs in a mount namespace whose only name server is the one below.
#[test]
#[ignore = "a child of c7_a_name_server_that_does_not_answer"]
fn child_without_names() {
    let client = open("redis://redis.example.com");
    let start = Instant::now();
    assert_in_time(&client, &[ErrorKind::NoAnswer]);
    assert!(start.elapsed() > IO, "the name server was asked");
}

#[test]
fn c7_a_name_server_that_does_not_answer() {
    let mounts = Command::new("unshare").args(["-m", "true"]).output();
    let silent = UdpSocket::bind("127.0.53.77:53");
    let (true, Ok(_silent)) = (mounts.is_ok_and(|output| output.status.success()), silent) else {
        eprintln!("not run: a mount namespace and port 53 are root's alone");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (config, order) = (dir.path().join("resolv.conf"), dir.path().join("nsswitch.conf"));
    std::fs::write(&config, "nameserver 127.0.53.77\n").unwrap();
    std::fs::write(&order, "hosts: files dns\n").unwrap();
    const SCRIPT: &str = r#"
        mount --bind "$1" /etc/resolv.conf && mount --bind "$2" /etc/nsswitch.conf || exit 99
        shift 2
        exec timeout 60 "$@""#;
    let mut child = Command::new("unshare");
    child.args(["-m", "sh", "-c", SCRIPT, "sh"]).args([config, order]);
    child.arg(std::env::current_exe().unwrap());
    child.args(["deadline::child_without_names", "--exact", "--ignored", "--nocapture"]);
    let output = child.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
}
