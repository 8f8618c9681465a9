//! A PostgreSQL that waits for a standby, and what ends that wait.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Instant;

use crate::postgres::made;
use crate::sql::{client, with};
use crate::stores::{LIMIT, ms, secs};
use kit::{Postgres, eventually};
use leasehold::{Break, Client};

/// A primary that waits for its standby, and a database there.
struct Pair {
    primary: Postgres,
    standby: Postgres,
    database: String,
}

impl Pair {
    fn start() -> Pair {
        let primary = Postgres::start();
        let database = made(&primary);
        let standby = primary.standby();
        primary.wait_for_standbys("*");
        Pair { primary, standby, database }
    }

    /// A client whose patience outlasts the test.
    fn patient(&self, parameters: &str) -> Client {
        let url = with(&self.primary.url(&self.database), "io_timeout=60s");
        Client::open(&if parameters.is_empty() { url } else { with(&url, parameters) }).unwrap()
    }

    /// The same through a pooler.
    fn pooled(&self, port: u16, parameters: &str) -> Client {
        let url = format!(
            "postgres://postgres@127.0.0.1:{port}/{}?io_timeout=60s{parameters}",
            self.database
        );
        Client::open(&url).unwrap()
    }

    /// What sessions do that wait for the standby: the first words of their statements.
    fn waiting(&self) -> Vec<String> {
        let waiting = "SELECT substring(query FROM '^-- ([A-Za-z]+)') FROM pg_stat_activity
            WHERE wait_event = 'SyncRep' ORDER BY pid";
        let all = self.primary.sql("postgres", waiting);
        all.lines().map(str::to_owned).collect()
    }

    fn eventually_waiting(&self, count: usize) {
        eventually(LIMIT, || self.waiting().len() == count);
    }

    /// Ends the wait of each of them.
    fn end_waits(&self, how: &str) {
        let end = format!("SELECT {how}(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
        assert!(self.primary.sql("postgres", &end).contains('t'));
    }

    /// The primary dies, and its standby takes its place. A client of that one.
    fn fail_over(&mut self) -> Client {
        self.primary.crash();
        self.standby.sql("postgres", "SELECT pg_promote()");
        client(&self.standby.url(&self.database))
    }
}

/// The database has its sessions told no warnings, and limits that are not ours: behind the pooler they
/// last.
#[test]
fn c1_c6_a_take_that_stopped_waiting_for_the_standby_is_not_held() {
    let mut pair = Pair::start();
    let database = &pair.database;
    for setting in ["client_min_messages = 'error'", "statement_timeout = '100ms'"] {
        let set = format!("ALTER DATABASE {database} SET {setting}");
        pair.primary.sql("postgres", &set);
    }
    let (pooler, port) = pair.primary.pooler();
    let ways = [
        ("cancelled", pair.patient(""), "pg_cancel_backend"),
        ("terminated", pair.patient(""), "pg_terminate_backend"),
        ("pooled", pair.pooled(port, ""), "pg_cancel_backend"),
    ];
    for (name, client, _) in &ways {
        client.lock(*name).acquire().unwrap().release().unwrap();
    }
    // What is released is sent a moment later.
    let taken = "SELECT count(*) FROM leasehold.lease WHERE token IS NOT NULL";
    eventually(LIMIT, || pair.standby.try_sql(database, taken).as_deref() == Ok("0"));
    pair.standby.cut_off();
    thread::scope(|scope| {
        let mut calls = Vec::new();
        for (name, client, how) in &ways {
            let lock = client.lock(*name).ttl(secs(600));
            let call = scope.spawn(move || lock.try_acquire());
            pair.eventually_waiting(calls.len() + 1);
            // It asks again, under another token, and waits again.
            pair.end_waits(how);
            eventually(LIMIT, || call.is_finished() || client.counters().unknown > 0);
            pair.eventually_waiting(calls.len() + 1);
            assert!(!call.is_finished(), "{name}: {:?}", call.join());
            calls.push(call);
        }
        let other = pair.fail_over();
        // It would go on looking for the primary.
        drop(pooler);
        for ((name, ..), call) in ways.iter().zip(calls) {
            let error = call.join().unwrap().map(drop).unwrap_err();
            assert!(error.is_retriable(), "{name}: {error}");
            other.lock(*name).acquire_within(LIMIT).unwrap().release().unwrap();
        }
    });
}

#[test]
fn c1_c3_a_renewal_that_stopped_waiting_for_the_standby_is_not_counted() {
    let pair = Pair::start();
    let client = pair.patient("");
    let lease = client.lock("n").ttl(secs(600)).acquire().unwrap();
    let conninfo = pair.standby.cut_off();
    // Read in this order, a machine that stands still in between makes it earlier and never later.
    let valid_until = || Instant::now() + lease.remaining();
    let before = valid_until();
    thread::scope(|scope| {
        let extending = scope.spawn(|| lease.extend());
        for _ in 0..2 {
            pair.eventually_waiting(1);
            pair.end_waits("pg_cancel_backend");
        }
        eventually(LIMIT, || client.counters().unknown > 1 || extending.is_finished());
        assert!(!extending.is_finished() && valid_until() <= before + ms(1));
        pair.standby.follow(&conninfo);
        extending.join().unwrap().unwrap();
        eventually(LIMIT, || valid_until() > before + ms(1));
    });
    lease.release().unwrap();
}

#[test]
fn c1_who_is_handed_a_lock_claims_it_first_where_the_hand_over_stopped_waiting_for_the_standby() {
    let pair = Pair::start();
    let (one, two) = (pair.patient(""), pair.patient("claim_window=60s"));
    let lease = one.lock("n").ttl(secs(600)).acquire().unwrap();
    let has_it = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let lease = two.lock("n").ttl(secs(600)).acquire_within(LIMIT * 3).unwrap();
            has_it.store(true, SeqCst);
            lease
        });
        eventually(LIMIT, || one.lock("n").inspect().unwrap().waiters.len() == 1);
        let conninfo = pair.standby.cut_off();
        let releasing = scope.spawn(|| lease.release());
        pair.eventually_waiting(1);
        pair.end_waits("pg_cancel_backend");
        // It was told, and asks for the lock; or it goes on without.
        eventually(LIMIT, || has_it.load(SeqCst) || pair.waiting().contains(&"Takes".to_owned()));
        assert!(!has_it.load(SeqCst), "a hand-over counted that the standby has not got");
        pair.standby.follow(&conninfo);
        // The first word was that nobody knows, and then that the lock was another's.
        let _ = releasing.join().unwrap();
        waiting.join().unwrap().release().unwrap();
    });
}

