//! Where this client is told that a lock was handed to it: one connection that LISTENs on a channel
//! of the client's own, read by a thread that waits.
//!
//! It holds an advisory lock for as long as it is there, its ear: who hands a lock over tries that
//! lock, and passes over a waiter that nobody can tell anything.

use std::sync::Arc;
use std::time::Duration;

use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;

use super::dial::{Dialer, Purpose};
use super::wire::{Refusal, Wire, unexpected};
use crate::clock::{Deadline, Moment};
use crate::config::limits::MAX_FENCE;
use crate::error::{Error, ErrorKind};
use crate::store::net::dial::Show;
use crate::store::net::seat::Line;
use crate::store::net::wake_up::WakeUp;
use crate::store::{self, Notice, ServerId, Teller};
use crate::sync::Turnstile;
use crate::token::Token;

/// After so much silence the server is asked whether it is there.
const QUIET: Duration = Duration::from_secs(5);

/// The last word of a notice where grants wait for standbys.
const STANDBYS: &str = " standbys";

pub(super) struct Listener {
    dialer: Arc<Dialer>,
    io_timeout: Duration,
    prefix: Vec<u8>,
    /// Of the thread that listens.
    subscription: Turnstile<Option<Subscription>>,
    wake_up: WakeUp<Open>,
}

struct Subscription {
    wire: Wire,
    opened: Moment,
    alive: Moment,
    asked: Option<Moment>,
}

struct Open {
    server: ServerId,
    ear: u64,
    /// Until a thread listens to it.
    made: Option<Subscription>,
}

impl Listener {
    pub(super) fn new(dialer: Arc<Dialer>, io_timeout: Duration, prefix: Vec<u8>) -> Listener {
        let (subscription, wake_up) = (Turnstile::default(), WakeUp::new(io_timeout));
        Listener { dialer, io_timeout, prefix, subscription, wake_up }
    }

    /// The ear by which waiters are known, if there is one.
    pub(super) fn ear(&self) -> Option<u64> {
        self.wake_up.with(|open, _| open.ear)
    }

    fn subscribe(&self, deadline: Deadline, show: &Show<'_>) -> Result<Open, Error> {
        let mut wire = self.dialer.dial(Purpose::Listening, deadline, show)?;
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
        let (server, now) = (wire.server, Moment::now());
        let made = Subscription { wire, opened: now, alive: now, asked: None };
        Ok(Open { server, ear, made: Some(made) })
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
            let now = Moment::now();
            let (alive, asked) = (subscription.alive, subscription.asked);
            let due = asked.map_or(alive.plus(QUIET), |asked| asked.plus(self.io_timeout));
            if now >= until {
                // What lies there already is heard all the same.
                is_over = true;
                subscription.wire.reader.glance()?;
            } else if now < due {
                subscription.wire.reader.wait(Deadline::at(due.min(until)))?;
            } else if subscription.wire.reader.glance()?.is_some() {
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
        self.ear().is_some()
    }

    fn open(&self, name: &[u8], deadline: Deadline) -> Result<ServerId, Error> {
        if !super::is_told(&self.prefix, name) {
            let long = "nobody is told of a name that is as long as this";
            return Err(Error::new(ErrorKind::Permission, long));
        }
        if let Some(server) = self.wake_up.with(|open, _| open.server) {
            return Ok(server);
        }
        self.wake_up.open(|show| {
            let open = self.subscribe(deadline, show)?;
            let server = open.server;
            Ok((open, server))
        })
    }

    fn hear(&self, until: Moment) -> Result<Vec<(Teller, Notice)>, Error> {
        let Some(mut current) = self.subscription.enter(Deadline::at(until)) else {
            return Ok(Vec::new());
        };
        let made = self.wake_up.tend(|open, _| Ok(open.made.take()));
        if let Some(made) = made.inspect_err(|_| *current = None)? {
            *current = Some(made);
        }
        // It is read outside of the lock that all threads take: reading waits.
        let Some(subscription) = &mut *current else {
            return Err(Error::bare(ErrorKind::Refused));
        };
        let heard = self.tend(subscription, until);
        if let Err(error) = &heard {
            *current = None;
            // With the same error it is over for all threads.
            let _ = self.wake_up.tend::<()>(|_, _| Err(error.clone()));
        }
        heard
    }

    fn close(&self) {
        self.wake_up.close();
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
