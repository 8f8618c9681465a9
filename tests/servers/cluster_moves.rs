//! Locks on a Cluster whose slots move and whose servers fail, while they are held and waited for.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::stores::{LIMIT, STALL, ms, open, secs};
use kit::history::{judge, now};
use kit::{Cluster, Hold, eventually, unless_starved};
use leasehold::{Client, Config, ErrorKind, Lease, Lock};

const NAME: &str = "n";
const SIDE: &str = "leasehold:{n}";
const QUEUE: &str = "leasehold:queue:{n}";

/// The server of the name, and another one.
fn places(cluster: &Cluster) -> [usize; 2] {
    let here = cluster.node_of_key(NAME);
    [here, (here + 1) % 3]
}

fn queued(cluster: &Cluster, node: usize) -> i64 {
    redis::from_redis_value(cluster.server(node).cmd(&["ZCARD", QUEUE])).unwrap()
}

fn patient(client: &Client) -> Lock {
    client.lock(NAME).wait(secs(60))
}

#[test]
fn a_slot_that_has_moved_takes_its_locks_along() {
    let cluster = Cluster::start();
    let client = open(&cluster.url());
    let [here, there] = places(&cluster);
    let slot = cluster.slot_of(NAME);
    let lock = client.lock(NAME).ttl(secs(30));
    let held = lock.acquire().unwrap();
    cluster.move_slot(slot, there);
    held.extend().unwrap();
    assert!(lock.try_acquire().unwrap().is_none());
    let fence = held.fence();
    held.release().unwrap();
    let next = lock.try_acquire().unwrap().unwrap();
    assert!(next.fence() > fence);
    // And back, with nothing said in between but what nobody waits for.
    cluster.move_slot(slot, here);
    drop(next);
    lock.acquire().unwrap().release().unwrap();
}

/// One after the other: nothing of it has moved yet, the lock alone, and all of it.
#[test]
fn a_lock_is_extended_whatever_of_it_has_moved() {
    let cluster = Cluster::start();
    let client = open(&cluster.url());
    let [_, there] = places(&cluster);
    let held = client.lock(NAME).ttl(secs(30)).acquire().unwrap();
    let migration = cluster.begin_migration(cluster.slot_of(NAME), there);
    held.extend().unwrap();
    migration.move_key(NAME);
    held.extend().unwrap();
    migration.move_key(SIDE);
    held.extend().unwrap();
    migration.finish();
    held.extend().unwrap();
    held.release().unwrap();
}

#[test]
fn new_grants_wait_for_the_end_of_a_migration() {
    unless_starved(STALL, || {
        let cluster = Cluster::start();
        let config = Config::from_url(&cluster.url()).unwrap().io_timeout(ms(500));
        let client = Client::with_config(config).unwrap();
        let [_, there] = places(&cluster);
        let held = client.lock(NAME).ttl(secs(60)).acquire().unwrap();
        let migration = cluster.begin_migration(cluster.slot_of(NAME), there);
        migration.move_key(NAME);
        let other = open(&cluster.url());
        // It was let go of, and cannot be free yet.
        let unknown = held.release().unwrap_err();
        assert!(unknown.is_retriable(), "{unknown}");
        let error = client.lock(NAME).try_acquire().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| patient(&other).acquire().unwrap().fence());
            std::thread::sleep(ms(200));
            assert!(!waits.is_finished());
            migration.move_keys();
            migration.finish();
            // Long before the ttl: what is owed gets through.
            let ended = now();
            waits.join().unwrap();
            assert!(now() - ended < secs(20));
        });
    });
}

#[test]
fn a_waiter_moves_along_with_the_lock() {
    let cluster = Cluster::start();
    let (holder, waiter) = (open(&cluster.url()), open(&cluster.url()));
    let [here, there] = places(&cluster);
    let slot = cluster.slot_of(NAME);
    let held = holder.lock(NAME).acquire().unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| patient(&waiter).acquire().unwrap().fence());
        eventually(LIMIT, || queued(&cluster, here) == 1);
        cluster.move_slot(slot, there);
        let heard = || {
            let said = cluster.server(there).cmd(&["PUBSUB", "SHARDCHANNELS"]);
            redis::from_redis_value::<Vec<String>>(said).unwrap().len() == 1
        };
        eventually(LIMIT, heard);
        eventually(LIMIT, || queued(&cluster, there) == 1);
        let fence = held.fence();
        held.release().unwrap();
        assert!(waits.join().unwrap() > fence);
    });
}

