//! PostgreSQL.

use super::{LIMIT, advice, assert_finds, assert_healthy, begun, examine, ids, open};
use kit::{Postgres, eventually, process};
use leasehold::Checkup;
use nix::sys::signal::Signal;

/// As a server is that nobody has spoilt.
const SOUND: [&str; 2] = ["autovacuum = on", "fsync = on"];

#[test]
fn a_server_with_its_table_has_no_findings_and_what_is_wrong_there_is_found() {
    let server = Postgres::start_with(&SOUND);
    let url = server.url("postgres");
    let found = examine(&url);
    assert_eq!(ids(&found), ["postgres-no-table"]);
    let found = begun(&url);
    assert_healthy(&found);
    assert!(found.measured.iter().any(|it| it.what == "acquire_and_release"));

    assert_finds(&(url.clone() + "?synchronous_commit=off"), "postgres-async-commit");
    for (setting, id) in [
        ("synchronous_commit = off", "postgres-async-commit"),
        ("idle_session_timeout = 60000", "postgres-idle"),
    ] {
        server.sql("postgres", &format!("ALTER ROLE postgres SET {setting}"));
        assert_finds(&url, id);
        server.sql("postgres", "ALTER ROLE postgres RESET ALL");
    }
    server.sql("postgres", "ALTER TABLE leasehold.lease SET (autovacuum_enabled = false)");
    assert_finds(&url, "postgres-autovacuum");
    server.sql(
        "postgres",
        "INSERT INTO leasehold.lease (name, first, last, expiry, used) \
         SELECT n::text::bytea, 1, 1, now(), 0 FROM generate_series(1, 60000) AS n",
    );
    server.sql("postgres", "DELETE FROM leasehold.lease");
    eventually(LIMIT, || ids(&examine(&url)).contains(&"postgres-dead-rows"));

    let _standby = server.standby();
    eventually(LIMIT, || ids(&examine(&url)).contains(&"postgres-async-standby"));
    let (_pooler, port) = server.pooler();
    let pooled = url.replace(&server.port().to_string(), &port.to_string());
    assert_finds(&pooled, "postgres-pooler");
}

#[test]
fn rights_that_are_missing_are_found_with_the_statements_that_mend_them() {
    let server = Postgres::shared();
    let database = server.database();
    open(&server.url(&database)).initialize(false).unwrap();
    let role = format!("clerk_{database}");
    server.sql(&database, &format!("CREATE ROLE {role} LOGIN"));
    let url = server.url(&database).replace("postgres@", &format!("{role}@"));
    let mends = [
        format!("GRANT USAGE ON SCHEMA leasehold TO {role};"),
        format!("GRANT SELECT ON leasehold.version TO {role};"),
        format!("GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold.lease TO {role};"),
    ];
    let found = examine(&url);
    assert_eq!(advice(&found, "postgres-rights"), mends.join(" "));
    mends.iter().for_each(|mend| drop(server.sql(&database, mend)));
    assert!(!ids(&examine(&url)).contains(&"postgres-rights"));
    server.sql(&database, &format!("REVOKE UPDATE ON leasehold.lease FROM {role}"));
    let found = examine(&url);
    assert_eq!(
        advice(&found, "postgres-rights"),
        format!("GRANT UPDATE ON leasehold.lease TO {role};")
    );
}

#[test]
fn a_server_that_does_not_sync_or_lets_few_in_is_found() {
    let server = Postgres::start_with(&["fsync = off", "max_connections = 14"]);
    let url = server.url("postgres");
    begun(&url);
    assert_finds(&url, "postgres-fsync");
    let others: Vec<_> = (0..8)
        .map(|number| {
            let client = open(&url);
            (client.lock(format!("n{number}")).acquire().unwrap(), client)
        })
        .collect();
    assert_finds(&url, "postgres-connections");
    drop(others);
}

#[test]
fn standbys_that_are_missing_not_waited_for_or_set_otherwise_are_found() {
    let mut server = Postgres::start_with(&SOUND);
    let url = server.url("postgres");
    open(&url).initialize(false).unwrap();
    let standby = server.standby();
    server.wait_for_standbys("*");
    assert_healthy(&examine(&url));
    let own = format!("127.0.0.1:{}", server.port());
    let both = url.replace(&own, &format!("{own},127.0.0.1:{}", standby.port()));
    let found = examine(&both);
    assert_eq!(ids(&found), ["postgres-standby-names"], "{:#?}", found.findings);
    let set = |server: &Postgres, line: &str| {
        server.sql("postgres", &format!("ALTER SYSTEM SET {line}"));
        server.sql("postgres", "SELECT pg_reload_conf()");
    };
    set(&standby, "synchronous_standby_names = '*'");
    eventually(LIMIT, || ids(&examine(&both)).is_empty());
    set(&standby, "synchronous_commit = off");
    eventually(LIMIT, || ids(&examine(&both)) == ["postgres-hosts-differ"]);

    server.sql("postgres", "ALTER ROLE postgres SET synchronous_commit = local");
    assert_finds(&url, "postgres-local-commit");
    server.sql("postgres", "ALTER ROLE postgres RESET ALL");

    // It is there, and says nothing. No trial waits for it.
    let look = |url: &str| {
        let found = open(url).examine(&Checkup::default().read_only()).unwrap();
        ids(&found).contains(&"postgres-standby-missing")
    };
    process::signal_family(standby.pid(), Signal::SIGSTOP);
    std::thread::scope(|scope| {
        let taking = scope.spawn(|| open(&url).lock("n").acquire_within(LIMIT).map(drop));
        eventually(LIMIT, || look(&url) || taking.is_finished());
        assert!(!taking.is_finished());
        process::signal_family(standby.pid(), Signal::SIGCONT);
        taking.join().unwrap().unwrap();
    });
    set(&server, "synchronous_standby_names = 'ANY 2 (*)'");
    eventually(LIMIT, || look(&url));
    set(&server, "synchronous_standby_names = '*'");
    standby.cut_off();
    eventually(LIMIT, || look(&url));
    set(&server, "synchronous_standby_names = ''");
    set(&standby, "synchronous_standby_names = ''");
    standby.sql("postgres", "SELECT pg_promote()");
    eventually(LIMIT, || ids(&examine(&both)).contains(&"postgres-two-primaries"));
    server.crash();
    let found = examine(&both);
    assert!(ids(&found).contains(&"postgres-host-down"), "{:#?}", found.findings);
}
