//! One lock on one store: taking, waiting, holding on, handing on, letting go.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod borrowed;
mod breaking;
mod closing;
mod counting;
mod election;
mod events;
mod exclusion;
mod fences;
mod forking;
mod futures;
mod handing_on;
mod keeper;
mod lease;
mod letting_go;
mod letting_go_faults;
mod listing;
mod metrics;
mod names;
mod on_lost;
mod panicking_logger;
mod secrets;
#[cfg(feature = "tracing")]
mod spans;
mod sqlite_disk;
mod sqlite_names;
mod sqlite_stopped;
mod sqlite_users;
#[path = "../stores/mod.rs"]
mod stores;
#[cfg(feature = "testing")]
mod testing;
mod vanishing;
mod waiting;
mod who;

#[test]
#[ignore = "the entry of child processes"]
fn child_entry() {
    kit::child::play(&[
        closing::ROLES,
        forking::ROLES,
        handing_on::ROLES,
        lease::ROLES,
        letting_go::ROLES,
        #[cfg(feature = "sqlite")]
        sqlite_disk::ROLES,
        #[cfg(feature = "sqlite")]
        sqlite_names::ROLES,
        #[cfg(feature = "sqlite")]
        sqlite_stopped::ROLES,
        who::ROLES,
    ]);
}
