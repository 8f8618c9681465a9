//! Waiters that die, stand still or give up: what that costs those behind them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::queueing::{
    NAME, Queues, eventually_queued, had_turn, in_line, kind, now, on_each_queue, queued,
    start_waiter,
};
use crate::stores::{LIMIT, STALL, Store, ms, open, secs};
use kit::{Offset, Server, Stopwatch, eventually, unless_starved};
use leasehold::{Client, ErrorKind, Lease};

const WINDOW: Duration = ms(400);

on_each_queue!(
    a_waiter_that_stood_still_in_its_turn_knows_and_waits_on,
    those_who_run_out_of_time_leave_nothing_behind,
    all_waiters_of_a_client_that_is_closed_end_and_are_in_nobodys_way,
    all_waiters_that_are_interrupted_end_and_are_in_nobodys_way,
    a_waiter_that_was_killed_before_its_turn_costs_nothing,
    a_waiter_that_dies_with_its_turn_costs_one_claim_window,
);

fn taken(client: &Client) -> Lease {
    client.lock(NAME).try_acquire().unwrap().expect("the lock is free")
}

fn a_waiter_that_was_killed_before_its_turn_costs_nothing(fresh: fn() -> Store) {
    unless_starved(STALL, || {
        let server = fresh();
        let client = open(&server.url());
        let held = taken(&client);
        let mut victim = start_waiter(&server, WINDOW);
        let next = start_waiter(&server, WINDOW);
        assert_eq!(queued(&server), 2);
        victim.kill();
        let released = now();
        held.release().unwrap();
        let (got, _) = had_turn(&next);
        let most = server.notices_deaths_within() + ms(100);
        assert!(got - released < most, "{:?}", got - released);
        eventually_queued(&server, 0);
        server.assert_all_ends();
    });
}

fn a_waiter_that_dies_with_its_turn_costs_one_claim_window(fresh: fn() -> Store) {
    unless_starved(STALL, || {
        let server = fresh();
        let client = open(&server.url());
        let held = taken(&client);
        let mut victim = start_waiter(&server, WINDOW);
        let next = start_waiter(&server, WINDOW);
        victim.stop();
        let released = now();
        held.release().unwrap();
        eventually(LIMIT, || queued(&server) == 1);
        victim.kill();
        let (got, _) = had_turn(&next);
        let late = got - released;
        assert!(late >= WINDOW - ms(5), "the lock was the victim's until then: {late:?}");
        let most = WINDOW + server.notices_deaths_within() + ms(100);
        assert!(late < most, "{late:?}");
        eventually_queued(&server, 0);
        server.assert_all_ends();
    });
}

fn a_waiter_that_stood_still_in_its_turn_knows_and_waits_on(fresh: fn() -> Store) {
    let server = fresh();
    let client = open(&server.url());
    let held = taken(&client);
    let victim = start_waiter(&server, WINDOW);
    victim.stop();
    std::thread::scope(|scope| {
        let next = client.lock(NAME).wait(LIMIT);
        // Behind the victim, and asked by nobody to stop.
        let next = scope.spawn(move || next.acquire().unwrap());
        eventually_queued(&server, 2);
        held.release().unwrap();
        let next = next.join().unwrap();
        victim.cont();
        // It has looked at what it was told when it is in line again.
        eventually_queued(&server, 1);
        let (released, fence) = (now(), next.fence());
        assert!(next.is_valid());
        next.release().unwrap();
        let (got, its) = had_turn(&victim);
        assert!(got > released, "it believed what it was told long ago");
        assert!(its > fence);
    });
    eventually_queued(&server, 0);
    server.assert_all_ends();
}

