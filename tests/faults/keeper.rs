//! Renewal when the server or the network fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kit::*;
use leasehold::{Client, Event, EventKind, Events, Lease, LossReason};
use redis::Value;

use crate::far::{Far, Said, on_each_own_server, on_each_server};
use crate::stores::ms;

const LIMIT: Duration = Duration::from_secs(10);

fn take(client: &Client, name: &str, ttl: Duration) -> Lease {
    client.lock(name).ttl(ttl).try_acquire().unwrap().expect("it is free")
}

fn renewals(client: &Client, count: u64) {
    let enough = client.counters().renewed + count;
    eventually(LIMIT, || client.counters().renewed >= enough);
}

fn next(events: &Events) -> Event {
    events.next_within(LIMIT).unwrap().expect("an event comes")
}

/// A slow machine may have put a lease at risk.
#[track_caller]
fn assert_none_lost(events: &Events) {
    while let Some(event) = events.try_next().unwrap() {
        assert_eq!(event.kind, EventKind::AtRisk, "{event:?}");
    }
}

/// How badly this machine keeps time: the library can be as late as a thread that only sleeps.
struct Metronome {
    worst: Arc<AtomicU64>,
}

impl Metronome {
    fn start() -> Metronome {
        let worst = Arc::new(AtomicU64::new(0));
        let seen = Arc::downgrade(&worst);
        std::thread::spawn(move || {
            while let Some(worst) = seen.upgrade() {
                let start = Instant::now();
                std::thread::sleep(ms(2));
                let late = start.elapsed().saturating_sub(ms(2));
                worst.fetch_max(u64::try_from(late.as_micros()).unwrap(), Ordering::Relaxed);
            }
        });
        Metronome { worst }
    }

    fn worst(&self) -> Duration {
        Duration::from_micros(self.worst.load(Ordering::Relaxed))
    }

    /// Nothing on a machine that keeps time; else what two threads in a row may miss, more than
    /// once.
    fn excuse(&self) -> Duration {
        if self.worst() < ms(4) { Duration::ZERO } else { self.worst() * 4 }
    }
}

on_each_server! {
    c9_a_renewal_that_fails_once_ends_nothing,
    c9_a_connection_that_went_dead_does_not_take_a_short_lease_with_it,
    c9_renewal_goes_on_while_every_connection_of_the_pool_waits,
    c9_renewal_goes_on_while_connections_are_cut,
}

on_each_own_server! {
    c9_a_silent_server_puts_leases_at_risk_and_then_loses_them_before_validity_ends,
    c9_a_server_that_is_back_in_time_loses_nothing,
}

fn c9_a_renewal_that_fails_once_ends_nothing(far: &mut Far) {
    let client = far.open("");
    let events = client.events().unwrap();
    let lease = take(&client, "lock", ms(1500));
    renewals(&client, 1);
    for mode in [
        Mode::LoseReply(End::Fin),
        Mode::LoseReply(End::Reset),
        Mode::CutRequest(30),
        Mode::LoseReply(End::Fin),
    ] {
        far.set_only(Said::Extend, mode);
        eventually(LIMIT, || far.proxy.mode() == Mode::Pass);
        renewals(&client, 1);
    }
    assert!(lease.is_valid());
    assert_none_lost(&events);
    lease.release().unwrap();
}

fn c9_a_connection_that_went_dead_does_not_take_a_short_lease_with_it(far: &mut Far) {
    let client = far.open("io_timeout=2s");
    let events = client.events().unwrap();
    let (_long, short) = (take(&client, "long", LIMIT), take(&client, "short", ms(2400)));
    for _ in 0..3 {
        renewals(&client, 1);
        // What is under way on it from now on is never answered; new connections are fine.
        far.set_only(Said::Extend, Mode::SwallowReply);
        eventually(LIMIT, || far.proxy.mode() == Mode::Pass);
    }
    renewals(&client, 1);
    assert!(short.is_valid());
    assert_none_lost(&events);
}

fn c9_renewal_goes_on_while_every_connection_of_the_pool_waits(far: &mut Far) {
    let client = far.open("pool=1&io_timeout=2500ms");
    let lease = take(&client, "lock", ms(900));
    take(&client, "warm-up", LIMIT).release().unwrap();
    // Only takes get no answer.
    far.set_only(Said::Take, Mode::SwallowReplies);
    std::thread::scope(|scope| {
        let stuck = scope.spawn(|| client.lock("other").try_acquire().map(drop));
        let before = far.proxy.request_bytes();
        eventually(LIMIT, || far.proxy.request_bytes() > before);
        renewals(&client, 3);
        assert!(lease.is_valid());
        assert!(!stuck.is_finished(), "the pool's only connection was busy all the time");
        within(ms(500), || lease.release()).unwrap();
        assert_eq!(far.holder("lock"), None);
        stuck.join().unwrap().unwrap_err();
    });
}

