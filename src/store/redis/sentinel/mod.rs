//! A master that Sentinels watch over, and replace when it fails.
//!
//! Its address is asked again when something is in doubt: a connection broke, or the server said
//! that it is no master. The connection to the Sentinel that answered stays, subscribed to the news of
//! a new master, and every thread that sends or listens looks at it now and then: a master that fell
//! silent is left as soon as there is another one.

mod news;
mod sentinels;
#[cfg(test)]
#[cfg(kit)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use self::news::News;
use self::sentinels::{Answer, Sentinels};
use super::dial::{Dialer, Greeting};
use super::server_source::ServerSource;
use super::wire::Wire;
use crate::clock::{Deadline, Moment};
use crate::config::{Access, Address, Login, SentinelConfig};
use crate::error::{Error, ErrorKind};
use crate::said::say;
use crate::store::ServerId;
use crate::store::net::dial::Show;
use crate::store::net::next_server;
use crate::sync::{Mutex, MutexGuard, Turnstile};

/// How often the news are read, at most: a system call.
pub(super) const NEWS_EVERY: Duration = Duration::from_millis(250);
const SEARCH_EVERY: Duration = Duration::from_secs(1);
/// For how long, at most: nobody listens meanwhile.
const SEARCH: Duration = Duration::from_millis(500);
/// Between two tries to reach a master that does not serve.
const PAUSE: Duration = Duration::from_millis(50);
/// A try to reach one is not cut shorter than this.
const LEAST: Duration = Duration::from_millis(100);

pub(super) struct WatchedMaster {
    masters: Dialer,
    /// One thread asks them at a time.
    sentinels: Turnstile<Sentinels>,
    name: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: Option<Master>,
    /// That to which the last connection was made.
    reached: Option<ServerId>,
    doubted: bool,
    /// The number of the newest configuration; an older one is not believed.
    epoch: u64,
    answered: Moment,
    news: Option<News>,
    read: Moment,
    /// When a Sentinel that tells news was last looked for.
    searched: Moment,
}

#[derive(Clone)]
struct Master {
    address: Address,
    server: ServerId,
}

impl WatchedMaster {
    pub(super) fn new(
        config: &SentinelConfig,
        access: &Access,
        greeting: Greeting,
    ) -> Result<WatchedMaster, Error> {
        let masters = Dialer::new(access, Greeting { master: true, ..greeting }, &[])?;
        Ok(WatchedMaster {
            masters,
            sentinels: Turnstile::new(Sentinels::new(config)?),
            name: config.master.clone(),
            state: Mutex::default(),
        })
    }

    /// The master, as last told; asked again if anything is in doubt.
    fn find(&self, deadline: Deadline, show: &Show<'_>) -> Result<Master, Error> {
        let began = Moment::now();
        let trusted = || {
            let state = self.state.lock();
            let is_fresh = !state.doubted || state.answered > began;
            state.known.clone().filter(|_| is_fresh)
        };
        if let Some(master) = trusted() {
            return Ok(master);
        }
        let late = || Error::new(ErrorKind::NoAnswer, "the Sentinels are still being asked");
        let mut sentinels = self.sentinels.enter(deadline).ok_or_else(late)?;
        if let Some(master) = trusted() {
            return Ok(master);
        }
        let state = self.state.lock();
        let (known, epoch) = (state.known.clone(), state.epoch);
        drop(state);
        match sentinels.ask(epoch, false, deadline, show) {
            Ok(answer) => Ok(self.learn(answer, epoch)),
            Err(error) if error.kind() == ErrorKind::Exhausted => Err(error),
            // The known master itself says whether it still is one; what is wrong with the
            // Sentinels does not concern it.
            Err(error) => {
                let master = known.ok_or_else(|| error.clone())?;
                let address = master.address.to_string();
                say!(Debug, "master-kept", group = &*self.name, address = &*address, error = error);
                Ok(master)
            }
        }
    }

    /// Takes in an answer to a question that was asked when `epoch` was the newest configuration.
    fn learn(&self, answer: Answer, epoch: u64) -> Master {
        let mut state = self.state.lock();
        state.answered = Moment::now();
        state.news = answer.news;
        let is_old = answer.epoch.is_some_and(|told| told < state.epoch) && state.epoch > epoch;
        match &state.known {
            // News of a later one have come since the question.
            Some(known) if is_old => known.clone(),
            _ => {
                state.epoch = answer.epoch.unwrap_or(state.epoch);
                state.adopt(answer.master)
            }
        }
    }

