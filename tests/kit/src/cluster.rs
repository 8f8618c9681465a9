//! A Cluster: three masters that share the slots, with or without a replica each.

use std::time::{Duration, Instant};

use super::certificates::Certificates;
use super::wait::{eventually, eventually_some};
use super::{Server, ServerBuilder};

const MASTERS: usize = 3;
const SLOTS: u16 = 16_384;
const LIMIT: Duration = Duration::from_secs(30);

#[derive(Default)]
pub struct ClusterBuilder {
    with_replicas: bool,
    node_timeout: Option<Duration>,
    server: ServerBuilder,
    login: Option<(String, String)>,
    tls: bool,
}

impl ClusterBuilder {
    /// One for each master.
    pub fn with_replicas(mut self) -> ClusterBuilder {
        self.with_replicas = true;
        self
    }

    /// How long a node is silent before it counts as failed. If not this, 800 ms where a replica
    /// takes over, and else 5 s: then a node that gets no processor for a while stops nobody.
    pub fn node_timeout(mut self, timeout: Duration) -> ClusterBuilder {
        self.node_timeout = Some(timeout);
        self
    }

    /// Whether a slot without a node stops the others too, as it does ordinarily.
    pub fn require_full_coverage(self, required: bool) -> ClusterBuilder {
        self.arg("--cluster-require-full-coverage", if required { "yes" } else { "no" })
    }

    /// One option for every node.
    pub fn arg(mut self, name: &str, value: &str) -> ClusterBuilder {
        self.server = self.server.arg(name, value);
        self
    }

    /// The nodes want this user, `default` for one who is not named.
    pub fn login(mut self, user: &str, password: &str) -> ClusterBuilder {
        self.login = Some((user.to_owned(), password.to_owned()));
        self
    }

    /// Nodes speak TLS with each other, and name their ports for TLS to who asks over it.
    pub fn tls(mut self) -> ClusterBuilder {
        self.tls = true;
        self
    }

    pub fn start(self) -> Cluster {
        let dir = tempfile::Builder::new().prefix("leasehold-cluster-").tempdir().unwrap();
        let certificates = self.tls.then(|| Certificates::make(dir.path()));
        let usual = if self.with_replicas { 800 } else { 5000 };
        let timeout = self.node_timeout.unwrap_or(Duration::from_millis(usual)).as_millis();
        let count = if self.with_replicas { MASTERS * 2 } else { MASTERS };
        let nodes = (0..count).map(|_| {
            let mut node = self.server.clone().arg("--cluster-enabled", "yes");
            node = node.arg("--cluster-node-timeout", &timeout.to_string());
            // A replica that was out of touch for long may still become a master.
            node = node.arg("--cluster-replica-validity-factor", "0");
            node = node.arg("--repl-diskless-sync-delay", "0");
            if let Some(certificates) = &certificates {
                node = node.tls_with(certificates).arg("--tls-cluster", "yes");
                node = node.arg("--tls-replication", "yes");
            }
            if let Some((user, password)) = &self.login {
                node = node.user(user, password);
                node = node.arg("--masterauth", password).arg("--masteruser", user);
            }
            let server = node.start();
            let id = redis::from_redis_value(server.cmd(&["CLUSTER", "MYID"])).unwrap();
            Node { server, id }
        });
        let cluster = Cluster { nodes: nodes.collect(), tls: self.tls, _dir: dir };
        cluster.join();
        cluster
    }
}

pub struct Node {
    pub server: Server,
    id: String,
}

pub struct Cluster {
    /// First the three masters of the start, then their replicas in the same order. A test may
    /// kill, stop and start each.
    pub nodes: Vec<Node>,
    tls: bool,
    _dir: tempfile::TempDir,
}

impl Cluster {
    pub fn start() -> Cluster {
        Cluster::builder().start()
    }

    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    /// With user and password, if the nodes want any.
    pub fn url(&self) -> String {
        self.url_through(&self.nodes.iter().map(|node| node.server.port()).collect::<Vec<_>>())
    }

    /// The same by other ports to begin with: of proxies, or of only some nodes.
    pub fn url_through(&self, ports: &[u16]) -> String {
        self.write_url("redis+cluster", ports)
    }

    /// `rediss+cluster://`, with the authority that signed all certificates.
    pub fn tls_url(&self) -> String {
        let ports: Vec<_> = self.nodes.iter().map(|node| node.server.tls_port()).collect();
        let ca = self.nodes[0].server.certificates().ca();
        format!("{}?ca={}", self.write_url("rediss+cluster", &ports), ca.display())
    }

    pub fn server(&self, node: usize) -> &Server {
        &self.nodes[node].server
    }

