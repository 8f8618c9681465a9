//! Which servers one Redis consists of. From this follow its route, for requests, and its publishers,
//! to which waiters listen.

use std::sync::Arc;

use super::codec::Codec;
use super::deployment::Deployment;
use super::dial::{Dialer, Greeting};
use super::dialect::Dialect;
use super::dialect::guard::Guard;
use super::listener::{OnePublisher, Publishers};
use super::route::cluster::{Cluster, SlotPublishers};
use super::route::single::Single;
use super::route::slots::SlotMap;
use super::route::{Gives, Route};
use super::sentinel::WatchedMaster;
use super::server_source::{FixedServer, ServerSource};
use crate::config::{Address, RedisConfig, Servers};
use crate::error::Error;
use crate::store::net::next_server;
use crate::store::net::pool::Pools;
use crate::store::outbox::Outbox;

pub(super) enum Topology {
    /// One server that has all locks: always the same, or the one that Sentinels name.
    OneMaster(Arc<dyn ServerSource>),
    /// Each lock is on the server that has its slot.
    Cluster(Arc<SlotMap>),
}

impl Topology {
    pub(super) fn new(
        redis: &RedisConfig,
        greeting: Greeting,
        pools: &Pools,
    ) -> Result<Topology, Error> {
        let dialer = |addresses: &[Address]| Dialer::new(&redis.access, greeting, addresses);
        Ok(match &redis.servers {
            Servers::One(address) => {
                let dialer = Arc::new(dialer(std::slice::from_ref(address))?);
                let (address, server) = (address.clone(), next_server());
                Topology::OneMaster(Arc::new(FixedServer { dialer, address, server, doubt: None }))
            }
            Servers::Cluster(seeds) => Topology::Cluster(Arc::new(SlotMap::new(
                Arc::new(dialer(seeds)?),
                seeds,
                pools.clone(),
            ))),
            Servers::Sentinel(sentinels) => Topology::OneMaster(Arc::new(WatchedMaster::new(
                sentinels,
                &redis.access,
                greeting,
            )?)),
        })
    }

    pub(super) fn publishers(&self, prefix: &[u8]) -> Box<dyn Publishers> {
        match self {
            Topology::OneMaster(source) => Box::new(OnePublisher(Arc::clone(source))),
            Topology::Cluster(map) => {
                let (prefix, map) = (prefix.to_vec(), Arc::downgrade(map));
                Box::new(SlotPublishers { prefix, map })
            }
        }
    }

    /// To be made once.
    pub(super) fn deploy<D: Dialect>(
        &self,
        pools: &Pools,
        codec: Codec<D>,
        outbox: &Arc<Outbox>,
    ) -> Result<Deployment<D>, Error> {
        let codec = Arc::new(codec);
        let gives = (Arc::clone(&codec) as Arc<dyn Gives>, Arc::clone(outbox));
        let guard = codec.dialect.format().guard;
        let route: Box<dyn Route> = match self {
            Topology::OneMaster(source) => {
                let word = guard.and_then(Guard::pack_begin);
                Box::new(Single::new(Arc::clone(source), pools, gives, word)?)
            }
            Topology::Cluster(map) => Box::new(Cluster::new(Arc::clone(map), gives.0, gives.1)),
        };
        Ok(Deployment { codec, route })
    }
}
