//! Servers, processes and clocks of the kit do what they say.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::history::{judge, now};
use crate::socket::{answer, ask, assert_mute, dial};
use crate::wait::eventually_some;
use crate::*;
use redis::Value;

const LIMIT: Duration = Duration::from_secs(10);

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn text(value: &str) -> Value {
    Value::BulkString(value.as_bytes().to_vec())
}

fn exists(pid: nix::unistd::Pid) -> bool {
    nix::sys::signal::kill(pid, None).is_ok()
}

#[test]
fn a_server_starts_answers_and_is_gone_after_drop() {
    let server = Server::start();
    server.cmd(&["SET", "key", "value"]);
    assert_eq!(server.cmd(&["GET", "key"]), text("value"));
    server.cmd(&["DEBUG", "SLEEP", "0"]);
    server.config_set("maxmemory", "123456");
    assert!(server.info("memory").contains("maxmemory:123456"));
    let pid = server.pid();
    drop(server);
    assert!(!exists(pid));
}

#[test]
fn a_server_can_be_killed_and_come_back_with_its_data_and_without() {
    let mut server = Server::start();
    server.cmd(&["SET", "key", "old"]);
    server.restart_with_data();
    assert_eq!(server.cmd(&["GET", "key"]), text("old"));

    server.cmd(&["SET", "key", "new"]);
    let port = server.port();
    server.kill();
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    // Nobody is given the port meanwhile.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    assert!(socket.bind(&SocketAddr::from(([127, 0, 0, 1], port)).into()).is_err());
    server.start_again();
    assert_eq!(server.port(), port);
    assert_eq!(server.cmd(&["GET", "key"]), text("old"), "what was saved, and no more");

    server.restart_empty();
    assert_eq!(server.cmd(&["GET", "key"]), Value::Nil);
}

#[test]
fn a_stopped_server_is_silent_until_it_goes_on() {
    let server = Server::start();
    let mut stream = dial(server.port());
    assert_eq!(ask(&mut stream, "PING\r\n"), "+PONG");
    for _ in 0..3 {
        server.stop();
        stream.write_all(b"PING\r\n").unwrap();
        assert_mute(&mut stream);
        server.cont();
        assert_eq!(answer(&mut stream), "+PONG");
    }
    server.stop();
    let pid = server.pid();
    drop(server);
    assert!(!exists(pid), "a stopped server dies as well");
}

#[test]
fn a_server_with_a_password_and_a_unix_socket_and_tls() {
    let server = Server::builder().arg("--requirepass", "p@ss/word").unix().tls().start();
    assert!(ask(&mut dial(server.port()), "GET key\r\n").starts_with("-NOAUTH"));
    server.cmd(&["SET", "key", "value"]);
    assert_eq!(ask(&mut server.bare_connection(), "EXISTS key\r\n"), ":1");

    let path = server.unix_url();
    let (path, query) = path.strip_prefix("unix://").unwrap().split_once('?').unwrap();
    assert_eq!(query, "password=p%40ss%2Fword");
    let mut socket = std::os::unix::net::UnixStream::connect(path).unwrap();
    socket.write_all(b"AUTH p@ss/word\r\n").unwrap();
    let mut reply = [0; 5];
    socket.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+OK\r\n");
    assert!(server.tls_url().starts_with("rediss://:p%40ss%2Fword@127.0.0.1:"));
}

