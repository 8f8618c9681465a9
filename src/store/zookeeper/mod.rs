//! The ZooKeeper store: a node for each name that is taken, and one session for a client. What stands
//! where is in [`names`]; what its promises rest on is in `docs/protocol.md`.

mod admin;
mod clients;
mod clock;
mod dial;
#[cfg(feature = "examine")]
pub(crate) mod examine;
mod fault;
mod free_in;
mod jute;
mod line;
mod listener;
mod names;
mod requests;
mod session;
mod step;
mod take;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use self::clock::Clock;
use self::dial::Dialer;
use self::jute::Ask;
use self::names::Queued;
use self::session::Session;
use self::step::{HolderNode, Node, Step};
use crate::clock::{Deadline, Moment};
use crate::config::{Config, ZookeeperConfig};
use crate::error::{Error, ErrorKind};
use crate::store::{Abilities, By, Failure, Lane, Listener, Outcome, Request, Store};
use crate::sync::Mutex;
use crate::token::Token;

/// So often the session is looked after, in case that nothing is asked: a third of the shortest that
/// servers give by default is a little more.
const KEEP_EVERY: Duration = Duration::from_secs(1);
/// Of more grants, or names, than these it is not known what they were last seen to be.
const MOST_KNOWN: usize = 1 << 17;

pub(crate) struct ZookeeperStore {
    session: Session,
    prefix: Vec<u8>,
    claim_window: Duration,
    clock: Mutex<Clock>,
    known: Mutex<HashMap<Token, Known>>,
    /// Names that were seen taken, by their hashes: to begin with making them would be in vain. With the
    /// holder that a waiter saw last.
    crowded: Mutex<HashMap<u64, Option<Token>>>,
    /// For which name a token waits.
    waiting: Mutex<HashMap<Token, Waiting>>,
    /// The holders of names that this client waits for, as it last saw them.
    sights: Mutex<HashMap<u64, Sight>>,
    ears: Mutex<listener::Ears>,
    /// Counts gives, from anywhere: many programs give only once.
    gives: AtomicU32,
}

/// A token that waits.
struct Waiting {
    name: Vec<u8>,
    /// The node that is its place, once there is one.
    place: Option<String>,
}

/// A holder's node as its client has last changed it.
#[derive(Clone, Copy)]
struct Sight {
    holder: Token,
    made: i64,
    version: i32,
    /// Since when this client has seen it so.
    since: Moment,
}

/// A grant of this client, as it last saw it.
#[derive(Clone)]
struct Known {
    fence: u64,
    /// Of its holder's node.
    version: i32,
    /// In milliseconds, from the last change of it.
    ttl: u64,
    /// It was passed on by another token: its fence stands in the node.
    is_passed: bool,
    /// Who was last seen to stand first behind it. It still does, or has gone, unless somebody took an
    /// older place anew.
    heir: Option<Box<Queued>>,
    /// Who gives it later looks first who waits. It was held for so long beside what its take took that a look
    /// adds little, and more is lost by a change that is refused since somebody has come.
    looks_from: Moment,
}

impl ZookeeperStore {
    pub(crate) fn new(config: &ZookeeperConfig, all: &Config) -> Result<ZookeeperStore, Error> {
        let session = Session::new(Dialer::new(config, true)?, all.io_timeout)?;
        let (known, crowded, waiting, sights, ears) = Default::default();
        Ok(ZookeeperStore {
            session,
            prefix: all.prefix.clone(),
            claim_window: all.claim_window,
            clock: Mutex::new(Clock::new()),
            known,
            crowded,
            waiting,
            sights,
            ears,
            gives: AtomicU32::new(Token::random()?.seed() as u32),
        })
    }

    fn node(&self, name: &[u8]) -> Node {
        let key = [&self.prefix, name].concat();
        let (folder, name) = names::place(&key);
        let folder = format!("{}/{folder}", self.session.dialer.root);
        // A node that is cut says what it stands for.
        let data = if name.contains('~') { key } else { Vec::new() };
        Node { path: format!("{folder}/{name}"), folder, data }
    }

