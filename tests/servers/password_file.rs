//! A password in a file, or printed by a command: each login reads it again, so that it can be changed
//! while programs run.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use kit::{SentinelGroup, Server, eventually};
use leasehold::{Client, Error, ErrorKind};

use crate::stores::{LIMIT, ms, secs};

fn client(url: &str) -> Client {
    Client::open(&format!("{url}&io_timeout=10s")).unwrap()
}

fn refused(url: &str) -> Error {
    client(url).lock("n").try_acquire().map(drop).unwrap_err()
}

fn goes_on(client: &Client) {
    client.lock("n").wait(LIMIT).acquire().unwrap().release().unwrap();
}

/// `url` names the file. `change` gives the user another password, `cut` ends what has logged in.
fn is_read_by_each_login(url: &str, file: &Path, change: impl Fn(&str), cut: impl Fn()) {
    fs::write(file, "first\n").unwrap();
    change("first");
    let client = client(url);
    goes_on(&client);
    change("second");
    // What has logged in goes on. No renewal is due yet, which would need a second connection beside it.
    let held = client.lock("held").ttl(secs(9)).acquire().unwrap();
    goes_on(&client);
    let error = refused(url);
    assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
    cut();
    // Its renewal is due, and refused.
    eventually(secs(5), || held.remaining() < secs(9) * 3 / 5);
    fs::write(file, "second\n").unwrap();
    goes_on(&client);
    eventually(LIMIT, || held.remaining() > secs(9) * 3 / 5);
    held.release().unwrap();
    let says = match url.contains("password_command") {
        true => ["ended with exit status: 1", "printed no password"],
        false => ["No such file", "is empty"],
    };
    for (text, said) in [None, Some("")].into_iter().zip(says) {
        match text {
            Some(text) => fs::write(file, text).unwrap(),
            None => fs::remove_file(file).unwrap(),
        }
        let error = refused(url);
        assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
        if !url.contains("password_command") {
            assert!(error.detail().contains(&file.display().to_string()), "{error}");
        }
        assert!(error.detail().contains(said), "{error}");
    }
    fs::write(file, "second").unwrap();
    cut();
    goes_on(&client);
    assert!(!format!("{client:?} {}", client.store()).contains("second"));
}

#[test]
fn of_a_redis() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    server.cmd(&["ACL", "SETUSER", "app", "on", "allkeys", "allchannels", "allcommands"]);
    let url = server.url().replace("://", "://app@") + "?password_file=" + file.to_str().unwrap();
    let change = |password: &str| {
        server.cmd(&["ACL", "SETUSER", "app", "resetpass", &format!(">{password}")]);
    };
    let cut = || drop(server.cmd(&["CLIENT", "KILL", "USER", "app"]));
    is_read_by_each_login(&url, &file, change, cut);
    is_read_by_each_login(&by_command(&url), &file, change, cut);
}

/// The same URL with a command that prints the file.
fn by_command(url: &str) -> String {
    url.replace("password_file=", "password_command=cat%20")
}

/// Redis knows two passwords of a user for as long as they change.
#[test]
fn c9_no_call_fails_and_no_lease_is_lost_while_it_changes_again_and_again() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    let put = |password: &str| {
        // As mounted secrets change: all at once.
        let new = folder.path().join("new");
        fs::write(&new, password).unwrap();
        fs::rename(new, &file).unwrap();
    };
    server.cmd(&["ACL", "SETUSER", "app", "on", ">p0", "allkeys", "allchannels", "allcommands"]);
    put("p0");
    let client = client(&format!(
        "{}?password_file={}",
        server.url().replace("://", "://app@"),
        file.display()
    ));
    let held = client.lock("held").ttl(secs(6)).acquire().unwrap();
    let is_over = AtomicBool::new(false);
    let turns = thread::scope(|scope| {
        let turns = scope.spawn(|| {
            let mut turns = 0;
            while !is_over.load(SeqCst) {
                goes_on(&client);
                turns += 1;
            }
            turns
        });
        for round in 1..12 {
            let [before, now] = [round - 1, round].map(|round| format!("p{round}"));
            server.cmd(&["ACL", "SETUSER", "app", &format!(">{now}")]);
            put(&now);
            // Who has read the old one shows it within a request's time.
            thread::sleep(ms(500));
            server.cmd(&["ACL", "SETUSER", "app", &format!("<{before}")]);
            server.cmd(&["CLIENT", "KILL", "USER", "app"]);
        }
        is_over.store(true, SeqCst);
        turns.join().unwrap()
    });
    assert!(turns > 12, "{turns} turns");
    assert!(held.is_valid());
    held.release().unwrap();
}

