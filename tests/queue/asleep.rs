//! Waiters that nobody tells: those in front are stopped or gone, or the server has forgotten them.
//! They look at the lock by themselves.

use std::time::Duration;

use crate::queueing::{
    self, NAME, QUEUE, Queues, client, config, eventually_queued, had_turn, in_line, is_look,
    judge, now, on_each_queue, queued, start_waiter,
};
use crate::stores::{LIMIT, STALL, Store, ms, open, secs};
use kit::{Child, Server, child, unless_starved};
use leasehold::Client;

on_each_queue!(
    c10_stopped_waiters_hold_a_lock_up_for_one_window_each,
    c10_three_stopped_waiters_hold_a_lock_up_for_three_windows_of_a_second,
    c10_a_queue_that_was_deleted_keeps_nobody_waiting_for_two_seconds,
    c10_a_lock_that_was_deleted_keeps_nobody_waiting_for_two_seconds,
);

pub(crate) const ROLES: kit::child::Roles = &[("fleet", fleet)];

/// How much later than it could a waiter may look and ask, for each of those before it.
const LATE: Duration = ms(150);

/// So many waiters that are stopped, and one that lives behind them.
fn stopped_in_a_row(fresh: fn() -> Store, count: u32, window: Duration) {
    unless_starved(STALL, || {
        let server = fresh();
        let holder = open(&server.url());
        let held = holder.lock(NAME).ttl(secs(30)).acquire().unwrap();
        let victims: Vec<_> = (0..count).map(|_| start_waiter(&server, window)).collect();
        let next = start_waiter(&server, window);
        assert_eq!(queued(&server), count as usize + 1);
        victims.iter().for_each(Child::stop);
        let released = now();
        held.release().unwrap();
        let (got, _) = had_turn(&next);
        let late = got - released;
        println!("{count} stopped, {window:?} each: {late:?}");
        assert!(late < (window + LATE) * count + server.notices_deaths_within(), "{late:?}");
        if let Store::Redis(_) = server {
            assert!(late >= window * count - ms(5), "so long it is each one's: {late:?}");
        }
    });
}

fn c10_stopped_waiters_hold_a_lock_up_for_one_window_each(fresh: fn() -> Store) {
    for count in [1, 2, 3, 5] {
        stopped_in_a_row(fresh, count, ms(300));
    }
}

fn c10_three_stopped_waiters_hold_a_lock_up_for_three_windows_of_a_second(fresh: fn() -> Store) {
    stopped_in_a_row(fresh, 3, secs(1));
}

/// Many clients that wait, each with a connection of its own.
fn fleet(args: &[String]) {
    let clients: Vec<_> = (0..args[1].parse().unwrap()).map(|_| client(config(&args[0]))).collect();
    for client in clients {
        std::thread::spawn(move || client.lock(NAME).wait(secs(100)).acquire());
    }
    child::hear();
}

#[test]
fn c10_any_number_of_dead_waiters_costs_next_to_nothing() {
    for count in [100, 128, 200] {
        unless_starved(STALL, || {
            let server = Server::start();
            let (holder, next) = (open(&server.url()), open(&server.url()));
            let held = holder.lock(NAME).ttl(secs(30)).acquire().unwrap();
            let mut fleet = Child::start("fleet", &[&server.url(), &count.to_string()]);
            eventually_queued(&server, count);
            std::thread::scope(|scope| {
                let next = in_line(scope, next.lock(NAME).wait(LIMIT), ms(0));
                assert_eq!(queued(&server), count + 1);
                fleet.kill();
                queueing::eventually_heard_by(&server, 1);
                let released = now();
                held.release().unwrap();
                let got = next.join().unwrap().from;
                println!("{count} dead: {:?}", got - released);
                assert!(got - released < ms(100), "{:?}", got - released);
            });
            eventually_queued(&server, 0);
            server.assert_all_ends();
        });
    }
}

