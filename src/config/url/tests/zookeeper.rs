//! URLs of ZooKeeper.

use super::{exposed, refused, tcp};
use crate::config::{Config, StoreConfig};

#[test]
fn a_zookeeper_url_has_the_servers_of_an_ensemble_and_a_chroot() {
    let read = |url: &str| match Config::from_url(url).unwrap().store {
        StoreConfig::Zookeeper(zookeeper) => *zookeeper,
        _ => panic!("{url}"),
    };
    let full = read("zookeeper://app:p%40ss@a:2182,b,[::1]/apps/my%20locks/?prefix=x:");
    assert_eq!(full.hosts, [tcp("a", 2182), tcp("b", 2181), tcp("::1", 2181)]);
    assert_eq!(full.access.user.as_deref(), Some("app"));
    assert_eq!(exposed(full.access.password.as_ref()), Some("p@ss"));
    assert_eq!(full.chroot, "/apps/my locks");
    assert_eq!(full.display(), "zookeeper://a:2182,b:2181,[::1]:2181/apps/my locks");
    let named = read("ZooKeeper://a?auth=digest:app:p:w");
    assert_eq!((named.access.user.as_deref(), &*named.chroot), (Some("app"), ""));
    assert_eq!(exposed(named.access.password.as_ref()), Some("p:w"));
    assert!(read("zookeeper://a/").access.tls.is_none());
    for (url, reason) in [
        ("zookeeper:a", "'//'"),
        ("zookeeper://", "no host"),
        ("zookeeper://a,a:2181", "twice"),
        ("zookeeper://a//x", "a path of nodes"),
        ("zookeeper://a/x/../y", "a path of nodes"),
        ("zookeeper://a/x%01", "a path of nodes"),
        ("zookeeper://app@a", "a user and no password"),
        ("zookeeper://:pw@a", "a user without a ':'"),
        ("zookeeper://a?auth=app:pw", "it is digest:user:password"),
        ("zookeeper://app:pw@a?auth=digest:app:pw", "a user twice"),
        ("zookeeper://a?ca=/ca.pem", "it is for TLS: write tls=yes"),
        ("zookeeper://a,", "write for example zookeeper://127.0.0.1"),
        ("zookeeper://a?tls=maybe", "yes or no"),
        ("zookeeper://a?auht=x", "did you mean auth?"),
        ("zookeeper://a?guard_data_loss=yes", "guard_data_loss is for Redis"),
        ("zookeper://a", "did you mean zookeeper://?"),
        ("redis://a,redis://b,zookeeper://c", "are Redis servers"),
    ] {
        refused(url, reason);
    }
}

#[cfg(feature = "tls")]
#[test]
fn a_zookeeper_over_tls_has_another_port() {
    let url = "zookeeper://a,b:9/x?tls=yes&ca=/ca.pem&cert=/c.pem&key=/k.pem";
    let StoreConfig::Zookeeper(read) = Config::from_url(url).unwrap().store else { panic!() };
    assert_eq!(read.hosts, [tcp("a", 2281), tcp("b", 9)]);
    assert_eq!(read.access.tls.unwrap().ca, Some("/ca.pem".into()));
    refused("zookeeper://a?tls=yes&cert=/c.pem", "'cert' and 'key' go together");
}
