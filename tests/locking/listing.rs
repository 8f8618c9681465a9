//! What is locked, as somebody sees who asks the store for all of it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::stores::{LIMIT, STALL, Store, eventually_free, fill, ms, on_each_store, open, secs};
use kit::{Server, Stopwatch, eventually};
use leasehold::{Client, Config, Listed};

on_each_store!(
    what_is_held_is_listed_with_its_holder_and_its_fence,
    what_was_held_is_listed_while_its_fence_is_remembered,
    a_pattern_stands_for_names_behind_the_prefix,
    names_are_any_bytes,
    who_waits_is_counted,
    a_thousand_locks_are_listed_page_by_page,
);

/// Each name once, or as often as a server without an order says it.
fn listed(client: &Client, pattern: &str) -> BTreeMap<Vec<u8>, Listed> {
    let listed = client.list(pattern).map(Result::unwrap);
    listed.map(|listed| (listed.name.clone(), listed)).collect()
}

fn names(client: &Client, pattern: &str) -> Vec<String> {
    let names = listed(client, pattern).into_keys();
    names.map(|name| String::from_utf8(name).unwrap()).collect()
}

fn what_is_held_is_listed_with_its_holder_and_its_fence(store: &Store) {
    let client = store.client();
    assert!(listed(&client, "*").is_empty());
    let [one, _two] = ["a", "b"].map(|name| client.lock(name).acquire().unwrap());
    let all = listed(&client, "*");
    assert_eq!(all.keys().collect::<Vec<_>>(), [b"a", b"b"]);
    let Listed { state, waiting, .. } = &all[&b"a"[..]];
    let holder = state.holder.as_ref().unwrap();
    assert_eq!((holder.fence, state.last_fence), (Some(one.fence()), Some(one.fence())));
    assert_eq!(holder.token_prefix, one.token().to_string()[..16]);
    assert!(holder.ttl <= secs(30) && holder.ttl > secs(10), "{:?}", holder.ttl);
    assert_eq!(*waiting, Some(0));
    one.release().unwrap();
    assert_eq!(names(&client, "*"), ["b"]);
}

fn what_was_held_is_listed_while_its_fence_is_remembered(store: &Store) {
    let client = store.client();
    let lease = client.lock("a").acquire().unwrap();
    let fence = lease.fence();
    lease.release().unwrap();
    let short = client.lock("short").ttl(ms(50)).acquire().unwrap();
    short.let_expire().unwrap();
    eventually_free(&client, "short");
    assert!(listed(&client, "*").is_empty(), "an end that nobody sees is one");
    let all: Vec<_> = client.list("*").all().map(Result::unwrap).collect();
    if !store.keeps_fences() {
        return assert!(all.iter().all(|listed| listed.name == b"short"));
    }
    assert_eq!(all.len(), 2);
    let a = all.iter().find(|listed| listed.name == b"a").unwrap();
    assert_eq!((&a.state.holder, a.state.last_fence), (&None, Some(fence)));
}

fn a_pattern_stands_for_names_behind_the_prefix(store: &Store) {
    let (client, behind) = (store.client(), |prefix: &str| {
        let config = Config::from_url(&store.url()).unwrap().io_timeout(secs(20));
        Client::with_config(config.prefix(prefix)).unwrap()
    });
    let prefixed = behind("p*[:");
    let of = ["stock:1", "stock:17", "stick:1", "a*b", "größe", "x-[1]\\"];
    let _leases = of.map(|name| client.lock(name).acquire().unwrap());
    let _others = ["stock:1", "other"].map(|name| prefixed.lock(name).acquire().unwrap());
    for (pattern, expected) in [
        ("stock:*", &["stock:1", "stock:17"][..]),
        ("st?ck:1", &["stick:1", "stock:1"]),
        ("s*1", &["stick:1", "stock:1"]),
        ("s*o*:*7*", &["stock:17"]),
        ("a\\*b", &["a*b"]),
        ("gr??e", &["größe"]),
        ("x-[1]*", &["x-[1]\\"]),
        ("stock:1", &["stock:1"]),
        ("", &[]),
        ("none*", &[]),
    ] {
        assert_eq!(names(&client, pattern), expected, "{pattern}");
    }
    assert_eq!(names(&client, "p?[[]*").len(), 0, "brackets are no pattern");
    assert_eq!(names(&prefixed, "*"), ["other", "stock:1"]);
    assert_eq!(names(&prefixed, "stock*"), ["stock:1"]);
    assert_eq!(names(&behind("q:"), "*").len(), 0);
}

