//! What a PostgreSQL is like besides what all stores have in common.

#[cfg(feature = "tls")]
use std::io::{Read, Write};
use std::sync::Barrier;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::channel;
use std::thread;

use crate::sql::{client, refused, with};
use crate::stores::{Database, LIMIT, STALL, Store, ms, secs};
#[cfg(feature = "tls")]
use kit::{Certificates, ServerCertificate};
use kit::{Postgres, eventually, unless_starved};
use leasehold::{Client, ErrorKind};

pub(crate) fn of(store: &Store) -> &Database {
    let Store::Postgres(database) = store else { panic!() };
    database
}

/// A database with the tables.
pub(crate) fn made(server: &Postgres) -> String {
    let database = server.database();
    client(&server.url(&database)).initialize(false).unwrap();
    database
}

#[test]
fn passwords_of_both_kinds_are_told_and_wrong_ones_are_refused_at_once() {
    let server = Postgres::start();
    let database = made(&server);
    for kind in ["scram-sha-256", "md5"] {
        let user = kind.replace('-', "_");
        server.sql(
            &database,
            &format!("SET password_encryption = '{kind}'; CREATE ROLE {user} LOGIN SUPERUSER PASSWORD 'p@ss'"),
        );
    }
    let rules = "host all scram_sha_256 all scram-sha-256\nhost all md5 all md5\n\
                 host all nobody all reject\nhost all all all trust\n";
    std::fs::write(server.dir().join("pg_hba.conf"), rules).unwrap();
    server.sql(&database, "SELECT pg_reload_conf()");
    let url = |credentials: &str| {
        format!("postgres://{credentials}@127.0.0.1:{}/{database}", server.port())
    };
    // Rules are read soon after.
    eventually(LIMIT, || {
        client(&url("nobody")).ping().is_err_and(|error| error.kind() == ErrorKind::Auth)
    });
    for user in ["scram_sha_256", "md5"] {
        client(&url(&format!("{user}:p%40ss"))).lock("n").acquire().unwrap().release().unwrap();
        for wrong in [format!("{user}:wrong"), user.to_owned()] {
            let error = refused(&url(&wrong));
            assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
            assert!(!error.to_string().contains("wrong@"), "{error}");
        }
    }
    // As a server that wants to keep its clients busy has it.
    let key = format!("{}=", "A".repeat(43));
    let secret = format!("SCRAM-SHA-256$2000000:c2FsdA==${key}:{key}");
    server.sql(&database, &format!("ALTER ROLE scram_sha_256 PASSWORD '{secret}'"));
    let error = refused(&url("scram_sha_256:p%40ss"));
    assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
    assert!(error.detail().contains("asks for 2000000 iterations of SCRAM"), "{error}");
    let error = refused(&url("postgres").replace(&database, "nowhere"));
    assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
}

#[cfg(feature = "tls")]
#[test]
fn each_sslmode_trusts_what_libpq_says_that_it_does() {
    let dir = tempfile::tempdir().unwrap();
    let certificates = Certificates::make(dir.path());
    let server = Postgres::start_with(&["fsync=off"]);
    let database = made(&server);
    let plain = client(&with(&server.url(&database), "sslmode=require")).ping().unwrap_err();
    assert_eq!(plain.kind(), ErrorKind::Tls, "{plain}");
    assert!(plain.detail().contains("sslmode=disable"), "{plain}");
    let ca = format!("&sslrootcert={}", certificates.ca().display());
    for (which, mode, outcome) in [
        (ServerCertificate::Good, format!("verify-full{ca}"), Ok(())),
        (ServerCertificate::Good, "require".to_owned(), Ok(())),
        (ServerCertificate::WrongHost, format!("verify-full{ca}"), Err("write that host")),
        (ServerCertificate::WrongHost, format!("verify-ca{ca}"), Ok(())),
        (ServerCertificate::WrongHost, format!("require{ca}"), Ok(())),
        (ServerCertificate::Expired, format!("verify-ca{ca}"), Err("expired")),
        (ServerCertificate::Expired, "require".to_owned(), Ok(())),
    ] {
        let (certificate, key) = certificates.server(which);
        server.show_certificate(&certificate, &key);
        let url = with(&server.url(&database), &format!("sslmode={mode}"));
        let pinged = client(&url).ping();
        match (pinged, outcome) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(said)) => {
                assert_eq!(error.kind(), ErrorKind::Tls, "{mode}: {error}");
                assert!(error.detail().contains(said), "{mode}: {error}");
            }
            (pinged, outcome) => panic!("{mode}: {pinged:?} and not {outcome:?}"),
        }
    }
    let url = with(&server.url(&database), "sslmode=require");
    client(&url).lock("n").acquire().unwrap().release().unwrap();
}

