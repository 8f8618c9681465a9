//! The etcd store: a key for each holder and each waiter, of which the first one that was created has
//! the lock. What its promises rest on is in `docs/protocol.md`.

mod admin;
mod clients;
mod dial;
#[cfg(feature = "examine")]
pub(crate) mod examine;
mod explain;
mod fault;
mod hpack;
mod keys;
mod leases;
mod listener;
mod login;
mod messages;
mod own_keys;
mod passing;
mod proto;
mod takes;
#[cfg(test)]
#[cfg(kit)]
mod tests;
mod turns;
mod waits;
mod wire;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use self::dial::{Dialer, transact};
use self::keys::Name;
use self::leases::Leases;
use self::messages::{Done, Op, Txn, most_of};
use self::own_keys::OwnKeys;
use self::wire::Wire;
use crate::clock::{Deadline, Moment};
use crate::config::{Config, EtcdConfig};
use crate::error::{Error, ErrorKind};
use crate::said::say;
use crate::store::net::next_server;
use crate::store::net::pool::{Pool, Pools};
use crate::store::{
    Abilities, Answer, Failure, Identity, Kept, Lane, Listener, Outcome, Reply, Request, ServerId,
    Store,
};
use crate::sync::Mutex;
use crate::token::Token;

/// Nobody tells for how long a lock stays taken: those who wait hear of its end.
const UNTOLD: Duration = Duration::from_secs(3600);

/// So many locks are ended at a time.
const MOST_ENDED: usize = 16;

pub(crate) struct EtcdStore {
    dialer: Arc<Dialer>,
    pool: Pool<Wire>,
    listener: listener::Listener,
    prefix: Vec<u8>,
    leases: Leases,
    own_keys: Arc<OwnKeys>,
    /// What waiters have seen of those before them.
    seen: passing::Seen,
    me: ServerId,
    /// The lease of what this client says of itself.
    record: Mutex<Option<i64>>,
}

impl EtcdStore {
    pub(crate) fn new(etcd: &EtcdConfig, config: &Config) -> Result<EtcdStore, Error> {
        let Config { prefix, io_timeout, claim_window, .. } = config;
        let (dialer, me) = (Arc::new(Dialer::new(etcd)?), next_server());
        let spans = (*io_timeout, *claim_window);
        let (leases, own_keys) = <(Leases, Arc<OwnKeys>)>::default();
        let both = (Arc::clone(&dialer), Arc::clone(&own_keys));
        let listener = listener::Listener::new(both, spans, keys::any(prefix), me);
        let (pool, prefix) = (Pools::new(config.pool).make()?, prefix.clone());
        let (record, seen) = Default::default();
        Ok(EtcdStore { dialer, pool, listener, prefix, leases, own_keys, seen, me, record })
    }

    fn name(&self, name: &[u8]) -> Name {
        Name::new(&self.prefix, name)
    }

    /// Does something on a connection: that of a seat, or a new one where there is none or it has died
    /// unseen. What was surely not done, for a reason that another member may not have, is done again.
    fn on_wire<T>(
        &self,
        lane: Lane,
        deadline: Deadline,
        mut act: impl FnMut(&mut Wire, Deadline) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let by = lane.by(deadline);
        let mut tries = 0;
        self.pool.on_connection(lane, by.connect, |lent| {
            loop {
                tries += 1;
                if deadline.has_passed() {
                    let late = Error::new(ErrorKind::NoAnswer, "the deadline had passed");
                    return Err(Failure::not_done(late));
                }
                let kept = lent.wire.take().and_then(|mut wire| {
                    let is_usable = !self.dialer.is_doubted(&wire) && !wire.is_stale(Moment::now());
                    is_usable.then_some(wire)
                });
                let is_new = kept.is_none();
                let mut wire = self.dialer.known(kept, by.connect).map_err(Failure::not_done)?;
                let mut failure = match act(&mut wire, deadline) {
                    Ok(done) => {
                        lent.wire = Some(wire).filter(|wire| !wire.is_broken);
                        return Ok(done);
                    }
                    Err(failure) => failure,
                };
                if failure.error.kind() == ErrorKind::Permission {
                    let mends = explain::lacking(&mut wire, &self.prefix, deadline);
                    if !mends.is_empty() {
                        failure.error = explain::missing(&mends, &failure.error);
                    }
                }
                let is_forgotten = self.dialer.is_forgotten(&wire, &failure.error);
                let is_silent =
                    matches!(failure.error.kind(), ErrorKind::NoAnswer | ErrorKind::Unavailable);
                if is_silent && !is_forgotten {
                    self.dialer.doubt(&wire);
                }
                if is_forgotten {
                    wire.token = None;
                }
                lent.wire = Some(wire).filter(|wire| !wire.is_broken);
                let may_help = is_forgotten || !is_new || tries < self.dialer.members();
                let is_over = failure.sent.is_some() || !failure.error.is_retriable();
                if is_over || !may_help || tries > 2 + self.dialer.members() {
                    return Err(failure);
                }
            }
        })
    }

