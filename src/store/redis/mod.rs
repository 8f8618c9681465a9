//! The Redis store: the only room that names the `redis` and `r2d2` crates.
//!
//! [`dialect`] knows how locks are written, [`route`] brings what it packed to a server, and
//! between them stands this.

mod dial;
mod dialect;
mod fault;
mod frame;
mod pool;
mod route;
mod shelf;
#[cfg(feature = "tls")]
mod tls;
mod wire;

use std::time::Duration;

use redis::Value;

#[cfg(test)]
pub(crate) use self::dialect::native::model;
use self::dialect::native::{Ear, Native};
use self::route::single::Single;
use super::{Abilities, Answer, Failure, Lane, Look, Outcome, Request, Store};
use crate::clock::Deadline;
use crate::config::{Config, RedisConfig};
use crate::error::Error;

/// A client that cannot be told anything.
const DEAF: Ear<'_> = Ear { channel: b"", is_open: false };

/// Locks on one Redis server.
pub(crate) struct RedisStore {
    dialect: Native,
    route: Single,
}

impl RedisStore {
    pub(crate) fn new(redis: &RedisConfig, config: &Config) -> Result<RedisStore, Error> {
        Ok(RedisStore {
            dialect: Native::new(&config.prefix, config.claim_window),
            route: Single::new(redis, config.pool)?,
        })
    }
}

impl Store for RedisStore {
    fn run(&self, lane: Lane, requests: &[Request<'_>], deadline: Deadline) -> Vec<Outcome> {
        let carried = self.route.carry(lane, &self.dialect.pack(requests, DEAF), deadline);
        let outcome = |(request, carried): (&Request<'_>, _)| {
            let (value, sent) = carried?;
            // A take that reports an error has not taken the lock, and the others are refused
            // before they write.
            let refused = matches!(value, Value::ServerError(_));
            match self.dialect.read(request, value) {
                Ok((reply, server)) => Ok(Answer { reply, sent, server }),
                Err(error) if refused => Err(Failure::not_done(error)),
                Err(error) => Err(Failure::unknown(error, sent)),
            }
        };
        requests.iter().zip(carried).map(outcome).collect()
    }

    fn look(&self, name: &[u8], deadline: Deadline) -> Result<Look, Error> {
        let mut carried = self.route.carry(Lane::Caller, &self.dialect.pack_look(name), deadline);
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