#[test]
fn c1_c2_a_server_that_crashes_knows_each_grant_that_anybody_was_told_of() {
    let mut server = Postgres::start_with(&[]);
    let database = made(&server);
    let url = server.url(&database);
    let (holder, other) = (client(&url), client(&url));
    for round in 0..3 {
        let name = format!("n{round}");
        let lease = holder.lock(&name).ttl(secs(60)).acquire().unwrap();
        let given = holder.lock("given").ttl(secs(2)).acquire().unwrap();
        let last = given.fence();
        given.release().unwrap();
        server.crash();
        server.start_again();
        assert!(other.lock(&name).try_acquire().unwrap().is_none());
        lease.extend().unwrap();
        lease.release().unwrap();
        // Nobody waited for the disk to give it, so it may be taken until its ttl is over.
        let again = other.lock("given").acquire_within(LIMIT).unwrap();
        assert!(again.fence() > last);
        again.release().unwrap();
    }
}

#[test]
fn a_standby_is_never_asked_for_a_lock_until_it_is_the_primary() {
    let mut first = Postgres::start();
    let database = made(&first);
    let second = first.standby();
    let error = refused(&second.url(&database));
    assert_eq!(error.kind(), ErrorKind::ReadOnly);
    assert!(error.detail().contains("connect to the primary"), "{error}");
    let both = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/{database}",
        second.port(),
        first.port()
    );
    let client = client(&with(&both, "target_session_attrs=read-write"));
    let lease = client.lock("n").ttl(secs(30)).acquire().unwrap();
    let sent = "SELECT count(*) FROM leasehold.lease WHERE token IS NOT NULL";
    eventually(LIMIT, || second.sql(&database, sent) == "1");
    first.crash();
    let down = client.lock("other").try_acquire().map(drop).unwrap_err();
    assert!(down.is_retriable(), "{down}");
    second.sql(&database, "SELECT pg_promote()");
    lease.extend().unwrap();
    assert!(client.lock("n").try_acquire().unwrap().is_none());
    lease.release().unwrap();
    let other = client.lock("other").acquire_within(LIMIT).unwrap();
    other.release().unwrap();
}

#[test]
fn c2_a_fence_is_larger_although_the_row_was_deleted() {
    let store = Store::postgres();
    let client = store.client();
    let first = client.lock("n").acquire().unwrap();
    let fence = first.fence();
    first.release().unwrap();
    of(&store).sql("DELETE FROM leasehold.lease");
    assert!(client.lock("n").acquire().unwrap().fence() > fence);
}

#[test]
fn rows_that_nobody_uses_are_removed_as_one_goes_and_those_in_use_stay() {
    let store = Store::postgres();
    let (client, database) = (store.client(), of(&store));
    let held = client.lock("held").ttl(secs(600)).acquire().unwrap();
    let old = "INSERT INTO leasehold.lease (name, first, last, expiry, used)
        SELECT n::text::bytea, 1, 1, now(), 1 FROM generate_series(1, 300) n;
        UPDATE leasehold.lease SET used = 1";
    database.sql(old);
    let count = || database.sql("SELECT count(*) FROM leasehold.lease WHERE used = 1");
    for _ in 0..4 * 64 {
        client.lock("n").acquire().unwrap().release().unwrap();
    }
    assert_eq!(count(), "1", "the one that is held");
    held.extend().unwrap();
    held.release().unwrap();
}

#[test]
fn rows_that_others_use_are_not_read_to_find_those_that_nobody_does() {
    let store = Store::postgres();
    let (client, database) = (store.client(), of(&store));
    database.sql(
        "INSERT INTO leasehold.lease (name, first, last, expiry, used)
            SELECT n::text::bytea, 1, 1, now(), extract(epoch FROM now())::bigint / 3600
            FROM generate_series(1, 20000) n",
    );
    for _ in 0..64 {
        client.lock("n").acquire().unwrap().release().unwrap();
    }
    drop(client);
    // A session that ends leaves what it has counted.
    let others = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    eventually(LIMIT, || database.sql(others) == "0");
    let read = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'lease_by_use'";
    let read: u32 = database.sql(read).parse().unwrap();
    assert!(read < 1000, "{read} rows");
}

