//! One SQLite file under two names, and a file that is no more what it was when it was opened. The
//! holder is in this process, and others come as processes of their own.

#![cfg(feature = "sqlite")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use kit::child::say;
use kit::history::now;
use kit::*;
use leasehold::{Client, ErrorKind, EventKind, Events, Lease, LossReason};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(30);
/// Far longer than any test: a lease that ends sooner was ended.
const TTL: Duration = Duration::from_secs(60);
/// What a holder may need to see that its file is gone, and be late.
const NOTICED: Duration = Duration::from_millis(350);
const STALL: Duration = Duration::from_millis(40);
const ROUNDS: usize = 3;

pub(crate) const ROLES: kit::child::Roles = &[("rival", rival)];

/// Tries for the lock and says since when it is held, in nanoseconds since the machine started; or
/// what was said instead. Holds on to it until the parent ends this process.
fn rival(args: &[String]) {
    let [path] = args else { panic!("{args:?}") };
    let lease = Client::open(&format!("sqlite:{path}"))
        .and_then(|client| client.lock("name").ttl(TTL).try_acquire());
    match &lease {
        Ok(Some(lease)) => {
            let since = now();
            assert!(lease.is_valid());
            say(&since.as_nanos().to_string());
        }
        Ok(None) => say("busy"),
        Err(error) => say(&format!("refused: {error}")),
    }
    child::hear();
}

/// Two folders with a file, which has an open client and a held lock.
struct Ground {
    folder: TempDir,
    client: Client,
    events: Events,
    lease: Lease,
}

impl Ground {
    fn new() -> Ground {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        for folder in ["a", "b"].map(|name| folder.path().join(name)) {
            fs::create_dir(folder).unwrap();
        }
        let client = Client::open(&url(&folder.path().join("a/locks.db"))).unwrap();
        let events = client.events().unwrap();
        let lease = client.lock("name").ttl(TTL).try_acquire().unwrap().unwrap();
        Ground { folder, client, events, lease }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    fn open(&self, file: &str) -> Client {
        Client::open(&url(&self.path(file))).unwrap()
    }

    fn rival(&self, file: &str) -> (Child, String) {
        let child = Child::start("rival", &[self.path(file).to_str().unwrap()]);
        let said = child.line(LIMIT);
        (child, said)
    }

    /// What a rival says for whom alone something is mounted at another place too. `None`, and a
    /// word why, where that is not permitted.
    fn rival_behind_mount(&self, from: &str, to: &str, file: &str) -> Option<String> {
        let [from, to, file] =
            [from, to, file].map(|path| self.path(path).to_str().unwrap().to_owned());
        let script = r#"mount --bind "$0" "$1" && shift && exec "$@""#;
        let before = ["unshare", "--mount", "--map-root-user", "sh", "-c", script, &*from, &*to];
        let may = Command::new(before[0]).args(&before[1..]).arg("true").output();
        if !may.is_ok_and(|output| output.status.success()) {
            println!("skipped: unshare and mount are not permitted");
            return None;
        }
        Some(Child::start_behind(&before, "rival", &[&file], None).line(LIMIT))
    }

    /// The lease ends long before its ttl, and that is told. Returns when it was last seen valid.
    fn ends(&self) -> Duration {
        let mut until = Duration::ZERO;
        eventually(LIMIT, || {
            let moment = now();
            let valid = self.lease.is_valid();
            if valid {
                until = moment;
            }
            !valid
        });
        let event = self.events.next_within(LIMIT).unwrap().unwrap();
        assert_eq!(event.kind, EventKind::Lost(LossReason::NotHeld));
        assert_eq!(event.fence, self.lease.fence());
        until
    }

    /// Whether the client can take locks, which others then cannot take by that name of the file.
    fn recovers(&self, file: &str) {
        let lease = self.client.lock("other").ttl(TTL).acquire_within(LIMIT).unwrap();
        assert!(self.open(file).lock("other").try_acquire().unwrap().is_none());
        assert!(lease.is_valid());
    }
}

fn url(path: &std::path::Path) -> String {
    format!("sqlite:{}", path.display())
}

/// In several rounds somebody else comes by this name after the change and is granted the lock:
/// for how long both had it then.
fn both_after(change: impl Fn(&Ground), file: &str) -> Duration {
    let round = |_| {
        let ground = Ground::new();
        change(&ground);
        let (_rival, said) = ground.rival(file);
        let since = Duration::from_nanos(said.parse().expect(&said));
        let until = ground.ends();
        ground.recovers("a/locks.db");
        until.saturating_sub(since)
    };
    (0..ROUNDS).map(round).max().unwrap()
}

/// The same where somebody else is granted the lock after it was lost, or not at all.
fn never_both_after(change: impl Fn(&Ground)) {
    for _ in 0..ROUNDS {
        let ground = Ground::new();
        change(&ground);
        let (_rival, said) = ground.rival("a/locks.db");
        let until = ground.ends();
        match said.parse() {
            Ok(since) => assert!(until < Duration::from_nanos(since)),
            Err(_) => assert_eq!(said, "busy"),
        }
        ground.recovers("a/locks.db");
    }
}

#[test]
fn c1_a_file_with_two_links_is_refused_by_either_name() {
    let ground = Ground::new();
    let elsewhere = ground.open("a/locks.db").lock("handed on").ttl(TTL).acquire().unwrap();
    let (token, fence) = elsewhere.detach().unwrap();
    let handed_on = ground.client.lock("handed on").attach(token, fence).unwrap();
    fs::hard_link(ground.path("a/locks.db"), ground.path("b/locks.db")).unwrap();
    let (_rival, said) = ground.rival("b/locks.db");
    assert!(said.contains("refused") && said.contains("2 names (hard links)"), "{said}");
    // Nobody knows what the link was made for.
    ground.ends();
    let error = ground.client.lock("other").try_acquire().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Storage);
    assert!(error.detail().contains("2 names"), "{error}");
    // Who has that lock cannot be told.
    assert_eq!(handed_on.release().unwrap_err().kind(), ErrorKind::Storage);
    fs::remove_file(ground.path("b/locks.db")).unwrap();
    ground.recovers("a/locks.db");
}

