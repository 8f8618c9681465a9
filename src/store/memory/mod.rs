//! The store in memory: for the tests of programs that use locks, without a server and without a file.
//! It is one process's, and ends with it. All that belongs to a name changes under one mutex, by the
//! boot clock; so there is no connection, and no outcome is unknown but where a test asks for it.

mod admin;
mod clients;
mod controls;
mod gate;
mod inbox;
mod name;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use self::gate::{Gate, Whose};
use self::inbox::Inbox;
use self::name::{Name, Standing};
use crate::clock::{Deadline, Moment, wall_micros};
use crate::config::Config;
use crate::config::limits::MAX_FENCE;
use crate::error::{Error, ErrorKind};
use crate::fork::OneProcess;
use crate::store::breaking::LONGEST_REMEMBERED;
use crate::store::{
    Abilities, Answer, Failure, Identity, Lane, Listener, Outcome, Owed, Place, Reply, Request,
    Seen, ServerId, Store,
};
use crate::sync::Mutex;
use crate::token::ClientId;

/// A name that is free stays known for as long after it was used: for its last fence, and for who broke
/// its lock.
const KEPT: Duration = LONGEST_REMEMBERED;
/// Names are looked through for those that are over when there are twice as many as after the last time,
/// and not below this many.
const FEW: usize = 1024;

/// A forked child has a copy of its parent's memory, in which locks would be held that nobody releases,
/// and taken while the parent has them.
static USED_IN: OneProcess = OneProcess::new();
const INHERITED: &str = "a store in memory is of one process, and this one was forked from a process that \
     uses one: locks would not hold between the two; make one in the children only, or share a file \
     (sqlite:/path/to/file)";

const NO_TEST: &str = "is a store for tests, and no test of this process has made it: make it with the testing \
     module of your language, or name a server or a file (sqlite:/path/to/file)";

/// The stores of this process by the names in their URLs. They stay until the process ends: a lock that
/// was left to its ttl outlasts its client.
static STORES: Mutex<BTreeMap<String, Arc<Memory>>> = Mutex::new(BTreeMap::new());

/// What the clients of one name share.
#[derive(Default)]
pub(crate) struct Memory {
    locks: Mutex<Locks>,
    /// What clients say of themselves, and until when that is kept.
    records: Mutex<HashMap<ClientId, (Vec<u8>, Moment)>>,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Locks {
    /// In order, and with the clients' prefixes.
    names: BTreeMap<Vec<u8>, Name>,
    look_through_at: usize,
}

pub(crate) struct MemoryStore {
    memory: Arc<Memory>,
    prefix: Vec<u8>,
    claim_window: Duration,
    inbox: Arc<Inbox>,
}

impl Memory {
    /// Makes or finds the store of this name in this process, for a test.
    pub(crate) fn named(name: &str) -> Result<Arc<Memory>, Error> {
        refuse_inherited()?;
        Ok(Arc::clone(STORES.lock().entry(name.to_owned()).or_default()))
    }

    /// The store of this name, for a program. It makes none: in production such a lock would exclude no
    /// other process.
    fn made(name: &str) -> Result<Arc<Memory>, Error> {
        refuse_inherited()?;
        let made = STORES.lock().get(name).map(Arc::clone);
        made.ok_or_else(|| {
            let url = format!("memory:{name}");
            Error::new(ErrorKind::BadArgument, format!("{url} {NO_TEST}"))
        })
    }
}

fn refuse_inherited() -> Result<(), Error> {
    if USED_IN.is_this() { Ok(()) } else { Err(Error::new(ErrorKind::Storage, INHERITED)) }
}

impl MemoryStore {
    pub(crate) fn open(name: &str, config: &Config) -> Result<MemoryStore, Error> {
        let memory = Memory::made(name)?;
        let (prefix, claim_window) = (config.prefix.clone(), config.claim_window);
        let inbox = Arc::new(Inbox::new(Arc::clone(&memory.gate)));
        Ok(MemoryStore { memory, prefix, claim_window, inbox })
    }

    fn key(&self, name: &[u8]) -> Vec<u8> {
        [&self.prefix, name].concat()
    }

    fn seen(&self, name: &[u8]) -> Seen {
        let locks = self.memory.locks.lock();
        let lock = locks.names.get(&self.key(name));
        lock.map(|lock| lock.seen(Moment::now())).unwrap_or_default()
    }

