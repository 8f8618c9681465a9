//! etcd.

use kit::{Etcd, eventually};
use leasehold::Severity;

use super::{LIMIT, advice, assert_finds, examine, ids};

/// But for its age: what Debian has would be updated.
fn but_old(url: &str) -> Vec<&'static str> {
    ids(&examine(url)).into_iter().filter(|id| *id != "etcd-old").collect()
}

#[test]
fn a_single_server_is_a_note_and_keys_that_no_lock_leaves_are_found() {
    let etcd = Etcd::start();
    let found = examine(&etcd.url());
    assert!(found.is_fit(), "{:#?}", found.findings);
    assert_eq!(but_old(&etcd.url()), ["etcd-alone"]);
    for what in ["version", "space_used_bytes", "round_trip_p99", "acquire_and_release"] {
        assert!(found.measured.iter().any(|it| it.what == what), "{what}");
    }
    etcd.ctl(&["put", "leasehold/lock/stuck/x", "1"]);
    let found = examine(&etcd.url());
    let stuck = found.findings.iter().find(|it| it.id == "etcd-stuck").unwrap();
    assert!(stuck.what.ends_with(": 1 of 1, as leasehold/lock/stuck/x"), "{}", stuck.what);
    let lease = etcd.ctl(&["lease", "grant", "600"]);
    let lease = format!("--lease={}", lease.split(' ').nth(1).unwrap());
    etcd.ctl(&["put", &lease, "leasehold/lock/stuck/x", "1"]);
    assert_eq!(but_old(&etcd.url()), ["etcd-alone"]);
    etcd.ctl(&["member", "add", "new", "--learner", "--peer-urls=http://127.0.0.1:1"]);
    assert_eq!(but_old(&etcd.url()), ["etcd-alone"], "a learner does not vote");
}

#[test]
fn a_cluster_has_no_findings_and_members_that_are_missing_are_found() {
    let mut etcd = Etcd::start_with(3, &[]);
    assert_eq!(but_old(&etcd.url()), [""; 0]);
    let one = format!("etcd://127.0.0.1:{}", etcd.port(0));
    assert_eq!(but_old(&one), ["etcd-unnamed"]);
    let other = Etcd::start();
    assert_finds(&format!("{one},127.0.0.1:{}", other.port(0)), "etcd-differ");
    etcd.kill(1);
    assert_finds(&etcd.url(), "etcd-member-down");
    etcd.kill(2);
    eventually(LIMIT, || ids(&examine(&one)).contains(&"etcd-no-leader"));
}

#[test]
fn two_members_are_a_note() {
    let etcd = Etcd::start_with(2, &[]);
    let found = examine(&etcd.url());
    assert!(found.findings.iter().all(|it| it.severity == Severity::Note));
    assert_eq!(but_old(&etcd.url()), ["etcd-even"]);
}

#[test]
fn a_server_without_space_is_found() {
    let etcd = Etcd::start_with(1, &["--quota-backend-bytes=100000"]);
    let filler = "x".repeat(60_000);
    let fill = |_| etcd.try_ctl(&["put", "filler", &filler]).is_err();
    assert!((0..20).any(fill), "its space does not end");
    assert_finds(&etcd.url(), "etcd-alarm");
}

#[test]
fn rights_that_are_missing_are_found() {
    let etcd = Etcd::start();
    for words in [
        "user add root:pw",
        "user grant-role root root",
        "user add app:pw",
        "role add locks",
        "role grant-permission locks --prefix=true read leasehold/",
        "user grant-role app locks",
        "auth enable",
    ] {
        etcd.ctl(&words.split(' ').collect::<Vec<_>>());
    }
    assert_finds(&etcd.url(), "etcd-rights");
    let app = etcd.url().replace("etcd://", "etcd://app:pw@");
    let found = examine(&app);
    let mend = advice(&found, "etcd-rights").replace("ROLE", "locks");
    let mend = mend.strip_prefix("etcdctl ").unwrap();
    let mend: Vec<_> = ["--user=root:pw"].into_iter().chain(mend.split(' ')).collect();
    etcd.ctl(&mend);
    assert_eq!(but_old(&app), ["etcd-alone"]);
}
