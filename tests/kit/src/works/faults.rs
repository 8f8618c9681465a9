//! Clocks that move, cables that are cut, slow links and servers that come back do what they say.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::socket::{answer, ask, assert_mute, dial};
use crate::*;
use redis::Value;

const LIMIT: Duration = Duration::from_secs(20);

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn text(value: &str) -> Value {
    Value::BulkString(value.as_bytes().to_vec())
}

/// What a server takes for the time since 1970.
fn time_of(server: &Server) -> Duration {
    let (seconds, micros): (u64, u64) = redis::from_redis_value(server.cmd(&["TIME"])).unwrap();
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

fn time() -> Duration {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap()
}

#[test]
fn a_clock_is_moved_while_the_server_runs_and_keys_end_by_it() {
    let hour = Duration::from_secs(3600);
    let mut server = Server::builder().clocked().start();
    assert!(time_of(&server).abs_diff(time()) < LIMIT);
    server.cmd(&["SET", "key", "value", "PX", "60000"]);
    server.cmd(&["SET", "other", "value", "PX", "10000000"]);

    server.shift_clock(Offset::Ahead(ms(50_000)));
    let Value::Int(left) = server.cmd(&["PTTL", "key"]) else { panic!("a number") };
    assert!((0..=10_000).contains(&left), "{left}");
    server.shift_clock(Offset::Ahead(hour));
    assert!(time_of(&server).abs_diff(time() + hour) < LIMIT);
    assert_eq!(server.cmd(&["EXISTS", "key", "other"]), Value::Int(1));

    server.shift_clock(Offset::Behind(hour));
    assert!(time_of(&server).abs_diff(time() - hour) < LIMIT);
    let Value::Int(left) = server.cmd(&["PTTL", "other"]) else { panic!("a number") };
    assert!(left > 13_000_000, "{left}");
    // It stays moved, and each server has its own.
    server.restart_with_data();
    assert!(time_of(&server).abs_diff(time() - hour) < LIMIT);
    assert!(time_of(&Server::start()).abs_diff(time()) < LIMIT);
}

#[test]
fn a_server_comes_back_empty_or_with_a_file_as_old_as_one_likes() {
    let mut server = Server::start();
    let get = |server: &Server| server.cmd(&["GET", "key"]);
    server.cmd(&["SET", "key", "oldest"]);
    let kept = server.keep_file();
    server.cmd(&["SET", "key", "saved"]);
    server.save();
    server.cmd(&["SET", "key", "lost"]);
    server.restart_with_saved();
    assert_eq!(get(&server), text("saved"));
    server.restart_with(&kept);
    assert_eq!(get(&server), text("oldest"));
    server.restart_empty();
    assert_eq!(get(&server), Value::Nil);
    server.kill();
    assert!(!server.is_running());
    server.start_again_with(&kept);
    assert_eq!(get(&server), text("oldest"));
}

#[test]
fn a_cable_that_is_cut_swallows_everything_and_what_was_under_way_arrives_once_it_is_healed() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let server = Server::builder().behind(&namespace).start();
    assert_eq!(server.host(), namespace.address());
    let mut stream = server.bare_connection();
    assert_eq!(ask(&mut stream, "INCR counter\r\n"), ":1");
    namespace.cut();
    stream.write_all(b"INCR counter\r\n").unwrap();
    assert_mute(&mut stream);
    let address = (server.host(), server.port()).into();
    let error = TcpStream::connect_timeout(&address, ms(200)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    namespace.heal();
    assert_eq!(answer(&mut stream), ":2");

    namespace.cut_only(Cut::Replies);
    stream.write_all(b"INCR counter\r\n").unwrap();
    assert_mute(&mut stream);
    namespace.heal();
    assert_eq!(answer(&mut stream), ":3");
    assert_eq!(server.cmd(&["GET", "counter"]), text("3"));

    // Others have networks and addresses of their own.
    let other = Namespace::create().unwrap();
    let another = Server::builder().behind(&other).start();
    namespace.cut();
    assert_eq!(another.cmd(&["GET", "counter"]), Value::Nil);
}

#[test]
fn what_a_network_was_made_of_is_gone_with_it() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let cable = namespace.cable().to_owned();
    let lies = || std::fs::read_to_string("/proc/net/dev").unwrap().contains(&cable);
    assert!(lies());
    drop(namespace);
    eventually(LIMIT, || !lies());
}

