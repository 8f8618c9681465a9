//! Groups of servers on this machine, for as long as a measurement lasts.

use std::fs;
use std::time::{Duration, Instant};

use super::super::Folder;
use super::super::bare::{Address, Bare, number};
use super::super::server::{Socket, Spawned};
use super::super::watch::Watch;
use crate::exit::Failure;

const MASTER: &str = "mymaster";
const SENTINELS: usize = 3;
const MASTERS: u16 = 3;
const SLOTS: u16 = 16_384;
/// For anything that a group does by itself.
const LIMIT: Duration = Duration::from_secs(30);

/// All of it ends with this.
pub(super) struct Group {
    pub(super) url: String,
    /// Those that locks are kept on.
    pub(super) servers: Vec<Spawned>,
    pub(super) replica: Option<Spawned>,
    pub(super) sentinels: Vec<Spawned>,
    /// Theirs, and so it goes last.
    _folder: Folder,
}

impl Group {
    /// Servers that know nothing of each other, declared as new.
    pub(super) fn quorum(nodes: usize) -> Result<Group, Failure> {
        let folder = Folder::create()?;
        let servers = (0..nodes).map(|_| server(&folder, &[])).collect::<Result<Vec<_>, _>>()?;
        let urls: Vec<_> = servers.iter().map(Spawned::url).collect();
        let group = Group::of(urls.join(","), servers, folder);
        leasehold::Client::open(&group.url)?.initialize(false)?;
        Ok(group)
    }

    /// Three masters that share the slots.
    pub(super) fn cluster(watch: &Watch) -> Result<Group, Failure> {
        let folder = Folder::create()?;
        let mut servers = Vec::new();
        for node in 0..MASTERS {
            let file = format!("nodes-{node}.conf");
            let options = ["--cluster-enabled", "yes", "--cluster-config-file", &file];
            servers.push(server(&folder, &options)?);
        }
        let url = format!("redis+cluster://{}", places(&servers));
        let group = Group::of(url, servers, folder);
        let mut nodes = group.servers.iter().map(connect).collect::<Result<Vec<_>, _>>()?;
        for (index, node) in nodes.iter_mut().enumerate() {
            let slots = (0..SLOTS).filter(|slot| usize::from(owner(*slot)) == index);
            let slots: Vec<_> = slots.map(|slot| slot.to_string()).collect();
            let mut command: Vec<&[u8]> = vec![b"CLUSTER", b"ADDSLOTS"];
            command.extend(slots.iter().map(String::as_bytes));
            node.call(&command)?;
            let epoch = (index + 1).to_string();
            node.call(&[b"CLUSTER", b"SET-CONFIG-EPOCH", epoch.as_bytes()])?;
        }
        // A server that has met another one takes no epoch any more.
        for node in &mut nodes {
            for other in &group.servers {
                let port = other.port().to_string();
                node.call(&[b"CLUSTER", b"MEET", b"127.0.0.1", port.as_bytes()])?;
            }
        }
        until(watch, "the Cluster does not come together", || {
            let mut is_whole = true;
            for node in &mut nodes {
                let info = String::from_utf8_lossy(node.call(&[b"CLUSTER", b"INFO"])?).into_owned();
                is_whole &= info.contains("cluster_state:ok")
                    && info.contains(&format!("cluster_slots_ok:{SLOTS}"))
                    && info.contains(&format!("cluster_known_nodes:{MASTERS}"));
            }
            Ok(is_whole)
        })?;
        Ok(group)
    }

    /// A master with a replica, and three Sentinels, which need two to agree.
    pub(super) fn sentinel(watch: &Watch) -> Result<Group, Failure> {
        let folder = Folder::create()?;
        let delay = ["--repl-diskless-sync-delay", "0"];
        let master = server(&folder, &delay)?;
        let port = master.port().to_string();
        let replica =
            server(&folder, &[&delay[..], &["--replicaof", "127.0.0.1", &port]].concat())?;
        let mut sentinels = Vec::new();
        for sentinel in 0..SENTINELS {
            let file = folder.0.join(format!("sentinel-{sentinel}.conf"));
            let lines = format!(
                "sentinel monitor {MASTER} 127.0.0.1 {port} 2\n\
                 sentinel down-after-milliseconds {MASTER} 500\n\
                 sentinel failover-timeout {MASTER} 5000\n"
            );
            fs::write(&file, lines)?;
            let file = file.display().to_string();
            sentinels.push(spawned(&[&file, "--sentinel"], &[])?);
        }
        let url = format!("redis+sentinel://{}/{MASTER}", places(&sentinels));
        let mut group = Group::of(url, vec![master], folder);
        (group.replica, group.sentinels) = (Some(replica), sentinels);
        group.wait_for_sentinels(watch)?;
        Ok(group)
    }

