use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::thread;

use super::*;
use crate::clock::Moment;
use crate::error::ErrorKind;
use crate::grant::{Grant, Terms};
use crate::keeper::Keeper;
use crate::store::Identity;
use crate::store::glob::Glob;
use crate::store::listing::{Bookmark, Wanted};
use crate::store::sqlite::files::{self, Files};
use crate::store::sqlite::open;

/// Opening is refused with this kind and a detail that names the file and the reason, and the
/// folder is as it was.
#[track_caller]
fn refused(ground: &Ground, kind: ErrorKind, why: &str) {
    let before = fs::read(ground.path()).ok();
    let error = super::open(&ground.path()).err().expect("it was opened");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.detail().contains("locks.db") && error.detail().contains(why), "{error}");
    assert_eq!(fs::read(ground.path()).ok(), before);
    assert!(fs::read_dir(ground.folder.path()).unwrap().count() <= 1, "something was left behind");
}

#[test]
fn a_file_that_is_no_database_is_refused() {
    let random: Vec<u8> =
        (0..9000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for content in [b"hello".to_vec(), vec![0; 100], vec![0; 8192], random] {
        let ground = Ground::new();
        fs::write(ground.path(), content).unwrap();
        refused(&ground, ErrorKind::Storage, "not a database");
    }
}

#[test]
fn a_database_of_somebody_else_is_refused() {
    for setting in [
        "CREATE TABLE t (a)",
        "PRAGMA journal_mode = WAL; CREATE TABLE t (a)",
        "PRAGMA application_id = 7",
        "PRAGMA user_version = 1",
    ] {
        let ground = Ground::new();
        ground.meddler().execute_batch(setting).unwrap();
        refused(&ground, ErrorKind::Storage, "another program");
    }
}

#[test]
fn a_schema_that_is_changed_under_a_running_store_is_refused_at_its_next_transaction() {
    let ground = Ground::new();
    let (store, ann) = (ground.store(), token());
    fence(store.try_take(b"n", ann));
    let ask = |request| {
        let failure = store.ask(Lane::Caller, request, Deadline::after(PATIENCE)).unwrap_err();
        assert_eq!((failure.error.kind(), failure.sent), (ErrorKind::Storage, None));
        assert!(
            failure.error.detail().contains("use one version of Leasehold"),
            "{}",
            failure.error
        );
    };
    let (fence, ttl) = (0, TTL);
    for schema in [open::SCHEMA + 1, 0] {
        ground.meddler().pragma_update(None, "user_version", schema).unwrap();
        ask(Request::Take { name: b"m", token: token(), ttl, place: Place::Try, block: 1 });
        ask(Request::Extend { name: b"n", token: ann, ttl, reach: Reach::Grow, fence });
        ask(Request::Give { name: b"n", token: ann, fence, ttl });
    }
    ground.meddler().pragma_update(None, "user_version", open::SCHEMA).unwrap();
    assert_eq!(store.give(b"n", ann, 0), Reply::Given);
}

#[test]
fn c13_what_somebody_has_put_into_a_file_is_named_with_what_removes_it() {
    let ground = Ground::new();
    let store = ground.store();
    let take = || {
        let (name, token) = (b"n", token());
        let request = Request::Take { name, token, ttl: TTL, place: Place::Try, block: 1 };
        store.ask(Lane::Caller, request, Deadline::after(PATIENCE))
    };
    ground
        .meddler()
        .execute_batch(
            "CREATE TRIGGER \"their \"\"own\"\"\" BEFORE INSERT ON lease BEGIN SELECT RAISE(ABORT, 'boom'); END",
        )
        .unwrap();
    let error = take().unwrap_err().error;
    assert_eq!(error.kind(), ErrorKind::Storage);
    let said = error.to_string();
    assert!(
        said.contains("locks.db") && said.contains("DROP TRIGGER \"their \"\"own\"\"\";"),
        "{said}"
    );
    ground.meddler().execute_batch("DROP TRIGGER \"their \"\"own\"\"\";").unwrap();
    take().unwrap();
    // A table that is not strict takes anything.
    ground
        .meddler()
        .execute_batch(
            "CREATE TABLE loose AS SELECT * FROM lease; DROP TABLE lease;
             CREATE TABLE lease (name BLOB NOT NULL PRIMARY KEY, token, fence, expiry, boot, used);
             INSERT INTO lease (name, token, fence, expiry, boot, used)
                 SELECT name, NULL, 'junk', expiry, boot, used FROM loose;
             INSERT INTO lease SELECT x'61', token, zeroblob(1000), expiry, boot, 'old' FROM lease;
             DROP TABLE loose",
        )
        .unwrap();
    let error = take().unwrap_err().error;
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    let said = error.to_string();
    assert!(said.contains("fence = 'junk'") && said.contains("name = x'6E'"), "{said}");
    ground.meddler().execute_batch("DELETE FROM lease WHERE name = x'6E'").unwrap();
    // Another row is met where all are listed, and is no more than an instance.
    let wanted = Wanted { glob: Glob::new(b"*"), is_all: true };
    let error = store.list(&wanted, &Bookmark::default(), Deadline::after(PATIENCE)).unwrap_err();
    let said = error.to_string();
    assert!(said.contains("for instance, the row") && said.contains("x'61'"), "{said}");
    assert!(said.len() < 500, "{said}");
    ground.meddler().execute_batch("DELETE FROM lease WHERE name = x'61'").unwrap();
    take().unwrap();
}

#[test]
fn a_later_schema_is_refused() {
    let ground = Ground::new();
    drop(ground.store());
    for schema in [open::SCHEMA + 1, i32::MAX, -1] {
        ground.meddler().pragma_update(None, "user_version", schema).unwrap();
        refused(&ground, ErrorKind::Storage, "later version");
    }
}

#[test]
fn a_damaged_file_of_ours_is_refused_and_left_alone() {
    let ground = Ground::new();
    let store = ground.store();
    for number in 0..200_u8 {
        fence(store.try_take(&[number], token()));
    }
    drop(store);
    let whole = fs::read(ground.path()).unwrap();
    for (from, to) in [(4096, whole.len()), (100, 4096)] {
        let mut damaged = whole.clone();
        damaged[from..to].fill(0xa5);
        fs::write(ground.path(), &damaged).unwrap();
        let error = super::open(&ground.path()).err().expect("it was opened");
        assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
        assert!(fs::read(ground.path()).unwrap() == damaged);
    }
    fs::write(ground.path(), &whole[..4096]).unwrap();
    let error = super::open(&ground.path()).err().expect("it was opened");
    assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
    assert!(fs::read(ground.path()).unwrap() == whole[..4096]);
}

#[test]
fn what_is_no_file_is_refused() {
    let ground = Ground::new();
    fs::create_dir(ground.path()).unwrap();
    refused_place(&ground, "is a folder; name a file in it");
    fs::remove_dir(ground.path()).unwrap();
    std::os::unix::net::UnixListener::bind(ground.path()).unwrap();
    refused_place(&ground, "no regular file");

    fn refused_place(ground: &Ground, why: &str) {
        let error = super::open(&ground.path()).err().expect("it was opened");
        assert_eq!(error.kind(), ErrorKind::Storage);
        assert!(error.detail().contains(why), "{error}");
    }
    let error = super::open("/".as_ref()).err().expect("it was opened");
    assert_eq!(error.kind(), ErrorKind::Storage);
}

#[test]
fn what_may_not_be_written_is_refused_also_for_root() {
    let ground = Ground::new();
    drop(ground.store());
    fs::set_permissions(ground.path(), fs::Permissions::from_mode(0o444)).unwrap();
    refused(&ground, ErrorKind::ReadOnly, "its mode forbids writing; chmod u+w");
    assert!(!super::open(&ground.path()).err().unwrap().to_string().contains("master"));

    let ground = Ground::new();
    fs::set_permissions(ground.folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let error = super::open(&ground.path()).err().expect("it was opened");
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    fs::set_permissions(ground.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(!ground.path().exists());
}

#[test]
fn file_and_folders_are_made_for_this_user_alone() {
    let ground = Ground::new();
    let path = ground.folder.path().join("a/b/locks #1?%41.db");
    let store = super::open(&path).unwrap();
    fence(store.try_take(b"name", token()));
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&ground.folder.path().join("a")), 0o700);
    assert_eq!(mode(&ground.folder.path().join("a/b")), 0o700);
    for file in fs::read_dir(ground.folder.path().join("a/b")).unwrap() {
        assert_eq!(mode(&file.unwrap().path()), 0o600);
    }
    // Also where an empty file and a folder were there before, and through a link.
    let path = ground.folder.path().join("empty");
    fs::write(&path, "").unwrap();
    let link = ground.folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    fence(super::open(&link).unwrap().try_take(b"name", token()));
    ticket(super::open(&path).unwrap().try_take(b"name", token()));
}

#[test]
fn those_who_make_the_file_together_all_succeed() {
    for round in 0..10 {
        let ground = Ground::new();
        if round % 2 == 1 {
            fs::write(ground.path(), "").unwrap();
        }
        let path = &ground.path();
        let winners: Vec<Reply> = thread::scope(|scope| {
            let openers: Vec<_> = (0..8)
                .map(|_| scope.spawn(move || super::open(path).unwrap().try_take(b"x", token())))
                .collect();
            openers.into_iter().map(|opener| opener.join().unwrap()).collect()
        });
        let granted = winners.iter().filter(|reply| matches!(reply, Reply::Granted { .. }));
        assert_eq!(granted.count(), 1, "{winners:?}");
    }
}

#[test]
fn a_file_is_recognised_while_others_write_it() {
    let ground = Ground::new();
    let path = &ground.path();
    let store = ground.store();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let meddler = ground.meddler();
            for number in 0..60_u32 {
                fence(store.try_take(&number.to_be_bytes().repeat(500), token()));
                until("the log is copied", || {
                    meddler
                        .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get::<_, i64>(0))
                        .is_ok_and(|busy| busy == 0)
                });
            }
        });
        while !writer.is_finished() {
            super::open(path).unwrap();
        }
    });
}

