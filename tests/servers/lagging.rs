//! A standby that lags behind when it is promoted, and a primary that waits for its standby.

use std::cell::Cell;
use std::time::Instant;

use crate::sql::{client, with};
use crate::stores::{LIMIT, STALL, eventually_free, ms, secs};
use kit::{eventually, process, unless_starved};
use leasehold::{Client, ErrorKind, EventKind, Lease, LossReason};
use nix::sys::signal::Signal;

/// Two servers, of which the second has what the first has, until it lags behind.
struct Pair<'a> {
    /// That leads to whichever is the primary.
    url: &'a str,
    /// Whether the second knows a name.
    knows: &'a dyn Fn(&str) -> bool,
    /// It is sent nothing from now on.
    cut: &'a dyn Fn(),
}

/// Grants that the second server never heard of are gone, and their fences are below all later ones.
fn who_was_granted_meanwhile_is_told(pair: &Pair<'_>, fail_over: impl FnOnce()) {
    let (old, next) = (client(pair.url), client(pair.url));
    let take = |name: &str| old.lock(name).ttl(secs(9)).acquire().unwrap();
    take("known").release().unwrap();
    let kept = take("kept");
    eventually(LIMIT, || (pair.knows)("known") && (pair.knows)("kept"));
    (pair.cut)();
    let gone = ["known", "new"].map(take);
    let told = old.events().unwrap();
    fail_over();
    for lease in &gone {
        // It looks free there, while the first one may still rely on it: only the fence tells them apart.
        let later = next.lock(lease.name()).ttl(secs(60)).acquire_within(LIMIT).unwrap();
        assert!(later.fence() > lease.fence(), "{} and {}", later.fence(), lease.fence());
        std::mem::forget(later);
    }
    for _ in &gone {
        let event = told.next_within(LIMIT).unwrap().expect("it is told");
        let why = [LossReason::NotHeld, LossReason::Expired].map(EventKind::Lost);
        assert!(why.contains(&event.kind), "{event:?}");
        assert!(gone.iter().any(|lease| lease.name() == &*event.name), "{event:?}");
    }
    assert!(!gone.iter().any(Lease::is_valid));
    for lease in gone {
        assert_eq!(lease.release().unwrap_err().kind(), ErrorKind::Lost);
    }
    kept.extend().unwrap();
    kept.release().unwrap();
}

/// A grant that waits for a standby which does not answer is nobody's.
fn a_take_ends_by_its_deadline_and_is_undone(
    url: &str,
    standby: u32,
    has_row: impl Fn(&str) -> bool,
) {
    let tries = Cell::new(0);
    unless_starved(STALL, || {
        let name = &*format!("n{}", tries.replace(tries.get() + 1));
        let one = Client::open(&with(url, "io_timeout=500ms")).unwrap();
        one.lock("other").acquire().unwrap().release().unwrap();
        process::signal_family(standby, Signal::SIGSTOP);
        let asked = Instant::now();
        let taken = one.lock(name).ttl(secs(600)).try_acquire().map(drop);
        let took = asked.elapsed();
        let is_there = has_row(name);
        process::signal_family(standby, Signal::SIGCONT);
        let error = taken.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        assert!((ms(400)..secs(3)).contains(&took), "{took:?}");
        assert_eq!(one.counters().unknown, 1);
        assert!(!is_there, "it was seen before the standby had it");
        // It was granted after all, and is given back long before its ttl is over.
        eventually(LIMIT, || has_row(name));
        eventually_free(&client(url), name);
    });
}

#[cfg(feature = "postgres")]
mod postgres {
    use kit::{Postgres, eventually};

    use super::{
        Pair, a_take_ends_by_its_deadline_and_is_undone, who_was_granted_meanwhile_is_told,
    };
    use crate::postgres::made;
    use crate::sql::client;
    use crate::stores::{LIMIT, secs};

    fn both(first: &Postgres, second: &Postgres, database: &str) -> String {
        let (first, second) = (first.port(), second.port());
        format!("postgres://postgres@127.0.0.1:{first},127.0.0.1:{second}/{database}")
    }

