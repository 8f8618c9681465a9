//! The Redis store: the only room that names the `redis` and `r2d2` crates.
//!
//! [`dialect`] knows how locks are written, [`route`] brings what it packed to a server, and
//! between them stands this.

mod dial;
mod dialect;
mod executor;
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

use redis::Value;

use self::dial::Greeting;
use self::dialect::guard::Guard;
use self::dialect::native::Native;
#[cfg(all(test, not(shuttle)))]
pub(crate) use self::dialect::native::model;
use self::dialect::{Batch, Copies, Format, NO_WAKEUP, Wakeup, fault};
use self::pool::Pools;
use self::route::{Carried, Gives, Heard, Route};
use self::unread::About;
use self::way::Way;
use super::outbox::Outbox;
use super::{
    Abilities, Answer, Kept, Lane, Listener, Look, Notice, Outcome, Owed, Request, ServerId, Store,
    Teller, unguarded,
};
use crate::clock::{Deadline, Moment};
use crate::config::{Config, RedisConfig, Servers};
use crate::error::{Error, ErrorKind};
use crate::token::Token;

/// The longest pause of a waiter that asks again and again.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_millis(64);

/// Locks on one Redis server.
pub(crate) struct RedisStore {
    voice: Arc<Voice>,
    route: Box<dyn Route>,
}

/// How a client's locks are written, and where it is told of them.
struct Voice {
    dialect: Native,
    listener: listener::Listener,
}

impl RedisStore {
    pub(crate) fn new(
        redis: &RedisConfig,
        config: &Config,
        outbox: &Arc<Outbox>,
    ) -> Result<RedisStore, Error> {
        let clustered = matches!(redis.servers, Servers::Cluster(_));
        let guard = config.guard_data_loss.then_some(Guard { max_ttl: config.max_ttl, clustered });
        let greeting = Greeting {
            run_id: guard.is_some(),
            // A Cluster has a marker in each slot.
            unguarded: guard.is_none() && !clustered,
            ..Greeting::default()
        };
        let pools = Pools::new(config.pool);
        let way = Way::new(redis, greeting, &pools)?;
        let copies = Copies::wanted(redis.replicas, config.io_timeout);
        let voice = Arc::new(Voice {
            dialect: Native(Format {
                prefix: config.prefix.clone(),
                claim_window: config.claim_window,
                guard,
                copies,
            }),
            listener: listener::Listener::new(way.endpoints(&config.prefix), config.io_timeout)?,
        });
        let gives = Arc::clone(&voice) as Arc<dyn Gives>;
        let gives = (gives, Arc::clone(outbox));
        let route = way.route(&pools, &config.prefix, gives, guard)?;
        Ok(RedisStore { voice, route })
    }

    /// Sends a give again until it has passed over all waiters that are gone.
    fn finish(&self, give: &Request<'_>, carried: &Carried, lane: Lane, deadline: Deadline) {
        let mut unfinished = is_unfinished(carried) && matches!(give, Request::Give { .. });
        while unfinished && !deadline.has_passed() {
            let requests = std::slice::from_ref(give);
            let (batch, about) = (self.voice.pack(requests), About::Requests(requests));
            let carried = self.route.carry(lane, &batch, about, deadline);
            unfinished = carried.iter().any(is_unfinished);
        }
    }
}

fn is_unfinished(carried: &Carried) -> bool {
    matches!(carried, Ok(heard) if Native::is_unfinished(&heard.value))
}

/// Whether there is any marker: none is on a server that is new, or came back empty.
fn is_marked(route: &dyn Route, guard: Guard, deadline: Deadline) -> Result<bool, Error> {
    let batch = guard.pack_look(0..dialect::keys::SLOTS);
    let mut any = false;
    for carried in route.carry(Lane::Caller, &batch, About::Nothing, deadline) {
        any |= guard.read_look(carried.map_err(|failure| failure.error)?.value)?;
    }
    Ok(any)
}