    fn step(&self, by: impl Into<By>) -> Step<'_> {
        Step { store: self, by: by.into(), wrote: None, shown: None, is_sure: false }
    }

    /// For how long this client has seen that a holder's node was changed by nobody but those who dated it.
    fn seen_for(&self, name: &[u8], holder: Token, held: &HolderNode) -> Duration {
        let (now, mut sights) = (Moment::now(), self.sights.lock());
        if sights.len() >= MOST_KNOWN {
            sights.clear();
        }
        let new = Sight { holder, made: held.stat.made, version: held.version, since: now };
        let sight = sights.entry(hash(name)).or_insert(new);
        if (sight.holder, sight.made, sight.version) != (new.holder, new.made, new.version) {
            *sight = new;
        }
        now.since(sight.since)
    }

    /// The node that is a waiter's place in the queue of a name.
    fn place_in(&self, name: &[u8]) -> Option<String> {
        let waiting = self.waiting.lock();
        waiting.values().find(|one| one.name == name).and_then(|one| one.place.clone())
    }

    fn is_crowded(&self, name: &[u8]) -> bool {
        self.crowded.lock().contains_key(&hash(name))
    }

    fn note(&self, name: &[u8], is_crowded: bool) {
        let mut crowded = self.crowded.lock();
        if !is_crowded {
            crowded.remove(&hash(name));
        } else if crowded.len() < MOST_KNOWN {
            crowded.entry(hash(name)).or_default();
        }
    }

    fn remember(&self, token: Token, grant: Known) {
        let mut known = self.known.lock();
        if known.len() >= MOST_KNOWN {
            // They are asked for again, one by one.
            known.clear();
        }
        known.insert(token, grant);
    }
}

fn hash(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

impl Store for ZookeeperStore {
    fn run(&self, lane: Lane, requests: &[Request<'_>], deadline: Deadline) -> Vec<Outcome> {
        let by = lane.by(deadline);
        let is_extend = |request: &Request<'_>| matches!(request, Request::Extend { .. });
        let mut outcomes = Vec::with_capacity(requests.len());
        // Extensions that follow one another wait for the disks together.
        for group in requests.chunk_by(|one, next| is_extend(one) && is_extend(next)) {
            match group {
                [Request::Extend { .. }, ..] => {
                    outcomes.extend(self.extend_all(group, by));
                }
                _ => outcomes.extend(group.iter().map(|request| {
                    let mut step = self.step(by);
                    match *request {
                        Request::Take { name, token, ttl, place, .. } => {
                            step.take(name, token, ttl, place)
                        }
                        Request::Give { name, token, fence, .. } => step.give(name, token, fence),
                        Request::Extend { .. } => step.extend(request),
                    }
                })),
            }
        }
        let is_silence = |why: &Failure| why.error.kind() == ErrorKind::NoAnswer;
        let is_unheard = |outcome: &Outcome| outcome.as_ref().is_err_and(is_silence);
        if matches!(lane, Lane::Keeper) && outcomes.iter().any(is_unheard) {
            self.session.leave_if_silent();
        }
        outcomes
    }

    fn free_in(&self, name: &[u8], deadline: Deadline) -> Result<Duration, Error> {
        let mut step = self.step(deadline);
        step.free_in(name).map_err(|failure| failure.error)
    }

    fn ping(&self, deadline: Deadline) -> Result<(), Error> {
        let mut step = self.step(deadline);
        let asked = step.call(&[Ask::Get(&self.session.dialer.root)]);
        let answered = asked.and_then(|(_, replies)| step.expect(replies.first(), &[]));
        answered.map(drop).map_err(|failure| failure.error)
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            watch_every: Some(KEEP_EVERY),
            schema: Some("create /leasehold 1\n"),
            ..Abilities::default()
        }
    }

    fn watch(&self, _end: &dyn Fn()) {
        self.session.keep();
    }

    fn listener(&self) -> Option<&dyn Listener> {
        Some(self)
    }
}