/// What it knows of the server's clock is as old as its wait, and the two have drifted apart since.
#[test]
fn c1_a_waiter_that_stood_still_in_its_turn_knows_although_the_clocks_have_drifted() {
    let server = Server::builder().clocked().start();
    let client = open(&server.url());
    let held = taken(&client);
    let victim = start_waiter(&server, secs(1));
    let waited = secs(8);
    std::thread::sleep(waited);
    server.shift_clock(Offset::Ahead(waited * 9 / 1000));
    victim.stop();
    std::thread::scope(|scope| {
        let next = client.lock(NAME).wait(LIMIT);
        let next = scope.spawn(move || next.acquire().unwrap());
        eventually_queued(&server, 2);
        held.release().unwrap();
        let next = next.join().unwrap();
        victim.cont();
        eventually_queued(&server, 1);
        let released = now();
        assert!(next.is_valid());
        next.release().unwrap();
        let (got, _) = had_turn(&victim);
        assert!(got > released, "it believed for longer than the lock was its own");
    });
}

fn those_who_run_out_of_time_leave_nothing_behind(fresh: fn() -> Store) {
    unless_starved(STALL, || {
        let server = fresh();
        let held = taken(&open(&server.url()));
        let clients: Vec<_> = (0..3).map(|_| open(&server.url())).collect();
        std::thread::scope(|scope| {
            for client in clients.iter().cycle().take(12) {
                scope.spawn(|| {
                    let watch = Stopwatch::start();
                    assert_eq!(kind(client.lock(NAME).acquire_within(ms(400))), ErrorKind::Timeout);
                    watch.assert_at_least(ms(400));
                    watch.assert_at_most(ms(400), ms(150));
                });
            }
        });
        eventually_queued(&server, 0);
        assert!(held.is_valid());
        server.assert_all_ends();
    });
}

/// Two hundred threads of a client in line, and another client's behind them.
fn all_give_up(
    fresh: fn() -> Store,
    give_up: impl Fn(&Client, &AtomicBool) + Sync,
    outcome: ErrorKind,
) {
    unless_starved(STALL, || {
        let server = fresh();
        let (holder, leaving, next) =
            (open(&server.url()), open(&server.url()), open(&server.url()));
        let held = taken(&holder);
        let (stop, waiting) = (AtomicBool::new(false), std::sync::atomic::AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let crowd: Vec<_> = (0..200)
                .map(|_| {
                    scope.spawn(|| {
                        let mut known = false;
                        let lock = leaving.lock(NAME).wait(LIMIT);
                        let error = kind(lock.acquire_unless(|| {
                            if !std::mem::replace(&mut known, true) {
                                waiting.fetch_add(1, Ordering::Relaxed);
                            }
                            stop.load(Ordering::Relaxed)
                        }));
                        (error, now())
                    })
                })
                .collect();
            eventually(LIMIT, || waiting.load(Ordering::Relaxed) == 200);
            let behind = in_line(scope, next.lock(NAME).wait(LIMIT), ms(0));
            eventually_queued(&server, 2);
            let asked = now();
            give_up(&leaving, &stop);
            let ends: Vec<_> = crowd.into_iter().map(|thread| thread.join().unwrap()).collect();
            assert!(ends.iter().all(|(error, _)| *error == outcome), "{ends:?}");
            let last = ends.iter().map(|(_, at)| *at).max().unwrap();
            assert!(last - asked < ms(600), "{:?}", last - asked);
            eventually_queued(&server, 1);
            let released = now();
            held.release().unwrap();
            let got = behind.join().unwrap().from;
            assert!(got - released < ms(100), "{:?}", got - released);
        });
        eventually_queued(&server, 0);
        server.assert_all_ends();
    });
}

fn all_waiters_of_a_client_that_is_closed_end_and_are_in_nobodys_way(fresh: fn() -> Store) {
    all_give_up(fresh, |client, _| client.close().unwrap(), ErrorKind::Closed);
}

fn all_waiters_that_are_interrupted_end_and_are_in_nobodys_way(fresh: fn() -> Store) {
    all_give_up(fresh, |_, stop| stop.store(true, Ordering::Relaxed), ErrorKind::Interrupted);
}
