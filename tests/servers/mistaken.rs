//! URLs that lead somewhere else than they say: each is answered with what is there, and what to write.

use std::thread;
use std::time::Duration;

use kit::{Certificates, Etcd, Mysql, Postgres, Server, ServerCertificate, Zookeeper};
use leasehold::{Client, Config, Error, ErrorKind};

use crate::stores::secs;

/// Long enough for a server that answers.
const PATIENT: Duration = Duration::from_secs(20);
/// One that is silent answers nothing in any time.
const SILENT: Duration = Duration::from_secs(2);

fn refused(url: &str, io_timeout: Duration) -> Error {
    let config = Config::from_url(url).unwrap_or_else(|error| panic!("{url}: {error}"));
    let client = Client::with_config(config.io_timeout(io_timeout)).unwrap();
    client.lock("n").try_acquire().map(drop).expect_err(url)
}

/// No words of a server or of the system alone, and no list of all that a URL can mean.
#[track_caller]
fn assert_says(url: &str, error: &Error, kind: ErrorKind, parts: &[&str]) {
    let said = error.to_string();
    assert_eq!(error.kind(), kind, "{url}: {said}");
    for part in parts {
        assert!(said.contains(part), "{url} says nothing of {part:?}: {said}");
    }
    for raw in ["os error", "Redis 6.2 or later", "unexpected end of file", "?;", "cannot be read"]
    {
        assert!(!said.contains(raw), "{url}: {raw:?} in {said}");
    }
}

