//! One connection that has subscribed, and what all threads know of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use redis::{ServerError, Value};

use super::Hear;
use crate::clock::{Deadline, Moment};
use crate::config::Login;
use crate::error::{Error, ErrorKind};
use crate::store::redis::dialect::keys::slot;
use crate::store::redis::server_source::ServerSource;
use crate::store::redis::wire::{AT_ONCE, Wire};
use crate::store::redis::{fault, frame};
use crate::store::{Notice, ServerId, Teller};

/// After so much silence the server is asked whether it is there: a dead connection is noticed
/// long before the slow check of a waiter that is not told, half a minute apart.
pub(super) const QUIET: Duration = Duration::from_secs(5);

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

pub(super) struct Subscription {
    pub(super) key: u32,
    pub(super) wire: Wire,
    source: Arc<dyn ServerSource>,
    /// When it was first known to be there.
    pub(super) opened: Moment,
    pub(super) alive: Moment,
    pub(super) asked: Option<Moment>,
    /// More may have come than was read in one go.
    pub(super) has_more: bool,
    /// What ended it, if that was seen while it was waited for.
    broken: Option<Error>,
    /// It is told on channels that belong to slots.
    pub(super) is_sharded: bool,
    /// Requests that are not answered yet, in order. An error does not say which of them it is about.
    awaited: VecDeque<Awaited>,
    /// Changes of channels since they were last taken.
    pub(super) changes: Vec<(u16, Change)>,
}

enum Awaited {
    Ping,
    /// Newer credentials.
    Login(Arc<Login>),
    /// The channel of a slot.
    Channel(u16),
}

pub(super) enum Change {
    Opened,
    Closed,
    Refused(Error),
}

impl Subscription {
    pub(super) fn new(
        key: u32,
        wire: Wire,
        source: Arc<dyn ServerSource>,
        is_sharded: bool,
    ) -> Subscription {
        let now = Moment::now();
        Subscription {
            key,
            wire,
            source,
            opened: now,
            alive: now,
            asked: None,
            has_more: false,
            broken: None,
            is_sharded,
            awaited: VecDeque::new(),
            changes: Vec::new(),
        }
    }

    pub(super) fn want(&mut self, slot: u16, channel: &[u8], patience: Duration) {
        let subscribe = redis::cmd("SSUBSCRIBE").arg(channel).get_packed_command();
        match self.wire.send(&subscribe, Deadline::after(patience)) {
            Ok(()) => self.awaited.push_back(Awaited::Channel(slot)),
            Err((_, error)) => self.breaks(fault::io("SSUBSCRIBE", &error)),
        }
    }

