//! What a MySQL does when it is full, slow, kept busy by others, or set up in another way.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Instant;

use crate::mysql::{made, of};
use crate::sql::{client, goes_past_a_silent_host, with};
use crate::stores::{LIMIT, MysqlDatabase, STALL, Store, holder, ms, secs};
use kit::{Mode, Mysql, Proxy, eventually, unless_starved};
use leasehold::{Backoff, Client, Config, ErrorKind, WaitMode};
use log::{LevelFilter, Log, Metadata, Record};

/// Runs it while a session that is no program of ours has rows locked, for so many seconds.
pub(crate) fn while_rows_are_kept(
    database: &MysqlDatabase,
    which: &str,
    seconds: u32,
    run: impl FnOnce(),
) {
    thread::scope(|scope| {
        scope.spawn(move || {
            let begin = format!("BEGIN; SELECT name FROM leasehold_lease WHERE {which} FOR UPDATE");
            database.sql(&format!("{begin}; SELECT SLEEP({seconds}); COMMIT"))
        });
        let keeps = "SELECT COUNT(*) FROM information_schema.processlist
            WHERE db = DATABASE() AND info LIKE 'SELECT SLEEP%'";
        eventually(LIMIT, || database.sql(keeps) == "1");
        run();
    });
}

#[test]
fn c7_a_statement_that_another_session_holds_up_ends_by_the_deadline_and_does_nothing_later() {
    unless_starved(STALL, || {
        let store = Store::mysql();
        let client = Client::open(&with(&store.url(), "io_timeout=300ms")).unwrap();
        client.lock("n").acquire().unwrap().release().unwrap();
        while_rows_are_kept(of(&store), "name = 'n'", 2, || {
            let asked = Instant::now();
            let error = client.lock("n").try_acquire().map(drop).unwrap_err();
            assert!(error.is_retriable(), "{error}");
            assert!(asked.elapsed() < secs(2), "{error}");
        });
        eventually(LIMIT, || holder(&store.client(), "n").is_none());
    });
}

#[test]
fn c4_a_row_of_a_mysql_that_another_session_keeps_costs_no_other_lease() {
    unless_starved(STALL, || {
        let store = Store::mysql();
        let client = store.client();
        let take = |n| client.lock(format!("n{n}")).ttl(secs(3)).acquire().unwrap();
        let leases: Vec<_> = (0..20).map(take).collect();
        while_rows_are_kept(of(&store), "name = 'n7'", 6, || thread::sleep(ms(5500)));
        for (n, lease) in leases.iter().enumerate() {
            assert_eq!(lease.is_valid(), n != 7, "n{n}");
        }
    });
}

#[test]
fn c14_a_row_of_a_mysql_that_another_session_keeps_costs_no_other_give_at_the_end() {
    unless_starved(STALL, || {
        let store = Store::mysql();
        let client = store.client();
        let take = |n| {
            // It ends first, and so is given first.
            let ttl = if n == 3 { secs(20) } else { secs(60) };
            client.lock(format!("n{n}")).ttl(ttl).acquire().unwrap()
        };
        let leases: Vec<_> = (0..10).map(take).collect();
        while_rows_are_kept(of(&store), "name = 'n3'", 4, || drop(client.close()));
        let other = store.client();
        for n in (0..leases.len()).filter(|n| *n != 3) {
            assert!(holder(&other, format!("n{n}")).is_none(), "n{n}");
        }
    });
}

#[test]
fn c6_takes_and_gives_of_a_mysql_whose_answers_were_lost_are_given_back() {
    unless_starved(STALL, || {
        let store = Store::mysql();
        let mut proxy = Proxy::start(of(&store).server().port());
        let url = format!("mysql://root@127.0.0.1:{}/{}", proxy.port(), of(&store).name);
        let config = Config::from_url(&url).unwrap().io_timeout(ms(300));
        let (client, other) = (Client::with_config(config).unwrap(), store.client());
        client.lock("n").acquire().unwrap().release().unwrap();
        for lost in [&b"UPDATE leasehold_lease SET\n    turn"[..], b"SET token = NULL"] {
            proxy.set_only(lost, Mode::SwallowReplies);
            let taken = client.lock("n").ttl(secs(600)).try_acquire();
            drop(taken);
            proxy.set(Mode::Pass);
            eventually(LIMIT, || holder(&other, "n").is_none());
        }
    });
}

