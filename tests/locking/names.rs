//! A name is any bytes, and its own lock.

use crate::stores::{Store, eventually_free, holder, ms, on_each_store, open, secs};
use kit::Server;
use leasehold::limits::MAX_NAME;
use leasehold::{Client, Config, Error, ErrorKind};
use proptest::prelude::*;
use redis::Value;

on_each_store!(
    every_name_can_be_taken_shown_and_released,
    two_names_never_share_a_lock,
    a_name_has_64_kib_at_most_and_a_byte_at_least,
    no_name_is_a_key_that_stands_beside_locks,
    a_prefix_keeps_clients_apart,
    c13_a_failure_of_one_lock_names_it,
);

/// Braces decide over slots in a Cluster, NUL ends strings in C, and some bytes are no text.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![Just(b'{'), Just(b'}'), Just(0), Just(b'%'), Just(b'\''), any::<u8>()]
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(byte(), 1..200)
}

fn runner(cases: u32) -> proptest::test_runner::TestRunner {
    let config = ProptestConfig { cases, failure_persistence: None, ..Default::default() };
    proptest::test_runner::TestRunner::new(config)
}

fn every_name_can_be_taken_shown_and_released(store: &Store) {
    let client = store.client();
    let check = |name: Vec<u8>| {
        let lease = client.lock(&name).try_acquire().unwrap().expect("nobody else is here");
        prop_assert_eq!(lease.name(), &name[..]);
        prop_assert!(client.lock(&name).try_acquire().unwrap().is_none());
        let shown = client.lock(&name).inspect().unwrap();
        prop_assert_eq!(shown.last_fence, Some(lease.fence()));
        prop_assert_eq!(shown.holder.unwrap().fence, Some(lease.fence()));
        lease.extend().unwrap();
        lease.release().unwrap();
        prop_assert!(holder(&client, &name).is_none());
        Ok(())
    };
    runner(80).run(&name(), check).unwrap();
}

fn two_names_never_share_a_lock(store: &Store) {
    let client = store.client();
    // Short ones of few letters, so that many of them are almost the same.
    let few = || prop::collection::vec(prop_oneof![Just(b'{'), Just(b'}'), Just(b'a')], 1..5);
    let check = |(one, two): (Vec<u8>, Vec<u8>)| {
        prop_assume!(one != two);
        let first = client.lock(&one).try_acquire().unwrap().expect("nobody else is here");
        let second = client.lock(&two).try_acquire().unwrap().expect("another lock");
        let fences = [first.fence(), second.fence()];
        for (name, fence) in [&one, &two].into_iter().zip(fences) {
            prop_assert_eq!(client.lock(name).inspect().unwrap().last_fence, Some(fence));
        }
        first.release().unwrap();
        prop_assert!(holder(&client, &two).is_some());
        second.release().unwrap();
        Ok(())
    };
    runner(80).run(&(few(), few()), check).unwrap();
}

fn a_name_has_64_kib_at_most_and_a_byte_at_least(store: &Store) {
    let client = store.client();
    let longest = vec![b'x'; MAX_NAME];
    let lease = client.lock(&longest).acquire().unwrap();
    assert_eq!(holder(&client, &longest).unwrap().fence, Some(lease.fence()));
    lease.release().unwrap();
    let attempts = client.counters().attempts;
    for name in [vec![], vec![b'x'; MAX_NAME + 1]] {
        let lock = client.lock(&name);
        let token = "00112233445566778899aabbccddeeff".parse().unwrap();
        let refused = [
            lock.try_acquire().err(),
            lock.acquire().err(),
            lock.attach(token, 1).err(),
            lock.inspect().err(),
        ];
        for error in refused {
            assert_eq!(error.unwrap().kind(), ErrorKind::BadArgument);
        }
    }
    assert_eq!(client.counters().attempts, attempts);
}

fn no_name_is_a_key_that_stands_beside_locks(store: &Store) {
    let prefixed = |prefix: &str| Config::from_url(&store.url()).unwrap().prefix(prefix);
    let (plain, half) = (store.client(), Client::with_config(prefixed("lease")).unwrap());
    let held = plain.lock("x").try_acquire().unwrap();
    for (client, name) in [
        (&plain, "leasehold:{x}"),
        (&plain, "leasehold:queue:{x}"),
        (&plain, "leasehold:marker"),
        (&half, "hold:{x}"),
    ] {
        let error = client.lock(name).try_acquire().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadArgument);
        assert!(error.to_string().contains("begins with 'leasehold:'"), "{error}");
    }
    let refused = Client::with_config(prefixed("leasehold:app:")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::BadArgument);
    drop(held);
    // What nobody can mistake for them is a name like any other.
    for (client, name) in [(&plain, "leasehold"), (&half, "leasehold:{x}")] {
        client.lock(name).try_acquire().unwrap().expect("free").release().unwrap();
    }
}