    fn set(server: &Postgres, line: &str) {
        server.sql("postgres", &format!("ALTER SYSTEM SET {line}"));
        server.sql("postgres", "SELECT pg_reload_conf()");
    }

    #[test]
    fn c2_c9_who_was_granted_what_a_promoted_standby_never_heard_of_is_told() {
        let mut first = Postgres::start();
        let database = made(&first);
        let second = first.standby();
        let url = both(&first, &second, &database);
        let knows = |name: &str| {
            let count = format!("SELECT count(*) FROM leasehold.lease WHERE name = '{name}'");
            second.sql(&database, &count) == "1"
        };
        let cut = || {
            set(&second, "primary_conninfo = ''");
            let linked = "SELECT count(*) FROM pg_stat_wal_receiver";
            eventually(LIMIT, || second.sql("postgres", linked) == "0");
        };
        let pair = Pair { url: &url, knows: &knows, cut: &cut };
        who_was_granted_meanwhile_is_told(&pair, || {
            first.crash();
            second.sql("postgres", "SELECT pg_promote()");
        });
    }

    /// One that the other waits for.
    fn synchronous(first: &Postgres) -> Postgres {
        let second = first.standby();
        set(first, "synchronous_standby_names = '*'");
        let state = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        eventually(LIMIT, || first.sql("postgres", state) == "1");
        second
    }

    #[test]
    fn c7_a_grant_of_which_no_standby_has_heard_is_unknown_by_the_deadline_and_given_back() {
        let first = Postgres::start();
        let database = made(&first);
        let second = synchronous(&first);
        let count = "SELECT count(*) FROM leasehold.lease WHERE name =";
        let has_row = |name: &str| first.sql(&database, &format!("{count} '{name}'")) == "1";
        a_take_ends_by_its_deadline_and_is_undone(&first.url(&database), second.pid(), has_row);
    }

    #[test]
    fn c1_no_grant_is_gone_with_a_primary_that_waited_for_its_standby() {
        let mut first = Postgres::start();
        let database = made(&first);
        let second = synchronous(&first);
        let client = client(&both(&first, &second, &database));
        let lease = client.lock("n").ttl(secs(30)).acquire().unwrap();
        first.crash();
        second.sql("postgres", "SELECT pg_promote()");
        lease.extend().unwrap();
        lease.release().unwrap();
    }
}

#[cfg(feature = "mysql")]
mod mysql {
    use kit::Mysql;

    use super::{
        Pair, a_take_ends_by_its_deadline_and_is_undone, who_was_granted_meanwhile_is_told,
    };
    use crate::mysql::made;

    #[test]
    fn c2_c9_who_was_granted_what_a_promoted_replica_never_heard_of_is_told() {
        let mut first = Mysql::start_with(&["--log-bin=log"]);
        let database = made(&first);
        let second = first.replica();
        let (one, two) = (first.port(), second.port());
        let url = format!("mysql://root@127.0.0.1:{one},127.0.0.1:{two}/{database}");
        let knows = |name: &str| {
            let count = format!("SELECT COUNT(*) FROM leasehold_lease WHERE name = '{name}'");
            second.try_sql(&database, &count).as_deref() == Ok("1")
        };
        let cut = || drop(second.sql("", "STOP SLAVE"));
        let pair = Pair { url: &url, knows: &knows, cut: &cut };
        who_was_granted_meanwhile_is_told(&pair, || {
            first.crash();
            second.sql("", "SET GLOBAL read_only = 0");
        });
    }

    #[test]
    fn c7_a_grant_of_which_no_replica_has_heard_is_unknown_by_the_deadline_and_given_back() {
        let [first, second] = Mysql::semi_sync(600_000);
        let database = made(&first);
        let count = "SELECT COUNT(*) FROM leasehold_lease WHERE name =";
        let has_row = |name: &str| first.sql(&database, &format!("{count} '{name}'")) == "1";
        a_take_ends_by_its_deadline_and_is_undone(&first.url(&database), second.pid(), has_row);
    }
}
