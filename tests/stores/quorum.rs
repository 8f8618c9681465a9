//! Servers that make a quorum: each can be killed, stopped, cut off and brought back.

use std::time::Duration;

use leasehold::defaults::GUARDED_MAX_TTL;
use leasehold::{Client, Config};
use redis::Value;

use super::{LIMIT, open};
use kit::{Proxy, Server, ServerBuilder, eventually};

pub struct Quorum {
    /// Each stands for itself, and none may be forgotten.
    pub nodes: Vec<Server>,
    /// One before each node, if any.
    pub proxies: Vec<Proxy>,
    max_ttl: Duration,
}

pub struct QuorumBuilder {
    count: usize,
    server: ServerBuilder,
    with_proxies: bool,
    max_ttl: Duration,
    initialized: bool,
}

impl QuorumBuilder {
    /// The same for all nodes.
    pub fn servers(mut self, server: ServerBuilder) -> QuorumBuilder {
        self.server = server;
        self
    }

    /// Clients come through proxies that misbehave on request.
    pub fn with_proxies(mut self) -> QuorumBuilder {
        self.with_proxies = true;
        self
    }

    /// How long a node that lost its data grants nothing.
    pub fn max_ttl(mut self, most: Duration) -> QuorumBuilder {
        self.max_ttl = most;
        self
    }

    /// Nobody says that they are new.
    pub fn uninitialized(mut self) -> QuorumBuilder {
        self.initialized = false;
        self
    }

    pub fn start(self) -> Quorum {
        let nodes: Vec<_> = (0..self.count).map(|_| self.server.clone().start()).collect();
        let through = nodes.iter().filter(|_| self.with_proxies);
        let proxies = through.map(|node| Proxy::start(node.port())).collect();
        let quorum = Quorum { nodes, proxies, max_ttl: self.max_ttl };
        if self.initialized {
            quorum.client().initialize(false).unwrap();
        }
        quorum
    }
}

impl Quorum {
    /// New servers that grant at once.
    pub fn start(count: usize) -> Quorum {
        Quorum::builder(count).start()
    }

    pub fn builder(count: usize) -> QuorumBuilder {
        QuorumBuilder {
            count,
            server: Server::builder(),
            with_proxies: false,
            max_ttl: GUARDED_MAX_TTL,
            initialized: true,
        }
    }

    /// The URL of each member, as clients come to it.
    pub fn urls(&self) -> Vec<String> {
        let url = |(index, node): (usize, &Server)| match self.proxies.get(index) {
            Some(proxy) => node.url_through(proxy.port()),
            None => node.url(),
        };
        self.nodes.iter().enumerate().map(url).collect()
    }

    pub fn url(&self) -> String {
        let query = match self.max_ttl {
            GUARDED_MAX_TTL => String::new(),
            most => format!("?max_ttl={}ms", most.as_millis()),
        };
        self.urls().join(",") + &query
    }

    /// As everybody has it.
    pub fn config(&self) -> Config {
        Config::from_url(&self.url()).unwrap()
    }

    /// Bears with a slow machine: no node that answers at all is too late.
    pub fn client(&self) -> Client {
        open(&self.url())
    }

    /// Keeps the default times, by which nodes that are down are noticed.
    pub fn brisk_client(&self) -> Client {
        Client::with_config(self.config()).unwrap()
    }

    pub fn running(&self) -> impl Iterator<Item = &Server> {
        self.nodes.iter().filter(|node| node.is_running())
    }

    /// On how many nodes that run a name is taken.
    pub fn taken_on(&self, name: &str) -> usize {
        self.running().filter(|node| node.cmd(&["EXISTS", name]) == Value::Int(1)).count()
    }

    /// Every connection is made and every script known: also on nodes that are always a little later
    /// than the others, so that nobody waits for what they say.
    #[track_caller]
    pub fn warm_up(&self, client: &Client) {
        eventually(LIMIT, || {
            let lease = client.lock("warm-up").wait(LIMIT).acquire().unwrap();
            std::thread::sleep(Duration::from_millis(100));
            let everywhere = self.taken_on("warm-up") == self.nodes.len();
            lease.release().unwrap();
            self.eventually_free("warm-up");
            everywhere
        });
    }

    /// By a release or a give that was owed, not by the ttl, where that is long.
    #[track_caller]
    pub fn eventually_free(&self, name: &str) {
        eventually(LIMIT, || self.taken_on(name) == 0);
    }

    /// How many scripts all nodes that run were sent so far.
    pub fn scripts(&self) -> u64 {
        self.running().map(|node| node.calls("evalsha")).sum()
    }

    /// How many of the nodes have somebody who waits for a name.
    pub fn waited_for_on(&self, name: &str) -> usize {
        let queue = format!("leasehold:queue:{{{name}}}");
        self.running().filter(|node| node.cmd(&["EXISTS", &queue]) == Value::Int(1)).count()
    }

    /// How many stand in the queue of a name on the node where most do.
    pub fn waiters(&self, name: &str) -> i64 {
        let queue = format!("leasehold:queue:{{{name}}}");
        let count = |node: &Server| match node.cmd(&["ZCARD", &queue]) {
            Value::Int(count) => count,
            other => panic!("{other:?}"),
        };
        self.running().map(count).max().unwrap_or(0)
    }
}
