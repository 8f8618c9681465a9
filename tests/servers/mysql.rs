//! What a MySQL or a MariaDB is like besides what all stores have in common.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use crate::sql::{client, refused, with};
use crate::stores::{LIMIT, MysqlDatabase, Store, ms, secs};
#[cfg(feature = "tls")]
use kit::{Certificates, ServerCertificate};
use kit::{Mysql, eventually};
use leasehold::{Backoff, ErrorKind, WaitMode};

pub(crate) fn of(store: &Store) -> &MysqlDatabase {
    let Store::Mysql(database) = store else { panic!() };
    database
}

/// A database with the tables.
pub(crate) fn made(server: &Mysql) -> String {
    let database = server.database();
    client(&server.url(&database)).initialize(false).unwrap();
    database
}

#[test]
fn a_lock_of_a_mysql_that_nobody_waits_for_is_taken_without_a_look_at_who_waits() {
    let server = Mysql::shared();
    let database = made(server);
    let user = format!("few_{database}");
    let may = format!("GRANT SELECT, INSERT, UPDATE ON {database}");
    let grants = format!("{may}.leasehold_lease TO {user}; {may}.leasehold_version TO {user}");
    server.sql("", &format!("CREATE USER {user}@'%'; {grants}"));
    // It looks for some such windows after somebody waited.
    let root = client(&with(&server.url(&database), "claim_window=3s"));
    root.lock("n").acquire().unwrap().release().unwrap();
    let few = client(&server.url(&database).replace("root@", &format!("{user}@")));
    few.lock("n").acquire().unwrap().release().unwrap();
    // For a while after somebody waited, it looks.
    let held = root.lock("n").acquire().unwrap();
    let error = root.lock("n").acquire_within(ms(50)).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    held.release().unwrap();
    let error = few.lock("n").try_acquire().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
    let takes = || few.lock("n").try_acquire().is_ok_and(|lease| lease.is_some());
    eventually(LIMIT, takes);
}

#[test]
fn c10_the_row_of_a_mysql_says_for_as_long_as_anybody_waits_that_somebody_does() {
    let store = Store::mysql();
    let database = of(&store);
    let unsaid = "SELECT COUNT(*), (SELECT COUNT(*) FROM leasehold_waiter) FROM leasehold_waiter w
        LEFT JOIN leasehold_lease l USING (name) WHERE NOT IFNULL(w.alive_until <= l.awaited, 0)";
    let urls =
        ["50ms", "120ms", "1s"].map(|window| with(&store.url(), &format!("claim_window={window}")));
    let clients = urls.map(|url| client(&url));
    let held = store.client().lock("n").acquire().unwrap();
    thread::scope(|scope| {
        for waits in &clients {
            scope.spawn(|| {
                for _ in 0..10 {
                    waits.lock("n").acquire_within(LIMIT).unwrap().release().unwrap();
                }
            });
        }
        let is_seen = || {
            let said = database.sql(unsaid);
            assert!(said.starts_with('0'), "{said}");
            said.ends_with('3')
        };
        eventually(LIMIT, is_seen);
        let seen = (0..20).filter(|_| is_seen()).count();
        assert!(seen > 0);
        held.release().unwrap();
        while is_seen() {}
    });
}

#[test]
fn c1_c2_a_mysql_that_crashes_knows_each_grant_that_anybody_was_told_of() {
    let mut server = Mysql::start();
    let url = server.url(&made(&server));
    let (holder, other) = (client(&url), client(&url));
    for round in 0..3 {
        let name = format!("n{round}");
        let lease = holder.lock(&name).ttl(secs(60)).acquire().unwrap();
        let given = holder.lock("given").ttl(secs(60)).acquire().unwrap();
        let last = given.fence();
        given.release().unwrap();
        server.crash();
        server.start_again();
        assert!(other.lock(&name).try_acquire().unwrap().is_none());
        lease.extend().unwrap();
        lease.release().unwrap();
        let again = other.lock("given").try_acquire().unwrap().unwrap();
        assert!(again.fence() > last);
        again.release().unwrap();
    }
}