#[test]
fn c1_a_file_that_is_a_mount_point_is_refused() {
    let ground = Ground::new();
    fs::write(ground.path("b/locks.db"), "").unwrap();
    for _ in 0..ROUNDS {
        let Some(said) = ground.rival_behind_mount("a/locks.db", "b/locks.db", "b/locks.db") else {
            return;
        };
        assert!(said.contains("refused") && said.contains("mount its folder instead"), "{said}");
    }
    assert!(ground.lease.is_valid());
}

#[test]
fn c1_a_folder_that_is_mounted_elsewhere_is_the_same_and_so_is_a_symbolic_link() {
    let ground = Ground::new();
    symlink("../a/locks.db", ground.path("b/link.db")).unwrap();
    symlink("a", ground.path("c")).unwrap();
    for file in ["b/link.db", "c/locks.db"] {
        assert_eq!(ground.rival(file).1, "busy");
    }
    if let Some(said) = ground.rival_behind_mount("a", "b", "b/locks.db") {
        assert_eq!(said, "busy");
    }
    assert!(ground.lease.is_valid());
}

#[test]
fn c1_a_file_that_was_moved_has_two_holders_for_a_moment_at_most() {
    unless_starved(STALL, || {
        let both = both_after(
            |ground| fs::rename(ground.path("a/locks.db"), ground.path("b/locks.db")).unwrap(),
            "b/locks.db",
        );
        assert!(both < NOTICED, "{both:?}");
    });
}

#[test]
fn c1_a_log_that_was_removed_leaves_two_holders_for_a_moment_at_most() {
    unless_starved(STALL, || {
        let both = both_after(
            |ground| {
                for file in ["a/locks.db-wal", "a/locks.db-shm"] {
                    fs::remove_file(ground.path(file)).unwrap();
                }
            },
            "a/locks.db",
        );
        assert!(both < NOTICED, "{both:?}");
    });
}

#[test]
fn c1_a_file_that_was_deleted_has_no_second_holder() {
    let delete = |ground: &Ground| fs::remove_file(ground.path("a/locks.db")).unwrap();
    assert_eq!(both_after(delete, "a/locks.db"), Duration::ZERO);
}

/// SQLite takes the log of the old one for one of the new one, in the first process that opens it.
#[test]
fn c1_a_file_that_was_replaced_has_no_second_holder() {
    never_both_after(|ground| {
        drop(ground.open("b/locks.db").lock("other").try_acquire().unwrap());
        fs::rename(ground.path("b/locks.db"), ground.path("a/locks.db")).unwrap();
    });
}

