//! One client's connection over a link.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use socket2::{Domain, SockRef, Socket, Type};

use super::Weather;

pub(super) struct Connection {
    number: usize,
    client: End,
    /// Absent until the wish to connect has arrived there, and where it was refused.
    server: Option<End>,
    is_refused: bool,
    requests: VecDeque<(Instant, Piece)>,
    replies: VecDeque<(Instant, Piece)>,
}

/// What travels.
enum Piece {
    Open,
    Bytes(Vec<u8>),
    Close,
    Reset,
}

struct End {
    stream: TcpStream,
    /// There is no more to read from it.
    is_read: bool,
    /// It takes no more for now.
    is_full: bool,
    /// Nothing can be written to it any more.
    is_closed: bool,
}

impl Connection {
    pub(super) fn new(client: TcpStream, number: usize, weather: &Weather) -> Connection {
        let due = Instant::now() + weather.delay(number);
        Connection {
            number,
            client: End::new(client),
            server: None,
            is_refused: false,
            requests: VecDeque::from([(due, Piece::Open)]),
            replies: VecDeque::new(),
        }
    }

    pub(super) fn read(&mut self, weather: &Weather) {
        let delay = weather.delay(self.number);
        self.client.read(&mut self.requests, delay);
        if let Some(server) = &mut self.server {
            server.read(&mut self.replies, delay + weather.reply_delay);
        }
    }

    pub(super) fn deliver(&mut self, address: SocketAddr, weather: &Weather) {
        let now = Instant::now();
        while weather.pass_requests()
            && let Some(piece) = next(&mut self.requests, now)
        {
            match (piece, &mut self.server) {
                (Piece::Open, _) => match connect(address) {
                    Ok(stream) => self.server = Some(End::new(stream)),
                    Err(_) => {
                        self.is_refused = true;
                        self.replies.push_back((now + weather.delay(self.number), Piece::Reset));
                    }
                },
                (piece, Some(server)) => {
                    if let Some(rest) = server.write(piece) {
                        self.requests.push_front((now, rest));
                        break;
                    }
                }
                (_, None) => {}
            }
        }
        while weather.pass_replies()
            && let Some(piece) = next(&mut self.replies, now)
        {
            if let Some(rest) = self.client.write(piece) {
                self.replies.push_front((now, rest));
                break;
            }
        }
    }

    /// When the next piece arrives, of those that nothing but time holds up.
    pub(super) fn due(&self, weather: &Weather) -> Option<Instant> {
        let first = |pieces: &VecDeque<(Instant, Piece)>| pieces.front().map(|(due, _)| *due);
        let is_full = self.server.as_ref().is_some_and(|server| server.is_full);
        let request = (weather.pass_requests() && !is_full).then(|| first(&self.requests));
        let reply = (weather.pass_replies() && !self.client.is_full).then(|| first(&self.replies));
        request.flatten().into_iter().chain(reply.flatten()).min()
    }

    pub(super) fn waits(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.server.iter().chain([&self.client]).filter_map(End::wait)
    }

    /// Nothing is read from either side any more, and all has arrived.
    pub(super) fn is_over(&self) -> bool {
        let server = self.server.as_ref().map_or(self.is_refused, |server| server.is_read);
        self.client.is_read && server && self.requests.is_empty() && self.replies.is_empty()
    }

    pub(super) fn reset(self) {
        for end in self.server.iter().chain([&self.client]) {
            let _ = SockRef::from(&end.stream).set_linger(Some(Duration::ZERO));
        }
    }
}

impl End {
    fn new(stream: TcpStream) -> End {
        stream.set_nonblocking(true).unwrap();
        let _ = stream.set_nodelay(true);
        End { stream, is_read: false, is_full: false, is_closed: false }
    }

    fn read(&mut self, pieces: &mut VecDeque<(Instant, Piece)>, delay: Duration) {
        let mut buffer = [0; 16 * 1024];
        while !self.is_read {
            let piece = match self.stream.read(&mut buffer) {
                Ok(0) => Piece::Close,
                Ok(length) => Piece::Bytes(buffer[..length].to_vec()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => Piece::Reset,
            };
            self.is_read = !matches!(piece, Piece::Bytes(_));
            // Never before what was sent earlier, when the way was longer.
            let earliest = pieces.back().map_or_else(Instant::now, |(due, _)| *due);
            pieces.push_back((earliest.max(Instant::now() + delay), piece));
        }
    }

    /// What it did not take.
    fn write(&mut self, piece: Piece) -> Option<Piece> {
        self.is_full = false;
        if self.is_closed {
            return None;
        }
        match piece {
            Piece::Open => {}
            Piece::Close => {
                let _ = self.stream.shutdown(Shutdown::Write);
                self.is_closed = true;
            }
            Piece::Reset => {
                // With no wish to linger, the shutdown that follows upon the close resets.
                let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
                (self.is_read, self.is_closed) = (true, true);
            }
            Piece::Bytes(bytes) => match self.stream.write(&bytes) {
                Ok(length) if length == bytes.len() => {}
                Ok(length) => {
                    self.is_full = true;
                    return Some(Piece::Bytes(bytes[length..].to_vec()));
                }
                Err(error) if is_later(error.kind()) => {
                    self.is_full = true;
                    return Some(Piece::Bytes(bytes));
                }
                // Reading says what became of it.
                Err(_) => self.is_closed = true,
            },
        }
        None
    }

    fn wait(&self) -> Option<PollFd<'_>> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLIN, !self.is_read);
        flags.set(PollFlags::POLLOUT, self.is_full);
        // Otherwise one that is over at both ends would wake us again and again.
        (!flags.is_empty()).then(|| PollFd::new(self.stream.as_fd(), flags))
    }
}

fn is_later(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// The first piece, if it has arrived.
fn next(pieces: &mut VecDeque<(Instant, Piece)>, now: Instant) -> Option<Piece> {
    if pieces.front().is_some_and(|(due, _)| *due <= now) {
        pieces.pop_front().map(|(_, piece)| piece)
    } else {
        None
    }
}

/// Does not wait until it is connected; what goes wrong then is read from it.
fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&address.into()) {
        Err(error) if error.raw_os_error() != Some(nix::libc::EINPROGRESS) => Err(error),
        _ => Ok(socket.into()),
    }
}