/// As if whole fleets had been killed. Dropped leases are released in the same way.
#[test]
fn c10_thousands_of_dead_waiters_are_passed_over_at_once() {
    for (count, drops) in [(1_000, false), (1_000, true), (10_000, false)] {
        unless_starved(STALL, || {
            let server = Server::start();
            let (holder, next) = (open(&server.url()), open(&server.url()));
            let held = holder.lock(NAME).ttl(secs(30)).acquire().unwrap();
            std::thread::scope(|scope| {
                let next = in_line(scope, next.lock(NAME).wait(LIMIT), ms(0));
                bury(&server, count);
                let released = now();
                match drops {
                    true => drop(held),
                    false => held.release().unwrap(),
                }
                let got = next.join().unwrap().from;
                println!("{count} dead: {:?}", got - released);
                // Each takes the server 2 µs, and one that is busy longer.
                let limit = ms(100) + Duration::from_micros(10) * count as u32;
                assert!(got - released < limit, "{:?}", got - released);
            });
            eventually_queued(&server, 0);
        });
    }
}

/// Waiters before all others that nobody hears.
fn bury(server: &Server, count: u64) {
    let mut dead = redis::cmd("ZADD");
    dead.arg(QUEUE);
    for index in 0..count {
        dead.arg(1000 + index).arg(format!("{index:032x} 1000 leasehold:wake:dead-{index}"));
    }
    let _: i64 = dead.query(&mut server.connection()).unwrap();
}

/// Three wait behind a holder when the server is made to forget something.
fn forgotten(fresh: fn() -> Store, forget: impl Fn(&Store), is_free_then: bool) {
    // They look once a second, by themselves: a machine that stands still proves nothing.
    unless_starved(STALL, || {
        let server = fresh();
        let holder = open(&server.url());
        let held = holder.lock(NAME).ttl(secs(30)).acquire().unwrap();
        let waiters: [Client; 3] = [(); 3].map(|()| open(&server.url()));
        let turns = std::thread::scope(|scope| {
            let waiters: Vec<_> = waiters
                .iter()
                .map(|client| in_line(scope, client.lock(NAME).wait(secs(60)), ms(100)))
                .collect();
            assert_eq!(queued(&server), 3);
            let mut free = now();
            forget(&server);
            if !is_free_then {
                // Nobody is told of it.
                std::thread::sleep(ms(100));
                free = now();
                held.release().unwrap();
            }
            let mut turns: Vec<_> =
                waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
            turns.sort_by_key(|turn| turn.from);
            for turn in &turns {
                println!("{:?} after it was free", turn.from - free);
                assert!(turn.from - free < secs(2), "{:?}", turn.from - free);
                free = turn.until;
            }
            turns
        });
        judge(turns);
        eventually_queued(&server, 0);
        server.assert_all_ends();
    });
}

#[test]
fn c10_a_server_that_was_flushed_keeps_nobody_waiting_for_two_seconds() {
    let flush = |store: &Store| {
        let Store::Redis(server) = store else { unreachable!() };
        server.cmd(&["FLUSHALL"]);
    };
    forgotten(Store::redis, flush, true);
}

fn c10_a_queue_that_was_deleted_keeps_nobody_waiting_for_two_seconds(fresh: fn() -> Store) {
    forgotten(fresh, |store| store.forget_queue(NAME), false);
}

fn c10_a_lock_that_was_deleted_keeps_nobody_waiting_for_two_seconds(fresh: fn() -> Store) {
    forgotten(fresh, |store| store.forget(NAME), true);
}

/// A process with many threads in line looks once a second, and one whose turn comes sooner never.
#[test]
fn looking_costs_a_process_one_command_a_second() {
    unless_starved(STALL, || {
        let server = Server::start();
        let (holder, waiting) = (open(&server.url()), open(&server.url()));
        let held = holder.lock(NAME).ttl(secs(30)).acquire().unwrap();
        std::thread::scope(|scope| {
            let mut watch = server.watch();
            let stand = |_| in_line(scope, waiting.lock(NAME).wait(LIMIT), ms(0));
            let mut waiters = vec![stand(0)];
            let soon = watch.client_commands();
            assert_eq!(soon.iter().filter(|command| is_look(command)).count(), 0, "{soon:?}");
            waiters.extend((1..5).map(stand));
            watch.client_commands();
            std::thread::sleep(secs(3));
            let mut looks = watch.client_commands();
            // The first one has to tell the server how.
            looks.retain(|command| !command.starts_with("SCRIPT"));
            assert!(looks.iter().all(|command| is_look(command)), "{looks:?}");
            assert!((2..=6).contains(&looks.len()), "{looks:?}");
            held.release().unwrap();
            judge(waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect());
        });
    });
}
