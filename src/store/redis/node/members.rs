//! All members of a quorum together, and what their waiters hear of them.

use std::sync::Arc;
use std::time::Duration;

use super::Node;
use crate::clock::{Deadline, Moment};
use crate::config::{Config, RedisConfig, Servers};
use crate::error::Error;
use crate::store::net::pool::Pools;
use crate::store::outbox::Outbox;
use crate::store::redis::codec::{Codec, name_at};
use crate::store::redis::dial::Greeting;
use crate::store::redis::dialect::guard::Guard;
use crate::store::redis::dialect::quorum::Quorum;
use crate::store::redis::dialect::{Copies, Format, notice};
use crate::store::redis::listener::{self, Endpoint, Endpoints};
use crate::store::redis::way::Way;
use crate::store::{Listener, Notice, ServerId, Teller};

pub(in crate::store) struct Members {
    pub(in crate::store) nodes: Vec<Node>,
    listener: Arc<listener::Listener>,
    node_timeout: Duration,
}

impl Members {
    pub(in crate::store) fn new(
        members: &[RedisConfig],
        config: &Config,
    ) -> Result<Members, Error> {
        let greeting = Greeting { run_id: true, ..Greeting::default() };
        let pools = Pools::new(config.pool);
        let ways = members.iter().map(|member| Way::new(member, greeting, &pools));
        let ways = ways.collect::<Result<Vec<_>, _>>()?;
        let endpoints =
            Box::new(ByMember(ways.iter().map(|way| way.endpoints(&config.prefix)).collect()));
        let read = notice::reader(&config.prefix);
        let listener = Arc::new(listener::Listener::new(endpoints, config.io_timeout, read)?);
        let node = |((way, redis), member): ((Way, &RedisConfig), u8)| {
            let clustered = matches!(redis.servers, Servers::Cluster(_));
            let guard = Guard { max_ttl: config.longest_ttl(), clustered };
            let copies = Copies::wanted(redis.replicas, config.node_timeout());
            let (prefix, guard) = (config.prefix.clone(), Some(guard));
            let dialect = Quorum(Format { prefix, guard, copies, ..Format::default() });
            let listener = Arc::clone(&listener);
            let codec = Codec { dialect, listener, member: Some(member) };
            let outbox = Arc::<Outbox>::default();
            let (rest, pace, slower, locked_until, queued_until) = Default::default();
            let (shown, is_blocking) = (redis.display(), clustered);
            Ok(Node {
                shown,
                member,
                deployment: way.deploy(&pools, codec, &outbox)?,
                outbox,
                rest,
                pace,
                slower,
                locked_until,
                queued_until,
                is_blocking,
                replicas: redis.replicas,
            })
        };
        let nodes = ways.into_iter().zip(members).zip(0..).map(node);
        let nodes = nodes.collect::<Result<_, Error>>()?;
        Ok(Members { nodes, listener, node_timeout: config.node_timeout() })
    }

    fn open_on(&self, name: &[u8]) -> usize {
        let open = |node: &&Node| self.listener.are_open(&name_at(node.member, name));
        self.nodes.iter().filter(open).count()
    }
}

/// A name is told here with its member before it.
struct ByMember(Vec<Box<dyn Endpoints>>);

impl Endpoints for ByMember {
    fn endpoint(&self, name: &[u8]) -> Result<Endpoint, Error> {
        let found = self.0[usize::from(name[0])].endpoint(&name[1..])?;
        Ok(Endpoint { key: found.key << 8 | u32::from(name[0]), ..found })
    }

    fn find(&self, name: &[u8], deadline: Deadline) -> Result<(), Error> {
        self.0[usize::from(name[0])].find(&name[1..], deadline)
    }
}

/// A holder that gives the lock up has every node that it had tell its waiters: to hear a majority
/// is enough, and a message from any node is a reason to ask all of them.
impl Listener for Members {
    fn are_open(&self, name: &[u8]) -> bool {
        self.open_on(name) > self.nodes.len() / 2
    }

    fn are_all_open(&self, name: &[u8]) -> bool {
        self.open_on(name) == self.nodes.len()
    }

    fn are_any_open(&self) -> bool {
        self.listener.are_any_open()
    }

    fn open(&self, name: &[u8], deadline: Deadline) -> Result<ServerId, Error> {
        let (mut failed, mut refusals) = (None, 0);
        let (ready, others): (Vec<_>, Vec<_>) = self.nodes.iter().partition(|node| node.is_ready());
        let needed = ready.len();
        for (index, node) in ready.into_iter().chain(others).enumerate() {
            if index >= needed && self.are_open(name) {
                break;
            }
            let by = deadline.min(Deadline::after(self.node_timeout));
            let name_there = name_at(node.member, name);
            let is_resting = self.listener.are_resting(&name_there);
            match self.listener.open(&name_there, by) {
                Ok(_) => {}
                Err(error) if error.is_retriable() => {
                    // The listener repeats an earlier error for a while.
                    if !is_resting {
                        node.is_unwell();
                    }
                    failed.get_or_insert(error);
                }
                Err(error) => {
                    refusals += 1;
                    // The nodes that are left are no majority.
                    if self.nodes.len() - refusals <= self.nodes.len() / 2 {
                        return Err(error);
                    }
                }
            }
        }
        match failed {
            Some(error) if !self.are_open(name) => Err(error),
            _ => Ok(ServerId::default()),
        }
    }

    fn hear(&self, until: Moment) -> Result<Vec<(Teller, Notice)>, Error> {
        self.listener.hear(until)
    }

    fn close(&self) {
        self.listener.close();
    }
}

#[cfg(all(test, kit))]
mod tests {
    use super::*;
    use crate::config::StoreConfig;
    use kit::Server;

    #[test]
    fn a_repeated_refusal_to_listen_says_nothing_against_a_node_that_answers() {
        let servers: Vec<_> = (0..3).map(|_| Server::builder().unix().start()).collect();
        let config = Config::from_url(&servers[0].unix_url()).unwrap();
        let of = |server: &Server| match Config::from_url(&server.unix_url()).unwrap().store {
            StoreConfig::Redis(redis) => *redis,
            _ => panic!(),
        };
        let redis: Vec<_> = servers.iter().map(of).collect();
        let members = Members::new(&redis, &config).unwrap();
        let soon = || Deadline::after(Duration::from_secs(5));
        members.nodes.iter().for_each(|node| node.ping(soon()).unwrap());
        for redis in &redis {
            let Servers::One(crate::config::Address::Unix(path)) = &redis.servers else { panic!() };
            std::fs::remove_file(path).unwrap();
        }
        // One of these is a new try, and the others tell the same again.
        let mut unwell = 0;
        for _ in 0..4 {
            members.open(b"n", soon()).unwrap_err();
            unwell += usize::from(!members.nodes.iter().all(Node::is_ready));
            // The connections that are open go on.
            members.nodes.iter().for_each(|node| node.try_again(soon()));
            assert!(members.nodes.iter().all(Node::is_ready));
        }
        // On a machine that stood still, there may be another new try.
        assert!((1..=2).contains(&unwell), "{unwell}");
    }
}
