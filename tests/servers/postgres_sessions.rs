//! A PostgreSQL that has no room, ends sessions, or rolls statements back.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread;

use crate::postgres::{of, while_rows_are_kept};
use crate::sql::{client, contend};
use crate::stores::{Database, LIMIT, STALL, Store, eventually_free, ms, secs};
use kit::{Postgres, eventually, unless_starved};
use leasehold::ErrorKind;

/// A user of its own, who may do what programs have to.
fn user(database: &Database) -> String {
    let role = format!("user_{}", database.name);
    let sql = "LOGIN; GRANT USAGE ON SCHEMA leasehold TO role;
        GRANT ALL ON ALL TABLES IN SCHEMA leasehold TO role";
    database.sql(&format!("CREATE ROLE {role} {}", sql.replace("role", &role)));
    role
}

#[test]
fn c9_a_server_without_room_for_a_connection_costs_no_lease_and_gives_go_through() {
    unless_starved(STALL, || {
        let store = Store::postgres_in(Some(Postgres::start_with(&[
            "fsync=off",
            "max_connections=12",
            "superuser_reserved_connections=2",
            "max_wal_senders=0",
        ])));
        let url = store.url().replace("postgres@", &format!("{}@", user(of(&store))));
        let holder = client(&url);
        let lease = holder.lock("held").ttl(secs(3)).acquire().unwrap();
        let mut others = Vec::new();
        let refused = loop {
            let other = client(&url);
            match other.ping() {
                Ok(()) => others.push(other),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), ErrorKind::Exhausted, "{refused}");
        assert!(refused.detail().contains("raise max_connections"), "{refused}");
        let newcomer = client(&url);
        let error = newcomer.lock("free").try_acquire().map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
        // Renewed on the connection that there is, since the keeper gets none of its own.
        eventually(LIMIT, || holder.counters().renewed >= 3);
        lease.extend().unwrap();
        assert!(lease.is_valid());
        thread::scope(|scope| {
            // It gets no connection on which it could be told.
            let waiting =
                scope.spawn(|| others[0].lock("held").acquire_within(LIMIT).unwrap().release());
            thread::sleep(ms(100));
            lease.release().unwrap();
            waiting.join().unwrap().unwrap();
        });
        drop(others);
        eventually(LIMIT, || newcomer.lock("free").try_acquire().is_ok());
    });
}

#[test]
fn c1_transactions_that_cannot_be_serialized_are_made_again() {
    // A turn that was handed over is lost if it is not claimed for a second.
    unless_starved(STALL, || {
        let store = Store::postgres();
        let (database, server) = (of(&store), of(&store).server());
        let serializable = "SET default_transaction_isolation = 'serializable'";
        database.sql(&format!("ALTER DATABASE {} {serializable}", database.name));
        contend(&[&store.url()], 25, || ());
        // There, no setting of ours lasts.
        let (_pooler, port) = server.pooler();
        let pooled = format!("postgres://postgres@127.0.0.1:{port}/{}", database.name);
        let log = || std::fs::read_to_string(server.dir().join("log")).unwrap();
        eventually(LIMIT, || {
            contend(&[&pooled], 10, || ());
            log().contains("could not serialize access")
        });
    });
}

#[test]
fn c9_renewals_that_deadlock_with_another_session_are_made_again() {
    unless_starved(STALL, || {
        let store = Store::postgres();
        let database = of(&store);
        // Longer than statements of ours wait for a row.
        let soon = "SET deadlock_timeout = '50ms'";
        database.sql(&format!("ALTER DATABASE {} {soon}", database.name));
        let client = store.client();
        let take = |n| client.lock(format!("n{n}")).ttl(secs(6)).acquire().unwrap();
        let leases: Vec<_> = (0..10).map(take).collect();
        // Renewals go out together, and this locks their rows in the other order. It never sees
        // that itself, so that it is ours which are rolled back.
        let against = "SET deadlock_timeout = '1min'; BEGIN;
            SELECT FROM leasehold.lease WHERE name = 'n9' FOR UPDATE;
            DO $$ BEGIN FOR i IN 1..3000 LOOP
                PERFORM pg_stat_clear_snapshot(), pg_sleep(0.001);
                EXIT WHEN EXISTS (SELECT FROM pg_stat_activity
                    WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid)));
            END LOOP; END $$;
            SELECT FROM leasehold.lease WHERE name = 'n0' FOR UPDATE; COMMIT";
        let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        eventually(LIMIT, || {
            database.sql(against);
            database.sql(deadlocks) != "0"
        });
        let renewed = client.counters().renewed;
        eventually(LIMIT, || client.counters().renewed >= renewed + 20);
        assert!(leases.iter().all(leasehold::Lease::is_valid));
    });
}

