//! A server in memory that hands locks on as the Redis store's scripts do.
//! What it may do by chance: refuse a request, cut a wake-up connection, refuse to open one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};

use super::Flaw;
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::keeper::Keeper;
use crate::store::{
    Abilities, Admin, Answer, Failure, Identity, Lane, Listener, LockState, Notice, Outcome, Place,
    Registry, Reply, Request, ServerId, Store, Teller,
};
use crate::sync::{Condvar, Mutex};
use crate::token::Token;
use crate::wait::WaitingRoom;

/// So long that nothing ends by itself while the threads meet.
pub(super) const LONG: Duration = Duration::from_secs(3600);

#[derive(Default)]
pub(super) struct Server {
    names: Mutex<BTreeMap<Vec<u8>, State>>,
}

/// One name.
#[derive(Default)]
struct State {
    holder: Option<Grant>,
    last_fence: u64,
    last_ticket: u64,
    queue: Vec<Entry>,
}

#[derive(Clone, Copy)]
struct Grant {
    token: Token,
    fence: u64,
    block: u32,
}

struct Entry {
    ticket: u64,
    token: Token,
    inbox: Arc<Inbox>,
}

impl Server {
    /// Nobody holds a lock or waits for one.
    pub(super) fn is_idle(&self) -> bool {
        let names = self.names.lock();
        names.values().all(|state| state.holder.is_none() && state.queue.is_empty())
    }
}

impl State {
    fn grant(&mut self, token: Token, block: u32) -> Grant {
        let grant = Grant { token, fence: self.last_fence + 1, block };
        self.last_fence += u64::from(block);
        self.holder = Some(grant);
        grant
    }

    /// To the first waiter with a ticket before this one that can be told.
    fn hand_over(&mut self, name: &[u8], before: u64) {
        while self.queue.first().is_some_and(|entry| entry.ticket < before) {
            let entry = self.queue.remove(0);
            let (server, span) = (server_time(), LONG);
            let (token, fence, block) = (entry.token, self.last_fence + 1, 64);
            let granted =
                Notice::Granted { name: name.to_vec(), token, fence, block, server, span };
            if entry.inbox.post(granted) {
                self.grant(token, block);
                // In vain, as it happens among several servers: who listens goes away to ask.
                for next in self.queue.iter().take(2) {
                    let (name, token) = (name.to_vec(), next.token);
                    next.inbox.post(Notice::Free { name, token });
                }
                return;
            }
        }
    }

    fn take(
        &mut self,
        name: &[u8],
        token: Token,
        join: Option<(u64, &Arc<Inbox>)>,
        block: u32,
    ) -> Reply {
        let placed = self.queue.iter().position(|entry| entry.token == token);
        let placed = placed.map(|place| self.queue.remove(place));
        if let Some(grant) = self.holder.filter(|grant| grant.token == token) {
            return Reply::Granted { fence: grant.fence, block: grant.block };
        }
        let mut ticket = 0;
        if let Some((old, inbox)) = join {
            self.last_ticket += 1;
            ticket = if old == 0 { self.last_ticket } else { old };
            let place = self.queue.partition_point(|entry| entry.ticket <= ticket);
            let inbox = Arc::clone(inbox);
            self.queue.insert(place, Entry { ticket, token, inbox });
        } else if let Some(entry) = placed {
            // A try changes nobody's place.
            self.queue.insert(0, entry);
        }
        if self.holder.is_none() {
            self.hand_over(name, if ticket == 0 { u64::MAX } else { ticket });
        }
        if self.holder.is_none() {
            self.queue.retain(|entry| entry.token != token);
            let Grant { fence, block, .. } = self.grant(token, block);
            return Reply::Granted { fence, block };
        }
        let rank = self.queue.iter().take_while(|entry| entry.ticket < ticket).count();
        let rank = u32::try_from(rank).unwrap();
        Reply::Busy { free_in: LONG, ticket, rank, ours: true }
    }

    fn give(&mut self, name: &[u8], token: Token, fence: u64) -> Reply {
        self.queue.retain(|entry| entry.token != token);
        let mut reply = Reply::NotMine;
        if let Some(grant) = self.holder.take_if(|grant| grant.token == token) {
            let block = grant.fence..grant.fence + u64::from(grant.block);
            if block.contains(&fence) {
                self.last_fence = fence;
            }
            if fence == 0 || block.contains(&fence) {
                reply = Reply::Given;
            }
        }
        if self.holder.is_none() {
            self.hand_over(name, u64::MAX);
        }
        reply
    }
}