#[test]
fn a_replica_is_never_asked_for_a_lock_until_it_is_the_primary() {
    let mut first = Mysql::start_with(&["--log-bin=log"]);
    let database = made(&first);
    let second = first.replica();
    let has_tables = || second.try_sql(&database, "SELECT number FROM leasehold_version").is_ok();
    eventually(LIMIT, has_tables);
    let error = refused(&second.url(&database));
    assert_eq!(error.kind(), ErrorKind::ReadOnly);
    assert!(error.detail().contains("connect to the primary"), "{error}");
    let both =
        format!("mysql://root@127.0.0.1:{},127.0.0.1:{}/{database}", second.port(), first.port());
    let client = client(&both);
    let lease = client.lock("n").ttl(secs(30)).acquire().unwrap();
    let sent = "SELECT COUNT(*) FROM leasehold_lease WHERE token IS NOT NULL";
    eventually(LIMIT, || second.sql(&database, sent) == "1");
    first.crash();
    let down = client.lock("other").try_acquire().map(drop).unwrap_err();
    assert!(down.is_retriable(), "{down}");
    second.sql("", "STOP SLAVE; SET GLOBAL read_only = 0");
    lease.extend().unwrap();
    assert!(client.lock("n").try_acquire().unwrap().is_none());
    lease.release().unwrap();
    client.lock("other").acquire_within(LIMIT).unwrap().release().unwrap();
}

/// How a planned failover begins: sessions go on, and may not write.
#[test]
fn a_primary_that_becomes_read_only_hands_its_sessions_over() {
    let first = Mysql::start_with(&["--log-bin=log"]);
    let database = made(&first);
    first.sql("", "CREATE USER app@'%'; GRANT ALL ON *.* TO app@'%'; REVOKE SUPER, READ ONLY ADMIN ON *.* FROM app@'%'");
    let second = first.replica();
    let url =
        format!("mysql://app@127.0.0.1:{},127.0.0.1:{}/{database}", first.port(), second.port());
    let client = client(&url);
    let lease = client.lock("n").ttl(secs(30)).acquire().unwrap();
    let sent = "SELECT COUNT(*) FROM leasehold_lease WHERE token IS NOT NULL";
    eventually(LIMIT, || second.try_sql(&database, sent).as_deref() == Ok("1"));
    first.sql("", "SET GLOBAL read_only = 1");
    thread::scope(|scope| {
        // While no host takes writes, it asks again and again.
        let extended = scope.spawn(|| lease.extend());
        thread::sleep(ms(100));
        second.sql("", "STOP SLAVE; SET GLOBAL read_only = 0");
        extended.join().unwrap().unwrap();
    });
    lease.release().unwrap();
    assert_eq!(second.sql(&database, sent), "0");
}

#[test]
fn passwords_of_a_mysql_are_told_and_wrong_ones_are_refused_at_once() {
    let server = Mysql::start_with(&["--plugin-load-add=auth_ed25519"]);
    let database = made(&server);
    server.sql(
        "",
        "CREATE USER native@'%' IDENTIFIED BY 'p@ss'; GRANT ALL ON *.* TO native@'%'; \
         CREATE USER ed@'%' IDENTIFIED VIA ed25519 USING PASSWORD('p@ss'); \
         CREATE USER nobody@'10.0.0.1'; GRANT ALL ON *.* TO nobody@'10.0.0.1'",
    );
    let url =
        |credentials: &str| format!("mysql://{credentials}@127.0.0.1:{}/{database}", server.port());
    client(&url("native:p%40ss")).lock("n").acquire().unwrap().release().unwrap();
    for (wrong, said) in [
        ("native:wrong", "the user or the password is wrong"),
        ("native", "wants a password"),
        ("nobody", "wants a password"),
        ("ed:p%40ss", "logs in by client_ed25519, which is not known here"),
    ] {
        let error = refused(&url(wrong));
        assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
        assert!(error.detail().contains(said), "{error}");
        assert!(!error.to_string().contains("p@ss"), "{error}");
    }
    let error = refused(&url("root").replace(&database, "nowhere"));
    assert_eq!(error.kind(), ErrorKind::BadArgument, "{error}");
    assert!(error.detail().contains("CREATE DATABASE"), "{error}");
    // The operating system says who it is.
    let me = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap().name;
    server.sql("", &format!("CREATE OR REPLACE USER {me}@localhost IDENTIFIED VIA unix_socket OR mysql_native_password USING 'invalid'; GRANT ALL ON *.* TO {me}@localhost"));
    let socket = format!("mysql://{me}@/{database}?socket={}", server.socket().display());
    client(&socket).lock("n").acquire().unwrap().release().unwrap();
}

