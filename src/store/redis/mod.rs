//! The Redis store: the only room that names the `redis` and `r2d2` crates.
//!
//! [`dialect`] knows how locks are written, [`route`] brings what it packed to a server, and
//! between them stands this.

mod codec;
mod dial;
mod dialect;
#[cfg(feature = "examine")]
pub(crate) mod examine;
mod frame;
mod listener;
pub(super) mod listing;
pub(super) mod node;
mod route;
mod sentinel;
mod target;
mod unread;
mod way;
mod weakness;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use self::codec::{Codec, Deployment};
use self::dial::Greeting;
use self::dialect::guard::Guard;
use self::dialect::native::Native;
#[cfg(all(test, not(shuttle)))]
pub(crate) use self::dialect::native::model;
use self::dialect::{Copies, Dialect, Format, fault, look, notice};
use self::route::{Carried, Parcel, unanswered};
use self::way::Way;
use super::breaking::{Breaches, Held};
use super::listing::{Bookmark, Page, Wanted};
use super::outbox::Outbox;
use super::{
    Abilities, Failure, Identity, Kept, Lane, Listener, Look, Outcome, Owed, Request, Store,
};
use crate::clock::{Deadline, Moment};
#[cfg(feature = "examine")]
use crate::config::StoreConfig;
use crate::config::{Config, RedisConfig, Servers};
use crate::error::Error;
#[cfg(feature = "examine")]
use crate::examination::{Examination, Subject};
use crate::said::say;
use crate::store::Record;
use crate::store::net::pool::Pools;
use crate::token::{ClientId, Token};

pub(super) const LONGEST_PAUSE: Duration = Duration::from_millis(64);
/// No longer is a connection waited for that is only needed for what nobody waits for.
const SOON: Duration = Duration::from_millis(10);

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
        let (fence_life, drafts) = (config.fence_life, Default::default());
        let dialect = Native(Format { prefix, claim_window, fence_life, guard, copies, drafts });
        let codec = Codec { dialect, listener: Arc::new(listener), member: None };
        Ok(RedisStore { deployment: way.deploy(&pools, codec, outbox)? })
    }

    fn carry(&self, lane: Lane, requests: &[Request<'_>], carried: &mut [Carried], by: Deadline) {
        let Deployment { codec, route } = &self.deployment;
        let batch = codec.pack(requests);
        route.carry(&Parcel { lane, batch: &batch, deadline: by }, carried);
        codec.dialect.format().drafts.keep(batch);
    }

    /// What an answer means. A give is sent again until it has passed over all waiters that are gone.
    fn read(&self, lane: Lane, request: &Request<'_>, carried: Carried, by: Deadline) -> Outcome {
        let mut unfinished = is_unfinished(&carried) && matches!(request, Request::Give { .. });
        while unfinished && !by.has_passed() {
            let mut again = [unanswered()];
            self.carry(lane, std::slice::from_ref(request), &mut again, by);
            unfinished = again.iter().any(is_unfinished);
        }
        self.deployment.codec.read(request, carried)
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
        let Deployment { codec, route } = &self.deployment;
        let give = codec.pack(&[owed.identity.give()]);
        let sent = route.let_go(owed, &Parcel { lane, batch: &give, deadline });
        codec.dialect.format().drafts.keep(give);
        sent.err().map(Err)
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

    fn free_in(&self, name: &[u8], deadline: Deadline) -> Result<Duration, Error> {
        self.deployment.free_in(name, deadline)
    }

    fn register(&self, record: Record<'_>, deadline: Deadline) -> Result<(), Error> {
        self.deployment.register(record, deadline)
    }

    fn unregister(&self, client: ClientId) {
        let told = self.deployment.tell(&look::pack_unregister(client), Deadline::after(SOON));
        if let Err(failure) = told {
            say!(Debug, "record-left", error = failure.error);
        }
    }

    fn records(
        &self,
        clients: &[ClientId],
        deadline: Deadline,
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        self.deployment.records(clients, deadline)
    }

    fn weakness(&self, deadline: Deadline) -> Result<Option<String>, Error> {
        let format = self.deployment.codec.dialect.format();
        if format.guard.is_some() {
            return Ok(None);
        }
        let info = self.deployment.info(deadline)?;
        Ok(weakness::found(&info, format.copies.is_some()))
    }

    fn is_unawaited(&self, grant: &Identity, lane: Lane, deadline: Deadline) -> bool {
        let seen = self.deployment.see(&grant.name, lane, deadline);
        seen.is_ok_and(|seen| look::is_unawaited(&seen, grant.token))
    }

    fn list(&self, wanted: &Wanted, from: &Bookmark, by: Deadline) -> Result<Page, Error> {
        self.deployment.list(wanted, from, by)
    }

    fn held(&self, name: &[u8], deadline: Deadline) -> Result<Option<Held>, Error> {
        let survey = self.deployment.survey(&[name.to_vec()], deadline)?.pop().unwrap_or_default();
        listing::held(name, &survey, Native::FENCE)
    }

    fn break_grant(&self, held: &Held, by: &[u8], deadline: Deadline) -> Result<bool, Failure> {
        let grant = (held.token, held.fence.unwrap_or(0));
        let said = self.deployment.break_grant(Lane::Caller, (&held.name, grant), by, deadline)?;
        if said == Native::UNFINISHED {
            // A give that finds the lock free goes on where the break has stopped.
            let (name, token, ttl) = (&held.name, held.token, Duration::ZERO);
            let _ = self.ask(Lane::Caller, Request::Give { name, token, fence: 0, ttl }, deadline);
        }
        Ok(said != 0)
    }

    fn breaches(&self, lane: Lane, of: &[&[u8]], deadline: Deadline) -> Breaches {
        self.deployment.breaches(lane, of, deadline)
    }

    fn ping(&self, deadline: Deadline) -> Result<(), Error> {
        self.deployment.route.ping(deadline)
    }

    #[cfg(feature = "examine")]
    fn examine(&self, subject: Subject<'_>, found: &mut Examination) -> Result<bool, Error> {
        match &subject.config.store {
            StoreConfig::Redis(redis) => examine::examine(redis, subject, found),
            _ => Ok(true),
        }
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
