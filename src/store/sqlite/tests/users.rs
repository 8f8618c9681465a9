use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;
use crate::error::ErrorKind;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_shared_file_and_its_folders_are_made_for_all_their_users_whatever_the_umask() {
    for (sharing, of_file, of_folder) in [
        (Sharing::User, 0o600, 0o700),
        (Sharing::Group, 0o660, 0o2770),
        (Sharing::All, 0o666, 0o777),
    ] {
        let ground = Ground::new();
        let folder = ground.folder.path().join("a");
        let path = folder.join("b/locks.db");
        let store = share(&path, Some(sharing)).unwrap();
        store.try_take(b"name", token());
        for folder in [&folder, &folder.join("b")] {
            assert_eq!(mode(folder) & 0o777, of_folder & 0o777);
            assert!(mode(folder) & of_folder == of_folder, "{sharing:?}: {:o}", mode(folder));
        }
        let files: Vec<_> = fs::read_dir(folder.join("b")).unwrap().collect();
        assert_eq!(files.len(), 3);
        for file in files {
            assert_eq!(mode(&file.unwrap().path()), of_file);
        }
        share(&path, Some(sharing)).unwrap();
        super::open(&path).unwrap();
    }
}

#[test]
fn what_is_less_or_more_shared_than_the_url_says_is_refused_with_what_to_change() {
    let refused = |path: &Path, sharing, why: &str| {
        let error = share(path, Some(sharing)).err().expect("it was opened");
        assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
        assert!(error.detail().contains(why), "{error}");
    };
    let ground = Ground::new();
    let path = &ground.path();
    set_mode(ground.folder.path(), 0o755);
    refused(path, Sharing::All, "has mode 0755, where users need 0777 to make files");
    refused(path, Sharing::Group, "has mode 0755, where users need 2770 to make files");
    set_mode(ground.folder.path(), 0o1777);
    refused(path, Sharing::All, "has the sticky bit");
    assert!(!path.exists());
    set_mode(ground.folder.path(), 0o777);
    ground.store().try_take(b"name", token());
    refused(
        path,
        Sharing::All,
        "has mode 0600; give the file, its -wal and its -shm the other one",
    );
    set_mode(path, 0o666);
    refused(path, Sharing::User, "(the URL says mode=0600)");
    share(path, Some(Sharing::All)).unwrap();
}

#[test]
fn who_only_looks_makes_no_file() {
    let ground = Ground::new();
    let path = ground.folder.path().join("a/locks.db");
    let store = super::open(&path).unwrap();
    let later = || Deadline::after(PATIENCE);
    let seen = store.inspect(b"name", later()).unwrap();
    assert!(seen.holder.is_none() && seen.last_fence.is_none());
    store.ping(later()).unwrap();
    store.watch(&|| panic!("nothing is lost"));
    assert_eq!(store.extend(b"name", token(), TTL, Reach::Grow), Reply::NotMine);
    assert_eq!(store.give(b"name", token(), 0), Reply::NotMine);
    assert_eq!(fs::read_dir(ground.folder.path()).unwrap().count(), 0);
    store.try_take(b"name", token());
    assert!(store.inspect(b"name", later()).unwrap().holder.is_some());
    let other = super::open(&path).unwrap();
    assert!(other.inspect(b"name", later()).unwrap().holder.is_some());
}
