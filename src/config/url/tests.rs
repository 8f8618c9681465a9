#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "testing")]
mod memory;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod quorum;
#[cfg(all(kit, feature = "stores", feature = "tls"))]
mod reference;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::time::Duration;

use crate::config::defaults::GUARDED_MAX_TTL;
use crate::config::limits::MAX_TTL;
use crate::config::{Address, Config, RedisConfig, Secret, SentinelConfig, Servers, StoreConfig};
use crate::error::ErrorKind;

fn redis_of(url: &str) -> RedisConfig {
    match Config::from_url(url).unwrap().store {
        StoreConfig::Redis(redis) => *redis,
        _ => panic!("{url}"),
    }
}

fn tcp(host: &str, port: u16) -> Address {
    Address::Tcp { host: host.to_owned(), port }
}

fn exposed(secret: Option<&Secret>) -> Option<&str> {
    secret.map(|secret| secret.0.as_str())
}

#[track_caller]
fn refused(url: &str, reason: &str) {
    let error = Config::from_url(url).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadArgument, "{url}");
    assert!(error.to_string().contains(reason), "{url}: {error}");
}

#[test]
fn a_redis_url_says_all_of_it() {
    let read = redis_of("redis://us%3aer:p%40ss@db.example:7000/5?replicas=2");
    assert_eq!(read.servers, Servers::One(tcp("db.example", 7000)));
    assert_eq!(read.access.user.as_deref(), Some("us:er"));
    assert_eq!(exposed(read.access.password.as_ref()), Some("p@ss"));
    assert_eq!((read.access.database, read.replicas), (5, 2));
    let short = redis_of("redis://:secret@[::1]");
    assert_eq!(short.servers, Servers::One(tcp("::1", 6379)));
    assert_eq!((short.access.user, short.access.database, short.replicas), (None, 0, 0));
    let unix = redis_of("unix:///run/redis.sock?db=3&password=x&replicas=16");
    assert_eq!(unix.servers, Servers::One(Address::Unix("/run/redis.sock".into())));
    assert_eq!((unix.access.database, unix.replicas), (3, 16));
}

#[test]
fn a_file_stands_in_place_of_a_password() {
    let file = Some(std::path::Path::new("/run/secrets/p"));
    for url in [
        "redis://h?password_file=/run/secrets/p",
        "redis://bob@h?password_file=/run/secrets/p",
        "redis+cluster://bob@h,i?password_file=%2Frun/secrets/p",
        "unix:///s?user=bob&password_file=/run/secrets/p",
    ] {
        assert_eq!(redis_of(url).access.password_file.as_deref(), file, "{url}");
    }
    let read =
        redis_of("redis+sentinel://h/m?sentinel_user=eve&sentinel_password_file=/run/secrets/p");
    let Servers::Sentinel(sentinels) = read.servers else { panic!() };
    let SentinelConfig { access, .. } = *sentinels;
    assert_eq!((access.password_file.as_deref(), read.access.password_file), (file, None));
    for (url, said) in [
        ("redis://bob:hunter2@h?password_file=/p", "a password and a password_file"),
        ("redis://:hunter2@h?password_file=/p", "a password and a password_file"),
        ("unix:///s?password=hunter2&password_file=/p", "a password and a password_file"),
        (
            "redis+sentinel://h/m?sentinel_password=hunter2&sentinel_password_file=/p",
            "leave one out",
        ),
        (
            "unix:///s?user=bob",
            "'user' needs a 'password', a 'password_file' or a 'password_command'",
        ),
        ("redis://bob@h?password_file=", "it is the path of a file"),
        ("redis://bob:hunter2@h?password_command=p", "a password and a password_command"),
        ("redis://h?password_file=/p&password_command=p", "leave one out"),
        ("redis://h?password_command=", "it is a command"),
        ("redis://h?password_command=echo%20$P", "no shell reads it"),
        (
            "redis+sentinel://h/m?sentinel_password=hunter2&sentinel_password_command=p",
            "leave one out",
        ),
        ("redis://h?sentinel_password_file=/p", "'sentinel_password_file' is not known"),
    ] {
        let error = Config::from_url(url).unwrap_err().to_string();
        assert!(error.contains(said) && !error.contains("hunter2"), "{url}: {error}");
    }
}