fn server_time() -> u64 {
    1_700_000_000_000_000 + Moment::now().as_nanos() / 1000
}

/// The wake-up connection of one client, both ends of it.
pub(super) struct Inbox {
    /// Whose it is.
    keeper: OnceLock<Weak<Keeper>>,
    line: Mutex<Line>,
    changed: Condvar,
}

#[derive(Default)]
struct Line {
    open: bool,
    /// The server, or the network, has ended it.
    cut: bool,
    closed: bool,
    /// This client must not listen.
    forbidden: bool,
    listeners: u32,
    notices: VecDeque<Notice>,
}

impl Inbox {
    /// Whether anybody received it, as far as the server knows.
    fn post(&self, notice: Notice) -> bool {
        let mut line = self.line.lock();
        if line.cut {
            // It may not know yet.
            return line.open && thread_rng().gen_bool(0.5);
        }
        if line.open {
            line.notices.push_back(notice);
            self.changed.notify_all();
        }
        line.open
    }

    pub(super) fn belongs_to(&self, keeper: &Arc<Keeper>) {
        let _ = self.keeper.set(Arc::downgrade(keeper));
    }

    /// Spoils something in the room of those who read it.
    fn spoil(&self, spoils: impl FnOnce(&WaitingRoom)) {
        let keeper = self.keeper.get().and_then(Weak::upgrade);
        if let Some(core) = keeper.as_ref().and_then(|keeper| keeper.core().ok()) {
            spoils(&core.room);
        }
    }

    pub(super) fn cut(&self) {
        let mut line = self.line.lock();
        line.cut = true;
        line.notices.clear();
        self.changed.notify_all();
    }
}

/// Which names a client has had a turn on.
#[derive(Default)]
pub(super) struct Served {
    names: Mutex<BTreeSet<Vec<u8>>>,
    changed: Condvar,
}

impl Served {
    pub(super) fn add(&self, name: &str) {
        self.names.lock().insert(name.into());
        self.changed.notify_all();
    }

    pub(super) fn wait_for(&self, name: &str) {
        let mut names = self.names.lock();
        while !names.contains(name.as_bytes()) {
            names = self.changed.wait(names);
        }
    }
}

/// What a client has of the server.
pub(super) struct Link {
    server: Arc<Server>,
    inbox: Arc<Inbox>,
    /// Requests and openings may fail, one in four.
    pub(super) trouble: bool,
    /// A waiter that asks again about "a" is answered when this client has had a turn on "b".
    pub(super) slow: Option<Arc<Served>>,
    pub(super) flaw: Option<Flaw>,
}

impl Link {
    pub(super) fn new(server: &Arc<Server>) -> Link {
        let inbox =
            Inbox { keeper: OnceLock::new(), line: Mutex::default(), changed: Condvar::default() };
        Link {
            server: Arc::clone(server),
            inbox: Arc::new(inbox),
            trouble: false,
            slow: None,
            flaw: None,
        }
    }

    /// This client must not listen.
    pub(super) fn forbid(&self) {
        self.inbox.line.lock().forbidden = true;
    }

    pub(super) fn inbox(&self) -> Arc<Inbox> {
        Arc::clone(&self.inbox)
    }

    fn fails(&self) -> bool {
        self.trouble && thread_rng().gen_ratio(1, 4)
    }

    fn carry_out(&self, request: &Request<'_>) -> Outcome {
        let sent = Moment::now();
        match self.flaw {
            Some(Flaw::WakesOnlyParked) => self.inbox.spoil(|room| room.crew.forget_wake_ups()),
            Some(Flaw::ParksUnheard) => self.inbox.spoil(|room| room.crew.forget_who_is_unheard()),
            _ => {}
        }
        if let Some(served) = &self.slow
            && let Request::Take { name: b"a", place: Place::Join(1..), .. } = request
        {
            served.wait_for("b");
        }
        let heard = self.are_any_open();
        let mut names = self.server.names.lock();
        let (Request::Take { name, .. }
        | Request::Extend { name, .. }
        | Request::Give { name, .. }) = *request;
        let state = names.entry(name.to_vec()).or_default();
        let reply = match *request {
            Request::Take { .. } if self.fails() => {
                return Err(Failure::not_done(Error::bare(ErrorKind::NoAnswer)));
            }
            Request::Take { name, token, place: Place::Join(ticket), block, .. } if heard => {
                state.take(name, token, Some((ticket, &self.inbox)), block)
            }
            Request::Take { name, token, block, .. } => state.take(name, token, None, block),
            Request::Give { name, token, fence, .. } => state.give(name, token, fence),
            Request::Extend { token, .. } => match &state.holder {
                Some(grant) if grant.token == token => Reply::Extended,
                _ => Reply::NotMine,
            },
        };
        Ok(Answer { reply, sent, server: server_time(), by: ServerId::default(), again: None })
    }
}