fn a_prefix_keeps_clients_apart(store: &Store) {
    let prefixed = |prefix: &[u8]| {
        Client::with_config(Config::from_url(&store.url()).unwrap().prefix(prefix)).unwrap()
    };
    let (plain, blue, odd) = (store.client(), prefixed(b"blue:"), prefixed(b"\0{\xff"));
    let leases = [&plain, &blue, &odd].map(|client| client.lock("n").try_acquire().unwrap());
    assert!(leases.iter().all(Option::is_some), "three locks");
    assert_eq!(leases[1].as_ref().unwrap().name(), b"n");
    let seen = holder(&plain, "blue:n").expect("the prefix is a part of the name in the store");
    assert_eq!(seen.fence, Some(leases[1].as_ref().unwrap().fence()));
    assert!(prefixed(b"blue:").lock("n").try_acquire().unwrap().is_none());
    drop(leases);
    eventually_free(&plain, "blue:n");
}

/// What a terminal would obey, and what is no text, is written out.
const NAME: &[u8] = b"caf\xc3\xa9 \x1b[2J\xff";
const NAMED: &str = r"'café \u{1b}[2J\xff'";

#[track_caller]
fn assert_named<T>(result: Result<T, Error>, kind: ErrorKind) {
    let error = result.err().expect("an error");
    assert_eq!(error.kind(), kind);
    assert_eq!(error.to_string().matches(NAMED).count(), 1, "{error}");
}

fn c13_a_failure_of_one_lock_names_it(store: &Store) {
    let (client, other) = (store.client(), store.client());
    let (lock, elsewhere) = (client.lock(NAME), other.lock(NAME));
    let lease = lock.acquire().unwrap();
    assert_named(elsewhere.acquire_within(ms(10)), ErrorKind::Timeout);
    assert_named(lock.acquire_within(ms(10)), ErrorKind::Timeout);
    assert_named(elsewhere.acquire_unless(|| true), ErrorKind::Interrupted);
    assert_named(lock.clone().wait_forever().acquire(), ErrorKind::WouldDeadlock);
    let attach = || elsewhere.attach(lease.token(), lease.fence()).unwrap();
    let (early, late) = (attach(), attach());
    lease.release().unwrap();
    assert_named(early.extend(), ErrorKind::Lost);
    assert_named(early.release(), ErrorKind::Lost);
    assert_named(late.let_expire_in(secs(1)), ErrorKind::Lost);
}

#[test]
fn c13_a_name_that_is_in_use_is_named() {
    let server = Server::start();
    let lock = open(&server.url()).lock(NAME);
    let mut connection = server.connection();
    let _: () = redis::cmd("SET").arg(NAME).arg("text").query(&mut connection).unwrap();
    assert_named(lock.try_acquire(), ErrorKind::WrongType);
    assert_named(lock.acquire(), ErrorKind::WrongType);
    assert_named(lock.inspect(), ErrorKind::WrongType);
}

#[test]
fn a_name_that_is_refused_is_not_sent() {
    let server = Server::start();
    let client = open(&server.url());
    let mut watch = server.watch();
    assert!(client.lock("").try_acquire().is_err());
    assert!(client.lock(vec![b'x'; MAX_NAME + 1]).try_acquire().is_err());
    assert_eq!(watch.client_commands(), [""; 0]);
}

#[test]
fn the_lock_is_the_name_so_that_others_can_share_it() {
    let server = Server::start();
    let client = open(&server.url());
    let name = b"a\0{b}\xff";
    let lease = client.lock(name).acquire().unwrap();
    let mut connection = server.connection();
    let mut get = || redis::cmd("GET").arg(name).query::<Value>(&mut connection).unwrap();
    assert_eq!(get(), Value::BulkString(lease.token().to_string().into_bytes()));
    lease.release().unwrap();
    assert_eq!(get(), Value::Nil);
    // And the other way round: what another program set with SET NX PX is held.
    server.cmd(&["SET", "theirs", "their own value", "NX", "PX", "60000"]);
    assert!(client.lock("theirs").try_acquire().unwrap().is_none());
    let seen = holder(&client, "theirs").unwrap();
    assert_eq!((seen.token_prefix.as_str(), seen.fence), ("", None), "it may be a secret");
    let token = "0123456789abcdef0123456789abcdef";
    server.cmd(&["SET", "theirs", token, "PX", "60000"]);
    let seen = holder(&client, "theirs").unwrap();
    assert_eq!((seen.token_prefix.as_str(), seen.fence), (&token[..16], None));
}
