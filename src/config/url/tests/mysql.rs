//! URLs of MySQL and MariaDB.

use super::{exposed, refused, tcp};
use crate::config::{Address, Config, MysqlConfig, StoreConfig};

fn read(url: &str) -> MysqlConfig {
    match Config::from_url(url).unwrap().store {
        StoreConfig::Mysql(mysql) => *mysql,
        _ => panic!("{url}"),
    }
}

#[test]
fn a_mysql_url_is_read_with_all_that_its_users_write() {
    let full = read("mysql://us%3aer:p%40ss@db.example:6000,other,[::1]/app%20db?prefix=x:&pool=3");
    assert_eq!(full.hosts, [tcp("db.example", 6000), tcp("other", 3306), tcp("::1", 3306)]);
    assert_eq!(full.access.user.as_deref(), Some("us:er"));
    assert_eq!(exposed(full.access.password.as_ref()), Some("p@ss"));
    assert_eq!(full.database, "app db");
    let short = read("MariaDB://bob@h/db");
    assert!(short.access.tls.is_none() && short.access.password.is_none());
    let socket = [Address::Unix("/run/mysqld/mysqld.sock".into())];
    assert_eq!(read("mysql://bob@/db?socket=/run/mysqld/mysqld.sock").hosts, socket);
    assert_eq!(read("mysql://bob@%2Frun%2Fmysqld%2Fmysqld.sock/db").hosts, socket);
}

#[test]
fn what_is_wrong_with_a_mysql_url_is_said() {
    for (url, reason) in [
        ("mysql://h/db", "names no user"),
        ("mysql:h/db", "'//'"),
        ("mysql://bob@/db", "no host"),
        ("mysql://bob@h", "names no database"),
        ("mysql://bob@h/", "names no database"),
        ("mysql://bob@h,h/db", "twice"),
        ("mysql://b%00b@h/db", "zero byte"),
        ("mysql://bob@h/d%00b", "zero byte"),
        ("mysql://bob@h/db?ssl-mod=required", "did you mean ssl-mode?"),
        ("mysql://bob@h/db?ssl-mode=preferred", "write verify_identity, or disabled"),
        ("mysql://bob@h/db?ssl-mode=yes", "it is disabled, required, verify_ca or"),
        ("mysql://bob@h/db?ssl-mode=required&ssl-ca=/ca.pem", "trusts anybody"),
        ("mysql://bob@h/db?ssl-ca=/ca.pem", "write ssl-mode=verify_identity"),
        ("mysql://bob@h/db?ssl-mode=required&ssl-cert=/c.pem", "'ssl-cert' and 'ssl-key'"),
        ("mysql://bob@h/db?colour=red", "known are password_file, password_command, socket"),
        ("mysql://bob@h/db?sslMode=REQUIRED", "did you mean ssl-mode?"),
        ("mysql://bob@h/db?ssl_ca=/ca.pem", "did you mean ssl-ca?"),
        ("mysql://bob@h:0/db", "as in mysql://user:password@host"),
        ("mysql://bob@h/db?socket=other", "the path of a unix socket"),
        ("mysql://bob@h/db?socket=/run/s", "two places"),
        ("mysql://bob@h/db?guard_data_loss=yes", "guard_data_loss is for Redis"),
        ("mysql://bob@h/db?fence_life=5h", "a database and a file keep"),
        ("msql://bob@h/db", "did you mean mysql://?"),
        ("redis://a,redis://b,mysql://c@d/e", "are Redis servers"),
    ] {
        refused(url, reason);
    }
}

#[cfg(feature = "tls")]
#[test]
fn what_a_mysql_trusts_is_what_ssl_mode_says() {
    use crate::config::Trust;
    for (parameters, trust) in [
        ("ssl-mode=REQUIRED", Trust::Anybody),
        ("ssl-mode=verify_ca&ssl-ca=/ca.pem", Trust::Authority),
        ("ssl-mode=VERIFY_IDENTITY", Trust::Host),
    ] {
        let tls = read(&format!("mysql://bob@h/db?{parameters}")).access.tls.unwrap();
        assert_eq!(tls.trust, trust, "{parameters}");
    }
}
