//! Where this client is told that it is next: one connection that watches who stands before each of
//! its waiters, read by a thread that waits.
//!
//! The keys of the waiters are under a lease of this connection, its ear, which the thread that
//! listens renews: who cannot be told anything stands in nobody's way for long.

use std::collections::HashSet;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use super::dial::Dialer;
use super::leases::{Lease, Leases};
use super::messages::{self, Done, Lives, Told};
use super::own_keys::OwnKeys;
use super::waits::{Heard, Question, Wait, Waits};
use super::wire::Wire;
use super::{fault, micros};
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::net::poll::readable;
use crate::store::{self, Notice, ServerId, Teller, rest_after};
use crate::sync::{Mutex, Turnstile};
use crate::token::Token;

/// What the server does not take in this time goes out later: others wait meanwhile.
const SOON: Duration = Duration::from_millis(10);
/// An ear lives for so much longer than a claim window: a lease is told of in whole seconds, and by what is
/// left of it others see that nobody has renewed it for a claim window.
const MORE: Duration = Duration::from_secs(1);
/// Of a hand-over of which less than this part is left, its waiter is told that it may ask.
const USEFUL: u32 = 4;
/// After a connection could not be made.
const LEAST_REST: Duration = Duration::from_millis(100);

pub(super) struct Listener {
    dialer: Arc<Dialer>,
    own_keys: Arc<OwnKeys>,
    io_timeout: Duration,
    claim_window: Duration,
    /// A key that may be asked for.
    any: Vec<u8>,
    me: ServerId,
    /// Of the thread that listens.
    turn: Turnstile<()>,
    state: Mutex<State>,
}

/// What all threads know. By this, closing reaches a thread that listens, or connects.
#[derive(Default)]
struct State {
    closed: bool,
    open: Option<Open>,
    /// A second handle on the socket of one that is being made.
    opening: Option<socket2::Socket>,
    /// None is made before, and why.
    resting: Option<(Moment, Error)>,
}

struct Open {
    wire: Wire,
    opened: Moment,
    /// A second handle, to wait on and to close by.
    socket: Arc<socket2::Socket>,
    ear: Lease,
    watching: u32,
    renewing: u32,
    renewal: Renewal,
    /// How often.
    every: Duration,
    /// Whose places are looked at as it is confirmed, each on its stream.
    looks: Vec<(u32, Vec<Token>)>,
    waits: Waits,
    /// Each on its stream.
    questions: Vec<(u32, Question)>,
}

/// How the ear is renewed: the leader says that it lives, and then a majority that it is the leader.
#[derive(Clone, Copy)]
enum Renewal {
    Due(Moment),
    Asked(Moment),
    /// The leader of a term has done it since then; and whether all answers were in that term.
    Confirming(Moment, u64, bool),
}

impl Listener {
    pub(super) fn new(
        (dialer, own_keys): (Arc<Dialer>, Arc<OwnKeys>),
        (io_timeout, claim_window): (Duration, Duration),
        any: Vec<u8>,
        me: ServerId,
    ) -> Listener {
        let (turn, state) = Default::default();
        Listener { dialer, own_keys, io_timeout, claim_window, any, me, turn, state }
    }

    /// The ear under which places are taken, if there is one.
    pub(super) fn ear(&self) -> Option<i64> {
        self.state.lock().open.as_ref().filter(|open| open.is_alive()).map(|open| open.ear.id)
    }

    /// Nothing is heard by this ear any more: what may still be on its way could leave a place for
    /// which nobody waits, and it ends with the ear. A later ear has nothing to do with it. Where it is
    /// not known under which ear something is, that is 0, and any ear ends.
    pub(super) fn end(&self, ear: i64) {
        let mut state = self.state.lock();
        if let Some(open) = state.open.take_if(|open| ear == 0 || open.ear.id == ear) {
            let _ = open.socket.shutdown(Shutdown::Both);
            self.own_keys.ear_ended(open.ear.id);
        }
    }

