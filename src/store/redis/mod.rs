//! The Redis store: the only room that names the `redis` and `r2d2` crates.
//!
//! [`dialect`] knows how locks are written, [`route`] brings what it packed to a server, and
//! between them stands this.

mod codec;
mod dial;
mod dialect;
mod frame;
mod listener;
pub(super) mod node;
mod poll;
mod pool;
mod route;
mod sentinel;
mod target;
#[cfg(feature = "tls")]
mod tls;
mod unread;
mod way;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use self::codec::{Codec, Deployment};
use self::dial::Greeting;
use self::dialect::guard::Guard;
use self::dialect::native::Native;
#[cfg(all(test, not(shuttle)))]
pub(crate) use self::dialect::native::model;
use self::dialect::{Copies, Dialect, Format, fault, notice};
use self::pool::Pools;
use self::route::Carried;
use self::way::Way;
use super::outbox::Outbox;
use super::{Abilities, Kept, Lane, Listener, Look, Outcome, Owed, Request, Store};
use crate::clock::{Deadline, Moment};
use crate::config::{Config, RedisConfig, Servers};
use crate::error::Error;
use crate::token::Token;

pub(super) const LONGEST_PAUSE: Duration = Duration::from_millis(64);

pub(crate) struct RedisStore {
    deployment: Deployment<Native>,
}

impl RedisStore {
    pub(crate) fn new(
        redis: &RedisConfig,
        config: &Config,
        outbox: &Arc<Outbox>,
    ) -> Result<RedisStore, Error> {
        let clustered = matches!(redis.servers, Servers::Cluster(_));
        let guard =
            config.guard_data_loss.then_some(Guard { max_ttl: config.longest_ttl(), clustered });
        let greeting = Greeting {
            run_id: guard.is_some(),
            // A Cluster has a marker in each slot.
            unguarded: guard.is_none() && !clustered,
            ..Greeting::default()
        };
        let pools = Pools::new(config.pool);
        let way = Way::new(redis, greeting, &pools)?;
        let copies = Copies::wanted(redis.replicas, config.io_timeout);
        let endpoints = way.endpoints(&config.prefix);
        let read = notice::reader(&config.prefix);
        let listener = listener::Listener::new(endpoints, config.io_timeout, read)?;
        let (prefix, claim_window) = (config.prefix.clone(), config.claim_window);
        let dialect = Native(Format { prefix, claim_window, guard, copies });
        let codec = Codec { dialect, listener: Arc::new(listener), member: None };
        Ok(RedisStore { deployment: way.deploy(&pools, codec, outbox)? })
    }

    fn carry(&self, lane: Lane, requests: &[Request<'_>], deadline: Deadline) -> Vec<Carried> {
        let Deployment { codec, route } = &self.deployment;
        route.carry(lane, &codec.pack(requests), deadline)
    }

    /// Sends a give again until it has passed over all waiters that are gone.
    fn finish(&self, give: &Request<'_>, carried: &Carried, lane: Lane, deadline: Deadline) {
        let mut unfinished = is_unfinished(carried) && matches!(give, Request::Give { .. });
        while unfinished && !deadline.has_passed() {
            let requests = std::slice::from_ref(give);
            unfinished = self.carry(lane, requests, deadline).iter().any(is_unfinished);
        }
    }
}

fn is_unfinished(carried: &Carried) -> bool {
    matches!(carried, Ok(heard) if Native::is_unfinished(&heard.value))
}

impl Store for RedisStore {
    fn run(&self, lane: Lane, requests: &[Request<'_>], deadline: Deadline) -> Vec<Outcome> {
        let carried = self.carry(lane, requests, deadline);
        for (request, carried) in requests.iter().zip(&carried) {
            self.finish(request, carried, lane, deadline);
        }
        let both = requests.iter().zip(carried);
        both.map(|(request, carried)| self.deployment.codec.read(request, carried)).collect()
    }

    fn let_go(&self, owed: &Owed, lane: Lane, deadline: Deadline) -> Option<Outcome> {
        self.deployment.route.let_go(owed, lane, deadline).err().map(Err)
    }

    fn sends_owed(&self) -> bool {
        true
    }

    fn tend(&self, before: Moment, _held: &dyn Fn(&[Token]) -> Vec<Kept>, _deadline: Deadline) {
        self.deployment.route.read_unread(before);
    }

    fn look(&self, name: &[u8], deadline: Deadline) -> Result<Look, Error> {
        self.deployment.look(name, deadline)
    }

    fn ping(&self, deadline: Deadline) -> Result<(), Error> {
        self.deployment.route.ping(deadline)
    }

    fn initialize(&self, force: bool, deadline: Deadline) -> Result<(), Error> {
        self.deployment.initialize(force, deadline)
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            place_kept: None,
            longest_pause: LONGEST_PAUSE,
            spread: Duration::ZERO,
            claims_first: self.deployment.codec.dialect.format().copies.is_some(),
        }
    }

    fn listener(&self) -> Option<&dyn Listener> {
        Some(&*self.deployment.codec.listener)
    }
}