#[test]
fn of_sentinels_and_their_master() {
    let group =
        SentinelGroup::builder().login("bob", "of-bob").sentinel_login("eve", "of-eve").start();
    let folder = tempfile::tempdir().unwrap();
    let [bob, eve] = ["bob", "eve"].map(|name| {
        let file = folder.path().join(name);
        fs::write(&file, format!("of-{name}\n")).unwrap();
        file
    });
    let places = group.url();
    let (_, places) = places.rsplit_once('@').unwrap();
    let url = format!(
        "redis+sentinel://bob@{}?sentinel_user=eve&password_file={}&sentinel_password_file={}",
        places.split('?').next().unwrap(),
        bob.display(),
        eve.display()
    );
    goes_on(&client(&url));
    for file in [bob, eve] {
        let right = fs::read(&file).unwrap();
        fs::write(&file, "hunter2").unwrap();
        for url in [&url, &by_command(&url)] {
            let error = refused(url);
            assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        fs::write(&file, right).unwrap();
    }
    goes_on(&client(&url));
    goes_on(&client(&by_command(&url)));
}

#[cfg(feature = "postgres")]
#[test]
fn of_a_postgres() {
    let server = kit::Postgres::start();
    let database = crate::postgres::made(&server);
    let sql = |text: &str| drop(server.sql(&database, text));
    sql("CREATE ROLE app LOGIN SUPERUSER");
    let rules =
        "host all app all scram-sha-256\nhost all nobody all reject\nhost all all all trust\n";
    fs::write(server.dir().join("pg_hba.conf"), rules).unwrap();
    sql("SELECT pg_reload_conf()");
    let at = |user: &str| format!("postgres://{user}@127.0.0.1:{}/{database}", server.port());
    let nobody = Client::open(&at("nobody")).unwrap();
    eventually(LIMIT, || nobody.ping().is_err_and(|error| error.kind() == ErrorKind::Auth));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    let url = format!("{}?password_file={}", at("app"), file.display());
    let change = |password: &str| sql(&format!("ALTER ROLE app PASSWORD '{password}'"));
    let cut =
        || sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'");
    is_read_by_each_login(&url, &file, change, cut);
    is_read_by_each_login(&by_command(&url), &file, change, cut);
}

#[cfg(feature = "mysql")]
#[test]
fn of_a_mysql() {
    let server = kit::Mysql::start();
    let database = crate::mysql::made(&server);
    let sql = |text: &str| server.sql("", text);
    sql("CREATE USER app@'%' IDENTIFIED BY 'none'; GRANT ALL ON *.* TO app@'%'");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    let url = format!(
        "mysql://app@127.0.0.1:{}/{database}?password_file={}",
        server.port(),
        file.display()
    );
    let change =
        |password: &str| drop(sql(&format!("ALTER USER app@'%' IDENTIFIED BY '{password}'")));
    let cut = || drop(sql("KILL USER app"));
    is_read_by_each_login(&url, &file, change, cut);
    is_read_by_each_login(&by_command(&url), &file, change, cut);
}

#[cfg(feature = "zookeeper")]
#[test]
fn of_a_zookeeper() {
    let server = kit::Zookeeper::shared();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    fs::write(&file, "hunter2\n").unwrap();
    let plain = server.url(&server.chroot());
    let url = format!("{}?password_file={}", plain.replace("://", "://app@"), file.display());
    let ours = client(&url);
    ours.initialize(false).unwrap();
    goes_on(&ours);
    let in_the_url = client(&(plain.replace("://", "://app:hunter2@") + "?pool=8"));
    goes_on(&in_the_url);
    fs::write(&file, "hunter3\n").unwrap();
    assert_eq!(refused(&url).kind(), ErrorKind::Permission);
}

#[cfg(feature = "etcd")]
#[test]
fn of_an_etcd() {
    let etcd = kit::Etcd::start_with(1, &["--bcrypt-cost=4"]);
    for words in [
        &["user", "add", "root:root"][..],
        &["user", "grant-role", "root", "root"],
        &["auth", "enable"],
    ] {
        etcd.ctl(words);
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    fs::write(&file, "root\n").unwrap();
    let url = format!("etcd://root@{}?password_file={}", etcd.hosts(), file.display());
    goes_on(&client(&url));
    goes_on(&client(&by_command(&url)));
    fs::write(&file, "hunter2\n").unwrap();
    let error = refused(&url);
    assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
}
