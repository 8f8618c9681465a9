mod endings;

use std::cell::Cell;
use std::thread;

use proptest::prelude::*;

use super::subscription::QUIET;
use super::*;
use crate::config::{Config, StoreConfig};
use crate::store::Listener as _;
use crate::store::net::dial::Show;
use crate::store::net::pool::Pools;
use crate::store::redis::dial::Greeting;
use crate::store::redis::topology::Topology;
use crate::store::redis::wire::Wire;

use kit::*;

const NAME: &[u8] = b"n";
const LIMIT: Duration = Duration::from_secs(20);

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn soon(span: Duration) -> Moment {
    Moment::now().plus(span)
}

fn listener(url: &str) -> Arc<Listener> {
    let config = Config::from_url(url).unwrap();
    let StoreConfig::Redis(redis) = &config.store else { panic!("{url} is no server") };
    let publishers =
        Topology::new(redis, Greeting::default(), &Pools::new(1)).unwrap().publishers(b"");
    Arc::new(Listener::new(publishers, config.io_timeout, Box::new(read)).unwrap())
}

fn opened(url: &str) -> Arc<Listener> {
    let listener = listener(url);
    listener.open(NAME, Deadline::after(LIMIT)).unwrap();
    assert!(listener.are_open(NAME));
    listener
}

/// A number is a notice here.
fn read(payload: &[u8]) -> Option<Notice> {
    let token = "00112233445566778899aabbccddeeff".parse().unwrap();
    number(payload)?;
    Some(Notice::Free { name: payload.to_vec(), token })
}

fn number(payload: &[u8]) -> Option<u64> {
    std::str::from_utf8(payload).ok()?.parse().ok()
}

impl Listener {
    fn numbers(&self, until: Moment) -> Result<Vec<u64>, Error> {
        let number = |notice| match notice {
            Notice::Free { name, .. } => number(&name).unwrap(),
            Notice::Granted { .. } => panic!("never read"),
        };
        Ok(self.hear(until)?.into_iter().map(|(_, notice)| number(notice)).collect())
    }

    /// As many as are waited for, however many come at a time.
    #[track_caller]
    fn expect(&self, expected: impl IntoIterator<Item = u64>) {
        let expected: Vec<_> = expected.into_iter().collect();
        let (mut heard, until) = (Vec::new(), soon(LIMIT));
        while heard.len() < expected.len() && Moment::now() < until {
            heard.extend(self.numbers(until).unwrap());
        }
        assert_eq!(heard, expected);
    }

    fn rest_until(&self, moment: Moment) {
        let mut state = self.state.lock();
        assert_eq!(state.resting.len(), 1);
        state.resting.values_mut().for_each(|resting| resting.0 = moment);
    }

    fn text(&self) -> &str {
        &self.channel
    }

    #[track_caller]
    fn assert_closed(&self) {
        let deadline = Deadline::after(LIMIT);
        assert!(!self.are_open(NAME));
        assert_eq!(self.open(NAME, deadline).unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(self.numbers(deadline.moment()).unwrap_err().kind(), ErrorKind::Closed);
    }

    fn with_subscription<T>(&self, act: impl FnOnce(&mut Subscription) -> T) -> T {
        let mut subscriptions = self.subscriptions.enter_now().unwrap();
        self.take_all_in(&mut subscriptions).unwrap();
        act(&mut subscriptions[0])
    }
}

fn publish(server: &Server, listener: &Listener, payload: &str) {
    assert_eq!(server.cmd(&["PUBLISH", listener.text(), payload]), Value::Int(1));
}

/// In one write of the server.
fn publish_at_once(server: &Server, listener: &Listener, count: u64) {
    let script = "for i = 1, tonumber(ARGV[2]) do redis.call('PUBLISH', ARGV[1], i) end";
    server.cmd(&["EVAL", script, "0", listener.text(), &count.to_string()]);
}

fn listeners(server: &Server) -> usize {
    let Value::BulkString(list) = server.cmd(&["CLIENT", "LIST", "TYPE", "pubsub"]) else {
        panic!("no list")
    };
    list.iter().filter(|byte| **byte == b'\n').count()
}

#[test]
fn notices_arrive_in_order_and_together_where_they_came_together() {
    let server = Server::start();
    let listener = opened(&server.url());
    assert_eq!(listener.text().len(), "leasehold:wake:".len() + 32);
    publish(&server, &listener, "7");
    listener.expect([7]);
    publish_at_once(&server, &listener, 3);
    assert_eq!(listener.numbers(soon(LIMIT)).unwrap(), [1, 2, 3]);
    // More than fits into one read.
    publish_at_once(&server, &listener, 500);
    listener.expect(1..=500);
    publish(&server, &listener, "");
    publish(&server, &listener, "\r\n$3\r\n");
    publish(&server, &listener, &"nonsense".repeat(10_000));
    publish(&server, &listener, "8");
    listener.expect([8]);
}

#[test]
fn every_way_to_a_server_has_a_listener() {
    let server = Server::builder().arg("--requirepass", "p@ss").unix().start();
    for url in [server.url(), server.unix_url(), server.url().replace("127.0.0.1", "localhost")] {
        let listener = opened(&url);
        publish(&server, &listener, "1");
        listener.expect([1]);
    }
    let wrong = listener(&format!("redis://:wrong@127.0.0.1:{}", server.port()));
    assert_eq!(wrong.open(NAME, Deadline::after(LIMIT)).unwrap_err().kind(), ErrorKind::Auth);
    // Dropping is enough to leave nothing behind.
    eventually(LIMIT, || listeners(&server) == 0);
}

#[test]
fn a_notice_that_comes_byte_by_byte_outlasts_many_short_hears() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    let listener = opened(&proxy.url());
    proxy.set(Mode::Dribble(ms(2)));
    publish(&server, &listener, "1");
    publish(&server, &listener, "2");
    let (mut empty, mut heard) = (0, Vec::new());
    let watch = Stopwatch::start();
    while heard.len() < 2 && watch.elapsed() < LIMIT {
        let numbers = listener.numbers(soon(ms(5))).unwrap();
        empty += usize::from(numbers.is_empty());
        heard.extend(numbers);
    }
    assert_eq!(heard, [1, 2]);
    assert!(empty > 2, "{empty}");
}

