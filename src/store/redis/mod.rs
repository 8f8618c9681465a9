//! The Redis store: the only room that names the `redis` and `r2d2` crates.
//!
//! [`dialect`] knows how locks are written, [`route`] brings what it packed to a server, and
//! between them stands this.

mod dial;
mod dialect;
mod fault;
mod frame;
mod owing;
mod pool;
mod route;
mod shelf;
#[cfg(feature = "tls")]
mod tls;
mod wire;

use std::time::Duration;

use redis::Value;

use self::dialect::Batch;
use self::dialect::native::Native;
use self::owing::About;
use self::route::single::{Carried, Gives, Single};
use super::{Abilities, Answer, Failure, Lane, Look, Outcome, Owed, Request, Store};
use crate::clock::{Deadline, Moment};
use crate::config::{Config, RedisConfig};
use crate::error::Error;

/// Locks on one Redis server.
pub(crate) struct RedisStore {
    dialect: Native,
    route: Single,
}

impl RedisStore {
    pub(crate) fn new(redis: &RedisConfig, config: &Config) -> Result<RedisStore, Error> {
        let dialect = || Native::new(&config.prefix);
        let route = Single::new(redis, config.pool, Box::new(dialect()))?;
        Ok(RedisStore { dialect: dialect(), route })
    }
}

/// What became of a request.
fn outcome(dialect: &Native, request: &Request<'_>, carried: Carried) -> Outcome {
    let (value, sent) = carried?;
    // The scripts write nothing before they report an error.
    let refused = matches!(value, Value::ServerError(_));
    match dialect.read(request, value) {
        Ok(reply) => Ok(Answer { reply, sent, server: 0 }),
        Err(error) if refused => Err(Failure::not_done(error)),
        Err(error) => Err(Failure::unknown(error, sent)),
    }
}

impl Gives for Native {
    fn pack(&self, gives: &[Request<'_>]) -> Batch {
        Native::pack(self, gives)
    }

    fn read(&self, give: &Request<'_>, carried: Carried) -> Outcome {
        outcome(self, give, carried)
    }
}

impl Store for RedisStore {
    fn run(&self, lane: Lane, requests: &[Request<'_>], deadline: Deadline) -> Vec<Outcome> {
        let (batch, about) = (self.dialect.pack(requests), About::Requests(requests));
        let carried = self.route.carry(lane, &batch, about, deadline);
        let both = requests.iter().zip(carried);
        both.map(|(request, carried)| outcome(&self.dialect, request, carried)).collect()
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
        let (batch, about) = (self.dialect.pack_look(name), About::Name(name));
        let mut carried = self.route.carry(Lane::Caller, &batch, about, deadline);
        match carried.pop() {
            Some(Ok((value, _))) => self.dialect.read_look(value),
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
}
