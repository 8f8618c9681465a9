//! Who is next: the order of coming, between processes and inside one.

#[cfg(feature = "mysql")]
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::queueing::{
    self, ASKED_IN_LINE, NAME, Queues, again_and_again, assert_all_keys_end, eventually_queued,
    hold_for, in_line, is_look, judge, now, on_each_queue, queued, start_crowd, start_waiter,
    take_turn, turns_of,
};
use crate::stores::{LIMIT, STALL, Store, ms, open, secs};
#[cfg(feature = "mysql")]
use kit::Link;
use kit::{Hold, Server, eventually, unless_starved};
use leasehold::{Client, Lease, Lock};

on_each_queue!(
    processes_have_their_turns_in_the_order_of_coming,
    c10_who_waits_in_a_crowd_sees_one_turn_of_each_other_whatever_the_turns_take,
    c10_who_waits_among_locks_of_other_terms_sees_one_turn_of_each_other,
    c10_who_joins_while_threads_pass_turns_on_sees_one_more_turn_of_each,
    c2_turns_end_when_their_server_is_found_to_have_forgotten_the_lock,
    a_grant_is_renewed_over_many_turns_and_each_has_its_own_time,
    a_lease_that_was_handed_over_has_its_window_first_and_soon_the_whole_ttl,
    the_shortest_claim_window_is_long_enough_to_claim_in,
);

fn taken(client: &Client) -> Lease {
    client.lock(NAME).try_acquire().unwrap().expect("the lock is free")
}

/// Whose turns came in this order.
#[track_caller]
fn assert_in_order(turns: &[Hold]) {
    assert!(turns.is_sorted_by_key(|turn| turn.from), "{turns:?}");
    judge(turns.to_vec());
}

fn processes_have_their_turns_in_the_order_of_coming(fresh: fn() -> Store) {
    let server = fresh();
    let client = open(&server.url());
    let held = taken(&client);
    let waiters: Vec<_> = (0..5).map(|_| start_waiter(&server, secs(1))).collect();
    assert_eq!(queued(&server), 5);
    held.release().unwrap();
    let turns = waiters.iter().map(|waiter| {
        let (from, fence) = queueing::had_turn(waiter);
        Hold::at(from, from, fence)
    });
    assert_in_order(&turns.collect::<Vec<_>>());
    eventually_queued(&server, 0);
    server.assert_all_ends();
}

#[test]
fn threads_have_their_turns_in_the_order_of_coming_without_a_command() {
    let server = Server::start();
    let (holder, client) = (open(&server.url()), open(&server.url()));
    // The server learns the scripts.
    holder.lock("other").acquire().unwrap().release().unwrap();
    let held = taken(&holder);
    std::thread::scope(|scope| {
        let line = || client.lock(NAME).wait(LIMIT);
        let waiters: Vec<_> = (0..8).map(|_| in_line(scope, line(), ms(1))).collect();
        assert_eq!(queued(&server), 1);
        let mut watch = server.watch();
        held.release().unwrap();
        let turns: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
        let mut sent = watch.client_commands();
        // The line may have stood for a second by then, and have looked.
        sent.retain(|command| command.starts_with("EVALSHA") && !is_look(command));
        let (claims, gives): (Vec<_>, Vec<_>) =
            sent.into_iter().partition(|command| command.contains("\"claim\""));
        // The holder's release, and that of the last of them.
        assert_eq!(gives.len(), 2, "{gives:?}");
        // A claim that is not answered before the turn passes on is made again.
        assert!(claims.len() <= turns.len(), "{claims:?}");
        assert_in_order(&turns);
        let fences: Vec<_> = turns.iter().map(|turn| turn.fence - turns[0].fence).collect();
        assert_eq!(fences, (0..8).collect::<Vec<_>>(), "of one block");
    });
    eventually_queued(&server, 0);
    assert_all_keys_end(&server);
}

#[test]
fn locks_of_other_terms_pass_no_turns() {
    let server = Server::start();
    let (holder, client) = (open(&server.url()), open(&server.url()));
    let held = taken(&holder);
    std::thread::scope(|scope| {
        let line = || client.lock(NAME).wait(LIMIT);
        let locks =
            [line(), line().ttl(secs(20)), line().renew(false), line().max_hold(secs(9)), line()];
        let waiters: Vec<_> = locks.into_iter().map(|lock| in_line(scope, lock, ms(1))).collect();
        let mut watch = server.watch();
        held.release().unwrap();
        let turns: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
        let sent = watch.client_commands();
        let asked = sent.iter().filter(|command| command.contains("\"join ")).count();
        assert!(asked >= 4, "{sent:?}");
        assert_in_order(&turns);
    });
    assert_all_keys_end(&server);
}

