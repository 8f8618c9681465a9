//! The test support does what it says: a support that lies makes every test above it lie.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use redis::Value;
use support::wait::eventually_some;
use support::*;

const LIMIT: Duration = Duration::from_secs(10);

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn text(value: &str) -> Value {
    Value::BulkString(value.as_bytes().to_vec())
}

/// A socket whose reads fail instead of hanging.
fn dial(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

fn ask(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    answer(stream)
}

/// One line.
fn answer(stream: &mut TcpStream) -> String {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap().trim_end().to_owned()
}

/// Nothing arrives, not even an end of stream, for a while.
#[track_caller]
fn assert_mute(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(ms(100))).unwrap();
    let error = stream.read(&mut [0; 16]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    stream.set_read_timeout(Some(LIMIT)).unwrap();
}

#[track_caller]
fn assert_end(stream: &mut TcpStream, end: End) {
    match (stream.read(&mut [0; 16]), end) {
        (Ok(0), End::Fin) => {}
        (Err(error), End::Reset) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        (other, end) => panic!("expected {end:?}, got {other:?}"),
    }
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

#[test]
fn a_proxy_passes_and_counts() {
    let server = Server::builder().arg("--requirepass", "secret").start();
    let proxy = Proxy::start(server.port());
    let url = server.url_through(proxy.port());
    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    let _: Value =
        redis::cmd("SET").arg("key").arg("x".repeat(1 << 20)).query(&mut connection).unwrap();
    let value: String = redis::cmd("GET").arg("key").query(&mut connection).unwrap();
    assert_eq!(value, "x".repeat(1 << 20));
    assert_eq!(proxy.accepted(), 1);
    assert!(proxy.request_bytes() > 1 << 20);
    assert!(proxy.reply_bytes() > 1 << 20);
    drop(connection);
    let mut stream = dial(proxy.port());
    assert_eq!(ask(&mut stream, "QUIT\r\n"), "+OK");
    assert_end(&mut stream, End::Fin);
    drop(server);
    assert_end(&mut dial(proxy.port()), End::Reset);
}

#[test]
fn swallowed_replies_are_executed_and_never_heard_even_later() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    let mut stream = dial(proxy.port());
    assert_eq!(ask(&mut stream, "PING\r\n"), "+PONG");
    proxy.set(Mode::SwallowReplies);
    stream.write_all(b"INCR counter\r\n").unwrap();
    eventually(LIMIT, || server.cmd(&["GET", "counter"]) == text("1"));
    assert_mute(&mut stream);
    proxy.set(Mode::Pass);
    stream.write_all(b"INCR counter\r\n").unwrap();
    eventually(LIMIT, || server.cmd(&["GET", "counter"]) == text("2"));
    assert_mute(&mut stream);
    assert_eq!(ask(&mut dial(proxy.port()), "PING\r\n"), "+PONG");
}

#[test]
fn requests_and_replies_are_late_on_their_own_side() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    let mut stream = dial(proxy.port());
    for (mode, executed_first) in
        [(Mode::DelayRequests(ms(300)), false), (Mode::DelayReplies(ms(300)), true)]
    {
        server.cmd(&["DEL", "counter"]);
        proxy.set(mode);
        let watch = Stopwatch::start();
        stream.write_all(b"INCR counter\r\n").unwrap();
        if executed_first {
            eventually(LIMIT, || server.cmd(&["GET", "counter"]) == text("1"));
        }
        assert_eq!(answer(&mut stream), ":1");
        watch.assert_at_least(ms(300));
    }
    // A request under way outlives its client.
    server.cmd(&["DEL", "counter"]);
    proxy.set(Mode::DelayRequests(ms(200)));
    stream.write_all(b"INCR counter\r\n").unwrap();
    let before = proxy.request_bytes();
    drop(stream);
    eventually(LIMIT, || server.cmd(&["GET", "counter"]) == text("1"));
    assert!(proxy.request_bytes() >= before);
}

#[test]
fn silence_accepts_and_executes_nothing() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    let mut open = dial(proxy.port());
    assert_eq!(ask(&mut open, "PING\r\n"), "+PONG");
    proxy.set(Mode::Silent);
    let mut new = dial(proxy.port());
    for stream in [&mut open, &mut new] {
        stream.write_all(b"SET key value\r\n").unwrap();
        assert_mute(stream);
    }
    assert_eq!(server.cmd(&["GET", "key"]), Value::Nil);
    proxy.set(Mode::Pass);
    for stream in [&mut open, &mut new] {
        stream.write_all(b"SET key value\r\n").unwrap();
        assert_mute(stream);
    }
    assert_eq!(server.cmd(&["GET", "key"]), Value::Nil);
    assert_eq!(ask(&mut dial(proxy.port()), "PING\r\n"), "+PONG");
}

#[test]
fn a_dribbled_reply_comes_byte_by_byte() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    let mut stream = dial(proxy.port());
    proxy.set(Mode::Dribble(ms(80)));
    let watch = Stopwatch::start();
    assert_eq!(ask(&mut stream, "PING\r\n"), "+PONG");
    // Seven bytes, six pauses between them.
    watch.assert_at_least(ms(480));
    stream.write_all(b"PING\r\n").unwrap();
    assert!(stream.read(&mut [0; 16]).unwrap() < 7, "never all at once");
}