#[test]
fn c1_a_file_that_was_deleted_or_replaced_grants_nothing_before_every_lease_has_ended() {
    for replaced in [false, true] {
        let ground = Ground::new();
        let store = ground.store();
        let ann = token();
        fence(store.try_take(b"name", ann));
        store.watch(&|| panic!("nothing is lost"));
        fs::rename(ground.path(), ground.folder.path().join("away")).unwrap();
        if replaced {
            fs::write(ground.path(), "").unwrap();
        }
        let take =
            Request::Take { name: b"name", token: token(), ttl: TTL, place: Place::Try, block: 1 };
        for _ in 0..2 {
            let failure = store.ask(Lane::Caller, take, Deadline::after(PATIENCE)).unwrap_err();
            assert_eq!(failure.error.kind(), ErrorKind::Unavailable);
            assert!(failure.sent.is_none() && failure.error.detail().contains("replaced"));
            assert_eq!(store.extend(b"name", ann, TTL, Reach::Grow), Reply::NotMine);
            assert!(store.ping(Deadline::after(PATIENCE)).is_err());
        }
        let ended = Cell::new(0);
        for _ in 0..2 {
            store.watch(&|| ended.set(ended.get() + 1));
        }
        assert_eq!(ended.get(), 1);
        assert_eq!(store.extend(b"name", ann, TTL, Reach::Grow), Reply::NotMine);
        fence(store.reply(take));
        ticket(ground.store().try_take(b"name", token()));
    }
}

