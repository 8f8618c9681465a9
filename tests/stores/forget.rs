//! What somebody does to a lock by the store's own means, beside all that is agreed: no library says so.

use super::Store;
#[cfg(feature = "sqlite")]
use super::secs;

impl Store {
    /// The grant of a name that is held vanishes from under its holder. The name has letters, digits and
    /// colons only.
    #[track_caller]
    pub fn forget(&self, name: &str) {
        match self {
            Store::Redis(server) => assert_eq!(server.cmd(&["DEL", name]), redis::Value::Int(1)),
            Store::Quorum(quorum) => {
                // A take is not waited for on the slowest of them.
                quorum.running().for_each(|node| drop(node.cmd(&["DEL", name])));
            }
            #[cfg(feature = "sqlite")]
            Store::File(dir) => {
                let gone = "DELETE FROM lease WHERE name = ?";
                let gone = file_of(dir).execute(gone, [name.as_bytes()]);
                assert_eq!(gone.unwrap(), 1, "{name}");
            }
            #[cfg(feature = "postgres")]
            Store::Postgres(database) => {
                let gone =
                    format!("DELETE FROM leasehold.lease WHERE name = '{name}'::bytea RETURNING 1");
                assert_eq!(database.sql(&gone), "1", "{name}");
            }
            #[cfg(feature = "mysql")]
            Store::Mysql(database) => {
                let gone = format!(
                    "DELETE FROM leasehold_lease WHERE name = '{name}'; SELECT ROW_COUNT()"
                );
                assert_eq!(database.sql(&gone), "1", "{name}");
            }
            #[cfg(feature = "zookeeper")]
            Store::Zookeeper(chroot) => {
                let mut nodes = kit::Nodes::of(chroot.server().port());
                let holder = nodes_holder(&mut nodes, &chroot.path, name);
                nodes.delete(&holder);
            }
            #[cfg(feature = "etcd")]
            Store::Etcd(etcd) => {
                etcd.ctl(&["del", &holders_key(etcd, name)]);
            }
            _ => panic!("not on this store"),
        }
    }

    /// A number that a file has.
    #[cfg(feature = "sqlite")]
    #[track_caller]
    pub fn rows(&self, count: &str) -> u32 {
        let Store::File(dir) = self else { panic!("not on this store") };
        file_of(dir).query_row(count, [], |row| row.get(0)).unwrap()
    }

    /// All who wait for a name are forgotten, and nobody tells them.
    #[track_caller]
    pub fn forget_queue(&self, name: &str) {
        match self {
            Store::Redis(server) => {
                let queue = format!("leasehold:queue:{{{name}}}");
                assert_eq!(server.cmd(&["DEL", &queue]), redis::Value::Int(1));
            }
            #[cfg(feature = "sqlite")]
            Store::File(dir) => {
                let gone = "DELETE FROM waiter WHERE name = ?";
                assert!(file_of(dir).execute(gone, [name.as_bytes()]).unwrap() > 0);
            }
            #[cfg(feature = "postgres")]
            Store::Postgres(database) => {
                let gone = "UPDATE leasehold.lease SET waiters = '{}' WHERE name";
                database.sql(&format!("{gone} = '{name}'::bytea"));
            }
            #[cfg(feature = "mysql")]
            Store::Mysql(database) => {
                database.sql(&format!("DELETE FROM leasehold_waiter WHERE name = '{name}'"));
            }
            #[cfg(feature = "zookeeper")]
            Store::Zookeeper(chroot) => {
                let mut nodes = kit::Nodes::of(chroot.server().port());
                let holder = nodes_holder(&mut nodes, &chroot.path, name);
                let (place, _) = holder.rsplit_once('/').unwrap();
                let waiters = nodes.children(place).unwrap();
                for waiter in waiters.iter().filter(|node| node.starts_with("w-")) {
                    nodes.delete(&format!("{place}/{waiter}"));
                }
            }
            #[cfg(feature = "etcd")]
            Store::Etcd(etcd) => {
                let holder = holders_key(etcd, name);
                let below = format!("leasehold/lock/{name}/");
                let all = etcd.ctl(&["get", "--prefix", "--keys-only", &below]);
                let waiters = all.lines().filter(|key| !key.is_empty() && *key != holder);
                waiters.for_each(|key| drop(etcd.ctl(&["del", key])));
            }
            _ => panic!("not on this store"),
        }
    }

    /// Its session's lease is revoked, and what was granted with it goes too.
    #[cfg(feature = "etcd")]
    #[track_caller]
    pub fn revoke(&self, name: &str) {
        let Store::Etcd(etcd) = self else { panic!("not on this store") };
        let fields = etcd.ctl(&["get", &holders_key(etcd, name), "-w", "fields"]);
        let lease = fields.lines().find_map(|line| line.strip_prefix("\"Lease\" : "));
        let lease: u64 = lease.expect("it has one").parse().unwrap();
        etcd.ctl(&["lease", "revoke", &format!("{lease:x}")]);
    }
}

#[cfg(feature = "sqlite")]
fn file_of(dir: &tempfile::TempDir) -> rusqlite::Connection {
    let file = rusqlite::Connection::open(dir.path().join("locks.db")).unwrap();
    file.busy_timeout(secs(10)).unwrap();
    file
}

/// The node of who holds it, in one of the folders.
#[cfg(feature = "zookeeper")]
#[track_caller]
fn nodes_holder(nodes: &mut kit::Nodes, chroot: &str, name: &str) -> String {
    let root = format!("{chroot}/leasehold");
    for folder in nodes.children(&root).unwrap_or_default() {
        let place = format!("{root}/{folder}/{name}");
        let below = nodes.children(&place).unwrap_or_default();
        if let Some(holder) = below.iter().find(|node| node.starts_with("l-")) {
            return format!("{place}/{holder}");
        }
    }
    panic!("nobody holds {name}")
}

/// Of those who want it, the first to come holds it.
#[cfg(feature = "etcd")]
#[track_caller]
fn holders_key(etcd: &kit::Etcd, name: &str) -> String {
    let below = format!("leasehold/lock/{name}/");
    let first = ["--prefix", "--keys-only", "--sort-by=CREATE", "--order=ASCEND", "--limit=1"];
    let key = etcd.ctl(&[&["get", &below], &first[..]].concat());
    assert!(key.starts_with(&below), "nobody holds {name}");
    key
}
