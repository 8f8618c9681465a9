//! Servers that are restarted, flushed, busy, loading or paused: tried again until the deadline.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kit::*;
use leasehold::{Client, ErrorKind};

use crate::far::{Far, on_each_own_server, on_each_server};
use redis::{ConnectionLike, Value};

const LIMIT: Duration = Duration::from_secs(10);

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

fn open(server: &Server, query: &str) -> Client {
    Client::open(&format!("{}?{query}", server.url())).unwrap()
}

fn free(server: &Server, name: &str) -> bool {
    server.cmd(&["EXISTS", name]) == Value::Int(0)
}

/// Takes and releases in two threads while `disturb` is called again and again. Every call
/// succeeds or has one of the errors that can be tried again; gives the number of full cycles.
fn cycle_through(client: &Client, length: Duration, mut disturb: impl FnMut()) -> u64 {
    let over = AtomicBool::new(false);
    let work = |name: &str| {
        let lock = client.lock(name).ttl(ms(2000));
        let (mut cycles, mut owed) = (0, false);
        while !over.load(Ordering::Relaxed) {
            let released = match lock.try_acquire() {
                Ok(Some(lease)) => lease.release(),
                // Nobody else wants it: an earlier release is the keeper's to finish.
                Ok(None) if owed => continue,
                Ok(None) => panic!("{name} is wanted by one thread only"),
                Err(error) => Err(error),
            };
            match released {
                Ok(()) => cycles += 1,
                Err(error) => {
                    assert!(error.is_retriable(), "{error}");
                    owed = true;
                }
            }
        }
        cycles
    };
    std::thread::scope(|scope| {
        let workers = ["one", "two"].map(|name| scope.spawn(move || work(name)));
        let until = Instant::now() + length;
        while Instant::now() < until {
            disturb();
        }
        over.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    })
}

#[test]
fn c6_flushed_scripts_are_loaded_again() {
    let server = Server::start();
    let client = open(&server, "");
    let lock = client.lock("lock");
    for _ in 0..3 {
        let lease = lock.try_acquire().unwrap().expect("nobody else wants it");
        server.cmd(&["SCRIPT", "FLUSH"]);
        assert!(lock.try_acquire().unwrap().is_none());
        lease.extend().unwrap();
        server.cmd(&["SCRIPT", "FLUSH"]);
        lease.release().unwrap();
        server.cmd(&["SCRIPT", "FLUSH"]);
    }
    // In a loop, with no pause between.
    let mut connection = server.connection();
    let cycles = cycle_through(&client, ms(1500), || {
        let _: Value = redis::cmd("SCRIPT").arg("FLUSH").query(&mut connection).unwrap();
    });
    assert!(cycles > 0);
    eventually(LIMIT, || free(&server, "one") && free(&server, "two"));
    assert_eq!(client.counters().unknown, 0, "a script that is missing was not executed");
}

on_each_server! {
    c6_connections_that_are_cut_cost_a_retry,
}

on_each_own_server! {
    c1_leases_and_waits_outlast_a_restart_of_the_server,
}

fn c6_connections_that_are_cut_cost_a_retry(far: &mut Far) {
    let client = far.open("");
    let cycles = cycle_through(&client, ms(2000), || {
        far.proxy.close_all(End::Reset);
        std::thread::sleep(ms(50));
    });
    assert!(cycles > 10, "{cycles}");
    assert!(client.counters().unknown > 0, "some connection was cut in the middle");
    eventually(LIMIT, || far.holder("one").is_none() && far.holder("two").is_none());
}

fn c1_leases_and_waits_outlast_a_restart_of_the_server(far: &mut Far) {
    let client = Client::open(&format!("{}?io_timeout=300ms", far.store.url())).unwrap();
    let lease = far.near.lock("lock").ttl(LIMIT * 6).try_acquire().unwrap().unwrap();
    let fence = lease.fence();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| client.lock("lock").acquire_within(LIMIT * 3));
        eventually(LIMIT, || client.counters().busy > 0);
        far.store.crash();
        let tries = client.counters().attempts;
        // Longer than io_timeout, which is what a call without any answer would last.
        std::thread::sleep(ms(600));
        assert!(!waiter.is_finished() && client.counters().attempts > tries);
        far.store.start_again();
        // It knows what it has promised.
        far.assert_holds(&lease);
        assert!(!waiter.is_finished());
        lease.release().unwrap();
        let next = waiter.join().unwrap().unwrap();
        assert!(next.fence() > fence);
        far.assert_holds(&next);
    });
}

