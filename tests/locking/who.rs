//! Who has a lock, and who waits for it.

use std::thread;
use std::time::Duration;

use crate::forking::in_a_fork;
use crate::stores::{LIMIT, Store, ms, on_each_store, open, secs};
use kit::child::{self, Roles};
use kit::{Child, Server, eventually};
use leasehold::{Client, ClientInfo, Config, ErrorKind, Holder, LockState};
use redis::Value;

on_each_store!(
    a_holder_is_told_with_its_client,
    waiters_are_told_in_their_order,
    a_client_that_closes_in_order_is_forgotten,
    who_does_not_want_to_be_known_is_not,
    c13_a_wait_that_ran_out_says_who_has_the_lock,
    c8_a_child_that_goes_on_is_a_client_of_its_own,
);

pub(crate) const ROLES: Roles = &[("known parent", known_parent)];

/// A client that others see by this label.
fn labelled(store: &Store, label: &str) -> Client {
    let config = Config::from_url(&store.url()).unwrap().io_timeout(secs(10));
    Client::with_config(config.label(label)).unwrap()
}

fn look(client: &Client, name: &str) -> LockState {
    client.lock(name).inspect().unwrap()
}

/// The holder, once it has said who it is.
fn known_holder(client: &Client, name: &str) -> (Holder, ClientInfo) {
    let mut found = None;
    eventually(LIMIT, || {
        found = look(client, name).holder.and_then(|held| Some((held.clone(), held.client?)));
        found.is_some()
    });
    found.unwrap()
}

fn a_holder_is_told_with_its_client(store: &Store) {
    let (client, other) = (labelled(store, "billing"), store.client());
    let lease = client.lock("n").acquire().unwrap();
    let (holder, info) = known_holder(&other, "n");
    let token = lease.token().to_string();
    assert_eq!((&*holder.token_prefix, &*info.id), (&token[..16], &token[..12]));
    assert_eq!(client.id().unwrap(), info.id);
    assert_eq!((info.pid, info.label.as_deref()), (std::process::id(), Some("billing")));
    assert_eq!(info.host, nix::unistd::gethostname().unwrap().to_str().unwrap());
    assert_eq!((&*info.language, &*info.version), ("rust", env!("CARGO_PKG_VERSION")));
    assert!(info.program.starts_with("locking-"), "{}", info.program);
    let age = info.started.unwrap().elapsed().unwrap();
    assert!(age < LIMIT, "{age:?}");
    assert_eq!(holder.fence, Some(lease.fence()));
    let said = holder.to_string();
    let who = format!("(rust {}, pid {}, label billing)", info.program, info.pid);
    assert!(said.contains(&who) && said.contains(" since "), "{said}");
    let held = holder.held.unwrap();
    eventually(LIMIT, || look(&other, "n").holder.unwrap().held.unwrap() > held + ms(100));
    // A look of 10 s and more ago would have found another holder.
    assert!(look(&other, "n").holder.unwrap().held.unwrap() < LIMIT);
    // All leases of a client are the same client's.
    let second = client.lock("m").acquire().unwrap();
    assert_eq!(look(&other, "m").holder.unwrap().client.unwrap(), info);
    assert_ne!(second.token().to_string()[..16], token[..16]);
}

fn waiters_are_told_in_their_order(store: &Store) {
    let clients = ["one", "two", "three"].map(|label| labelled(store, label));
    let looker = store.client();
    let lease = clients[0].lock("n").acquire().unwrap();
    thread::scope(|scope| {
        for (client, place) in clients[1..].iter().zip(1..) {
            scope.spawn(move || client.lock("n").acquire_within(LIMIT * 2).unwrap());
            eventually(LIMIT, || look(&looker, "n").waiters.len() == place);
        }
        let labels = |state: &LockState| {
            let clients = state.waiters.iter().map(|waiter| waiter.client.clone()?.label);
            clients.collect::<Option<Vec<_>>>()
        };
        eventually(LIMIT, || labels(&look(&looker, "n")).is_some());
        let seen = look(&looker, "n");
        assert_eq!(labels(&seen).unwrap(), ["two", "three"]);
        assert_eq!((seen.more_waiters, seen.holder.is_some()), (0, true));
        let waited: Vec<_> = seen.waiters.iter().map(|waiter| waiter.waited.unwrap()).collect();
        assert!(waited[0] > waited[1] && waited[0] < LIMIT, "{waited:?}");
        lease.release().unwrap();
    });
    assert_eq!(look(&looker, "n").waiters, []);
}

fn a_client_that_closes_in_order_is_forgotten(store: &Store) {
    let (client, looker) = (labelled(store, "leaving"), store.client());
    let lease = client.lock("n").ttl(secs(50)).acquire().unwrap();
    known_holder(&looker, "n");
    lease.let_expire_in(secs(50)).unwrap();
    client.close().unwrap();
    eventually(LIMIT, || look(&looker, "n").holder.unwrap().client.is_none());
    let holder = look(&looker, "n").holder.unwrap();
    let said = format!("client {}", &holder.token_prefix[..12]);
    assert!(holder.to_string().starts_with(&said), "{holder}");
}

