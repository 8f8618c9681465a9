//! Grants that count only once replicas have them.

use std::time::{Duration, Instant};

use crate::stores::{LIMIT, ms, secs};
use kit::{SentinelGroup, Server, eventually, unless_starved};
use leasehold::{Client, ErrorKind};

/// A replica that is kept from the processor for longer may acknowledge a grant too late.
const STALL: Duration = ms(50);

fn client(url: &str) -> Client {
    Client::open(url).unwrap()
}

/// What the master has, its replicas have. (A fresh one is not sent anything before it has told
/// that it is there, which it does once a second.)
fn settle(group: &SentinelGroup) {
    let (mut master, replicas) = (group.master().connection(), group.servers.len() - 1);
    redis::cmd("SET").arg(&["settled", "yes", "PX", "1"]).exec(&mut master).unwrap();
    let settled = || redis::cmd("WAIT").arg(replicas).arg(1000).query::<usize>(&mut master);
    let mut settled = settled;
    eventually(LIMIT, || settled().unwrap() == replicas);
}

/// One replica that does not answer any more.
fn without_replica(group: &SentinelGroup) {
    settle(group);
    group.replicas()[0].stop();
}

fn replicated(group: &SentinelGroup, count: u32) -> Client {
    client(&format!("{}?replicas={count}", group.url()))
}

#[test]
fn a_grant_that_too_few_replicas_have_is_given_back() {
    unless_starved(STALL, || {
        let group = SentinelGroup::start();
        settle(&group);
        let one = replicated(&group, 1);
        let lease = one.lock("n").acquire().unwrap();
        lease.extend().unwrap();
        lease.release().unwrap();
        let two = replicated(&group, 2);
        let began = Instant::now();
        let error = two.lock("n").try_acquire().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotReplicated);
        assert_eq!(error.detail(), "'n', 1 of 2 replicas");
        assert!(error.is_retriable());
        assert!(began.elapsed() < secs(2), "{:?}", began.elapsed());
        eventually(LIMIT, || group.master().cmd(&["EXISTS", "n"]) == redis::Value::Int(0));
        // It goes on trying for as long as it may wait.
        let began = Instant::now();
        let error = two.lock("n").acquire_within(ms(1500)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error}");
        assert!((ms(900)..secs(3)).contains(&began.elapsed()), "{:?}", began.elapsed());
        eventually(LIMIT, || group.master().cmd(&["EXISTS", "n"]) == redis::Value::Int(0));
        assert_eq!(two.counters().granted, 0);
        // A client that is content with less is not in its way.
        one.lock("n").try_acquire().unwrap().expect("it is free").release().unwrap();
    });
}

#[test]
fn a_stopped_replica_keeps_grants_from_counting_until_it_goes_on() {
    unless_starved(STALL, || {
        let group = SentinelGroup::start();
        without_replica(&group);
        let one = replicated(&group, 1);
        let lock = one.lock("n").wait(LIMIT);
        let error = lock.try_acquire().unwrap_err();
        assert_eq!(
            (error.kind(), error.detail()),
            (ErrorKind::NotReplicated, "'n', 0 of 1 replicas")
        );
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| lock.acquire().unwrap());
            eventually(LIMIT, || one.counters().attempts >= 3);
            assert!(!waits.is_finished());
            group.servers.iter().for_each(Server::cont);
            waits.join().unwrap().release().unwrap();
        });
    });
}

/// A message does not say what the replicas know.
#[test]
fn a_lock_that_is_handed_over_counts_once_replicas_have_it() {
    unless_starved(STALL, || {
        let group = SentinelGroup::start();
        settle(&group);
        let (plain, one) = (client(&group.url()), replicated(&group, 1));
        for healthy in [true, false] {
            let held = plain.lock("n").acquire().unwrap();
            let waiter = one.lock("n").wait(if healthy { LIMIT } else { secs(8) });
            std::thread::scope(|scope| {
                let (busy, attempts) = (one.counters().busy, one.counters().attempts);
                let waits = scope.spawn(|| waiter.acquire());
                eventually(LIMIT, || one.counters().busy >= busy + if healthy { 2 } else { 1 });
                if !healthy {
                    without_replica(&group);
                }
                held.release().unwrap();
                match (waits.join().unwrap(), healthy) {
                    (Ok(lease), true) => {
                        // By message, and then a take that replicas have acknowledged.
                        assert!(one.counters().attempts >= attempts + 2);
                        let left: i64 =
                            redis::from_redis_value(group.master().cmd(&["PTTL", "n"])).unwrap();
                        assert!(left > 25_000, "{left}");
                        lease.release().unwrap();
                    }
                    (Err(error), false) => {
                        assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error}");
                    }
                    (result, _) => panic!("{result:?}"),
                }
            });
        }
        eventually(LIMIT, || group.master().cmd(&["EXISTS", "n"]) == redis::Value::Int(0));
    });
}