fn names_are_any_bytes(store: &Store) {
    let client = store.client();
    let odd: [&[u8]; 8] =
        [b"\xff\xfe", b"\0", b"a{b}c", b"{", b"}", b"a}b", b"line\nend", b"{t}{t}"];
    let _leases = odd.map(|name| client.lock(name).acquire().unwrap());
    let mut expected = odd.map(<[u8]>::to_vec);
    expected.sort();
    assert_eq!(listed(&client, "*").into_keys().collect::<Vec<_>>(), expected);
    assert_eq!(client.list(b"\xff*").count(), 1);
    let long = "n".repeat(1000);
    let _lease = client.lock(&long).acquire().unwrap();
    assert_eq!(names(&client, "nnn*"), [long]);
}

fn who_waits_is_counted(store: &Store) {
    let (client, waiter) = (store.client(), store.client());
    let lease = client.lock("n").acquire().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| waiter.lock("n").acquire_within(LIMIT).unwrap().release().unwrap());
        eventually(LIMIT, || listed(&client, "n")[&b"n"[..]].waiting == Some(1));
        lease.release().unwrap();
    });
}

fn a_thousand_locks_are_listed_page_by_page(store: &Store) {
    let client = store.client();
    let lock = |number: usize| client.lock(format!("lock:{number:04}")).ttl(secs(50)).renew(false);
    std::thread::scope(|scope| {
        for part in 0..4 {
            scope.spawn(move || {
                for number in (part..1000).step_by(4) {
                    lock(number).acquire().unwrap().let_expire().unwrap();
                }
            });
        }
    });
    let all = names(&client, "lock:*");
    assert_eq!(all, (0..1000).map(|number| format!("lock:{number:04}")).collect::<Vec<_>>());
    assert_eq!(names(&client, "lock:09?9").len(), 10);
}

#[test]
fn names_that_fill_a_reply_are_listed() {
    let server = Server::start();
    let client = open(&server.url());
    let long = |number: usize| format!("{number:02}{}", "n".repeat(60_000));
    let _leases: Vec<_> =
        (0..40).map(|number| client.lock(long(number)).acquire().unwrap()).collect();
    server.cmd(&["SET", "leasehold:{foreign}", &"x".repeat(2_000_000)]);
    assert_eq!(names(&client, "*"), (0..40).map(long).collect::<Vec<_>>());
}

/// For each further star an old server tries every place of a name.
#[test]
fn a_server_compares_no_more_than_how_names_begin() {
    let server = Server::start();
    let client = open(&server.url());
    let _lease = client.lock("a".repeat(1000)).acquire().unwrap();
    server.cmd(&["CONFIG", "SET", "slowlog-log-slower-than", "0", "slowlog-max-len", "1000"]);
    assert!(names(&client, "aa*a*a*a*a*b").is_empty());
    let log = format!("{:?}", server.cmd(&["SLOWLOG", "GET", "1000"]));
    assert!(log.contains("leasehold:{*aa*\""), "{log}");
}

#[test]
fn a_hundred_thousand_locks_keep_no_server_busy_for_a_millisecond() {
    let server = Server::start();
    fill(&server, 100_000);
    let client = open(&server.url());
    client.ping().unwrap();
    kit::unless_starved(STALL, || {
        let watch = Stopwatch::start();
        client.list("order:*").next().expect("there are some").unwrap();
        watch.assert_at_most(ms(200), Duration::ZERO);
    });
    server.cmd(&["CONFIG", "SET", "slowlog-log-slower-than", "1000", "slowlog-max-len", "100000"]);
    server.cmd(&["SLOWLOG", "RESET"]);
    let names: std::collections::HashSet<_> =
        client.list("order:*").map(|listed| listed.unwrap().name).collect();
    assert_eq!(names.len(), 100_000);
    // On a busy machine a server loses the processor amid any command, now and then.
    let redis::Value::Int(slow) = server.cmd(&["SLOWLOG", "LEN"]) else { panic!("no number") };
    let scans = server.calls("scan");
    assert!(scans > 100_000 / 256 && slow < scans as i64, "{slow} were slow, of {scans} scans");
    assert_eq!(server.calls("keys"), 0);
}