#[test]
fn c6_killed_connections_cost_a_retry() {
    let server = Server::start();
    let client = open(&server, "");
    let mut connection = server.connection();
    let cycles = cycle_through(&client, ms(2000), || {
        let _: Value = redis::cmd("CLIENT")
            .arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"])
            .query(&mut connection)
            .unwrap();
        std::thread::sleep(ms(50));
    });
    assert!(cycles > 50, "{cycles}");
    assert!(client.counters().unknown > 0, "some connection was killed in the middle");
    eventually(LIMIT, || free(&server, "one") && free(&server, "two"));
}

#[test]
fn a_wait_outlasts_a_restart_of_the_server() {
    unless_starved(STALL, || {
        let mut server = Server::start();
        let (client, rival) = (open(&server, "io_timeout=300ms"), open(&server, ""));
        let held = rival.lock("lock").ttl(LIMIT * 6).renew(false).try_acquire().unwrap().unwrap();
        let fence = held.fence();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| client.lock("lock").acquire_within(LIMIT * 2));
            eventually(LIMIT, || client.counters().busy > 0);
            server.kill();
            let tries = client.counters().attempts;
            // Longer than io_timeout, which is what a call without any answer would last.
            std::thread::sleep(ms(600));
            assert!(!waiter.is_finished());
            assert!(client.counters().attempts > tries);
            server.start_again();
            let lease = waiter.join().unwrap().unwrap();
            assert!(lease.fence() > fence, "although the server has forgotten the last one");
        });
    });
}

#[test]
fn a_server_that_was_never_there_ends_a_wait_after_the_io_timeout() {
    let mut server = Server::start();
    let client = open(&server, "io_timeout=400ms");
    server.kill();
    let watch = Stopwatch::start();
    let error = client.lock("lock").acquire_within(LIMIT).map(drop).unwrap_err();
    watch.assert_at_least(ms(300));
    watch.assert_at_most(ms(400), ms(50));
    assert_eq!(error.kind(), ErrorKind::Refused);
    let error = within(ms(450), || client.lock("lock").try_acquire().map(drop)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
}

/// The server cannot serve now and says so: a try lasts until the deadline, and a wait until the
/// server can again. A swift one answers every try at once.
fn assert_retried(server: &Server, swift: bool, end_the_trouble: impl FnOnce()) {
    let client = open(server, "io_timeout=300ms");
    let lock = client.lock("lock").ttl(LIMIT);
    let watch = Stopwatch::start();
    let error = lock.try_acquire().map(drop).unwrap_err();
    watch.assert_at_least(ms(200));
    watch.assert_at_most(ms(300), ms(50));
    let (attempts, unknown) = (client.counters().attempts, client.counters().unknown);
    // One that answers only now and then may let the last try run into the deadline.
    let ran_out = !swift && unknown == 1;
    assert!(error.kind() == ErrorKind::Unavailable || ran_out, "{error}");
    assert!(attempts > 3, "it was tried {attempts} times");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.acquire_within(LIMIT * 2));
        eventually(LIMIT, || client.counters().attempts > attempts + 5);
        end_the_trouble();
        let lease = waiter.join().unwrap().unwrap();
        assert!(lease.is_valid());
        let released = lease.release();
        assert!(released.is_ok() || !swift, "{released:?}");
    });
    if swift {
        assert_eq!(client.counters().unknown, 0, "a refusal is no unknown outcome");
    }
    eventually(LIMIT, || free(server, "lock"));
}

#[test]
fn c13_a_server_that_is_loading_is_tried_again() {
    let server = Server::builder().arg("--loading-process-events-interval-bytes", "1024").start();
    server.cmd(&["DEBUG", "POPULATE", "8000"]);
    std::thread::scope(|scope| {
        // Each key takes so many microseconds to load.
        server.config_set("key-load-delay", "200");
        let reload = scope.spawn(|| server.cmd(&["DEBUG", "RELOAD"]));
        let loading = |words: &[&str]| {
            server.try_cmd(words).is_err_and(|error| error.code() == Some("LOADING"))
        };
        eventually(LIMIT, || loading(&["GET", "any"]));
        assert_retried(&server, false, || {
            reload.join().unwrap();
        });
    });
}

