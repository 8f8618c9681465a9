//! How the servers of one Redis are found, before anything is said to them.

use std::sync::Arc;

use super::codec::{Codec, Deployment};
use super::dial::{Dialer, Greeting};
use super::dialect::Dialect;
use super::dialect::guard::Guard;
use super::listener::{Endpoints, OneEndpoint};
use super::route::cluster::{Cluster, SlotEndpoints};
use super::route::single::Single;
use super::route::slots::Map;
use super::route::{Gives, Route};
use super::sentinel::WatchedMaster;
use super::target::{Fixed, Target};
use crate::config::{Address, RedisConfig, Servers};
use crate::error::Error;
use crate::store::net::next_server;
use crate::store::net::pool::Pools;
use crate::store::outbox::Outbox;

pub(super) enum Way {
    One(Arc<dyn Target>),
    Cluster(Arc<Map>),
}

impl Way {
    pub(super) fn new(
        redis: &RedisConfig,
        greeting: Greeting,
        pools: &Pools,
    ) -> Result<Way, Error> {
        let dialer = |addresses: &[Address]| Dialer::new(&redis.access, greeting, addresses);
        Ok(match &redis.servers {
            Servers::One(address) => {
                let dialer = Arc::new(dialer(std::slice::from_ref(address))?);
                let (address, server) = (address.clone(), next_server());
                Way::One(Arc::new(Fixed { dialer, address, server, doubt: None }))
            }
            Servers::Cluster(seeds) => {
                Way::Cluster(Arc::new(Map::new(Arc::new(dialer(seeds)?), seeds, pools.clone())))
            }
            Servers::Sentinel(sentinels) => {
                Way::One(Arc::new(WatchedMaster::new(sentinels, &redis.access, greeting)?))
            }
        })
    }

    pub(super) fn endpoints(&self, prefix: &[u8]) -> Box<dyn Endpoints> {
        match self {
            Way::One(target) => Box::new(OneEndpoint(Arc::clone(target))),
            Way::Cluster(map) => {
                let (prefix, map) = (prefix.to_vec(), Arc::downgrade(map));
                Box::new(SlotEndpoints { prefix, map })
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
            Way::One(target) => {
                let word = guard.and_then(Guard::pack_begin);
                Box::new(Single::new(Arc::clone(target), pools, gives, word)?)
            }
            Way::Cluster(map) => Box::new(Cluster::new(Arc::clone(map), gives.0, gives.1)),
        };
        Ok(Deployment { codec, route })
    }
}
