//! Values in a store that no program of ours has written, and what somebody has added to its tables: the
//! error says where, and what to type; that is typed here, and then locks go on.

use kit::Server;
use leasehold::{Client, Error, ErrorKind};

use crate::stores::LIMIT;

#[cfg(any(feature = "mysql", feature = "postgres"))]
use crate::sql::client;

#[track_caller]
fn assert_told(error: &Error, kind: ErrorKind, parts: &[&str]) {
    let said = error.to_string();
    assert_eq!(error.kind(), kind, "{said}");
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in: {said}");
    }
    assert!(!said.contains("Redis 6.2 or later"), "{said}");
}

/// The statement that an error says, from this word to its semicolon.
#[cfg(any(feature = "mysql", feature = "postgres"))]
fn statement(error: &Error, word: &str) -> String {
    let said = error.detail();
    let begin = said.find(word).unwrap_or_else(|| panic!("{word} is not in: {said}"));
    said[begin..].split_inclusive(';').next().unwrap().to_owned()
}

fn refused(client: &Client) -> Error {
    client.lock("n").try_acquire().map(drop).unwrap_err()
}

fn goes_on(client: &Client) {
    client.lock("n").acquire_within(LIMIT).unwrap().release().unwrap();
}

#[cfg(feature = "postgres")]
#[test]
fn c13_a_row_or_a_trigger_that_is_not_ours_is_named_by_postgres_with_what_clears_it() {
    let server = kit::Postgres::shared();
    let database = crate::postgres::made(server);
    let sql = |text: &str| server.sql(&database, text);
    let client = client(&server.url(&database));
    goes_on(&client);
    // What a waiter's token is, is its own.
    let token = "5ec7e7aa-0000-0000-0000-000000000001";
    let waiters = format!("ARRAY[ROW(NULL, '{token}', 1, 1)::leasehold.waiter]");
    let taken = "token = '00000000-0000-0000-0000-000000000001', expiry";
    for (change, what) in [
        ("last = 9223372036854775807", "last = 9223372036854775807"),
        // Its last fence, and the one that a take goes on to, which nobody is told of.
        ("last = 9007199254740991", "last = 900719925474099"),
        (&format!("{taken} = 'infinity'"), "expiry = infinity"),
        (
            &format!("last = 9223372036854775807, waiters = {waiters}"),
            "waiters with a value that is",
        ),
    ] {
        for call in [refused, |client: &Client| client.lock("n").acquire().map(drop).unwrap_err()] {
            sql(&format!("UPDATE leasehold.lease SET {change} WHERE name = 'n'"));
            let asking = self::client(&server.url(&database));
            let error = call(&asking);
            assert_told(&error, ErrorKind::WrongType, &["'n'", "leasehold.lease", "'\\x6e'", what]);
            assert!(!error.to_string().contains("5ec7e7"), "{error}");
            // What it still owes for that call would change the next row.
            asking.close().unwrap();
            sql(&statement(&error, "DELETE FROM"));
            goes_on(&client);
        }
    }
    // One that the next grant mends by itself.
    sql("UPDATE leasehold.lease SET first = -5, last = -5 WHERE name = 'n'");
    goes_on(&client);
    sql("CREATE FUNCTION leasehold.refuses() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE EXCEPTION 'boom'; END $$");
    sql("CREATE TRIGGER \"An audit\" BEFORE UPDATE ON leasehold.lease FOR EACH ROW \
         EXECUTE FUNCTION leasehold.refuses()");
    let error = refused(&client);
    assert_told(
        &error,
        ErrorKind::Storage,
        &["boom", "DROP TRIGGER \"An audit\" ON leasehold.lease;"],
    );
    sql(&statement(&error, "DROP TRIGGER"));
    goes_on(&client);
    sql("ALTER TABLE leasehold.lease ADD CONSTRAINT small CHECK (last < 5) NOT VALID");
    let error = refused(&client);
    assert_told(
        &error,
        ErrorKind::Storage,
        &["ALTER TABLE leasehold.lease DROP CONSTRAINT small;"],
    );
    sql(&statement(&error, "ALTER TABLE"));
    goes_on(&client);
}

