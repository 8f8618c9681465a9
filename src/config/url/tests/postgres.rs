//! URLs of PostgreSQL.

use std::time::Duration;

use super::{exposed, refused, tcp};
use crate::config::{Address, ChannelBinding, Config, StoreConfig};

#[test]
fn a_postgres_url_is_read_as_libpq_reads_it_where_that_suits_a_lock() {
    let read = |url: &str| match Config::from_url(url).unwrap().store {
        StoreConfig::Postgres(postgres) => *postgres,
        _ => panic!("{url}"),
    };
    let full = read(
        "postgresql://us%3aer:p%40ss@db.example:6000,other,[::1]/app%20db?prefix=x:\
         &target_session_attrs=read-write&application_name=cron&synchronous_commit=remote_apply",
    );
    assert_eq!(full.hosts, [tcp("db.example", 6000), tcp("other", 5432), tcp("::1", 5432)]);
    assert_eq!(full.access.user.as_deref(), Some("us:er"));
    assert_eq!(exposed(full.access.password.as_ref()), Some("p@ss"));
    assert_eq!((&*full.database, &*full.application), ("app db", "cron"));
    assert_eq!(full.synchronous_commit, Some("remote_apply"));
    let short = read("Postgres://bob@h");
    assert_eq!((&*short.database, &*short.application), ("bob", "leasehold"));
    assert!(short.access.tls.is_none() && short.access.password.is_none());
    let socket = [Address::Unix("/run/postgresql/.s.PGSQL.5432".into())];
    assert_eq!(read("postgres://bob@/db?host=/run/postgresql").hosts, socket);
    assert_eq!(read("postgres://bob@%2Frun%2Fpostgresql/db").hosts, socket);
    for (url, reason) in [
        ("postgres://h/db", "names no user"),
        ("postgres:h/db", "'//'"),
        ("postgres://bob@/db", "no host"),
        ("postgres://bob@h,h/db", "twice"),
        ("postgres://bob@h/db?sslmod=require", "did you mean sslmode?"),
        ("postgres://bob@h/db?sslmode=prefer", "write verify-full, or disable"),
        ("postgres://bob@h/db?sslmode=yes", "it is disable, require, verify-ca or verify-full"),
        ("postgres://bob@h/db?sslrootcert=/ca.pem", "write sslmode=verify-full"),
        ("postgres://bob@h/db?sslmode=require&sslcert=/c.pem", "'sslcert' and 'sslkey'"),
        (
            "postgres://bob@h/db?colour=red",
            "known are password_file, password_command, user, password, host, port",
        ),
        ("postgres://bob@h/db?connect_timeout=3s", "a whole number of seconds"),
        ("postgres://bob@h/db?gssencmode=require", "it is disable, or not said"),
        ("postgres://bob@h/db?user=x", "its user twice"),
        ("postgres://bob:p@h/db?password=x", "its password twice"),
        ("postgres://bob@h/db?dbname=x", "its database twice"),
        ("postgres://bob@h/db?port=5433", "a port stands behind its host"),
        ("postgres://bob@/db?host=h&port=0", "it goes from 1 to 65535"),
        ("postgres://bob@h:0/db", "as in postgres://user:password@host"),
        ("postgres://bob@h/db?options=%00", "the URL's options has a %00"),
        ("postgres://bob@h/db?channel_binding=require", "write sslmode=verify-full"),
        ("postgres://bob@h/db?channel_binding=yes", "it is disable, prefer or require"),
        ("postgres://bob@h/db?sslmode=require&sslrootcert=system", "goes with sslmode=verify-full"),
        ("postgres://bob@h/db?target_session_attrs=any", "it is read-write"),
        ("postgres://bob@h/db?synchronous_commit=maybe", "one of on, off, local"),
        ("postgres://bob@h/db?host=other", "two places"),
        ("postgres://bob@h/db?host=/run", "two places"),
        ("postgres://bob@h/db?guard_data_loss=yes", "guard_data_loss is for Redis"),
        ("postgres://bo%00b@h/db", "the URL's user has a %00"),
        ("postgres://bob:p%00@h/db", "the URL's password has a %00"),
        ("postgres://bob@h/d%00b", "the URL's database has a %00"),
        ("postgres://bob@h/db?application_name=%00", "application_name has a %00"),
        ("postgre://bob@h/db", "did you mean postgres://?"),
        ("redis://a,redis://b,postgres://c@d", "are Redis servers"),
    ] {
        refused(url, reason);
    }
}

#[test]
fn what_libpq_has_behind_the_question_mark_is_read_too() {
    let read = |url: &str| match Config::from_url(url).unwrap().store {
        StoreConfig::Postgres(postgres) => *postgres,
        _ => panic!("{url}"),
    };
    let behind = read(
        "postgres:///?host=a,[::1]:7&port=6000&user=bob&password=p%26w&dbname=app&connect_timeout=3\
         &fallback_application_name=cron&options=-c%20role%3Dlocks&gssencmode=disable",
    );
    assert_eq!(behind.hosts, [tcp("a", 6000), tcp("::1", 7)]);
    assert_eq!(behind.access.user.as_deref(), Some("bob"));
    assert_eq!(exposed(behind.access.password.as_ref()), Some("p&w"));
    assert_eq!((&*behind.database, &*behind.application), ("app", "cron"));
    assert_eq!(behind.options.as_deref(), Some("-c role=locks"));
    assert_eq!(behind.connect_timeout, Some(Duration::from_secs(3)));
    let socket = [Address::Unix("/run/.s.PGSQL.6000".into())];
    assert_eq!(read("postgres://bob@/?host=/run&port=6000").hosts, socket);
    let none =
        read("postgres://bob@h?connect_timeout=0&application_name=a&fallback_application_name=b");
    assert_eq!((none.connect_timeout, &*none.application), (None, "a"));
    for (said, binding) in [
        ("", ChannelBinding::Preferred),
        ("?channel_binding=prefer", ChannelBinding::Preferred),
        ("?channel_binding=disable", ChannelBinding::Never),
        #[cfg(feature = "tls")]
        ("?sslmode=require&channel_binding=require", ChannelBinding::Always),
    ] {
        assert_eq!(read(&format!("postgres://bob@h{said}")).channel_binding, binding, "{said}");
    }
}

#[cfg(feature = "tls")]
#[test]
fn what_a_postgres_trusts_is_what_sslmode_says() {
    use crate::config::Trust;
    for (parameters, trust) in [
        ("sslmode=require", Trust::Anybody),
        ("sslmode=require&sslrootcert=/ca.pem", Trust::Authority),
        ("sslmode=verify-ca", Trust::Authority),
        ("sslmode=verify-full", Trust::Host),
        ("sslrootcert=system", Trust::Host),
        ("sslmode=verify-full&sslrootcert=system", Trust::Host),
    ] {
        let config = Config::from_url(&format!("postgres://bob@h/db?{parameters}")).unwrap();
        let StoreConfig::Postgres(postgres) = config.store else { panic!() };
        let tls = postgres.access.tls.unwrap();
        assert_eq!(tls.trust, trust, "{parameters}");
        assert_eq!(tls.ca.is_some(), parameters.contains("/ca.pem"), "{parameters}");
    }
}
