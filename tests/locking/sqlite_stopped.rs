//! A process that stands still while it uses an SQLite file that others use too.

#![cfg(feature = "sqlite")]

use std::fs;
use std::process::Command;
use std::time::Duration;

use kit::child::{hear, say};
use kit::{Child, eventually};
use leasehold::{Client, ErrorKind};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);
/// Far longer than any test.
const TTL: Duration = Duration::from_secs(600);

pub(crate) const ROLES: kit::child::Roles =
    &[("cycles", cycles), ("in_transaction", in_transaction), ("tries", tries)];

/// Acquires and releases, until the parent ends this process.
fn cycles(args: &[String]) {
    let lock = Client::open(&args[0]).unwrap().lock("a").ttl(TTL);
    say(&std::process::id().to_string());
    loop {
        drop(lock.acquire().unwrap().release());
    }
}

/// Has the file's write lock until the parent says a word.
fn in_transaction(args: &[String]) {
    let file = rusqlite::Connection::open(&args[0]).unwrap();
    file.execute_batch("BEGIN IMMEDIATE").unwrap();
    say("locked");
    hear();
    file.execute_batch("ROLLBACK").unwrap();
    say("free");
    hear();
}

/// Says why it cannot have the lock.
fn tries(args: &[String]) {
    let client = Client::open(&args[0]).unwrap();
    say(&client.lock("c").ttl(TTL).try_acquire().map(drop).unwrap_err().to_string());
}

fn ground() -> (TempDir, String) {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let path = folder.path().canonicalize().unwrap().join("locks.db");
    (folder, path.to_str().unwrap().to_owned())
}

fn stands_still(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.starts_with(['T', 't'])
}

/// A process that is not a child of this one.
struct Stranger(Pid);

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGKILL);
    }
}

#[test]
fn a_process_that_is_stopped_while_it_waits_for_the_disk_keeps_nobody_out() {
    let (_folder, path) = ground();
    let url = format!("sqlite:{path}?io_timeout=20s");
    let client = Client::open(&url).unwrap();
    let held = client.lock("b").ttl(TTL).acquire().unwrap();
    // When it syncs the log for the 40th time, it is stopped.
    let log = format!("{path}-wal");
    let inject = "inject=fsync,fdatasync:signal=SIGSTOP:when=40";
    let before = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", &log, "-e", inject];
    let can = Command::new(before[0]).args(&before[1..]).arg("true").output();
    if !can.is_ok_and(|output| output.status.success()) {
        println!("skipped: there is no strace, or it is not permitted");
        return;
    }
    let child = Child::start_behind(&before, "cycles", &[&url], None);
    let stranger = Stranger(Pid::from_raw(child.line(LIMIT).parse().unwrap()));
    eventually(LIMIT, || stands_still(stranger.0));
    // Each would fail as long as it has the file's write lock, which it has a hundredth of the time.
    let lease = Client::open(&url).unwrap().lock("c").ttl(TTL).try_acquire().unwrap().unwrap();
    lease.release().unwrap();
    held.extend().unwrap();
    held.release().unwrap();
}

#[test]
fn a_process_that_is_stopped_in_a_transaction_is_named_with_what_to_do() {
    let (folder, path) = ground();
    let first = Client::open(&format!("sqlite:{path}?io_timeout=20s")).unwrap();
    first.lock("a").ttl(TTL).acquire().unwrap().release().unwrap();
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let client = Client::open(&format!("sqlite:{}?io_timeout=100ms", link.display())).unwrap();
    client.ping().unwrap();
    let mut child = Child::start("in_transaction", &[&path]);
    assert_eq!(child.line(LIMIT), "locked");
    let pid = child.pid();
    let refused = || client.lock("c").ttl(TTL).try_acquire().map(drop).unwrap_err();
    let said = refused();
    assert_eq!(said.kind(), ErrorKind::Unavailable, "{said}");
    assert!(said.to_string().contains(&format!("now process {pid} (locking-")), "{said}");
    child.stop();
    let said = refused();
    assert_eq!(said.kind(), ErrorKind::Unavailable, "{said}");
    let (who, mend) = (format!("process {pid} (locking-"), format!("kill -CONT {pid}"));
    for words in [&*who, "has it locked and is stopped", &mend] {
        assert!(said.to_string().contains(words), "{said}");
    }
    #[cfg(feature = "cli")]
    {
        let found = client.examine(&leasehold::Checkup::default()).unwrap();
        let locked = found.findings.iter().find(|it| it.id == "sqlite-locked").unwrap();
        assert!(locked.what.contains(&who) && locked.what.contains(&mend), "{locked:?}");
        let failed = found.findings.iter().find(|it| it.id == "lock-failed").unwrap();
        assert!(failed.what.contains(&mend), "{failed:?}");
    }
    // One that sees other processes only, as in a container.
    let apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let can = Command::new(apart[0]).args(&apart[1..]).arg("true").output();
    if can.is_ok_and(|output| output.status.success()) {
        let url = format!("sqlite:{path}?io_timeout=100ms");
        let said = Child::start_behind(&apart, "tries", &[&url], None).line(LIMIT);
        assert!(said.contains("none of them is seen now (those of other containers"), "{said}");
    } else {
        println!("skipped in part: a pid namespace is not permitted");
    }
    child.cont();
    child.tell("go on");
    assert_eq!(child.line(LIMIT), "free");
    first.lock("c").ttl(TTL).try_acquire().unwrap().unwrap().release().unwrap();
}