fn who_does_not_want_to_be_known_is_not(store: &Store) {
    let config = || Config::from_url(&store.url()).unwrap().io_timeout(secs(10));
    let (silent, known) = (Client::with_config(config().register(false)).unwrap(), store.client());
    let _lease = silent.lock("n").acquire().unwrap();
    let _other = known.lock("m").acquire().unwrap();
    known_holder(&silent, "m");
    // It would have been told before the other one.
    assert_eq!(look(&known, "n").holder.unwrap().client, None);
}

fn c13_a_wait_that_ran_out_says_who_has_the_lock(store: &Store) {
    let (client, other) = (labelled(store, "billing"), store.client());
    let _lease = client.lock("n").acquire().unwrap();
    let (_, info) = known_holder(&other, "n");
    let who = format!("held by {info}");
    // On a busy machine, the answer of a look may not come before the end of the wait.
    let says = |wait: &dyn Fn() -> leasehold::Error| {
        eventually(LIMIT, || {
            let error = wait();
            assert_eq!(error.kind(), ErrorKind::Timeout);
            let text = error.to_string();
            assert!(text.contains(", not free within wait, 500 ms, asked "), "{text}");
            text.contains(&who)
        });
    };
    let spins = other.lock("n").wait_mode("spin".parse().unwrap());
    // A thread of the holder's own process is told the same.
    for lock in [other.lock("n"), spins, client.lock("n")] {
        says(&|| lock.acquire_within(ms(500)).unwrap_err());
    }
    let future = || other.lock("n").wait(ms(500)).acquire_async();
    says(&|| kit::futures::block_on(future(), LIMIT).unwrap_err());
}

#[test]
fn a_try_that_finds_it_taken_is_one_command_and_a_wait_that_runs_out_looks_once() {
    let server = Server::start();
    let (client, other) = (open(&server.url()), open(&format!("{}?register=no", server.url())));
    let _lease = client.lock("n").acquire().unwrap();
    record_of_holder(&other);
    let mut watch = server.watch();
    assert!(other.lock("n").try_acquire().unwrap().is_none());
    assert_eq!(watch.client_commands().len(), 1);
    let error = other.lock("n").acquire_within(Duration::ZERO).unwrap_err();
    assert!(error.to_string().contains("held by an unknown holder"), "{error}");
    assert_eq!(watch.client_commands().len(), 1);
    other.lock("n").acquire_within(secs(5)).unwrap_err();
    let commands = watch.client_commands();
    let gets = commands.iter().filter(|it| it.starts_with("GET \"leasehold:client:")).count();
    assert_eq!(gets, 1, "{commands:?}");
}

fn known_parent(args: &[String]) {
    let client = open(&args[0]);
    client.reopen_after_fork();
    let lease = client.lock("parent's").acquire().unwrap();
    let (_, parent) = known_holder(&client, "parent's");
    let done = in_a_fork(|| {
        let lease = client.lock("child's").acquire().unwrap();
        let (_, own) = known_holder(&client, "child's");
        assert_eq!(own.pid, std::process::id());
        assert!(own.id != parent.id && own.pid != parent.pid);
        assert_eq!(lease.token().to_string()[..12], own.id);
        assert_eq!(client.id().unwrap(), own.id);
        assert_eq!(known_holder(&client, "parent's").1, parent);
        lease.release().unwrap();
        client.close().unwrap();
    });
    assert!(done);
    // That the child's is forgotten does not concern the parent's.
    assert_eq!(look(&client, "parent's").holder.unwrap().client, Some(parent));
    lease.release().unwrap();
    child::say("done");
}

fn c8_a_child_that_goes_on_is_a_client_of_its_own(store: &Store) {
    // In Rust, no child goes on with a file of its parent's, nor with a store in its memory.
    if matches!(store, Store::File(_) | Store::Memory(_)) {
        return;
    }
    let mut parent = Child::start("known parent", &[&store.url()]);
    assert!(parent.wait(LIMIT * 2).success());
    assert_eq!(parent.rest(LIMIT), ["done"]);
}

/// The record of the holder of `n`.
fn record_of_holder(client: &Client) -> String {
    let (_, info) = known_holder(client, "n");
    format!("leasehold:client:{}", info.id)
}

#[test]
fn a_client_is_one_small_key_that_ends_by_itself() {
    let server = Server::start();
    let (client, looker) = (open(&server.url()), open(&server.url()));
    let mut watch = server.watch();
    let _lease = client.lock("n").acquire().unwrap();
    let key = record_of_holder(&looker);
    let sets = |commands: &[String]| commands.iter().filter(|it| it.starts_with("SET ")).count();
    for _ in 0..200 {
        client.lock("m").acquire().unwrap().release().unwrap();
        assert!(client.lock("n").try_acquire().unwrap().is_none());
        look(&looker, "n");
    }
    assert_eq!(sets(&watch.everything()), 1, "once, and never by who only looks");
    let Value::Int(left) = server.cmd(&["PTTL", &key]) else { panic!() };
    assert!((1..=180_000).contains(&left), "{left}");
    let Value::Int(length) = server.cmd(&["STRLEN", &key]) else { panic!() };
    assert!(length < 300, "{length}");
    client.close().unwrap();
    eventually(LIMIT, || server.cmd(&["EXISTS", &key]) == Value::Int(0));
}

