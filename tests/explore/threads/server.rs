//! A server in memory that hands locks on as the model of the Redis store's scripts does.
//! What it may do by chance: refuse a request, cut a wake-up connection, refuse to open one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};

use super::Flaw;
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::explore::models::redis::{Flaws, ModelServer};
use crate::explore::models::{Channel, ModelWakeup};
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

/// What the scripts do to each name is the model's. The clients have the channels 0, 1 and so on.
#[derive(Default)]
pub(super) struct Server(Mutex<State>);

#[derive(Default)]
struct State {
    names: BTreeMap<Vec<u8>, ModelServer>,
    inboxes: Vec<Arc<Inbox>>,
}

impl Server {
    /// Nobody holds a lock or waits for one.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.0.lock();
        state.names.values().all(|model| model.lock.is_none() && model.queue.is_empty())
    }

    fn answer(&self, request: &Request<'_>, wakeup: ModelWakeup) -> Reply {
        let State { names, inboxes } = &mut *self.0.lock();
        let inbox = |channel: Channel| &inboxes[usize::from(channel)];
        let model = names.entry(request.name().to_vec());
        let model = model.or_insert_with(|| ModelServer::new(LONG, Flaws::default()));
        let hears = |channel| inbox(channel).is_subscribed();
        let (reply, told) = model.answer(server_time(), request, wakeup, &hears);
        for (channel, mut notice) in told {
            if let Notice::Granted { name, .. } = &mut notice {
                *name = request.name().to_vec();
            }
            inbox(channel).post(notice);
            // In vain, as it happens among several servers: who listens goes away to ask.
            for next in model.queue.iter().take(2) {
                let (name, token) = (request.name().to_vec(), next.token);
                inbox(next.channel).post(Notice::Free { name, token });
            }
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
    /// As far as the server knows: of a connection that was cut it may not know yet.
    fn is_subscribed(&self) -> bool {
        let line = self.line.lock();
        line.open && (!line.cut || thread_rng().gen_bool(0.5))
    }

    fn post(&self, notice: Notice) {
        let mut line = self.line.lock();
        if line.open && !line.cut {
            line.notices.push_back(notice);
            self.changed.notify_all();
        }
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
    channel: Channel,
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
        let inbox = Arc::new(inbox);
        let inboxes = &mut server.0.lock().inboxes;
        let channel = Channel::try_from(inboxes.len()).unwrap();
        inboxes.push(Arc::clone(&inbox));
        let server = Arc::clone(server);
        Link { server, channel, inbox, trouble: false, slow: None, flaw: None }
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
        if matches!(request, Request::Take { .. }) && self.fails() {
            return Err(Failure::not_done(Error::bare(ErrorKind::NoAnswer)));
        }
        let wakeup = ModelWakeup { channel: Some(self.channel), is_open: self.are_any_open() };
        let reply = self.server.answer(request, wakeup);
        Ok(Answer { reply, sent, server: server_time(), by: ServerId::default(), again: None })
    }
}

impl Store for Link {
    fn run(&self, _lane: Lane, requests: &[Request<'_>], _deadline: Deadline) -> Vec<Outcome> {
        requests.iter().map(|request| self.carry_out(request)).collect()
    }

    fn free_in(&self, name: &[u8], _deadline: Deadline) -> Result<Duration, Error> {
        let names = &self.server.0.lock().names;
        let is_held = names.get(name).is_some_and(|model| model.lock.is_some());
        Ok(if is_held { LONG } else { Duration::ZERO })
    }

    fn is_unawaited(&self, grant: &Identity, _lane: Lane, _deadline: Deadline) -> bool {
        let names = &self.server.0.lock().names;
        let is_alone = |model: &ModelServer| {
            let is_held = model.lock.as_ref().is_some_and(|held| held.token == Some(grant.token));
            is_held && model.queue.is_empty()
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