#[test]
fn a_lost_reply_was_executed_and_strikes_once() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    for (count, end) in [(1, End::Fin), (2, End::Reset)] {
        let mut stream = dial(proxy.port());
        proxy.set_only(b"INCR", Mode::LoseReply(end));
        assert_eq!(ask(&mut stream, "PING\r\n"), "+PONG");
        stream.write_all(b"INCR counter\r\n").unwrap();
        assert_end(&mut stream, end);
        assert_eq!(server.cmd(&["GET", "counter"]), text(&count.to_string()));
        assert_eq!(proxy.mode(), Mode::Pass);
    }
    assert_eq!(ask(&mut dial(proxy.port()), "INCR counter\r\n"), ":3");
}

#[test]
fn a_cut_request_is_not_executed_and_the_whole_ones_before_the_cut_are() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    let mut stream = dial(proxy.port());
    assert_eq!(ask(&mut stream, "PING\r\n"), "+PONG");
    proxy.set(Mode::CutRequest("INCR first\r\nINCR sec".len()));
    stream.write_all(b"INCR first\r\nINCR second\r\n").unwrap();
    assert_end(&mut stream, End::Reset);
    assert_eq!(server.cmd(&["GET", "first"]), text("1"));
    assert_eq!(server.cmd(&["EXISTS", "second", "sec"]), Value::Int(0));
    assert_eq!(ask(&mut dial(proxy.port()), "PING\r\n"), "+PONG");
}

#[test]
fn held_requests_land_after_their_client_has_gone() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    let mut stays = dial(proxy.port());
    let mut leaves = dial(proxy.port());
    proxy.set_only(b"INCR", Mode::HoldRequests);
    assert_eq!(ask(&mut stays, "PING\r\n"), "+PONG");
    leaves.write_all(b"INCR counter\r\n").unwrap();
    eventually(LIMIT, || proxy.held() == 14);
    leaves.write_all(b"SET after it\r\n").unwrap();
    eventually(LIMIT, || proxy.held() == 28);
    drop(leaves);
    stays.write_all(b"INCR other\r\n").unwrap();
    eventually(LIMIT, || proxy.held() == 40);
    assert_eq!(server.cmd(&["EXISTS", "counter", "other", "after"]), Value::Int(0));
    proxy.deliver();
    assert_eq!(server.cmd(&["GET", "counter"]), text("1"));
    assert_eq!(server.cmd(&["GET", "after"]), text("it"));
    assert_eq!(answer(&mut stays), ":1");
    assert_eq!(proxy.held(), 0);
}

#[test]
fn refusing_and_closing() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    let port = proxy.port();
    let mut open = dial(port);
    assert_eq!(ask(&mut open, "PING\r\n"), "+PONG");
    proxy.set(Mode::Refuse);
    assert_eq!(proxy.port(), port);
    let error = TcpStream::connect(("127.0.0.1", port)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(ask(&mut open, "PING\r\n"), "+PONG");
    proxy.close_all(End::Reset);
    assert_end(&mut open, End::Reset);
    proxy.set(Mode::Pass);
    let mut open = dial(port);
    assert_eq!(ask(&mut open, "PING\r\n"), "+PONG");
    proxy.close_all(End::Fin);
    assert_end(&mut open, End::Fin);
}

#[test]
fn a_proxy_ends_whatever_it_is_in_the_middle_of() {
    let server = Server::start();
    let modes = [
        Mode::Pass,
        Mode::Silent,
        Mode::HoldRequests,
        Mode::SwallowReplies,
        Mode::DelayReplies(LIMIT * 10),
        Mode::DelayRequests(LIMIT * 10),
        Mode::Dribble(LIMIT * 10),
        Mode::Refuse,
    ];
    for mode in modes {
        let mut proxy = Proxy::start(server.port());
        let mut stream = dial(proxy.port());
        assert_eq!(ask(&mut stream, "PING\r\n"), "+PONG");
        proxy.set(mode);
        stream.write_all(b"PING\r\nPING\r\n").unwrap();
        eventually(LIMIT, || proxy.request_bytes() == 18);
        within(LIMIT, || drop(proxy));
    }
}

#[test]
fn a_black_hole_neither_takes_nor_refuses_connections() {
    let hole = BlackHole::open();
    let address = ([127, 0, 0, 1], hole.port()).into();
    let error = TcpStream::connect_timeout(&address, ms(200)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
}

#[test]
#[ignore = "the entry of child processes"]
fn child_entry() {
    child::play(&[("echo", echo), ("orphan", orphan), ("panics", |_| panic!("on purpose"))]);
}

fn echo(args: &[String]) {
    child::say(&args.join("|"));
    while let Some(line) = child::hear() {
        child::say(&format!("heard {line}"));
    }
}

/// Starts a server and is killed before it can drop it.
fn orphan(_: &[String]) {
    let server = Server::start();
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
    let mut child = Child::start("orphan", &[]);
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
    assert!(std::panic::catch_unwind(|| within(ms(20), || std::thread::sleep(ms(500)))).is_err());
    assert_eq!(within(LIMIT, || 7), 7);
    let early = std::panic::catch_unwind(|| Stopwatch::start().assert_at_least(LIMIT));
    assert!(early.is_err());
}
