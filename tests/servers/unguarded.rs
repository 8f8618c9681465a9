//! One line of the log where a store could lose grants and nothing guards against that.

use std::sync::Mutex;

use crate::stores::{LIMIT, Quorum, Store, open};
use kit::{Server, eventually};
use leasehold::Client;
use redis::Value;

struct Lines(Mutex<Vec<String>>);

static LINES: Lines = Lines(Mutex::new(Vec::new()));

impl log::Log for Lines {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = record.args().to_string();
        if line.starts_with("unguarded ") {
            assert_eq!(record.level(), log::Level::Info);
            self.0.lock().unwrap().push(line);
        }
    }

    fn flush(&self) {}
}

fn listen() {
    log::set_logger(&LINES).unwrap();
    log::set_max_level(log::LevelFilter::Info);
}

/// What the log says of this store while a client takes a few locks, until the store knows who it is:
/// by then it was asked, if it is.
#[track_caller]
fn said(url: &str, is_known: &dyn Fn() -> bool) -> Vec<String> {
    eventually(LIMIT, || !is_known());
    LINES.0.lock().unwrap().clear();
    let client = open(url);
    let held = client.lock("held").wait(LIMIT).acquire().unwrap();
    eventually(LIMIT, || {
        client.lock("n").wait(LIMIT).acquire().unwrap().release().unwrap();
        is_known()
    });
    held.release().unwrap();
    client.close_within(LIMIT).unwrap();
    std::mem::take(&mut LINES.0.lock().unwrap())
}

fn knows_clients(server: &Server) -> bool {
    server.cmd(&["KEYS", "leasehold:client:*"]) != Value::Array(Vec::new())
}

/// What it says of a Redis, and how often that was asked what it is.
#[track_caller]
fn of(server: &Server, parameters: &str) -> (Vec<String>, usize) {
    let mut watch = server.watch();
    let lines = said(&(server.url() + parameters), &|| knows_clients(server));
    let asked = watch.everything().iter().filter(|command| *command == "INFO").count();
    (lines, asked)
}

#[test]
fn a_redis_that_could_lose_grants_is_said_once_and_asked_once() {
    kit::child::alone(|| {
        listen();
        let bare = Server::start();
        let (lines, asked) = of(&bare, "");
        assert_eq!((lines.len(), asked), (1, 1), "{lines:?}");
        let store = format!(
            "unguarded store={} why=\"a restart may lose",
            Client::open(&bare.url()).unwrap().store()
        );
        assert!(lines[0].starts_with(&store), "{lines:?}");
        assert!(lines[0].contains("guard_data_loss=yes") && !lines[0].contains("failover"));
        assert_eq!(of(&bare, "?advise=no"), (Vec::new(), 0));
        // A client that does not say who it is asks all the same, and no more than once.
        let quiet = open(&format!("{}?register=no", bare.url()));
        let mut watch = bare.watch();
        let lease = quiet.lock("n").acquire().unwrap();
        eventually(LIMIT, || LINES.0.lock().unwrap().len() == 1);
        lease.release().unwrap();
        for _ in 0..50 {
            quiet.lock("n").acquire().unwrap().release().unwrap();
        }
        quiet.close_within(LIMIT).unwrap();
        let sent = watch.everything();
        assert_eq!(sent.iter().filter(|command| *command == "INFO").count(), 1);
        assert!(!sent.iter().any(|command| command.starts_with("SET \"leasehold:client:")));

        let saved = Server::builder().arg("--appendonly", "yes").start();
        assert_eq!(of(&saved, ""), (Vec::new(), 1));
        // Who may not ask says nothing, and goes on.
        saved.cmd(&["ACL", "SETUSER", "default", "-info"]);
        assert_eq!(of(&saved, "").0, Vec::<String>::new());
        saved.cmd(&["ACL", "SETUSER", "default", "+info"]);
        let replica = Server::start();
        replica.cmd(&["REPLICAOF", "127.0.0.1", &saved.port().to_string()]);
        eventually(LIMIT, || saved.info("replication").contains("state=online"));
        let (lines, asked) = of(&saved, "");
        assert_eq!((lines.len(), asked), (1, 1), "{lines:?}");
        assert!(lines[0].contains("a failover may lose") && !lines[0].contains("restart"));
        assert_eq!(of(&saved, "?replicas=1"), (Vec::new(), 1));
        drop(replica);

        // One that is guarded is not even asked.
        let guarded = Server::start();
        let url = "?guard_data_loss=yes&max_ttl=60s";
        open(&(guarded.url() + url)).initialize(false).unwrap();
        assert_eq!(of(&guarded, url), (Vec::new(), 0));
        let quorum = Quorum::start(3);
        let mut watches: Vec<_> = quorum.nodes.iter().map(Server::watch).collect();
        assert_eq!(
            said(&quorum.url(), &|| quorum.nodes.iter().all(knows_clients)),
            Vec::<String>::new()
        );
        for watch in &mut watches {
            assert!(!watch.everything().iter().any(|command| command == "INFO"));
        }
    });
}

#[cfg(feature = "postgres")]
#[test]
fn a_session_of_a_postgres_that_does_not_wait_for_the_disk_is_said_once() {
    kit::child::alone(|| {
        listen();
        let store = Store::postgres();
        let Store::Postgres(database) = &store else { unreachable!() };
        let is_known = || database.sql("SELECT count(*) FROM leasehold.client").trim() != "0";
        let with = |commit: &str| {
            let separator = if store.url().contains('?') { '&' } else { '?' };
            said(&format!("{}{separator}synchronous_commit={commit}", store.url()), &is_known)
        };
        assert_eq!(with("on"), Vec::<String>::new());
        let lines = with("off");
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("synchronous_commit is off"), "{lines:?}");
        assert_eq!(with("off&advise=no"), Vec::<String>::new());
    });
}

#[cfg(feature = "mysql")]
#[test]
fn a_mysql_that_does_not_wait_for_the_disk_is_said_once() {
    kit::child::alone(|| {
        listen();
        let store = Store::own_mysql();
        let Store::Mysql(database) = &store else { unreachable!() };
        let is_known = || database.sql("SELECT count(*) FROM leasehold_client").trim() != "0";
        for (flushes, lines) in [(1, 0), (3, 0), (2, 1)] {
            database.sql(&format!("SET GLOBAL innodb_flush_log_at_trx_commit = {flushes}"));
            let said = said(&store.url(), &is_known);
            assert_eq!(said.len(), lines, "{said:?}");
            assert!(said.iter().all(|line| line.contains("innodb_flush_log_at_trx_commit")));
        }
    });
}
