//! MySQL and MariaDB.

use kit::Mysql;
use leasehold::{Checkup, Severity};

use super::{advice, assert_finds, assert_healthy, begun, examine, ids, open};

#[test]
fn a_server_with_its_tables_has_no_findings_and_what_is_wrong_there_is_found() {
    let server = Mysql::start_with(&["--log-bin=log", "--sync-binlog=1", "--binlog-format=ROW"]);
    server.sql("", "CREATE DATABASE locks");
    let url = server.url("locks");
    let found = examine(&url);
    assert_eq!(ids(&found), ["mysql-no-table"]);
    let found = begun(&url);
    assert_healthy(&found);
    for what in ["acquire_and_release", "version", "clock", "round_trip_p99"] {
        assert!(found.measured.iter().any(|it| it.what == what), "{what}");
    }

    for (setting, usual, bad, id) in [
        ("innodb_flush_log_at_trx_commit", "1", "2", "mysql-flush"),
        ("innodb_flush_log_at_trx_commit", "1", "0", "mysql-flush"),
        ("sync_binlog", "1", "0", "mysql-sync-binlog"),
        ("binlog_format", "ROW", "STATEMENT", "mysql-binlog-format"),
        ("wait_timeout", "28800", "20", "mysql-idle"),
        ("max_connections", "400", "10", "mysql-connections"),
        ("read_only", "0", "1", "mysql-read-only"),
    ] {
        // Those that only the program's own sessions hold.
        let _others: Vec<_> = (0..if id == "mysql-connections" { 9 } else { 0 })
            .map(|number| {
                let client = open(&url);
                (client.lock(format!("n{number}")).acquire().unwrap(), client)
            })
            .collect();
        server.sql("", &format!("SET GLOBAL {setting} = {bad}"));
        let found = examine(&url);
        assert!(ids(&found).contains(&id), "{setting}: {:#?}", found.findings);
        server.sql("", &format!("SET GLOBAL {setting} = {usual}"));
    }

    server.sql("locks", "ALTER TABLE leasehold_client ENGINE = Aria");
    let found = examine(&url);
    assert_eq!(advice(&found, "mysql-engine"), "ALTER TABLE leasehold_client ENGINE = InnoDB");
    server.sql("locks", "ALTER TABLE leasehold_client ENGINE = InnoDB");
    server.sql("locks", "DROP TABLE leasehold_waiter");
    assert_eq!(ids(&examine(&url)), ["mysql-no-table"]);
    assert_healthy(&begun(&url));
}

#[test]
fn rights_that_are_missing_are_found_with_the_statements_that_mend_them() {
    let server = Mysql::shared();
    let database = server.database();
    open(&server.url(&database)).initialize(false).unwrap();
    let user = format!("clerk_{database}");
    let page = include_str!("../../../docs/operate/rights.md");
    let lines = page.lines().filter(|line| line.starts_with("GRANT ") && line.contains(" locks."));
    let grants: Vec<_> = lines
        .map(|line| {
            line.replace(" locks.", &format!(" `{database}`."))
                .replace("TO app", &format!("TO '{user}'@'%'"))
        })
        .collect();
    assert_eq!(grants.len(), 5);
    server.sql("", &format!("CREATE USER {user}@'%'"));
    // Else it may not come to the database at all.
    server.sql("", &format!("GRANT CREATE ON `{database}`.* TO {user}@'%'"));
    let url = server.url(&database).replace("root@", &format!("{user}@"));
    assert_eq!(advice(&examine(&url), "mysql-rights"), grants.join(" "));
    grants.iter().for_each(|grant| drop(server.sql("", grant)));
    assert_healthy(&examine(&url));
    for (right, table) in [("UPDATE", "lease"), ("INSERT", "waiter"), ("DELETE", "broken")] {
        let on = format!("{right} ON `{database}`.leasehold_{table}");
        server.sql("", &format!("REVOKE {on} FROM {user}@'%'"));
        let found = open(&url).examine(&Checkup::default().read_only()).unwrap();
        assert_eq!(advice(&found, "mysql-rights"), format!("GRANT {on} TO '{user}'@'%';"));
        server.sql("", &format!("GRANT {on} TO {user}@'%'"));
    }
    // What each session is told first: its clock stands still.
    server.sql("", "SET GLOBAL init_connect = 'SET timestamp = UNIX_TIMESTAMP()'");
    let found = examine(&url);
    server.sql("", "SET GLOBAL init_connect = ''");
    assert!(ids(&found).contains(&"clock-drifts"), "{:#?}", found.findings);
}

