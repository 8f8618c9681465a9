//! Refusals that will not go away by themselves: reported at once, typed, and with nothing changed.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use kit::*;
use leasehold::{Client, Error, ErrorKind, Lock};
use redis::Value;

const LIMIT: Duration = Duration::from_secs(10);
/// Long enough to tell a refusal at once from one at the deadline.
const PATIENT: &str = "io_timeout=5s";

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn text(value: &str) -> Value {
    Value::BulkString(value.as_bytes().to_vec())
}

fn lock(url: &str) -> Lock {
    Client::open(url).unwrap().lock("lock").ttl(LIMIT)
}

/// Both ways of taking a lock are refused, without waiting.
#[track_caller]
fn assert_refused(lock: &Lock, kind: ErrorKind) -> Error {
    let watch = Stopwatch::start();
    let waited = lock.acquire_within(LIMIT).map(drop).unwrap_err();
    let error = lock.try_acquire().map(drop).unwrap_err();
    watch.assert_at_most(ms(0), ms(1000));
    assert_eq!(waited.kind(), kind, "{waited}");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(!error.is_retriable());
    error
}

#[test]
fn c13_a_password_that_is_wrong_or_missing_is_refused_at_once() {
    let server = Server::builder().arg("--requirepass", "right").start();
    let port = server.port();
    for (credentials, mend) in [
        ("", "it wants a password: write redis://:password@host"),
        (":wrong@", "the password is wrong, or the user is missing"),
        ("default:wrong@", "the password is wrong"),
        ("nobody:right@", "the user is missing"),
    ] {
        let url = format!("redis://{credentials}127.0.0.1:{port}?{PATIENT}");
        let error = assert_refused(&lock(&url), ErrorKind::Auth);
        // C12
        assert!(!format!("{error} {error:?}").contains("wrong@"), "{error}");
        assert!(error.detail().contains(mend), "{error}");
        let client = Client::open(&url).unwrap();
        let pinged = client.ping().unwrap_err();
        assert_eq!(pinged.kind(), ErrorKind::Auth);
    }
    assert_eq!(server.cmd(&["DBSIZE"]), Value::Int(0));
    assert!(lock(&server.url()).try_acquire().unwrap().is_some());

    let open = Server::start();
    let url = format!("redis://:needless@127.0.0.1:{}?{PATIENT}", open.port());
    let error = assert_refused(&lock(&url), ErrorKind::Auth);
    assert!(error.detail().contains("leave the password out of the URL"), "{error}");
}

#[test]
fn c13_a_database_that_does_not_exist_is_refused_at_once() {
    let server = Server::start();
    let url = format!("{}/{}?{PATIENT}", server.url(), 99);
    assert_refused(&lock(&url), ErrorKind::BadArgument);
}

const COMMANDS: [&str; 8] =
    ["evalsha", "script|load", "time", "get", "set", "pttl", "pexpire", "del"];

/// A user who may do everything that a lock needs but one thing.
fn user_without(server: &Server, command: &str) -> Client {
    let granted: Vec<_> =
        COMMANDS.iter().filter(|name| **name != command).map(|name| format!("+{name}")).collect();
    let mut words = vec!["ACL", "SETUSER", "clerk", "reset", "on", ">pw", "~*", "&*"];
    words.extend(granted.iter().map(String::as_str));
    server.cmd(&words);
    Client::open(&format!("redis://clerk:pw@127.0.0.1:{}?{PATIENT}", server.port())).unwrap()
}

