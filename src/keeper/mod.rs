//! The keeper: one thread a client, which renews grants and finishes what calls left undone.
//!
//! The thread never has its book locked while it talks to the store. It is woken only for something
//! that falls due before it would look by itself. While leases come and go it looks so often that
//! no cycle of acquire and release has to wake it.

mod book;
mod core;
mod gauges;
mod losing;
mod others;
mod register;
mod thread;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, fence};
use std::time::Duration;

pub(crate) use self::core::Core;
#[cfg(feature = "testing")]
pub(crate) use self::others::renew_now;
pub(crate) use self::others::{held_by, held_in_client};
#[cfg(all(test, feature = "testing"))]
pub(crate) use self::thread::lose_all;
use crate::clock::Deadline;
use crate::config::Config;
use crate::error::{Error, ErrorKind};
use crate::fork::{self, Owned, PerProcess};
pub(crate) use crate::store::Owed;
use crate::store::Store;
use crate::store::outbox::Outbox;
use crate::sync::Mutex;
use crate::system::Thread;
use crate::token::ClientId;

/// What a client and its locks share: a keeper in each process that may use them.
pub(crate) struct Keepers {
    pub(crate) config: Config,
    open: fn(&Config) -> Result<Keeper, Error>,
    of_process: PerProcess<Arc<Keeper>>,
    reopens: AtomicBool,
    closed: AtomicBool,
}

impl Keepers {
    /// Made with the keeper of this process; `open` is how a forked child opens its own.
    pub(crate) fn new(keeper: Keeper, open: fn(&Config) -> Result<Keeper, Error>) -> Keepers {
        let (config, of_process) = (keeper.config().clone(), PerProcess::new(Arc::new(keeper)));
        let (reopens, closed) = (AtomicBool::new(false), AtomicBool::new(false));
        Keepers { config, open, of_process, reopens, closed }
    }

    /// The keeper of this process. A forked child opens the store for its own, if the client says
    /// so.
    pub(crate) fn here(&self) -> Result<&Arc<Keeper>, Error> {
        let made = Cell::new(false);
        let keeper = self.of_process.get_or_make(|| {
            if !self.reopens() {
                return Err(Error::bare(ErrorKind::Forked));
            }
            if self.closed.load(Relaxed) {
                return Err(Error::bare(ErrorKind::Closed));
            }
            made.set(true);
            (self.open)(&self.config).map(Arc::new)
        })?;
        if made.get() {
            // A thread that closed the client meanwhile may not have seen this one yet.
            fence(SeqCst);
            if self.closed.load(Relaxed) {
                keeper.close(Duration::ZERO)?;
            }
        }
        Ok(keeper)
    }

    /// The keeper of this process, if it was opened.
    pub(crate) fn opened(&self) -> Option<&Keeper> {
        self.of_process.get().map(|keeper| &**keeper)
    }

    pub(crate) fn reopen_after_fork(&self) {
        #[cfg(any(feature = "capi", feature = "sqlite"))]
        fork::keep_steady();
        self.reopens.store(true, Relaxed);
    }

    pub(crate) fn reopens(&self) -> bool {
        self.reopens.load(Relaxed)
    }

    /// As [`Keeper::close`]. A keeper that this process has not opened is not opened any more.
    pub(crate) fn close(&self, timeout: Duration) -> Result<(), Error> {
        if self.opened().is_none() && !self.reopens() {
            return Err(Error::bare(ErrorKind::Forked));
        }
        self.closed.store(true, Relaxed);
        fence(SeqCst); // As in `here`.
        self.opened().map_or(Ok(()), |keeper| keeper.close(timeout))
    }
}

/// What the locks and leases of a client share in one process. Dropping the last of them lets the thread go.
pub(crate) struct Keeper {
    inside: Owned<Inside>,
}

struct Inside {
    core: Arc<Core>,
    thread: Mutex<Option<Thread>>,
}

impl Keeper {
    pub(crate) fn start(
        store: Box<dyn Store>,
        outbox: Arc<Outbox>,
        config: Config,
    ) -> Result<Keeper, Error> {
        let core = Arc::new(Core::new(store, outbox, config)?);
        others::add(&core);
        let thread = Thread::start(c"leasehold", {
            let core = Arc::clone(&core);
            move || {
                thread::run(&core);
                // What was to be released has needed them.
                core.config.close_keyrings();
            }
        });
        let thread = thread.map_err(|error| {
            Error::new(ErrorKind::Exhausted, format!("the keeper's thread: {error}"))
        })?;
        let inside = Inside { core, thread: Mutex::new(Some(thread)) };
        Ok(Keeper { inside: Owned::new(inside) })
    }

    /// The shared core, if this process may use it: asked first in every call, before any mutex.
    pub(crate) fn core(&self) -> Result<&Core, Error> {
        self.inside.birth.check()?;
        if self.inside.core.room.is_closed() {
            return Err(Error::bare(ErrorKind::Closed));
        }
        Ok(&self.inside.core)
    }

    /// The same for a client that may be closed: for counters, and for the end of a lease.
    pub(crate) fn core_even_closed(&self) -> Result<&Core, Error> {
        self.inside.birth.check()?;
        Ok(&self.inside.core)
    }

    /// Each token that is drawn here begins with this.
    pub(crate) fn client(&self) -> ClientId {
        self.inside.core.client
    }

    pub(crate) fn is_here(&self) -> bool {
        self.inside.birth.is_here()
    }

    pub(crate) fn config(&self) -> &Config {
        &self.inside.core.config
    }

    /// Closes in order: waiters are woken, every lease becomes invalid and is released until the
    /// deadline, the threads are joined. A second call waits for the first.
    pub(crate) fn close(&self, timeout: Duration) -> Result<(), Error> {
        self.inside.birth.check()?;
        let deadline = Deadline::after(timeout);
        self.inside.core.shut(deadline);
        // A logger that closes the client may run on this very thread, or on that of another
        // client, whose logger closes this one. Such threads join neither themselves nor each
        // other.
        if fork::is_ours() {
            return Ok(());
        }
        if let Some(thread) = self.inside.thread.lock().take() {
            thread.join();
            self.inside.core.room.crew.join();
        }
        // A program may close once more, to wait longer for its callback.
        self.inside.core.config.join_keyrings(deadline);
        Ok(())
    }
}

impl Drop for Inside {
    /// The thread finishes what is owed, within the close timeout. Dropping a client does not wait
    /// for it, since a drop does no I/O.
    fn drop(&mut self) {
        self.core.shut(Deadline::after(self.core.config.close_timeout));
    }
}