#[test]
fn c13_a_server_of_another_kind_is_named_or_the_scheme_is_doubted() {
    let dir = tempfile::tempdir().unwrap();
    let certificates = Certificates::make(dir.path());
    let (cert, key) = certificates.server(ServerCertificate::Good);
    let (redis, postgres) = (Server::builder().tls_with(&certificates).start(), Postgres::start());
    let (mysql, zookeeper) = (Mysql::start_with(&["--skip-ssl"]), Zookeeper::start());
    let settings =
        [format!("--cert-file={}", cert.display()), format!("--key-file={}", key.display())];
    let secure_etcd = Etcd::start_with(1, &settings.each_ref().map(String::as_str));
    let etcd = Etcd::start();
    let at = |port: u16| format!("127.0.0.1:{port}");
    let (is_redis, is_redis_tls) = (&at(redis.port()), &at(redis.tls_port()));
    let (is_postgres, is_mysql) = (&at(postgres.port()), &at(mysql.port()));
    let (is_zookeeper, is_etcd) = (&at(zookeeper.port()), &at(etcd.port(0)));
    let is_etcd_tls = &at(secure_etcd.port(0));
    let ca = format!("ca={}", certificates.ca().display());
    use ErrorKind::{NoAnswer, Protocol, Refused, Tls};
    let hung_up = "hung up";
    let silent = "says nothing to a";
    let no_tls = "speak TLS";
    let cases: Vec<(String, ErrorKind, Vec<&str>)> = vec![
        // A Redis's URL.
        (
            format!("redis://{is_postgres}"),
            Refused,
            vec![hung_up, "is no Redis", "scheme", is_postgres],
        ),
        (
            format!("redis://{is_mysql}"),
            Protocol,
            vec!["is a MySQL or MariaDB and no Redis: write mysql://", is_mysql],
        ),
        (format!("redis://:pw@{is_mysql}/3"), Protocol, vec!["write mysql://", is_mysql]),
        (format!("redis+cluster://{is_mysql}"), Protocol, vec!["write mysql://", is_mysql]),
        (format!("redis+sentinel://{is_mysql}/m"), Protocol, vec!["write mysql://", is_mysql]),
        (
            format!("redis+sentinel://{is_redis}/m"),
            Protocol,
            vec!["no Sentinel", "write redis://", is_redis],
        ),
        (format!("redis://{is_zookeeper}"), Refused, vec![hung_up, "is no Redis", is_zookeeper]),
        (format!("redis://{is_etcd}"), Refused, vec![hung_up, "is no Redis", is_etcd]),
        (format!("rediss://{is_redis}?{ca}"), NoAnswer, vec![no_tls, "try redis://", is_redis]),
        (format!("rediss://{is_mysql}?{ca}"), Tls, vec!["is a MySQL or MariaDB", is_mysql]),
        (
            format!("rediss://{is_etcd_tls}?{ca}"),
            Protocol,
            vec!["speaks HTTP and is no Redis", "etcds://", is_etcd_tls],
        ),
        // A PostgreSQL's.
        (format!("postgres://u@{is_redis}/d"), NoAnswer, vec![silent, "no PostgreSQL", is_redis]),
        (
            format!("postgres://u@{is_redis}/d?sslmode=require"),
            NoAnswer,
            vec![silent, "no PostgreSQL", is_redis],
        ),
        (
            format!("postgres://u@{is_mysql}/d"),
            Protocol,
            vec!["is a MySQL or MariaDB and no PostgreSQL: write mysql://", is_mysql],
        ),
        (
            format!("postgres://u@{is_mysql}/d?sslmode=require"),
            Protocol,
            vec!["write mysql://", is_mysql],
        ),
        (
            format!("postgres://u@{is_postgres}/d?sslmode=require"),
            Tls,
            vec!["sslmode=disable", is_postgres],
        ),
        (
            format!("postgres://u@{is_etcd_tls}/d"),
            Refused,
            vec![hung_up, "is no PostgreSQL", is_etcd_tls],
        ),
        // A MySQL's.
        (
            format!("mysql://u@{is_postgres}/d"),
            NoAnswer,
            vec![silent, "no MySQL or MariaDB", is_postgres],
        ),
        (
            format!("mysql://u@{is_redis}/d"),
            NoAnswer,
            vec![silent, "no MySQL or MariaDB", is_redis],
        ),
        (
            format!("mysql://u@{is_mysql}/d?ssl-mode=required"),
            Tls,
            vec!["ssl-mode=disabled", is_mysql],
        ),
        // A ZooKeeper's.
        (format!("zookeeper://{is_redis}"), NoAnswer, vec![silent, "no ZooKeeper", is_redis]),
        (
            format!("zookeeper://{is_postgres}"),
            Protocol,
            vec!["is a PostgreSQL and no ZooKeeper: write postgres://", is_postgres],
        ),
        (format!("zookeeper://{is_mysql}"), Protocol, vec!["write mysql://", is_mysql]),
        (format!("zookeeper://{is_etcd}"), Refused, vec![hung_up, "is no ZooKeeper", is_etcd]),
        (
            format!("zookeeper://{is_redis_tls}"),
            Refused,
            vec![hung_up, "wants TLS (tls=yes)", is_redis_tls],
        ),
        (
            format!("zookeeper://{is_zookeeper}?tls=yes&{ca}"),
            Tls,
            vec!["without tls=yes", is_zookeeper],
        ),
        // An etcd's.
        (
            format!("etcd://{is_redis}"),
            Protocol,
            vec!["is a Redis and no etcd: write redis://", is_redis],
        ),
        (format!("etcd://{is_mysql}"), Protocol, vec!["write mysql://", is_mysql]),
        (format!("etcd://{is_postgres}"), Refused, vec![hung_up, "is no etcd", is_postgres]),
        (format!("etcd://{is_etcd_tls}"), Refused, vec![hung_up, "write etcds://", is_etcd_tls]),
        (format!("etcds://{is_etcd}?{ca}"), Tls, vec![no_tls, "try etcd://", is_etcd]),
        (format!("etcds://{is_redis}?{ca}"), NoAnswer, vec![no_tls, "try etcd://", is_redis]),
    ];
    thread::scope(|scope| {
        for (url, kind, parts) in &cases {
            let io_timeout = if *kind == NoAnswer { SILENT } else { PATIENT };
            scope.spawn(move || assert_says(url, &refused(url, io_timeout), *kind, parts));
        }
    });
    // A server that hears no TLS may say so, or just hang up.
    let plain = refused(&format!("redis://{is_redis_tls}"), PATIENT);
    assert_says("redis at TLS", &plain, plain.kind(), &["write rediss://", is_redis_tls]);
    assert!(matches!(plain.kind(), Tls | Refused), "{plain}");
    let missing = refused(&format!("redis://{is_redis}/99"), PATIENT);
    assert_says("/99", &missing, ErrorKind::BadArgument, &["has no database 99", "smaller number"]);
    let nobody = refused(&format!("postgres://nobody@{is_postgres}/postgres"), PATIENT);
    assert_says("nobody", &nobody, ErrorKind::Auth, &["no such user", "CREATE ROLE"]);
}

#[test]
fn c13_a_path_that_is_no_socket_is_told_from_one_on_which_nobody_listens() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(path("file"), "").unwrap();
    std::os::unix::net::UnixListener::bind(path("left")).unwrap();
    for (at, parts) in [
        (path("none"), &["there is no socket", "start the server"][..]),
        (path(""), &["is a folder and no socket"]),
        (path("file"), &["is a file and no socket"]),
        (path("left"), &["no server listens on the socket", "start it"]),
    ] {
        let escaped = at.replace('/', "%2F");
        for url in [format!("unix:{at}"), format!("mysql://u@{escaped}/d")] {
            let error = refused(&url, secs(20));
            assert_says(&url, &error, ErrorKind::Refused, &[parts, &[&at]].concat());
        }
    }
    let folder = dir.path().display();
    let error = refused(&format!("postgres://u@/d?host={folder}&port=1"), secs(20));
    assert_says("postgres", &error, ErrorKind::Refused, &["there is no socket", ".s.PGSQL.1"]);
}