#[cfg(feature = "stores")]
#[test]
fn each_server_takes_a_file_or_a_command_in_place_of_a_password() {
    for (url, twice) in [
        ("postgres://bob@h/d", "postgres://h/d?user=bob&password=hunter2"),
        ("mysql://bob@h/d", "mysql://bob:hunter2@h/d"),
        ("zookeeper://bob@h", "zookeeper://h?auth=digest:bob:hunter2"),
        ("etcd://bob@h", "etcd://bob:hunter2@h"),
    ] {
        for key in ["password_file=/p", "password_command=p"] {
            drop(Config::from_url(&format!("{url}?{key}")).unwrap());
            let join = if twice.contains('?') { '&' } else { '?' };
            let error = Config::from_url(&format!("{twice}{join}{key}")).unwrap_err();
            assert!(error.to_string().contains("the URL has"), "{url}: {error}");
            assert!(!error.to_string().contains("hunter2"), "{url}: {error}");
        }
    }
}

#[test]
fn a_sentinel_url_has_the_masters_credentials_and_those_of_the_sentinels() {
    let read = redis_of(
        "redis+sentinel://bob:pw@one,redis:26380,[::1]/my%20master/2\
         ?sentinel_user=eve&sentinel_password=s%26s&replicas=1",
    );
    let Servers::Sentinel(sentinels) = read.servers else { panic!() };
    let SentinelConfig { hosts, master, access } = *sentinels;
    assert_eq!(hosts, [tcp("one", 26379), tcp("redis", 26380), tcp("::1", 26379)]);
    assert_eq!(master, "my master");
    assert_eq!(access.user.as_deref(), Some("eve"));
    assert_eq!(exposed(access.password.as_ref()), Some("s&s"));
    assert_eq!(access.database, 0);
    assert_eq!(read.access.user.as_deref(), Some("bob"));
    assert_eq!(exposed(read.access.password.as_ref()), Some("pw"));
    assert_eq!((read.access.database, read.replicas), (2, 1));

    let plain = redis_of("redis+sentinel://:pw@h/m");
    let Servers::Sentinel(sentinels) = plain.servers else { panic!() };
    let SentinelConfig { access, .. } = *sentinels;
    assert!(access.password.is_none() && access.tls.is_none() && plain.access.tls.is_none());
}

#[cfg(feature = "tls")]
#[test]
fn sentinels_are_spoken_to_as_the_master_is_unless_said_otherwise() {
    for (url, of_master, of_sentinels) in [
        ("rediss+sentinel://h/m?ca=/ca.pem", true, true),
        ("rediss+sentinel://h/m?ca=/ca.pem&sentinel_tls=no", true, false),
        ("redis+sentinel://h/m?ca=/ca.pem&sentinel_tls=yes", false, true),
        ("redis+sentinel://h/m?sentinel_tls=no", false, false),
    ] {
        let read = redis_of(url);
        let Servers::Sentinel(sentinels) = read.servers else { panic!() };
        let SentinelConfig { access, .. } = *sentinels;
        for (tls, wanted) in [(read.access.tls, of_master), (access.tls, of_sentinels)] {
            assert_eq!(tls.is_some(), wanted, "{url}");
            assert!(tls.is_none_or(|tls| tls.ca == Some("/ca.pem".into())), "{url}");
        }
    }
}

#[test]
fn a_cluster_url_names_some_of_its_servers() {
    let read = redis_of("redis+cluster://bob:pw@a,b:7000,[::1]:7001/0?replicas=1");
    let seeds = vec![tcp("a", 6379), tcp("b", 7000), tcp("::1", 7001)];
    assert_eq!(read.servers, Servers::Cluster(seeds));
    assert_eq!(read.access.user.as_deref(), Some("bob"));
    assert_eq!(exposed(read.access.password.as_ref()), Some("pw"));
    assert_eq!((read.access.database, read.replicas), (0, 1));
    refused("redis+cluster://a/3", "only database 0");
}

