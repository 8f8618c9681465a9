//! One connection: bytes out, replies in, each by a deadline.
//!
//! The socket is our own. The `redis` crate's connection has a timeout for each read, which a
//! server that sends one byte now and then never reaches, stays open after a write that stopped
//! halfway, and does not go on after a signal.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use redis::Value;

use super::dialect::RunId;
use super::fault;
use super::frame::{self, LONGEST, Progress};
use super::unread::Unread;
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::ServerId;

pub(super) struct Wire {
    pub(super) socket: Socket,
    #[cfg(feature = "tls")]
    pub(super) tls: Option<rustls::ClientConnection>,
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
    pub(super) unread: Unread,
}

const INBOX: usize = 1024;

/// After so much, time and other connections are looked at: a server may send faster than we read.
pub(super) const AT_ONCE: usize = 64 * 1024;

/// How long a connection may lie unused before it is asked whether the server has closed it.
const FRESH: Duration = Duration::from_millis(100);

impl Wire {
    pub(super) fn new(socket: socket2::Socket, server: ServerId) -> Wire {
        Wire {
            socket: Socket {
                inner: socket,
                deadline: Deadline::at(Moment::ZERO),
                used: Moment::now(),
                receive: Duration::ZERO,
                send: Duration::ZERO,
            },
            #[cfg(feature = "tls")]
            tls: None,
            inbox: vec![0; INBOX],
            filled: 0,
            has_answered: false,
            first: Progress::default(),
            server,
            run: None,
            is_demoted: false,
            unread: Unread::new(server),
        }
    }

    /// On an error, tells how many bytes had gone out: with none, there is nothing to carry out.
    pub(super) fn send(&mut self, bytes: &[u8], by: Deadline) -> Result<(), (usize, io::Error)> {
        self.socket.deadline = by;
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            return send(&mut rustls::Stream::new(tls, &mut self.socket), bytes);
        }
        send(&mut self.socket, bytes)
    }

    /// After an error the connection is of no use any more (what comes next could be the answer to
    /// something else), unless only the deadline had passed and the reply is still waited for.
    pub(super) fn receive(&mut self, deadline: Deadline) -> Result<Value, Error> {
        self.socket.deadline = deadline;
        loop {
            if self.filled == 0 {
                self.read()?;
            }
            if let Some(value) = frame::lone(&self.inbox[..self.filled]) {
                (self.first, self.filled) = (Progress::default(), 0);
                return Ok(value);
            }
            if let Some(length) = self.first.length(&self.inbox[..self.filled])? {
                let value = frame::value(&self.inbox[..length])?;
                self.first = Progress::default();
                self.forget(length);
                return Ok(value);
            }
            self.read()?;
        }
    }

    /// Reads once what comes by then; false if nothing does. The connection stays usable: a reply
    /// that has come in part is kept.
    pub(super) fn wait(&mut self, until: Deadline) -> Result<bool, Error> {
        self.socket.deadline = until;
        match self.read() {
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
                Ok(came || (!self.is_silent() && self.wait(Deadline::after(LEAST))?))
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
                Err(error) => break Err(error),
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

    fn read(&mut self) -> Result<(), Error> {
        if self.filled == LONGEST {
            return Err(frame::too_long(&self.inbox));
        }
        if self.filled == self.inbox.len() {
            self.inbox.resize((2 * self.filled).min(LONGEST), 0);
        }
        let end = self.inbox.len().min(self.filled + AT_ONCE);
        let room = &mut self.inbox[self.filled..end];
        #[cfg(feature = "tls")]
        let count = match &mut self.tls {
            Some(tls) => rustls::Stream::new(tls, &mut self.socket).read(room),
            None => self.socket.read(room),
        };
        #[cfg(not(feature = "tls"))]
        let count = self.socket.read(room);
        match count {
            // A server may tell only after the handshake that it wants a certificate.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                #[cfg(feature = "tls")]
                return Err(super::tls::explain(&error));
                #[cfg(not(feature = "tls"))]
                Err(fault::io("the reply", &error))
            }
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
            UnexpectedEof | ConnectionReset if !self.has_answered && !self.is_tls() => {
                "the first reply (if the server speaks TLS, try rediss://)"
            }
            _ => "the reply",
        };
        fault::io(what, error)
    }

    fn is_tls(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }

    /// Whether the server has closed it, or sent what nobody asked for, while it lay unused.
    pub(super) fn is_stale(&mut self, now: Moment) -> bool {
        if now.since(self.socket.used) < FRESH {
            return false;
        }
        match self.peek() {
            Ok(0) => true,
            // TLS has messages of its own, such as session tickets.
            #[cfg(feature = "tls")]
            Ok(_) if self.tls.is_some() => false,
            Ok(_) => self.unread.is_empty(),
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    fn is_silent(&mut self) -> bool {
        matches!(self.peek(), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    fn peek(&mut self) -> io::Result<usize> {
        let mut byte = [std::mem::MaybeUninit::uninit()];
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        self.socket.inner.recv_with_flags(&mut byte, flags)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.inner.as_fd()
    }
}

fn send(stream: &mut impl Write, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(0) => return Err((sent, io::ErrorKind::WriteZero.into())),
            Ok(count) => sent += count,
            Err(error) => return Err((sent, error)),
        }
    }
    stream.flush().map_err(|error| (sent, error))
}

/// A socket whose reads and writes end by a deadline, however the bytes come.
pub(super) struct Socket {
    inner: socket2::Socket,
    pub(super) deadline: Deadline,
    /// When it last brought or took bytes.
    used: Moment,
    /// The timeouts that the kernel has for it now; zero for none yet.
    receive: Duration,
    send: Duration,
}

/// A kernel timeout may overshoot the deadline by this much, so that it need not be set anew for
/// every request: two system calls a cycle otherwise.
const SLACK: Duration = Duration::from_millis(10);
/// The kernel takes a timeout of zero for none.
const LEAST: Duration = Duration::from_millis(1);

/// Signals and early timeouts only mean that what is left has to be computed again.
fn step(
    socket: &socket2::Socket,
    deadline: Deadline,
    used: &mut Moment,
    armed: &mut Duration,
    arm: fn(&socket2::Socket, Option<Duration>) -> io::Result<()>,
    mut once: impl FnMut(&socket2::Socket) -> io::Result<usize>,
) -> io::Result<usize> {
    loop {
        let now = Moment::now();
        let left = deadline.moment().since(now);
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // A shorter one than is left is fine: the step is then simply taken again.
        if armed.is_zero() || *armed > left + SLACK {
            let timeout = left.clamp(LEAST, Duration::from_secs(3600));
            arm(socket, Some(timeout))?;
            *armed = timeout;
        }
        match once(socket) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => *armed = Duration::ZERO,
            done => {
                if matches!(done, Ok(1..)) {
                    *used = now;
                }
                return done;
            }
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Socket { inner, deadline, used, receive, .. } = self;
        let arm = socket2::Socket::set_read_timeout;
        step(inner, *deadline, used, receive, arm, |mut socket| socket.read(buffer))
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let Socket { inner, deadline, used, send, .. } = self;
        let arm = socket2::Socket::set_write_timeout;
        // Without the signal: not every program that has this library in it ignores SIGPIPE.
        step(inner, *deadline, used, send, arm, |socket| {
            socket.send_with_flags(buffer, libc::MSG_NOSIGNAL)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
