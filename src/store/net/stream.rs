//! A connected socket, with TLS or without, whose reads and writes end by a deadline however the
//! bytes come: the kernel's timeouts are per call, which a server that sends one byte now and then
//! never reaches.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use super::failed;
use crate::clock::{Deadline, Moment};
use crate::error::Error;

pub(in crate::store) struct Stream {
    socket: Socket,
    #[cfg(feature = "tls")]
    tls: Option<rustls::ClientConnection>,
}

/// How long a connection may lie unused before it is asked whether the server has closed it.
const FRESH: Duration = Duration::from_millis(100);

impl Stream {
    pub(in crate::store) fn new(inner: socket2::Socket) -> Stream {
        Stream {
            socket: Socket {
                inner,
                deadline: Deadline::at(Moment::ZERO),
                used: Moment::now(),
                receive: Duration::ZERO,
                send: Duration::ZERO,
            },
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// What follows is encrypted.
    #[cfg(feature = "tls")]
    pub(in crate::store) fn secure(
        &mut self,
        config: &std::sync::Arc<rustls::ClientConfig>,
        address: &crate::config::Address,
        deadline: Deadline,
    ) -> Result<(), Error> {
        self.socket.deadline = deadline;
        self.tls = Some(super::tls::handshake(config, address, &mut self.socket)?);
        Ok(())
    }

    /// On an error, tells how many bytes had gone out: with none, there is nothing to carry out.
    pub(in crate::store) fn send(
        &mut self,
        bytes: &[u8],
        deadline: Deadline,
    ) -> Result<(), (usize, io::Error)> {
        self.socket.deadline = deadline;
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            return send(&mut rustls::Stream::new(tls, &mut self.socket), bytes);
        }
        send(&mut self.socket, bytes)
    }

    /// Reads once what comes by then.
    pub(in crate::store) fn read(
        &mut self,
        room: &mut [u8],
        deadline: Deadline,
    ) -> io::Result<usize> {
        self.socket.deadline = deadline;
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls {
            return rustls::Stream::new(tls, &mut self.socket).read(room);
        }
        self.socket.read(room)
    }

    /// What an error of a read means. A server may tell only after the handshake that it wants a
    /// certificate.
    pub(in crate::store) fn explain(what: &str, error: &io::Error) -> Error {
        #[cfg(feature = "tls")]
        if error.kind() == io::ErrorKind::InvalidData {
            return super::tls::explain(error);
        }
        failed(what, error)
    }

    pub(in crate::store) fn is_tls(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        false
    }

    /// Whether the server has closed the connection, or sent something that nobody asked for,
    /// while it lay unused.
    pub(in crate::store) fn is_stale(&mut self, now: Moment, is_awaited: bool) -> bool {
        if now.since(self.socket.used) < FRESH {
            return false;
        }
        match self.peek() {
            Ok(0) => true,
            // TLS has messages of its own, such as session tickets.
            Ok(_) => !is_awaited && !self.is_tls(),
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    /// Whether nothing lies there to be read.
    pub(in crate::store) fn is_silent(&mut self) -> bool {
        #[cfg(feature = "tls")]
        if let Some(tls) = &mut self.tls
            && let Ok(state) = tls.process_new_packets()
            && state.plaintext_bytes_to_read() > 0
        {
            return false;
        }
        matches!(self.peek(), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    fn peek(&mut self) -> io::Result<usize> {
        let mut byte = [std::mem::MaybeUninit::uninit()];
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        self.socket.inner.recv_with_flags(&mut byte, flags)
    }

    pub(in crate::store) fn fd(&self) -> BorrowedFd<'_> {
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

pub(super) struct Socket {
    inner: socket2::Socket,
    deadline: Deadline,
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
pub(in crate::store) const LEAST: Duration = Duration::from_millis(1);

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
