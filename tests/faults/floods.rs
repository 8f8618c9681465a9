//! Servers that say more than they were asked, or begin a reply and never end it.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kit::*;
use leasehold::{Client, Error, ErrorKind};

/// An endless reply is told from its length, long before this time is over.
const IO: Duration = Duration::from_secs(2);
/// What a call may take beyond its deadline.
const SLACK: Duration = Duration::from_millis(50);

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// These tests keep a core busy and measure what their process has.
fn one_by_one(test: impl FnOnce()) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    kit::child::alone(test);
}

/// As fast as the client takes it.
const fn flood(first: &'static [u8], then: &'static [u8]) -> Mode {
    Mode::Babble(Babble { first, then, pause: Duration::ZERO })
}

const SUBSCRIBED: &[u8] = b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n";

/// What is said to a subscriber.
const FLOODS: [(&[u8], &[u8]); 12] = [
    (SUBSCRIBED, b"+PONG\r\n"),
    (SUBSCRIBED, b"*2\r\n$4\r\npong\r\n$0\r\n\r\n"),
    (SUBSCRIBED, b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$8\r\nnonsense\r\n"),
    (SUBSCRIBED, SUBSCRIBED),
    (SUBSCRIBED, b"*3\r\n$10\r\nssubscribe\r\n$1\r\nc\r\n:1\r\n"),
    (SUBSCRIBED, b"*2\r\n$7\r\nunknown\r\n$0\r\n\r\n"),
    (SUBSCRIBED, b"-ERR nobody asked\r\n"),
    (SUBSCRIBED, b"\r\n"),
    (SUBSCRIBED, b"*1\r\n"),
    (SUBSCRIBED, b"*300000\r\n:1\r\n:1\r\n:1\r\n"),
    (SUBSCRIBED, b"$4000000000000\r\n"),
    (b"*300000\r\n", b":1\r\n"),
];

#[track_caller]
fn assert_waits_end_in_time(client: &Client, flood: &str) {
    let lock = client.lock("lock").wait(ms(300));
    for _ in 0..3 {
        let watch = Stopwatch::start();
        let error = lock.acquire().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{flood}: {error}");
        watch.assert_at_most(ms(300), SLACK);
    }
}

#[test]
fn c7_a_wait_ends_in_time_whatever_floods_the_wake_up_connection() {
    one_by_one(|| {
        let server = Server::start();
        let rival = Client::open(&server.url()).unwrap();
        let held = rival.lock("lock").try_acquire().unwrap().unwrap();
        for (first, then) in FLOODS {
            let what = then.escape_ascii().to_string();
            unless_starved(STALL, || {
                let mut proxy = Proxy::start(server.port());
                proxy.set_only(b"SUBSCRIBE", flood(first, then));
                let client = Client::open(&proxy.url()).unwrap();
                let before = peak();
                assert_waits_end_in_time(&client, &what);
                assert_bounded(before, &what);
            });
        }
        held.release().unwrap();
    });
}

#[test]
fn c7_a_wait_ends_in_time_if_one_of_several_servers_floods() {
    one_by_one(|| {
        let servers = [(); 3].map(|()| Server::start());
        let [one, two, three] = servers.each_ref().map(Server::url);
        let rival = Client::open(&format!("{one},{two},{three}")).unwrap();
        rival.initialize(false).unwrap();
        let held = rival.lock("lock").try_acquire().unwrap().unwrap();
        for (first, then) in FLOODS {
            unless_starved(STALL, || {
                let mut proxy = Proxy::start(servers[2].port());
                proxy.set_only(b"SUBSCRIBE", flood(first, then));
                let client = Client::open(&format!("{one},{two},{}", proxy.url())).unwrap();
                assert_waits_end_in_time(&client, &then.escape_ascii().to_string());
            });
        }
        held.release().unwrap();
    });
}

#[test]
fn c7_a_sentinel_that_floods_holds_nobody_up() {
    one_by_one(|| {
        let server = Server::start();
        let port = server.port().to_string();
        let address = format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len());
        let epoch = "*2\r\n$12\r\nconfig-epoch\r\n$1\r\n1\r\n";
        let told = [address.as_bytes(), epoch.as_bytes(), SUBSCRIBED].concat().leak();
        for (_, then) in &FLOODS[..11] {
            unless_starved(STALL, || {
                let mut proxy = Proxy::start(server.port());
                proxy.set_only(b"SENTINEL", flood(told, then));
                let url =
                    proxy.url().replace("redis://", "redis+sentinel://") + "/m?io_timeout=400ms";
                let client = Client::open(&url).unwrap();
                let before = peak();
                for round in 0..4 {
                    let lock =
                        client.lock(format!("{round} {}", then.escape_ascii())).wait(ms(300));
                    let watch = Stopwatch::start();
                    let _lease = lock.try_acquire().unwrap();
                    // While somebody waits, Sentinels are listened to.
                    lock.acquire().unwrap_err();
                    watch.assert_at_most(ms(300), SLACK);
                }
                assert_bounded(before, &then.escape_ascii().to_string());
            });
        }
    });
}