    /// A place waits to be told. False if it is under the ear of an earlier connection, which may end
    /// while this one's lives.
    pub(super) fn follow(&self, ear: i64, token: Token, wait: Wait, revision: u64) -> bool {
        let mut state = self.state.lock();
        let Some(open) = &mut state.open else { return true };
        if open.ear.id != ear {
            return false;
        }
        let is_full = !open.wire.is_all_sent();
        let wait = Wait { since: wait.since.min(open.ear.since), ..wait };
        for message in open.waits.follow(token, wait, revision) {
            open.wire.write(open.watching, &message, false);
        }
        if !is_full && open.wire.send_some(Deadline::after(SOON)).is_err() {
            // The thread that listens finds out.
            let _ = open.socket.shutdown(Shutdown::Both);
        }
        true
    }

    pub(super) fn forget(&self, token: Token) {
        if let Some(open) = &mut self.state.lock().open {
            open.waits.forget(token);
        }
    }

    /// A place is another token's from now on; not if it was told something.
    pub(super) fn rename(&self, from: Token, to: Token) -> bool {
        self.state.lock().open.as_mut().is_some_and(|open| open.waits.rename(from, to))
    }

    /// Which names are waited for here, by what their keys begin with.
    pub(super) fn names(&self) -> HashSet<Vec<u8>> {
        self.state.lock().open.as_ref().map_or_else(HashSet::new, |open| open.waits.names())
    }

    pub(super) fn waits_for(&self, name: &[u8]) -> Option<Token> {
        self.state.lock().open.as_ref()?.waits.of(name)
    }

    /// For how long a lock is handed over to a waiter with this ttl.
    pub(super) fn span(&self, ttl: Duration) -> Duration {
        self.claim_window.min(ttl)
    }

    fn subscribe(&self, deadline: Deadline) -> Result<Open, Error> {
        let handle = Mutex::new(None);
        let keep_handle = |socket: &socket2::Socket| {
            let mut state = self.state.lock();
            if state.closed {
                return Err(Error::bare(ErrorKind::Closed));
            }
            let again = || socket.try_clone().map_err(|error| fault::io("a second handle", &error));
            state.opening = Some(again()?);
            *handle.lock() = Some(again()?);
            Ok(())
        };
        let mut wire = self.dialer.dial(deadline, &keep_handle)?;
        let socket = handle.lock().take().ok_or_else(|| Error::bare(ErrorKind::Refused))?;
        // Never the same again: what was meant for an earlier connection does not reach this one.
        let ear = Leases::exactly(&mut wire, self.claim_window + MORE, deadline);
        let ear = ear.map_err(|failure| failure.error);
        let ear = ear.inspect_err(|error| _ = self.dialer.is_forgotten(&wire, error))?;
        let (watching, renewing) = (wire.begin(messages::WATCH), wire.begin(messages::KEEP_ALIVE));
        wire.send(deadline).map_err(|(_, error)| error)?;
        let (opened, waits, questions) = (Moment::now(), Waits::default(), Vec::new());
        let every = (ear.span / 4).min(self.claim_window / 3).max(SOON);
        let (renewal, looks) = (Renewal::Due(opened.plus(every)), Vec::new());
        let socket = Arc::new(socket);
        Ok(Open {
            wire,
            opened,
            socket,
            ear,
            watching,
            renewing,
            renewal,
            every,
            looks,
            waits,
            questions,
        })
    }
}

impl Open {
    /// Whether the ear is renewed: nobody has to listen while nobody waits.
    fn is_alive(&self) -> bool {
        !self.ear.has_ended(Moment::now().plus(self.ear.span / 4))
    }