#[test]
fn c1_what_was_committed_to_a_file_while_it_was_deleted_is_not_granted() {
    let ground = Ground::new();
    let store = ground.store();
    let meddler = ground.meddler();
    meddler.execute_batch("BEGIN IMMEDIATE").unwrap();
    let take =
        Request::Take { name: b"name", token: token(), ttl: TTL, place: Place::Try, block: 1 };
    thread::scope(|scope| {
        let late = scope.spawn(|| store.ask(Lane::Caller, take, Deadline::after(PATIENCE)));
        thread::sleep(Duration::from_millis(20));
        fs::remove_file(ground.path()).unwrap();
        meddler.execute_batch("ROLLBACK").unwrap();
        assert_eq!(late.join().unwrap().unwrap_err().error.kind(), ErrorKind::Unavailable);
    });
    // And where it is so late that the keeper has ended what was granted by then.
    let ground = Ground::new();
    let store = ground.store();
    let opened = store.opened(false, Deadline::after(PATIENCE)).unwrap();
    let changed = opened.durable.change(Deadline::after(PATIENCE), |_, _| {
        fs::remove_file(ground.path()).unwrap();
        store.watch(&|| ());
        Ok(())
    });
    assert!(changed.unwrap_err().sent.is_none());
}

/// The kernel tells of it once: what was not written then is a hole in the log.
#[test]
fn c6_after_a_sync_that_failed_nothing_counts_until_the_log_begins_anew() {
    let ground = Ground::new();
    let (store, other) = (ground.store(), ground.store());
    let log = files::beside(&ground.path(), "-wal");
    let take = |store: &SqliteStore, name: &[u8]| {
        let opened = store.opened(false, Deadline::after(PATIENCE)).unwrap();
        let take = Request::Take { name, token: token(), ttl: TTL, place: Place::Try, block: 1 };
        // One attempt for all that waits.
        let taken = store.transact(&opened, &[take], Deadline::at(Moment::ZERO));
        taken.map(|outcomes| outcomes.into_iter().next().unwrap().unwrap().reply)
    };
    fence(take(&store, b"before").unwrap());
    let opened = store.opened(false, Deadline::after(PATIENCE)).unwrap();
    // No pipe can be synced.
    let pipe = fs::File::from(std::os::fd::OwnedFd::from(std::io::pipe().unwrap().1));
    let whole = opened.files.syncs.replace(pipe);
    assert!(take(&store, b"failed").unwrap_err().sent.is_some());
    opened.files.syncs.replace(whole);
    // A reader keeps the log from beginning anew.
    let reader = ground.meddler();
    reader.execute_batch("BEGIN; SELECT 1 FROM lease").unwrap();
    for store in [&store, &other] {
        let failure = take(store, b"behind").unwrap_err();
        assert!(failure.sent.is_some(), "{}", failure.error);
        assert!(failure.error.detail().contains("failed before"), "{}", failure.error);
    }
    reader.execute_batch("COMMIT").unwrap();
    fence(take(&other, b"mended").unwrap());
    assert_eq!(fs::metadata(&log).unwrap().len(), 0);
    fence(take(&store, b"after").unwrap());
    assert!(fs::metadata(&log).unwrap().len() > 0);
}