/// What SHA-256 makes of `p@ss` and of what the server below says.
const PROOF: &str = "06625865b44831788b2cd1c46d1d7118ab2bf4a96850872387b9b1773e8809ec";

/// A server that greets as MySQL 8 does, and goes on as it is told once it has been shown the password.
/// Returns what it heard then.
fn greets<S: Read + Write>(mut stream: S, says: &[u8]) -> Vec<u8> {
    let say = |stream: &mut S, sequence: u8, payload: &[u8]| {
        let head = [payload.len() as u8, 0, 0, sequence];
        stream.write_all(&[&head[..], payload].concat()).unwrap();
    };
    let hear = |stream: &mut S| {
        let mut head = [0; 4];
        if stream.read_exact(&mut head).is_err() {
            return Vec::new();
        }
        let mut payload = vec![0; usize::from(head[0])];
        stream.read_exact(&mut payload).unwrap();
        payload
    };
    let greeting = [
        &b"\x0a8.4.0\0"[..],
        &[1, 0, 0, 0],
        b"01234567",
        b"\0\xff\xff\x2d\x02\0\xff\xdf\x15",
        &[0; 10],
        b"89abcdefghij\0caching_sha2_password\0",
    ];
    say(&mut stream, 0, &greeting.concat());
    let hello = hear(&mut stream);
    let proof: String = hello[35..67].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((&hello[32..34], &*proof), (&b"u\0"[..], PROOF));
    say(&mut stream, 2, says);
    if says == [1, 3] {
        say(&mut stream, 3, b"\xff\x10\x04#08004Too many connections");
    }
    let heard = hear(&mut stream);
    say(&mut stream, 4, b"\xff\x10\x04#08004Too many connections");
    heard
}

#[test]
fn the_password_of_a_mysql_8_is_told_where_nobody_else_can_read_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    // It knows the password, or it wants it.
    for (says, error) in [([1, 3], ErrorKind::Exhausted), ([1, 4], ErrorKind::Auth)] {
        let server = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("mysql://u:p%40ss@127.0.0.1:{}/d", server.local_addr().unwrap().port());
        let said = thread::scope(|scope| {
            scope.spawn(|| greets(server.accept().unwrap().0, &says));
            client(&url).ping().unwrap_err()
        });
        assert_eq!(said.kind(), error, "{said}");
        assert_eq!(said.detail().contains("write ssl-mode="), error == ErrorKind::Auth, "{said}");
    }
    let server = UnixListener::bind(&path).unwrap();
    let url = format!("mysql://u:p%40ss@/d?socket={}", path.display());
    let (said, heard) = thread::scope(|scope| {
        let heard = scope.spawn(|| greets(server.accept().unwrap().0, &[1, 4]));
        (client(&url).ping().unwrap_err(), heard.join().unwrap())
    });
    assert_eq!(said.kind(), ErrorKind::Exhausted, "{said}");
    assert_eq!(heard, b"p@ss\0");
}