impl Store for Link {
    fn run(&self, _lane: Lane, requests: &[Request<'_>], _deadline: Deadline) -> Vec<Outcome> {
        requests.iter().map(|request| self.carry_out(request)).collect()
    }

    fn free_in(&self, name: &[u8], _deadline: Deadline) -> Result<Duration, Error> {
        let names = self.server.names.lock();
        let is_held = names.get(name).is_some_and(|state| state.holder.is_some());
        Ok(if is_held { LONG } else { Duration::ZERO })
    }

    fn is_unawaited(&self, grant: &Identity, _lane: Lane, _deadline: Deadline) -> bool {
        let names = self.server.names.lock();
        let is_alone = |state: &State| {
            state.queue.is_empty() && state.holder.is_some_and(|held| held.token == grant.token)
        };
        !self.fails() && names.get(&*grant.name).is_some_and(is_alone)
    }

    fn ping(&self, _deadline: Deadline) -> Result<(), Error> {
        Ok(())
    }

    fn abilities(&self) -> Abilities {
        Abilities::default()
    }

    fn listener(&self) -> Option<&dyn Listener> {
        if self.flaw == Some(Flaw::WakesOnlySleepers) {
            // Asked for by a thread that is about to sleep.
            self.inbox.spoil(WaitingRoom::forget_wake_ups);
        }
        Some(self)
    }
}

impl Registry for Link {}

impl Admin for Link {
    fn inspect(&self, _name: &[u8], _deadline: Deadline) -> Result<LockState, Error> {
        Ok(LockState::default())
    }
}

impl Listener for Link {
    fn are_open(&self, _name: &[u8]) -> bool {
        self.inbox.line.lock().open
    }

    fn are_any_open(&self) -> bool {
        self.inbox.line.lock().open
    }

    fn open(&self, _name: &[u8], _deadline: Deadline) -> Result<ServerId, Error> {
        // Somebody may close or cut it while it is made.
        drop(self.inbox.line.lock());
        let mut line = self.inbox.line.lock();
        if line.closed {
            return Err(Error::bare(ErrorKind::Closed));
        }
        if line.forbidden {
            return Err(Error::bare(ErrorKind::Permission));
        }
        if self.fails() {
            return Err(Error::bare(ErrorKind::NoAnswer));
        }
        (line.open, line.cut) = (true, false);
        if self.flaw == Some(Flaw::HidesCuts) {
            return Err(Error::bare(ErrorKind::NoAnswer));
        }
        Ok(ServerId::default())
    }

    fn hear(&self, until: Moment) -> Result<Vec<(Teller, Notice)>, Error> {
        let mut line = self.inbox.line.lock();
        line.listeners += 1;
        assert_eq!(line.listeners, 1, "two threads listen");
        let heard = loop {
            if line.closed || line.cut || !line.open {
                line.open = false;
                line.notices.clear();
                if self.flaw == Some(Flaw::HidesCuts) {
                    break Ok(Vec::new());
                }
                break Err(Error::bare(ErrorKind::Refused));
            }
            let now = Moment::now();
            if !line.notices.is_empty() || now >= until {
                break Ok(line
                    .notices
                    .drain(..)
                    .map(|notice| (Teller::default(), notice))
                    .collect());
            }
            line = self.inbox.changed.wait_for(line, until.since(now));
        };
        line.listeners -= 1;
        drop(line);
        let is_news = heard.as_ref().is_ok_and(|notices| !notices.is_empty());
        match self.flaw {
            Some(Flaw::LeavesAfterNews) if is_news => {
                self.inbox.spoil(WaitingRoom::forget_who_could_listen);
            }
            Some(Flaw::LeavesInSilence) if !is_news => {
                self.inbox.spoil(WaitingRoom::forget_who_could_listen);
            }
            _ => {}
        }
        heard
    }

    fn close(&self) {
        let mut line = self.inbox.line.lock();
        (line.closed, line.open) = (true, false);
        self.inbox.changed.notify_all();
    }
}