/// A lock is released to a waiter amid a migration, which ends after `amid`; the waiter's lease must
/// then be the only one that was granted, and hold.
fn handed_over_amid_a_migration(cluster: &Cluster, amid: impl FnOnce(&Client, &dyn Fn() -> bool)) {
    let (holder, waiter) = (open(&cluster.url()), open(&cluster.url()));
    let [here, there] = places(cluster);
    let held = holder.lock(NAME).acquire().unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let lease = patient(&waiter).acquire().unwrap();
            // Longer than a hand-over lasts that is not confirmed.
            std::thread::sleep(ms(1200));
            assert!(lease.is_valid());
            lease.release().unwrap();
        });
        eventually(LIMIT, || queued(cluster, here) == 1);
        let migration = cluster.begin_migration(cluster.slot_of(NAME), there);
        held.release().unwrap();
        amid(&waiter, &|| waits.is_finished());
        migration.move_keys();
        migration.finish();
        waits.join().unwrap();
    });
    assert_eq!((waiter.counters().lost, waiter.counters().granted), (0, 1));
}

/// Everything of it is where it was, and what a script deletes there cannot be written again.
#[test]
fn c1_nobody_is_told_of_a_lock_that_a_migration_keeps_from_being_handed_over() {
    let cluster = Cluster::start();
    let [here, _] = places(&cluster);
    // Fences that are ahead of the clock: the lock is deleted before it is handed over.
    let side = format!("0 {0} {0} {1:032x}", 1u64 << 52, 7);
    cluster.server(here).cmd(&["SET", SIDE, &side, "PX", "600000"]);
    handed_over_amid_a_migration(&cluster, |waiter, is_over| {
        std::thread::sleep(ms(300));
        assert!(!is_over());
        assert_eq!(waiter.counters().granted, 0);
    });
}

/// The lock is not deleted in between, so that nothing keeps it from being set.
#[test]
fn c1_a_lock_that_is_handed_over_amid_a_migration_is_the_waiters() {
    handed_over_amid_a_migration(&Cluster::start(), |waiter, _| {
        eventually(LIMIT, || waiter.counters().granted == 1);
    });
}

#[test]
fn a_lock_is_looked_at_while_its_release_waits_for_a_migration() {
    let cluster = Cluster::start();
    let client = open(&cluster.url());
    let [_, there] = places(&cluster);
    let held = client.lock(NAME).acquire().unwrap();
    let migration = cluster.begin_migration(cluster.slot_of(NAME), there);
    drop(held);
    assert!(client.lock(NAME).inspect().unwrap().holder.is_some());
    migration.move_keys();
    migration.finish();
    let other = open(&cluster.url());
    eventually(LIMIT, || other.lock(NAME).inspect().unwrap().holder.is_none());
}

/// A slot goes to and fro until this is over, which can ask whether it has done so.
fn restless<T>(
    cluster: &Cluster,
    slot: u16,
    work: impl FnOnce(&(dyn Fn() -> bool + Sync)) -> T,
) -> T {
    let (over, moves) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            let _ends = Ends(&over);
            while !over.load(Ordering::Relaxed) {
                let here = cluster.node_of(slot).unwrap();
                let migration = cluster.begin_migration(slot, (here + 1) % 3);
                while migration.move_some(1) > 0 {
                    std::thread::sleep(ms(2));
                }
                migration.finish();
                moves.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Also when one of the two panics.
        let ends = Ends(&over);
        let has_moved = || moves.load(Ordering::Relaxed) > 1 || over.load(Ordering::Relaxed);
        let done = work(&has_moved);
        drop(ends);
        mover.join().unwrap();
        done
    })
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn rounds() -> usize {
    if std::env::var_os("KIT_LONG").is_some() { 3000 } else { 150 }
}

