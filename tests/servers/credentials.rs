//! Credentials that a program looks up while it runs, and that end.

use std::error::Error as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use kit::{Cluster, SentinelGroup, Server, eventually};
use leasehold::{Client, Config, Credentials, Endpoint, Error, ErrorKind};

use crate::stores::{LIMIT, ms, secs};

/// A new password comes so often, ...
const EVERY: Duration = Duration::from_secs(2);
/// ... is told to be good for so long, ...
const LIFE: Duration = Duration::from_secs(6);
/// ... and so many come.
const ROUNDS: u32 = 6;

/// What stands in for the maker of tokens of a cloud.
#[derive(Default)]
struct Maker {
    newest: Mutex<(u32, Option<SystemTime>)>,
    asked: AtomicUsize,
}

impl Maker {
    fn credentials(&self, name: impl Fn(u32) -> Credentials) -> Credentials {
        self.asked.fetch_add(1, SeqCst);
        let (number, end) = *self.newest.lock().unwrap();
        name(number).valid_until(end.unwrap())
    }

    /// `change` has the server know it; nobody is told of it before.
    fn next(&self, number: u32, change: impl FnOnce()) {
        let mut newest = self.newest.lock().unwrap();
        change();
        *newest = (number, Some(SystemTime::now() + LIFE));
    }
}

fn password(number: u32) -> String {
    format!("p{number}")
}

fn open(url: &str, ask: impl Fn(&Endpoint) -> Credentials + Send + Sync + 'static) -> Client {
    let config = Config::from_url(url).unwrap().io_timeout(secs(20));
    Client::with_config(config.credentials(move |to| Ok::<_, Error>(ask(to)))).unwrap()
}

fn goes_on(client: &Client) {
    client.lock("n").wait(LIMIT).acquire().unwrap().release().unwrap();
}

/// Two threads acquire one lock in turns, so that one of them waits and is told; one lease is held, and
/// lives by its renewals. Meanwhile the credentials change again and again.
fn lives_through(client: &Client, rotate: impl FnOnce()) {
    let held = client.lock("held").ttl(secs(9)).acquire().unwrap();
    let is_over = AtomicBool::new(false);
    let turns = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    let lease = client.lock("turn").wait(LIMIT).acquire().unwrap();
                    thread::sleep(ms(5));
                    lease.release().unwrap();
                    turns.fetch_add(1, SeqCst);
                }
            });
        }
        rotate();
        is_over.store(true, SeqCst);
    });
    assert!(turns.load(SeqCst) > 20, "{turns:?} turns");
    assert!(held.is_valid());
    held.release().unwrap();
}

const RIGHTS: [&str; 4] = ["on", "allkeys", "allchannels", "allcommands"];

fn acl(servers: &[&Server], words: &[&str]) {
    for server in servers {
        server.cmd(&[&["ACL"], words].concat());
    }
}

/// Each password has a user of its own, who is deleted when the password ends: a Redis hangs up on each
/// connection of that user.
fn changes_users(url: &str, servers: &[&Server]) -> Arc<Maker> {
    let maker = Arc::new(Maker::default());
    let user = |number| format!("app{number}");
    let add = |number: u32| {
        maker.next(number, || {
            let (user, secret) = (user(number), format!(">{}", password(number)));
            acl(servers, &[&["SETUSER", &user, &secret][..], &RIGHTS].concat());
        });
    };
    add(0);
    let asked = Arc::clone(&maker);
    let client = open(url, move |_| {
        asked.credentials(|number| Credentials::new(password(number)).user(format!("app{number}")))
    });
    lives_through(&client, || {
        for round in 1..=ROUNDS {
            thread::sleep(EVERY);
            add(round);
            if let Some(ended) = round.checked_sub(3) {
                acl(servers, &["DELUSER", &user(ended)]);
            }
        }
    });
    maker
}

fn connections(server: &Server) -> u64 {
    let info: String = redis::from_redis_value(server.cmd(&["INFO", "stats"])).unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
    line.unwrap().parse().unwrap()
}

