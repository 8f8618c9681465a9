//! What an etcd takes at a time: bytes of a request, streams of a connection. And what is left of
//! leases that nobody uses.

use std::time::Duration;

use super::*;
use crate::store::glob::Glob;

/// A name so long that some dozens are too much for one request, or one answer.
fn long(number: usize) -> Vec<u8> {
    format!("{number:060000}").into_bytes()
}

/// Longer than a busy machine takes for a hundred of them.
const TTL: Duration = Duration::from_secs(600);

fn taken_of(store: &EtcdStore, name: &[u8]) -> (Token, u64) {
    let token = token();
    let take = Request::Take { name, token, ttl: TTL, place: Place::Try, block: 1 };
    match store.ask(Lane::Caller, take, by()).unwrap().reply {
        Reply::Granted { fence, .. } => (token, fence),
        other => panic!("{other:?}"),
    }
}

fn give_of(store: &EtcdStore, name: &[u8], (token, fence): (Token, u64)) {
    let give = Request::Give { name, token, fence, ttl: TTL };
    assert_eq!(store.ask(Lane::Caller, give, by()).unwrap().reply, Reply::Given);
}

/// The names, and whether somebody has them.
fn listed(store: &EtcdStore) -> Vec<(Vec<u8>, bool)> {
    let wanted = Wanted { glob: Glob::new(b"*"), is_all: true };
    let (mut from, mut all) = (Bookmark::default(), Vec::new());
    loop {
        let page = store.list(&wanted, &from, by()).unwrap();
        all.extend(page.listed.into_iter().map(|one| (one.name, one.state.holder.is_some())));
        let Some(next) = page.next else { return all };
        assert_ne!(next, from);
        from = next;
    }
}

fn leases(etcd: &Etcd) -> usize {
    etcd.ctl(&["lease", "list"]).lines().skip(1).count()
}

#[test]
fn long_names_are_renewed_and_read_together() {
    let etcd = Etcd::start();
    let store = open(&etcd.url());
    let held: Vec<_> = (0..40).map(long).map(|name| (taken_of(&store, &name), name)).collect();
    let extends = held.iter().map(|&((token, fence), ref name)| Request::Extend {
        name,
        token,
        fence,
        ttl: TTL,
        reach: Reach::Grow,
    });
    let outcomes = store.run(Lane::Keeper, &extends.collect::<Vec<_>>(), by());
    assert_eq!(outcomes.len(), held.len());
    for outcome in outcomes {
        assert_eq!(outcome.unwrap().reply, Reply::Extended);
    }
    let notes = held.iter().map(|(_, name)| store.name(name).note());
    assert_eq!(store.read(Lane::Caller, notes, by()).unwrap(), vec![None; held.len()]);
}

#[test]
fn long_names_are_listed_and_looked_at() {
    let etcd = Etcd::start();
    let (store, names) = (open(&etcd.url()), (0..80).map(long));
    let held: Vec<_> = names.clone().map(|name| taken_of(&store, &name)).collect();
    assert_eq!(listed(&store), names.map(|name| (name, true)).collect::<Vec<_>>());
    // Until all stand in line.
    let ((holder, fence), ttl) = (held[0], Duration::from_secs(600));
    let name = &long(0);
    let extend = Request::Extend { name, token: holder, fence, ttl, reach: Reach::Grow };
    assert_eq!(store.ask(Lane::Caller, extend, by()).unwrap().reply, Reply::Extended);
    listens(&store);
    for _ in 0..80 {
        let (name, token) = (long(0), token());
        let take = Request::Take { name: &name, token, ttl: TTL, place: Place::Join(0), block: 1 };
        store.ask(Lane::Caller, take, by()).unwrap();
        store.listener.hear(Moment::now()).unwrap();
    }
    let look = store.inspect(&long(0), by()).unwrap();
    assert_eq!(look.waiters.len() as u64 + look.more_waiters, 80);
    assert!(look.waiters.len() > 10);
}

#[test]
fn c13_a_name_that_is_too_long_for_an_etcd_is_told_so() {
    let etcd = Etcd::start();
    let name = "/".repeat(65_536);
    for prefix in ["".to_owned(), "x".repeat(60_000)] {
        let store = open(&format!("{}?prefix={prefix}", etcd.url()));
        let (name, token) = (name.as_bytes(), token());
        let take = Request::Take { name, token, ttl: TTL, place: Place::Try, block: 1 };
        let failure = store.ask(Lane::Caller, take, by()).unwrap_err();
        assert_eq!((failure.error.kind(), failure.sent), (ErrorKind::BadArgument, None));
    }
}

#[test]
fn as_many_leases_are_asked_for_at_a_time_as_the_server_takes() {
    let etcd = Etcd::start_with(1, &["--max-concurrent-streams=4"]);
    let store = open(&etcd.url());
    let names: Vec<_> = (10..30).map(|number| format!("n{number}").into_bytes()).collect();
    for name in &names {
        taken_of(&store, name);
    }
    assert_eq!(listed(&store), names.into_iter().map(|name| (name, true)).collect::<Vec<_>>());
}

#[test]
fn leases_that_nobody_uses_are_ended_when_there_are_many_and_at_the_end() {
    let etcd = Etcd::start();
    let store = open(&etcd.url());
    let names: Vec<_> = (0..40).map(|number| format!("n{number}").into_bytes()).collect();
    let mut held: Vec<_> = names.iter().map(|name| taken_of(&store, name)).collect();
    let kept = held.pop().unwrap();
    names.iter().zip(held).for_each(|(name, held)| give_of(&store, name, held));
    assert_eq!(store.due(), Moment::ZERO);
    let tend = |before| store.tend(before, &|_| Vec::new(), by());
    tend(Moment::ZERO);
    // One is in use.
    assert_eq!(leases(&etcd), 33);
    assert!(store.due() > Moment::now());
    tend(Moment::NEVER);
    assert_eq!(store.due(), Moment::ZERO);
    give_of(&store, &names[39], kept);
    tend(Moment::NEVER);
    assert_eq!((leases(&etcd), store.due()), (0, Moment::NEVER));
}
