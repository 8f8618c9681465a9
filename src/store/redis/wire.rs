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
    stream: Stream,
    /// What has come and was not read yet, up to `filled`.
    inbox: Vec<u8>,
    filled: usize,
    /// Of the reply that it begins with.
    first: Progress,
    used: Moment,
    /// Whom it leads to.
    pub(super) server: ServerId,
    /// Which run of the server, where that was asked.
    pub(super) run: Option<RunId>,
    /// The server has said that it is not the one to ask.
    pub(super) is_demoted: bool,
    /// The replies that it owes, which come before any other.
    pub(super) unread: Unread,
}

pub(super) enum Stream {
    Plain(Socket),
    #[cfg(feature = "tls")]
    Tls(Box<rustls::StreamOwned<rustls::ClientConnection, Socket>>),
}

/// Room for the replies of every day.
const INBOX: usize = 1024;

/// How much is read before time and other connections are looked at again: a server may send faster
/// than anybody reads.
pub(super) const AT_ONCE: usize = 64 * 1024;

/// How long a connection may lie unused before it is asked whether the server has closed it.
const FRESH: Duration = Duration::from_millis(100);

impl Wire {
    pub(super) fn new(stream: Stream, server: ServerId) -> Wire {
        Wire {
            stream,
            inbox: vec![0; INBOX],
            filled: 0,
            first: Progress::default(),
            used: Moment::now(),
            server,
            run: None,
            is_demoted: false,
            unread: Unread::new(server),
        }
    }

    /// Sends all of it. On an error, tells how many bytes had gone out: with none, the server has
    /// nothing to carry out.
    pub(super) fn send(
        &mut self,
        mut bytes: &[u8],
        deadline: Deadline,
    ) -> Result<(), (usize, io::Error)> {
        self.socket().deadline = deadline;
        let whole = bytes.len();
        // Two kinds only with TLS.
        #[allow(clippy::infallible_destructuring_match)]
        let stream: &mut dyn Write = match &mut self.stream {
            Stream::Plain(socket) => socket,
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream,
        };
        while !bytes.is_empty() {
            match stream.write(bytes) {
                Ok(0) => return Err((whole - bytes.len(), io::ErrorKind::WriteZero.into())),
                Ok(count) => bytes = &bytes[count..],
                Err(error) => return Err((whole - bytes.len(), error)),
            }
        }
        stream.flush().map_err(|error| (whole, error))
    }

    /// Reads one reply. After an error the connection is of no use any more (what comes next could
    /// be the answer to something else), unless only the deadline had passed and the reply is
    /// still waited for.
    pub(super) fn receive(&mut self, deadline: Deadline) -> Result<Value, Error> {
        self.socket().deadline = deadline;
        loop {
            if let Some(length) = self.first.length(&self.inbox[..self.filled])? {
                let value = frame::value(&self.inbox[..length])?;
                self.first = Progress::default();
                self.forget(length);
                self.used = Moment::now();
                return Ok(value);
            }
            self.read()?;
        }
    }

    /// Reads once what comes by then; false if nothing does. The connection stays usable: a reply
    /// that has come in part is kept.
    pub(super) fn wait(&mut self, until: Deadline) -> Result<bool, Error> {
        self.socket().deadline = until;
        match self.read() {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NoAnswer => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads what has come already, and tells how much; stops after [`AT_ONCE`].
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
        let mut is_over = false;
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
            if whole == count || is_over {
                return whole == count;
            }
            is_over = until.has_passed();
            let came =
                if is_over { self.glance().map(|count| count > 0) } else { self.wait(until) };
            match came {
                Ok(true) => {}
                Ok(false) => return false,
                Err(_) => return true,
            }
        }
    }

    /// Hands over each reply that has come whole.
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

    /// Reads once.
    fn read(&mut self) -> Result<(), Error> {
        if self.filled == LONGEST {
            return Err(frame::too_long(&self.inbox));
        }
        if self.filled == self.inbox.len() {
            self.inbox.resize((2 * self.filled).min(LONGEST), 0);
        }
        let end = self.inbox.len().min(self.filled + AT_ONCE);
        let room = &mut self.inbox[self.filled..end];
        let count = match &mut self.stream {
            Stream::Plain(socket) => socket.read(room),
            // A server may tell only after the handshake that it wants a certificate.
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => match stream.read(room) {
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return Err(Error::new(ErrorKind::Tls, error.to_string()));
                }
                count => count,
            },
        };
        match count {
            Ok(0) => Err(fault::io("the reply", &io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                self.filled += count;
                Ok(())
            }
            Err(error) => Err(fault::io("the reply", &error)),
        }
    }