#[test]
fn parameters_set_timeouts_and_pool() {
    let config = Config::from_url(
        "redis://h?io_timeout=250ms&pool=3&prefix=a%00b&close_timeout=2s\
         &claim_window=300ms",
    )
    .unwrap();
    assert_eq!(config.io_timeout, Duration::from_millis(250));
    assert_eq!(config.pool, 3);
    assert_eq!(config.prefix, b"a\0b");
    assert_eq!(config.close_timeout, Duration::from_secs(2));
    assert_eq!(config.claim_window, Duration::from_millis(300));
}

#[test]
fn a_guarded_store_has_a_shorter_longest_ttl() {
    let read = |url| {
        let config = Config::from_url(url).unwrap();
        (config.guard_data_loss, config.longest_ttl())
    };
    assert_eq!(read("redis://h"), (false, MAX_TTL));
    assert_eq!(read("redis://h?guard_data_loss=no"), (false, MAX_TTL));
    assert_eq!(read("redis://h?guard_data_loss=yes"), (true, GUARDED_MAX_TTL));
    assert_eq!(read("redis+sentinel://h/m?guard_data_loss=yes").1, GUARDED_MAX_TTL);
    assert_eq!(read("redis+cluster://h?guard_data_loss=yes&max_ttl=366d").1, MAX_TTL);
    assert_eq!(read("unix:/s?max_ttl=1s"), (false, Duration::from_secs(1)));
    assert_eq!(read("redis://a,redis://b,redis://c"), (true, GUARDED_MAX_TTL));
    // Said in code, in any order, as in a URL.
    let hour = Duration::from_secs(3600);
    let config = Config::from_url("redis://h?max_ttl=1h").unwrap().guard_data_loss(true);
    assert_eq!((config.guard_data_loss, config.longest_ttl()), (true, hour));
    let config = Config::from_url("redis://h").unwrap().guard_data_loss(true);
    assert_eq!(config.longest_ttl(), GUARDED_MAX_TTL);
    assert_eq!(config.guard_data_loss(false).longest_ttl(), MAX_TTL);
}

