//! What a test can do to a store in memory: each control, with the client that it happens to and another
//! one.

mod mistakes;

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use leasehold::testing::Memory;
use leasehold::{Client, ErrorKind, EventKind, Lease, LossReason};

const LONG: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3600);
/// Longer than this, a machine that stands still makes a lease of 300 ms miss its renewals.
const STALL: Duration = Duration::from_millis(50);

/// Two clients of one store.
fn pair() -> (Memory, Client, Client) {
    let memory = Memory::new();
    let [one, other] = [(); 2].map(|()| memory.client());
    (memory, one, other)
}

/// One that gives up soon.
fn hasty(memory: &Memory) -> Client {
    Client::open(&format!("{}?io_timeout=60ms", memory.url())).unwrap()
}

fn held(client: &Client, name: &str) -> Lease {
    client.lock(name).try_acquire().unwrap().expect("the lock is free")
}

fn is_free(client: &Client, name: &str) -> bool {
    client.lock(name).try_acquire().unwrap().is_some()
}

fn kind<T>(result: Result<T, leasehold::Error>) -> ErrorKind {
    result.map(drop).unwrap_err().kind()
}

/// A thread that waits for the lock, once it stands in the queue; its fence comes when it has it.
fn waiter(client: &Client, name: &'static str) -> mpsc::Receiver<u64> {
    let (client, watching, (send, fence)) = (client.clone(), client.clone(), mpsc::channel());
    thread::spawn(move || {
        let lease = client.lock(name).acquire().unwrap();
        send.send(lease.fence()).unwrap();
        // Until nobody listens any more.
        while send.send(0).is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
    });
    kit::eventually(LONG, || !watching.lock(name).inspect().unwrap().waiters.is_empty());
    fence
}

#[test]
fn each_memory_is_a_store_of_its_own_and_its_clients_exclude_each_other() {
    let (memory, one, other) = pair();
    let _lease = held(&one, "a");
    assert!(!is_free(&other, "a"));
    assert!(!is_free(&Client::open(memory.url()).unwrap(), "a"));
    assert!(is_free(&Memory::new().client(), "a"));
}

#[test]
fn a_memory_that_has_a_name_is_the_store_of_this_url() {
    let name = "its name: 1/2, 50 %?";
    let (memory, again) = (Memory::named(name), Memory::named(name));
    assert_eq!((memory.url(), again.url()), (memory.url(), memory.url()));
    let _busy = memory.busy("a");
    assert_eq!(again.held(), ["a"]);
    assert!(!is_free(&again.client(), "a"));
    let plain = Memory::named("orders-42");
    assert_eq!(plain.url(), "memory:orders-42");
    let _lease = held(&Client::open("memory:orders-42").unwrap(), "a");
    plain.assert_held("a");
}

#[test]
fn a_lost_lease_is_told_at_once_and_the_lock_is_anothers() {
    let (memory, one, other) = pair();
    let (events, lease, kept) = (one.events().unwrap(), held(&one, "a"), held(&one, "b"));
    memory.lose("a");
    assert!(!lease.is_valid() && kept.is_valid());
    let event = events.next_within(LONG).unwrap().expect("an event");
    assert_eq!(event.kind, EventKind::Lost(LossReason::NotHeld));
    assert_eq!((&*event.name, event.fence), (&b"a"[..], lease.fence()));
    let next = held(&other, "a");
    assert!(next.fence() > lease.fence());
    assert_eq!(kind(lease.release()), ErrorKind::Lost);
    assert!(next.is_valid(), "a late release frees nobody else's lock");
    kept.release().unwrap();
}

#[test]
fn a_lost_lease_hands_the_lock_to_the_waiter() {
    let (memory, one, other) = pair();
    let lease = held(&one, "a");
    let fence = waiter(&other, "a");
    memory.lose("a");
    assert!(fence.recv_timeout(LONG).unwrap() > lease.fence());
}

#[test]
fn a_lease_that_is_not_renewed_hears_of_its_loss_when_it_asks() {
    let (memory, one, _) = pair();
    let lease = one.lock("a").renew(false).try_acquire().unwrap().unwrap();
    memory.lose("a");
    assert!(lease.is_valid(), "nothing was sent for it");
    assert_eq!(kind(lease.extend()), ErrorKind::Lost);
    assert!(!lease.is_valid());
}

#[test]
fn a_busy_lock_is_held_until_its_guard_is_dropped() {
    let (memory, one, other) = pair();
    let busy = memory.busy("a");
    assert!(!is_free(&one, "a") && !is_free(&other, "a"));
    let soon = one.lock("a").wait(Duration::from_millis(20));
    assert_eq!(kind(soon.acquire()), ErrorKind::Timeout);
    memory.advance(24 * 366 * HOUR);
    assert!(!is_free(&one, "a"), "its holder goes on");
    let fence = waiter(&other, "a");
    drop(busy);
    assert!(fence.recv_timeout(LONG).unwrap() > 0);
}

