//! The one connection of a client on which a server wakes its waiters.
//!
//! It is a RESP2 pub/sub connection, never one of the pool, and subscribes to one channel that is
//! this client's alone. There is no thread behind it: whoever waits reads the socket itself, so
//! that a notice costs one system call and no switch from thread to thread. It knows one server
//! and no topology.

#[cfg(test)]
mod tests;

use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::Value;

use super::dial::Dialer;
use super::wire::Wire;
use super::{fault, frame};
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::Notice;
use crate::sync::{Mutex, Turnstile};
use crate::token::Token;

/// After so much silence the server is asked whether it is there. A waiter that is not told has
/// its slow check, half a minute apart; this notices a dead connection long before, at a cost that
/// nobody sees.
const QUIET: Duration = Duration::from_secs(5);

const CHANNEL: &str = "leasehold:wake:";
const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// What the payload of a message says; `None` if it is no notice.
pub(super) type ReadNotice<'a> = &'a dyn Fn(&[u8]) -> Option<Notice>;

pub(super) struct Ears {
    dialer: Arc<Dialer>,
    io_timeout: Duration,
    channel: String,
    line: Turnstile<Option<Line>>,
    /// Whether there is a line and it is not known to be broken. Only written under the latch.
    open: AtomicBool,
    /// Whether there ever was one.
    known: AtomicBool,
    latch: Mutex<Latch>,
}

/// By this, closing reaches a thread that is reading, or connecting.
struct Latch {
    closed: bool,
    /// A second handle on the socket of the line, or of the one that is being made.
    socket: Option<socket2::Socket>,
}

impl Ears {
    /// Does not connect.
    pub(super) fn new(dialer: Arc<Dialer>, io_timeout: Duration) -> Result<Ears, Error> {
        Ok(Ears {
            dialer,
            io_timeout,
            channel: format!("{CHANNEL}{}", Token::random()?),
            line: Turnstile::default(),
            open: AtomicBool::new(false),
            known: AtomicBool::new(false),
            latch: Mutex::new(Latch { closed: false, socket: None }),
        })
    }

    /// Where notices for this client are to be published; the same for all its life.
    pub(super) fn channel(&self) -> &[u8] {
        self.channel.as_bytes()
    }

    /// Whether notices reach us, as far as anybody knows.
    pub(super) fn are_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Whether this client may stand in a queue: only then has it been open.
    pub(super) fn are_known(&self) -> bool {
        self.known.load(Ordering::Acquire)
    }

    /// Connects and subscribes, and has that acknowledged. An error that is not retriable means
    /// that this server will never let us listen.
    pub(super) fn open(&self, deadline: Deadline) -> Result<(), Error> {
        if self.are_open() {
            return Ok(());
        }
        let Some(mut line) = self.line.enter(deadline) else {
            return Err(Error::new(ErrorKind::NoAnswer, "somebody else was connecting"));
        };
        // Somebody else may have done it meanwhile.
        if self.are_open() {
            return Ok(());
        }
        *line = None;
        let made = self.subscribe(deadline).map_err(|error| self.ended(error))?;
        let latch = self.latch.lock();
        if latch.closed {
            return Err(Error::bare(ErrorKind::Closed));
        }
        *line = Some(made);
        self.known.store(true, Ordering::Release);
        self.open.store(true, Ordering::Release);
        Ok(())
    }

    fn subscribe(&self, deadline: Deadline) -> Result<Line, Error> {
        let mut wire = self.dialer.dial_shown(deadline, &|socket| self.keep_handle(socket))?;
        let subscribe = redis::cmd("SUBSCRIBE").arg(self.channel()).get_packed_command();
        wire.send(&subscribe, deadline).map_err(|(_, error)| fault::io("SUBSCRIBE", &error))?;
        match wire.receive(deadline)? {
            Value::ServerError(error) => Err(fault::server(&error)),
            Value::Array(said) if matches!(said.first(), Some(Value::BulkString(kind)) if kind == b"subscribe") => {
                Ok(Line::new(wire))
            }
            _ => Err(Error::new(ErrorKind::Protocol, "SUBSCRIBE was answered by something else")),
        }
    }