    /// What has come; an error where the connection is of no use any more.
    fn tend(&mut self, (any, own_keys): (&[u8], &OwnKeys)) -> Result<Vec<Notice>, Error> {
        self.wire.glance()?;
        let (mut notices, ear) = (Vec::new(), self.ear);
        // Our own clock stands in for a server's, of which etcd shows none. A waiter that comes too late for
        // what is left would find its place ended: it takes the lock from its place instead.
        let validity = |since: Moment, span: Duration| {
            let (now, span_left) = (Moment::now(), span / USEFUL);
            let since = ear.counts_from(span, now).min(since);
            (since.plus(span) > now.plus(span_left)).then(|| (micros(since), span))
        };
        while let Some(next) = self.wire.next(self.watching)? {
            let told = next.map_err(|end| fault::ended(&end, Moment::ZERO).error)?;
            let told = Told::read(&told).ok_or_else(fault::foreign)?;
            match self.waits.hear(&told, validity).map_err(|why| fault::server(7, &why))? {
                Some(Heard::Told(notice)) => notices.push(notice),
                Some(Heard::Asks(question)) => {
                    let stream = self.wire.begin(messages::TXN);
                    self.wire.write(stream, &question.txn.0, true);
                    self.questions.push((stream, question));
                }
                None => {}
            }
        }
        for (stream, question) in std::mem::take(&mut self.questions) {
            let Some(next) = self.wire.next(stream)? else {
                self.questions.push((stream, question));
                continue;
            };
            self.wire.leave(stream);
            let done = next.ok().and_then(|answer| Done::read(&answer));
            let (notice, messages) = self.waits.answered(&question, done, validity);
            notices.extend(notice);
            for message in &messages {
                self.wire.write(self.watching, message, false);
            }
        }
        for notice in &notices {
            // Who does not claim it loses it then, though the ear lives on.
            if let Notice::Granted { token, server, span, .. } = notice {
                let since = Moment::from_nanos(server.saturating_mul(1000));
                own_keys.promise(*token, since.plus(*span));
            }
        }
        self.renew(any, &mut notices)?;
        Ok(notices)
    }

    fn renew(&mut self, any: &[u8], notices: &mut Vec<Notice>) -> Result<(), Error> {
        loop {
            match self.renewal {
                Renewal::Due(at) if Moment::now() < at => break,
                Renewal::Due(_) => {
                    self.renewal = Renewal::Asked(Moment::now());
                    let message = messages::of_lease(self.ear.id);
                    self.wire.write(self.renewing, &message, false);
                }
                Renewal::Asked(sent) => {
                    let Some(next) = self.wire.next(self.renewing)? else { break };
                    let next = next.map_err(|end| fault::ended(&end, Moment::ZERO).error)?;
                    let lives = Lives::read(&next).ok_or_else(fault::foreign)?;
                    if lives.seconds <= 0 {
                        let ended = "nobody listened for so long that the places are gone";
                        return Err(Error::new(ErrorKind::Unavailable, ended));
                    }
                    self.ear.renewed(sent, lives.term);
                    for (tokens, look) in self.waits.looks(any) {
                        let stream = self.wire.begin(messages::TXN);
                        self.wire.write(stream, &look.0, true);
                        self.looks.push((stream, tokens));
                    }
                    self.renewal = Renewal::Confirming(sent, lives.term, true);
                }
                Renewal::Confirming(sent, term, mut is_led) => {
                    for (stream, tokens) in std::mem::take(&mut self.looks) {
                        let Some(next) = self.wire.next(stream)? else {
                            self.looks.push((stream, tokens));
                            continue;
                        };
                        self.wire.leave(stream);
                        let next = next.map_err(|end| fault::ended(&end, Moment::ZERO).error)?;
                        let done = Done::read(&next).ok_or_else(fault::foreign)?;
                        if done.term != term {
                            is_led = false;
                            continue;
                        }
                        self.ear.confirm(term);
                        for (token, part) in tokens.into_iter().zip(done.parts.iter().skip(1)) {
                            let place = (part.keys.first(), done.revision);
                            notices.extend(self.waits.looked(token, place, sent));
                        }
                    }
                    if !self.looks.is_empty() {
                        self.renewal = Renewal::Confirming(sent, term, is_led);
                        break;
                    }
                    // Else the leader has changed, and it is asked again at once.
                    let again = if is_led { sent.plus(self.every) } else { Moment::now() };
                    self.renewal = Renewal::Due(again);
                }
            }
        }
        self.wire.send_some(Deadline::after(SOON))
    }

