//! URLs of etcd.

use super::{exposed, refused, tcp};
use crate::config::{Config, StoreConfig};

#[test]
fn an_etcd_url_names_members_of_one_cluster() {
    let read = |url: &str| match Config::from_url(url).unwrap().store {
        StoreConfig::Etcd(etcd) => *etcd,
        other => panic!("{other:?}"),
    };
    let etcd = read("etcd://app:p%40ss@e1,e2:4001,[::1]?prefix=x:");
    assert_eq!(etcd.hosts, [tcp("e1", 2379), tcp("e2", 4001), tcp("::1", 2379)]);
    assert_eq!(etcd.display(), "etcd://e1:2379,e2:4001,[::1]:2379");
    assert_eq!(etcd.access.user.as_deref(), Some("app"));
    assert_eq!(exposed(etcd.access.password.as_ref()), Some("p@ss"));
    for (url, why) in [
        ("etcd:e1", "'//'"),
        ("etcd://", "no host"),
        ("etcd://e1,e1", "twice"),
        ("etcd://app@e1", "a user and no password"),
        ("etcd://:secret@e1", "a password and no user"),
        ("etcd://e1/locks", "write ?prefix="),
        ("etcd://e1:0", "as in etcd://user:password@host"),
        ("etcd://e1?ca=/ca.pem", "it is for TLS: write etcds://"),
        ("etcd://e1?guard_data_loss=yes", "guard_data_loss is for Redis"),
        ("etcd://e1?fence_life=4h", "fence_life is for"),
        ("etcd://e1?colour=red", "known are password_file, password_command, io_timeout"),
        ("etcd://e1,etcd://e2,etcd://e3", "as in etcd://a,b,c"),
        ("ectd://e1", "did you mean etcd://?"),
    ] {
        refused(url, why);
    }
}

#[cfg(feature = "tls")]
#[test]
fn an_etcd_url_with_tls_names_its_files() {
    let config = Config::from_url("etcds://e1?ca=/ca.pem&cert=/c.pem&key=/k.pem").unwrap();
    assert_eq!(config.display_store(), "etcds://e1:2379");
    let StoreConfig::Etcd(etcd) = config.store else { panic!() };
    let tls = etcd.access.tls.unwrap();
    assert_eq!(tls.key.as_deref(), Some(std::path::Path::new("/k.pem")));
    refused("etcds://e1?cert=/c.pem", "'cert' and 'key' go together");
}
