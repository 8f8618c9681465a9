//! URLs of a quorum.

use std::time::Duration;

use super::{exposed, refused, tcp};
use crate::config::{Address, Config, RedisConfig, SentinelConfig, Servers, StoreConfig};

fn members_of(urls: &str) -> Vec<RedisConfig> {
    match Config::from_url(urls).unwrap().store {
        StoreConfig::Quorum(members) => members,
        _ => panic!("{urls}"),
    }
}

#[test]
fn commas_separate_the_members_of_a_quorum() {
    let members = members_of(
        "redis://:p@a/1?replicas=1,unix:///c?password=x,redis+sentinel://h1,redis:26379/m\
         ?sentinel_password=y,redis+cluster://d,e:7000,redis+unix:/f\
         ?io_timeout=300ms&max_ttl=10s&prefix=x,y",
    );
    let servers: Vec<_> = members.iter().map(|member| member.servers.clone()).collect();
    assert_eq!(servers[0], Servers::One(tcp("a", 6379)));
    assert_eq!(servers[1], Servers::One(Address::Unix("/c".into())));
    let Servers::Sentinel(sentinels) = &servers[2] else { panic!() };
    let SentinelConfig { hosts, access, .. } = &**sentinels;
    assert_eq!(*hosts, [tcp("h1", 26379), tcp("redis", 26379)]);
    assert_eq!(exposed(access.password.as_ref()), Some("y"));
    assert_eq!(servers[3], Servers::Cluster(vec![tcp("d", 6379), tcp("e", 7000)]));
    assert_eq!(servers[4], Servers::One(Address::Unix("/f".into())));
    assert_eq!((members[0].access.database, members[0].replicas, members[1].replicas), (1, 1, 0));
    assert_eq!(exposed(members[1].access.password.as_ref()), Some("x"));
}

#[test]
fn the_last_url_of_a_quorum_speaks_for_the_client() {
    let list = ["redis://a", "redis://b", "redis://c?io_timeout=50ms&max_ttl=10s&prefix=p"];
    let config = Config::from_urls(list).unwrap();
    assert!(config == Config::from_url(&list.join(",")).unwrap());
    assert_eq!(config.io_timeout, Duration::from_millis(50));
    assert_eq!((config.longest_ttl(), &*config.prefix), (Duration::from_secs(10), &b"p"[..]));
    // Not longer than the whole request may take.
    assert_eq!(config.node_timeout(), Duration::from_millis(50));
    let config = Config::from_urls(["redis://a", "redis://b", "redis://c"]).unwrap();
    assert_eq!(config.node_timeout(), Duration::from_millis(100));
    let slow = config.clone().io_timeout(Duration::from_secs(5));
    assert_eq!(slow.node_timeout(), Duration::from_millis(500));
    assert_eq!(config.display_store(), "redis://a:6379/0,redis://b:6379/0,redis://c:6379/0");

    assert!(Config::from_urls(["redis://a"]).unwrap() == Config::from_url("redis://a").unwrap());
    assert!(Config::from_urls::<&str>([]).unwrap_err().to_string().contains("no URL"));
    let urls = ["redis://a,redis://b", "redis://c", "redis://d"];
    assert!(Config::from_urls(urls).unwrap_err().to_string().contains("URL 1 of 3"));
}

#[test]
fn a_quorum_that_is_none_is_refused_with_its_reason() {
    let many = |count: usize| {
        (0..count).map(|host| format!("redis://h{host}")).collect::<Vec<_>>().join(",")
    };
    assert_eq!(members_of(&many(31)).len(), 31);
    refused(&many(33), "31 members are the most");
    refused(&many(2), "no better than a single server: give one URL, or three, as in redis://a");
    refused(&many(4), "once 2 of them are down, no better than one of 3: give 3 URLs or 5");
    for (urls, reason) in [
        ("redis://a,redis://b,sqlite:file", "URL 3 of 3: a file"),
        ("redis://a?pool=3,redis://b,redis://c", "URL 1 of 3: 'pool' concerns the whole quorum"),
        ("redis://a,redis://b?claim_window=90ms,redis://c", "'claim_window' concerns"),
        ("redis://a,redis://b?prefix=x,redis://c", "'prefix' concerns"),
        ("redis://a,redis://b?colour=red,redis://c", "URL 2 of 3: the URL's key 'colour'"),
        ("redis://a,redis://b,redis://c?colour=red", "'colour' is not known"),
        ("redis://a,http://b,redis://c,redis://d", "URL 1 of 3: this URL has one host"),
        ("redis://a,redis:b,redis://c", "URL 2 of 3: after 'redis:'"),
        ("redis://a,redis://b,redis://c?max_ttl=25h", "is 25 h; it goes from 1 s to 24 h"),
        ("redis://a,redis://b,redis://c?guard_data_loss=no", "always on in a quorum"),
        ("redis://a,redis://b,redis://c?fence_life=4h", "a quorum, whose fences no clock stands"),
    ] {
        refused(urls, reason);
    }
}

#[test]
fn nobody_votes_twice() {
    for (urls, pair) in [
        ("redis://a,redis://b,redis://a/1", "URLs 1 and 3"),
        ("redis://a,redis://A.:6379,redis://c", "URLs 1 and 2"),
        ("redis://a,redis://localhost,redis://127.0.0.1", "URLs 2 and 3"),
        ("redis://a,redis://[::1],redis://[0:0::1]", "URLs 2 and 3"),
        ("redis://a,redis://[::ffff:10.0.0.1],redis://10.0.0.1", "URLs 2 and 3"),
        ("unix:///s,redis://b,redis+unix:///s?db=2", "URLs 1 and 3"),
        ("redis+sentinel://a,b/m,redis+sentinel://c,b/m,redis://d", "URLs 1 and 2"),
        ("redis+cluster://a,b,redis+cluster://b,c,redis://d", "URLs 1 and 2"),
        ("redis+cluster://a,b,redis://c,redis://b", "URLs 1 and 3"),
    ] {
        refused(urls, pair);
        refused(urls, "vote twice");
    }
    for urls in [
        "redis://a,redis://a:6380,redis://a:6381",
        "redis+sentinel://a,b/m1,redis+sentinel://a,b/m2,redis+sentinel://a,b/m3",
        "redis+sentinel://a/m,redis+sentinel://b/m,redis://a:26379",
        "unix:///a,unix:///b,redis://a",
    ] {
        assert_eq!(members_of(urls).len(), 3);
    }
}