    /// The one of a Cluster that keeps what has this name.
    pub(super) fn owner(&self, name: &str) -> Result<&Spawned, Failure> {
        let none = || Failure::unavailable("the Cluster does not tell the slot of a name");
        let any = self.servers.first().ok_or_else(none)?;
        let mut bare = connect(any)?;
        let reply = bare.call(&[b"CLUSTER", b"KEYSLOT", name.as_bytes()])?;
        let slot = reply.strip_prefix(b":").and_then(number).and_then(|slot| slot.try_into().ok());
        self.servers.get(usize::from(owner(slot.ok_or_else(none)?))).ok_or_else(none)
    }

    fn of(url: String, servers: Vec<Spawned>, folder: Folder) -> Group {
        Group { url, servers, replica: None, sentinels: Vec::new(), _folder: folder }
    }

    /// Until they know each other and the replica has all data: a failover is possible now.
    fn wait_for_sentinels(&self, watch: &Watch) -> Result<(), Failure> {
        let mut sentinels = self.sentinels.iter().map(connect).collect::<Result<Vec<_>, _>>()?;
        // They look around far more often than by themselves, until they have found each other.
        hasten(&mut sentinels, b"100", b"100");
        let mut servers = self.servers.iter().map(connect).collect::<Result<Vec<_>, _>>()?;
        until(watch, "the Sentinels do not come together", || {
            let mut are_ready = true;
            for sentinel in &mut sentinels {
                let known = sentinel.call(&[b"SENTINEL", b"MASTER", MASTER.as_bytes()])?;
                let known = String::from_utf8_lossy(known).into_owned();
                are_ready &= told(&known, "num-other-sentinels") == Some("2")
                    && told(&known, "num-slaves") == Some("1")
                    && told(&known, "flags") == Some("master");
            }
            for master in &mut servers {
                are_ready &= master.info("replication")?.contains("state=online");
            }
            Ok(are_ready)
        })?;
        hasten(&mut sentinels, b"2000", b"10000");
        Ok(())
    }
}

/// Which of the masters has a slot: each of them as many, side by side.
fn owner(slot: u16) -> u16 {
    slot / (SLOTS / MASTERS + 1)
}

/// How often, in milliseconds, Sentinels tell of themselves and ask servers.
fn hasten(sentinels: &mut [Bare], publish: &[u8], info: &[u8]) {
    for sentinel in sentinels {
        let periods = [b"publish-period", publish, b"info-period", info];
        // Older ones know no such command, and only take longer.
        let _ = sentinel.call(&[&[b"SENTINEL", &b"DEBUG"[..]], &periods[..]].concat());
    }
}

/// The value of a field in a flat list of names and values.
fn told<'a>(reply: &'a str, field: &str) -> Option<&'a str> {
    let mut lines = reply.lines().skip_while(|line| *line != field);
    // Behind the name stands how long the value is.
    lines.nth(2)
}

fn server(folder: &Folder, options: &[&str]) -> Result<Spawned, Failure> {
    let folder = folder.0.display().to_string();
    spawned(&[], &[&["--dir", &folder], options].concat())
}

fn spawned(file: &[&str], options: &[&str]) -> Result<Spawned, Failure> {
    let none = || Failure::unavailable("neither redis-server nor valkey-server is installed");
    Spawned::start_with(Socket::Tcp, file, options)?.ok_or_else(none)
}

fn places(servers: &[Spawned]) -> String {
    let places = servers.iter().map(|server| format!("127.0.0.1:{}", server.port()));
    places.collect::<Vec<_>>().join(",")
}

/// A bare connection to a server of ours.
pub(super) fn connect(server: &Spawned) -> Result<Bare, Failure> {
    Bare::connect(&address(server)?)
}

pub(super) fn address(server: &Spawned) -> Result<Address, Failure> {
    let nowhere = || Failure::unavailable("a server of our own is nowhere");
    Address::of(&server.url()).ok_or_else(nowhere)
}

/// Until it is so.
pub(super) fn until(
    watch: &Watch,
    otherwise: &str,
    mut is_so: impl FnMut() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let started = Instant::now();
    while !is_so()? {
        watch.check()?;
        if started.elapsed() > LIMIT {
            return Err(Failure::unavailable(otherwise));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_has_one_of_the_masters() {
        let owned = |master| (0..SLOTS).filter(|slot| owner(*slot) == master).count();
        assert_eq!((0..MASTERS).map(owned).sum::<usize>(), usize::from(SLOTS));
        assert!((0..MASTERS).all(|master| owned(master) > 5000));
    }

    #[test]
    fn a_field_is_told_behind_its_name() {
        let reply = "*4\r\n$5\r\nflags\r\n$6\r\nmaster\r\n$10\r\nnum-slaves\r\n$1\r\n1\r\n";
        assert_eq!(told(reply, "flags"), Some("master"));
        assert_eq!(told(reply, "num-slaves"), Some("1"));
        assert_eq!(told(reply, "num"), None);
    }
}
