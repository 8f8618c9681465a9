//! All members of a quorum together, and what their waiters hear of them.

use std::sync::Arc;
use std::time::Duration;

use super::dialect::Quorum;
use super::node::Node;
use crate::clock::{Deadline, Moment};
use crate::config::{Config, RedisConfig};
use crate::error::Error;
use crate::store::redis::several::{self, Several, name_on};
use crate::store::{Listener, Notice, ServerId, Teller};

pub(super) struct Members {
    pub(super) nodes: Vec<Node>,
    listener: Arc<several::Listener>,
    node_timeout: Duration,
}

impl Members {
    pub(super) fn new(members: &[RedisConfig], config: &Config) -> Result<Members, Error> {
        let node_timeout = config.node_timeout();
        let Several { deployments, listener } =
            Several::new(members, config, node_timeout, Quorum)?;
        let all = members.iter().zip(0..).zip(deployments);
        let nodes = all.map(|((redis, index), deployed)| Node::new(redis, index, deployed));
        Ok(Members { nodes: nodes.collect(), listener, node_timeout })
    }

    fn open_on(&self, name: &[u8]) -> usize {
        let open = |node: &&Node| self.listener.are_open(&name_on(node.index, name));
        self.nodes.iter().filter(open).count()
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
            let name_there = name_on(node.index, name);
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
    use crate::config::{Servers, StoreConfig};
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
        members.nodes.iter().for_each(|node| node.deployment.ping(soon()).unwrap());
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