/// The most turns that one of these locks' threads had while another one waited: two rounds of all
/// but the last lock, whose thread goes on until then.
fn most_overtaken(locks: Vec<Lock>, hold: Duration) -> usize {
    let held = locks[0].try_acquire().unwrap().expect("the lock is free");
    let (left, in_line) = (AtomicUsize::new(locks.len() - 1), AtomicUsize::new(0));
    let mut all_stood = Duration::ZERO;
    let mut each: Vec<Vec<Hold>> = std::thread::scope(|scope| {
        let last = locks.len() - 1;
        let waiters = locks.iter().enumerate().map(|(who, lock)| {
            let (left, in_line) = (&left, &in_line);
            scope.spawn(move || {
                let (came, mut asks) = (now(), 0);
                let first = lock.acquire_unless(|| {
                    asks += 1;
                    in_line.fetch_add(usize::from(asks == ASKED_IN_LINE), SeqCst);
                    false
                });
                let mut turns = vec![hold_for(came, first.unwrap(), hold)];
                while if who == last { left.load(SeqCst) > 0 } else { turns.len() < 2 } {
                    turns.push(take_turn(lock, hold));
                }
                left.fetch_sub(usize::from(who != last), SeqCst);
                turns
            })
        });
        let waiters: Vec<_> = waiters.collect();
        eventually(LIMIT, || in_line.load(SeqCst) == locks.len());
        all_stood = now();
        held.release().unwrap();
        waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect()
    });
    judge(each.concat());
    // Until then they came in no order.
    each.iter_mut().for_each(|turns| turns[0].asked = all_stood);
    let mut most = 0;
    for (who, mine) in each.iter().enumerate() {
        for turn in mine {
            let waited = turn.asked..turn.from;
            for (_, others) in each.iter().enumerate().filter(|(whose, _)| *whose != who) {
                most = most.max(others.iter().filter(|it| waited.contains(&it.from)).count());
            }
        }
    }
    most
}

/// So many threads of one client, and one of another.
fn crew_and_one(url: &str, threads: usize) -> Vec<Lock> {
    let (crew, one) = (open(url), open(url));
    let crew = std::iter::repeat_n(crew.lock(NAME).wait(secs(100)), threads);
    crew.chain([one.lock(NAME).wait(secs(100))]).collect()
}

/// Asking takes a while, in which one turn may go to somebody else.
const OVERTAKEN: usize = 1 + 1;

fn c10_who_waits_in_a_crowd_sees_one_turn_of_each_other_whatever_the_turns_take(
    fresh: fn() -> Store,
) {
    for (threads, hold) in [(12, 50), (100, 10)] {
        unless_starved(STALL, || {
            let server = fresh();
            let most = most_overtaken(crew_and_one(&server.url(), threads), ms(hold));
            assert!(most <= OVERTAKEN, "{most} turns of one other, {threads} x {hold} ms");
            server.assert_all_ends();
        });
    }
}

/// Every turn is a grant of its own.
fn c10_who_waits_among_locks_of_other_terms_sees_one_turn_of_each_other(fresh: fn() -> Store) {
    unless_starved(STALL, || {
        let server = fresh();
        let locks = crew_and_one(&server.url(), 12).into_iter().enumerate();
        let locks = locks.map(|(at, lock)| lock.ttl(secs(10 + at as u64 % 2)));
        let most = most_overtaken(locks.collect(), ms(10));
        assert!(most <= OVERTAKEN, "{most} turns of one other");
        server.assert_all_ends();
    });
}

/// Between a release and the next take of its process lie two ways to the server and back, in which
/// others ask.
#[cfg(feature = "mysql")]
#[test]
fn c10_a_process_far_from_its_mysql_sees_one_turn_of_a_near_one() {
    let Store::Mysql(database) = Store::mysql() else { unreachable!() };
    let (server, near) = (database.server(), database.server().url(&database.name));
    let link = Link::to_address((Ipv4Addr::LOCALHOST, server.port()).into());
    link.slow(ms(20));
    let far = near.replace(&format!(":{}", server.port()), &format!(":{}", link.port()));
    let (far, near) = (open(&far), open(&near));
    let locks = (0..4).map(|at| far.lock(NAME).ttl(secs(10 + at % 2)).wait(secs(100)));
    let locks = locks.chain([near.lock(NAME).wait(secs(100))]).collect();
    let most = most_overtaken(locks, ms(1));
    assert!(most <= OVERTAKEN, "{most} turns of one other");
}

