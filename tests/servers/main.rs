//! Several servers that are one store: Sentinels, Clusters, replicas, and what they lose.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cluster;
mod cluster_moves;
mod credentials;
mod data_loss;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "examine")]
mod examine;
mod foreign;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod lagging;
#[cfg(all(feature = "stores", feature = "tls"))]
mod mistaken;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "mysql")]
mod mysql_faults;
#[cfg(feature = "mysql")]
mod mysql_semi_sync;
#[cfg(feature = "mysql")]
mod mysql_sessions;
mod password_file;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod postgres_faults;
#[cfg(feature = "postgres")]
mod postgres_sessions;
#[cfg(feature = "postgres")]
mod postgres_standby;
#[cfg(feature = "postgres")]
mod postgres_urls;
mod replicas;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod rights;
mod sentinel;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod sql;
#[path = "../stores/mod.rs"]
mod stores;
#[cfg(all(
    feature = "etcd",
    feature = "mysql",
    feature = "postgres",
    feature = "tls",
    feature = "zookeeper"
))]
mod storm;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod tables;
mod unguarded;
mod who;
#[cfg(feature = "zookeeper")]
mod zookeeper;

#[cfg(all(
    feature = "etcd",
    feature = "mysql",
    feature = "postgres",
    feature = "tls",
    feature = "zookeeper"
))]
#[test]
#[ignore = "the entry of child processes"]
fn child_entry() {
    kit::child::play(&[storm::ROLES]);
}
