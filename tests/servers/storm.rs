//! All clients of a server log in at once, since it was restarted: whether each of them works again.
//! `KIT_STORM=etcd,40,2500` measures it with 40 processes and a ttl of 2500 ms, on `etcd`, `postgres`,
//! `mysql`, `postgres-tls`, `mysql-tls`, `redis` (with TLS) or `zookeeper`, and prints how many leases were
//! lost, when all worked, and how often the server was asked.

use std::fs;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use kit::child::{self, Child};
use kit::{
    Certificates, Etcd, Mysql, Postgres, Server, ServerCertificate, Zookeeper, eventually_some,
};
use leasehold::{Client, Lease, Lock};

use crate::stores::{LIMIT, ms, open, secs};

pub(crate) const ROLES: child::Roles = &[("storm", holder)];

const PATIENCE: Duration = Duration::from_secs(90);

/// Holds a lock, and takes it again when it was lost. It is told when the server is back.
fn holder(args: &[String]) {
    let [url, name, ttl] = args else { panic!("{args:?}") };
    let client = Client::open(url).unwrap();
    let lock = client.lock(name.as_str()).ttl(ms(ttl.parse().unwrap()));
    let mut lease = taken(&lock);
    child::say("has");
    let (heard, hear) = channel();
    std::thread::spawn(move || {
        while let Some(line) = child::hear()
            && heard.send(line).is_ok()
        {}
    });
    let (mut lost, mut waits, mut renewed) = (0, None, 0);
    loop {
        match hear.recv_timeout(ms(10)) {
            Ok(line) if line == "up" => {
                (waits, renewed) = (Some(Instant::now()), client.counters().renewed);
            }
            Ok(_) => break child::say(&format!("{lost}")),
            Err(_) => {}
        }
        let mut is_back = client.counters().renewed > renewed;
        if !lease.is_valid() {
            lost += 1;
            lease = taken(&lock);
            is_back = true;
        }
        if is_back && let Some(since) = waits.take() {
            child::say(&format!("{}", since.elapsed().as_millis()));
        }
    }
}

fn taken(lock: &Lock) -> Lease {
    let taken = || match lock.acquire_within(PATIENCE) {
        Err(error) if error.is_retriable() => None,
        done => Some(done.unwrap()),
    };
    eventually_some(PATIENCE, taken)
}

/// How long the server was away, how many milliseconds it took until all worked again, and how many leases
/// were lost.
type Figures = (Duration, u128, u64);

/// So many clients with leases of so many milliseconds, while the server is restarted.
fn storm(url: &str, (count, ttl): (usize, u64), restart: impl FnOnce()) -> Figures {
    let start = |at| Child::start("storm", &[url, &format!("storm-{at}"), &ttl.to_string()]);
    let mut children: Vec<_> = (0..count)
        .map(|at| {
            let child = start(at);
            // Not all at once yet.
            assert_eq!(child.line(PATIENCE), "has");
            child
        })
        .collect();
    let began = Instant::now();
    restart();
    let away = began.elapsed();
    children.iter_mut().for_each(|child| child.tell("up"));
    let number = |child: &Child| child.line(PATIENCE).parse::<u64>().unwrap();
    let last = children.iter().map(number).max().unwrap();
    std::thread::sleep(ms(ttl));
    children.iter_mut().for_each(|child| child.tell("end"));
    let lost = children.iter().map(number).sum();
    (away, u128::from(last), lost)
}

fn etcd_with_users(settings: &[&str]) -> (Etcd, String) {
    let etcd = Etcd::start_with(1, settings);
    for words in [
        &["user", "add", "root:root"][..],
        &["user", "grant-role", "root", "root"],
        &["auth", "enable"],
    ] {
        etcd.ctl(words);
    }
    let url = format!("etcd://root:root@{}", etcd.hosts());
    (etcd, url)
}

