//! Which server a new connection goes to: always the same, or the master of the moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::dial::Dialer;
use super::wire::Wire;
use crate::clock::{Deadline, Moment};
use crate::config::{Address, Login};
use crate::error::Error;
use crate::store::ServerId;
use crate::store::net::dial::Show;

pub(super) trait ServerSource: Send + Sync {
    /// A connection that is ready for scripts. Nothing of a request has been sent when it fails.
    ///
    /// It shows each socket before it connects. A thread that keeps a clone of the socket can end
    /// everything that is done with it; an error means that the connection is not wanted any more.
    fn dial(&self, deadline: Deadline, show: &Show<'_>) -> Result<Wire, Error>;

    /// Whether another server may take this one's place.
    fn may_move(&self) -> bool {
        false
    }

    /// Whether it is a server of a Cluster, which may pass its slots on.
    fn has_slots(&self) -> bool {
        false
    }

    /// Whether a new connection would lead where this one does, as far as is known.
    fn is_current(&self, _wire: &Wire) -> bool {
        true
    }

    /// The same, and nothing is in doubt: a request may go out without asking where to.
    fn is_trusted(&self, wire: &Wire) -> bool {
        self.is_current(wire)
    }

    /// The server at the other end does not serve as it should: before the next connection is made,
    /// its address is asked for again.
    fn doubt(&self, _wire: &Wire) {}

    /// Newer credentials than those that a connection logged in with, and the words by which it logs in
    /// with them.
    fn newer(&self, _wire: &Wire) -> Option<(Arc<Login>, Vec<u8>)> {
        None
    }

    /// The server did not accept them.
    fn refused(&self, _login: &Arc<Login>) {}

    /// Called by the thread that listens, which sees by [`is_current`](ServerSource::is_current) whether
    /// there was news. Tells when to call again; returns by `until`.
    fn keep_watch(&self, _until: Moment) -> Moment {
        Moment::NEVER
    }
}

pub(super) struct FixedServer {
    pub(super) dialer: Arc<Dialer>,
    pub(super) address: Address,
    pub(super) server: ServerId,
    /// Where a Cluster says that there is one: set when it does not serve as it should.
    pub(super) doubt: Option<Arc<AtomicBool>>,
}

impl ServerSource for FixedServer {
    fn dial(&self, deadline: Deadline, show: &Show<'_>) -> Result<Wire, Error> {
        let FixedServer { dialer, address, server, doubt } = self;
        let dialed = dialer.dial(address, *server, deadline, show);
        let Some(doubt) = doubt else { return dialed };
        dialed.map_err(|error| {
            doubt.store(true, Ordering::Release);
            error.at(format_args!("{address}, a server that the Cluster names"))
        })
    }

    fn has_slots(&self) -> bool {
        self.doubt.is_some()
    }

    fn newer(&self, wire: &Wire) -> Option<(Arc<Login>, Vec<u8>)> {
        self.dialer.newer(wire)
    }

    fn refused(&self, login: &Arc<Login>) {
        self.dialer.refused(login);
    }

    fn doubt(&self, _wire: &Wire) {
        if let Some(doubt) = &self.doubt {
            doubt.store(true, Ordering::Release);
        }
    }
}

/// One that keeps no locks.
pub(super) const NO_SERVER: ServerId = ServerId(u32::MAX);
