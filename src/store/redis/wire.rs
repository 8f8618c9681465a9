//! One connection: bytes out, replies in, each by a deadline.
//!
//! The socket is our own. The `redis` crate's connection has a timeout for each read, stays open
//! after a write that stopped halfway, and does not go on after a signal.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use redis::Value;

use super::dialect::RunId;
use super::frame::{self, LONGEST, Progress};
use super::unread::UnreadReplies;
use crate::clock::{Deadline, Moment};
use crate::config::Login;
use crate::error::{Error, ErrorKind};
use crate::store::ServerId;
use crate::store::net::pool;
use crate::store::net::stranger::Kind;
use crate::store::net::stream::{LEAST, Stream};

/// A seat for one, in use.
pub(super) type Lent<'a> = pool::Lent<'a, Wire>;

pub(super) struct Wire {
    pub(super) stream: Stream,
    /// What has come and was not read yet, up to `filled`.
    inbox: Vec<u8>,
    filled: usize,
    /// Something has come at all.
    has_answered: bool,
    first: Progress,
    pub(super) server: ServerId,
    /// Where that was asked.
    pub(super) run: Option<RunId>,
    /// The server has said that it is not the one to ask.
    pub(super) is_demoted: bool,
    /// What it logged in with, where that can change.
    pub(super) login: Option<Arc<Login>>,
    /// It speaks RESP3, in which a subscriber can log in again.
    pub(super) is_resp3: bool,
    /// The server has refused newer credentials on it: another one takes its place.
    pub(super) is_refused: bool,
    pub(super) unread: UnreadReplies,
}

const INBOX: usize = 1024;

/// After so much, time and other connections are looked at: a server may send faster than we read.
pub(super) const AT_ONCE: usize = 64 * 1024;

impl Wire {
    pub(super) fn new(socket: socket2::Socket, server: ServerId) -> Wire {
        Wire {
            stream: Stream::new(socket),
            inbox: vec![0; INBOX],
            filled: 0,
            has_answered: false,
            first: Progress::default(),
            server,
            run: None,
            is_demoted: false,
            login: None,
            is_resp3: false,
            is_refused: false,
            unread: UnreadReplies::new(server),
        }
    }

    /// On an error, tells how many bytes had gone out: with none, there is nothing to carry out.
    pub(super) fn send(&mut self, bytes: &[u8], by: Deadline) -> Result<(), (usize, io::Error)> {
        self.stream.send(bytes, by)
    }

    /// After an error the connection is of no use any more (what comes next could be the answer to
    /// something else), unless only the deadline had passed and the reply is still waited for.
    pub(super) fn receive(&mut self, deadline: Deadline) -> Result<Value, Error> {
        loop {
            if self.filled == 0 {
                self.read(deadline)?;
            }
            if let Some(value) = frame::lone(&self.inbox[..self.filled]) {
                (self.first, self.filled) = (Progress::default(), 0);
                return Ok(value);
            }
            let length = self.first.length(&self.inbox[..self.filled]);
            if let Some(length) = length.map_err(|error| self.doubt(error))? {
                let value = frame::value(&self.inbox[..length])?;
                self.first = Progress::default();
                self.forget(length);
                return Ok(value);
            }
            self.read(deadline)?;
        }
    }

    /// Reads once what comes by then; false if nothing does. The connection stays usable: a reply
    /// that has come in part is kept.
    pub(super) fn wait(&mut self, until: Deadline) -> Result<bool, Error> {
        match self.read(until) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NoAnswer => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) fn glance(&mut self) -> Result<usize, Error> {
        let before = self.filled;
        loop {
            // Reading what TLS has decrypted takes no time, nor does reading the socket, unless a
            // part of an encrypted record is missing.
            let passed = Deadline::at(Moment::ZERO);
            let came = self.wait(passed).and_then(|came| {
                Ok(came || (!self.stream.is_silent() && self.wait(Deadline::after(LEAST))?))
            });
            match (came, self.filled - before) {
                (Ok(true), count) if count < AT_ONCE => {}
                (Err(error), 0) => return Err(error),
                // What came before an error comes first; the error is met again.
                (_, count) => return Ok(count),
            }
        }
    }

    /// Whether `count` replies have come whole by then, or no more will come.
    pub(super) fn has_whole(&mut self, count: usize, until: Deadline) -> bool {
        let (mut start, mut whole, mut next) = (0, 0, Progress::default());
        loop {
            while whole < count {
                match next.length(&self.inbox[start..self.filled]) {
                    Ok(Some(length)) => {
                        (start, whole, next) = (start + length, whole + 1, Progress::default());
                    }
                    Ok(None) => break,
                    Err(_) => return true,
                }
            }
            let came = match until.has_passed() {
                _ if whole == count => return true,
                true => self.glance().map(|count| count > 0),
                false => self.wait(until),
            };
            match came {
                Ok(true) => {}
                Ok(false) => return false,
                Err(_) => return true,
            }
        }
    }

    pub(super) fn each_whole(
        &mut self,
        mut take: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut start = 0;
        let sorted = loop {
            let length = match self.first.length(&self.inbox[start..self.filled]) {
                Ok(Some(length)) => length,
                Ok(None) => break Ok(()),
                Err(error) => break Err(self.doubt(error)),
            };
            self.first = Progress::default();
            if let Err(error) = take(&self.inbox[start..start + length]) {
                break Err(error);
            }
            start += length;
        };
        // Also before one that is wrong, which is met again: else all of them would be.
        self.forget(start);
        sorted
    }

    fn forget(&mut self, count: usize) {
        self.inbox.copy_within(count..self.filled, 0);
        self.filled -= count;
    }

    fn read(&mut self, until: Deadline) -> Result<(), Error> {
        if self.filled == LONGEST {
            return Err(frame::too_long(&self.inbox));
        }
        if self.filled == self.inbox.len() {
            self.inbox.resize((2 * self.filled).min(LONGEST), 0);
        }
        let end = self.inbox.len().min(self.filled + AT_ONCE);
        match self.stream.read(&mut self.inbox[self.filled..end], until) {
            Ok(0) => Err(self.hung_up(&io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                (self.filled, self.has_answered) = (self.filled + count, true);
                Ok(())
            }
            Err(error) => Err(self.hung_up(&error)),
        }
    }

    fn hung_up(&self, error: &io::Error) -> Error {
        use io::ErrorKind::*;
        let what = match error.kind() {
            // So does a server that expects TLS.
            UnexpectedEof | ConnectionReset if !self.has_answered && !self.stream.is_tls() => {
                "the first reply (if the server speaks TLS, try rediss://)"
            }
            _ => "the reply",
        };
        self.doubt(self.stream.explain(what, error))
    }

    fn doubt(&self, error: Error) -> Error {
        self.stream.doubt(Kind::Redis, error)
    }

    /// Whether the server has closed it, or sent what nobody asked for, while it lay unused.
    pub(super) fn is_stale(&mut self, now: Moment) -> bool {
        let is_awaited = !self.unread.is_empty();
        self.stream.is_stale(now, is_awaited)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.fd()
    }
}