#[test]
fn a_replica_is_passed_over_and_found_where_it_takes_writes() {
    let mut server = Mysql::start_with(&["--log-bin=log", "--sync-binlog=1"]);
    server.sql("", "CREATE DATABASE locks");
    let replica = server.replica();
    replica.sql("", "SET GLOBAL sync_binlog = 1");
    let url = server.url("locks");
    open(&url).initialize(false).unwrap();
    let both =
        format!("mysql://root@127.0.0.1:{},127.0.0.1:{}/locks", server.port(), replica.port());
    kit::eventually(super::LIMIT, || ids(&examine(&both)) == ["mysql-async-replica"]);
    let found = examine(&both);
    assert!(found.is_fit() && found.findings[0].severity == Severity::Note);
    assert_eq!(ids(&examine(&replica.url("locks"))), ["mysql-read-only"]);
    replica.sql("", "SET GLOBAL read_only = 0");
    assert!(ids(&examine(&replica.url("locks"))).contains(&"mysql-replica"));
    assert_finds(&both, "mysql-two-primaries");
    server.crash();
    let found = examine(&both);
    assert!(ids(&found).contains(&"mysql-host-down"), "{:#?}", found.findings);
}

#[test]
fn semi_sync_that_has_fallen_back_and_replicas_with_lesser_settings_are_found() {
    let [server, replica] = Mysql::semi_sync(86_400_000);
    server.sql("", "CREATE DATABASE locks");
    let url = server.url("locks");
    assert_healthy(&begun(&url));
    let both =
        format!("mysql://root@127.0.0.1:{},127.0.0.1:{}/locks", server.port(), replica.port());
    replica.sql("", "SET GLOBAL sync_binlog = 0, innodb_flush_log_at_trx_commit = 2");
    let found = examine(&both);
    assert_eq!(ids(&found), ["mysql-hosts-differ"], "{:#?}", found.findings);
    for lesser in [
        "innodb_flush_log_at_trx_commit is 2 there, and 1 on the primary",
        "sync_binlog is 0 there, and 1 on the primary",
        "rpl_semi_sync_master_enabled is OFF there, and ON on the primary",
    ] {
        assert!(found.findings[0].what.contains(lesser), "{:#?}", found.findings);
    }
    server.sql("", "SET GLOBAL rpl_semi_sync_master_timeout = 100");
    assert_finds(&url, "mysql-semi-sync-timeout");
    replica.sql("", "STOP SLAVE");
    // One commit waits in vain, and no other one does.
    server.sql("locks", "DELETE FROM leasehold_version WHERE number = 0");
    server.sql("locks", "INSERT INTO leasehold_version VALUES (0)");
    assert_finds(&url, "mysql-semi-sync-off");
}

#[test]
fn a_cluster_of_two_is_a_note_and_clocks_that_are_apart_are_found() {
    let [first, second] = Mysql::cluster();
    first.sql("", "CREATE DATABASE locks; CREATE USER app@'%'; GRANT ALL ON locks.* TO app@'%'");
    let url = format!("mysql://app@127.0.0.1:{},127.0.0.1:{}/locks", first.port(), second.port());
    open(&url).initialize(false).unwrap();
    let found = examine(&url);
    assert_eq!(ids(&found), ["mysql-few-nodes", "mysql-few-nodes"], "{:#?}", found.findings);
    second.sql("", "SET GLOBAL init_connect = 'SET timestamp = UNIX_TIMESTAMP() + 60'");
    assert_finds(&url, "mysql-clocks");
}

#[test]
fn a_server_that_is_too_old_is_found() {
    let server = Mysql::start_with(&["--version=5.7.44-log"]);
    server.sql("", "CREATE DATABASE locks");
    assert_finds(&server.url("locks"), "mysql-old");
}