#[test]
fn c10_waiters_of_a_mysql_that_were_killed_hold_the_others_up_for_one_window_together() {
    unless_starved(STALL, || {
        let store = Store::mysql();
        let (one, next) = (store.client(), store.client());
        let lease = one.lock("n").ttl(secs(60)).acquire().unwrap();
        // Five that said a moment ago that they wait, and nothing since.
        of(&store).sql(
            "INSERT INTO leasehold_waiter SELECT 'n', seq, REPEAT('x', 16), \
             TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + 1000000 FROM seq_1_to_5",
        );
        thread::scope(|scope| {
            let waiting = scope.spawn(|| next.lock("n").acquire_within(LIMIT).unwrap());
            thread::sleep(ms(100));
            lease.release().unwrap();
            let released = Instant::now();
            waiting.join().unwrap().release().unwrap();
            let late = released.elapsed();
            assert!(late > ms(500) && late < ms(1500), "{late:?}");
        });
    });
}

#[test]
fn rows_of_a_mysql_that_another_session_keeps_hold_up_no_removal_of_others() {
    unless_starved(STALL, || {
        let store = Store::mysql();
        let (client, database) = (store.client(), of(&store));
        database.sql(
            "INSERT INTO leasehold_lease SELECT seq, NULL, 1, 1, 0, 1, 0, 0 FROM seq_1_to_100",
        );
        while_rows_are_kept(database, "name = '7'", 5, || {
            let left = "SELECT GROUP_CONCAT(name) FROM leasehold_lease WHERE used = 1";
            eventually(LIMIT, || {
                for _ in 0..64 {
                    client.lock("n").acquire().unwrap().release().unwrap();
                }
                database.sql(left) == "7"
            });
        });
    });
}

#[test]
fn c10_a_dead_waiter_from_before_the_clock_of_a_mysql_was_set_back_holds_nobody_up() {
    let store = Store::mysql();
    let (one, two, database) = (store.client(), store.client(), of(&store));
    one.lock("n").acquire().unwrap().release().unwrap();
    database.sql(
        "SET @then = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + 3600000000; \
         INSERT INTO leasehold_waiter VALUES ('n', 1, REPEAT('x', 16), @then); \
         UPDATE leasehold_lease SET awaited = @then",
    );
    let lease = one.lock("n").try_acquire().unwrap().expect("nobody waits");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| two.lock("n").acquire_within(secs(5)).unwrap());
        eventually(LIMIT, || two.lock("n").inspect().unwrap().waiters.len() == 1);
        let unsaid = "SELECT COUNT(*) FROM leasehold_lease WHERE awaited > \
             TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + 2000000";
        assert_eq!(database.sql(unsaid), "0");
        lease.release().unwrap();
        waiting.join().unwrap().release().unwrap();
    });
    assert_eq!(database.sql("SELECT COUNT(*) FROM leasehold_waiter"), "0");
}

/// Has each change of a kind to a table fail, with a number of the server's.
fn refuse(database: &MysqlDatabase, change: &str, code: u16) {
    database.sql(&format!(
        "CREATE TRIGGER refuses BEFORE {change} FOR EACH ROW \
         SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {code}"
    ));
}

#[test]
fn a_mysql_is_asked_why_it_refused_once_no_row_is_kept_any_more() {
    let store = Store::own_mysql();
    let (client, database) = (store.client(), of(&store));
    let lease = client.lock("n").acquire().unwrap();
    refuse(database, "INSERT ON leasehold_broken", 1644);
    database.sql("SET GLOBAL log_output = 'TABLE', general_log = 1");
    let error = client.lock("n").break_held(None, "test").map(drop).unwrap_err();
    database.sql("SET GLOBAL general_log = 0");
    assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
    assert!(error.detail().contains("DROP TRIGGER `refuses`;"), "{error}");
    // The question is in one entry with what stands before it, or follows that.
    let said = database.sql(
        "SELECT argument FROM mysql.general_log
            WHERE argument LIKE '%SELECT HEX(name)%' OR argument LIKE 'ROLLBACK%'
            ORDER BY event_time",
    );
    assert!(said.starts_with("ROLLBACK") && said.contains("SELECT HEX(name)"), "{said}");
    database.sql("DROP TRIGGER refuses");
    lease.release().unwrap();
}

#[test]
fn c6_a_place_that_a_failed_request_took_at_a_mysql_is_given_back() {
    let store = Store::mysql();
    let database = of(&store);
    let client = Client::open(&with(&store.url(), "claim_window=60s")).unwrap();
    let held = store.client().lock("n").acquire().unwrap();
    // A newcomer removes it, once it stands in line.
    database.sql("INSERT INTO leasehold_waiter VALUES ('n', 1, REPEAT('x', 16), 1)");
    refuse(database, "DELETE ON leasehold_waiter", 1644);
    let spins = client.lock("n").wait_mode(WaitMode::Spin(Backoff::default()));
    let error = spins.acquire_within(LIMIT).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
    database.sql("DROP TRIGGER refuses");
    eventually(secs(10), || {
        database.sql("SELECT COUNT(*) FROM leasehold_waiter WHERE ticket > 1") == "0"
    });
    held.release().unwrap();
}