fn c10_who_joins_while_threads_pass_turns_on_sees_one_more_turn_of_each(fresh: fn() -> Store) {
    let server = fresh();
    let (crew, one) = (open(&server.url()), open(&server.url()));
    let (stays_away, has_joined) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let goes_on = |turns| {
            // Turns pass on by then. The other thread keeps its own until this one is in line again.
            if turns == 4 {
                stays_away.store(true, SeqCst);
                eventually(LIMIT, || has_joined.load(SeqCst));
            }
            turns < 8
        };
        let lock = crew.lock(NAME).wait(LIMIT);
        let crew = scope.spawn(move || again_and_again(&lock, 2, goes_on));
        eventually(LIMIT, || stays_away.load(SeqCst));
        let waiter = in_line(scope, one.lock(NAME).wait(LIMIT), ms(1));
        let joined = now();
        has_joined.store(true, SeqCst);
        let mine = waiter.join().unwrap();
        let others = crew.join().unwrap();
        for turns in &others {
            let before = turns.iter().filter(|turn| turn.from > joined && turn.from < mine.from);
            assert!(before.count() <= 1, "{turns:?} and {mine:?}");
        }
        judge([others.concat(), vec![mine]].concat());
    });
    eventually_queued(&server, 0);
    server.assert_all_ends();
}

/// One waiter a process, again and again.
#[test]
fn nobody_is_overtaken_by_more_than_one_turn_of_each_other() {
    unless_starved(STALL, || {
        let server = Server::start();
        let held = taken(&open(&server.url()));
        let crowds: Vec<_> = (0..4).map(|_| start_crowd(&server, [1, 40, 4000])).collect();
        for crowd in &crowds {
            assert_eq!(crowd.line(LIMIT), "ready");
        }
        eventually_queued(&server, 4);
        held.release().unwrap();
        let each: Vec<_> = crowds.into_iter().map(|crowd| turns_of(vec![crowd])).collect();
        judge(each.concat());
        for (who, mine) in each.iter().enumerate() {
            for turn in mine {
                let waited = turn.asked..turn.from;
                for (_, others) in each.iter().enumerate().filter(|(whose, _)| *whose != who) {
                    let before = others.iter().filter(|other| waited.contains(&other.from)).count();
                    // Asking takes a while; one may be given to somebody else in it.
                    assert!(before <= 2, "{before} turns of one other in {waited:?}");
                }
            }
        }
    });
}

#[test]
fn what_is_left_of_a_block_is_not_used_once_its_grant_is_lost() {
    let server = Server::start();
    let (holder, client) = (open(&server.url()), open(&server.url()));
    let held = taken(&holder);
    std::thread::scope(|scope| {
        let lock = client.lock(NAME).ttl(ms(900)).wait(LIMIT);
        let first = scope.spawn({
            let lock = lock.clone();
            move || lock.acquire().unwrap()
        });
        eventually_queued(&server, 1);
        let rest: Vec<_> = (0..4).map(|_| in_line(scope, lock.clone(), ms(1))).collect();
        held.release().unwrap();
        let first = first.join().unwrap();
        server.cmd(&["DEL", NAME]);
        eventually(LIMIT, || !first.is_valid());
        let (lost, fence) = (now(), first.fence());
        drop(first);
        let turns: Vec<_> = rest.into_iter().map(|waiter| waiter.join().unwrap()).collect();
        assert_in_order(&turns);
        assert!(turns[0].from > lost || turns[0].fence > fence);
        // Fences are moments, in microseconds: those of the lost block are long past.
        assert!(turns.iter().all(|turn| turn.fence > fence + 1024), "{fence} {turns:?}");
    });
    eventually_queued(&server, 0);
    assert_all_keys_end(&server);
}