    fn transact(&self, lane: Lane, txn: &Txn, deadline: Deadline) -> Result<Done, Failure> {
        self.on_wire(lane, deadline, |wire, deadline| Ok(transact(wire, txn, deadline)?.0))
    }

    /// The values of these keys, as many at a time as fit into one question.
    fn read(
        &self,
        lane: Lane,
        keys: impl Iterator<Item = Vec<u8>>,
        deadline: Deadline,
    ) -> Result<Vec<Option<Vec<u8>>>, Failure> {
        let (keys, mut all) = (keys.collect::<Vec<_>>(), Vec::new());
        for some in keys.chunks(most_of(keys.iter().map(|key| &**key))) {
            let look = some.iter().map(|key| Op::get(key)).fold(Txn::default(), Txn::then);
            let mut done = self.transact(lane, &look, deadline)?;
            all.extend((0..some.len()).map(|at| done.part(at).first().map(|key| key.value)));
        }
        Ok(all)
    }

    fn ask_one(&self, lane: Lane, request: &Request<'_>, deadline: Deadline) -> Outcome {
        self.on_wire(lane, deadline, |wire, deadline| match *request {
            Request::Take { name, token, ttl, place, block } => {
                self.take(wire, name, (token, ttl), (place, block), deadline)
            }
            Request::Give { name, token, fence, .. } => {
                self.give(wire, &self.name(name), (token, fence), deadline)
            }
            Request::Extend { .. } => self.extend(wire, request, deadline),
        })
    }

    fn answer(&self, reply: Reply, sent: Moment) -> Answer {
        Answer { reply, sent, server: micros(sent), by: self.me, again: None }
    }
}

impl Store for EtcdStore {
    fn run(&self, lane: Lane, requests: &[Request<'_>], deadline: Deadline) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(requests.len());
        let mut rest = requests;
        while let Some(request) = rest.first() {
            let renewals = self.renewals(rest);
            if !renewals.is_empty() {
                outcomes.extend(self.renew_all(lane, &renewals, deadline));
                rest = &rest[renewals.len()..];
                continue;
            }
            if let [take, give, later @ ..] = rest
                && let Some(both) = self.pass_on(lane, take, give, deadline)
            {
                outcomes.extend(both);
                rest = later;
                continue;
            }
            outcomes.push(self.ask_one(lane, request, deadline));
            rest = &rest[1..];
        }
        outcomes
    }

    fn free_in(&self, name: &[u8], deadline: Deadline) -> Result<Duration, Error> {
        self.look_ahead(name, deadline).map_err(|failure| failure.error)
    }

    fn is_unawaited(&self, grant: &Identity, lane: Lane, deadline: Deadline) -> bool {
        let name = self.name(&grant.name);
        let first = Txn::default().then(Op::first(&name.all));
        let Ok(mut seen) = self.transact(lane, &first, deadline) else { return false };
        let mut part = seen.part(0);
        // A late copy of its take can have made another place of its token's.
        let created = keys::created(grant.fence);
        let is_ours = |key: messages::Key| key.created == created && keys::is_of(&key, grant.token);
        part.count == 1 && part.first().is_some_and(is_ours)
    }

    fn ping(&self, deadline: Deadline) -> Result<(), Error> {
        let any = Txn::default().then(Op::get(&keys::any(&self.prefix)));
        let pinged = self.transact(Lane::Caller, &any, deadline);
        pinged.map(drop).map_err(|failure| failure.error)
    }

    fn abilities(&self) -> Abilities {
        Abilities::default()
    }

    /// A lease of etcd outlasts what was promised by a second or more: while this client lives, it ends
    /// each lock in time that nobody renews.
    fn tend(&self, before: Moment, _held: &dyn Fn(&[Token]) -> Vec<Kept>, deadline: Deadline) {
        if let Err(failure) = self.revoke(&self.leases.take_spare(), deadline) {
            say!(Debug, "leases-left", error = failure.error);
        }
        if before == Moment::NEVER {
            // Gives come first: the others end when this is called again.
            self.leases.is_closing.store(true, Ordering::Relaxed);
            return self.own_keys.leave_ends();
        }
        for (token, own) in self.own_keys.take_ended(Moment::now(), MOST_ENDED) {
            // Just this grant: what was written since is a later one.
            let (name, fence) = (Name::of_key(&own.key), keys::first_fence(own.created));
            let ended = self.on_wire(Lane::Keeper, deadline, |wire, deadline| {
                self.delete(wire, &name, (token, &own), fence.unwrap_or(0), deadline)
            });
            if let Err(failure) = ended {
                if own.lease.is_none() {
                    // Else it would be kept alive with the places of others.
                    self.listener.end(own.ear);
                }
                say!(Debug, "lock-left", error = failure.error);
            }
        }
    }

    fn due(&self) -> Moment {
        if self.leases.spare() > 0 { Moment::ZERO } else { self.own_keys.due() }
    }

    fn listener(&self) -> Option<&dyn Listener> {
        Some(&self.listener)
    }
}

/// etcd shows no clock: a moment of ours stands in for what its clock shows then.
fn micros(moment: Moment) -> u64 {
    moment.as_nanos() / 1000
}
