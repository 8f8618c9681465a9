//! A lease that one process takes and another goes on with.

use std::time::Duration;

use crate::stores::{
    LIMIT, Store, eventually_free, holder, in_time_on_each_store, ms, on_each_store, open, secs,
};
use kit::{Child, Server, child, eventually};
use leasehold::limits::MAX_FENCE;
use leasehold::{Client, Config, Error, ErrorKind, Lease, Token};

on_each_store!(
    a_lease_goes_from_one_process_to_another,
    c5_an_attached_lease_is_worth_nothing_before_it_is_extended,
    c5_an_attached_lease_can_be_released_at_once,
    c5_a_wrong_token_extends_and_releases_nothing,
    c1_attaching_what_nobody_detached_takes_nothing_from_its_holder,
    a_token_is_enough_to_say_for_how_long_the_lock_stays_taken,
    c1_of_several_that_attach_one_lease_only_one_becomes_valid,
    c2_a_fence_that_was_made_up_attaches_nothing,
    an_attached_lease_is_handed_on_and_left_like_any_other,
    a_fence_that_none_can_be_is_refused,
);

in_time_on_each_store!(an_attached_lease_is_renewed_once_it_was_extended,);

fn kind<T>(result: Result<T, Error>) -> ErrorKind {
    result.err().expect("an error").kind()
}

/// What the taking process knows, and its end: a process of a web server, say.
fn taken_elsewhere(store: &Store) -> (Token, u64) {
    let mut taker = Child::start("taker", &[&store.url()]);
    let said = taker.line(LIMIT);
    assert!(taker.wait(LIMIT).success());
    let (token, fence) = said.split_once(' ').unwrap();
    (token.parse().unwrap(), fence.parse().unwrap())
}

fn taker(args: &[String]) {
    let client = open(&args[0]);
    let lease = client.lock("n").ttl(secs(15)).acquire().unwrap();
    let (token, fence) = lease.detach().unwrap();
    child::say(&format!("{token} {fence}"));
    client.close().unwrap();
}

pub(crate) const ROLES: kit::child::Roles = &[("taker", taker)];

fn a_lease_goes_from_one_process_to_another(store: &Store) {
    let (token, fence) = taken_elsewhere(store);
    let client = store.client();
    assert_eq!(holder(&client, "n").unwrap().fence, Some(fence), "closing released what it held");
    let lease = client.lock("n").attach(token, fence).unwrap();
    assert_eq!((lease.fence(), lease.name()), (fence, &b"n"[..]));
    assert_ne!(lease.token(), token, "its own, since several could attach that one");
    lease.extend().unwrap();
    assert!(lease.remaining() > secs(20), "its ttl is this lock's");
    assert_eq!(holder(&client, "n").unwrap().fence, Some(fence));
    lease.release().unwrap();
    assert!(holder(&client, "n").is_none());
}

fn c5_an_attached_lease_is_worth_nothing_before_it_is_extended(store: &Store) {
    let client = store.client();
    let (token, fence) = client.lock("n").acquire().unwrap().detach().unwrap();
    assert!(holder(&client, "n").is_some());
    let lease = client.lock("n").attach(token, fence).unwrap();
    assert!(!lease.is_valid());
    lease.extend().unwrap();
    assert!(lease.is_valid());
    lease.release().unwrap();
}

fn c5_an_attached_lease_can_be_released_at_once(store: &Store) {
    let (one, two) = (store.client(), store.client());
    let (token, fence) = one.lock("n").acquire().unwrap().detach().unwrap();
    two.lock("n").attach(token, fence).unwrap().release().unwrap();
    assert!(holder(&one, "n").is_none());

    let (token, fence) = one.lock("n").acquire().unwrap().detach().unwrap();
    drop(two.lock("n").attach(token, fence).unwrap());
    // By dropping it too, some moments later.
    eventually_free(&one, "n");
    let gone = two.lock("n").attach(token, fence).unwrap();
    assert_eq!(kind(gone.release()), ErrorKind::Lost);
    let held = "leasehold_hold_seconds_count{lock=\"*\"} 0\n";
    assert!(two.metrics_text().contains(held), "it has held none of them");
}