/// Replies that never end, each in another way.
const ENDLESS: [(&[u8], &[u8]); 9] = [
    (b"*1000000\r\n", b":1\r\n"),
    (b"*300000\r\n", b":1\r\n"),
    (b"", b"*1\r\n"),
    (b"", b"*2\r\n:1\r\n"),
    (b"", b"*1000000\r\n"),
    (b"*4000000000000\r\n", b":1\r\n"),
    (b"$4000000000000\r\n", b"x"),
    (b"*1000000\r\n", b"$1000000\r\nx"),
    (b"+", b"x"),
];

/// The most memory that this process has had, in kB. From now on it is counted anew.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    fs::write("/proc/self/clear_refs", "5").unwrap();
    line.trim().trim_end_matches(" kB").trim().parse().unwrap()
}

/// Far below what comes within these times.
#[track_caller]
fn assert_bounded(before: u64, what: &str) {
    let more = peak().saturating_sub(before);
    assert!(more < 32 * 1024, "{what}: {more} kB");
}

type Call<'a> = &'a dyn Fn() -> Result<(), Error>;

#[track_caller]
fn assert_refused(call: Call<'_>, what: &str) {
    unless_starved(STALL, || {
        let before = peak();
        let watch = Stopwatch::start();
        let error = call().unwrap_err();
        watch.assert_at_most(IO, SLACK);
        assert_bounded(before, what);
        assert!(error.detail().contains("longer than 1 MB"), "{what}: {error}");
        // Whether a lease is longer now, it says itself.
        let kinds = [ErrorKind::Protocol, ErrorKind::Unknown];
        assert!(kinds.contains(&error.kind()), "{what}: {error}");
    });
}

#[test]
fn c7_a_reply_without_end_is_an_error_on_every_connection() {
    one_by_one(|| {
        let server = Server::start();
        for (first, then) in ENDLESS {
            let what = format!("{}{}", first.escape_ascii(), then.escape_ascii());
            let endless = flood(first, then);
            let mut proxy = Proxy::start(server.port());
            let through = |query: &str| {
                Client::open(&format!("{}?io_timeout=2s{query}", proxy.url())).unwrap()
            };
            let [client, guarded] = ["", "&guard_data_loss=yes"].map(through);
            let cluster = proxy.url().replace("redis://", "redis+cluster://") + "?io_timeout=2s";
            let cluster = Client::open(&cluster).unwrap();
            let group = proxy.url().replace("redis://", "redis+sentinel://") + "/m?io_timeout=2s";
            let group = Client::open(&group).unwrap();
            let lease = client.lock(&what).try_acquire().unwrap().unwrap();
            for (word, name, call) in [
                ("EVALSHA", "a take", &|| client.lock("lock").try_acquire().map(drop) as _),
                ("EVALSHA", "a look", &|| client.lock("lock").inspect().map(drop)),
                ("EVALSHA", "an extension", &|| lease.extend()),
                ("PING", "a ping", &|| client.ping()),
                ("INFO", "a greeting", &|| guarded.ping()),
                ("SLOTS", "a Cluster's map", &|| cluster.ping()),
                ("SENTINEL", "a Sentinel's answer", &|| group.ping()),
            ] as [(&str, &str, Call<'_>); 7]
            {
                proxy.set_only(word.as_bytes(), endless);
                assert_refused(call, &format!("{name}, {what}"));
                proxy.set(Mode::Pass);
            }
        }
    });
}
