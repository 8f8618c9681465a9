//! The standby of a PostgreSQL is cut off, an operator cancels the commit that waits for it, the primary
//! dies, and the standby takes its place: always in this order. A lock that is written by hand, and takes
//! the answer to that commit for a success, has two holders then. The judge must find them; ours has one.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use leasehold::{Client, Lease};
use tempfile::TempDir;

use super::NAMES;
use super::journal::{Journal, Relied, State};
use super::stores::{LIMIT, secs};
use super::verdict::Verdict;
use kit::history::now;
use kit::{Postgres, Wrong, eventually};

/// Longer than a test lasts.
const TTL: Duration = secs(600);

/// A primary that waits for its standby, both with a database for locks.
struct Pair {
    primary: Postgres,
    standby: Postgres,
    database: String,
}

impl Pair {
    /// `make` has the primary make what the locks need.
    fn start(make: impl FnOnce(&Postgres, &str)) -> Pair {
        let primary = Postgres::start();
        let database = primary.database();
        make(&primary, &database);
        let standby = primary.standby();
        primary.wait_for_standbys("*");
        Pair { primary, standby, database }
    }

    /// What `take` returns, whose wait for the standby is cancelled before the primary dies. A call that goes
    /// on after that `has_noticed`.
    fn cancel_and_fail_over<L: Send>(
        &mut self,
        take: impl FnOnce() -> L + Send,
        has_noticed: impl Fn() -> bool,
    ) -> L {
        self.standby.cut_off();
        thread::scope(|scope| {
            let call = scope.spawn(take);
            let waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
            let ask =
                |what: &str| self.primary.sql("postgres", &format!("SELECT {what} {waiting}"));
            eventually(LIMIT, || ask("count(*)") == "1");
            assert_eq!(ask("pg_cancel_backend(pid)"), "t");
            eventually(LIMIT, || call.is_finished() || has_noticed());
            self.primary.crash();
            self.standby.sql("postgres", "SELECT pg_promote()");
            call.join().unwrap()
        })
    }
}

/// A lease of the lock by hand.
struct ByHand {
    token: u128,
    fence: u64,
    until: Duration,
}

impl Relied for ByHand {
    fn token(&self) -> String {
        format!("{:032x}", self.token)
    }

    fn fence(&self) -> u64 {
        self.fence
    }

    fn left(&self) -> Duration {
        self.until.saturating_sub(now())
    }
}

impl ByHand {
    fn make(server: &Postgres, database: &str) {
        let table = "CREATE TABLE by_hand (name text PRIMARY KEY, token text, ends timestamptz,
            fence bigint)";
        server.sql(database, table);
    }

    /// What the server warns of is not read: `COMMIT` or a row means that it is held.
    fn take(port: u16, database: &str) -> Option<ByHand> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let (token, asked) = (u128::from(LAST.fetch_add(1, Ordering::Relaxed)) << 64, now());
        let take = format!(
            "INSERT INTO by_hand VALUES ('{}', '{token}', now() + interval '{} s',
                 extract(epoch FROM clock_timestamp()) * 1000000)
             ON CONFLICT (name) DO UPDATE
                 SET token = excluded.token, ends = excluded.ends,
                     fence = greatest(excluded.fence, by_hand.fence + 1)
                 WHERE by_hand.ends < now()
             RETURNING fence",
            NAMES[0],
            TTL.as_secs(),
        );
        let fence = Postgres::sql_at(port, database, &take).ok()?.parse().ok()?;
        Some(ByHand { token, fence, until: asked + TTL })
    }
}

/// Two who write down what they rely on.
fn parties(dir: &Path) -> [Journal; 2] {
    ["one", "two"].map(|name| {
        let mut journal = Journal::create(dir, name);
        journal.asks(0);
        journal
    })
}

fn relies(journal: &mut Journal, lease: &impl Relied) {
    journal.has(lease);
    assert!(journal.look(lease));
}

/// The first one relies on what it has, if anything, until after the second one has the lock.
fn verdict<L: Relied>(
    dir: &TempDir,
    [mut one, mut two]: [Journal; 2],
    first: Option<&L>,
    second: &L,
) -> Verdict {
    match first {
        Some(lease) => relies(&mut one, lease),
        None => one.refused(),
    }
    relies(&mut two, second);
    if let Some(lease) = first {
        assert!(one.look(lease));
        one.ends(State::Over);
    }
    assert!(two.look(second));
    two.ends(State::Over);
    Verdict::of(dir.path(), now(), None, &[])
}

#[test]
fn control_who_takes_a_commit_for_done_that_stopped_waiting_for_the_standby_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let journals = parties(dir.path());
    let mut pair = Pair::start(ByHand::make);
    // Read now: the pair is changed meanwhile.
    let (port, database) = (pair.primary.port(), pair.database.clone());
    let first = pair.cancel_and_fail_over(|| ByHand::take(port, &database), || false);
    assert!(first.is_some(), "the server did not call it a success");
    let second = ByHand::take(pair.standby.port(), &database).expect("the standby never got it");
    let verdict = verdict(&dir, journals, first.as_ref(), &second);
    assert!(matches!(verdict.wrong[..], [Wrong::Overlap(..)]), "{verdict}");
}

#[test]
fn c1_c6_a_commit_that_stopped_waiting_for_the_standby_makes_no_second_holder() {
    let dir = tempfile::tempdir().unwrap();
    let journals = parties(dir.path());
    let open = |server: &Postgres, database: &str| {
        Client::open(&format!("{}?io_timeout=60s", server.url(database))).unwrap()
    };
    let mut pair =
        Pair::start(|server, database| open(server, database).initialize(false).unwrap());
    let client = open(&pair.primary, &pair.database);
    let take = |client: &Client| client.lock(NAMES[0]).ttl(TTL).renew(false).try_acquire();
    let first = pair.cancel_and_fail_over(|| take(&client), || client.counters().unknown > 0);
    let other = open(&pair.standby, &pair.database);
    let second: Lease = take(&other).unwrap().expect("it is free");
    let first = first.ok().flatten();
    let verdict = verdict(&dir, journals, first.as_ref(), &second);
    verdict.assert_exclusion();
    assert_eq!((verdict.leases, verdict.out_of_order()), (1, 0));
    second.release().unwrap();
}
