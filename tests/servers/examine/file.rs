//! A file.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use leasehold::Checkup;

use super::{assert_finds, assert_healthy, examine, ids, open};

#[test]
fn a_file_in_a_folder_of_ones_own_has_no_findings() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let url = format!("sqlite:{}/locks.db", dir.path().display());
    let found = open(&url).examine(&Checkup::default().read_only()).unwrap();
    assert_eq!(ids(&found), ["sqlite-missing"]);
    assert!(!dir.path().join("locks.db").exists());
    open(&url).lock("n").acquire().unwrap().release().unwrap();
    let found = examine(&url);
    assert_healthy(&found);
    assert!(found.measured.iter().any(|it| it.what == "disk_free_bytes"));
    fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    assert_finds(&url, "sqlite-open");
    fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(dir.path().join("locks.db"), Permissions::from_mode(0o666)).unwrap();
    assert_finds(&url, "sqlite-open");
    fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    assert_healthy(&examine(&(url + "?mode=0666")));
}
