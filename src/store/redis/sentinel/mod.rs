//! A master that Sentinels watch over, and replace when it fails.
//!
//! Where it is is asked once and remembered. It is asked again when something is in doubt: a
//! connection broke, or the server said that it is no master. And the Sentinel that was asked goes
//! on telling: its connection stays, subscribed to the news of a new master, and whoever sends or
//! listens glances at it now and then. So a master that fell silent without a word is left as soon
//! as there is another one, and not when time has run out.

mod circle;
mod inquiry;
#[cfg(test)]
mod tests;
mod watch;

use std::cell::Cell;
use std::io;
use std::time::Duration;

use self::circle::Circle;
use self::inquiry::Found;
use self::watch::Watch;
use super::dial::{Dialer, Greeting, Show};
use super::target::{Target, next_server};
use super::wire::Wire;
use crate::clock::{Deadline, Moment};
use crate::config::{Access, Address, SentinelConfig};
use crate::error::{Error, ErrorKind};
use crate::store::ServerId;
use crate::sync::{Mutex, MutexGuard, Turnstile};

/// How often the news are glanced at, at most: a system call.
pub(super) const GLANCE: Duration = Duration::from_millis(250);
/// How often a listener who hears no news asks for a Sentinel that tells them.
const SEARCH: Duration = Duration::from_secs(1);
/// For how long, at most: nobody listens meanwhile.
const PATIENCE: Duration = Duration::from_millis(500);
/// Between two tries to reach a master that does not serve.
const PAUSE: Duration = Duration::from_millis(50);
/// A try to reach one is not cut shorter than this.
const LEAST: Duration = Duration::from_millis(100);

pub(super) struct Sentinel {
    masters: Dialer,
    /// One thread asks them at a time.
    circle: Turnstile<Circle>,
    /// What the circle is asked about.
    name: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: Option<Master>,
    /// Before the next connection is made, the Sentinels are asked.
    doubted: bool,
    /// The newest configuration that was told of, by its number; an older one is not believed.
    epoch: u64,
    /// When the Sentinels last answered.
    answered: Moment,
    watch: Option<Watch>,
    glanced: Moment,
    searched: Moment,
}

#[derive(Clone)]
struct Master {
    address: Address,
    server: ServerId,
}

impl Sentinel {
    pub(super) fn new(
        config: &SentinelConfig,
        access: &Access,
        greeting: Greeting,
    ) -> Result<Sentinel, Error> {
        let masters = Dialer::new(access, Greeting { master: true, ..greeting })?;
        Ok(Sentinel {
            masters,
            circle: Turnstile::new(Circle::new(config)?),
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
        let mut circle = self.circle.enter(deadline).ok_or_else(late)?;
        if let Some(master) = trusted() {
            return Ok(master);
        }
        let (known, epoch) = self.last_told();
        match circle.ask(epoch, false, deadline, show) {
            Ok(found) => Ok(self.learn(found, epoch)),
            Err(error) if error.kind() == ErrorKind::Exhausted => Err(error),
            // Whether the one that is known is still a master, it says itself; what is wrong with
            // the Sentinels that can be reached does not concern it.
            Err(error) => {
                let master = known.ok_or_else(|| error.clone())?;
                log::debug!(
                    "the master '{}' is that at {} still: {error}",
                    self.name,
                    master.address
                );
                Ok(master)
            }
        }
    }

    fn last_told(&self) -> (Option<Master>, u64) {
        let state = self.state.lock();
        (state.known.clone(), state.epoch)
    }

    /// What the Sentinels told when this was the newest configuration.
    fn learn(&self, found: Found, epoch: u64) -> Master {
        let mut state = self.state.lock();
        state.answered = Moment::now();
        state.watch = found.watch;
        let news = found.epoch.is_some_and(|told| told < state.epoch) && state.epoch > epoch;
        match &state.known {
            // Others have heard of it meanwhile.
            Some(known) if news => known.clone(),
            _ => {
                state.epoch = found.epoch.unwrap_or(state.epoch);
                state.adopt(found.address)
            }
        }
    }

    /// A connection to it, and what is wrong with it if it says itself that it is no master.
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
        wire.map_err(|error| {
            let Master { address, .. } = master;
            let detail = format!("the master '{}' at {address}: {}", self.name, error.detail());
            Error::new(error.kind(), detail)
        })
    }

    fn up_to_date(&self) -> MutexGuard<'_, State> {
        let (mut state, now) = (self.state.lock(), Moment::now());
        if now.since(state.glanced) >= GLANCE {
            state.glance(&self.name, now);
        }
        state
    }

