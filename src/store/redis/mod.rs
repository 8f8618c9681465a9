//! The Redis store: the only room that names the `redis` and `r2d2` crates.
//!
//! [`dialect`] knows how locks are written, [`route`] brings what it packed to a server, and
//! between them stands this.

mod dial;
mod dialect;
mod ears;
mod fault;
mod frame;
mod owing;
mod pool;
mod route;
mod shelf;
/// Servers and proxies to test on.
#[cfg(test)]
#[path = "../../../tests/support/mod.rs"]
mod support;
#[cfg(feature = "tls")]
mod tls;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use self::dial::Dialer;
use self::dialect::Batch;
#[cfg(test)]
pub(crate) use self::dialect::native::model;
use self::dialect::native::{Ear, Native};
use self::owing::About;
use self::route::single::{Carried, Gives, Single};
use super::{Abilities, Answer, Ears, Failure, Lane, Look, Notice, Outcome, Owed, Request, Store};
use crate::clock::{Deadline, Moment};
use crate::config::{Config, RedisConfig};
use crate::error::Error;

/// A client that was never told anything, and so stands in no queue.
const DEAF: Ear<'_> = Ear { channel: b"", is_open: false };

/// Locks on one Redis server.
pub(crate) struct RedisStore {
    voice: Arc<Voice>,
    route: Single,
}

/// How a client's locks are written, and where it is told of them.
struct Voice {
    dialect: Native,
    ears: ears::Ears,
}

impl RedisStore {
    pub(crate) fn new(redis: &RedisConfig, config: &Config) -> Result<RedisStore, Error> {
        let dialer = Arc::new(Dialer::new(redis)?);
        let voice = Arc::new(Voice {
            dialect: Native::new(&config.prefix, config.claim_window),
            ears: ears::Ears::new(Arc::clone(&dialer), config.io_timeout)?,
        });
        let route = Single::new(dialer, config.pool, Box::new(Arc::clone(&voice)))?;
        Ok(RedisStore { voice, route })
    }
}

impl Voice {
    fn pack(&self, requests: &[Request<'_>]) -> Batch {
        let ears = &self.ears;
        let ear = match ears.are_known() {
            true => Ear { channel: ears.channel(), is_open: ears.are_open() },
            false => DEAF,
        };
        self.dialect.pack(requests, ear)
    }

    /// What became of a request.
    fn outcome(&self, request: &Request<'_>, carried: Carried) -> Outcome {
        let (value, sent) = carried?;
        // A take that reports an error has not taken the lock, and the others are refused before
        // they write.
        let refused = matches!(value, Value::ServerError(_));
        match self.dialect.read(request, value) {
            Ok((reply, server)) => Ok(Answer { reply, sent, server }),
            Err(error) if refused => Err(Failure::not_done(error)),
            Err(error) => Err(Failure::unknown(error, sent)),
        }
    }
}

impl Gives for Arc<Voice> {
    fn pack(&self, gives: &[Request<'_>]) -> Batch {
        Voice::pack(self, gives)
    }

    fn read(&self, give: &Request<'_>, carried: Carried) -> Outcome {
        self.outcome(give, carried)
    }
}

impl Store for RedisStore {
    fn run(&self, lane: Lane, requests: &[Request<'_>], deadline: Deadline) -> Vec<Outcome> {
        let (batch, about) = (self.voice.pack(requests), About::Requests(requests));
        let carried = self.route.carry(lane, &batch, about, deadline);
        let both = requests.iter().zip(carried);
        both.map(|(request, carried)| self.voice.outcome(request, carried)).collect()
    }

    fn let_go(&self, owed: &Owed, lane: Lane, deadline: Deadline) -> Option<Outcome> {
        self.route.let_go(owed, lane, deadline).err().map(Err)
    }

    fn settle(&self, sent_before: Moment, deadline: Deadline) -> Vec<(Owed, Outcome)> {
        self.route.settle(sent_before, deadline)
    }

    fn owed_since(&self) -> Option<Moment> {
        self.route.owed_since()
    }

    fn look(&self, name: &[u8], deadline: Deadline) -> Result<Look, Error> {
        let (batch, about) = (self.voice.dialect.pack_look(name), About::Name(name));
        let mut carried = self.route.carry(Lane::Caller, &batch, about, deadline);
        match carried.pop() {
            Some(Ok((value, _))) => self.voice.dialect.read_look(value),
            Some(Err(failure)) => Err(failure.error),
            None => Err(Error::bare(crate::error::ErrorKind::Protocol)),
        }
    }

    fn ping(&self, deadline: Deadline) -> Result<(), Error> {
        self.route.ping(deadline)
    }

    fn abilities(&self) -> Abilities {
        Abilities { place_kept: None, longest_pause: Duration::from_millis(64) }
    }

    fn ears(&self) -> Option<&dyn Ears> {
        Some(self)
    }
}

impl Ears for RedisStore {
    fn are_open(&self) -> bool {
        self.voice.ears.are_open()
    }

    fn open(&self, deadline: Deadline) -> Result<(), Error> {
        self.voice.ears.open(deadline)
    }

    fn hear(&self, until: Moment) -> Result<Vec<Notice>, Error> {
        self.voice.ears.hear(until, &|payload| self.voice.dialect.read_notice(payload))
    }

    fn close(&self) {
        self.voice.ears.close();
    }
}