/// Its pages would be mixed with those of the new file.
#[test]
fn the_log_of_a_file_that_was_replaced_is_not_applied_to_the_new_one() {
    let ground = Ground::new();
    let store = ground.store();
    for number in 0..200_u32 {
        fence(store.try_take(&number.to_be_bytes().repeat(100), token()));
    }
    let other = ground.folder.path().join("other.db");
    let old = super::open(&other).unwrap();
    for number in 0..1000_u32 {
        fence(old.try_take(&number.to_le_bytes().repeat(50), token()));
    }
    drop(old);
    fs::rename(&other, ground.path()).unwrap();
    store.watch(&|| ());
    fence(store.try_take(b"name", token()));
    let names = ground.meddler().query_row("SELECT count(*) FROM lease", [], |row| row.get(0));
    assert_eq!(names, Ok(1001));
    let sound = ground.meddler().query_row("PRAGMA integrity_check", [], |row| row.get(0));
    assert_eq!(sound, Ok("ok".to_owned()));
}

#[test]
fn c1_a_file_with_several_links_is_refused() {
    let ground = Ground::new();
    drop(ground.store());
    let other = tempfile::tempdir_in(ground.folder.path().parent().unwrap()).unwrap();
    fs::hard_link(ground.path(), other.path().join("locks.db")).unwrap();
    refused(&ground, ErrorKind::Storage, "2 names (hard links)");
    drop(other);
    fence(ground.store().try_take(b"name", token()));
}

#[test]
fn c7_every_call_ends_by_its_deadline_while_somebody_has_the_file() {
    let ground = Ground::new();
    let store = ground.store();
    let ann = token();
    fence(store.try_take(b"name", ann));
    let meddler = ground.meddler();
    meddler.execute_batch("BEGIN IMMEDIATE").unwrap();
    let requests = [
        Request::Take { name: b"other", token: token(), ttl: TTL, place: Place::Try, block: 1 },
        Request::Take { name: b"name", token: token(), ttl: TTL, place: Place::Join(0), block: 1 },
        Request::Extend { name: b"name", token: ann, ttl: TTL, reach: Reach::Grow, fence: 0 },
        Request::Give { name: b"name", token: ann, fence: 0, ttl: TTL },
    ];
    for request in requests {
        let limit = Duration::from_millis(60);
        ends_by(limit, || {
            let deadline = Deadline::after(limit);
            let failure = store.ask(Lane::Caller, request, deadline).unwrap_err();
            assert_eq!(failure.error.kind(), ErrorKind::Unavailable);
            assert!(failure.sent.is_none(), "nothing was done");
            assert!(deadline.has_passed(), "it gave up early");
        });
    }
    // Looking needs no write lock, and giving waits no longer than it is told to.
    assert!(matches!(store.try_take(b"name", token()), Reply::Busy { .. }));
    store.ping(Deadline::after(PATIENCE)).unwrap();
    let give = Request::Give { name: b"name", token: ann, fence: 0, ttl: TTL };
    let lane = Lane::Give(Deadline::at(Moment::ZERO));
    ends_by(Duration::ZERO, || {
        let failure = store.ask(lane, give, Deadline::after(PATIENCE)).unwrap_err();
        assert_eq!(failure.error.kind(), ErrorKind::Unavailable);
    });
    meddler.execute_batch("ROLLBACK").unwrap();
    let given = store.ask(lane, give, Deadline::after(PATIENCE)).unwrap();
    assert_eq!(given.reply, Reply::Given);
    let failure = store.ask(lane, give, Deadline::at(Moment::now())).unwrap_err();
    assert_eq!(failure.error.kind(), ErrorKind::Unavailable);
}

