//! What the text for Prometheus says of what happened.

use std::collections::HashMap;

use crate::stores::{LIMIT, Store, in_time_on_each_store, ms, on_each_store, open, secs};
use kit::{Mode, Proxy, Server, eventually};
use leasehold::{Client, Config, ErrorKind, limits::MAX_METRICS_GROUPS};

on_each_store!(
    calls_and_their_waits_are_counted_by_outcome,
    a_hold_is_measured_and_seen_while_it_lasts,
    waiters_are_seen_while_they_wait,
);

in_time_on_each_store!(a_renewal_that_is_in_time_has_no_delay_and_a_lost_lease_has_a_hold,);

/// The samples of a text, each under its name with its labels.
pub(super) struct Samples(HashMap<String, f64>);

impl Samples {
    pub(super) fn of(client: &Client) -> Samples {
        Samples::read(&client.metrics_text())
    }

    fn read(text: &str) -> Samples {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let samples = lines.map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            (series.strip_prefix("leasehold_").unwrap().to_owned(), value.parse().unwrap())
        });
        Samples(samples.collect())
    }

    fn get(&self, name: &str) -> f64 {
        *self.0.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", self.0.keys()))
    }

    /// That of all names together.
    pub(super) fn all(&self, name: &str) -> f64 {
        self.get(&format!("{name}{{lock=\"*\"}}"))
    }

    fn calls(&self, lock: &str, outcome: &str) -> f64 {
        self.get(&format!("acquisitions_total{{lock=\"{lock}\",outcome=\"{outcome}\"}}"))
    }
}

