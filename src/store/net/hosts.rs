//! Several hosts, of which one is the primary: found by trying.

use std::sync::atomic::{AtomicUsize, Ordering};
#[cfg(any(feature = "mysql", feature = "postgres"))]
use std::time::Duration;

use super::next_server;
use crate::clock::Deadline;
#[cfg(any(feature = "mysql", feature = "postgres"))]
use crate::clock::Moment;
use crate::config::Address;
use crate::error::{Error, ErrorKind};
use crate::store::ServerId;

pub(in crate::store) struct Hosts {
    all: Vec<(Address, ServerId)>,
    /// The one that was the primary when a connection was last made.
    primary: AtomicUsize,
}

const NO_PRIMARY: &str = "none of the hosts is the primary now";

impl Hosts {
    pub(in crate::store) fn new(addresses: &[Address]) -> Hosts {
        let all = addresses.iter().map(|address| (address.clone(), next_server())).collect();
        Hosts { all, primary: AtomicUsize::new(0) }
    }

    /// Whether another server may take this one's place.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(in crate::store) fn may_move(&self) -> bool {
        self.all.len() > 1
    }

    /// The next dial begins with another one: this one is silent.
    #[cfg(feature = "zookeeper")]
    pub(in crate::store) fn leave(&self) {
        self.primary.fetch_add(1, Ordering::Relaxed);
    }

    /// The same, however many connections tell of this one, if it is certain enough: a request that had
    /// little time says nothing.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(in crate::store) fn leave_silent(
        &self,
        silent: ServerId,
        since: Moment,
        io_timeout: Duration,
    ) {
        if Moment::now().since(since) < io_timeout / 2 {
            return;
        }
        if let Some(at) = self.all.iter().position(|(_, server)| *server == silent) {
            let next = (at + 1) % self.all.len();
            let _ = self.primary.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// A connection to the first that lets itself be dialed, beginning with the last primary.
    pub(in crate::store) fn dial<L>(
        &self,
        deadline: Deadline,
        dial: impl Fn(&Address, ServerId, Deadline) -> Result<L, Error>,
    ) -> Result<L, Error> {
        let (count, first) = (self.all.len(), self.primary.load(Ordering::Relaxed));
        let mut failed: Option<Error> = None;
        for tried in 0..count {
            let index = (first + tried) % count;
            let (address, server) = &self.all[index];
            // One that swallows everything must leave time for the others.
            match dial(address, *server, deadline.share(count - tried)) {
                Ok(line) => {
                    self.primary.store(index, Ordering::Relaxed);
                    return Ok(line);
                }
                // One that can be mended, or is full, tells more than one that is a replica, or is down.
                Err(error)
                    if failed.as_ref().is_none_or(|failed| {
                        failed.is_retriable() && failed.kind() != ErrorKind::Exhausted
                    }) =>
                {
                    failed = Some(match error.kind() {
                        // Of several servers one is about to be the primary.
                        ErrorKind::ReadOnly if count > 1 => {
                            Error::new(ErrorKind::Unavailable, NO_PRIMARY)
                        }
                        _ => error,
                    });
                }
                Err(_) => {}
            }
        }
        Err(failed.unwrap_or_else(|| Error::bare(ErrorKind::Refused)))
    }
}