#[test]
fn a_link_carries_everything_and_takes_its_time() {
    let server = Server::builder().arg("--requirepass", "secret").start();
    let link = Link::to(&server);
    let url = server.url_through(link.port());
    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    // More than any buffer on the way holds.
    let long = "x".repeat(20 << 20);
    redis::cmd("SET").arg("key").arg(&long).exec(&mut connection).unwrap();
    let value: String = redis::cmd("GET").arg("key").query(&mut connection).unwrap();
    assert!(value == long);

    link.slow(ms(50));
    let start = Instant::now();
    let mut pipe = redis::pipe();
    for _ in 0..100 {
        pipe.cmd("INCR").arg("counter");
    }
    let counted: Vec<u64> = pipe.query(&mut connection).unwrap();
    assert_eq!(counted, (1..=100).collect::<Vec<_>>());
    assert!(start.elapsed() >= ms(100));
    // All of them were under way together.
    assert!(start.elapsed() < ms(50 * 100), "{:?}", start.elapsed());

    link.slow(ms(0));
    link.slow_replies(ms(200));
    let start = Instant::now();
    redis::cmd("INCR").arg("counter").exec(&mut connection).unwrap();
    assert!(start.elapsed() >= ms(200));
    link.slow_replies(ms(0));

    link.slow_in_turn(&[ms(0), ms(100)]);
    let spans = [0, 1, 2].map(|_| {
        let mut stream = dial(link.port());
        let start = Instant::now();
        ask(&mut stream, "AUTH secret\r\n");
        start.elapsed() >= ms(200)
    });
    assert!(spans == [true, false, true] || spans == [false, true, false], "{spans:?}");
}

#[test]
fn a_link_that_is_cut_keeps_everything_and_delivers_it_once_it_is_healed() {
    let mut server = Server::start();
    let link = Link::to(&server);
    let mut stream = dial(link.port());
    assert_eq!(ask(&mut stream, "INCR counter\r\n"), ":1");
    link.cut();
    stream.write_all(b"INCR counter\r\n").unwrap();
    // From one that does not wait for the reply, and leaves.
    dial(link.port()).write_all(b"SET late 1\r\n").unwrap();
    assert_mute(&mut stream);
    assert_eq!(server.cmd(&["GET", "counter"]), text("1"));
    link.heal();
    assert_eq!(answer(&mut stream), ":2");
    eventually(LIMIT, || server.cmd(&["GET", "late"]) == text("1"));

    link.cut_only(Cut::Replies);
    stream.write_all(b"INCR counter\r\n").unwrap();
    eventually(LIMIT, || server.cmd(&["GET", "counter"]) == text("3"));
    assert_mute(&mut stream);
    link.heal();
    assert_eq!(answer(&mut stream), ":3");

    // A server that dies says nothing over it, nor does one that is not there.
    link.cut();
    server.kill();
    let mut late = dial(link.port());
    assert_mute(&mut stream);
    assert_mute(&mut late);
    link.heal();
    crate::socket::assert_end(&mut stream, End::Fin);
    crate::socket::assert_end(&mut late, End::Reset);
    server.start_again_empty();
    assert_eq!(ask(&mut dial(link.port()), "INCR counter\r\n"), ":1");
}

#[test]
fn a_link_that_is_torn_has_lost_what_was_under_way() {
    let server = Server::start();
    let link = Link::to(&server);
    let mut stream = dial(link.port());
    assert_eq!(ask(&mut stream, "INCR counter\r\n"), ":1");
    link.cut();
    stream.write_all(b"INCR counter\r\n").unwrap();
    assert_mute(&mut stream);
    link.tear();
    link.heal();
    crate::socket::assert_end(&mut stream, End::Reset);
    let mut stream = dial(link.port());
    assert_eq!(ask(&mut stream, "INCR counter\r\n"), ":2");
    server.stop();
    stream.write_all(b"INCR counter\r\n").unwrap();
    within(LIMIT, || drop(link));
    let error = stream.read(&mut [0; 16]);
    assert!(error.is_err() || matches!(error, Ok(0)), "{error:?}");
    server.cont();
}