fn c5_a_wrong_token_extends_and_releases_nothing(store: &Store) {
    let client = store.client();
    let lease = client.lock("n").acquire().unwrap();
    let before = holder(&client, "n").unwrap();
    let wrong: Token = "00112233445566778899aabbccddeeff".parse().unwrap();
    let attached = || client.lock("n").attach(wrong, lease.fence()).unwrap();
    assert_eq!(kind(attached().extend()), ErrorKind::Lost);
    assert_eq!(kind(attached().release()), ErrorKind::Lost);
    assert_eq!(kind(attached().let_expire_in(secs(1))), ErrorKind::Lost);
    drop(attached());
    let after = holder(&client, "n").unwrap();
    assert_eq!((before.token_prefix, before.fence), (after.token_prefix, after.fence));
    assert!(after.ttl > secs(15));
    lease.release().unwrap();
}

fn c1_attaching_what_nobody_detached_takes_nothing_from_its_holder(store: &Store) {
    let (one, two) = (store.client(), store.client());
    let held = one.lock("n").acquire().unwrap();
    let attached = two.lock("n").attach(held.token(), held.fence()).unwrap();
    assert_eq!(kind(attached.extend()), ErrorKind::Lost);
    let attached = two.lock("n").attach(held.token(), held.fence()).unwrap();
    assert_eq!(kind(attached.let_expire()), ErrorKind::Lost);
    let attached = two.lock("n").attach(held.token(), held.fence()).unwrap();
    assert_eq!(kind(attached.detach()), ErrorKind::Lost);
    drop(two.lock("n").attach(held.token(), held.fence()).unwrap());
    // What was dropped is given up by then.
    two.close().unwrap();
    held.extend().unwrap();
    assert!(held.is_valid());
    held.release().unwrap();
}

fn a_token_is_enough_to_say_for_how_long_the_lock_stays_taken(store: &Store) {
    let client = store.client();
    let lock = client.lock("n").ttl(secs(60)).renew(false);
    let held = lock.acquire().unwrap();
    let attached = lock.attach(held.token(), held.fence()).unwrap();
    attached.let_expire_in(secs(20)).unwrap();
    assert!(holder(&client, "n").unwrap().ttl <= secs(20));
    held.release().unwrap();
}

fn c1_of_several_that_attach_one_lease_only_one_becomes_valid(store: &Store) {
    let (one, two) = (store.client(), store.client());
    let (token, fence) = one.lock("n").acquire().unwrap().detach().unwrap();
    let attach = |client: &Client| client.lock("n").attach(token, fence).unwrap();
    let (first, second) = (attach(&one), attach(&two));
    first.extend().unwrap();
    assert_eq!(kind(second.extend()), ErrorKind::Lost);
    assert_eq!(kind(attach(&two).release()), ErrorKind::Lost);
    drop(attach(&two));
    first.extend().unwrap();
    assert!(first.is_valid() && !second.is_valid());
    first.release().unwrap();

    for _ in 0..5 {
        let (token, fence) = one.lock("n").acquire_within(LIMIT).unwrap().detach().unwrap();
        let leases = std::thread::scope(|scope| {
            let all = [(); 4].map(|()| {
                scope.spawn(|| {
                    let lease = two.lock("n").attach(token, fence).unwrap();
                    lease.extend().is_ok().then_some(lease)
                })
            });
            all.map(|thread| thread.join().unwrap())
        });
        let valid: Vec<_> = leases.iter().flatten().filter(|lease| lease.is_valid()).collect();
        // Where several have a vote each, none may have most of them.
        let least = usize::from(!matches!(store, Store::Quorum(_)));
        assert!((least..=1).contains(&valid.len()), "{valid:?}");
        two.lock("n").attach(token, fence).unwrap().release().ok();
        drop(leases);
        if least == 0 {
            return;
        }
    }
}

fn c2_a_fence_that_was_made_up_attaches_nothing(store: &Store) {
    let client = store.client();
    let (token, fence) = client.lock("n").acquire().unwrap().detach().unwrap();
    for made_up in [1, fence - 1, fence + 1, MAX_FENCE] {
        let attached = client.lock("n").attach(token, made_up).unwrap();
        assert_eq!(kind(attached.extend()), ErrorKind::Lost, "{made_up}");
        assert!(!attached.is_valid());
    }
    let lease = client.lock("n").attach(token, fence).unwrap();
    lease.extend().unwrap();
    lease.release().unwrap();
    assert!(client.lock("n").acquire().unwrap().fence() > fence);
}