/// What `openssl s_client` thinks of the server's certificate.
fn verify(server: &Server, more: &[&str]) -> String {
    let output = Command::new("openssl")
        .args(["s_client", "-connect", &format!("127.0.0.1:{}", server.tls_port()), "-CAfile"])
        .arg(server.certificates().ca())
        .args(["-verify_return_error", "-brief"])
        .args(more)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn certificates_are_good_expired_or_for_another_host() {
    let good = Server::builder().tls().start();
    assert!(verify(&good, &["-verify_ip", "127.0.0.1"]).contains("Verification: OK"));
    assert!(verify(&good, &["-verify_hostname", "localhost"]).contains("Verification: OK"));
    let (certificate, key) = good.certificates().client();
    let files = ["-cert", certificate.to_str().unwrap(), "-key", key.to_str().unwrap()];
    assert!(verify(&good, &files).contains("Verification: OK"));

    let expired = Server::builder().tls_showing(ServerCertificate::Expired).start();
    assert!(verify(&expired, &[]).contains("certificate has expired"));

    let other = Server::builder().tls_showing(ServerCertificate::WrongHost).start();
    assert!(verify(&other, &[]).contains("Verification: OK"), "only its name is wrong");
    assert!(verify(&other, &["-verify_ip", "127.0.0.1"]).contains("mismatch"));
}

#[test]
fn a_watch_counts_scripts_once_and_info_counts_what_they_call() {
    let server = Server::builder().arg("--requirepass", "secret").start();
    let mut connection = server.connection();
    let mut watch = server.watch();
    watch.client_commands();
    let script = "for i = 1, 3 do redis.call('INCR', 'counter') end";
    let _: Value = redis::cmd("EVAL").arg(script).arg(0).query(&mut connection).unwrap();
    let _: Value = redis::cmd("get").arg("counter").query(&mut connection).unwrap();
    let seen = watch.client_commands();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen[0].starts_with("EVAL "), "{seen:?}");
    assert_eq!(seen[1], "GET \"counter\"");
    assert_eq!(watch.count(), 0);
    assert_eq!(server.calls("incr"), 3);
    assert_eq!(server.calls("del"), 0);
}

pub(crate) const ROLES: crate::child::Roles =
    &[("echo", echo), ("clock", clock), ("orphan", orphan), ("panics", |_| panic!("on purpose"))];

fn echo(args: &[String]) {
    child::say(&args.join("|"));
    while let Some(line) = child::hear() {
        child::say(&format!("heard {line}"));
    }
}

/// Says what time it is, whenever it is asked.
fn clock(_: &[String]) {
    while child::hear().is_some() {
        let time = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        child::say(&time.as_millis().to_string());
    }
}

#[test]
fn a_child_has_a_clock_of_its_own_that_moves() {
    let dir = tempfile::tempdir().unwrap();
    let own = Clock::make(dir.path());
    let mut child = Child::start_by("clock", &[], Some(&own));
    let hour = Duration::from_secs(3600);
    for (offset, ahead) in [(Offset::Ahead(hour), 2 * hour), (Offset::Behind(hour), ms(0))] {
        own.shift(offset);
        child.tell("?");
        let said = Duration::from_millis(child.line(LIMIT).parse().unwrap());
        let expected = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap() + ahead - hour;
        assert!(said.abs_diff(expected) < LIMIT, "{said:?} and {expected:?}");
    }
}

/// Starts a server and is killed before it can drop it.
fn orphan(args: &[String]) {
    let server = Server::builder().inside(args[0].as_ref()).start();
    server.stop();
    child::say(&server.pid().to_string());
    child::hear();
}

#[test]
fn a_child_speaks_listens_stops_and_ends() {
    let mut child = Child::start("echo", &["one", "", "two words"]);
    assert_eq!(child.line(LIMIT), "one||two words");
    child.tell("hello");
    assert_eq!(child.line(LIMIT), "heard hello");
    child.stop();
    child.tell("stopped");
    let state = std::fs::read_to_string(format!("/proc/{}/stat", child.pid())).unwrap();
    assert!(state.contains(") T "), "{state}");
    child.cont();
    assert_eq!(child.line(LIMIT), "heard stopped");
    assert!(child.wait(LIMIT).success());
    assert!(child.rest(LIMIT).is_empty());

    assert!(!Child::start("panics", &[]).wait(LIMIT).success());

    let mut killed = Child::start("echo", &[]);
    assert_eq!(killed.line(LIMIT), "");
    let pid = killed.pid();
    killed.kill();
    assert!(!exists(pid));
}

#[test]
fn the_servers_of_a_killed_process_die_too() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Child::start("orphan", &[dir.path().to_str().unwrap()]);
    let pid = nix::unistd::Pid::from_raw(child.line(LIMIT).parse().unwrap());
    assert!(exists(pid));
    child.kill();
    // Somebody else reaps it, or nobody does in a container without an init.
    let gone = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !exists(pid) || stat.contains(") Z ")
    };
    eventually(LIMIT, gone);
}