#[test]
fn who_does_not_want_to_be_known_sends_no_command_for_it() {
    let server = Server::start();
    let silent = open(&format!("{}?register=no", server.url()));
    let mut watch = server.watch();
    let lease = silent.lock("n").acquire().unwrap();
    assert_eq!(silent.lock("n").acquire_within(ms(500)).unwrap_err().kind(), ErrorKind::Timeout);
    lease.release().unwrap();
    silent.close().unwrap();
    let commands = watch.everything();
    let is_about_it = |it: &String| it.contains("leasehold:client:") && it.starts_with("SET");
    assert!(!commands.iter().any(is_about_it), "{commands:?}");
}

#[test]
fn c13_what_others_wrote_into_the_registry_is_shown_without_harm() {
    let server = Server::start();
    let (client, looker) = (open(&server.url()), open(&server.url()));
    let _lease = client.lock("n").acquire().unwrap();
    let key = record_of_holder(&looker);
    let seen = || look(&looker, "n").holder.unwrap();
    let set = |record: &str| server.cmd(&["SET", &key, record, "PX", "60000"]);
    set("host=%1b[2J pid=7 label=a%0ab");
    let info = seen().client.unwrap();
    assert_eq!((&*info.host, info.label.as_deref()), ("\\u{1b}[2J", Some("a\\nb")));
    eventually(LIMIT, || {
        let error = looker.lock("n").acquire_within(ms(500)).unwrap_err().to_string();
        assert!(!error.contains(char::is_control), "{error}");
        error.contains("\\u{1b}[2J (")
    });
    let long = "x".repeat(100_000);
    for garbage in ["", "\0\0", "host", "pid=7", &format!("host={long} pid=7 label={long}")] {
        set(garbage);
        let holder = seen();
        assert!(holder.fence.is_some() && holder.to_string().len() < 500, "{holder}");
    }
    // Nor does a key that is none of ours hide anything else.
    server.cmd(&["DEL", &key]);
    server.cmd(&["LPUSH", &key, "x"]);
    assert_eq!((seen().client, seen().fence.is_some()), (None, true));
    server.cmd(&["DEL", "leasehold:queue:{n}"]);
    server.cmd(&["SET", "leasehold:queue:{n}", "x"]);
    assert_eq!((look(&looker, "n").waiters.len(), seen().fence.is_some()), (0, true));
}

#[test]
fn a_user_without_the_right_to_it_goes_on_without() {
    let server = Server::start();
    server.cmd(&[
        "ACL",
        "SETUSER",
        "app",
        "on",
        ">secret",
        "~n",
        "~leasehold:{n",
        "~leasehold:{n}",
        "~leasehold:queue:{n}",
        "~leasehold:marker",
        "&*",
        "+@all",
    ]);
    let url = server.url().replace("redis://", "redis://app:secret@");
    let (client, looker) = (open(&url), open(&server.url()));
    let lease = client.lock("n").acquire().unwrap();
    let refused = || {
        let Value::Array(log) = server.cmd(&["ACL", "LOG"]) else { panic!() };
        log.len()
    };
    eventually(LIMIT, || refused() == 1);
    for looker in [&looker, &client] {
        let holder = look(looker, "n").holder.unwrap();
        assert_eq!((holder.client.clone(), holder.fence), (None, Some(lease.fence())));
        assert!(holder.to_string().contains(" since "), "{holder}");
    }
    let error = || client.lock("n").acquire_within(ms(500)).unwrap_err();
    eventually(LIMIT, || error().to_string().contains("held by client "));
    lease.release().unwrap();
    // Who may not see the queue either still sees the holder.
    server.cmd(&["ACL", "SETUSER", "app", "resetkeys", "~n", "~leasehold:{n}"]);
    let lease = looker.lock("n").acquire().unwrap();
    assert_eq!(look(&client, "n").holder.unwrap().fence, Some(lease.fence()));
}

#[test]
fn of_a_long_queue_the_first_hundred_are_read() {
    let server = Server::start();
    let client = open(&server.url());
    let _lease = client.lock("n").acquire().unwrap();
    for place in 1..=130_u32 {
        let member = format!("{place:016x}{0:016x} 1000 leasehold:wake:x", 0);
        server.cmd(&["ZADD", "leasehold:queue:{n}", &place.to_string(), &member]);
    }
    let seen = look(&client, "n");
    assert_eq!((seen.waiters.len(), seen.more_waiters), (100, 30));
    assert_eq!(seen.waiters[99].token_prefix, format!("{:016x}", 100), "the hundredth");
    let waited: Duration = seen.waiters[0].waited.unwrap();
    assert!(waited > seen.waiters[99].waited.unwrap());
}