/// Turns that pass without a command cannot tell, until the next renewal does.
fn c2_turns_end_when_their_server_is_found_to_have_forgotten_the_lock(fresh: fn() -> Store) {
    unless_starved(STALL, || {
        let server = fresh();
        let (holder, client, thief) =
            (open(&server.url()), open(&server.url()), open(&server.url()));
        let (held, ttl) = (taken(&holder), ms(1500));
        std::thread::scope(|scope| {
            let lock = client.lock(NAME).ttl(ttl).wait(LIMIT);
            let waiters: Vec<_> = (0..50)
                .map(|_| {
                    let lock = lock.clone();
                    scope.spawn(move || take_turn(&lock, ms(20)))
                })
                .collect();
            eventually_queued(&server, 1);
            held.release().unwrap();
            std::thread::sleep(ms(100));
            // The waiters' client may be faster than the thief.
            let mut stolen = None;
            eventually(LIMIT, || {
                server.forget(NAME);
                stolen = thief.lock(NAME).try_acquire().unwrap();
                stolen.is_some()
            });
            let stolen = stolen.unwrap();
            let (fence, found) = (stolen.fence(), now() + ttl / 3 + ms(100));
            std::thread::sleep(ttl);
            drop(stolen);
            let turns: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
            let (before, after): (Vec<_>, Vec<_>) =
                turns.into_iter().partition(|turn| turn.fence < fence);
            assert!(before.iter().all(|turn| turn.from < found), "{found:?} {before:?}");
            assert!(after.len() > 10, "{}", after.len());
            judge(after);
        });
    });
}

fn a_grant_is_renewed_over_many_turns_and_each_has_its_own_time(fresh: fn() -> Store) {
    unless_starved(STALL, || {
        let server = fresh();
        let (holder, client) = (open(&server.url()), open(&server.url()));
        let held = taken(&holder);
        let (ttl, hold) = (ms(600), ms(250));
        std::thread::scope(|scope| {
            let lock = client.lock(NAME).ttl(ttl).max_hold(ms(500)).wait(LIMIT);
            // Two ttls and two max_holds together, each well inside of its own.
            let waiters: Vec<_> = (0..6).map(|_| in_line(scope, lock.clone(), hold)).collect();
            held.release().unwrap();
            let turns: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect();
            assert_in_order(&turns);
            assert_eq!(turns[5].fence, turns[0].fence + 5, "all under one grant");
            assert!(turns[5].until - turns[0].from > ttl * 2);
            assert_eq!(client.counters().lost, 0);
        });
        server.assert_all_ends();
    });
}

fn a_lease_that_was_handed_over_has_its_window_first_and_soon_the_whole_ttl(fresh: fn() -> Store) {
    const TRIES: u32 = 20;
    let hand_over = || {
        let server = fresh();
        let (holder, client) = (open(&server.url()), open(&server.url()));
        let held = taken(&holder);
        std::thread::scope(|scope| {
            let lock = client.lock(NAME).ttl(secs(20)).wait(LIMIT);
            let waiter = scope.spawn(move || {
                let lease = lock.acquire().unwrap();
                let (first, got) = (lease.remaining(), now());
                eventually(LIMIT, || lease.remaining() > secs(15));
                let claimed = now() - got;
                lease.release().unwrap();
                (first, claimed)
            });
            eventually_queued(&server, 1);
            held.release().unwrap();
            let (first, claimed) = waiter.join().unwrap();
            assert_eq!(client.counters().lost, 0);
            // It is claimed in the background, which may be done before that thread looks at it.
            let is_window = first > Duration::ZERO && first <= secs(1);
            assert!(is_window || first > secs(15), "{first:?}");
            is_window && claimed < ms(300)
        })
    };
    assert!((0..TRIES).any(|_| hand_over()), "a window is seen, and claimed soon");
}

fn the_shortest_claim_window_is_long_enough_to_claim_in(fresh: fn() -> Store) {
    // Only a quiet machine shows that the shortest one is: there a request has 50 ms.
    let is_long = std::env::var_os("KIT_LONG").is_some();
    let window = if is_long { ms(50) } else { secs(2) };
    unless_starved(ms(10), || {
        let server = fresh();
        let holder = open(&server.url());
        let client = open(&format!("{}?claim_window={}ms", server.url(), window.as_millis()));
        let held = taken(&holder);
        std::thread::scope(|scope| {
            let lock = client.lock(NAME).ttl(secs(20)).wait(LIMIT);
            let waiter = scope.spawn(move || {
                let lease = lock.acquire().unwrap();
                let left = lease.remaining();
                assert!(left <= window || left > secs(15), "{left:?}");
                eventually(LIMIT, || lease.remaining() > secs(15));
                lease.release().unwrap();
            });
            eventually_queued(&server, 1);
            held.release().unwrap();
            waiter.join().unwrap();
        });
        assert_eq!(client.counters().lost, 0);
    });
}