/// What was granted before is in the log; but those who come now have write locks of their own.
#[test]
fn c1_shared_memory_that_was_removed_is_noticed() {
    never_both_after(|ground| fs::remove_file(ground.path("a/locks.db-shm")).unwrap());
}

#[test]
fn c1_what_is_lost_is_said_at_once_by_whatever_asks_for_the_lease() {
    for file in ["a/locks.db-wal", "a/locks.db-shm"].repeat(ROUNDS) {
        let ground = Ground::new();
        fs::remove_file(ground.path(file)).unwrap();
        assert_eq!(ground.lease.extend().unwrap_err().kind(), ErrorKind::Lost);
        assert!(!ground.lease.is_valid());
        let ground = Ground::new();
        fs::remove_file(ground.path(file)).unwrap();
        assert_eq!(ground.lease.release().unwrap_err().kind(), ErrorKind::Lost);
    }
}

#[test]
fn c1_a_symbolic_link_that_leads_elsewhere_is_followed() {
    let ground = Ground::new();
    symlink("a", ground.path("now")).unwrap();
    let client = ground.open("now/locks.db");
    let lease = client.lock("third").ttl(TTL).try_acquire().unwrap().unwrap();
    symlink("b", ground.path("next")).unwrap();
    fs::rename(ground.path("next"), ground.path("now")).unwrap();
    eventually(LIMIT, || !lease.is_valid());
    let again = client.lock("name").ttl(TTL).acquire_within(LIMIT).unwrap();
    assert!(ground.open("b/locks.db").lock("name").try_acquire().unwrap().is_none());
    assert!(again.is_valid() && ground.lease.is_valid());
}

/// SQLite has one memory beside the log for all clients of a process.
#[test]
fn c1_clients_of_one_process_let_go_of_a_lost_log_before_any_of_them_goes_on() {
    let (log, shm) = ("locks.db-wal", "locks.db-shm");
    for deleted in [&[log][..], &[shm], &[log, shm], &["locks.db"]] {
        for _ in 0..ROUNDS {
            let ground = Ground::new();
            let [second, idle, closed] = [(); 3].map(|()| ground.open("a/locks.db"));
            closed.close().unwrap();
            for file in deleted {
                fs::remove_file(ground.path("a").join(file)).unwrap();
            }
            let third = ground.open("a/locks.db");
            let lease = third.lock("name").ttl(TTL).acquire_within(LIMIT).unwrap();
            assert!(!ground.lease.is_valid(), "{deleted:?}");
            for client in [&ground.client, &second, &idle] {
                assert!(client.lock("name").try_acquire().unwrap().is_none(), "{deleted:?}");
            }
            assert_eq!(ground.rival("a/locks.db").1, "busy");
            assert_eq!(closed.ping().unwrap_err().kind(), ErrorKind::Closed);
            lease.release().unwrap();
            ground.recovers("a/locks.db");
        }
    }
}

#[test]
fn c1_a_closed_client_gives_a_lock_back_and_leaves_the_file() {
    let ground = Ground::new();
    let closed = ground.open("a/locks.db");
    let lock = closed.lock("third").ttl(TTL);
    let (token, fence) = lock.try_acquire().unwrap().unwrap().detach().unwrap();
    let lease = lock.attach(token, fence).unwrap();
    closed.close().unwrap();
    lease.release().unwrap();
    drop(ground.client.lock("third").try_acquire().unwrap().unwrap());
    fs::remove_file(ground.path("a/locks.db-wal")).unwrap();
    ground.ends();
    ground.recovers("a/locks.db");
}

#[test]
fn c1_nothing_but_a_take_makes_a_deleted_file_anew() {
    let ground = Ground::new();
    fs::remove_dir_all(ground.path("a")).unwrap();
    ground.ends();
    // Until the client has closed what it had open of that file, it says that the file was deleted.
    eventually(LIMIT, || ground.client.ping().is_ok());
    assert!(ground.client.lock("name").inspect().unwrap().holder.is_none());
    std::thread::sleep(Duration::from_millis(600));
    assert!(!ground.path("a").exists());
    ground.recovers("a/locks.db");
}
