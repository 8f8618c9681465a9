//! What a store uses that keeps its locks on several Redis.
//!
//! [`Several`] makes one [`Deployment`] for each of them, and one [`Listener`] for all: a waiting thread
//! reads all of its sockets. The store brings a [`Dialect`] of its own, and decides what the answers add
//! up to. It names nothing else in this room.

use std::sync::Arc;
use std::time::Duration;

use super::codec::Codec;
use super::dial::Greeting;
use super::dialect::guard::Guard;
use super::dialect::{Copies, notice};
use super::listener::PublishersOfSeveral;
use super::topology::Topology;
use crate::config::{Config, RedisConfig, Servers};
use crate::error::Error;
use crate::store::net::pool::Pools;
use crate::store::outbox::Outbox;

// One Redis, the replies of a request that it was sent, and one reply.
pub(in crate::store) use super::deployment::Deployment;
pub(in crate::store) use super::route::Carried;
pub(in crate::store) use super::route::single::Pending;

// What operators see of one Redis.
pub(in crate::store) use super::dialect::survey::Survey;
#[cfg(feature = "examine")]
pub(in crate::store) use super::examine;

// Where waiters are told, and a name as it is known there.
pub(in crate::store) use super::listener::{Listener, name_on};

// What a dialect is made of. The Lua that dialects share is in the folder `dialect`.
pub(in crate::store) use super::dialect::{
    Arg, Batch, Dialect, Format, Packer, Script, Wakeup, Words, foreign, script, unreadable,
};

#[cfg(test)]
#[cfg(kit)]
pub(in crate::store) use super::dialect::world;

pub(in crate::store) struct Several<D> {
    /// In the order in which they were named, each with the outbox for what it is owed.
    pub(in crate::store) deployments: Vec<(Deployment<D>, Arc<Outbox>)>,
    pub(in crate::store) listener: Arc<Listener>,
}

impl<D: Dialect> Several<D> {
    /// All are guarded against lost data. `timeout`: how long one of them is waited for.
    pub(in crate::store) fn new(
        all: &[RedisConfig],
        config: &Config,
        timeout: Duration,
        dialect: impl Fn(Format) -> D,
    ) -> Result<Several<D>, Error> {
        let greeting = Greeting { run_id: true, ..Greeting::default() };
        let pools = Pools::new(config.pool);
        let topologies = all.iter().map(|redis| Topology::new(redis, greeting, &pools));
        let topologies = topologies.collect::<Result<Vec<_>, _>>()?;
        let publishers =
            topologies.iter().map(|topology| topology.publishers(&config.prefix)).collect();
        let read = notice::reader(&config.prefix);
        let listener =
            Listener::new(Box::new(PublishersOfSeveral(publishers)), config.io_timeout, read)?;
        let listener = Arc::new(listener);
        let deploy = |((topology, redis), index): ((Topology, &RedisConfig), u8)| {
            let clustered = matches!(redis.servers, Servers::Cluster(_));
            let guard = Some(Guard { max_ttl: config.longest_ttl(), clustered });
            let copies = Copies::wanted(redis.replicas, timeout);
            let prefix = config.prefix.clone();
            let dialect = dialect(Format { prefix, guard, copies, ..Format::default() });
            let codec = Codec { dialect, listener: Arc::clone(&listener), index: Some(index) };
            let outbox = Arc::<Outbox>::default();
            Ok((topology.deploy(&pools, codec, &outbox)?, outbox))
        };
        let deployments = topologies.into_iter().zip(all).zip(0..).map(deploy);
        let deployments = deployments.collect::<Result<_, Error>>()?;
        Ok(Several { deployments, listener })
    }
}
