//! Servers whose disk is full. Each is on a small disk of its own, in the namespace of a child.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use kit::child::say;
use kit::{Child, Server};
use leasehold::{Client, Error, ErrorKind, Lease};

const LIMIT: Duration = Duration::from_secs(300);
const TTL: Duration = Duration::from_secs(600);

pub(crate) const ROLES: kit::child::Roles = &[
    ("full_redis", full_redis),
    #[cfg(feature = "postgres")]
    ("full_postgres", full_postgres),
    #[cfg(feature = "mysql")]
    ("full_mysql", full_mysql),
];

/// What a role asserts with a server on a disk of so many megabytes.
fn on_a_disk_of_its_own(role: &str, megabytes: u32) {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let folder = folder.path().to_str().unwrap();
    let size = format!("size={megabytes}m,mode=0755");
    let script = r#"mount -t tmpfs -o "$1" tmpfs "$0" && shift && exec "$@""#;
    // Root of the machine: its servers run as users of their own.
    let before = ["unshare", "--mount", "sh", "-c", script, folder, &size];
    let may = Command::new(before[0]).args(&before[1..]).arg("true").output();
    if !may.is_ok_and(|output| output.status.success()) {
        println!("skipped: unshare and mount are not permitted");
        return;
    }
    let child = Child::start_behind(&before, role, &[folder], None);
    assert_eq!(child.line(LIMIT), "done");
}

#[test]
fn c13_a_redis_that_cannot_write_its_file_says_that_its_disk_is_full() {
    on_a_disk_of_its_own("full_redis", 4);
}

#[cfg(feature = "postgres")]
#[test]
fn c13_a_postgresql_whose_disk_is_full_is_told_as_that() {
    on_a_disk_of_its_own("full_postgres", 120);
}

#[cfg(feature = "mysql")]
#[test]
fn c13_a_mysql_whose_disk_is_full_is_told_as_that() {
    on_a_disk_of_its_own("full_mysql", 160);
}

fn take(client: &Client, name: &str) -> Result<Lease, Error> {
    Ok(client.lock(name).ttl(TTL).try_acquire()?.expect("nobody else wants it"))
}

/// Fills the disk, acquires until that fails, and makes room again.
fn fails_until_there_is_room(folder: &str, url: &str, said: &str) {
    let client = Client::open(url).unwrap();
    take(&client, "before").unwrap().release().unwrap();
    let path = Path::new(folder).join("filler");
    let mut filler = File::create(&path).unwrap();
    let ends = (0..20_000).any(|_| filler.write_all(&[1; 16 << 10]).is_err());
    assert!(ends);
    while filler.write_all(&[1; 512]).is_ok() {}
    // A server has room for some in what it has allocated before.
    let names = (0..5000).map(|index| format!("{index}:{}", "n".repeat(200)));
    let failed = names.map(|name| take(&client, &name).map(drop)).find_map(Result::err);
    let error = failed.expect("its disk is full");
    assert_eq!(error.kind(), ErrorKind::DiskFull, "{error}");
    assert!(error.is_retriable() && error.to_string().contains(said), "{error}");
    drop(filler);
    fs::remove_file(path).unwrap();
    kit::eventually(LIMIT, || take(&client, "after").and_then(Lease::release).is_ok());
    say("done");
}

fn full_redis(args: &[String]) {
    // With `always`, it would end instead.
    let kept = ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""];
    let server = Server::builder().args(&kept).inside(args[0].as_ref()).start();
    fails_until_there_is_room(&args[0], &server.url(), "No space left on device");
}

#[cfg(feature = "postgres")]
fn full_postgres(args: &[String]) {
    let settings = ["fsync=off", "min_wal_size=32MB", "max_wal_size=64MB"];
    let server = kit::Postgres::start_in(args[0].as_ref(), &settings);
    let url = server.url(&server.database());
    Client::open(&url).unwrap().initialize(false).unwrap();
    fails_until_there_is_room(&args[0], &url, "53100");
}

#[cfg(feature = "mysql")]
fn full_mysql(args: &[String]) {
    let server = kit::Mysql::start_in(args[0].as_ref(), &[]);
    let url = server.url(&server.database());
    Client::open(&url).unwrap().initialize(false).unwrap();
    fails_until_there_is_room(&args[0], &url, "1114");
}