#[test]
fn c9_of_a_redis_connections_log_in_again_and_stay_also_the_one_that_hears_who_is_next() {
    let server = Server::start();
    let before = connections(&server);
    let maker = changes_users(&(server.url() + "?pool=2"), &[&server]);
    assert!(maker.asked.load(SeqCst) >= 3);
    // Some are of this test, one for each of its commands: two or one in a round.
    let made = connections(&server) - before - u64::from(2 * ROUNDS);
    assert!(made <= 6, "{made} connections for two callers, a listener, and the keeper");
}

#[test]
fn c9_of_a_master_with_sentinels() {
    let group = SentinelGroup::start();
    let servers: Vec<_> = [group.master()].into_iter().chain(group.replicas()).collect();
    changes_users(&group.url(), &servers);
}

#[test]
fn c9_of_a_cluster() {
    let cluster = Cluster::start();
    let servers: Vec<_> = (0..3).map(|node| cluster.server(node)).collect();
    changes_users(&cluster.url(), &servers);
}

#[test]
fn c9_of_a_quorum() {
    let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
    let urls: Vec<_> = servers.iter().map(Server::url).collect();
    let client = Client::open(&urls.join(",")).unwrap();
    client.initialize(false).unwrap();
    drop(client);
    changes_users(&urls.join(","), &servers.iter().collect::<Vec<_>>());
}

/// One user, who has two passwords for a while.
#[test]
fn c9_of_a_redis_no_acquire_fails_while_passwords_overlap() {
    let server = Server::start();
    let maker = Arc::new(Maker::default());
    let add = |number: u32| {
        maker.next(number, || {
            let secret = format!(">{}", password(number));
            acl(&[&server], &[&["SETUSER", "app", &secret][..], &RIGHTS].concat());
        });
    };
    add(0);
    let asked = Arc::clone(&maker);
    let client = open(&server.url(), move |to| {
        assert_eq!((&*to.host, to.user.as_deref()), ("127.0.0.1", None));
        asked.credentials(|number| Credentials::new(password(number)).user("app"))
    });
    lives_through(&client, || {
        for round in 1..=ROUNDS {
            thread::sleep(EVERY);
            add(round);
            acl(&[&server], &["SETUSER", "app", &format!("<{}", password(round - 1))]);
            // Whoever is cut off logs in with what is cached, is refused, and asks once more.
            server.cmd(&["CLIENT", "KILL", "USER", "app", "TYPE", "pubsub"]);
        }
    });
}

/// A user with one password at a time: each connection that is made shows the newest.
fn changes_passwords(url: &str, change: impl Fn(&str), is_shown: impl Fn() -> usize) {
    let maker = Arc::new(Maker::default());
    let add = |number: u32| maker.next(number, || change(&password(number)));
    add(0);
    let asked = Arc::clone(&maker);
    let client = open(url, move |to| {
        assert_eq!(to.user.as_deref(), Some("app"));
        asked.credentials(|number| Credentials::new(password(number)).retire_connections(true))
    });
    let mut most = 0;
    lives_through(&client, || {
        for round in 1..=ROUNDS {
            thread::sleep(EVERY);
            add(round);
            most = most.max(is_shown());
        }
    });
    assert!(maker.asked.load(SeqCst) >= 3);
    assert!(most < 30, "{most} connections: old ones were not closed");
}

#[cfg(feature = "postgres")]
#[test]
fn c9_of_a_postgres_new_connections_log_in_with_the_newest_and_old_ones_make_way() {
    let server = kit::Postgres::start();
    let database = crate::postgres::made(&server);
    let sql = |text: &str| server.sql(&database, text);
    sql("CREATE ROLE app LOGIN SUPERUSER");
    let rules = "host all app all scram-sha-256\nhost all all all trust\n";
    std::fs::write(server.dir().join("pg_hba.conf"), rules).unwrap();
    sql("SELECT pg_reload_conf()");
    changes_passwords(
        &format!("postgres://app@127.0.0.1:{}/{database}", server.port()),
        |password| drop(sql(&format!("ALTER ROLE app PASSWORD '{password}'"))),
        || {
            let shown = sql("SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'");
            shown.parse().unwrap()
        },
    );
}

