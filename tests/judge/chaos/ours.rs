//! The quorum of this library.

use std::time::Duration;

use leasehold::{Client, Lease, Lock};

use super::crew::Scheme;
use super::{NAME, ms};
use kit::Dice;

/// No node grants for this long after it lost data; no ttl is longer.
pub const MAX_TTL: Duration = Duration::from_secs(2);
pub const TTL: Duration = ms(500);

pub fn url(ports: &[u16]) -> String {
    let nodes: Vec<_> = ports.iter().map(|port| format!("redis://127.0.0.1:{port}")).collect();
    // A quorum then waits for one of its servers for NODE_TIMEOUT.
    format!("{}?max_ttl={}ms&io_timeout=300ms", nodes.join(","), MAX_TTL.as_millis())
}

pub struct Ours {
    lock: Lock,
    lease: Option<Lease>,
}

impl Ours {
    pub fn new(client: &Client, renew: bool) -> Ours {
        Ours { lock: client.lock(NAME).ttl(TTL).renew(renew), lease: None }
    }
}

impl Scheme for Ours {
    fn acquire(&mut self, wait: Duration) -> Option<u64> {
        match self.lock.acquire_within(wait) {
            Ok(lease) => self.lease = Some(lease),
            Err(error) => assert!(error.is_retriable(), "{error}"),
        }
        self.lease.as_ref().map(Lease::fence)
    }

    fn is_valid(&self) -> bool {
        self.lease.as_ref().is_some_and(Lease::is_valid)
    }

    fn extend(&mut self) {
        if let Some(lease) = &self.lease {
            let _ = lease.extend();
        }
    }

    fn release(&mut self, dice: &mut Dice) {
        match dice.below(32) {
            0 => drop(self.lease.take().map(Lease::let_expire)),
            1..10 => drop(self.lease.take()),
            _ => drop(self.lease.take().map(Lease::release)),
        }
    }

    fn ttl(&self) -> Duration {
        TTL
    }

    fn held_long_once_in(&self) -> u64 {
        6
    }
}
