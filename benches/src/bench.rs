//! What a lock costs, and how near that is to what it has to cost. `cargo bench -- --help`

// Cargo sets `test` here too, and without its harness nothing uses the tests.
#![allow(unused_imports, dead_code)]

mod also;
mod bare;
mod beside;
mod byhand;
mod ceiling;
mod command;
mod contended;
mod cores;
mod cycle;
#[cfg(feature = "etcd")]
mod etcd;
mod groups;
mod leases;
mod limit;
mod measure;
#[cfg(feature = "mysql")]
mod mysql;
mod pass;
mod passing;
#[cfg(feature = "postgres")]
mod postgres;
mod report;
#[cfg(feature = "sqlite")]
mod sqlite;
mod stores;
mod table;
mod theirs;
mod turns;
mod waiters;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::main()
}