#[test]
fn c13_a_command_that_the_user_may_not_run_is_named_and_nothing_is_changed() {
    let server = Server::start();
    for command in COMMANDS {
        server.cmd(&["FLUSHALL"]);
        server.cmd(&["SCRIPT", "FLUSH"]);
        let client = user_without(&server, command);
        let lock = client.lock("lock").ttl(LIMIT);
        // Which calls need the command.
        let error = match command {
            "evalsha" | "script|load" | "time" | "get" | "set" => {
                let error = assert_refused(&lock, ErrorKind::Permission);
                assert_eq!(server.cmd(&["DBSIZE"]), Value::Int(0), "{command}");
                error
            }
            "pttl" => {
                server.cmd(&["SET", "lock", "another", "PX", "50000"]);
                let error = assert_refused(&lock, ErrorKind::Permission);
                assert_eq!(server.cmd(&["GET", "lock"]), text("another"));
                error
            }
            "pexpire" => {
                let lease = lock.try_acquire().unwrap().unwrap();
                let watch = Stopwatch::start();
                let error = lease.extend_for(LIMIT * 2).unwrap_err();
                watch.assert_at_most(ms(0), ms(1000));
                assert_eq!(error.kind(), ErrorKind::Permission);
                assert!(lease.is_valid(), "as valid as it was");
                assert_eq!(server.cmd(&["GET", "lock"]), text(&lease.token().to_string()));
                error
            }
            "del" => {
                let lease = lock.try_acquire().unwrap().unwrap();
                let token = lease.token().to_string();
                let watch = Stopwatch::start();
                let error = lease.release().unwrap_err();
                watch.assert_at_most(ms(0), ms(1000));
                assert_eq!(error.kind(), ErrorKind::Permission);
                assert_eq!(server.cmd(&["GET", "lock"]), text(&token));
                error
            }
            _ => unreachable!(),
        };
        let said = error.to_string().to_lowercase();
        // 6.2 names the command without its subcommand.
        let name = command.split('|').next().unwrap();
        assert!(said.contains(&format!("acl setuser user +{name}")), "{command}: {said}");
    }
}

#[test]
fn c13_a_user_with_exactly_the_commands_that_are_named_can_do_everything() {
    let server = Server::start();
    let client = user_without(&server, "none");
    let lock = client.lock("lock").ttl(LIMIT);
    let lease = lock.try_acquire().unwrap().unwrap();
    assert!(lock.try_acquire().unwrap().is_none());
    lease.extend().unwrap();
    assert!(lock.inspect().unwrap().holder.is_some());
    lease.release().unwrap();
}

/// A client of the user in docs/operate/rights.md with the rights in its first lines, word for word.
fn user_of_docs(server: &Server, lines: usize) -> Client {
    let page = include_str!("../../docs/operate/rights.md");
    let given = page.lines().filter(|line| line.starts_with("ACL SETUSER app "));
    for line in given.take(lines) {
        server.cmd(&line.split(' ').collect::<Vec<_>>());
    }
    Client::open(&format!("redis://app:secret@127.0.0.1:{}?{PATIENT}", server.port())).unwrap()
}

#[test]
fn c13_the_rights_in_the_documentation_are_enough_to_queue_and_without_the_second_line_to_spin() {
    // A new user may listen to nothing, or to everything as on 6.2.
    for channels in ["resetchannels", "allchannels"] {
        let server = Server::builder().arg("--acl-pubsub-default", channels).start();
        assert_documented_rights_are_enough(&server);
    }
}

fn assert_documented_rights_are_enough(server: &Server) {
    for (lines, is_told) in [(1, false), (2, true)] {
        let [holder, waiter] = [(); 2].map(|()| user_of_docs(server, lines));
        server.cmd(&["ACL", "LOG", "RESET"]);
        let [held, wanted] =
            [&holder, &waiter].map(|client| client.lock("stock:sku-17").ttl(LIMIT));
        let lease = held.acquire().unwrap();
        lease.extend().unwrap();
        let fence = lease.fence();
        std::thread::scope(|scope| {
            let busy = waiter.counters().busy;
            let waiting = scope.spawn(|| wanted.acquire().unwrap());
            // Before it asks a second time, it subscribes, if it may.
            eventually(LIMIT, || waiter.counters().busy > busy + 1);
            assert_eq!(server.cmd(&["PUBSUB", "CHANNELS"]) != Value::Array(vec![]), is_told);
            lease.release().unwrap();
            let next = waiting.join().unwrap();
            assert!(next.fence() > fence);
            next.release().unwrap();
        });
        let refused = server.cmd(&["ACL", "LOG"]);
        assert_eq!(refused == Value::Array(vec![]), is_told, "{refused:?}");
    }
}

