//! A MySQL whose sessions meet at one row, are killed, or are those of a cluster's nodes.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread;

use crate::mysql::{made, of};
use crate::mysql_faults::while_rows_are_kept;
use crate::sql::{client, contend};
use crate::stores::{LIMIT, MysqlDatabase, STALL, Store, eventually_free, secs};
use kit::{Mysql, eventually, unless_starved};
use leasehold::Lease;

/// How often the server says that it has done this.
fn counted(database: &MysqlDatabase, what: &str) -> u64 {
    let all = "SELECT count FROM information_schema.innodb_metrics WHERE name =";
    database.sql(&format!("{all} '{what}'")).parse().unwrap()
}

/// A session that is no program of ours keeps what stands in an index of some rows, until one of ours
/// that has a row waits for that; then it wants the row of `n0`. It has changed more, so that it is ours
/// which is rolled back.
const AGAINST: &str = "DELIMITER //
    BEGIN NOT ATOMIC
        DECLARE seen, found INT DEFAULT 0;
        START TRANSACTION;
        INSERT INTO heavy SELECT seq FROM seq_1_to_2000;
        SELECT COUNT(name) INTO found FROM leasehold_lease FORCE INDEX (leasehold_by_use)
            WHERE used = 1 LOCK IN SHARE MODE;
        WHILE found > 0 AND seen < 30 AND NOT EXISTS (
            SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'
        ) DO
            DO SLEEP(0.12);
            SET seen = seen + 1;
        END WHILE;
        SELECT COUNT(name) INTO found FROM leasehold_lease WHERE name = 'n0' FOR UPDATE;
        ROLLBACK;
    END//";

/// Each change of a row in use changes what stands in the index, if that is an old hour.
const OLD: &str = "UPDATE leasehold_lease SET used = 1";

/// Has a call of ours rolled back for the sake of another session, which it is waiting for.
fn deadlock(database: &MysqlDatabase, call: impl Fn()) {
    let before = counted(database, "lock_deadlocks");
    eventually(LIMIT, || {
        database.sql(OLD);
        thread::scope(|scope| {
            let against = scope.spawn(|| database.sql(AGAINST));
            let keeps = "SELECT COUNT(*) FROM information_schema.processlist
                WHERE db = DATABASE() AND info LIKE '%SLEEP%' AND id <> CONNECTION_ID()";
            // Where a renewal came first, there is nothing to keep.
            eventually(LIMIT, || against.is_finished() || database.sql(keeps) == "1");
            call();
        });
        counted(database, "lock_deadlocks") > before
    });
}

fn with_heavy() -> Store {
    let store = Store::mysql_in(Some(Mysql::start()));
    of(&store).sql("CREATE TABLE heavy (n INT)");
    store
}

#[test]
fn c9_what_deadlocks_with_another_session_of_a_mysql_is_made_again() {
    let store = with_heavy();
    let (one, two, database) = (client(&store.url()), client(&store.url()), of(&store));
    let lease = one.lock("n0").ttl(secs(600)).acquire().unwrap();
    deadlock(database, || lease.extend().unwrap());
    lease.release().unwrap();
    let calls = AtomicU32::new(0);
    deadlock(database, || {
        calls.fetch_add(1, SeqCst);
        two.lock("n0").try_acquire().unwrap().unwrap().release().unwrap();
    });
    // Nobody above the store has to know.
    assert_eq!(two.counters().attempts, u64::from(calls.into_inner()));
    assert_eq!(one.counters().unknown + two.counters().unknown, 0);
}

#[test]
fn c9_renewals_that_deadlock_with_another_session_of_a_mysql_are_made_again() {
    unless_starved(STALL, || {
        let store = with_heavy();
        let client = store.client();
        let take = |n| client.lock(format!("n{n}")).ttl(secs(4)).acquire().unwrap();
        let leases: Vec<_> = (0..10).map(take).collect();
        let renewed = || client.counters().renewed;
        // Renewals go out together, so it is several of them which are rolled back.
        let before = renewed();
        deadlock(of(&store), || {
            let some = renewed();
            eventually(LIMIT, || renewed() > some);
        });
        eventually(LIMIT, || renewed() >= before + 20);
        assert!(leases.iter().all(Lease::is_valid));
    });
}

#[test]
fn c9_what_waits_for_a_row_of_a_mysql_for_too_long_is_asked_again_until_the_deadline() {
    let store = Store::mysql_in(Some(Mysql::start()));
    let (client, database) = (client(&store.url()), of(&store));
    client.lock("n").acquire().unwrap().release().unwrap();
    let before = counted(database, "lock_timeouts");
    while_rows_are_kept(database, "name = 'n'", 3, || {
        let lease = client.lock("n").ttl(secs(60)).try_acquire().unwrap().unwrap();
        lease.release().unwrap();
    });
    assert!(counted(database, "lock_timeouts") > before);
    // Nobody above the store has to know.
    assert_eq!((client.counters().attempts, client.counters().unknown), (2, 0));
}