/// Somebody else's session, which a pooler lends us, waits for no disk and tells no warnings.
#[test]
fn c1_what_others_have_set_in_a_poolers_session_makes_no_grant_count_early() {
    let pair = Pair::start();
    let (_pooler, port) = pair.primary.pooler();
    let (client, hasty) = (pair.pooled(port, ""), pair.pooled(port, "&synchronous_commit=off"));
    // At the same time, so that each connection of the pooler is met.
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let set = "SET synchronous_commit = off; SET client_min_messages = error;
                    SELECT pg_sleep(1)";
                Postgres::sql_at(port, &pair.database, set).unwrap()
            });
        }
    });
    let conninfo = pair.standby.cut_off();
    // Who says so waits for nobody.
    let lease = hasty.lock("hasty").try_acquire().unwrap().expect("it is free");
    lease.extend().unwrap();
    lease.release().unwrap();
    thread::scope(|scope| {
        let taking = scope.spawn(|| client.lock("n").try_acquire().unwrap().expect("it is free"));
        eventually(LIMIT, || taking.is_finished() || pair.waiting().len() == 1);
        assert!(!taking.is_finished(), "the grant did not wait");
        pair.end_waits("pg_cancel_backend");
        eventually(LIMIT, || taking.is_finished() || client.counters().unknown == 1);
        pair.standby.follow(&conninfo);
        let lease = taking.join().unwrap();
        assert_eq!(client.counters().unknown, 1);
        let extended = scope.spawn(move || {
            lease.extend().unwrap();
            lease.release()
        });
        extended.join().unwrap().unwrap();
    });
    // Who breaks a lock hands it over as well.
    let (direct, lease) = (pair.patient(""), client.lock("b").ttl(secs(600)).acquire().unwrap());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| direct.lock("b").acquire_within(LIMIT * 3).unwrap());
        eventually(LIMIT, || direct.lock("b").inspect().unwrap().waiters.len() == 1);
        let conninfo = pair.standby.cut_off();
        let breaking = scope.spawn(|| client.lock("b").break_held(None, "test"));
        eventually(LIMIT, || breaking.is_finished() || pair.waiting().contains(&"Sets".to_owned()));
        assert!(!breaking.is_finished(), "the hand-over did not wait");
        pair.standby.follow(&conninfo);
        assert!(matches!(breaking.join().unwrap(), Ok(Break::Broken { .. })));
        waiting.join().unwrap().release().unwrap();
    });
    let _ = lease.release();
}

/// What is given up where the user or the database has it so; doctor says it.
#[test]
fn what_a_role_says_of_commits_counts_for_sessions_of_its_own_from_then_on() {
    let pair = Pair::start();
    let before = pair.patient("");
    before.lock("before").acquire().unwrap().release().unwrap();
    pair.primary.sql("postgres", "ALTER ROLE postgres SET synchronous_commit = local");
    let (after, strict) = (pair.patient(""), pair.patient("synchronous_commit=on"));
    after.lock("after").acquire().unwrap().release().unwrap();
    strict.lock("strict").acquire().unwrap().release().unwrap();
    pair.standby.cut_off();
    after.lock("after").try_acquire().unwrap().expect("it waits for no standby").release().unwrap();
    thread::scope(|scope| {
        let taking = [("before", &before), ("strict", &strict)]
            .map(|(name, client)| scope.spawn(move || client.lock(name).try_acquire().map(drop)));
        eventually(LIMIT, || pair.waiting().len() == 2 || taking.iter().any(|it| it.is_finished()));
        assert_eq!(pair.waiting().len(), 2);
        // Whoever takes that back waits for none.
        pair.primary.wait_for_standbys("");
        taking.into_iter().for_each(|taking| taking.join().unwrap().unwrap());
    });
}
