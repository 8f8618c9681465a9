//! An SQLite file on a disk that takes no more. Each test's child has a small disk of its own.

#![cfg(feature = "sqlite")]

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use kit::Child;
use kit::child::say;
use leasehold::{Client, Error, ErrorKind, Lease};

const LIMIT: Duration = Duration::from_secs(120);
const TTL: Duration = Duration::from_secs(600);

pub(crate) const ROLES: kit::child::Roles = &[
    ("full_and_closed", full_and_closed),
    ("full_and_open", full_and_open),
    ("without_inodes", without_inodes),
    ("read_only_disk", read_only_disk),
];

/// What a role asserts on a disk of its own, in a process of its own.
fn on_a_disk_of_its_own(role: &str) {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let folder = folder.path().to_str().unwrap();
    let script = r#"mount -t tmpfs -o size=1m,nr_inodes=50 tmpfs "$0" && exec "$@""#;
    let before = ["unshare", "--mount", "--map-root-user", "sh", "-c", script, folder];
    let may = Command::new(before[0]).args(&before[1..]).arg("true").output();
    if !may.is_ok_and(|output| output.status.success()) {
        println!("skipped: unshare and mount are not permitted");
        return;
    }
    let child = Child::start_behind(&before, role, &[folder], None);
    assert_eq!(child.line(LIMIT), "done");
}

#[test]
fn c13_a_full_disk_is_named_to_whoever_opens_the_file() {
    on_a_disk_of_its_own("full_and_closed");
}

#[test]
fn c13_a_full_disk_is_named_to_whoever_has_the_file_open() {
    on_a_disk_of_its_own("full_and_open");
}

#[test]
fn c13_a_disk_without_an_inode_is_named() {
    on_a_disk_of_its_own("without_inodes");
}

#[test]
fn c13_a_disk_that_is_mounted_read_only_is_named() {
    on_a_disk_of_its_own("read_only_disk");
}

fn open(folder: &str) -> Result<Client, Error> {
    Client::open(&format!("sqlite:{folder}/locks.db?io_timeout=20s"))
}

fn take(client: &Client, name: &str) -> Result<Lease, Error> {
    Ok(client.lock(name).ttl(TTL).try_acquire()?.unwrap())
}

/// Nobody has the file open afterwards.
fn use_once(folder: &str) {
    let client = open(folder).unwrap();
    take(&client, "a").unwrap().release().unwrap();
    client.close().unwrap();
    kit::eventually(LIMIT, || !Path::new(folder).join("locks.db-shm").exists());
}

/// To the last byte.
fn fill(folder: &str) {
    let mut filler = File::create(Path::new(folder).join("filler")).unwrap();
    while filler.write_all(&[1; 512]).is_ok() {}
}

fn make_room(folder: &str) {
    fs::remove_file(Path::new(folder).join("filler")).unwrap();
}

#[track_caller]
fn assert_full(error: &Error, what: &str) {
    assert_eq!(error.kind(), ErrorKind::DiskFull, "{error}");
    assert!(error.is_retriable());
    let said = error.to_string();
    assert!(said.contains(what) && said.contains("locks.db"), "{said}");
}

fn full_and_closed(args: &[String]) {
    let folder = &*args[0];
    use_once(folder);
    fill(folder);
    assert_full(&open(folder).unwrap_err(), "its disk is full: df");
    make_room(folder);
    use_once(folder);
    say("done");
}

fn full_and_open(args: &[String]) {
    let folder = &*args[0];
    let client = open(folder).unwrap();
    let held = take(&client, "held").unwrap();
    fill(folder);
    // The log has room for a little until its last page ends.
    let names = (0..100).map(|index| format!("n:{index}"));
    let failed = names.map(|name| take(&client, &name).map(drop)).find_map(Result::err);
    assert_full(&failed.unwrap(), "its disk is full: df");
    assert_full(&held.extend().unwrap_err(), "its disk is full: df");
    #[cfg(feature = "cli")]
    {
        let found = client.examine(&leasehold::Checkup::default()).unwrap();
        let of = |id| found.findings.iter().find(|it| it.id == id).unwrap();
        assert!(of("sqlite-disk-full").what.contains("0 MB are left"), "{found:?}");
        assert!(of("lock-failed").what.contains("its disk is full: df"), "{found:?}");
    }
    make_room(folder);
    held.extend().unwrap();
    held.release().unwrap();
    take(&client, "another").unwrap().release().unwrap();
    say("done");
}

fn without_inodes(args: &[String]) {
    let folder = &*args[0];
    use_once(folder);
    let files = (0..).map(|index| Path::new(folder).join(format!("file{index}")));
    let made: Vec<_> = files.take_while(|path| File::create(path).is_ok()).collect();
    assert_full(&open(folder).unwrap_err(), "no inode left for another file: df -i");
    fs::remove_file(&made[0]).unwrap();
    fs::remove_file(&made[1]).unwrap();
    use_once(folder);
    say("done");
}

fn read_only_disk(args: &[String]) {
    let folder = &*args[0];
    use_once(folder);
    let remount = |how: &str| {
        let done = Command::new("mount").args(["-o", &format!("remount,{how}"), folder]).status();
        assert!(done.unwrap().success());
    };
    remount("ro");
    for file in ["locks.db", "other.db"] {
        let opened = Client::open(&format!("sqlite:{folder}/{file}")).map(drop);
        let error = opened.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
        assert!(error.to_string().contains("mounted read-only"), "{error}");
    }
    remount("rw");
    use_once(folder);
    say("done");
}