#[test]
fn c13_a_key_that_the_user_may_not_touch_is_refused_at_once() {
    let server = Server::start();
    server.cmd(&["ACL", "SETUSER", "clerk", "reset", "on", ">pw", "~other:*", "+@all"]);
    let url = format!("redis://clerk:pw@127.0.0.1:{}?{PATIENT}", server.port());
    let error = assert_refused(&lock(&url), ErrorKind::Permission);
    assert!(error.detail().contains("ACL SETUSER USER ~NAME ~leasehold:{NAME}"), "{error}");
    assert_eq!(server.cmd(&["DBSIZE"]), Value::Int(0));
}

#[test]
fn c13_a_key_of_another_type_or_without_ttl_is_refused_and_stays_as_it_was() {
    let server = Server::start();
    let client = Client::open(&format!("{}?{PATIENT}", server.url())).unwrap();
    let lock = client.lock("lock").ttl(LIMIT);
    for words in [
        &["RPUSH", "lock", "a", "b"][..],
        &["HSET", "lock", "field", "value"],
        &["SADD", "lock", "member"],
        &["ZADD", "lock", "1", "member"],
        &["XADD", "lock", "1-1", "field", "value"],
        &["SET", "lock", "text"],
        &["SET", "lock", ""],
    ] {
        server.cmd(&["FLUSHALL"]);
        server.cmd(words);
        let dumped = server.cmd(&["DUMP", "lock"]);
        let error = assert_refused(&lock, ErrorKind::WrongType);
        assert!(!error.detail().is_empty());
        assert_eq!(server.cmd(&["DUMP", "lock"]), dumped, "{words:?}");
        assert_eq!(server.cmd(&["PTTL", "lock"]), Value::Int(-1));
        assert_eq!(server.cmd(&["DBSIZE"]), Value::Int(1), "no side key beside {words:?}");
        assert_eq!(lock.inspect().unwrap_err().kind(), ErrorKind::WrongType);
    }
}