    /// Which node most nodes that run name as the master of a slot.
    pub fn node_of(&self, slot: u16) -> Option<usize> {
        let running: Vec<_> = self.running().collect();
        let named: Vec<_> = running.iter().filter_map(|server| owner(server, slot)).collect();
        let count = |id: &str| named.iter().filter(|named| *named == id).count();
        self.nodes.iter().position(|node| count(&node.id) * 2 > running.len())
    }

    /// As `CLUSTER KEYSLOT` has it.
    pub fn slot_of(&self, key: &str) -> u16 {
        let server = self.running().next().expect("a node runs");
        redis::from_redis_value(server.cmd(&["CLUSTER", "KEYSLOT", key])).unwrap()
    }

    /// The node whose key this is.
    #[track_caller]
    pub fn node_of_key(&self, key: &str) -> usize {
        let slot = self.slot_of(key);
        eventually_some(LIMIT, || self.node_of(slot))
    }

    /// The slot and all its keys go to another node, in the three steps below.
    #[track_caller]
    pub fn move_slot(&self, slot: u16, to: usize) {
        let migration = self.begin_migration(slot, to);
        migration.move_keys();
        migration.finish();
    }

    /// From now on the old node sends those who ask for an absent key to the new one (ASK).
    #[track_caller]
    pub fn begin_migration(&self, slot: u16, to: usize) -> Migration<'_> {
        let from = eventually_some(LIMIT, || self.node_of(slot));
        assert_ne!(from, to, "the slot is there already");
        let (number, [old, new]) = (slot.to_string(), [from, to].map(|at| &self.nodes[at]));
        new.server.cmd(&["CLUSTER", "SETSLOT", &number, "IMPORTING", &old.id]);
        old.server.cmd(&["CLUSTER", "SETSLOT", &number, "MIGRATING", &new.id]);
        Migration { cluster: self, slot: number, from, to }
    }

    /// A replica takes over while its master lives on; returns when all nodes know.
    #[track_caller]
    pub fn fail_over(&self, replica: usize) {
        // Masters that have just voted refuse to vote again for a while, and the nodes give up
        // after five seconds.
        const PATIENCE: Duration = Duration::from_secs(6);
        let (server, start) = (self.server(replica), Instant::now());
        let mut asked = None;
        while role(server) != "master" {
            assert!(start.elapsed() < LIMIT, "the replica was not elected");
            if asked.is_none_or(|asked: Instant| asked.elapsed() > PATIENCE) {
                // Refused while the two are not in touch yet.
                let taken = server.try_cmd(&["CLUSTER", "FAILOVER"]).is_ok();
                asked = taken.then(Instant::now);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.wait_until_ready();
    }

    /// The replica that has become master of a slot in place of the node that failed, and when
    /// most nodes that run had heard of it.
    #[track_caller]
    pub fn replaced(&self, slot: u16, failed: usize) -> (usize, Instant) {
        let other = || self.node_of(slot).filter(|node| *node != failed);
        (eventually_some(LIMIT, other), Instant::now())
    }

    /// All nodes that run agree on who has which slots, no slot is without a master, and all
    /// replicas that run are in touch with theirs.
    #[track_caller]
    pub fn wait_until_ready(&self) {
        eventually(LIMIT, || self.is_ready());
    }

    fn is_ready(&self) -> bool {
        let well = self.running().all(|server| {
            let info = server.cmd(&["CLUSTER", "INFO"]);
            let info: String = redis::from_redis_value(info).unwrap();
            let served = info.contains("cluster_state:ok")
                && info.contains(&format!("cluster_slots_ok:{SLOTS}"));
            served && (role(server) == "master" || is_in_touch(server))
        });
        let mut views = self.running().map(view);
        let first = views.next();
        well && views.all(|view| Some(view) == first)
    }

    fn running(&self) -> impl Iterator<Item = &Server> {
        self.nodes.iter().map(|node| &node.server).filter(|server| server.is_running())
    }

    /// Makes one Cluster of nodes that do not know each other.
    fn join(&self) {
        let count = MASTERS as u16;
        for (index, node) in (0..).zip(&self.nodes[..MASTERS]) {
            let [first, end] = [index, index + 1].map(|at| SLOTS / count * at);
            let last = if index + 1 == count { SLOTS - 1 } else { end - 1 };
            let slots: Vec<_> = (first..=last).map(|slot| slot.to_string()).collect();
            let words = ["CLUSTER", "ADDSLOTS"].into_iter();
            node.server.cmd(&words.chain(slots.iter().map(String::as_str)).collect::<Vec<_>>());
        }
        for (epoch, node) in (1..).zip(&self.nodes) {
            node.server.cmd(&["CLUSTER", "SET-CONFIG-EPOCH", &format!("{epoch}")]);
        }
        // Everybody meets everybody, which is sooner done than heard from others.
        for node in &self.nodes {
            for other in self.nodes.iter().filter(|other| other.id != node.id) {
                let server = &other.server;
                let port = if self.tls { server.tls_port() } else { server.port() };
                node.server.cmd(&["CLUSTER", "MEET", "127.0.0.1", &port.to_string()]);
            }
        }
        for (replica, master) in self.nodes[MASTERS..].iter().zip(&self.nodes) {
            let asked = || replica.server.try_cmd(&["CLUSTER", "REPLICATE", &master.id]).is_ok();
            eventually(LIMIT, asked);
        }
        self.wait_until_ready();
    }

    fn write_url(&self, scheme: &str, ports: &[u16]) -> String {
        let url = self.nodes[0].server.url();
        let (login, _) = url["redis://".len()..].rsplit_once("127.0.0.1").unwrap();
        let hosts: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("{scheme}://{login}{}", hosts.join(","))
    }
}

/// A slot on its way to another node.
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: String,
    from: usize,
    to: usize,
}