fn an_attached_lease_is_handed_on_and_left_like_any_other(store: &Store) {
    let client = store.client();
    let lock = client.lock("n");
    let (mut token, mut fence) = lock.acquire().unwrap().detach().unwrap();
    for extended in [true, false, true] {
        let lease = lock.attach(token, fence).unwrap();
        if extended {
            lease.extend().unwrap();
        }
        let before = fence;
        (token, fence) = lease.detach().unwrap();
        assert_eq!(fence, before);
    }
    lock.attach(token, fence).unwrap().let_expire_in(secs(20)).unwrap();
    assert!(holder(&client, "n").unwrap().ttl <= secs(20));
    lock.attach(token, fence).unwrap().let_expire().unwrap();
    assert!(holder(&client, "n").unwrap().ttl > secs(20));
    assert_eq!(kind(lock.attach(token, fence).unwrap().extend()), ErrorKind::Lost);
}

fn an_attached_lease_is_renewed_once_it_was_extended(store: &Store) {
    let client = store.client();
    let lock = client.lock("n").ttl(ms(600));
    let (token, fence) = lock.acquire().unwrap().detach().unwrap();
    let lease = lock.attach(token, fence).unwrap();
    assert_eq!(client.counters().renewed, 0);
    lease.extend().unwrap();
    eventually(LIMIT, || client.counters().renewed >= 4);
    assert!(lease.is_valid());
    lease.release().unwrap();
}

fn a_fence_that_none_can_be_is_refused(store: &Store) {
    let client = store.client();
    let token: Token = "00112233445566778899aabbccddeeff".parse().unwrap();
    for fence in [0, MAX_FENCE + 1, u64::MAX] {
        assert_eq!(kind(client.lock("n").attach(token, fence)), ErrorKind::BadArgument);
    }
}

/// What becomes of a lease at the moment when another client has handed it over.
fn handed_over<T: Send>(from: &Client, to: &Client, end: impl FnOnce(Lease) -> T + Send) -> T {
    let held = from.lock("n").try_acquire().unwrap().expect("the lock is free");
    std::thread::scope(|scope| {
        let busy = to.counters().busy;
        let waiter = scope.spawn(|| end(to.lock("n").acquire_within(LIMIT).unwrap()));
        eventually(LIMIT, || to.counters().busy > busy);
        held.release().unwrap();
        waiter.join().unwrap()
    })
}

const WINDOW: Duration = ms(500);

fn with_window(server: &Server) -> Client {
    let config = Config::from_url(&server.url()).unwrap();
    Client::with_config(config.claim_window(WINDOW)).unwrap()
}

#[test]
fn c5_what_was_handed_over_a_moment_ago_is_left_for_its_ttl() {
    let server = Server::start();
    let (one, two) = (with_window(&server), with_window(&server));
    let ends: [fn(Lease) -> Result<(), Error>; 2] =
        [Lease::let_expire, |lease| lease.detach().map(drop)];
    for round in 0..10 {
        handed_over(&one, &two, |lease| ends[round % 2](lease)).unwrap();
        assert!(holder(&one, "n").expect("taken").ttl > secs(20), "round {round}");
        server.cmd(&["DEL", "n"]);
    }
}

#[test]
fn c5_detaching_what_was_handed_over_says_that_somebody_deleted_it() {
    let server = Server::start();
    let (one, two) = (with_window(&server), with_window(&server));
    let deleted = |lease: Lease| {
        server.cmd(&["DEL", "n"]);
        kind(lease.detach())
    };
    assert_eq!(handed_over(&one, &two, deleted), ErrorKind::Lost);
}

#[test]
fn c5_leaving_what_was_handed_over_says_that_the_server_did_not_answer() {
    let server = Server::start();
    let config = Config::from_url(&server.url()).unwrap().io_timeout(ms(300));
    let (one, two) = (with_window(&server), Client::with_config(config).unwrap());
    for _ in 0..10 {
        let silent = |lease: Lease| {
            server.stop();
            let left = lease.let_expire();
            server.cont();
            left
        };
        let left = handed_over(&one, &two, silent);
        server.cmd(&["DEL", "n"]);
        match left.map_err(|error| error.kind()) {
            Err(ErrorKind::Unknown) => return,
            // Its client claims it already, on the only connection, or has done so.
            Err(ErrorKind::NoAnswer) | Ok(()) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    panic!("always claimed within an instant");
}