#[test]
fn waiting_helpers_wait_and_complain() {
    let mut left = 3;
    let got = eventually_some(LIMIT, || {
        left -= 1;
        (left == 0).then_some("there")
    });
    assert_eq!(got, "there");
    assert!(std::panic::catch_unwind(|| eventually(ms(20), || false)).is_err());
    unless_starved(ms(100), || {
        let late = std::panic::catch_unwind(|| within(ms(20), || std::thread::sleep(ms(500))));
        assert!(late.is_err());
    });
    assert_eq!(within(LIMIT, || 7), 7);
    let early = std::panic::catch_unwind(|| Stopwatch::start().assert_at_least(LIMIT));
    assert!(early.is_err());
}

/// Who asked at the first of these moments and held from the second one to the third.
fn held([asked, from, until]: [u64; 3], fence: u64) -> Hold {
    Hold { asked: ms(asked), from: ms(from), until: ms(until), fence }
}

#[test]
fn the_judge_lets_histories_pass_that_are_as_they_should_be() {
    assert_eq!(judge(&[]), []);
    let one_after_the_other = [held([0, 1, 10], 1), held([0, 10, 20], 2), held([20, 30, 40], 5)];
    assert_eq!(judge(&one_after_the_other), []);
    // Nobody relied on the second one, and nobody knows in which order the two were granted.
    assert_eq!(judge(&[held([0, 1, 10], 2), held([0, 5, 5], 1)]), []);
    assert_eq!(judge(&[held([0, 5, 5], 1), held([0, 1, 10], 2)]), []);
}

#[test]
fn the_judge_finds_two_at_once_wherever_they_are() {
    let (one, two) = (held([0, 1, 10], 1), held([2, 9, 20], 2));
    assert_eq!(judge(&[two, one]), [Wrong::Overlap(one, two)]);
    // Within one that is long, after another one that was too.
    let (long, short, third) = (held([0, 0, 100], 1), held([1, 10, 20], 2), held([30, 40, 50], 3));
    let wrong = [Wrong::Overlap(long, short), Wrong::Overlap(long, third)];
    assert_eq!(judge(&[long, short, third]), wrong);
    let (moment, during) = (Hold::at(ms(2), ms(3), 2), held([0, 1, 10], 1));
    assert_eq!(judge(&[moment, during]), [Wrong::Overlap(during, moment)]);
}

#[test]
fn the_judge_finds_fences_that_come_twice_or_fall() {
    let (one, two) = (held([0, 1, 5], 7), held([6, 7, 8], 7));
    assert_eq!(judge(&[one, two]), [Wrong::Twice(one, two)]);
    // Also where one that was granted later still lies between them.
    let (first, second, third) = (held([0, 1, 5], 3), held([6, 7, 8], 4), held([9, 10, 11], 2));
    assert_eq!(judge(&[first, second, third]), [Wrong::OutOfOrder(second, third)]);
    // Also where nobody relied on it any more, or while the first one was held: then the fence is
    // all that is left.
    let unused = held([6, 7, 7], 2);
    assert_eq!(judge(&[first, unused]), [Wrong::OutOfOrder(first, unused)]);
    let during = held([2, 3, 4], 2);
    let wrong = [Wrong::Overlap(first, during), Wrong::OutOfOrder(first, during)];
    assert_eq!(judge(&[first, during]), wrong);
    // Who had asked before the first one had it may have waited since.
    let waited = held([0, 6, 7], 2);
    assert_eq!(judge(&[first, waited]), [Wrong::Falling(first, waited)]);
}

#[test]
fn a_hold_ends_when_it_was_last_seen_valid_and_travels_as_a_line() {
    let mut hold = Hold::begin(now(), 9_007_199_254_740_991);
    assert!(hold.from >= hold.asked && hold.until == hold.from);
    assert!(hold.look(|| true));
    let until = hold.until;
    assert!(until >= hold.from);
    std::thread::sleep(ms(2));
    assert!(!hold.look(|| false));
    assert_eq!(hold.until, until);
    assert_eq!(Hold::from_line(&hold.to_line()), Some(hold));
    for line in ["", "1 2 3", "1 2 3 4 5", "1 2 3 x"] {
        assert_eq!(Hold::from_line(line), None);
    }
}
