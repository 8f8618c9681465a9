//! Where this client is told that a lock was handed to it: one connection that LISTENs on a channel
//! of the client's own, read by a thread that waits.
//!
//! It holds an advisory lock for as long as it is there, its ear: who hands a lock over tries that
//! lock, and passes over a waiter that nobody can tell anything.

use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;

use super::dial::{Dialer, Purpose};
use super::fault;
use super::wire::{Refusal, Wire, unexpected};
use crate::clock::{Deadline, Moment};
use crate::config::limits::MAX_FENCE;
use crate::error::{Error, ErrorKind};
use crate::store::net::seat::Line;
use crate::store::{self, Notice, ServerId, Teller, rest_after};
use crate::sync::{Mutex, Turnstile};
use crate::token::Token;

/// After so much silence the server is asked whether it is there.
const QUIET: Duration = Duration::from_secs(5);
/// After a connection could not be made.
const LEAST_REST: Duration = Duration::from_millis(100);

/// The last word of a notice where grants wait for standbys.
const STANDBYS: &str = " standbys";

pub(super) struct Listener {
    dialer: Arc<Dialer>,
    io_timeout: Duration,
    prefix: Vec<u8>,
    /// Of the thread that listens.
    subscription: Turnstile<Option<Subscription>>,
    state: Mutex<State>,
}

struct Subscription {
    wire: Wire,
    ear: u64,
    opened: Moment,
    alive: Moment,
    asked: Option<Moment>,
}

/// What all threads know. By this, closing reaches a thread that listens, or connects.
#[derive(Default)]
struct State {
    closed: bool,
    open: Option<Open>,
    /// The one that is open, until a thread listens to it.
    made: Option<Subscription>,
    /// A second handle on the socket of one that is being made.
    opening: Option<socket2::Socket>,
    /// None is made before, and why.
    resting: Option<(Moment, Error)>,
}

struct Open {
    server: ServerId,
    ear: u64,
    socket: Option<socket2::Socket>,
}

impl Listener {
    pub(super) fn new(dialer: Arc<Dialer>, io_timeout: Duration, prefix: Vec<u8>) -> Listener {
        let (subscription, state) = Default::default();
        Listener { dialer, io_timeout, prefix, subscription, state }
    }

    /// The ear by which waiters are known, if there is one.
    pub(super) fn ear(&self) -> Option<u64> {
        self.state.lock().open.as_ref().map(|open| open.ear)
    }

    fn subscribe(&self, deadline: Deadline) -> Result<Subscription, Error> {
        let keep_handle = |socket: &socket2::Socket| {
            let mut state = self.state.lock();
            if state.closed {
                return Err(Error::bare(ErrorKind::Closed));
            }
            let handle =
                socket.try_clone().map_err(|error| fault::io("a second handle", &error))?;
            state.opening = Some(handle);
            Ok(())
        };
        let mut wire = self.dialer.dial(Purpose::Listening, deadline, &keep_handle)?;
        if wire.behind_pooler {
            let deaf = "behind a pooler nobody is told anything";
            return Err(Error::new(ErrorKind::Permission, deaf));
        }
        // Never the same again: what was meant for an earlier connection does not reach this one.
        let ear = Token::random()?.seed() >> 1;
        let listen = format!("LISTEN leasehold_{ear:x}; SELECT pg_try_advisory_lock({ear})");
        let (rows, refused) = wire.ask(&listen, 2, deadline)?;
        if let Some(refusal) = refused {
            return Err(refusal.error);
        }
        if rows.last().and_then(|row| row.as_ref()?.column(0)) != Some(b"t") {
            return Err(unexpected("that another client has the same ear"));
        }
        let now = Moment::now();
        Ok(Subscription { wire, ear, opened: now, alive: now, asked: None })
    }