#[cfg(feature = "mysql")]
#[test]
fn c9_of_a_mysql_new_connections_log_in_with_the_newest_and_old_ones_make_way() {
    let server = kit::Mysql::start();
    let database = crate::mysql::made(&server);
    let sql = |text: &str| server.sql("", text);
    sql("CREATE USER app@'%' IDENTIFIED BY 'none'; GRANT ALL ON *.* TO app@'%'");
    changes_passwords(
        &format!("mysql://app@127.0.0.1:{}/{database}", server.port()),
        |password| drop(sql(&format!("ALTER USER app@'%' IDENTIFIED BY '{password}'"))),
        || {
            let listed = "SELECT count(*) FROM information_schema.processlist WHERE user = 'app'";
            sql(listed).trim().parse().unwrap()
        },
    );
}

#[cfg(feature = "zookeeper")]
#[test]
fn of_a_zookeeper_and_an_etcd_each_login_asks() {
    let server = kit::Zookeeper::shared();
    let login = |_: &Endpoint| Credentials::new("hunter2").user("app");
    let client = open(&server.url(&server.chroot()), login);
    client.initialize(false).unwrap();
    goes_on(&client);
    #[cfg(feature = "etcd")]
    {
        let etcd = kit::Etcd::start_with(1, &["--bcrypt-cost=4"]);
        for words in [
            &["user", "add", "root:root"][..],
            &["user", "grant-role", "root", "root"],
            &["auth", "enable"],
        ] {
            etcd.ctl(words);
        }
        let url = format!("etcd://{}", etcd.hosts());
        goes_on(&open(&url, |_| Credentials::new("root").user("root")));
        let error = open(&url, |_| Credentials::new("hunter2").user("root")).ping().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
    }
}

fn server() -> Server {
    let server = Server::start();
    acl(&[&server], &[&["SETUSER", "app", ">s3cret"][..], &RIGHTS].concat());
    server
}

fn app() -> Credentials {
    Credentials::new("s3cret").user("app")
}

fn asking<E: std::fmt::Display>(
    server: &Server,
    ask: impl Fn() -> Result<Credentials, E> + Send + Sync + 'static,
) -> Client {
    let config = Config::from_url(&server.url()).unwrap().io_timeout(secs(20));
    Client::with_config(config.credentials(move |_| ask())).unwrap()
}

#[test]
fn what_a_callback_does_wrong_is_one_clear_error() {
    let server = server();
    let at = format!("127.0.0.1:{}", server.port());
    let past = SystemTime::UNIX_EPOCH + secs(1_795_897_867);
    let past = if past < SystemTime::now() { past } else { SystemTime::UNIX_EPOCH + secs(1) };
    let ended = asking(&server, move || Ok::<_, Error>(app().valid_until(past)));
    let texts = [
        (
            asking(&server, || Err("the vault is sealed")),
            format!("the credentials callback failed for {at}: the vault is sealed"),
        ),
        (
            asking(&server, || -> Result<_, Error> { panic!("of its own") }),
            format!("the credentials callback panicked for {at}: of its own"),
        ),
        (
            asking(&server, || Ok::<_, Error>(Credentials::new("").user("app"))),
            format!("the credentials callback returned an empty secret for {at}"),
        ),
        (
            asking(&server, || Ok::<_, Error>(Credentials::new("a\0b"))),
            "or with a zero byte".to_owned(),
        ),
        (ended, "the credentials callback returned a secret that ended at ".to_owned()),
        (
            asking(&server, || Ok::<_, Error>(Credentials::new("hunter2").user("app"))),
            "WRONGPASS".to_owned(),
        ),
    ];
    for (client, said) in texts {
        let error = client.lock("n").try_acquire().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
        assert!(error.detail().contains(&said), "{error}");
        assert!(!error.to_string().contains("hunter2") && error.source().is_none(), "{error}");
    }
}