fn calls_and_their_waits_are_counted_by_outcome(store: &Store) {
    let (one, two) = (store.client(), store.client());
    let lease = one.lock("n").acquire().unwrap();
    assert!(two.lock("n").try_acquire().unwrap().is_none());
    assert!(two.lock("n").try_acquire().unwrap().is_none());
    let error = two.lock("n").acquire_within(ms(300)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let mut asked = 0;
    let stop = || {
        asked += 1;
        asked > 1
    };
    let error = two.lock("n").acquire_unless(stop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    lease.release().unwrap();
    two.lock("n").acquire().unwrap().release().unwrap();
    // An argument that can never work is no call.
    assert!(two.lock("").acquire().is_err());

    let samples = Samples::of(&two);
    for (outcome, count) in [
        ("granted", 1.0),
        ("busy", 2.0),
        ("timed_out", 1.0),
        ("interrupted", 1.0),
        ("unknown", 0.0),
        ("failed", 0.0),
    ] {
        assert_eq!(samples.calls("*", outcome), count, "{outcome}");
    }
    assert_eq!(samples.all("wait_seconds_count"), 5.0);
    assert!(samples.all("wait_seconds_sum") >= 0.3, "{}", samples.all("wait_seconds_sum"));
    let long = 5.0 - samples.get("wait_seconds_bucket{lock=\"*\",le=\"0.1\"}");
    assert!(long >= 1.0, "the wait that ran out is longer");
    let counters = two.counters();
    assert_eq!(samples.all("attempts_total"), counters.attempts as f64);
    assert_eq!(samples.all("busy_total"), counters.busy as f64);
    // Each of its requests was answered: the takes, and a release at least.
    assert!(samples.all("round_trip_seconds_count") > samples.all("attempts_total"));
    let slow = Samples::of(&one);
    assert_eq!((slow.calls("*", "granted"), slow.all("hold_seconds_count")), (1.0, 1.0));
}

fn a_hold_is_measured_and_seen_while_it_lasts(store: &Store) {
    let client = store.client();
    let lock = client.lock("n");
    let lease = lock.acquire().unwrap();
    let another = client.lock("m").acquire().unwrap();
    eventually(LIMIT, || Samples::of(&client).all("oldest_hold_seconds") > 0.2);
    let samples = Samples::of(&client);
    assert_eq!((samples.all("held"), samples.all("hold_seconds_count")), (2.0, 0.0));
    lease.release().unwrap();
    let samples = Samples::of(&client);
    assert_eq!((samples.all("held"), samples.all("hold_seconds_count")), (1.0, 1.0));
    assert!(samples.all("hold_seconds_sum") > 0.2, "{}", samples.all("hold_seconds_sum"));
    drop(another);
    lock.acquire().unwrap().let_expire().unwrap();
    let samples = Samples::of(&client);
    assert_eq!((samples.all("held"), samples.all("hold_seconds_count")), (0.0, 3.0));
    assert_eq!(samples.all("oldest_hold_seconds"), 0.0);
    // A lease that ends with its client has had its time, too.
    let kept = client.lock("k").acquire().unwrap();
    client.close().unwrap();
    drop(kept);
    let samples = Samples::of(&client);
    assert_eq!((samples.all("held"), samples.all("hold_seconds_count")), (0.0, 4.0));
}

fn waiters_are_seen_while_they_wait(store: &Store) {
    let client = store.client();
    let lease = client.lock("n").acquire().unwrap();
    std::thread::scope(|scope| {
        let waits = || client.lock("n").acquire_within(LIMIT).unwrap().release().unwrap();
        let waiters = [scope.spawn(waits), scope.spawn(waits)];
        eventually(LIMIT, || Samples::of(&client).all("waiting") == 2.0);
        lease.release().unwrap();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
    assert_eq!(Samples::of(&client).all("waiting"), 0.0);
    assert_eq!(Samples::of(&client).calls("*", "granted"), 3.0);
}

fn a_renewal_that_is_in_time_has_no_delay_and_a_lost_lease_has_a_hold(store: &Store) {
    let client = store.client();
    let lease = client.lock("n").ttl(ms(1500)).acquire().unwrap();
    eventually(LIMIT, || client.counters().renewed == 3);
    let samples = Samples::of(&client);
    assert_eq!(samples.all("renewal_delay_seconds_count"), 3.0);
    // In time: a third of the ttl is left for other tries.
    assert!(samples.get("renewal_delay_seconds_bucket{lock=\"*\",le=\"0.3\"}") >= 2.0);
    lease.release().unwrap();

    let lease = client.lock("n").ttl(ms(50)).acquire().unwrap();
    eventually(LIMIT, || client.counters().lost == 1);
    lease.release().unwrap_err();
    let samples = Samples::of(&client);
    assert_eq!((samples.all("lost_total"), samples.all("released_late_total")), (1.0, 1.0));
    assert_eq!(samples.all("hold_seconds_count"), 2.0, "once, though it was told and released");
}

#[test]
fn names_are_told_apart_by_group_and_never_by_what_users_type() {
    let server = Server::start();
    let config = Config::from_url(&server.url()).unwrap();
    let config = config.metrics_group("stock:*").metrics_group("stock:vip").prefix("app:");
    let client = Client::with_config(config).unwrap();
    for name in ["stock:1", "stock:2", "stock:vip", "other", "stock"] {
        client.lock(name).acquire().unwrap().release().unwrap();
    }
    let held = client.lock("stock:3").acquire().unwrap();
    let before = client.metrics_text().lines().count();
    for number in 0..200 {
        drop(client.lock(format!("user-{number}\n\"")).acquire().unwrap());
    }
    assert_eq!(client.metrics_text().lines().count(), before);
    let samples = Samples::of(&client);
    let granted = ["stock:*", "stock:vip", "*"].map(|lock| samples.calls(lock, "granted"));
    assert_eq!(granted, [3.0, 1.0, 202.0]);
    assert_eq!(samples.get("held{lock=\"stock:*\"}"), 1.0);
    assert_eq!(samples.get("hold_seconds_count{lock=\"stock:vip\"}"), 1.0);
    assert_eq!(samples.get("round_trip_seconds_count{lock=\"stock:vip\"}"), 2.0);
    assert_eq!(client.counters().granted, 206, "those of all groups");
    drop(held);
}

#[test]
fn a_group_that_can_never_be_right_is_refused() {
    let with = |groups: &[&str]| {
        let config = Config::from_url("redis://127.0.0.1:1").unwrap();
        let config = groups.iter().fold(config, |config, group| config.metrics_group(*group));
        Client::with_config(config)
    };
    for (groups, why) in [
        (&[""][..], "'' is empty"),
        (&["*"], "'*' is where all names are that are in no other"),
        (&["a*b"], "'a*b' has a '*' that is not at its end"),
        (&["a**"], "'a**' has a '*' that is not at its end"),
        (&["a*", "b", "a*"], "'a*' is there twice"),
    ] {
        let refused = with(groups).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BadArgument);
        assert!(refused.to_string().contains(why), "{refused}");
    }
    let names: Vec<_> = (0..=MAX_METRICS_GROUPS).map(|number| number.to_string()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    assert!(with(&names).unwrap_err().to_string().contains("more than 32"));
    with(&names[1..]).unwrap();
}

#[test]
fn a_request_without_an_answer_is_as_long_as_it_was_waited_for() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    let client = open(&format!("{}?io_timeout=200ms", proxy.url()));
    client.lock("n").acquire().unwrap().release().unwrap();
    proxy.set_only(b"EVALSHA", Mode::SwallowReplies);
    client.lock("n").try_acquire().unwrap_err();
    let samples = Samples::of(&client);
    assert_eq!(samples.calls("*", "unknown"), 1.0);
    assert!(samples.all("round_trip_seconds_sum") >= 0.2);
    assert!(samples.all("wait_seconds_sum") >= 0.2);
}

#[test]
fn a_renewal_that_had_to_be_tried_again_is_late_against_its_first_time() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    let client = open(&format!("{}?io_timeout=300ms", proxy.url()));
    let lease = client.lock("n").ttl(secs(6)).acquire().unwrap();
    // The first plan is for 2 s after the grant.
    proxy.set(Mode::SwallowReplies);
    eventually(LIMIT, || Samples::of(&client).all("oldest_hold_seconds") > 3.2);
    assert_eq!(client.counters().renewed, 0);
    proxy.set(Mode::Pass);
    eventually(LIMIT, || client.counters().renewed > 0);
    let late = Samples::of(&client).all("renewal_delay_seconds_sum");
    assert!(late > 1.0 && lease.is_valid(), "{late}");
    lease.release().unwrap();
}