    /// Whether the server has closed the connection, or sent something that nobody asked for,
    /// while it lay unused. Asked only after a pause, so that busy connections pay nothing.
    pub(super) fn is_stale(&mut self) -> bool {
        if Moment::now().since(self.used) < FRESH {
            return false;
        }
        let encrypted = !matches!(self.stream, Stream::Plain(_));
        match self.peek() {
            Ok(0) => true,
            // TLS has messages of its own, such as session tickets.
            Ok(_) => !encrypted && self.unread.is_empty(),
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    /// Whether a read of the socket would have to wait.
    fn is_silent(&mut self) -> bool {
        matches!(self.peek(), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Looks for a byte in the socket and leaves it there.
    fn peek(&mut self) -> io::Result<usize> {
        let mut byte = [std::mem::MaybeUninit::uninit()];
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        self.socket().inner.recv_with_flags(&mut byte, flags)
    }

    /// For waiting until there is something to read.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        match &self.stream {
            Stream::Plain(socket) => socket.inner.as_fd(),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.sock.inner.as_fd(),
        }
    }

    fn socket(&mut self) -> &mut Socket {
        match &mut self.stream {
            Stream::Plain(socket) => socket,
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => &mut stream.sock,
        }
    }
}

/// A socket whose reads and writes end by a deadline, however the bytes come.
pub(super) struct Socket {
    inner: socket2::Socket,
    pub(super) deadline: Deadline,
    /// The timeouts that the kernel has for it now; zero for none yet.
    receive: Duration,
    send: Duration,
}

/// A kernel timeout may overshoot the deadline by this much, so that it need not be set anew for
/// every request: two system calls a cycle otherwise.
const SLACK: Duration = Duration::from_millis(10);
/// The kernel takes a timeout of zero for none.
const LEAST: Duration = Duration::from_millis(1);

impl Socket {
    pub(super) fn new(inner: socket2::Socket, deadline: Deadline) -> Socket {
        Socket { inner, deadline, receive: Duration::ZERO, send: Duration::ZERO }
    }

    /// The timeout for the next step, and whether the kernel has to be told.
    fn arm(&self, armed: Duration) -> io::Result<Option<Duration>> {
        let left = self.deadline.left();
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // A shorter one than is left is fine: the step is then simply taken again.
        let fits = !armed.is_zero() && armed <= left + SLACK;
        Ok((!fits).then(|| left.max(LEAST).min(Duration::from_secs(3600))))
    }

    /// Takes a step until it is done or the deadline has passed. Signals and early timeouts only
    /// mean that what is left has to be computed again.
    fn step(
        &mut self,
        mut arm: impl FnMut(&mut Socket, bool) -> io::Result<()>,
        mut once: impl FnMut(&socket2::Socket) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut expired = false;
        loop {
            arm(self, expired)?;
            match once(&self.inner) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => expired = true,
                done => return done,
            }
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let arm = |socket: &mut Socket, expired: bool| {
            let armed = if expired { Duration::ZERO } else { socket.receive };
            if let Some(timeout) = socket.arm(armed)? {
                socket.inner.set_read_timeout(Some(timeout))?;
                socket.receive = timeout;
            }
            Ok(())
        };
        self.step(arm, |mut socket| socket.read(buffer))
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let arm = |socket: &mut Socket, expired: bool| {
            let armed = if expired { Duration::ZERO } else { socket.send };
            if let Some(timeout) = socket.arm(armed)? {
                socket.inner.set_write_timeout(Some(timeout))?;
                socket.send = timeout;
            }
            Ok(())
        };
        // Without the signal: not every program that has this library in it ignores SIGPIPE.
        self.step(arm, |socket| socket.send_with_flags(buffer, libc::MSG_NOSIGNAL))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