fn c9_a_silent_server_puts_leases_at_risk_and_then_loses_them_before_validity_ends(far: &mut Far) {
    let client = Client::open(&far.store.url()).unwrap();
    let events = client.events().unwrap();
    let leases: Vec<_> = [300, 450, 700, 1000, 1500, 2500, 4000]
        .map(|ttl| take(&client, &format!("lock-{ttl}"), ms(ttl)))
        .into();
    renewals(&client, 3);
    let metronome = Metronome::start();
    far.store.stop();
    // Nothing extends them any more, so what each says now is when its validity ends.
    let mut ends: Vec<_> = leases
        .iter()
        .map(|lease| (lease.fence(), Instant::now() + lease.remaining(), false))
        .collect();
    // A renewal may have been answered just before the server stood still.
    std::thread::sleep(ms(20));
    for (lease, end) in leases.iter().zip(&mut ends) {
        end.1 = end.1.max(Instant::now() + lease.remaining());
    }
    let mut lost = 0;
    while lost < leases.len() {
        let event = next(&events);
        let heard = Instant::now();
        let (_, end, warned) =
            ends.iter_mut().find(|(fence, ..)| *fence == event.fence).expect("one of ours");
        match event.kind {
            EventKind::AtRisk => {
                assert!(!*warned, "warned twice: {event:?}");
                *warned = true;
            }
            EventKind::Lost(reason) => {
                assert_eq!(reason, LossReason::Expired);
                let stalled = !metronome.excuse().is_zero();
                assert!(*warned || stalled, "lost without a warning: {event:?}");
                lost += 1;
            }
            other => panic!("{other:?}"),
        }
        let late = heard.saturating_duration_since(*end);
        assert!(late <= metronome.excuse(), "{event:?} came {late:?} after the end of validity");
    }
    assert!(leases.iter().all(|lease| !lease.is_valid()));
    far.store.go_on();
    assert_eq!(client.counters().lost, leases.len() as u64);
}

fn c9_a_server_that_is_back_in_time_loses_nothing(far: &mut Far) {
    let client = Client::open(&far.store.url()).unwrap();
    let events = client.events().unwrap();
    let lease = take(&client, "lock", ms(2000));
    renewals(&client, 1);
    far.store.stop();
    let event = next(&events);
    assert_eq!((event.kind, event.fence), (EventKind::AtRisk, lease.fence()));
    far.store.go_on();
    renewals(&client, 2);
    assert!(lease.is_valid());
    assert_eq!(events.try_next().unwrap(), None);
    lease.release().unwrap();
}

fn c9_renewal_goes_on_while_connections_are_cut(far: &mut Far) {
    let client = far.open("");
    let events = client.events().unwrap();
    let lease = take(&client, "lock", ms(3000));
    while client.counters().renewed < 3 {
        far.proxy.close_all(End::Reset);
        assert!(lease.is_valid());
        // A renewal needs its time on a new connection, and more of it on a busy machine.
        let start = Instant::now();
        far.store.client().ping().unwrap();
        std::thread::sleep(ms(50).max(start.elapsed() * 4));
    }
    assert_none_lost(&events);
    lease.release().unwrap();
}

#[test]
fn c9_a_flushed_server_is_a_lost_lease_and_the_next_fence_is_larger() {
    let server = Server::start();
    let client = Client::open(&server.url()).unwrap();
    let events = client.events().unwrap();
    let lease = take(&client, "lock", ms(3000));
    server.cmd(&["FLUSHALL"]);
    let event = next(&events);
    assert_eq!(event.kind, EventKind::Lost(LossReason::NotHeld));
    assert!(!lease.is_valid());
    let newer = take(&client, "lock", ms(3000));
    assert!(newer.fence() > lease.fence());
    // C5: the end of the old one does not touch the new one.
    drop(lease);
    assert!(server.cmd(&["EXISTS", "lock"]) == Value::Int(1));
    assert_eq!(events.try_next().unwrap(), None);
}

#[test]
fn c9_many_leases_that_end_unrenewed_do_not_keep_one_from_being_renewed() {
    unless_starved(STALL, || {
        let server = Server::start();
        let mut proxy = Proxy::start(server.port());
        let client = Client::open(&server.url_through(proxy.port())).unwrap();
        let events = client.events().unwrap();
        let lease = take(&client, "kept", ms(6000));
        let is_over = || client.counters().renewed >= 2 || !lease.is_valid();
        // As far away as another region.
        proxy.set(Mode::DelayReplies(ms(15)));
        std::thread::scope(|scope| {
            for thread in 0..6 {
                let (client, is_over) = (&client, &is_over);
                scope.spawn(move || {
                    // Held to their end, one after the other all the time.
                    let take = |turn| {
                        let lock = client.lock(format!("brief-{thread}-{turn}"));
                        lock.ttl(ms(1000)).renew(false).try_acquire()
                    };
                    (0..).map(take).take_while(|_| !is_over()).collect::<Vec<_>>()
                });
            }
        });
        assert!(lease.is_valid());
        assert!(client.counters().renewed >= 2);
        while let Some(event) = events.try_next().unwrap() {
            assert!(*event.name != *b"kept" || event.kind == EventKind::AtRisk, "{event:?}");
        }
    });
}
