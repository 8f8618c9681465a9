//! A connection, with TLS or without, whose reads and writes end by a deadline.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use super::failed;
#[cfg(feature = "tls")]
use super::socket::Opening;
use super::socket::Socket;
use super::stranger::{self, Kind};
use super::tls::Tls;
use crate::clock::{Deadline, Moment};
use crate::config::Address;
use crate::error::Error;

pub(in crate::store) struct Stream {
    socket: Socket,
    /// Of a connection that the other end has cut, the system tells no more where it led.
    peer: Option<SocketAddr>,
    #[cfg(feature = "tls")]
    tls: Option<Secured>,
}

/// The encrypted part of a connection.
#[cfg(feature = "tls")]
struct Secured {
    connection: rustls::ClientConnection,
    words: &'static crate::config::TlsWords,
    /// What has come first behind TLS.
    opening: Opening,
}

/// How long a connection may lie unused before it is asked whether the server has closed it.
const FRESH: Duration = Duration::from_millis(100);

/// What is waited for takes so long at least.
pub(in crate::store) const LEAST: Duration = Duration::from_millis(1);

impl Stream {
    pub(in crate::store) fn new(inner: socket2::Socket) -> Stream {
        Stream {
            peer: inner.peer_addr().ok().and_then(|peer| peer.as_socket()),
            socket: Socket::new(inner),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// What follows is encrypted.
    #[cfg(feature = "tls")]
    pub(in crate::store) fn secure(
        &mut self,
        tls: &Tls,
        address: &Address,
        deadline: Deadline,
    ) -> Result<(), Error> {
        self.socket.deadline = deadline;
        // What the server has said before is no answer to the handshake.
        self.socket.opening = Opening::default();
        let connection = tls.handshake(address, &mut self.socket)?;
        self.tls = Some(Secured { connection, words: tls.words, opening: Opening::default() });
        Ok(())
    }

    #[cfg(not(feature = "tls"))]
    pub(in crate::store) fn secure(
        &mut self,
        tls: &Tls,
        _address: &Address,
        _deadline: Deadline,
    ) -> Result<(), Error> {
        match *tls {}
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
            return send(&mut rustls::Stream::new(&mut tls.connection, &mut self.socket), bytes);
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
            let mut stream = rustls::Stream::new(&mut tls.connection, &mut self.socket);
            let count = stream.read(room)?;
            tls.opening.note(&room[..count]);
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
        let opening = &self.socket.opening;
        #[cfg(feature = "tls")]
        let opening = self.tls.as_ref().map_or(opening, |tls| &tls.opening);
        stranger::explained(opening.bytes(), (wanted, &place), self.is_tls(), error)
    }

    /// What an error of a read means. A server may tell only after the handshake that it wants a
    /// certificate.
    pub(in crate::store) fn explain(&self, what: &str, error: &io::Error) -> Error {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls
            && error.kind() == io::ErrorKind::InvalidData
        {
            return super::tls::explain(error, tls.words);
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
        return super::end_point::hash(self.tls.as_ref()?.connection.peer_certificates()?.first()?);
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
            && let Ok(state) = tls.connection.process_new_packets()
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