#[cfg(feature = "tls")]
#[test]
fn each_ssl_mode_trusts_what_mysql_says_that_it_does() {
    let dir = tempfile::tempdir().unwrap();
    let certificates = Certificates::make(dir.path());
    let plain = Mysql::shared();
    let error = client(&with(&plain.url(&made(plain)), "ssl-mode=required")).ping().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tls, "{error}");
    assert!(error.detail().contains("ssl-mode=disabled"), "{error}");
    let (certificate, key) = certificates.server(ServerCertificate::Good);
    let server = Mysql::start_showing(&certificate, &key, &[]);
    let database = made(&server);
    let ca = format!("&ssl-ca={}", certificates.ca().display());
    for (which, mode, outcome) in [
        (ServerCertificate::Good, format!("verify_identity{ca}"), Ok(())),
        (ServerCertificate::Good, "required".to_owned(), Ok(())),
        (ServerCertificate::WrongHost, format!("verify_identity{ca}"), Err("write that host")),
        (ServerCertificate::WrongHost, format!("verify_ca{ca}"), Ok(())),
        (ServerCertificate::Expired, format!("verify_ca{ca}"), Err("expired")),
        (ServerCertificate::Expired, "required".to_owned(), Ok(())),
    ] {
        let (certificate, key) = certificates.server(which);
        server.show_certificate(&certificate, &key);
        let url = with(&server.url(&database), &format!("ssl-mode={mode}"));
        match (client(&url).ping(), outcome) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(said)) => {
                assert_eq!(error.kind(), ErrorKind::Tls, "{mode}: {error}");
                assert!(error.detail().contains(said), "{mode}: {error}");
            }
            (pinged, outcome) => panic!("{mode}: {pinged:?} and not {outcome:?}"),
        }
    }
    let url = with(&server.url(&database), "ssl-mode=required");
    client(&url).lock("n").acquire().unwrap().release().unwrap();
    server.sql("", "CREATE USER only@'%' REQUIRE SSL; GRANT ALL ON *.* TO only@'%'");
    client(&url.replace("root@", "only@")).ping().unwrap();
    assert_eq!(refused(&server.url(&database).replace("root@", "only@")).kind(), ErrorKind::Auth);
}

#[test]
fn c2_a_fence_of_a_mysql_is_larger_although_the_row_was_deleted() {
    let store = Store::mysql();
    let client = store.client();
    let first = client.lock("n").acquire().unwrap();
    let fence = first.fence();
    first.release().unwrap();
    of(&store).sql("DELETE FROM leasehold_lease");
    assert!(client.lock("n").acquire().unwrap().fence() > fence);
}

#[test]
fn no_setting_of_a_session_or_a_server_changes_what_statements_mean() {
    let server = Mysql::start_with(&[
        "--sql-mode=ANSI,ORACLE,NO_UNSIGNED_SUBTRACTION,SIMULTANEOUS_ASSIGNMENT,TRADITIONAL",
        "--init-connect=SET autocommit=0, time_zone='+13:00', sql_safe_updates=1",
        "--default-time-zone=-11:00",
        "--transaction-isolation=SERIALIZABLE",
        "--completion-type=CHAIN",
        "--character-set-server=utf16",
    ]);
    server.sql(
        "",
        "CREATE USER app@'%'; GRANT ALL ON *.* TO app@'%'; REVOKE SUPER ON *.* FROM app@'%'; \
         REVOKE CONNECTION ADMIN ON *.* FROM app@'%'",
    );
    let url = server.url(&made(&server)).replace("root@", "app@");
    let (one, two) = (client(&url), client(&url));
    for name in [&b"n"[..], b"it's \\ \0 \xff", &[b'"'; 2047], &[b'x'; 2048], &[b'x'; 5000]] {
        let lease = one.lock(name).ttl(secs(20)).acquire().unwrap();
        assert!(two.lock(name).try_acquire().unwrap().is_none());
        thread::scope(|scope| {
            let waiting = scope.spawn(|| two.lock(name).acquire_within(LIMIT).unwrap());
            thread::sleep(ms(50));
            lease.extend().unwrap();
            let fence = lease.fence();
            lease.release().unwrap();
            let next = waiting.join().unwrap();
            assert!(next.fence() > fence);
            next.release().unwrap();
        });
    }
}