#[test]
fn a_wrong_url_is_refused_with_its_reason() {
    for (url, reason) in [
        ("localhost", "did you mean redis://localhost?"),
        ("localhost:6379", "did you mean redis://localhost:6379?"),
        ("10.0.0.7/2?pool=3", "did you mean redis://10.0.0.7/2?"),
        ("[::1]:6379", "did you mean redis://[::1]:6379?"),
        ("a:6379,b:6379", "did you mean redis://a:6379,redis://b:6379?"),
        ("ftp://localhost", "no scheme that is known"),
        ("http://localhost", "an etcd is etcd://host:2379"),
        ("https://h:2379", "an etcd with TLS is etcds://host:2379"),
        ("jdbc:postgresql://h/d?user=u", "leave 'jdbc:' out, and write postgres://user:password@"),
        ("JDBC:mysql://h/d", "leave 'jdbc:' out, and write mysql://"),
        ("jdbc:oracle:thin:@h", "no JDBC driver is used"),
        ("postgresql+psycopg2://u@h/d", "leave out the driver behind the '+'"),
        ("file:/var/lib/x.db", "a file is sqlite:/path/to/file"),
        ("rdis://localhost", "did you mean redis://?"),
        ("redis+sentinal://h/m", "did you mean redis+sentinel://?"),
        ("/var/lib/x.db", "sqlite: before its path"),
        ("", "the URL is empty"),
        (" \n", "the URL is empty"),
        (" redis://h", "the URL begins with a space"),
        ("redis:///h", "three slashes, and so no host: write two, as in redis://127.0.0.1"),
        ("redis+cluster:///h", "three slashes"),
        ("redis://h\n", "the URL ends with a line break"),
        ("redis://:p@h/2?pool=3\r\n", "the URL ends with a line break"),
        ("redis:localhost", "'//'"),
        ("redis://", "no host"),
        ("redis://h:", "no port behind it; write the port, or leave the ':' out for 6379"),
        ("redis://h:0", "port"),
        ("redis://user:password", "a password stands before an '@'"),
        ("redis://:p/w@h", "a '/' before its last '@'; in a password it is written as %2F"),
        ("redis+sentinel://u:1/w@h/m", "written as %2F"),
        ("redis://:p?w@h", "a '?' before its last '@'; in a password it is written as %3F"),
        ("redis://h:1?w=p@h", "written as %3F"),
        ("redis://:p#w@h", "write it as %23"),
        ("redis://:p%w@h", "the URL's password has a '%'"),
        ("redis://:p%@h", "a '%' itself is written as %25"),
        ("redis://h?prefix=%é", "the URL's parameter has a '%'"),
        #[cfg(feature = "sqlite")]
        ("sqlite:100%.db", "the URL's path has a '%'"),
        ("redis://h:99999", "port"),
        ("redis://h/x", "database"),
        ("redis://h?pool=0", "pool is 0"),
        ("redis://h?pool=1&pool=2", "twice"),
        ("redis://h?io_timeout=5", "io_timeout"),
        ("redis://h?io_timeout=0", "io_timeout is 0 s; it goes from 1 ms to 1 h"),
        ("redis://h?claim_window=1ms", "it goes from 50 ms to 1 m"),
        ("redis://h?fence_life=239m", "it goes from 4 h to 28 h"),
        ("redis://h?fence_life=29h", "it goes from 4 h to 28 h"),
        ("redis://h?close_timeout=2h", "close_timeout is 2 h; it goes from 0 s to 1 h"),
        ("redis://h?pool=1025", "pool is 1025; it goes from 1 to 1024"),
        (
            "redis://h?colour=red",
            "'colour' is not known for redis: known are password_file, password_command, replicas",
        ),
        ("redis://h?io_timout=1s", "'io_timout' is not known for redis: did you mean io_timeout?"),
        ("redis://h?ca=x", "'ca' is not known for redis: it is for TLS: write rediss://"),
        ("redis+sentinel://h/m?cert=x", "it is for TLS: write rediss+sentinel://"),
        ("valkey+cluster://h?key=x", "it is for TLS: write rediss+cluster://"),
        ("redis://user@h", "no password"),
        ("redis://[::1", "']'"),
        ("redis://a,b", "one host"),
        ("redis://h?prefix=\napp:", "a line break or another invisible character"),
        ("redis://a b", "the URL has a space"),
        ("redis://h?prefix=app: ", "the URL has a space"),
        ("redis://h?prefix=app:\u{a0}", "invisible character"),
        ("redis://h?prefix=app:#1", "write it as %23"),
        ("redis+sentinel://h/my master", "the URL has a space"),
        ("unix:/run/redis.sock\n", "the URL ends with a line break"),
        ("unix:/run/redis.sock ?db=3", "the URL has a space"),
        ("redis://h?replicas=17", "replicas is 17; it goes from 0 to 16"),
        ("redis://h?replicas=-1", "whole number"),
        ("redis://h?max_ttl=999ms", "max_ttl is 999 ms; it goes from 1 s to 366 d"),
        ("redis://h?max_ttl=367d", "max_ttl is 367 d; it goes from 1 s to 366 d"),
        ("redis://h?guard_data_loss=on", "yes or no"),
        ("unix:", "no socket path"),
        ("unix://relative/path", "another '/'"),
        ("unix:///s?user=x", "'user' needs"),
        ("redis://h?pool", "has no '='; write key=value"),
        ("redis+sentinel:h/m", "'//'"),
        ("redis+sentinel://h", "what the Sentinels call the master"),
        ("redis+sentinel://h/", "what the Sentinels call the master"),
        ("redis+sentinel:///m", "three slashes, and so no host"),
        ("redis+sentinel://a,,b/m", "no host"),
        ("redis+sentinel://a,a:26379/m", "twice"),
        ("redis+sentinel://h/m/x", "database"),
        ("redis+sentinel://h/m/1/2", "database"),
        ("redis+sentinel://:p@h,:p@i/m", "several '@'"),
        ("redis+sentinel://h/m?sentinel_user=x", "'sentinel_user' needs"),
        ("redis+sentinel://h/m?sentinel_tls=maybe", "yes or no"),
        ("redis+sentinel://h/m?ca=x", "'ca' is not known"),
        ("redis+cluster://", "no host"),
        ("redis+cluster://a,b,a", "twice"),
        ("redis+cluster://h/x", "database"),
        ("redis+cluster://h?sentinel_user=x", "not known"),
        ("redis://h?sentinel_user=x", "not known"),
    ] {
        refused(url, reason);
    }
}