#[test]
fn a_busy_lock_can_be_broken_and_lost_and_its_guard_then_frees_nobody_elses() {
    let (memory, one, other) = pair();
    let (lost, broken) = (memory.busy("a"), memory.busy("b"));
    memory.lose("a");
    one.lock("b").break_held(None, "a test").unwrap();
    let leases = [held(&one, "a"), held(&other, "b")];
    drop((lost, broken));
    assert_eq!(memory.held(), ["a", "b"]);
    leases.into_iter().for_each(|lease| lease.release().unwrap());
}

/// Every kind that a store can give, at the call: a lock is not acquired, and nothing stays held.
#[test]
fn while_requests_fail_a_call_fails_with_that_kind() {
    let memory = Memory::new();
    let (client, lease) = (hasty(&memory), held(&memory.client(), "held"));
    for &kind in ErrorKind::ALL.iter().filter(|kind| !mistakes::CLIENTS.contains(kind)) {
        let failing = memory.failing(kind);
        let error = client.lock("a").try_acquire().unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        drop(failing);
        assert!(is_free(&client, "a"), "{error}");
    }
    assert!(lease.is_valid());
    lease.release().unwrap();
}

#[test]
fn one_failed_request_fails_a_call_or_delays_it_as_the_kind_says() {
    let (memory, one, other) = pair();
    memory.fail_next(ErrorKind::Permission);
    memory.fail_next(ErrorKind::Auth);
    assert_eq!(kind(one.lock("a").try_acquire()), ErrorKind::Permission);
    assert_eq!(kind(other.ping()), ErrorKind::Auth);
    for kind in [ErrorKind::Unavailable, ErrorKind::Refused, ErrorKind::Unknown] {
        memory.fail_next(kind);
        let lease = one.lock("a").acquire().unwrap();
        memory.fail_next(kind);
        lease.extend().unwrap();
        memory.fail_next(kind);
        lease.release().unwrap();
    }
    memory.assert_free("a");
    memory.fail_next(ErrorKind::Refused);
    assert_eq!(
        kind(one.lock("a").try_acquire()),
        ErrorKind::Refused,
        "it never waits for a server"
    );
}

/// The store has done it, and the client does not know.
#[test]
fn a_reply_that_is_lost_leaves_the_outcome_unknown() {
    let memory = Memory::new();
    let (client, other) = (hasty(&memory), memory.client());
    let lease = held(&client, "a");
    let failing = memory.failing(ErrorKind::Unknown);
    assert_eq!(kind(lease.extend()), ErrorKind::Unknown);
    assert!(lease.is_valid(), "it is as valid as it was");
    assert_eq!(kind(lease.release()), ErrorKind::Unknown);
    drop(failing);
    assert!(is_free(&other, "a"), "the release was carried out");
}

#[test]
fn failing_ends_with_its_guard_whatever_the_order() {
    let (memory, one, _) = pair();
    let [first, second] = [ErrorKind::Auth, ErrorKind::Tls].map(|kind| memory.failing(kind));
    assert_eq!(kind(one.ping()), ErrorKind::Tls);
    drop(first);
    assert_eq!(kind(one.ping()), ErrorKind::Tls);
    drop(second);
    one.ping().unwrap();
}

#[test]
fn a_failure_is_not_used_up_by_a_renewal() {
    kit::unless_starved(STALL, || {
        let (memory, one, _) = pair();
        let short = one.lock("a").ttl(Duration::from_millis(300));
        let lease = short.try_acquire().unwrap().unwrap();
        memory.fail_next(ErrorKind::Permission);
        let before = one.counters().renewed;
        kit::eventually(LONG, || one.counters().renewed >= before + 2);
        assert_eq!(kind(lease.extend()), ErrorKind::Permission);
        lease.release().unwrap();
    });
}

#[test]
fn a_paused_store_answers_nobody_and_goes_on() {
    let (memory, one, other) = pair();
    let (client, lease) = (hasty(&memory), held(&one, "a"));
    memory.pause();
    let begun = Instant::now();
    assert_eq!(kind(client.ping()), ErrorKind::NoAnswer);
    assert!(begun.elapsed() >= Duration::from_millis(60));
    assert_eq!(kind(client.lock("b").try_acquire()), ErrorKind::Unknown);
    // Asked while it is paused, and answered afterwards.
    let asked = thread::spawn(move || is_free(&other, "b"));
    thread::sleep(Duration::from_millis(20));
    assert!(!asked.is_finished());
    memory.resume();
    assert!(asked.join().unwrap());
    lease.release().unwrap();
}