#[test]
fn rows_of_a_mysql_that_nobody_uses_are_removed_as_one_goes_and_those_in_use_stay() {
    let store = Store::mysql();
    let (client, database) = (store.client(), of(&store));
    let held = client.lock("held").ttl(secs(600)).acquire().unwrap();
    database.sql(
        "INSERT INTO leasehold_lease SELECT seq, NULL, 1, 1, 0, 1, 0, 0 FROM seq_1_to_300; \
         INSERT INTO leasehold_waiter SELECT seq, 1, REPEAT('x', 16), 1 FROM seq_1_to_300; \
         UPDATE leasehold_lease SET used = 1",
    );
    for _ in 0..4 * 64 {
        client.lock("n").acquire().unwrap().release().unwrap();
    }
    let count = "SELECT COUNT(*) FROM leasehold_lease WHERE used = 1";
    assert_eq!(database.sql(count), "1", "the one that is held");
    assert_eq!(database.sql("SELECT COUNT(*) FROM leasehold_waiter"), "0");
    // It is in use from when it was given back, however long it was held.
    held.release().unwrap();
    assert_eq!(database.sql(count), "0");
    assert_eq!(database.sql("SELECT COUNT(*) FROM leasehold_lease WHERE name = 'held'"), "1");
}

#[test]
fn c10_any_number_of_dead_waiters_of_a_mysql_is_passed_over() {
    let store = Store::mysql();
    let database = of(&store);
    database.sql(
        "INSERT INTO leasehold_lease VALUES ('n', NULL, 1, 1, 0, 1, 0, 0); INSERT INTO leasehold_waiter \
         SELECT 'n', seq, REPEAT('x', 16), 1 FROM seq_1_to_10000",
    );
    let (one, two) = (store.client(), store.client());
    let lease = one.lock("n").try_acquire().unwrap().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| two.lock("n").acquire_within(LIMIT).unwrap());
        thread::sleep(ms(100));
        lease.release().unwrap();
        waiting.join().unwrap().release().unwrap();
    });
    assert_eq!(database.sql("SELECT COUNT(*) FROM leasehold_waiter"), "0");
}

#[test]
fn a_wait_that_spins_asks_as_its_backoff_says_and_not_as_the_queue_does() {
    let store = Store::mysql_in(None);
    let (holder, client) = (store.client(), store.client());
    let lease = holder.lock("n").acquire().unwrap();
    let mode = WaitMode::Spin(Backoff::default().first(ms(1000)).longest(ms(1000)));
    let error = client.lock("n").wait_mode(mode).acquire_within(ms(4000)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    // Each half a second, at random: the first in the queue asks each 10 ms.
    let asked = client.counters().attempts;
    assert!(asked < 60, "{asked}");
    lease.release().unwrap();
}

/// How many statements a turn costs among so many clients of one name.
fn statements(clients: usize) -> f64 {
    const TURNS: usize = 30;
    let store = Store::mysql_in(Some(Mysql::start()));
    let count = || {
        let all = "SELECT SUM(variable_value) FROM information_schema.global_status WHERE \
                   variable_name IN ('COM_UPDATE', 'COM_SELECT', 'COM_INSERT', \
                   'COM_INSERT_SELECT', 'COM_DELETE')";
        of(&store).sql(all).parse::<f64>().unwrap()
    };
    let clients: Vec<_> = (0..clients).map(|_| store.client()).collect();
    clients.iter().for_each(|client| client.ping().unwrap());
    let (before, all) = (count(), Barrier::new(clients.len()));
    thread::scope(|scope| {
        for client in &clients {
            scope.spawn(|| {
                all.wait();
                for _ in 0..TURNS {
                    let lease = client.lock("n").acquire_within(LIMIT).unwrap();
                    thread::sleep(Duration::from_millis(2));
                    lease.release().unwrap();
                }
            });
        }
    });
    (count() - before) / (TURNS * clients.len()) as f64
}

#[test]
fn a_turn_on_a_mysql_costs_about_as_many_statements_with_32_waiters_as_with_2() {
    for clients in [2, 8, 32] {
        let cost = statements(clients);
        println!("{clients} waiters: {cost:.1} statements a turn");
        assert!(cost < 30.0, "{clients} waiters: {cost} statements a turn");
    }
}