    fn carry_out(&self, locks: &mut Locks, request: &Request<'_>) -> Answer {
        let sent = Moment::now();
        let key = self.key(request.name());
        let reply = match *request {
            Request::Take { name, token, ttl, place, block } => {
                locks.forget_unused(sent);
                let standing = match place {
                    Place::Join(ticket) if self.inbox.is_open() => Some(Standing {
                        ticket,
                        name: Arc::from(name),
                        token,
                        inbox: Arc::clone(&self.inbox),
                        span: ttl.min(self.claim_window),
                        since: sent,
                    }),
                    _ => None,
                };
                let lock = locks.names.entry(key).or_default();
                lock.take(token, ttl, standing, block, sent)
            }
            Request::Extend { token, fence, ttl, reach, .. } => {
                let lock = locks.names.get_mut(&key);
                lock.map_or(Reply::NotMine, |lock| lock.extend(token, fence, ttl, reach, sent))
            }
            Request::Give { token, fence, .. } => {
                let lock = locks.names.get_mut(&key);
                lock.map_or(Reply::NotMine, |lock| lock.give(token, fence, sent))
            }
        };
        Answer { reply, sent, server: micros(sent), by: ServerId::default(), again: None }
    }
}

impl Locks {
    fn forget_unused(&mut self, now: Moment) {
        if self.names.len() >= self.look_through_at.max(FEW) {
            self.names.retain(|_, name| !name.is_over(now));
            self.look_through_at = self.names.len() * 2;
        }
    }
}

/// Reserves so many fences and returns the first. They are larger than all that this process has reserved
/// for any name, so a name that was forgotten needs none of its own. They are made of the wall clock, so
/// that they grow from one process to the next; a clock that is a century ahead would use them up.
fn reserve_fences(count: u32) -> u64 {
    static LAST: Mutex<u64> = Mutex::new(0);
    let wall = Some(wall_micros()).filter(|wall| *wall < MAX_FENCE / 2);
    let mut last = LAST.lock();
    let first = wall.unwrap_or(0).max(*last + 1);
    *last = first + u64::from(count) - 1;
    first
}

impl Store for MemoryStore {
    fn run(&self, lane: Lane, requests: &[Request<'_>], deadline: Deadline) -> Vec<Outcome> {
        let whose = if lane == Lane::Keeper { Whose::Background } else { Whose::Call };
        let (sent, passed) = (Moment::now(), self.memory.gate.pass(whose, deadline));
        let fate = match passed {
            Ok(fate) => fate,
            Err(failure) => return vec![Err(failure); requests.len()],
        };
        let mut locks = self.memory.locks.lock();
        let mut outcome = |request| fate.reply(sent, self.carry_out(&mut locks, request));
        requests.iter().map(&mut outcome).collect()
    }

    fn let_go(&self, owed: &Owed, lane: Lane, deadline: Deadline) -> Option<Outcome> {
        if self.memory.gate.is_paused() {
            // Nobody waits for this reply: the keeper gives when the store answers again.
            return Some(Err(Failure::not_done(Error::bare(ErrorKind::NoAnswer))));
        }
        Some(self.ask(lane, owed.identity.give(), deadline))
    }

    fn free_in(&self, name: &[u8], deadline: Deadline) -> Result<Duration, Error> {
        self.memory.gate.pass_to_look(Whose::Background, deadline)?;
        Ok(self.seen(name).left)
    }

    fn is_unawaited(&self, grant: &Identity, _lane: Lane, deadline: Deadline) -> bool {
        let is_answered = self.memory.gate.pass_to_look(Whose::Background, deadline).is_ok();
        let seen = self.seen(&grant.name);
        is_answered && seen.token == Some(grant.token) && seen.waiting == Some(0)
    }

    fn ping(&self, deadline: Deadline) -> Result<(), Error> {
        self.memory.gate.pass_to_look(Whose::Call, deadline)
    }

    fn abilities(&self) -> Abilities {
        Abilities::default()
    }

    fn listener(&self) -> Option<&dyn Listener> {
        Some(&*self.inbox)
    }

    fn close(&self) {
        let mut locks = self.memory.locks.lock();
        locks.names.values_mut().for_each(|name| name.leave_all(&self.inbox));
    }
}

/// The store's clock, as answers and notices show it.
fn micros(moment: Moment) -> u64 {
    moment.as_nanos() / 1000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::Token;

    fn store(url: &str) -> MemoryStore {
        let config = Config::from_url(url).unwrap();
        let crate::config::StoreConfig::Memory(name) = &config.store else { panic!("{url}") };
        Memory::named(name).unwrap();
        MemoryStore::open(name, &config).unwrap()
    }

    fn take(store: &MemoryStore, name: &[u8], token: Token, ttl: Duration) -> Reply {
        let (place, block) = (Place::Try, 1);
        let take = Request::Take { name, token, ttl, place, block };
        store.ask(Lane::Caller, take, Deadline::at(Moment::NEVER)).unwrap().reply
    }

    #[test]
    fn a_program_opens_the_store_that_a_test_has_made_and_no_other() {
        let config = Config::from_url("memory:nobody's").unwrap();
        let refused = MemoryStore::open("nobody's", &config).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BadArgument);
        assert!(refused.detail().starts_with("memory:nobody's is a store for tests"), "{refused}");
        Memory::named("nobody's").unwrap();
        MemoryStore::open("nobody's", &config).unwrap();
    }

    #[test]
    fn the_same_name_is_the_same_store_and_outlasts_its_clients() {
        let [one, other] = [(); 2].map(|()| Token::random().unwrap());
        let hour = Duration::from_secs(3600);
        let granted = |reply| matches!(reply, Reply::Granted { .. });
        assert!(granted(take(&store("memory:shared"), b"n", one, hour)));
        assert!(!granted(take(&store("memory://shared"), b"n", other, hour)));
        assert!(granted(take(&store("memory:apart"), b"n", other, hour)));
        assert!(granted(take(&store("memory:shared?prefix=p:"), b"n", other, hour)));
    }

    #[test]
    fn a_name_that_was_forgotten_has_larger_fences_all_the_same() {
        let store = store("memory:forgets");
        let fence = |token| match take(&store, b"n", token, Duration::from_millis(3)) {
            Reply::Granted { fence, .. } => fence,
            other => panic!("{other:?}"),
        };
        let first = fence(Token::random().unwrap());
        let mut locks = store.memory.locks.lock();
        let later = Moment::now().plus(KEPT);
        assert!(!locks.names.values().any(|name| name.is_over(Moment::now())));
        locks.look_through_at = 1;
        (0..FEW)
            .for_each(|at| drop(locks.names.insert(at.to_be_bytes().to_vec(), Name::default())));
        locks.forget_unused(later);
        assert!(locks.names.is_empty());
        drop(locks);
        assert!(fence(Token::random().unwrap()) > first);
    }
}