#[test]
fn c5_a_key_that_became_another_type_is_a_lost_lease_and_stays_as_it_was() {
    let server = Server::start();
    let lease = lock(&server.url()).try_acquire().unwrap().unwrap();
    server.cmd(&["DEL", "lock"]);
    server.cmd(&["RPUSH", "lock", "a"]);
    assert_eq!(lease.extend().unwrap_err().kind(), ErrorKind::Lost);
    let lease = Client::open(&server.url()).unwrap().lock("two").try_acquire().unwrap().unwrap();
    server.cmd(&["RENAME", "lock", "two"]);
    assert_eq!(lease.release().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(server.cmd(&["LRANGE", "two", "0", "-1"]), Value::Array(vec![text("a")]));
}

#[test]
fn c13_a_replica_is_read_only_and_said_so_at_once() {
    let [master, replica] =
        [(); 2].map(|()| Server::builder().arg("--repl-diskless-sync-delay", "0").start());
    replica.cmd(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    eventually(LIMIT * 3, || replica.info("replication").contains("master_link_status:up"));
    assert_refused(&lock(&format!("{}?{PATIENT}", replica.url())), ErrorKind::ReadOnly);
    assert_eq!(master.cmd(&["DBSIZE"]), Value::Int(0));

    // A holder whose master has become a replica.
    let client = Client::open(&format!("{}?io_timeout=300ms", master.url())).unwrap();
    let lease = client.lock("held").ttl(LIMIT).renew(false).try_acquire().unwrap().unwrap();
    eventually(LIMIT, || replica.cmd(&["EXISTS", "held"]) == Value::Int(1));
    replica.cmd(&["REPLICAOF", "NO", "ONE"]);
    master.cmd(&["REPLICAOF", "127.0.0.1", &replica.port().to_string()]);
    eventually(LIMIT * 3, || master.info("replication").contains("master_link_status:up"));
    assert_eq!(lease.extend().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert!(lease.is_valid());
    assert_eq!(lease.release().unwrap_err().kind(), ErrorKind::ReadOnly);
}

#[test]
fn c13_without_memory_nothing_is_taken_and_leases_can_still_be_extended_and_released() {
    let server = Server::start();
    let client = Client::open(&format!("{}?io_timeout=300ms", server.url())).unwrap();
    let lease = client.lock("held").ttl(LIMIT).renew(false).try_acquire().unwrap().unwrap();
    lease.extend_for(LIMIT * 2).unwrap();
    client.lock("warm-up").try_acquire().unwrap().unwrap().release().unwrap();
    server.config_set("maxmemory-policy", "noeviction");
    server.config_set("maxmemory", "100kb");

    let watch = Stopwatch::start();
    let error = client.lock("lock").try_acquire().map(drop).unwrap_err();
    watch.assert_at_most(ms(300), ms(50));
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert_eq!(server.cmd(&["EXISTS", "lock", "leasehold:{lock}"]), Value::Int(0));
    lease.extend_for(LIMIT * 3).unwrap();
    assert!(lease.remaining() > LIMIT * 2);
    lease.release().unwrap();

    server.config_set("maxmemory", "0");
    assert!(client.lock("lock").try_acquire().unwrap().is_some());
}

/// Answers whatever it reads with the same text.
fn other_service(reply: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                while stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {
                    let _ = stream.write_all(reply);
                }
            });
        }
    });
    port
}

#[cfg(feature = "etcd")]
#[test]
fn c13_without_space_an_etcd_grants_nothing_and_leases_can_still_be_extended_and_released() {
    let etcd = Etcd::start_with(1, &["--quota-backend-bytes=1000000"]);
    let client = Client::open(&etcd.url()).unwrap();
    let [kept, given] =
        ["kept", "given"].map(|name| client.lock(name).try_acquire().unwrap().unwrap());
    let large = "x".repeat(100_000);
    let full = |key: u32| etcd.try_ctl(&["put", &key.to_string(), &large]).is_err();
    assert!((0..100).any(full));
    let error = client.lock("lock").io_timeout(ms(300)).try_acquire().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DiskFull, "{error}");
    assert!(error.to_string().contains("etcdctl alarm disarm"), "{error}");
    assert!(client.lock("lock").inspect().unwrap().holder.is_none());
    kept.extend().unwrap();
    given.release().unwrap();
    assert!(client.lock("given").inspect().unwrap().holder.is_none());
    for key in 0..100_u32 {
        etcd.ctl(&["del", &key.to_string()]);
    }
    // What its advice says.
    let revision = etcd.ctl(&["get", "0", "--write-out=json"]);
    let revision = revision.split("\"revision\":").nth(1).unwrap().split(',').next().unwrap();
    for words in [&["compact", revision][..], &["defrag"], &["alarm", "disarm"]] {
        etcd.ctl(words);
    }
    client.lock("lock").try_acquire().unwrap().unwrap().release().unwrap();
    kept.release().unwrap();
}

#[test]
fn c13_something_that_is_not_redis_is_told_from_its_first_answer() {
    for reply in [
        &b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"[..],
        b"SSH-2.0-OpenSSH_9.2p1\r\n",
        b"+what?\r\n",
        b":77\r\n",
        b"$3\r\nabc\r\n",
        b"-ERR unknown command\r\n",
    ] {
        let port = other_service(reply);
        let url = format!("redis://127.0.0.1:{port}?{PATIENT}");
        assert_refused(&lock(&url), ErrorKind::Protocol);
    }
}