#[test]
fn silence_ends_in_time_and_the_connection_stays_of_use() {
    unless_starved(ms(10), || {
        let server = Server::start();
        let listener = opened(&server.url());
        for span in [100, 30, 1, 0] {
            let watch = Stopwatch::start();
            assert!(listener.numbers(soon(ms(span))).unwrap().is_empty());
            watch.assert_at_least(ms(span));
            watch.assert_at_most(ms(span), ms(30));
        }
        publish(&server, &listener, "1");
        // A moment that has passed is enough to hear what lies there.
        let mut heard = Vec::new();
        eventually(LIMIT, || {
            heard.extend(listener.numbers(Moment::ZERO).unwrap());
            !heard.is_empty()
        });
        assert_eq!(heard, [1]);
    });
}

#[test]
fn of_two_that_listen_one_waits_for_its_time() {
    let server = Server::start();
    let listener = opened(&server.url());
    thread::scope(|scope| {
        let first = scope.spawn(|| listener.expect([1]));
        eventually(LIMIT, || listener.subscriptions.enter_now().is_none());
        let watch = Stopwatch::start();
        assert!(listener.numbers(soon(ms(50))).unwrap().is_empty());
        watch.assert_at_least(ms(50));
        listener.open(NAME, Deadline::after(ms(50))).unwrap();
        publish(&server, &listener, "1");
        first.join().unwrap();
    });
}

#[test]
fn a_connection_that_is_cut_is_noticed_and_another_one_can_be_opened() {
    let mut server = Server::start();
    let listener = listener(&server.url());
    assert_eq!(listener.numbers(soon(LIMIT)).unwrap_err().kind(), ErrorKind::Refused);
    for round in 0..3 {
        listener.open(NAME, Deadline::after(LIMIT)).unwrap();
        thread::scope(|scope| {
            let hears = scope.spawn(|| listener.numbers(soon(LIMIT)));
            server.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            assert_eq!(hears.join().unwrap().unwrap_err().kind(), ErrorKind::Refused);
        });
        assert!(!listener.are_open(NAME));
        assert_eq!(listener.numbers(soon(LIMIT)).unwrap_err().kind(), ErrorKind::Refused);
        listener.open(NAME, Deadline::after(LIMIT)).unwrap();
        publish(&server, &listener, &round.to_string());
        listener.expect([round]);
        assert_eq!(listeners(&server), 1);
    }
    server.kill();
    assert!(listener.numbers(soon(LIMIT)).unwrap_err().is_retriable());
    let refused = listener.open(NAME, Deadline::after(LIMIT)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused);
    server.start_again();
    listener.rest_until(Moment::ZERO);
    listener.open(NAME, Deadline::after(LIMIT)).unwrap();
    publish(&server, &listener, "9");
    listener.expect([9]);
}

#[test]
fn what_is_told_says_since_when_its_connection_was_open() {
    let server = Server::start();
    let listener = listener(&server.url());
    for _ in 0..2 {
        let before = Moment::now();
        listener.open(NAME, Deadline::after(LIMIT)).unwrap();
        let after = Moment::now();
        publish(&server, &listener, "1");
        let by = listener.hear(soon(LIMIT)).unwrap()[0].0;
        assert!(before < by.since && by.since <= after);
        server.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        assert_eq!(listener.numbers(soon(LIMIT)).unwrap_err().kind(), ErrorKind::Refused);
    }
}