#[test]
fn c10_more_dead_waiters_than_a_server_has_locks_are_passed_over() {
    let server = Postgres::start_with(&["fsync=off", "max_connections=20"]);
    let store = Store::postgres_in(Some(server));
    of(&store).sql(
        "INSERT INTO leasehold.lease (name, token, first, last, expiry, used, waiters)
            SELECT name::bytea, gen_random_uuid(), 1, 1, now(), 0, array_agg(
                ROW(n, gen_random_uuid(), n, 1000)::leasehold.waiter ORDER BY n
            ) FROM generate_series(1, 10000) n, unnest(ARRAY['taken', 'given']) name GROUP BY name",
    );
    let client = store.client();
    client.lock("taken").try_acquire().unwrap().unwrap().release().unwrap();
    of(&store)
        .sql("UPDATE leasehold.lease SET expiry = now() + interval '1 h' WHERE name = 'given'");
    let token = of(&store).sql("SELECT token FROM leasehold.lease WHERE name = 'given'");
    let token = token.replace('-', "").parse().unwrap();
    client.lock("given").attach(token, 1).unwrap().release().unwrap();
}

#[test]
fn several_who_make_the_table_at_once_all_succeed() {
    let server = Postgres::shared();
    for _ in 0..3 {
        let url = server.url(&server.database());
        let clients: Vec<_> = (0..8).map(|_| client(&url)).collect();
        thread::scope(|scope| {
            let made = clients.iter().map(|client| scope.spawn(|| client.initialize(false)));
            let made: Vec<_> = made.collect();
            made.into_iter().for_each(|made| made.join().unwrap().unwrap());
        });
    }
}

#[test]
fn a_statement_that_was_not_accepted_is_said_again_as_a_whole() {
    let store = Store::postgres();
    let (client, database) = (client(&store.url()), of(&store));
    database.sql(&format!("ALTER DATABASE {} SET lock_timeout = '20ms'", database.name));
    thread::scope(|scope| {
        let hold = "BEGIN; LOCK TABLE leasehold.lease; SELECT pg_sleep(1); COMMIT";
        scope.spawn(|| database.sql(hold));
        let holds = "SELECT count(*) FROM pg_locks
            WHERE relation = 'leasehold.lease'::regclass AND mode = 'AccessExclusiveLock'";
        eventually(LIMIT, || database.sql(holds) == "1");
        client.lock("n").try_acquire().unwrap().unwrap().release().unwrap();
    });
}

#[cfg(feature = "tls")]
#[test]
fn who_hangs_up_when_asked_for_tls_may_be_there_again_soon() {
    for said in ["", "Ecould not fork new process for connection\n\0"] {
        let server = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = server.local_addr().unwrap().port();
        let error = thread::scope(|scope| {
            scope.spawn(|| {
                let (mut connection, _) = server.accept().unwrap();
                connection.read_exact(&mut [0; 8]).unwrap();
                connection.write_all(said.as_bytes()).unwrap();
            });
            client(&format!("postgres://u@127.0.0.1:{port}/d?sslmode=require")).ping().unwrap_err()
        });
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    }
}

#[test]
fn names_longer_than_an_index_or_a_notice_takes_are_locked_and_waited_for_all_the_same() {
    let store = Store::postgres();
    let (one, two) = (store.client(), store.client());
    for length in [1900, 1901, 5000, leasehold::limits::MAX_NAME] {
        // What an index could not make shorter.
        let mut dice = kit::Dice::new(length as u64);
        let name: Vec<u8> = (0..length).map(|_| dice.below(256) as u8).collect();
        let mut other = name.clone();
        *other.last_mut().unwrap() ^= 1;
        let lease = one.lock(&name).ttl(secs(20)).acquire().unwrap();
        assert!(two.lock(&name).try_acquire().unwrap().is_none());
        two.lock(&other).acquire().unwrap().release().unwrap();
        let (two, name, (waits, waited)) = (two.clone(), name.clone(), channel());
        let waiting = thread::spawn(move || {
            waits.send(()).unwrap();
            two.lock(name).acquire_within(LIMIT).unwrap().release().unwrap();
        });
        waited.recv().unwrap();
        thread::sleep(ms(100));
        lease.release().unwrap();
        waiting.join().unwrap();
    }
}

