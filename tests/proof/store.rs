//! The store that is attacked, and what can be done to it without breaking what it promises.

use kit::{Etcd, Mode, Process, Proxy, Server};

use super::trouble::Kind::{self, *};
use crate::stores::{Quorum, Store, secs};

pub(super) struct Target {
    pub(super) store: Store,
    /// Clients of a control come by way of it.
    pooler: Option<(Process, u16)>,
    kind: &'static Entry,
}

struct Entry {
    name: &'static str,
    start: fn() -> Store,
    /// Beside what happens to clients, which is the same for all.
    troubles: &'static [Kind],
    /// Whether there is a proxy before each client.
    has_links: bool,
    options: &'static str,
}

const POOLED: &str = "pgbouncer";

/// No ttl of an attack is longer. A store that waits after lost data waits for so long.
const LONGEST: &str = "guard_data_loss=yes&max_ttl=2s&";

const STORES: &[Entry] = &[
    Entry {
        name: "redis",
        start: Store::own_redis,
        troubles: &[
            Link,
            Link,
            ServerStopped,
            ServerRestarted,
            ScriptsFlushed,
            ConnectionsClosed,
            ConnectionsClosed,
        ],
        has_links: true,
        options: "",
    },
    Entry {
        name: "redis-guarded",
        start: guarded_redis,
        troubles: &[Link, Link, Link, ServerStopped, ScriptsFlushed, ConnectionsClosed, DataLost],
        has_links: true,
        options: LONGEST,
    },
    Entry {
        name: "sentinel",
        start: guarded_sentinels,
        troubles: &[MemberStopped, FailedOver, ScriptsFlushed, ConnectionsClosed],
        has_links: false,
        options: LONGEST,
    },
    Entry {
        name: "cluster",
        start: Store::cluster,
        troubles: &[MemberStopped, SlotMoved, SlotMoved, ScriptsFlushed, ConnectionsClosed],
        has_links: false,
        options: "",
    },
    Entry {
        name: "quorum",
        start: quorum,
        troubles: &[Link, MemberStopped, MemberEmptied, ScriptsFlushed, ConnectionsClosed],
        has_links: false,
        options: "",
    },
    Entry { name: "sqlite", start: Store::file, troubles: &[], has_links: false, options: "" },
    Entry {
        name: "postgres",
        start: Store::own_postgres,
        troubles: &[Link, Link, ServerStopped, ServerRestarted, ConnectionsClosed, Cancelled],
        has_links: true,
        options: "",
    },
    Entry {
        name: "mariadb",
        start: Store::own_mysql,
        troubles: &[Link, Link, ServerStopped, ServerRestarted, ConnectionsClosed, Cancelled],
        has_links: true,
        options: "",
    },
    Entry {
        name: "zookeeper",
        start: Store::own_zookeeper,
        troubles: &[Link, Link, ServerStopped, ServerRestarted],
        has_links: true,
        options: "",
    },
    Entry {
        name: "etcd",
        start: Store::own_etcd,
        troubles: &[Link, Link, ServerStopped, ServerRestarted],
        has_links: true,
        options: "",
    },
    Entry {
        name: "etcd-cluster",
        start: etcd_cluster,
        troubles: &[MemberStopped, MemberRestarted],
        has_links: false,
        options: "",
    },
    // For controls alone. What is wrong with them needs no server that fails, or one that fails for this.
    Entry { name: "calm", start: Store::own_redis, troubles: &[], has_links: false, options: "" },
    Entry {
        name: "slow",
        start: Store::own_redis,
        troubles: &[LinksSlow],
        has_links: true,
        options: "",
    },
    Entry { name: "emptied", start: quorum, troubles: EMPTIED, has_links: false, options: "" },
    Entry {
        name: POOLED,
        start: Store::own_postgres,
        troubles: &[],
        has_links: false,
        options: "",
    },
    Entry {
        name: "calm-etcd",
        start: Store::own_etcd,
        troubles: &[],
        has_links: false,
        options: "",
    },
];

/// One soon after the other.
const EMPTIED: &[Kind] = &[MembersEmptied, MembersEmptied, MembersEmptied, MembersEmptied];

fn guarded_redis() -> Store {
    guarded(Store::redis())
}

fn guarded_sentinels() -> Store {
    guarded(Store::sentinels())
}

fn etcd_cluster() -> Store {
    Store::Etcd(Etcd::start_with(super::trouble::MEMBERS, &[]))
}

/// It is new, and need not wait.
fn guarded(store: Store) -> Store {
    let url = format!("{}?{}", store.url(), LONGEST.trim_end_matches('&'));
    leasehold::Client::open(&url).unwrap().initialize(false).unwrap();
    store
}

fn quorum() -> Store {
    Store::Quorum(Quorum::builder(3).with_proxies().max_ttl(secs(2)).start())
}

pub(super) fn start(name: &str) -> Target {
    let kind = STORES.iter().find(|entry| entry.name == name);
    let kind = kind.unwrap_or_else(|| panic!("{name} is no store that is attacked"));
    let store = (kind.start)();
    let pooler = match &store {
        Store::Postgres(database) if name == POOLED => Some(database.server().pooler()),
        _ => None,
    };
    Target { store, pooler, kind }
}

impl Target {
    pub(super) fn troubles(&self) -> &'static [Kind] {
        self.kind.troubles
    }

    /// One for each client, where there are any.
    pub(super) fn links(&self, count: usize) -> Vec<Proxy> {
        if !self.kind.has_links {
            return Vec::new();
        }
        let port = self.store.port().expect("links are those to one server");
        (0..count).map(|_| Proxy::start(port)).collect()
    }

    pub(super) fn url(&self, link: Option<&Proxy>) -> String {
        let Some(link) = link else { return self.steady_url() };
        // Late answers are late soon.
        self.with(&self.store.url_through(link.port()), "io_timeout=500ms")
    }

    /// Of one that bears with everything.
    pub(super) fn steady_url(&self) -> String {
        // A quorum waits a tenth of it for one of its servers.
        let io_timeout =
            if self.kind.name == "quorum" { "io_timeout=2s" } else { "io_timeout=10s" };
        let url = match &self.pooler {
            Some((_, port)) => self.store.url_through(*port),
            None => self.store.url(),
        };
        self.with(&url, io_timeout)
    }

    fn with(&self, url: &str, io_timeout: &str) -> String {
        let join = if url.contains('?') { '&' } else { '?' };
        format!("{url}{join}{}{io_timeout}&claim_window=150ms", self.kind.options)
    }

    /// All servers that speak Redis's language and have locks.
    pub(super) fn servers(&self) -> Vec<&Server> {
        match &self.store {
            Store::Redis(server) => vec![server],
            Store::Quorum(quorum) => quorum.nodes.iter().collect(),
            Store::Cluster(cluster) => cluster.nodes.iter().map(|node| &node.server).collect(),
            Store::Sentinels(group) => group.servers.iter().collect(),
            _ => Vec::new(),
        }
    }

    /// The proxy before a member of a quorum.
    pub(super) fn member_link(&mut self, number: usize, mode: Mode) {
        if let Store::Quorum(quorum) = &mut self.store {
            let count = quorum.proxies.len();
            quorum.proxies.iter_mut().for_each(Proxy::deliver);
            quorum.proxies[number % count].set(mode);
        }
    }
}