#[test]
fn what_fails_as_a_mysql_commits_may_have_been_done() {
    unless_starved(STALL, || {
        for code in [1105, 1180, 1598, 3100] {
            let store = Store::mysql();
            let client = Client::open(&with(&store.url(), "io_timeout=300ms")).unwrap();
            client.lock("n").acquire().unwrap().release().unwrap();
            refuse(of(&store), "UPDATE ON leasehold_lease", code);
            let error = client.lock("n").try_acquire().map(drop).unwrap_err();
            assert!(error.is_retriable(), "{error}");
            assert!(client.counters().unknown > 0, "{code}");
        }
    });
}

#[test]
fn c7_a_mysql_that_answers_no_take_is_left_for_the_next_host() {
    let store = Store::mysql();
    let port = of(&store).server().port();
    goes_past_a_silent_host(&store.url(), port, b"UPDATE leasehold_lease SET\n    turn");
}

/// It tells in the place of the next answer that it had ended the session while that was idle.
#[test]
fn c6_what_a_mysql_refuses_on_a_session_that_was_idle_for_too_long_was_not_done() {
    // It asks again until that is over, and a slow machine answers the last time too late.
    unless_starved(STALL, || {
        let store = Store::mysql();
        let client = Client::open(&with(&store.url(), "io_timeout=1s")).unwrap();
        client.lock("n").acquire().unwrap().release().unwrap();
        refuse(of(&store), "UPDATE ON leasehold_lease", 4031);
        let error = client.lock("n").try_acquire().map(drop).unwrap_err();
        assert!(error.is_retriable(), "{error}");
        assert_eq!(client.counters().unknown, 0);
    });
}

#[test]
fn a_mysql_that_logs_statements_says_how_it_has_to_log() {
    let server = Mysql::start_with(&["--log-bin=log", "--binlog-format=STATEMENT"]);
    let url = server.url(&server.database());
    let error = client(&url).initialize(false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
    assert!(error.detail().contains("binlog_format=ROW or MIXED"), "{error}");
}

/// Hears whether a renewal of these names failed for want of a connection.
struct Failures(AtomicBool);

static FAILURES: Failures = Failures(AtomicBool::new(false));

impl Log for Failures {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let said = record.args().to_string();
        let is_it = said.starts_with("renewals-failed ")
            && said.contains(" lock=full")
            && said.contains("no room");
        self.0.fetch_or(is_it, SeqCst);
    }

    fn flush(&self) {}
}

#[test]
fn c4_leases_are_renewed_while_a_mysql_has_no_room_for_one_more_connection() {
    kit::child::alone(|| {
        log::set_logger(&FAILURES).unwrap();
        log::set_max_level(LevelFilter::Warn);
        let server = Mysql::start_with(&["--max-connections=11"]);
        let database = made(&server);
        server.sql("", &format!("CREATE USER app@'%'; GRANT ALL ON {database}.* TO app@'%'"));
        let url = server.url(&database).replace("root@", "app@");
        let ours = "SELECT id FROM information_schema.processlist WHERE user = 'app' ORDER BY id";
        let (holder, mut others) = (client(&url), Vec::new());
        let take = |n| holder.lock(format!("full{n}")).ttl(secs(3)).acquire().unwrap();
        let leases: Vec<_> = (0..3).map(take).collect();
        // The keeper has one of its own as soon as it renews.
        eventually(LIMIT, || server.sql("", ours).lines().count() == 2);
        let keepers = server.sql("", ours).lines().nth(1).unwrap().to_owned();
        let is_full = || {
            let other = client(&url);
            let pinged = other.ping().map_err(|error| error.kind());
            others.push(other);
            pinged == Err(ErrorKind::Exhausted)
        };
        eventually(LIMIT, is_full);
        // It is as full without that one.
        server.sql("", &format!("SET GLOBAL max_connections = 10; KILL {keepers}"));
        let until = Instant::now() + secs(7);
        while Instant::now() < until {
            assert!(leases.iter().all(|lease| lease.is_valid()));
            thread::sleep(ms(50));
        }
        assert!(!FAILURES.0.load(SeqCst));
    });
}