#[test]
fn a_lease_that_no_answer_renews_is_at_risk_and_then_lost() {
    kit::unless_starved(STALL, || {
        let memory = Memory::new();
        let (client, other) = (hasty(&memory), memory.client());
        let events = client.events().unwrap();
        let lease =
            client.lock("a").ttl(Duration::from_millis(300)).try_acquire().unwrap().unwrap();
        memory.pause();
        let told = [(); 2].map(|()| events.next_within(LONG).unwrap().expect("an event").kind);
        assert_eq!(told, [EventKind::AtRisk, EventKind::Lost(LossReason::Expired)]);
        assert!(!lease.is_valid());
        memory.resume();
        other.lock("a").wait(LONG).acquire().unwrap().release().unwrap();
    });
}

#[test]
fn a_waiter_hears_nothing_while_the_store_is_paused() {
    let (memory, _, other) = pair();
    let busy = memory.busy("a");
    let fence = waiter(&other, "a");
    memory.pause();
    drop(busy);
    assert!(fence.recv_timeout(Duration::from_millis(50)).is_err());
    memory.resume();
    assert!(fence.recv_timeout(LONG).unwrap() > 0);
}

#[test]
fn a_client_with_a_waiter_closes_while_the_store_is_paused() {
    let memory = Memory::new();
    let client = hasty(&memory);
    let _busy = memory.busy("a");
    let waiting = {
        let client = client.clone();
        thread::spawn(move || kind(client.lock("a").acquire()))
    };
    kit::eventually(LONG, || !client.lock("a").inspect().unwrap().waiters.is_empty());
    memory.pause();
    client.close_within(Duration::from_millis(100)).unwrap();
    assert_eq!(waiting.join().unwrap(), ErrorKind::Closed);
}

#[test]
fn dropping_a_lease_does_not_wait_for_a_paused_store() {
    let memory = Memory::new();
    let patient = Client::open(&format!("{}?io_timeout=60s", memory.url())).unwrap();
    let (lease, other) = (held(&patient, "a"), memory.client());
    memory.pause();
    let begun = Instant::now();
    drop(lease);
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
    memory.resume();
    other.lock("a").wait(LONG).acquire().unwrap().release().unwrap();
}

#[test]
fn a_store_is_resumed_when_its_controls_are_dropped() {
    let memory = Memory::new();
    let client = memory.client();
    memory.pause();
    drop(memory);
    client.ping().unwrap();
}

#[test]
fn leases_end_as_the_clock_of_the_store_goes_on_and_their_holders_are_told() {
    let (memory, one, other) = pair();
    let events = one.events().unwrap();
    let short = one.lock("short").ttl(Duration::from_secs(300)).try_acquire().unwrap().unwrap();
    let long = one.lock("long").ttl(HOUR).try_acquire().unwrap().unwrap();
    memory.advance(Duration::from_secs(180));
    assert_eq!(memory.held(), ["long", "short"]);
    assert!(short.is_valid() && long.is_valid());
    memory.advance(Duration::from_secs(180));
    assert_eq!(memory.held(), ["long"]);
    assert!(!short.is_valid() && long.is_valid());
    let event = events.next_within(LONG).unwrap().expect("an event");
    assert_eq!((&*event.name, event.kind), (&b"short"[..], EventKind::Lost(LossReason::NotHeld)));
    assert!(held(&other, "short").fence() > short.fence());
    let state = other.lock("long").inspect().unwrap();
    assert!(state.holder.unwrap().ttl <= HOUR - Duration::from_secs(18));
    long.release().unwrap();
}

#[test]
fn a_lock_that_is_left_to_its_ttl_is_free_when_the_clock_has_passed_it() {
    let (memory, one, other) = pair();
    held(&one, "nightly").let_expire_in(HOUR).unwrap();
    memory.advance(HOUR - Duration::from_secs(60));
    assert!(!is_free(&other, "nightly"));
    memory.advance(Duration::from_secs(61));
    assert!(is_free(&other, "nightly"));
}

#[test]
fn a_waiter_is_handed_a_lock_whose_holder_the_clock_has_left_behind() {
    let (memory, one, other) = pair();
    let lease = held(&one, "a");
    let fence = waiter(&other, "a");
    memory.advance(HOUR);
    assert!(fence.recv_timeout(LONG).unwrap() > lease.fence());
}

#[test]
fn names_are_told_as_the_store_has_them() {
    let memory = Memory::new();
    let client = Client::open(&format!("{}?prefix=shop:", memory.url())).unwrap();
    let leases = [&b"b"[..], b"a", b"\xff\n"].map(|name| client.lock(name).acquire().unwrap());
    assert_eq!(memory.held(), ["shop:a", "shop:b", "shop:\\xff\\n"]);
    memory.assert_held("shop:a");
    memory.assert_free("a");
    memory.lose("shop:a");
    assert!(!leases[1].is_valid() && leases[0].is_valid());
}
