//! The Redis store: one server, a master with Sentinels, or a Cluster.
//!
//! A [`dialect`] knows how locks are written, and packs requests. A [`topology`] knows which servers
//! there are, and makes a [`route`], which brings a batch to the right one. A [`deployment`] has both.

mod admin;
mod clients;
mod codec;
mod deployment;
mod dial;
mod dialect;
#[cfg(feature = "examine")]
pub(crate) mod examine;
mod frame;
mod listener;
mod route;
mod sentinel;
mod server_source;
pub(super) mod several;
mod topology;
mod unread;
mod weakness;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use self::codec::Codec;
use self::deployment::Deployment;
use self::dial::Greeting;
use self::dialect::guard::Guard;
use self::dialect::native::Native;
use self::dialect::{Copies, Dialect, Format, fault, look, notice};
use self::route::{Carried, Parcel, unanswered};
use self::topology::Topology;
use super::outbox::Outbox;
use super::{Abilities, Identity, Kept, Lane, Listener, Outcome, Owed, Request, Store};
use crate::clock::{Deadline, Moment};
use crate::config::{Config, RedisConfig, Servers};
use crate::error::Error;
use crate::store::net::pool::Pools;
use crate::token::Token;

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
        let topology = Topology::new(redis, greeting, &pools)?;
        let copies = Copies::wanted(redis.replicas, config.io_timeout);
        let publishers = topology.publishers(&config.prefix);
        let read = notice::reader(&config.prefix);
        let listener = listener::Listener::new(publishers, config.io_timeout, read)?;
        let (prefix, claim_window) = (config.prefix.clone(), config.claim_window);
        let (fence_life, drafts) = (config.fence_life, Default::default());
        let dialect = Native(Format { prefix, claim_window, fence_life, guard, copies, drafts });
        let codec = Codec { dialect, listener: Arc::new(listener), index: None };
        Ok(RedisStore { deployment: topology.deploy(&pools, codec, outbox)? })
    }

    fn carry(&self, lane: Lane, requests: &[Request<'_>], carried: &mut [Carried], by: Deadline) {
        let batch = self.deployment.pack(requests);
        self.deployment.route.carry(&Parcel { lane, batch: &batch, deadline: by }, carried);
        self.deployment.keep(batch);
    }

    /// What an answer means. A give is sent again until it has passed over all waiters that are gone.
    fn read(&self, lane: Lane, request: &Request<'_>, carried: Carried, by: Deadline) -> Outcome {
        let mut unfinished = is_unfinished(&carried) && matches!(request, Request::Give { .. });
        while unfinished && !by.has_passed() {
            let mut again = [unanswered()];
            self.carry(lane, std::slice::from_ref(request), &mut again, by);
            unfinished = again.iter().any(is_unfinished);
        }
        self.deployment.read(request, carried)
    }
}

fn is_unfinished(carried: &Carried) -> bool {
    matches!(carried, Ok(heard) if Native::is_unfinished(&heard.value))
}

impl Store for RedisStore {
    fn run(&self, lane: Lane, requests: &[Request<'_>], deadline: Deadline) -> Vec<Outcome> {
        let mut carried = vec![unanswered(); requests.len()];
        self.carry(lane, requests, &mut carried, deadline);
        let both = requests.iter().zip(carried);
        both.map(|(request, carried)| self.read(lane, request, carried, deadline)).collect()
    }

    fn ask(&self, lane: Lane, request: Request<'_>, deadline: Deadline) -> Outcome {
        let mut carried = [unanswered()];
        self.carry(lane, &[request], &mut carried, deadline);
        let [carried] = carried;
        self.read(lane, &request, carried, deadline)
    }

    fn let_go(&self, owed: &Owed, lane: Lane, deadline: Deadline) -> Option<Outcome> {
        let give = self.deployment.pack(&[owed.identity.give()]);
        let parcel = Parcel { lane, batch: &give, deadline };
        let sent = self.deployment.route.let_go(owed, &parcel);
        self.deployment.keep(give);
        sent.err().map(Err)
    }

    fn tend(&self, before: Moment, _held: &dyn Fn(&[Token]) -> Vec<Kept>, _deadline: Deadline) {
        self.deployment.read_unread(before);
    }

    fn free_in(&self, name: &[u8], deadline: Deadline) -> Result<Duration, Error> {
        self.deployment.free_in(name, deadline)
    }

    fn is_unawaited(&self, grant: &Identity, lane: Lane, deadline: Deadline) -> bool {
        let seen = self.deployment.see(&grant.name, lane, deadline);
        seen.is_ok_and(|seen| look::is_unawaited(&seen, grant.token))
    }

    fn ping(&self, deadline: Deadline) -> Result<(), Error> {
        self.deployment.ping(deadline)
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            claims_first: self.deployment.codec.dialect.format().copies.is_some(),
            sends_owed: true,
            ..Abilities::default()
        }
    }

    fn listener(&self) -> Option<&dyn Listener> {
        Some(&*self.deployment.codec.listener)
    }
}