    /// What has come; an error where the connection is of no use any more.
    fn tend(
        &self,
        subscription: &mut Subscription,
        until: Moment,
    ) -> Result<Vec<(Teller, Notice)>, Error> {
        let by = Teller { server: subscription.wire.server, since: subscription.opened };
        let mut is_over = false;
        loop {
            let mut notices = Vec::new();
            while let Some(message) = subscription.wire.next_message()? {
                (subscription.alive, subscription.asked) = (Moment::now(), None);
                match message {
                    Message::NotificationResponse(body) => {
                        let text = body.message().unwrap_or_default();
                        if let Some(notice) = read(text, &self.prefix) {
                            // Newer than what was seen when a connection was made.
                            self.dialer.note_standbys(text.ends_with(STANDBYS));
                            notices.push((by, notice));
                        }
                    }
                    Message::ErrorResponse(body) => {
                        return Err(Refusal::read(body.fields()).error);
                    }
                    _ => {}
                }
            }
            if !notices.is_empty() || is_over {
                return Ok(notices);
            }
            if subscription.wire.is_retired() {
                let retired = "its credentials have ended: another connection takes its place";
                return Err(Error::new(ErrorKind::Unavailable, retired));
            }
            let now = Moment::now();
            let (alive, asked) = (subscription.alive, subscription.asked);
            let due = asked.map_or(alive.plus(QUIET), |asked| asked.plus(self.io_timeout));
            let login = subscription.wire.login.as_ref();
            let look = login.map_or(Moment::NEVER, |login| now.plus(login.look_every()));
            if now >= until {
                // What lies there already is heard all the same.
                is_over = true;
                subscription.wire.glance()?;
            } else if now < due {
                subscription.wire.wait(Deadline::at(due.min(until).min(look)))?;
            } else if subscription.wire.glance()? {
                // It may have lain there since long before.
            } else if asked.is_some() {
                return Err(Error::new(ErrorKind::NoAnswer, "the wake-up connection is silent"));
            } else {
                subscription.wire.write(|out| frontend::query("", out))?;
                let patience = Deadline::after(self.io_timeout);
                subscription.wire.send(patience).map_err(|(_, error)| error)?;
                subscription.asked = Some(now);
            }
        }
    }
}

impl store::Listener for Listener {
    fn are_open(&self, name: &[u8]) -> bool {
        super::is_told(&self.prefix, name) && self.are_any_open()
    }

    fn are_any_open(&self) -> bool {
        self.state.lock().open.is_some()
    }

    fn open(&self, name: &[u8], deadline: Deadline) -> Result<ServerId, Error> {
        if !super::is_told(&self.prefix, name) {
            let long = "nobody is told of a name that is as long as this";
            return Err(Error::new(ErrorKind::Permission, long));
        }
        let state = self.state.lock();
        if let Some(open) = &state.open {
            return Ok(open.server);
        }
        if let Some((until, error)) = &state.resting
            && Moment::now() < *until
        {
            return Err(error.clone());
        }
        drop(state);
        let began = Moment::now();
        let made = self.subscribe(deadline);
        let (mut state, now) = (self.state.lock(), Moment::now());
        let socket = state.opening.take();
        if state.closed {
            return Err(Error::bare(ErrorKind::Closed));
        }
        match made {
            Ok(subscription) => {
                let (server, ear) = (subscription.wire.server, subscription.ear);
                state.open = Some(Open { server, ear, socket });
                (state.made, state.resting) = (Some(subscription), None);
                Ok(server)
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
        let Some(mut current) = self.subscription.enter(Deadline::at(until)) else {
            return Ok(Vec::new());
        };
        let mut state = self.state.lock();
        if state.closed {
            *current = None;
            return Err(Error::bare(ErrorKind::Closed));
        }
        if let Some(made) = state.made.take() {
            *current = Some(made);
        }
        drop(state);
        let Some(subscription) = &mut *current else {
            return Err(Error::new(ErrorKind::Refused, "nobody is connected to hear wake-ups"));
        };
        let heard = self.tend(subscription, until);
        if let Err(error) = &heard {
            let mut state = self.state.lock();
            (state.open, *current) = (None, None);
            if !error.is_retriable() {
                state.resting = Some((Moment::now().plus(rest_after(error)), error.clone()));
            }
        }
        heard
    }

    fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.made = None;
        let open = state.open.take().and_then(|open| open.socket);
        for socket in [open, state.opening.take()].into_iter().flatten() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        drop(state);
        // A thread that reads it now drops it.
        if let Some(mut current) = self.subscription.enter_now() {
            *current = None;
        }
    }
}

/// Reads what take.sql and told.sql say; `None` if it is nothing that a client with this prefix is told.
fn read(payload: &str, prefix: &[u8]) -> Option<Notice> {
    let mut words = payload.split(' ');
    let token = words.next()?.replace('-', "").parse().ok()?;
    let mut number = || words.next()?.parse::<u64>().ok();
    let (fence, block, server, span) = (number()?, number()?, number()?, number()?);
    let last = fence.checked_add(block)?.checked_sub(1)?;
    if fence == 0 || block == 0 || last > MAX_FENCE {
        return None;
    }
    let (block, span) = (block.try_into().ok()?, Duration::from_micros(span));
    let digits = words.next()?;
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    let name: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
    let name = name?.strip_prefix(prefix)?.to_vec();
    (!name.is_empty()).then_some(Notice::Granted { name, token, fence, block, server, span })
}