#[test]
fn c9_sessions_that_end_when_idle_cost_no_lease_and_no_wait() {
    unless_starved(STALL, || {
        let store = Store::postgres();
        let database = of(&store);
        let soon = "SET idle_session_timeout = '200ms'";
        database.sql(&format!("ALTER DATABASE {} {soon}", database.name));
        let [one, two] = [(); 2].map(|()| store.client());
        for _ in 0..3 {
            let lease = one.lock("n").ttl(secs(1)).acquire().unwrap();
            thread::scope(|scope| {
                let waiting = scope.spawn(|| two.lock("n").acquire_within(LIMIT));
                thread::sleep(ms(1500));
                assert!(lease.is_valid());
                lease.release().unwrap();
                waiting.join().unwrap().unwrap().release().unwrap();
            });
        }
    });
}

#[test]
fn c6_sessions_that_are_terminated_again_and_again_stop_nobody() {
    // A turn that was handed over is lost if it is not claimed for a second.
    unless_starved(STALL, || {
        let store = Store::postgres();
        let database = of(&store);
        let any = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1";
        let ended = AtomicU32::new(0);
        contend(&[&store.url()], 50, || {
            ended.fetch_add(u32::from(database.sql(any) == "t"), SeqCst);
        });
        assert!(ended.into_inner() > 5);
        eventually_free(&store.client(), "n");
    });
}

#[test]
fn c9_a_statement_timeout_of_the_user_or_the_database_costs_no_lease_and_no_take() {
    unless_starved(STALL, || {
        let store = Store::postgres();
        let database = of(&store);
        let role = user(database);
        database.sql(&format!("ALTER ROLE {role} SET statement_timeout = '50ms'"));
        let direct = client(&store.url().replace("postgres@", &format!("{role}@")));
        direct.lock("n").acquire().unwrap().release().unwrap();
        while_rows_are_kept(database, "true", 1, || {
            direct.lock("n").acquire().unwrap().release().unwrap();
        });
        // There, no setting of ours lasts.
        database.sql(&format!("ALTER DATABASE {} SET statement_timeout = '50ms'", database.name));
        let (_pooler, port) = database.server().pooler();
        let pooled = client(&format!("postgres://postgres@127.0.0.1:{port}/{}", database.name));
        let lease = pooled.lock("held").ttl(secs(3)).acquire().unwrap();
        while_rows_are_kept(database, "true", 2, || {
            pooled.lock("n").acquire().unwrap().release().unwrap();
        });
        assert!(lease.is_valid());
        lease.release().unwrap();
    });
}

/// So short a time passes while a row is only written.
#[test]
fn c9_a_lock_timeout_of_the_user_or_the_database_costs_no_lease_and_no_take() {
    unless_starved(STALL, || {
        let store = Store::postgres();
        let database = of(&store);
        let role = user(database);
        database.sql(&format!("ALTER ROLE {role} SET lock_timeout = '1ms'"));
        database.sql(&format!("ALTER DATABASE {} SET lock_timeout = '1ms'", database.name));
        let direct = client(&store.url().replace("postgres@", &format!("{role}@")));
        // There, no setting of ours lasts.
        let (_pooler, port) = database.server().pooler();
        let pooled = client(&format!("postgres://postgres@127.0.0.1:{port}/{}", database.name));
        for client in [direct, pooled] {
            let lease = client.lock("held").ttl(secs(3)).acquire().unwrap();
            while_rows_are_kept(database, "true", 1, || {
                client.lock("n").acquire().unwrap().release().unwrap();
            });
            assert!(lease.is_valid());
            lease.release().unwrap();
        }
    });
}
