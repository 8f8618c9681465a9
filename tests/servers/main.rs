//! Several servers that are one store: Sentinels, Clusters, replicas, and what they lose.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cluster;
mod cluster_moves;
mod data_loss;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod postgres_faults;
mod replicas;
mod sentinel;
#[path = "../stores/mod.rs"]
mod stores;