/// Writes the markers of a new deployment.
fn initialize(
    route: &dyn Route,
    guard: Guard,
    force: bool,
    deadline: Deadline,
) -> Result<(), Error> {
    let batch = guard.pack_init(0..dialect::keys::SLOTS, force);
    let carried = route.carry(Lane::Caller, &batch, About::Nothing, deadline);
    carried.into_iter().try_for_each(|carried| match carried {
        Ok(heard) => guard.read_init(heard.value),
        Err(failure) => Err(failure.error),
    })
}

impl Voice {
    fn pack(&self, requests: &[Request<'_>]) -> Batch {
        let listener = &self.listener;
        self.dialect.pack(requests, &|name| match listener.are_known() {
            true => Wakeup { channel: listener.channel(name), is_open: listener.are_open(name) },
            false => NO_WAKEUP,
        })
    }

    /// What became of a request.
    fn outcome(&self, request: &Request<'_>, carried: Carried) -> Outcome {
        let Heard { value, sent, by, copies } = carried?;
        let (reply, server) = self.dialect.read(request, (value, copies.as_ref()), sent)?;
        Ok(Answer { reply, sent, server, by })
    }
}

impl Gives for Voice {
    fn pack(&self, gives: &[Request<'_>]) -> Batch {
        Voice::pack(self, gives)
    }

    fn read(&self, give: &Request<'_>, carried: Carried) -> Outcome {
        self.outcome(give, carried)
    }

    fn lacks_lock(&self, reply: &Value) -> bool {
        matches!(reply, Value::BulkString(text) if text.starts_with(b"B "))
    }
}

impl Store for RedisStore {
    fn run(&self, lane: Lane, requests: &[Request<'_>], deadline: Deadline) -> Vec<Outcome> {
        let (batch, about) = (self.voice.pack(requests), About::Requests(requests));
        let carried = self.route.carry(lane, &batch, about, deadline);
        for (request, carried) in requests.iter().zip(&carried) {
            self.finish(request, carried, lane, deadline);
        }
        let both = requests.iter().zip(carried);
        both.map(|(request, carried)| self.voice.outcome(request, carried)).collect()
    }

    fn let_go(&self, owed: &Owed, lane: Lane, deadline: Deadline) -> Option<Outcome> {
        self.route.let_go(owed, lane, deadline).err().map(Err)
    }

    fn sends_owed(&self) -> bool {
        true
    }

    fn tend(&self, before: Moment, _held: &dyn Fn(&[Token]) -> Vec<Kept>, _deadline: Deadline) {
        self.route.read_unread(before);
    }

    fn look(&self, name: &[u8], deadline: Deadline) -> Result<Look, Error> {
        let (batch, about) = (self.voice.dialect.0.pack_look(name), About::Name(name));
        let mut carried = self.route.carry(Lane::Caller, &batch, about, deadline);
        match carried.pop() {
            Some(Ok(heard)) => self.voice.dialect.read_look(heard.value),
            Some(Err(failure)) => Err(failure.error),
            None => Err(Error::bare(ErrorKind::Protocol)),
        }
    }

    fn ping(&self, deadline: Deadline) -> Result<(), Error> {
        self.route.ping(deadline)
    }

    fn initialize(&self, force: bool, deadline: Deadline) -> Result<(), Error> {
        let guard = self.voice.dialect.0.guard.ok_or_else(unguarded)?;
        initialize(self.route.as_ref(), guard, force, deadline)
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            place_kept: None,
            longest_pause: LONGEST_PAUSE,
            spread: Duration::ZERO,
            claims_first: self.voice.dialect.0.copies.is_some(),
        }
    }

    fn listener(&self) -> Option<&dyn Listener> {
        Some(self)
    }
}

impl Listener for RedisStore {
    fn are_open(&self, name: &[u8]) -> bool {
        self.voice.listener.are_open(name)
    }

    fn are_any_open(&self) -> bool {
        self.voice.listener.are_any_open()
    }

    fn open(&self, name: &[u8], deadline: Deadline) -> Result<ServerId, Error> {
        self.voice.listener.open(name, deadline)
    }

    fn hear(&self, until: Moment) -> Result<Vec<(Teller, Notice)>, Error> {
        self.voice.listener.hear(until, &|payload| self.voice.dialect.0.read_notice(payload))
    }

    fn close(&self) {
        self.voice.listener.close();
    }
}