#[test]
fn what_people_see_leads_there() {
    for (url, shown) in [
        ("redis+sentinel://u:p@a,[::1]:1/m/2", "redis+sentinel://a:26379,[::1]:1/m/2"),
        ("redis+cluster://u:p@a,b:1", "redis+cluster://a:6379,b:1"),
        (
            "unix:///s?password=p,redis://b,redis+cluster://c",
            "unix:/s,redis://b:6379/0,redis+cluster://c:6379",
        ),
    ] {
        let config = Config::from_url(url).unwrap();
        assert_eq!(config.display_store(), shown);
        assert_eq!(Config::from_url(shown).unwrap().display_store(), shown);
    }
}

#[test]
fn c12_no_error_of_a_url_repeats_its_password() {
    for url in [
        "redis://:hunter2@h:0",
        "redis://:hunter2@h/x",
        "redis://:hunter2@h?wrong=1",
        "hunter2://h",
        "hunter2",
        "hunter2\n",
        "redis:///hunter2",
        "http://bob:hunter2@h:2379",
        "jdbc:postgresql://h/d?password=hunter2",
        "bob:hunter2",
        "bob:hunter2@h:6379",
        "/hunter2",
        "redis://bob:hunter2",
        "redis://:/hunter2@h",
        "redis+sentinel://u:1/hunter2@h",
        "redis://:hunter2/@h",
        "redis://:x?hunter2=1@h",
        "redis://h:1?hunter2=1&hunter2=2@h",
        "redis://a,redis://b,redis://h:1?hunter2=1@h",
        "redis://:hunter2#@h",
        "redis://:hunter2%@h",
        "redis://h:12?io_timeout=hunter2@127.0.0.1:7401",
        "unix:///s?password=hunter2&x=1",
        "unix:///s?password=a&hunter2=x",
        "unix:///s?password=a&hunter2=x&hunter2=y",
        "redis+sentinel://h/m?sentinel_password=hunter2&x=1",
        "redis+sentinel://h/m?sentinel_user=x&sentinel_pasword=hunter2",
        "redis+sentinel://:hunter2@h,i",
        "redis+sentinel://:hunter2@h,:hunter2@i/m",
        "redis+cluster://:hunter2@h/7",
        "redis://:hunter2,redis://h",
        "redis://:hunter2@a,redis://:hunter2@a,redis://:hunter2@a",
        "redis://:hunter2@a,redis://:hunter2/@b,redis://c",
        "redis://:hunter2@a,redis://b,redis://hunter2@c",
        "redis://a,redis://b,redis://c?sentinel_password=hunter2",
    ] {
        let error = Config::from_url(url).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{url}: {error}");
    }
}

#[test]
fn a_scheme_is_read_in_any_case_and_valkey_is_redis() {
    for (url, same) in [
        ("REDIS://h", "redis://h"),
        ("valkey://u:p@h:1/2", "redis://u:p@h:1/2"),
        ("Valkey+Sentinel://h/m", "redis+sentinel://h/m"),
        ("valkey+cluster://h", "redis+cluster://h"),
        ("valkey://a,VALKEY://b,redis://c", "redis://a,redis://b,redis://c"),
        #[cfg(feature = "tls")]
        ("valkeys://h", "rediss://h"),
    ] {
        assert!(Config::from_url(url).unwrap() == Config::from_url(same).unwrap(), "{url}");
    }
}

#[test]
fn a_store_needs_its_feature() {
    for (is_there, feature, url) in [
        (cfg!(feature = "testing"), "testing", "memory:"),
        (cfg!(feature = "sqlite"), "sqlite", "sqlite:file"),
        (cfg!(feature = "postgres"), "postgres", "postgres://bob@h/db"),
        (cfg!(feature = "mysql"), "mysql", "mysql://bob@h/db"),
        (cfg!(feature = "zookeeper"), "zookeeper", "zookeeper://h"),
        (cfg!(feature = "etcd"), "etcd", "etcd://h"),
    ] {
        if is_there {
            drop(Config::from_url(url).unwrap());
        } else {
            refused(url, &format!("built with its feature '{feature}'"));
        }
    }
}