    /// A connection to it; an error if it says itself that it is no master.
    fn reach(&self, master: &Master, deadline: Deadline, show: &Show<'_>) -> Result<Wire, Error> {
        // If it is silent, there must be time for another one.
        let share = Deadline::after((deadline.left() / 2).max(LEAST)).min(deadline);
        let wire = self.masters.dial(&master.address, master.server, share, show);
        let mut state = self.state.lock();
        let is_known = state.known.as_ref().is_some_and(|known| known.server == master.server);
        match &wire {
            Err(error) if error.kind() == ErrorKind::Exhausted => {}
            wire if is_known => state.doubted = wire.is_err(),
            _ => {}
        }
        let reached = wire.as_ref().ok().map(|_| master.server);
        let before = reached.and_then(|server| state.reached.replace(server));
        drop(state);
        if before.is_some_and(|before| before != master.server) {
            let address = master.address.to_string();
            say!(Info, "master-changed", group = &*self.name, address = &*address);
        }
        wire.map_err(|error| {
            error.at(format_args!("the master '{}' at {}", self.name, master.address))
        })
    }

    fn up_to_date(&self) -> MutexGuard<'_, State> {
        let (mut state, now) = (self.state.lock(), Moment::now());
        if now.since(state.read) >= NEWS_EVERY {
            state.read_news(&self.name, now);
        }
        state
    }

    /// Looks for a Sentinel that tells news, unless another thread is asking already.
    fn search(&self, deadline: Deadline) {
        let Some(mut sentinels) = self.sentinels.enter_now() else { return };
        let epoch = self.state.lock().epoch;
        let asked = sentinels.ask(epoch, true, deadline, &|_| Ok(()));
        drop(sentinels);
        match asked {
            Ok(answer) => drop(self.learn(answer, epoch)),
            Err(error) => say!(Debug, "master-untold", error = error),
        }
    }
}

impl State {
    fn adopt(&mut self, address: Address) -> Master {
        if let Some(known) = self.known.as_ref().filter(|known| known.address == address) {
            return known.clone();
        }
        let master = Master { address, server: next_server() };
        self.known = Some(master.clone());
        self.doubted = false;
        master
    }

    fn read_news(&mut self, name: &str, now: Moment) {
        self.read = now;
        let Some(news) = &mut self.news else { return };
        match news.read(name) {
            Ok(None) => {}
            Ok(Some(address)) => {
                // Each failover makes the number larger by one at least. If the master is the known
                // one, an answer has told it, with its number.
                if self.known.as_ref().is_none_or(|known| known.address != address) {
                    self.epoch += 1;
                }
                self.adopt(address);
            }
            // The next thread that listens, or needs a connection, asks another Sentinel.
            Err(_) => self.news = None,
        }
    }

    fn is_at(&self, wire: &Wire) -> bool {
        self.known.as_ref().is_some_and(|known| known.server == wire.server)
    }
}

impl ServerSource for WatchedMaster {
    fn dial(&self, deadline: Deadline, show: &Show<'_>) -> Result<Wire, Error> {
        loop {
            let master = self.find(deadline, show)?;
            match self.reach(&master, deadline, show) {
                Err(error) if is_passing(&error) && deadline.left() >= 2 * PAUSE => {
                    std::thread::sleep(PAUSE);
                }
                reached => return reached,
            }
        }
    }

    fn may_move(&self) -> bool {
        true
    }

    fn is_current(&self, wire: &Wire) -> bool {
        self.up_to_date().is_at(wire)
    }

    fn is_trusted(&self, wire: &Wire) -> bool {
        let state = self.up_to_date();
        state.is_at(wire) && !state.doubted
    }

    fn newer(&self, wire: &Wire) -> Option<(Arc<Login>, Vec<u8>)> {
        self.masters.newer(wire)
    }

    fn refused(&self, login: &Arc<Login>) {
        self.masters.refused(login);
    }

    fn doubt(&self, wire: &Wire) {
        let mut state = self.state.lock();
        state.doubted |= state.is_at(wire);
    }

    fn keep_watch(&self, until: Moment) -> Moment {
        let mut state = self.state.lock();
        let now = Moment::now();
        state.read_news(&self.name, now);
        state.news.take_if(|news| !news.is_alive(now));
        let by = until.min(now.plus(SEARCH));
        let is_due = now.since(state.searched) >= SEARCH_EVERY && by > now.plus(PAUSE);
        if state.news.is_none() && is_due {
            state.searched = now;
            drop(state);
            self.search(Deadline::at(by));
            // Meanwhile it does not hear the server that it listens to, which has most of the time.
            let took = Moment::now().since(now);
            self.state.lock().searched = Moment::now().plus(took * 8);
        }
        Moment::now().plus(NEWS_EVERY)
    }
}

/// What may be over in a moment, or be better elsewhere.
fn is_passing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Refused | ErrorKind::NoAnswer | ErrorKind::Unavailable)
}