#[test]
fn c6_sessions_of_a_mysql_that_are_killed_again_and_again_stop_nobody_and_lose_nothing() {
    // A lease is lost if nothing renews it for two seconds.
    unless_starved(STALL, || {
        let store = Store::mysql();
        let (database, holder) = (of(&store), store.client());
        let take = |n| holder.lock(format!("held{n}")).ttl(secs(3)).acquire().unwrap();
        let leases: Vec<_> = (0..5).map(take).collect();
        let killed = AtomicU32::new(0);
        let any = "SELECT id FROM information_schema.processlist
            WHERE db = DATABASE() AND id <> CONNECTION_ID() ORDER BY RAND() LIMIT 1";
        contend(&[&store.url()], 50, || {
            // The session, or what it is doing.
            let what = ["CONNECTION", "QUERY"][killed.load(SeqCst) as usize % 2];
            let id = database.sql(any);
            // It may have ended meanwhile.
            let is_done = !id.is_empty()
                && database.server().try_sql("", &format!("KILL {what} {id}")).is_ok();
            killed.fetch_add(u32::from(is_done), SeqCst);
        });
        assert!(killed.into_inner() > 10);
        assert!(leases.iter().all(Lease::is_valid));
        leases.into_iter().for_each(|lease| lease.release().unwrap());
        eventually_free(&store.client(), "n");
    });
}

/// A node applies what the others have agreed to a moment later.
#[test]
fn a_lease_is_known_on_each_node_of_a_cluster_once_it_is_on_one() {
    let [first, second] = Mysql::cluster();
    let database = made(&first);
    let [one, two] = [&first, &second].map(|node| client(&node.url(&database)));
    // The tables come there a moment later, too.
    eventually(LIMIT, || two.ping().is_ok());
    for _ in 0..300 {
        let (token, fence) = one.lock("n").acquire().unwrap().detach().unwrap();
        two.lock("n").attach(token, fence).unwrap().release().unwrap();
    }
}

#[test]
fn c1_c2_who_contend_at_both_nodes_of_a_cluster_come_one_after_another() {
    // A turn that was handed over is lost if it is not claimed for a second.
    unless_starved(STALL, || {
        let nodes = Mysql::cluster();
        let database = made(&nodes[0]);
        let urls = nodes.each_ref().map(|node| node.url(&database));
        eventually(LIMIT, || client(&urls[1]).ping().is_ok());
        // What was slower than a node's own, and what was slower than another node's.
        let failures = |node: &Mysql| {
            let all = "SELECT SUM(variable_value) FROM information_schema.global_status WHERE \
                variable_name IN ('WSREP_LOCAL_CERT_FAILURES', 'WSREP_LOCAL_BF_ABORTS')";
            node.sql("", all).parse::<f64>().unwrap()
        };
        eventually(LIMIT, || {
            contend(&urls.each_ref().map(String::as_str), 25, || ());
            nodes.iter().map(failures).sum::<f64>() > 0.0
        });
        println!("{:?} certifications failed", nodes.each_ref().map(failures));
        eventually_free(&client(&urls[0]), "n");
    });
}

/// Each grant that a client was told of stands on the nodes that go on without that node.
#[test]
fn c1_a_node_that_is_cut_off_from_its_cluster_amid_commits_grants_nothing_that_the_others_do_not_have()
 {
    let [cut, other] = Mysql::cluster();
    let database = made(&cut);
    let [one, two] =
        [&cut, &other].map(|node| client(&format!("{}?max_ttl=1h", node.url(&database))));
    eventually(LIMIT, || two.ping().is_ok());
    let (granted, refused) = (Mutex::new(Vec::new()), AtomicU32::new(0));
    thread::scope(|scope| {
        for thread in 0..4 {
            let (one, granted, refused) = (&one, &granted, &refused);
            scope.spawn(move || {
                for number in 0.. {
                    let name = format!("n:{thread}:{number}");
                    let lock = one.lock(&name).ttl(secs(3600)).renew(false);
                    match lock.try_acquire() {
                        Ok(lease) => {
                            let lease = lease.expect("it is new");
                            granted.lock().unwrap().push((name, lease));
                        }
                        Err(error) => {
                            println!("{error}");
                            refused.fetch_add(1, SeqCst);
                            return;
                        }
                    }
                }
            });
        }
        eventually(LIMIT, || granted.lock().unwrap().len() > 100);
        cut.sql("", "SET GLOBAL wsrep_provider_options = 'gmcast.isolate=1'");
    });
    assert_eq!(refused.into_inner(), 4, "it is alone, and grants nothing");
    // Of two nodes neither has a majority: somebody says which one goes on.
    eventually(LIMIT, || status(&other) == "non-Primary");
    other.sql("", "SET GLOBAL wsrep_provider_options = 'pc.bootstrap=1'");
    eventually(LIMIT, || status(&other) == "Primary");
    eventually(LIMIT, || two.ping().is_ok());
    let granted = granted.into_inner().unwrap();
    for (name, lease) in &granted {
        assert!(lease.is_valid());
        assert!(two.lock(name).try_acquire().unwrap().is_none(), "two hold '{name}'");
    }
}

fn status(node: &Mysql) -> String {
    let asked = "SELECT variable_value FROM information_schema.global_status
        WHERE variable_name = 'WSREP_CLUSTER_STATUS'";
    node.sql("", asked)
}
