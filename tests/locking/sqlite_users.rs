//! One SQLite file of several users. Only root can become others, so it is skipped for anybody else.

#![cfg(feature = "sqlite")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use kit::Child;

const LIMIT: Duration = Duration::from_secs(30);

/// A process of this user and group that tries for the lock, and what it said.
fn rival(user: u32, group: u32, url: &str) -> (Child, String) {
    let [user, group] = [format!("--reuid={user}"), format!("--regid={group}")];
    let before =
        ["setpriv", &*user, &group, "--clear-groups", "sh", "-c", "umask 077; exec \"$@\"", "sh"];
    let child = Child::start_behind(&before, "rival", &[url], None);
    let said = child.line(LIMIT);
    (child, said)
}

fn can_become_others() -> bool {
    let binary = std::env::current_exe().unwrap();
    let before = ["--reuid=2001", "--regid=2001", "--clear-groups", "test", "-x"];
    let done = Command::new("setpriv").args(before).arg(binary).status();
    let may = done.is_ok_and(|status| status.success());
    if !may {
        println!("skipped: not permitted to become another user");
    }
    may
}

/// A folder in which each user may make another.
fn ground() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    folder
}

fn granted(said: &str) -> bool {
    said.parse::<u64>().is_ok()
}

#[test]
fn c1_users_of_one_file_exclude_each_other() {
    if !can_become_others() {
        return;
    }
    for (mode, groups) in [("0666", [2001, 2002, 2003]), ("0660", [2000, 2000, 2000])] {
        let folder = ground();
        let url = format!("{}/shared/locks.db?mode={mode}", folder.path().display());
        let (mut first, said) = rival(2001, groups[0], &url);
        assert!(granted(&said), "{said}");
        let (second, said) = rival(2002, groups[1], &url);
        assert_eq!(said, "busy");
        // The last of the file's users takes away what the first one made.
        first.wait(LIMIT);
        drop(second);
        for (user, group) in [(2002, groups[1]), (2003, groups[2]), (2001, groups[0])] {
            let (mut child, said) = rival(user, group, &url);
            assert!(granted(&said), "user {user}: {said}");
            child.wait(LIMIT);
        }
    }
}

#[test]
fn a_user_who_may_not_use_a_file_is_told_why_and_how_files_are_shared() {
    if !can_become_others() {
        return;
    }
    let refused = |url: &str, what: &str| {
        let (_, said) = rival(2002, 2002, url);
        assert!(said.starts_with("refused: ") && said.contains(what), "{said}");
        assert!(said.contains("user 2002 may not") && said.contains("?mode=0666"), "{said}");
    };
    let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let folder = ground();
    let own = folder.path().join("own");
    let url = format!("{}/locks.db", own.display());
    let (_holder, said) = rival(2001, 2001, &url);
    assert!(granted(&said), "{said}");
    refused(&url, "/own: user 2002 may not enter it: it is user 2001's, with mode 0700");
    set(&own, 0o755);
    refused(&url, "/own: user 2002 may not write to it");
    refused(&format!("{}/other.db", own.display()), "/own: user 2002 may not write to it");
    set(&own, 0o777);
    refused(&url, "/locks.db: user 2002 may not write to it: it is user 2001's, with mode 0600");
    set(&own.join("locks.db"), 0o666);
    refused(&url, "/locks.db-wal: user 2002 may not write to it");
}