impl Migration<'_> {
    /// All keys that are there now, one after the other.
    pub fn move_keys(&self) {
        while self.move_some(100) > 0 {}
    }

    /// At most so many keys; says how many there were.
    #[track_caller]
    pub fn move_some(&self, most: usize) -> usize {
        let old = self.cluster.server(self.from);
        let keys = old.cmd(&["CLUSTER", "GETKEYSINSLOT", &self.slot, &most.to_string()]);
        let keys: Vec<Vec<u8>> = redis::from_redis_value(keys).unwrap();
        for key in &keys {
            self.move_key(key);
        }
        keys.len()
    }

    /// It may have expired meanwhile.
    #[track_caller]
    pub fn move_key(&self, key: impl AsRef<[u8]>) {
        let [old, new] = [self.from, self.to].map(|node| self.cluster.server(node));
        let port = if self.cluster.tls { new.tls_port() } else { new.port() };
        let mut command = redis::cmd("MIGRATE");
        command.arg("127.0.0.1").arg(port).arg(key.as_ref()).arg(&["0", "5000"]);
        if let Some((user, password)) = new.login() {
            command.arg("AUTH2").arg(user).arg(password);
        }
        command.exec(&mut old.connection()).expect("a key migrates");
    }

    /// The slot is the new node's, and everybody knows. Keys that were not moved stop it.
    #[track_caller]
    pub fn finish(self) {
        let id = &self.cluster.nodes[self.to].id;
        // Two servers that took the same epoch may disagree for good: then the new one takes another.
        for _ in 0..5 {
            // The new one first: so the slot is never without a node.
            let all = [self.to, self.from].into_iter().chain(0..self.cluster.nodes.len());
            for server in all.map(|node| self.cluster.server(node)) {
                if server.is_running() && role(server) == "master" {
                    server.cmd(&["CLUSTER", "SETSLOT", &self.slot, "NODE", id]);
                }
            }
            let end = Instant::now() + LIMIT / 5;
            while Instant::now() < end {
                if self.cluster.is_ready() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            self.cluster.server(self.to).cmd(&["CLUSTER", "BUMPEPOCH"]);
        }
        self.cluster.wait_until_ready();
    }

    /// The slot stays where it was, as do keys that were moved already: only for slots that have
    /// none.
    #[track_caller]
    pub fn give_up(self) {
        for node in [self.to, self.from] {
            self.cluster.server(node).cmd(&["CLUSTER", "SETSLOT", &self.slot, "STABLE"]);
        }
    }
}

/// The id of the node that a server takes for the slot's master.
fn owner(server: &Server, slot: u16) -> Option<String> {
    view(server)
        .into_iter()
        .find_map(|(first, last, id)| (first..=last).contains(&slot).then_some(id))
}

/// Which slots belong to whom, as one node sees it, sorted by slots.
fn view(server: &Server) -> Vec<(u16, u16, String)> {
    let Ok(slots) = server.try_cmd(&["CLUSTER", "SLOTS"]) else { return Vec::new() };
    let entries: Vec<Vec<redis::Value>> = redis::from_redis_value(slots).unwrap();
    let mut view: Vec<_> = entries
        .into_iter()
        .map(|entry| {
            let [first, last, master] = [0, 1, 2].map(|at| entry[at].clone());
            let number = |value| redis::from_redis_value::<u16>(value).unwrap();
            let master: Vec<redis::Value> = redis::from_redis_value(master).unwrap();
            let id = redis::from_redis_value(master[2].clone()).unwrap();
            (number(first), number(last), id)
        })
        .collect();
    view.sort();
    view
}

fn role(server: &Server) -> String {
    let info = server.info("replication");
    let role = info.lines().find_map(|line| line.strip_prefix("role:"));
    role.expect("a role").to_owned()
}

fn is_in_touch(server: &Server) -> bool {
    server.info("replication").contains("master_link_status:up")
}