    fn keep_handle(&self, socket: &socket2::Socket) -> io::Result<()> {
        let mut latch = self.latch.lock();
        if latch.closed {
            return Err(io::ErrorKind::NotConnected.into());
        }
        latch.socket = Some(socket.try_clone()?);
        Ok(())
    }

    /// The notices that come by `until`; returns as soon as there is one. What lies there already
    /// is heard even if that moment has passed. After an error there is no connection any more.
    pub(super) fn hear(&self, until: Moment, read: ReadNotice<'_>) -> Result<Vec<Notice>, Error> {
        let Some(mut turn) = self.line.enter(Deadline::at(until)) else {
            // Somebody else listens, and nobody promised that what comes is for us.
            return Ok(Vec::new());
        };
        let heard = match &mut *turn {
            Some(line) if self.are_open() => line.hear(until, self.io_timeout, read),
            _ => Err(Error::new(ErrorKind::Refused, "nobody is connected to hear wake-ups")),
        };
        heard.map_err(|error| {
            *turn = None;
            self.ended(error)
        })
    }

    /// There is no line any more, and why.
    fn ended(&self, error: Error) -> Error {
        let mut latch = self.latch.lock();
        latch.socket = None;
        self.open.store(false, Ordering::Release);
        if latch.closed { Error::bare(ErrorKind::Closed) } else { error }
    }

    /// For good: every later call says so, and so does one that hears, or connects, at once. (One
    /// that looks up a host's name does by its deadline.)
    pub(super) fn close(&self) {
        let mut latch = self.latch.lock();
        latch.closed = true;
        self.open.store(false, Ordering::Release);
        if let Some(socket) = latch.socket.take() {
            // It fails where the server was faster.
            let _ = socket.shutdown(Shutdown::Both);
        }
        drop(latch);
        // Whoever reads it now drops it.
        if let Some(mut line) = self.line.enter_now() {
            *line = None;
        }
    }
}

/// A connection that has subscribed.
struct Line {
    wire: Wire,
    /// When the server was last known to be there.
    alive: Moment,
    /// Since when an answer to a PING is awaited.
    asked: Option<Moment>,
}

impl Line {
    fn new(wire: Wire) -> Line {
        Line { wire, alive: Moment::now(), asked: None }
    }

    fn hear(
        &mut self,
        until: Moment,
        patience: Duration,
        read: ReadNotice<'_>,
    ) -> Result<Vec<Notice>, Error> {
        loop {
            let notices = self.sort(read)?;
            if !notices.is_empty() {
                return Ok(notices);
            }
            let now = Moment::now();
            let due = self.asked.map_or(self.alive.plus(QUIET), |asked| asked.plus(patience));
            if now < until.min(due) {
                if self.wire.wait(Deadline::at(until.min(due)))? {
                    self.is_alive();
                }
            } else if self.wire.glance()? {
                // It may have lain there since long before the server went away: no sign of life.
            } else if now < due {
                return Ok(Vec::new());
            } else if self.asked.is_some() {
                return Err(Error::new(ErrorKind::NoAnswer, "no answer to a PING"));
            } else {
                let sent = self.wire.send(PING, Deadline::after(patience));
                sent.map_err(|(_, error)| fault::io("PING", &error))?;
                // Not `now`: this process may have been stopped since.
                self.asked = Some(Moment::now());
            }
        }
    }

    fn is_alive(&mut self) {
        (self.alive, self.asked) = (Moment::now(), None);
    }

    /// What has come whole: the notices, and answers to PING.
    fn sort(&mut self, read: ReadNotice<'_>) -> Result<Vec<Notice>, Error> {
        let (mut notices, mut answered) = (Vec::new(), false);
        self.wire.each_whole(|reply| {
            match frame::push(reply) {
                Some(frame::Push { kind: b"message", payload }) => match read(payload) {
                    Some(notice) => notices.push(notice),
                    // Not what it says: it may be a token.
                    None => log::debug!("skipped a wake-up of {} unknown bytes", payload.len()),
                },
                Some(frame::Push { kind: b"unsubscribe", .. }) => {
                    let ended = "the server ended the subscription";
                    return Err(Error::new(ErrorKind::Refused, ended));
                }
                // An error is an answer to PING, too: that this user must not ask.
                _ => answered = true,
            }
            Ok(())
        })?;
        if answered {
            self.is_alive();
        }
        Ok(notices)
    }
}