#[test]
fn a_statement_that_another_session_holds_up_ends_by_the_deadline_and_does_nothing_later() {
    unless_starved(STALL, || {
        let store = Store::postgres();
        let (url, database) = (store.url(), of(&store));
        let client = Client::open(&with(&url, "io_timeout=300ms")).unwrap();
        client.lock("n").acquire().unwrap().release().unwrap();
        while_rows_are_kept(database, "true", 2, || {
            let error = client.lock("n").try_acquire().map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.detail().contains("another session kept the row"), "{error}");
        });
        assert!(crate::stores::holder(&store.client(), "n").is_none());
    });
}

#[test]
fn c4_a_row_that_another_session_keeps_costs_no_other_lease() {
    unless_starved(STALL, || {
        let store = Store::postgres();
        let client = store.client();
        let take = |n| client.lock(format!("n{n}")).ttl(secs(3)).acquire().unwrap();
        let leases: Vec<_> = (0..20).map(take).collect();
        while_rows_are_kept(of(&store), "name = 'n7'", 6, || thread::sleep(ms(5500)));
        for (n, lease) in leases.iter().enumerate() {
            assert_eq!(lease.is_valid(), n != 7, "n{n}");
        }
    });
}

/// Runs it while a session that is no program of ours has rows locked, for so many seconds.
pub(crate) fn while_rows_are_kept(
    database: &Database,
    which: &str,
    seconds: u32,
    run: impl FnOnce(),
) {
    thread::scope(|scope| {
        scope.spawn(move || {
            let begin = format!("SET statement_timeout = 0; BEGIN; SELECT FROM leasehold.lease WHERE {which} FOR UPDATE");
            database.sql(&format!("{begin}; SELECT pg_sleep({seconds}); COMMIT"))
        });
        let keeps = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
            AND wait_event = 'PgSleep'";
        eventually(LIMIT, || database.sql(keeps) == "1");
        run();
    });
}

#[test]
fn behind_a_pooler_locks_are_as_good_and_waiters_ask_again_and_again() {
    let store = Store::postgres();
    let (_pooler, port) = of(&store).server().pooler();
    let url = format!("postgres://postgres@127.0.0.1:{port}/{}", of(&store).name);
    let (one, two) = (client(&url), client(&url));
    let lease = one.lock("n").ttl(secs(20)).acquire().unwrap();
    assert!(two.lock("n").try_acquire().unwrap().is_none());
    lease.extend().unwrap();
    thread::scope(|scope| {
        let asked = two.counters().attempts;
        let waiting = scope.spawn(|| two.lock("n").acquire_within(LIMIT).unwrap().release());
        eventually(LIMIT, || two.counters().attempts > asked + 3);
        lease.release().unwrap();
        waiting.join().unwrap().unwrap();
    });
    // More sessions than the pooler has connections, each of them with statements of its own.
    let (inside, turns) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let client = client(&url);
                for _ in 0..10 {
                    let lease = client.lock("n").acquire_within(LIMIT).unwrap();
                    assert_eq!(inside.fetch_add(1, SeqCst), 0);
                    turns.fetch_add(1, SeqCst);
                    inside.fetch_sub(1, SeqCst);
                    lease.release().unwrap();
                }
            });
        }
    });
    assert_eq!(turns.into_inner(), 60);
}

/// How many statements so many clients sent for so many turns each.
fn statements(waiters: usize, turns: usize) -> usize {
    let store = Store::postgres();
    let database = of(&store);
    database.sql(&format!("ALTER DATABASE {} SET log_statement = 'all'", database.name));
    let clients: Vec<_> = (0..waiters).map(|_| store.client()).collect();
    let log = || std::fs::read_to_string(database.server().dir().join("log")).unwrap();
    // Nobody else has his statements logged.
    let sent = || log().matches("LOG:  execute leasehold_").count();
    let (before, all) = (sent(), Barrier::new(waiters));
    thread::scope(|scope| {
        for client in &clients {
            scope.spawn(|| {
                all.wait();
                for _ in 0..turns {
                    client.lock("n").acquire_within(LIMIT).unwrap().release().unwrap();
                }
            });
        }
    });
    sent() - before
}

#[test]
fn a_turn_costs_as_many_statements_with_32_waiters_as_with_2() {
    for waiters in [2, 8, 32] {
        // Until all have their connections, they ask again and again: that is left out.
        let [few, many] = [5, 35].map(|turns| statements(waiters, turns));
        let cost = many.saturating_sub(few) as f64 / (30 * waiters) as f64;
        println!("{waiters} waiters: {cost} statements a turn");
        assert!(cost < 3.5, "{waiters} waiters: {cost} statements a turn");
    }
}