#[test]
fn c1_c2_a_slot_that_moves_under_load_has_one_holder_at_a_time() {
    let cluster = Cluster::start();
    let clients = [open(&cluster.url()), open(&cluster.url())];
    let slot = cluster.slot_of(NAME);
    let names = [NAME.to_owned(), format!("{{{NAME}}}:2")];
    let turns = restless(&cluster, slot, |has_moved| {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|at| {
                    let which = at / 2 % 2;
                    let lock = clients[at % 2].lock(&names[which]).ttl(secs(5)).wait(secs(60));
                    let go_on = move |count: &usize| *count < rounds() / 4 || !has_moved();
                    let turns = move || (0..).take_while(go_on).map(|_| take_turn(&lock)).collect();
                    (which, scope.spawn::<_, Vec<Hold>>(turns))
                })
                .collect();
            let mut turns = [Vec::new(), Vec::new()];
            for (which, thread) in threads {
                turns[which].extend(thread.join().unwrap());
            }
            turns
        })
    });
    for turns in turns {
        assert!(turns.len() >= 4 * (rounds() / 4));
        let wrong = judge(&turns);
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}

fn take_turn(lock: &Lock) -> Hold {
    let asked = now();
    let lease = lock.acquire().unwrap();
    let mut turn = Hold::begin(asked, lease.fence());
    for _ in 0..3 {
        std::thread::sleep(Duration::from_micros(300));
        turn.look(|| lease.is_valid());
    }
    drop(lease);
    turn
}

/// Its own release comes first, wherever the slot is.
#[test]
fn who_is_alone_never_finds_a_moving_lock_taken() {
    let cluster = Cluster::start();
    let client = open(&cluster.url());
    let slot = cluster.slot_of(NAME);
    let lock = client.lock(NAME).ttl(secs(10));
    let fences = restless(&cluster, slot, |has_moved| {
        let mut fences = Vec::new();
        while fences.len() < rounds() || !has_moved() {
            match lock.try_acquire() {
                Ok(Some(lease)) => fences.push(lease.fence()),
                Ok(None) => panic!("busy after {} rounds", fences.len()),
                Err(error) => assert!(error.is_retriable(), "{error}"),
            }
        }
        fences
    });
    assert!(fences.is_sorted(), "{fences:?}");
}

#[test]
fn a_failover_on_demand_leaves_holders_and_waiters_where_they_are() {
    let cluster = Cluster::builder().with_replicas().start();
    let (holder, waiter) = (open(&cluster.url()), open(&cluster.url()));
    let [here, _] = places(&cluster);
    let lock = holder.lock(NAME).ttl(secs(30));
    let held = lock.acquire().unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| patient(&waiter).acquire().unwrap().fence());
        eventually(LIMIT, || queued(&cluster, here) == 1);
        cluster.fail_over(here + 3);
        held.extend().unwrap();
        let fence = held.fence();
        held.release().unwrap();
        assert!(waits.join().unwrap() > fence);
    });
    assert_eq!(holder.counters().lost + waiter.counters().lost, 0);
}

#[test]
fn a_server_that_dies_is_followed_by_its_replica() {
    unless_starved(STALL, || {
        let mut cluster = Cluster::builder().with_replicas().start();
        let config = |timeout| {
            let config = Config::from_url(&cluster.url()).unwrap().io_timeout(timeout);
            Client::with_config(config).unwrap()
        };
        let (holder, waiter) = (config(ms(500)), config(ms(500)));
        let [here, _] = places(&cluster);
        let slot = cluster.slot_of(NAME);
        let held = holder.lock(NAME).ttl(secs(20)).acquire().unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| patient(&waiter).acquire().map(|lease| lease.fence()));
            eventually(LIMIT, || queued(&cluster, here) == 1);
            // What the replica has not heard of by then is lost, as everybody knows.
            let heard: i64 =
                redis::from_redis_value(cluster.server(here).cmd(&["WAIT", "1", "10000"])).unwrap();
            assert_eq!(heard, 1);
            cluster.nodes[here].server.kill();
            let (_, replaced) = cluster.replaced(slot, here);
            eventually(LIMIT, || held.extend().is_ok());
            assert!(replaced.elapsed() < secs(15) && held.is_valid());
            let fence = held.fence();
            release(held);
            assert!(waits.join().unwrap().unwrap() > fence);
        });
        assert_eq!(holder.counters().lost + waiter.counters().lost, 0);
        // The old one comes back as a replica, and nobody minds.
        cluster.nodes[here].server.start_again();
        cluster.wait_until_ready();
        holder.lock(NAME).wait(secs(20)).acquire().unwrap().release().unwrap();
    });
}

fn release(lease: Lease) {
    if let Err(error) = lease.release() {
        assert!(error.is_retriable(), "{error}");
    }
}