    /// When something is to be done next, and whether it is that an answer is overdue.
    fn due(&self, io_timeout: Duration) -> (Moment, bool) {
        match self.renewal {
            Renewal::Due(at) => (at, false),
            Renewal::Asked(sent) | Renewal::Confirming(sent, ..) => (sent.plus(io_timeout), true),
        }
    }
}

impl store::Listener for Listener {
    fn are_open(&self, _name: &[u8]) -> bool {
        self.are_any_open()
    }

    fn are_any_open(&self) -> bool {
        self.ear().is_some()
    }

    fn open(&self, _name: &[u8], deadline: Deadline) -> Result<ServerId, Error> {
        if self.are_any_open() {
            return Ok(self.me);
        }
        self.end(0);
        if let Some((until, error)) = &self.state.lock().resting
            && Moment::now() < *until
        {
            return Err(error.clone());
        }
        let began = Moment::now();
        let made = self.subscribe(deadline);
        let (mut state, now) = (self.state.lock(), Moment::now());
        state.opening = None;
        if state.closed {
            return Err(Error::bare(ErrorKind::Closed));
        }
        match made {
            Ok(open) => {
                (state.open, state.resting) = (Some(open), None);
                Ok(self.me)
            }
            Err(error) => {
                let rest = match error.is_retriable() {
                    false => rest_after(&error),
                    // As long as the attempt took: half of the time is for requests.
                    true => now.since(began).clamp(LEAST_REST, self.io_timeout.max(LEAST_REST)),
                };
                state.resting = Some((now.plus(rest), error.clone()));
                Err(error)
            }
        }
    }

    fn hear(&self, until: Moment) -> Result<Vec<(Teller, Notice)>, Error> {
        let Some(_turn) = self.turn.enter(Deadline::at(until)) else {
            return Ok(Vec::new());
        };
        loop {
            let mut state = self.state.lock();
            if state.closed {
                return Err(Error::bare(ErrorKind::Closed));
            }
            let Some(open) = &mut state.open else {
                return Err(Error::new(ErrorKind::Refused, "nobody is connected to hear wake-ups"));
            };
            let heard = open.tend((&self.any, &self.own_keys)).and_then(|notices| {
                let (due, is_overdue) = open.due(self.io_timeout);
                if is_overdue && Moment::now() >= due {
                    let silent = "the wake-up connection is silent";
                    return Err(Error::new(ErrorKind::NoAnswer, silent));
                }
                Ok((notices, due))
            });
            let (notices, due) = match heard {
                Ok(heard) => heard,
                Err(error) => {
                    if !self.dialer.is_forgotten(&open.wire, &error) {
                        self.dialer.doubt(&open.wire);
                    }
                    self.own_keys.ear_ended(open.ear.id);
                    state.open = None;
                    if !error.is_retriable() {
                        state.resting =
                            Some((Moment::now().plus(rest_after(&error)), error.clone()));
                    }
                    return Err(error);
                }
            };
            if !notices.is_empty() || Moment::now() >= until {
                let by = Teller { server: self.me, since: open.opened };
                return Ok(notices.into_iter().map(|notice| (by, notice)).collect());
            }
            let again = if open.wire.is_all_sent() { due } else { Moment::now().plus(SOON) };
            let socket = Arc::clone(&open.socket);
            drop(state);
            readable(&[socket.as_fd()], again.min(due).min(until));
        }
    }

    fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let open = state.open.take().map(|open| Arc::clone(&open.socket));
        for socket in open.iter().map(AsRef::as_ref).chain(state.opening.as_ref()) {
            let _ = socket.shutdown(Shutdown::Both);
        }
        state.opening = None;
    }
}
