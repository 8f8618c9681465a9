//! A connected socket, with TLS or without, whose reads and writes end by a deadline however the
//! bytes come: the kernel's timeouts are per call, which a server that sends one byte now and then
//! never reaches.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::poll::PollFlags;

use super::stranger::{self, Kind};
use super::{failed, poll};
use crate::clock::{Deadline, Moment};
use crate::error::Error;

pub(in crate::store) struct Stream {
    socket: Socket,
    /// Of a connection that the other end has cut, the system tells no more where it led.
    peer: Option<SocketAddr>,
    #[cfg(feature = "tls")]
    tls: Option<rustls::ClientConnection>,
    /// What has come first behind TLS.
    #[cfg(feature = "tls")]
    opening: Opening,
}

/// How long a connection may lie unused before it is asked whether the server has closed it.
const FRESH: Duration = Duration::from_millis(100);

impl Stream {
    pub(in crate::store) fn new(inner: socket2::Socket) -> Stream {
        Stream {
            peer: inner.peer_addr().ok().and_then(|peer| peer.as_socket()),
            socket: Socket {
                inner,
                deadline: Deadline::at(Moment::ZERO),
                used: Moment::now(),
                timeout: Duration::ZERO,
                opening: Opening::default(),
            },
            #[cfg(feature = "tls")]
            tls: None,
            #[cfg(feature = "tls")]
            opening: Opening::default(),
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
        // What the server has said before is no answer to the handshake.
        self.socket.opening = Opening::default();
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
            let count = rustls::Stream::new(tls, &mut self.socket).read(room)?;
            self.opening.note(&room[..count]);
            return Ok(count);
        }
        self.socket.read(room)
    }

    /// The error of a first exchange with a server that is perhaps of another kind. Where nobody else says
    /// which server it was, this does.
    pub(in crate::store) fn doubt(&self, wanted: Kind, error: Error) -> Error {
        let place = match self.peer {
            Some(place) if matches!(wanted, Kind::Redis | Kind::Etcd) => format!(" at {place}"),
            _ => String::new(),
        };
        #[cfg(feature = "tls")]
        let opening = if self.is_tls() { &self.opening } else { &self.socket.opening };
        #[cfg(not(feature = "tls"))]
        let opening = &self.socket.opening;
        stranger::explained(opening.bytes(), (wanted, &place), self.is_tls(), error)
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

    /// What a login can be bound to: the certificate that the server showed.
    #[cfg(feature = "postgres")]
    pub(in crate::store) fn end_point(&self) -> Option<Vec<u8>> {
        #[cfg(feature = "tls")]
        return super::end_point::hash(self.tls.as_ref()?.peer_certificates()?.first()?);
        #[cfg(not(feature = "tls"))]
        None
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

    /// Shows its socket to another thread than the one that has made it.
    #[cfg(feature = "etcd")]
    pub(in crate::store) fn show(&self, show: &super::dial::Show<'_>) -> Result<(), Error> {
        show(&self.socket.inner)
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
    /// The kernel's for reading from it now; zero for none yet.
    timeout: Duration,
    opening: Opening,
}

/// The first bytes that have come: by them a server of another kind is known.
#[derive(Default)]
struct Opening {
    bytes: [u8; stranger::ENOUGH],
    count: usize,
}

impl Opening {
    fn note(&mut self, came: &[u8]) {
        if self.count < stranger::ENOUGH {
            let taken = came.len().min(stranger::ENOUGH - self.count);
            self.bytes[self.count..self.count + taken].copy_from_slice(&came[..taken]);
            self.count += taken;
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.count]
    }
}

/// A timeout of the kernel comes up to two of its ticks late, of 4 ms each or 10.
const LATE: Duration = Duration::from_millis(20);
/// It is set so much shorter that it need not be set anew for every request: two system calls a cycle
/// otherwise.
const SLACK: Duration = Duration::from_millis(10);
/// Below this it is of no use.
const NEAR: Duration = Duration::from_millis(50);
/// What is waited for takes so long at least.
pub(in crate::store) const LEAST: Duration = Duration::from_millis(1);

impl Socket {
    /// What has come first.
    #[cfg(feature = "tls")]
    pub(super) fn opening(&self) -> &[u8] {
        self.opening.bytes()
    }

    /// The moment of a try, while there is time for one.
    fn try_at(&self) -> io::Result<Moment> {
        let now = Moment::now();
        if self.deadline.moment() <= now { Err(io::ErrorKind::TimedOut.into()) } else { Ok(now) }
    }

    fn set_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.inner.set_read_timeout(Some(timeout))?;
        self.timeout = timeout;
        Ok(())
    }

    fn is_ready(&self, flags: PollFlags) -> bool {
        poll::is_ready(self.inner.as_fd(), flags, self.deadline.moment())
    }
}

/// The kernel's timeout ends before the deadline, and what is left then is waited for by `poll`, which
/// is in time to the millisecond: a lease that is about to end waits for the end of a request.
impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let now = self.try_at()?;
            let left = self.deadline.moment().since(now);
            if left < NEAR {
                if !self.is_ready(PollFlags::POLLIN) {
                    continue;
                }
                // What poll tells of may be gone again.
                if self.timeout.is_zero() || self.timeout > NEAR {
                    self.set_timeout(NEAR)?;
                }
            } else if self.timeout.is_zero() || self.timeout > left - LATE {
                self.set_timeout((left - LATE - SLACK).min(Duration::from_secs(3600)))?;
            }
            match (&self.inner).read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.timeout = Duration::ZERO;
                }
                done => {
                    if let Ok(count @ 1..) = done {
                        self.used = now;
                        self.opening.note(&buffer[..count]);
                    }
                    return done;
                }
            }
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        // Without the signal: not every program that has this library in it ignores SIGPIPE.
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        loop {
            let now = self.try_at()?;
            match self.inner.send_with_flags(buffer, flags) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_ready(PollFlags::POLLOUT);
                }
                done => {
                    if matches!(done, Ok(1..)) {
                        self.used = now;
                    }
                    return done;
                }
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A socket of which nothing comes, and the other end of it.
    fn silent() -> (Stream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Stream::new(ours.into()), theirs)
    }

    /// How late something is that ends by a deadline: the least of some tries, since a busy machine
    /// makes any of them later.
    fn late(span: Duration, mut act: impl FnMut(Deadline) -> io::Error) -> Duration {
        let tries = (0..10).map(|_| {
            let start = Moment::now();
            assert_eq!(act(Deadline::at(start.plus(span))).kind(), io::ErrorKind::TimedOut);
            let took = Moment::now().since(start);
            assert!(took >= span, "it ended after {took:?} of {span:?}");
            took - span
        });
        tries.min().unwrap()
    }

    #[test]
    fn c7_a_read_is_over_within_a_tick_of_its_deadline() {
        for millis in [1, 5, 20, 49, 50, 51, 90] {
            let (mut stream, _theirs) = silent();
            let late =
                late(Duration::from_millis(millis), |by| stream.read(&mut [0], by).unwrap_err());
            assert!(late < Duration::from_millis(3), "{late:?} after {millis} ms");
        }
    }

    #[test]
    fn c7_a_send_that_nobody_reads_is_over_within_a_tick_of_its_deadline() {
        let (mut stream, _theirs) = silent();
        let much = vec![0; 4 << 20];
        for millis in [5, 60] {
            let late =
                late(Duration::from_millis(millis), |by| stream.send(&much, by).unwrap_err().1);
            assert!(late < Duration::from_millis(3), "{late:?} after {millis} ms");
        }
    }
}
