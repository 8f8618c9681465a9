//! Every mode of the fault proxy does what its name says, against a real server.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::socket::{answer, ask, assert_end, assert_mute, dial};
use crate::*;
use redis::Value;

const LIMIT: Duration = Duration::from_secs(10);

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn text(value: &str) -> Value {
    Value::BulkString(value.as_bytes().to_vec())
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

/// As on a long line: many replies under way take no longer than one.
#[test]
fn delayed_replies_do_not_wait_for_each_other() {
    const DELAY: Duration = Duration::from_secs(3);
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    let mut stream = dial(proxy.port());
    proxy.set(Mode::DelayReplies(DELAY));
    let watch = Stopwatch::start();
    for count in 1..=10 {
        stream.write_all(b"INCR counter\r\n").unwrap();
        // So that each has its own reply.
        eventually(LIMIT, || server.cmd(&["GET", "counter"]) == text(&count.to_string()));
    }
    for count in 1..=10 {
        assert_eq!(answer(&mut stream), format!(":{count}"));
    }
    watch.assert_at_least(DELAY);
    // They would take ten times as long one after the other.
    watch.assert_at_most(DELAY * 5, Duration::ZERO);
    // What is not delayed comes after what is.
    stream.write_all(b"INCR counter\r\n").unwrap();
    eventually(LIMIT, || server.cmd(&["GET", "counter"]) == text("11"));
    proxy.set(Mode::Pass);
    stream.write_all(b"INCR counter\r\n").unwrap();
    assert_eq!([answer(&mut stream), answer(&mut stream)], [":11", ":12"]);
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
fn babble_comes_instead_of_a_reply_and_never_ends() {
    let server = Server::start();
    for pause in [Duration::ZERO, ms(1)] {
        let mut proxy = Proxy::start(server.port());
        let mut stream = dial(proxy.port());
        proxy.set(Mode::Babble(Babble { first: b"first", then: b"then", pause }));
        stream.write_all(b"PING\r\n").unwrap();
        let mut heard = [0; 105];
        stream.read_exact(&mut heard).unwrap();
        assert_eq!(heard[..], *format!("first{}", "then".repeat(25)).as_bytes());
    }
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
        Mode::Babble(Babble { first: b"", then: b"x", pause: Duration::ZERO }),
        Mode::Babble(Babble { first: b"", then: b"x", pause: LIMIT * 10 }),
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