/// What a client says that was cut off and gets no credentials.
fn eventually_refused(client: &Client, cut: impl Fn()) -> Error {
    loop {
        cut();
        match client.lock("n").try_acquire() {
            Err(error)
                if error.kind() != ErrorKind::Refused && !error.detail().contains("reply") =>
            {
                return error;
            }
            // It had another connection, or the hand that cuts was slower.
            Ok(_) | Err(_) => thread::sleep(ms(20)),
        }
    }
}

#[test]
fn a_callback_that_never_returns_keeps_no_caller_beyond_its_deadline_and_no_client_open() {
    let server = server();
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let asked = Arc::clone(&gate);
    let config = Config::from_url(&server.url()).unwrap().io_timeout(ms(300));
    let client = Client::with_config(config.close_timeout(ms(100)).credentials(move |_| {
        let (open, opened) = &*asked;
        drop(opened.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
        Ok::<_, Error>(app())
    }));
    let client = client.unwrap();
    let error = client.lock("n").try_acquire().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoAnswer, "{error}");
    assert!(error.detail().contains("the credentials callback has not returned for"), "{error}");
    // It returns in the end, and the next login has what it said.
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
    eventually(LIMIT, || client.lock("n").try_acquire().is_ok());
    *gate.0.lock().unwrap() = false;
    let kept = eventually_refused(&client, || drop(server.cmd(&["CLIENT", "KILL", "USER", "app"])));
    assert_eq!(kept.kind(), ErrorKind::NoAnswer, "{kept}");
    client.close().unwrap();
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
}

#[test]
fn the_last_credentials_are_used_until_they_end_and_the_error_then_says_when_that_was() {
    let server = server();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let client = asking(&server, move || match counted.fetch_add(1, SeqCst) {
        0 => Ok(app().valid_for(secs(4))),
        _ => Err("the vault is sealed"),
    });
    goes_on(&client);
    // It was asked before the end, in vain.
    eventually(LIMIT, || calls.load(SeqCst) >= 2);
    let error = eventually_refused(&client, || {
        drop(server.cmd(&["CLIENT", "KILL", "USER", "app"]));
    });
    assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
    assert!(error.detail().contains("the last secret ended at 20"), "{error}");
    assert!(error.detail().contains("the vault is sealed"), "{error}");
}

#[test]
fn credentials_without_an_end_are_asked_for_at_each_login() {
    let server = server();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let client = asking(&server, move || {
        counted.fetch_add(1, SeqCst);
        Ok::<_, Error>(app())
    });
    goes_on(&client);
    let before = calls.load(SeqCst);
    server.cmd(&["CLIENT", "KILL", "USER", "app"]);
    eventually(LIMIT, || client.lock("n").try_acquire().is_ok());
    assert!(calls.load(SeqCst) > before);
    assert!(!format!("{client:?}").contains("s3cret"));
}

#[test]
fn a_callback_goes_with_a_server_and_without_a_password_in_the_url() {
    for (url, said) in [
        ("redis://:hunter2@h", "leave one out"),
        ("redis://app@h?password_file=/p", "leave one out"),
        ("redis://a,redis://b?password_command=c,redis://c", "leave one out"),
        #[cfg(feature = "sqlite")]
        ("sqlite:/tmp/x", "credentials are for servers"),
        #[cfg(feature = "testing")]
        ("memory:x", "credentials are for servers"),
    ] {
        let config = Config::from_url(url).unwrap().credentials(|_| Ok::<_, Error>(app()));
        assert!(!format!("{config:?}").contains("hunter2"));
        let error = Client::with_config(config).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadArgument);
        assert!(error.detail().contains(said), "{error}");
    }
}