/// Each login is a password by SCRAM.
fn of_postgres(is_tls: bool, size: (usize, u64)) -> Figures {
    let mut postgres = Postgres::start_with(&[
        "fsync=off",
        "max_connections=1000",
        "full_page_writes=off",
        "log_connections=on",
    ]);
    let dir = tempfile::tempdir().unwrap();
    if is_tls {
        let (certificate, key) = Certificates::make(dir.path()).server(ServerCertificate::Good);
        postgres.show_certificate(&certificate, &key);
    }
    let database = postgres.database();
    open(&postgres.url(&database)).initialize(false).unwrap();
    postgres.sql(&database, "CREATE ROLE app LOGIN SUPERUSER PASSWORD 'secret'");
    let file = postgres.dir().join("pg_hba.conf");
    let before = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("host all app all scram-sha-256\n{before}")).unwrap();
    postgres.sql(&database, "SELECT pg_reload_conf()");
    let mode = if is_tls { "require" } else { "disable" };
    let place = format!("127.0.0.1:{}/{database}", postgres.port());
    let url = format!("postgres://app:secret@{place}?sslmode={mode}");
    let figures = storm(&url, size, || {
        postgres.crash();
        postgres.start_again();
    });
    // It begins anew with the server.
    let log = fs::read_to_string(postgres.dir().join("log")).unwrap();
    let count = |what| log.matches(what).count();
    let [came, early] = ["connection received", "FATAL:  the database system"].map(count);
    let [right, logins] = ["connection authenticated", "connection authorized"].map(count);
    println!("{came} connections, {early} before it was ready, {right} passwords, {logins} logins");
    figures
}

fn of_mysql(is_tls: bool, size: (usize, u64)) -> Figures {
    let dir = tempfile::tempdir().unwrap();
    let settings = &["--max-connections=1000"];
    let mut mysql = if is_tls {
        let (certificate, key) = Certificates::make(dir.path()).server(ServerCertificate::Good);
        Mysql::start_showing(&certificate, &key, settings)
    } else {
        Mysql::start_with(settings)
    };
    let database = mysql.database();
    open(&mysql.url(&database)).initialize(false).unwrap();
    mysql.sql(&database, "CREATE USER app IDENTIFIED BY 'secret'; GRANT ALL ON *.* TO app");
    let mode = if is_tls { "required" } else { "disabled" };
    let place = format!("127.0.0.1:{}/{database}", mysql.port());
    let url = format!("mysql://app:secret@{place}?ssl-mode={mode}");
    let figures = storm(&url, size, || {
        mysql.crash();
        mysql.start_again();
    });
    let came = mysql.sql("", "SHOW GLOBAL STATUS LIKE '%onnec%s'").replace('\n', ", ");
    println!("{came}");
    figures
}

/// Each on the machine that is at hand, so the figures say something beside each other only.
#[test]
fn a_storm_is_measured() {
    let Ok(wanted) = std::env::var("KIT_STORM") else { return };
    let words: Vec<_> = wanted.split(',').collect();
    let [store, count, ttl] = words[..] else { panic!("{wanted}") };
    let size = (count.parse().unwrap(), ttl.parse().unwrap());
    let (away, all, lost) = match store {
        // Such as `etcd:7`; its own default is 10, and each step less is half of the work.
        _ if store.starts_with("etcd") => {
            let cost = store.split(':').nth(1).unwrap_or("10");
            let (etcd, url) = etcd_with_users(&[&format!("--bcrypt-cost={cost}")]);
            let etcd = Mutex::new(etcd);
            let figures = storm(&url, size, || {
                let mut etcd = etcd.lock().unwrap();
                etcd.kill(0);
                etcd.start_again(0);
            });
            println!("{} logins", etcd.lock().unwrap().calls(0, "Authenticate"));
            figures
        }
        "postgres" | "postgres-tls" => of_postgres(store.ends_with("tls"), size),
        "mysql" | "mysql-tls" => of_mysql(store.ends_with("tls"), size),
        "redis" => {
            let mut server = Server::builder().tls().arg("--appendonly", "yes").start();
            let url = server.tls_url();
            storm(&url, size, || {
                server.kill();
                server.start_again();
            })
        }
        "zookeeper" => {
            let mut zookeeper = Zookeeper::start();
            let url = zookeeper.url(&zookeeper.chroot());
            let url = format!("{url}?auth=digest:app:secret");
            open(&url).initialize(false).unwrap();
            storm(&url, size, || {
                zookeeper.crash();
                zookeeper.start_again();
            })
        }
        _ => panic!("{store}"),
    };
    println!("STORM {wanted}: away {away:?}, lost {lost}, all work after {all} ms");
}

#[test]
fn after_a_restart_all_clients_of_an_etcd_with_users_work_again() {
    let (mut etcd, url) = etcd_with_users(&["--bcrypt-cost=4"]);
    let children: Vec<_> =
        (0..6).map(|at| Child::start("storm", &[&url, &format!("storm-{at}"), "30000"])).collect();
    children.iter().for_each(|child| assert_eq!(child.line(LIMIT), "has"));
    etcd.kill(0);
    etcd.start_again(0);
    for mut child in children {
        child.tell("up");
        child.line(secs(60));
        child.tell("end");
        assert_eq!(child.line(LIMIT), "0", "leases that were lost");
    }
}