    /// Whoever has nothing to listen to asks who else tells the news.
    fn search(&self, deadline: Deadline) {
        // Whoever is asking already will find one.
        let Some(mut circle) = self.circle.enter_now() else { return };
        let (_, epoch) = self.last_told();
        let asked = circle.ask(epoch, true, deadline, &|_| Ok(()));
        drop(circle);
        match asked {
            Ok(found) => drop(self.learn(found, epoch)),
            Err(error) => log::debug!("nobody tells when there is a new master: {error}"),
        }
    }
}

impl State {
    /// This is the master now.
    fn adopt(&mut self, address: Address) -> Master {
        if let Some(known) = self.known.as_ref().filter(|known| known.address == address) {
            return known.clone();
        }
        let master = Master { address, server: next_server() };
        self.known = Some(master.clone());
        self.doubted = false;
        master
    }

    /// Hears what there is to hear without waiting for it.
    fn glance(&mut self, name: &str, now: Moment) {
        self.glanced = now;
        let Some(watch) = &mut self.watch else { return };
        match watch.news(name) {
            Ok(None) => {}
            Ok(Some(address)) => {
                // Each failover is one further at least. What was asked for in the midst of it was told
                // by then, and counted.
                if self.known.as_ref().is_none_or(|known| known.address != address) {
                    self.epoch += 1;
                }
                self.adopt(address);
            }
            // Another one is asked by whoever listens, or needs a connection.
            Err(_) => self.watch = None,
        }
    }

    fn is_at(&self, wire: &Wire) -> bool {
        self.known.as_ref().is_some_and(|known| known.server == wire.server)
    }
}

impl Target for Sentinel {
    fn dial(&self, deadline: Deadline, show: &Show<'_>) -> Result<Wire, Error> {
        let unwanted = Cell::new(false);
        let show = |socket: &socket2::Socket| -> io::Result<()> {
            show(socket).inspect_err(|_| unwanted.set(true))
        };
        loop {
            let master = self.find(deadline, &show)?;
            let error = match self.reach(&master, deadline, &show) {
                Ok(wire) => return Ok(wire),
                Err(error) => error,
            };
            if unwanted.get() || !is_passing(&error) || deadline.left() < 2 * PAUSE {
                return Err(error);
            }
            std::thread::sleep(PAUSE);
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

    fn doubt(&self, wire: &Wire) {
        let mut state = self.state.lock();
        state.doubted |= state.is_at(wire);
    }

    fn keep_watch(&self, until: Moment) -> Moment {
        let mut state = self.state.lock();
        let now = Moment::now();
        state.glance(&self.name, now);
        state.watch.take_if(|watch| watch.keep(now).is_err());
        let by = until.min(now.plus(PATIENCE));
        if state.watch.is_none() && now.since(state.searched) >= SEARCH && by > now.plus(PAUSE) {
            state.searched = now;
            drop(state);
            self.search(Deadline::at(by));
            // While Sentinels cannot be reached, whoever asks for them does not hear the server that
            // he listens to: most of the time is for that.
            let took = Moment::now().since(now);
            self.state.lock().searched = Moment::now().plus(took * 8);
        }
        Moment::now().plus(GLANCE)
    }
}

/// What may be over in a moment, or be better elsewhere.
fn is_passing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Refused | ErrorKind::NoAnswer | ErrorKind::Unavailable)
}
