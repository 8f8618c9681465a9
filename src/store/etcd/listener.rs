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
use super::places::Places;
use super::waits::{Heard, Question, Wait, Waits};
use super::wire::Wire;
use super::{fault, micros};
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::net::dial::Show;
use crate::store::net::poll::readable;
use crate::store::net::wake_up::WakeUp;
use crate::store::{self, Notice, ServerId, Teller};
use crate::sync::Turnstile;
use crate::token::Token;

/// What the server does not take in this time goes out later: others wait meanwhile.
const SOON: Duration = Duration::from_millis(10);
/// An ear lives for so much longer than a claim window: a lease is told of in whole seconds, and by what is
/// left of it others see that nobody has renewed it for a claim window.
const MORE: Duration = Duration::from_secs(1);
/// Of a hand-over of which less than this part is left, its waiter is told that it may ask.
const USEFUL: u32 = 4;

pub(super) struct Listener {
    dialer: Arc<Dialer>,
    places: Arc<Places>,
    io_timeout: Duration,
    claim_window: Duration,
    /// A key that may be asked for.
    any: Vec<u8>,
    me: ServerId,
    /// Of the thread that listens.
    turn: Turnstile<()>,
    wake_up: WakeUp<Open>,
}

struct Open {
    wire: Wire,
    opened: Moment,
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
        (dialer, places): (Arc<Dialer>, Arc<Places>),
        (io_timeout, claim_window): (Duration, Duration),
        any: Vec<u8>,
        me: ServerId,
    ) -> Listener {
        let (turn, wake_up) = (Turnstile::default(), WakeUp::new(io_timeout));
        Listener { dialer, places, io_timeout, claim_window, any, me, turn, wake_up }
    }

    /// The ear under which places are taken, if there is one.
    pub(super) fn ear(&self) -> Option<i64> {
        self.wake_up.with(|open, _| open.is_alive().then_some(open.ear.id)).flatten()
    }

    /// Nothing is heard by this ear any more: what may still be on its way could leave a place for
    /// which nobody waits, and it ends with the ear. A later ear has nothing to do with it. Where it is
    /// not known under which ear something is, that is 0, and any ear ends.
    pub(super) fn end(&self, ear: i64) {
        self.wake_up.end_if(|open| {
            let is_that = ear == 0 || open.ear.id == ear;
            if is_that {
                self.places.ear_ended(open.ear.id);
            }
            is_that
        });
    }

    /// A place waits to be told. False if it is under the ear of an earlier connection, which may end
    /// while this one's lives.
    pub(super) fn follow(&self, ear: i64, token: Token, wait: Wait, revision: u64) -> bool {
        let followed = self.wake_up.with(|open, socket| {
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
                let _ = socket.shutdown(Shutdown::Both);
            }
            true
        });
        followed.unwrap_or(true)
    }

    pub(super) fn forget(&self, token: Token) {
        self.wake_up.with(|open, _| open.waits.forget(token));
    }

    /// A place is another token's from now on; not if it was told something.
    pub(super) fn rename(&self, from: Token, to: Token) -> bool {
        self.wake_up.with(|open, _| open.waits.rename(from, to)).unwrap_or(false)
    }

    /// Which names are waited for here, by what their keys begin with.
    pub(super) fn names(&self) -> HashSet<Vec<u8>> {
        self.wake_up.with(|open, _| open.waits.names()).unwrap_or_default()
    }

    pub(super) fn waits_for(&self, name: &[u8]) -> Option<Token> {
        self.wake_up.with(|open, _| open.waits.of(name)).flatten()
    }

    /// For how long a lock is handed over to a waiter with this ttl.
    pub(super) fn span(&self, ttl: Duration) -> Duration {
        self.claim_window.min(ttl)
    }

    fn subscribe(&self, deadline: Deadline, show: &Show<'_>) -> Result<Open, Error> {
        let mut wire = self.dialer.dial(deadline, show)?;
        // Never the same again: what was meant for an earlier connection does not reach this one.
        let ear = Leases::exactly(&mut wire, self.claim_window + MORE, deadline);
        let ear = ear.map_err(|failure| failure.error);
        let ear = ear.inspect_err(|error| _ = self.dialer.is_forgotten(&wire, error))?;
        let (watching, renewing) = (wire.begin(messages::WATCH), wire.begin(messages::KEEP_ALIVE));
        wire.send(deadline).map_err(|(_, error)| error)?;
        let (opened, waits, questions) = (Moment::now(), Waits::default(), Vec::new());
        let every = (ear.span / 4).min(self.claim_window / 3).max(SOON);
        let (renewal, looks) = (Renewal::Due(opened.plus(every)), Vec::new());
        Ok(Open { wire, opened, ear, watching, renewing, renewal, every, looks, waits, questions })
    }
}

impl Open {
    /// Whether the ear is renewed: nobody has to listen while nobody waits.
    fn is_alive(&self) -> bool {
        !self.ear.has_ended(Moment::now().plus(self.ear.span / 4))
    }

    /// What has come, and when something is to be done next; an error where the connection is of no use any
    /// more.
    fn hear(
        &mut self,
        by: (&[u8], &Places),
        io_timeout: Duration,
    ) -> Result<(Vec<Notice>, Moment), Error> {
        let notices = self.tend(by)?;
        let (due, is_overdue) = self.due(io_timeout);
        if is_overdue && Moment::now() >= due {
            return Err(Error::new(ErrorKind::NoAnswer, "the wake-up connection is silent"));
        }
        Ok((notices, due))
    }

    fn tend(&mut self, (any, places): (&[u8], &Places)) -> Result<Vec<Notice>, Error> {
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
                places.promise(*token, since.plus(*span));
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
        self.wake_up.open(|show| Ok((self.subscribe(deadline, show)?, self.me)))
    }

    fn hear(&self, until: Moment) -> Result<Vec<(Teller, Notice)>, Error> {
        let Some(_turn) = self.turn.enter(Deadline::at(until)) else {
            return Ok(Vec::new());
        };
        loop {
            let (notices, by, again, socket) = self.wake_up.tend(|open, socket| {
                let heard = open.hear((&self.any, &self.places), self.io_timeout);
                let (notices, due) = heard.inspect_err(|error| {
                    if !self.dialer.is_forgotten(&open.wire, error) {
                        self.dialer.doubt(&open.wire);
                    }
                    self.places.ear_ended(open.ear.id);
                })?;
                let again = if open.wire.is_all_sent() { due } else { Moment::now().plus(SOON) };
                let by = Teller { server: self.me, since: open.opened };
                Ok((notices, by, again.min(due), Arc::clone(socket)))
            })?;
            if !notices.is_empty() || Moment::now() >= until {
                return Ok(notices.into_iter().map(|notice| (by, notice)).collect());
            }
            readable(&[socket.as_fd()], again.min(until));
        }
    }

    fn close(&self) {
        self.wake_up.close();
    }
}
