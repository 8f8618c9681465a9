//! A MySQL that waits for a replica, and what ends that wait without a word: then grants count that only
//! the primary has.

use std::thread;

use crate::mysql::made;
use crate::sql::client;
use crate::stores::{LIMIT, secs};
use kit::{Mysql, eventually};
use leasehold::{Client, ErrorKind, EventKind, Lease};

/// Nobody but those who take locks: what clients say of themselves would wait, too.
const WAITING: &str = "SELECT id FROM information_schema.processlist
    WHERE state LIKE 'Waiting for semi-sync ACK%'";

fn status(server: &Mysql) -> String {
    server.sql("", "SHOW STATUS LIKE 'Rpl_semi_sync_master_status'").replace('\t', " ")
}

/// A primary that waits for its replica, a replica that hears nothing any more, and a client of both of
/// them with a lease that the replica has not got, which was taken as this says.
fn granted_alone(take: impl FnOnce(&Mysql, &Client) -> Lease) {
    let [mut primary, replica] = Mysql::semi_sync(600_000);
    let database = made(&primary);
    let url = format!(
        "mysql://root@127.0.0.1:{},127.0.0.1:{}/{database}?register=no",
        primary.port(),
        replica.port()
    );
    let client = client(&url);
    let known = client.lock("known").ttl(secs(600)).acquire().unwrap();
    // It acknowledges what it has not carried out yet.
    let knows = "SELECT COUNT(*) FROM leasehold_lease WHERE name = 'known'";
    eventually(LIMIT, || replica.try_sql(&database, knows).as_deref() == Ok("1"));
    replica.sql("", "STOP SLAVE");
    let lease = take(&primary, &client);
    let told = client.events().unwrap();
    primary.crash();
    replica.sql("", "SET GLOBAL read_only = 0");
    // It looks free there, and only the fence tells the two apart.
    let later = client.lock("n").ttl(secs(60)).acquire_within(LIMIT).unwrap();
    assert!(later.fence() > lease.fence(), "{} and {}", later.fence(), lease.fence());
    let event = told.next_within(LIMIT).unwrap().expect("it is told");
    assert!(matches!(event.kind, EventKind::Lost(_)) && *event.name == *b"n", "{event:?}");
    assert_eq!(lease.release().unwrap_err().kind(), ErrorKind::Lost);
    // What the replica had heard of is there.
    known.extend().unwrap();
    known.release().unwrap();
    later.release().unwrap();
}

#[test]
fn c2_c9_who_was_granted_a_lock_when_semi_sync_had_given_up_is_told_after_the_failover() {
    granted_alone(|primary, client| {
        primary.sql("", "SET GLOBAL rpl_semi_sync_master_timeout = 200");
        assert_eq!(status(primary), "Rpl_semi_sync_master_status ON");
        let lease = client.lock("n").ttl(secs(9)).acquire().unwrap();
        assert_eq!(status(primary), "Rpl_semi_sync_master_status OFF");
        lease
    });
}

/// The server answers it as any other commit: nothing is there that a client could go by.
#[test]
fn c2_c9_who_was_granted_a_lock_as_an_operator_killed_the_wait_is_told_after_the_failover() {
    granted_alone(|primary, client| {
        thread::scope(|scope| {
            let taking = scope.spawn(|| client.lock("n").ttl(secs(9)).acquire().unwrap());
            eventually(LIMIT, || !primary.sql("", WAITING).is_empty());
            primary.sql("", &format!("KILL QUERY {}", primary.sql("", WAITING)));
            taking.join().unwrap()
        })
    });
}

/// One that ends the connection, too, leaves an unknown outcome, as each answer that is lost.
#[test]
fn c6_a_take_whose_session_was_killed_as_it_waited_for_the_replica_is_not_held() {
    let [primary, replica] = Mysql::semi_sync(600_000);
    let database = made(&primary);
    let client = Client::open(&(primary.url(&database) + "?io_timeout=60s&register=no")).unwrap();
    client.lock("n").acquire().unwrap().release().unwrap();
    replica.sql("", "STOP SLAVE");
    thread::scope(|scope| {
        let taking = scope.spawn(|| client.lock("n").ttl(secs(600)).try_acquire());
        eventually(LIMIT, || !primary.sql("", WAITING).is_empty());
        primary.sql("", &format!("KILL {}", primary.sql("", WAITING)));
        eventually(LIMIT, || taking.is_finished() || client.counters().unknown > 0);
        assert!(!taking.is_finished(), "{:?}", taking.join());
        replica.sql("", "START SLAVE");
        taking.join().unwrap().unwrap().expect("what was unknown is given back").release().unwrap();
    });
}