#[test]
fn c13_a_server_that_is_busy_with_a_script_is_tried_again() {
    let server = Server::builder().arg("--lua-time-limit", "50").start();
    std::thread::scope(|scope| {
        let script = scope.spawn(|| server.try_cmd(&["EVAL", "while true do end", "0"]));
        let busy = || server.try_cmd(&["GET", "x"]).is_err_and(|e| e.code() == Some("BUSY"));
        eventually(LIMIT, busy);
        assert_retried(&server, true, || {
            server.cmd(&["SCRIPT", "KILL"]);
        });
        assert!(script.join().unwrap().is_err());
    });
}

#[test]
fn c13_a_server_that_cannot_save_is_tried_again() {
    let server = Server::builder().arg("--dbfilename", "blocked").start();
    let Value::Array(dir) = server.cmd(&["CONFIG", "GET", "dir"]) else { panic!() };
    let dir: String = redis::from_redis_value(dir[1].clone()).unwrap();
    // No file can take the place of a directory that is not empty.
    std::fs::create_dir_all(format!("{dir}/blocked/inside")).unwrap();
    server.config_set("save", "3600 1000000");
    server.cmd(&["BGSAVE"]);
    eventually(LIMIT, || server.info("persistence").contains("rdb_last_bgsave_status:err"));
    assert_retried(&server, true, || server.config_set("stop-writes-on-bgsave-error", "no"));
}

#[test]
fn c13_a_server_that_misses_its_replicas_is_tried_again() {
    let server = Server::start();
    server.config_set("min-replicas-to-write", "1");
    assert_retried(&server, true, || server.config_set("min-replicas-to-write", "0"));
}

#[test]
fn c13_a_replica_that_misses_its_master_is_tried_again() {
    let mut master = Server::start();
    let server = Server::builder().arg("--replica-serve-stale-data", "no").start();
    let port = master.port().to_string();
    master.kill();
    server.cmd(&["REPLICAOF", "127.0.0.1", &port]);
    assert_retried(&server, true, || {
        server.cmd(&["REPLICAOF", "NO", "ONE"]);
    });
}

#[test]
fn c13_a_cluster_without_its_slots_is_tried_again() {
    let server = Server::builder().arg("--cluster-enabled", "yes").start();
    assert_retried(&server, true, || {
        let slots: Vec<_> = (0..16384).map(|slot| slot.to_string()).collect();
        let words = ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str));
        server.cmd(&words.collect::<Vec<_>>());
    });
}

#[test]
fn c3_the_time_that_a_server_stood_still_is_no_validity() {
    let server = Server::start();
    // Nothing else has the connection: a new one would be made first, and the take would be sent late.
    let client = open(&server, "io_timeout=3s&register=no&advise=no");
    let lock = client.lock("lock").renew(false);
    lock.try_acquire().unwrap().unwrap().release().unwrap();
    let standstills: [&[&str]; 2] =
        [&["CLIENT", "PAUSE", "600", "ALL"], &["DEBUG", "SLEEP", "0.6"]];
    for words in standstills {
        for (ttl, anew) in [(ms(2000), false), (ms(400), true)] {
            std::thread::scope(|scope| {
                let command = words[0].to_ascii_lowercase();
                let (mut own, mut standstill) = (server.connection(), redis::cmd(words[0]));
                standstill.arg(&words[1..]);
                let stood_still =
                    scope.spawn(move || own.req_packed_command(&standstill.get_packed_command()));
                // As soon as nothing else is answered any more.
                let mut probe = server.bare_connection();
                probe.set_read_timeout(Some(ms(20))).unwrap();
                let mut answers = [0; 7];
                while probe.write_all(b"PING\r\n").is_ok() && probe.read_exact(&mut answers).is_ok()
                {
                }
                let sent = Instant::now();
                let lease = lock.clone().ttl(ttl).try_acquire().unwrap().expect("it is free");
                let remaining = lease.remaining();
                let waited = sent.elapsed();
                assert!(waited > ms(400), "{command} let the take through after {waited:?}");
                assert!(lease.is_valid());
                if anew {
                    // The first grant was worth nothing any more, and so it was made anew.
                    assert!(remaining > ms(200), "{remaining:?}");
                } else {
                    assert!(remaining <= ttl - ms(400), "{remaining:?} after {waited:?}");
                }
                let Value::Int(left) = server.cmd(&["PTTL", "lock"]) else { panic!() };
                assert!(remaining <= ms(u64::try_from(left).unwrap()) + ms(5));
                lease.release().unwrap();
                stood_still.join().unwrap().unwrap();
            });
        }
    }
}