    /// What is to be polled for; nothing once it is broken.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.broken.is_none().then(|| self.wire.fd())
    }

    /// Takes in what has come, and checks that the server is there. Tells when to do it again. Once
    /// the time for which we listen is over, it also reads what lies in the socket.
    pub(super) fn tend(
        &mut self,
        until: Moment,
        patience: Duration,
        hear: Hear<'_>,
    ) -> Result<Moment, Error> {
        let mut has_read = false;
        loop {
            if self.take_in(hear)? || !self.changes.is_empty() {
                return Ok(Moment::now());
            }
            if let Some(error) = self.broken.take() {
                return Err(error);
            }
            let mut watch = self.source.keep_watch(until);
            if !self.source.is_current(&self.wire) {
                let moved = "another server has taken its place";
                return Err(Error::new(ErrorKind::Unavailable, moved));
            }
            self.renew(patience)?;
            let now = Moment::now();
            if let Some(login) = &self.wire.login {
                watch = watch.min(now.plus(login.look_every()));
            }
            let due = self.asked.map_or(self.alive.plus(QUIET), |asked| asked.plus(patience));
            if now < due && now < until {
                return Ok(due.min(watch));
            }
            if !std::mem::replace(&mut has_read, true) && self.glance()? {
                // It may have lain there since long before the server went away: no sign of life.
            } else if now < due {
                return Ok(due.min(watch));
            } else if self.asked.is_some() {
                self.source.doubt(&self.wire);
                return Err(Error::new(ErrorKind::NoAnswer, "no answer to a PING"));
            } else {
                self.ping(patience)?;
            }
        }
    }

    pub(super) fn ping(&mut self, patience: Duration) -> Result<(), Error> {
        let sent = self.wire.send(PING, Deadline::after(patience));
        sent.map_err(|(_, error)| fault::io("PING", &error))?;
        self.asked = Some(Moment::now());
        self.awaited.push_back(Awaited::Ping);
        Ok(())
    }

    /// Logs in with the newest credentials. A subscriber can do so in RESP3 alone; in RESP2 it goes on
    /// for as long as the server lets it.
    fn renew(&mut self, patience: Duration) -> Result<(), Error> {
        if !self.wire.is_resp3 {
            return Ok(());
        }
        let Some((login, auth)) = self.source.newer(&self.wire) else { return Ok(()) };
        let sent = self.wire.send(&auth, Deadline::after(patience));
        sent.map_err(|(_, error)| fault::io("AUTH", &error))?;
        self.wire.login = Some(Arc::clone(&login));
        self.awaited.push_back(Awaited::Login(login));
        Ok(())
    }

    pub(super) fn wait(&mut self, until: Moment) {
        match self.wire.wait(Deadline::at(until)) {
            Ok(true) => self.is_alive(),
            Ok(false) => {}
            Err(error) => self.breaks(error),
        }
    }

    pub(super) fn look(&mut self) {
        if self.broken.is_none() {
            match self.glance() {
                Ok(true) => self.is_alive(),
                Ok(false) => {}
                Err(error) => self.breaks(error),
            }
        }
    }

    fn glance(&mut self) -> Result<bool, Error> {
        let count = self.wire.glance()?;
        self.has_more = count >= AT_ONCE;
        Ok(count > 0)
    }

    pub(super) fn doubt(&self) {
        self.source.doubt(&self.wire);
    }

    /// What came before the error is taken in first.
    fn breaks(&mut self, error: Error) {
        self.source.doubt(&self.wire);
        self.broken = Some(error);
    }

    fn is_alive(&mut self) {
        (self.alive, self.asked) = (Moment::now(), None);
    }

    /// Whether there was a message that says anything.
    fn take_in(&mut self, hear: Hear<'_>) -> Result<bool, Error> {
        let (mut answered, mut told) = (false, false);
        let (awaited, changes, source) = (&mut self.awaited, &mut self.changes, &self.source);
        self.wire.each_whole(|reply| {
            let mut answer = || awaited.pop_front().ok_or_else(|| frame::unasked(reply));
            match frame::push(reply) {
                Some(frame::Push { kind: b"message" | b"smessage", payload, .. }) => {
                    told |= hear(payload);
                }
                Some(frame::Push { kind: b"ssubscribe", channel, .. }) => {
                    answer()?;
                    changes.push((slot(channel), Change::Opened));
                }
                Some(frame::Push { kind: b"sunsubscribe", channel, .. }) => {
                    changes.push((slot(channel), Change::Closed));
                }
                Some(frame::Push { kind: b"unsubscribe", .. }) => {
                    let ended = "the server ended the subscription";
                    return Err(Error::new(ErrorKind::Refused, ended));
                }
                // An error is an answer to PING, too: that this user must not ask.
                other => {
                    answered = true;
                    match (answer()?, reply[0], other) {
                        (Awaited::Channel(slot), b'-', None) => {
                            changes.push((slot, Change::Refused(error(reply))));
                        }
                        (Awaited::Login(login), b'-', None) => {
                            source.refused(&login);
                            return Err(error(reply));
                        }
                        _ => {}
                    }
                }
            }
            Ok(())
        })?;
        if answered {
            self.is_alive();
        }
        Ok(told)
    }
}

/// What all threads know. By this, closing reaches a thread that listens, or connects.
#[derive(Default)]
pub(super) struct State {
    pub(super) closed: bool,
    pub(super) open: BTreeMap<u32, Open>,
    pub(super) made: Vec<Subscription>,
    /// A second handle on the socket of a subscription that is being made.
    pub(super) opening: Option<socket2::Socket>,
    /// Why a subscription has ended, if no thread that listens was told yet.
    pub(super) ended: Option<Error>,
    /// Channels to open on subscriptions that are there: the publisher's key and the slot.
    pub(super) wanted: Vec<(u32, u16)>,
    pub(super) refused: BTreeMap<(u32, u16), Error>,
    /// Publishers that are left alone until a moment, and why: their servers let nobody listen, or
    /// are silent. Else each name would find that out for itself, and the names of a silent server
    /// would hold up those of others all the time.
    pub(super) resting: BTreeMap<u32, (Moment, Error)>,
    /// What came while a channel was waited for.
    pub(super) unheard: Vec<(Teller, Notice)>,
}

pub(super) struct Open {
    pub(super) server: ServerId,
    pub(super) socket: Option<socket2::Socket>,
    /// The slots whose channels are open; none where it is the client's own.
    pub(super) slots: Option<BTreeSet<u16>>,
}

impl State {
    pub(super) fn server(&self, key: u32, slot: Option<u16>) -> Option<ServerId> {
        let open = self.open.get(&key)?;
        let is_open = match (slot, &open.slots) {
            (None, None) => true,
            (Some(slot), Some(slots)) => slots.contains(&slot),
            _ => false,
        };
        is_open.then_some(open.server)
    }

    pub(super) fn rests(&self, key: u32) -> Option<&Error> {
        let (until, error) = self.resting.get(&key)?;
        (Moment::now() < *until).then_some(error)
    }
}

fn error(reply: &[u8]) -> Error {
    match frame::value(reply) {
        Ok(Value::ServerError(error)) => refusal(&error),
        _ => Error::new(ErrorKind::Protocol, "SSUBSCRIBE was answered by something else"),
    }
}

pub(super) fn refusal(error: &ServerError) -> Error {
    match error.code() {
        "MOVED" | "ASK" => Error::new(ErrorKind::Unavailable, "the slot is on another server"),
        _ => fault::server(error),
    }
}