#[cfg(feature = "mysql")]
#[test]
fn c13_a_row_or_a_trigger_that_is_not_ours_is_named_by_mysql_with_what_clears_it() {
    let server = kit::Mysql::shared();
    let database = crate::mysql::made(server);
    let sql = |text: &str| server.sql(&database, text);
    let client = client(&server.url(&database));
    goes_on(&client);
    sql("UPDATE leasehold_lease SET last_fence = 9007199254740991 WHERE name = 'n'");
    let error = refused(&client);
    let parts = ["'n'", "leasehold_lease", "name = x'6E'", "last_fence = 9007199254740991"];
    assert_told(&error, ErrorKind::WrongType, &parts);
    sql(&statement(&error, "DELETE FROM"));
    goes_on(&client);
    sql("UPDATE leasehold_lease SET fence = -5, last_fence = -5 WHERE name = 'n'");
    goes_on(&client);
    sql("CREATE TRIGGER `re``fuses` BEFORE UPDATE ON leasehold_lease FOR EACH ROW \
         SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'boom'");
    let error = refused(&client);
    assert_told(&error, ErrorKind::Storage, &["boom", "DROP TRIGGER `re``fuses`;"]);
    sql(&statement(&error, "DROP TRIGGER"));
    goes_on(&client);
}

#[test]
fn c13_what_others_write_beside_a_name_is_named_by_redis_with_what_clears_it() {
    let server = Server::start();
    let client = Client::open(&server.url()).unwrap();
    let largest = format!("0 9007199254740991 9007199254740991 {}", "a".repeat(32));
    for (words, what) in [
        (&["SET", "leasehold:{n}", "junk"][..], "holds what no program of Leasehold writes"),
        (&["SET", "leasehold:{n}", &largest], "none is left above it"),
        (&["RPUSH", "leasehold:{n}", "x"], "is of another type"),
    ] {
        server.cmd(&["DEL", "leasehold:{n}"]);
        server.cmd(words);
        for error in [refused(&client), client.lock("n").acquire().map(drop).unwrap_err()] {
            assert_told(&error, ErrorKind::WrongType, &["'n'", "leasehold:{NAME}", "DEL", what]);
        }
        server.cmd(&["DEL", "leasehold:{n}"]);
        goes_on(&client);
    }
}

#[cfg(feature = "zookeeper")]
#[test]
fn c13_a_node_that_is_not_ours_is_named_with_what_removes_it() {
    let server = kit::Zookeeper::shared();
    let root = server.chroot();
    let client = Client::open(&format!("{}?io_timeout=20s", server.url(&root))).unwrap();
    client.initialize(false).unwrap();
    let lease = client.lock("n").acquire().unwrap();
    let nodes = server.shell(&format!("ls -R {root}/leasehold"));
    let holder = nodes.lines().find(|line| line.contains("/l-")).unwrap().trim().to_owned();
    let folder = holder.rsplit_once('/').unwrap().0;
    server.shell(&format!("set {holder} junk"));
    let another = Client::open(&format!("{}?io_timeout=20s", server.url(&root))).unwrap();
    assert_told(&refused(&another), ErrorKind::WrongType, &["'junk'", "deleteall that node"]);
    server.shell(&format!("deleteall {holder}"));
    drop(lease);
    server.shell(&format!("create {folder} x\ncreate {folder}/theirs x"));
    let error = refused(&another);
    let parts = ["'theirs'", "deleteall it", &format!("ls -R {root}/leasehold")];
    assert_told(&error, ErrorKind::WrongType, &parts);
    server.shell(&format!("deleteall {folder}/theirs"));
    goes_on(&another);
}

#[cfg(feature = "etcd")]
#[test]
fn c13_a_key_that_is_not_ours_is_named_with_what_removes_it() {
    let etcd = kit::Etcd::start();
    let client = Client::open(&etcd.url()).unwrap();
    etcd.ctl(&["put", "leasehold/lock/n/theirs", "x"]);
    let error = refused(&client);
    let mend = "etcdctl del 'leasehold/lock/n/theirs'";
    assert_told(&error, ErrorKind::WrongType, &["leasehold/lock/n/theirs", mend]);
    etcd.ctl(&["del", "leasehold/lock/n/theirs"]);
    goes_on(&client);
}
