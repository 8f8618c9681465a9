//! An independent judge. Processes use locks and are killed and stopped meanwhile. What each lease
//! says of itself is written to memory that outlives its process: when it was valid, and until when
//! it promised to be. No two leases of one name may have been valid at one moment.
//!
//! `KIT_CHAOS_SECONDS` says how long a run takes, `KIT_SEED` repeats one's choices.

#![allow(clippy::unwrap_used, clippy::expect_used, unreachable_pub)]

mod chaos;
mod control;
mod deaths;
mod journal;
mod leaders;
mod on_bad_days;
mod sentry;
#[cfg(feature = "postgres")]
mod standby;
#[path = "../stores/mod.rs"]
mod stores;
mod trouble;
mod verdict;
mod worker;

use std::time::Duration;

use crate::stores::{Quorum, Store, ms, secs};
use kit::{Server, child};
use trouble::Run;
use trouble::Trouble::*;

const NAMES: [&str; 2] = ["lock", "other"];
const WINDOW: Duration = ms(150);
/// A lock is not left free for longer than `idle` while somebody waits for it.
const RUN: Run = Run { troubles: &[], workers: 4, ttl: ms(400), idle: ms(300) };

#[test]
#[ignore = "the entry of child processes"]
fn child_entry() {
    child::play(&[&[("worker", worker::play)], on_bad_days::ROLES, deaths::ROLES, leaders::ROLES]);
}

#[test]
fn c1_c2_c6_c10_on_redis_no_two_leases_are_valid_at_once_whatever_happens() {
    let troubles = [Killed, Killed, Row, Link, Link, Restarted, Flood];
    Run { troubles: &troubles, ..RUN }.rage(Store::own_redis()).assert_exclusion();
}

/// The ttl is too long for anybody to ask because it is over.
#[test]
fn c1_c2_c10_on_redis_a_lock_is_not_left_free_whoever_stands_still() {
    let run = Run { troubles: &[Row], workers: 6, ttl: secs(20), ..RUN };
    run.rage(Store::own_redis()).assert_exclusion();
}

/// Then there may be two at once, and the fences tell them apart.
#[test]
fn c2_c10_on_a_redis_that_forgets_fences_grow_and_nobody_waits_for_long() {
    Run { troubles: &[Forgets], ttl: secs(20), idle: secs(2), ..RUN }.rage(Store::own_redis());
}

#[cfg(feature = "sqlite")]
#[test]
fn c1_c2_c10_on_a_file_no_two_leases_are_valid_at_once_whatever_happens() {
    let run = Run { troubles: &[Killed, Row], idle: secs(2), ..RUN };
    run.rage(Store::file()).assert_exclusion();
}

/// One that waits for the disk, and has all that it answered when it comes back from a crash.
#[cfg(feature = "postgres")]
#[test]
fn c1_c2_c6_c10_on_postgres_no_two_leases_are_valid_at_once_whatever_happens() {
    let troubles = [Killed, Killed, Row, Link, Link, Restarted];
    let run = Run { troubles: &troubles, workers: 7, idle: secs(2), ..RUN };
    run.rage(Store::own_postgres()).assert_exclusion();
}

/// The same.
#[cfg(feature = "mysql")]
#[test]
fn c1_c2_c6_c10_on_mysql_no_two_leases_are_valid_at_once_whatever_happens() {
    let troubles = [Killed, Killed, Row, Link, Link, Restarted];
    let run = Run { troubles: &troubles, workers: 7, idle: secs(2), ..RUN };
    run.rage(Store::own_mysql()).assert_exclusion();
}

/// An operator ends sessions and waits, changes settings, and lets the standby take the primary's place:
/// nothing counts that the standby has not got.
#[cfg(feature = "postgres")]
#[test]
fn c1_c2_c6_c10_on_a_postgres_with_a_standby_no_two_leases_are_valid_at_once_whatever_an_operator_does()
 {
    let troubles = [Killed, Row, Ended, Ended, Settings, StandbyCut, FailedOver, FailedOver];
    let run = Run { troubles: &troubles, workers: 5, ttl: secs(1), idle: secs(6) };
    run.rage(Store::postgres_with_standby()).assert_exclusion();
}

/// The same, and no replica takes its place: there it is known that a wait which was killed counts.
#[cfg(feature = "mysql")]
#[test]
fn c1_c2_c6_c10_on_a_mysql_with_a_replica_no_two_leases_are_valid_at_once_whatever_an_operator_does()
 {
    let troubles = [Killed, Row, Ended, Ended, Settings, StandbyCut, StandbyCut];
    let run = Run { troubles: &troubles, workers: 5, ttl: secs(2), idle: secs(6) };
    let (store, replica) = Store::mysql_with_replica();
    run.rage_beside(store, Some(replica)).assert_exclusion();
}

#[cfg(feature = "zookeeper")]
#[test]
fn c1_c2_c6_c10_on_zookeeper_no_two_leases_are_valid_at_once_whatever_happens() {
    let troubles = [Killed, Killed, Row, Link, Link, Restarted];
    // A Java takes some seconds to start, and each waiter that was killed costs those behind it a claim
    // window.
    let run = Run { troubles: &troubles, workers: 7, idle: secs(12), ..RUN };
    run.rage(Store::own_zookeeper()).assert_exclusion();
}

/// A waiter that was killed stands in the way until its lease has ended.
#[cfg(feature = "etcd")]
#[test]
fn c1_c2_c6_c10_on_etcd_no_two_leases_are_valid_at_once_whatever_happens() {
    let troubles = [Killed, Killed, Row, Link, Link, Restarted];
    let run = Run { troubles: &troubles, workers: 7, idle: secs(12), ..RUN };
    run.rage(Store::own_etcd()).assert_exclusion();
}

#[test]
fn c1_c2_on_a_quorum_no_two_leases_are_valid_at_once_whatever_stands_still() {
    let run = Run { troubles: &[Killed, Row, Stopped], idle: secs(2), ..RUN };
    run.rage(Store::quorum()).assert_exclusion();
}

/// There may be two at once for a moment, where a lease was won against others, on two servers, and
/// the clock of one of them jumps.
#[test]
fn c2_on_a_quorum_of_which_one_clock_jumps_fences_grow() {
    let quorum = Quorum::builder(3).servers(Server::builder().clocked()).start();
    let run = Run { troubles: &[Killed, Row, Clock], idle: secs(2), ..RUN };
    run.rage(Store::Quorum(quorum));
}