#[test]
fn c7_opening_ends_by_its_deadline_while_somebody_has_the_file() {
    let ground = Ground::new();
    let meddler = ground.meddler();
    meddler.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let limit = Duration::from_millis(60);
    let (file, config) = config(&ground.path(), None);
    let config = config.io_timeout(limit);
    ends_by(limit, || {
        let error = SqliteStore::open(&file, &config).err().expect("it was opened");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    });
}

#[test]
fn a_full_database_is_said_to_be_full_and_works_again_with_room() {
    let ground = Ground::new();
    let store = ground.store();
    let ann = token();
    fence(store.try_take(b"name", ann));
    store.limit_pages(8);
    let big = vec![b'x'; 64 * 1024];
    let take = Request::Take { name: &big, token: token(), ttl: TTL, place: Place::Try, block: 1 };
    let failure = store.ask(Lane::Caller, take, Deadline::after(PATIENCE)).unwrap_err();
    assert_eq!(failure.error.kind(), ErrorKind::DiskFull, "{}", failure.error);
    assert!(failure.sent.is_none());
    assert_eq!(store.extend(b"name", ann, TTL, Reach::Grow), Reply::Extended);
    store.limit_pages(1_000_000);
    fence(store.try_take(&big, token()));
}

#[test]
fn a_shifted_clock_is_noticed() {
    assert!(!open::is_shifted(
        "monotonic           0         0\nboottime            0         0\n"
    ));
    assert!(!open::is_shifted("monotonic  86400  0\nboottime  0  0\n"));
    assert!(open::is_shifted("monotonic  0  0\nboottime  86400  0\n"));
    assert!(open::is_shifted("boottime  0  -5\n"));
    assert!(!open::is_shifted(""));
}

#[test]
fn a_link_that_is_made_while_the_file_is_opened_is_noticed() {
    let ground = Ground::new();
    let _store = ground.store();
    let (path, before) = (&ground.path(), fs::metadata(ground.path()).unwrap());
    assert!(Files::note(path, path, &before).unwrap().is_some());
    fs::hard_link(path, ground.folder.path().join("second.db")).unwrap();
    assert!(Files::note(path, path, &before).unwrap().is_none());
}

/// It was on its way from the store to the keeper's book when the keeper ended those in the book.
#[test]
fn a_grant_that_comes_late_to_a_keeper_that_has_lost_the_file_is_lost() {
    let ground = Ground::new();
    let (_, config) = config(&ground.path(), None);
    let keeper = Keeper::start(Box::new(ground.store()), Arc::default(), config).unwrap();
    let (core, terms) = (
        keeper.core().unwrap(),
        Terms { ttl: TTL, renew: true, max_hold: None, group: crate::metrics::Group::REST },
    );
    let grant = |sent| {
        let name = b"name".as_slice().into();
        let identity = Identity { name, token: token(), fence: 1, ttl: TTL };
        Grant::taken(identity, terms, sent, Moment::now()).unwrap()
    };
    let (known, late) = (grant(Moment::now()), grant(Moment::now()));
    assert!(core.keep(&known).is_ok() && !known.is_over());
    fs::remove_file(ground.folder.path().join("locks.db-wal")).unwrap();
    while !known.is_over() {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(core.keep(&late).is_ok() && late.is_over());
    let next = grant(Moment::now());
    assert!(core.keep(&next).is_ok() && !next.is_over());
}