#[test]
fn a_server_that_does_not_answer_a_ping_is_given_up() {
    unless_starved(ms(10), || {
        let server = Server::start();
        let listener = opened(&format!("{}?io_timeout=100ms", server.url()));
        let watch = Stopwatch::start();
        listener.with_subscription(|subscription| {
            subscription.alive = Moment::now().minus(QUIET - ms(50));
        });
        server.stop();
        let error = loop {
            match listener.numbers(soon(ms(40))) {
                Ok(heard) => assert!(heard.is_empty()),
                Err(error) => break error,
            }
        };
        watch.assert_at_least(ms(150));
        watch.assert_at_most(ms(150), ms(60));
        assert_eq!(error.kind(), ErrorKind::NoAnswer);
        assert!(!listener.are_open(NAME));
        let error = listener.open(NAME, Deadline::after(ms(100))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoAnswer);
        server.cont();
        eventually(LIMIT, || listener.open(NAME, Deadline::after(LIMIT)).is_ok());
        publish(&server, &listener, "1");
        listener.expect([1]);
    });
}

#[test]
fn a_server_that_answers_a_ping_is_not_asked_again() {
    let server = Server::start();
    // It may not ask, and is told so: that is an answer.
    server.cmd(&["ACL", "SETUSER", "mute", "on", ">p", "&*", "-@all", "+subscribe"]);
    for user in ["", "mute:p@"] {
        let listener = opened(&format!("redis://{user}127.0.0.1:{}?io_timeout=1m", server.port()));
        let before = Moment::now();
        listener.with_subscription(|subscription| subscription.alive = before.minus(QUIET));
        eventually(LIMIT, || {
            assert!(listener.numbers(soon(ms(10))).unwrap().is_empty());
            listener.with_subscription(|subscription| {
                subscription.alive > before && subscription.asked.is_none()
            })
        });
    }
}

#[test]
fn an_answer_that_came_while_nobody_listened_counts() {
    let server = Server::start();
    let listener = opened(&server.url());
    listener.with_subscription(|subscription| {
        subscription.ping(LIMIT).unwrap();
        subscription.asked = Some(Moment::ZERO);
    });
    // By then the server has answered what came before.
    publish(&server, &listener, "1");
    listener.expect([1]);
    listener.with_subscription(|subscription| assert!(subscription.asked.is_none()));
}

#[cfg(feature = "tls")]
#[test]
fn what_tls_has_decrypted_already_is_heard() {
    let server = Server::builder().arg("--requirepass", "p@ss").tls().start();
    let listener = opened(&server.tls_url());
    for _ in 0..5 {
        // One record is more than one read takes in.
        publish_at_once(&server, &listener, 100);
        let mut heard = listener.numbers(soon(LIMIT)).unwrap();
        while heard.len() < 100 {
            let more = listener.numbers(Moment::ZERO).unwrap();
            assert!(!more.is_empty(), "{heard:?}");
            heard.extend(more);
        }
        assert_eq!(heard, (1..=100).collect::<Vec<_>>());
    }
    assert!(listener.numbers(soon(ms(20))).unwrap().is_empty());
    server.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    assert_eq!(listener.numbers(soon(LIMIT)).unwrap_err().kind(), ErrorKind::Refused);
}

struct Nowhere;

impl ServerSource for Nowhere {
    fn dial(&self, _: Deadline, _: &Show<'_>) -> Result<Wire, Error> {
        Err(Error::bare(ErrorKind::Refused))
    }
}

/// A subscription, and the server's end of it.
fn pair() -> (Subscription, socket2::Socket) {
    let kind = (socket2::Domain::UNIX, socket2::Type::STREAM);
    let (ours, theirs) = socket2::Socket::pair(kind.0, kind.1, None).unwrap();
    let wire = Wire::new(ours, ServerId::default());
    (Subscription::new(0, wire, Arc::new(Nowhere), false), theirs)
}

/// What may come, whole and in pieces.
const PIECES: [&[u8]; 17] = [
    b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n7\r\n",
    b"*3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n",
    b"*2\r\n$4\r\npong\r\n$0\r\n\r\n",
    b"*3\r\n$8\r\nsmessage\r\n$1\r\nc\r\n$1\r\n7\r\n",
    b"*3\r\n$10\r\nssubscribe\r\n$1\r\nc\r\n:0\r\n",
    b"*3\r\n$12\r\nsunsubscribe\r\n$1\r\nc\r\n:0\r\n",
    b"$7\r\nmessage\r\n",
    b"*3\r\n",
    b"*-1\r\n",
    b"$-1\r\n",
    b"$0\r\n",
    b"-NOPERM no\r\n",
    b"message",
    b"\xff",
    b"\r\n",
    b"9",
    b":",
];

proptest! {
    #[test]
    fn no_bytes_are_a_panic(
        pieces in proptest::collection::vec(proptest::sample::select(&PIECES[..]), 1..12),
    ) {
        let (mut subscription, theirs) = pair();
        prop_assert!(theirs.send(&pieces.concat()).is_ok());
        drop(theirs);
        let heard = Cell::new(0);
        let mut hear = |payload: &[u8]| {
            heard.set(heard.get() + 1);
            read(payload).is_some()
        };
        // The end of the stream is an error at the latest.
        while let Ok(due) = subscription.tend(Moment::NEVER, LIMIT, &mut hear) {
            prop_assert!(heard.get() <= pieces.len());
            subscription.changes.clear();
            subscription.wait(due);
        }
    }
}
