//! Where this client is told that a lock is its own.
//!
//! They are RESP2 pub/sub connections, never of the pool: one to each server on which this client
//! has waiters, which subscribes to channels that are this client's alone. There is no thread
//! behind them: whoever waits reads the sockets itself, so that a notice costs no switch from thread
//! to thread. They know no topology: which server it is for a name, they are told.
//!
//! There is one channel, and where names lie in slots, one for each slot with a waiter: such a channel
//! is heard on the server that has the slot, and ends when the slot moves. Servers that know no such
//! channels have the one; of several servers that each send on it what was said on any other, what
//! it says is then only a reason to ask.

mod board;
mod line;
mod sharded;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::Value;

use self::board::{Board, Open};
use self::line::Line;
use super::fault;
use super::poll::{self, Bell};
use super::target::Target;
use super::wire::Wire;
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::{Notice, REFUSED, ServerId, Teller};
use crate::sync::{Condvar, Mutex, Turnstile};
use crate::token::Token;

const CHANNEL: &str = "leasehold:wake:";

/// After a connection could not be made.
const LEAST_REST: Duration = Duration::from_millis(100);

/// What the payload of a message says; `None` if it is no notice.
pub(super) type ReadNotice<'a> = &'a dyn Fn(&[u8]) -> Option<Notice>;

/// Takes the payload of a message; whether it says anything.
type Hear<'a> = &'a dyn Fn(&[u8]) -> bool;

/// Which server wakes the waiters for a name.
pub(super) trait Places: Send + Sync {
    fn place(&self, name: &[u8]) -> Result<Place, Error>;

    /// Sees to it that places are known.
    fn seek(&self, _name: &[u8], _deadline: Deadline) -> Result<(), Error> {
        Ok(())
    }

    /// In which slot the name lies, where there are any.
    fn slot(&self, _name: &[u8]) -> Option<u16> {
        None
    }

    /// Each server tells what was said on it, and nothing that was said on another.
    fn are_apart(&self) -> bool {
        true
    }

    /// The same one for every name, always.
    fn is_one(&self) -> bool;
}

/// One server on which waiters are told.
pub(super) struct Place {
    /// What it is told apart by, for as long as the client lives.
    pub(super) key: u32,
    pub(super) target: Arc<dyn Target>,
}

/// All names are told of by one server.
pub(super) struct OnePlace(pub(super) Arc<dyn Target>);

impl Places for OnePlace {
    fn place(&self, _name: &[u8]) -> Result<Place, Error> {
        Ok(Place { key: 0, target: Arc::clone(&self.0) })
    }

    fn is_one(&self) -> bool {
        true
    }
}

pub(super) struct Listener {
    places: Box<dyn Places>,
    io_timeout: Duration,
    channel: String,
    /// Whoever listens has them.
    lines: Turnstile<Vec<Line>>,
    /// Whether there ever was one.
    known: AtomicBool,
    /// A server was met that has no channels that belong to slots.
    is_plain: AtomicBool,
    board: Mutex<Board>,
    /// Tells those who wait for the channel of a slot.
    changed: Condvar,
    /// Calls a thread that listens to several lines, or could have to.
    bell: Bell,
}

impl Listener {
    /// Does not connect.
    pub(super) fn new(places: Box<dyn Places>, io_timeout: Duration) -> Result<Listener, Error> {
        Ok(Listener {
            bell: Bell::new(!places.is_one())?,
            places,
            io_timeout,
            channel: format!("{CHANNEL}{}", Token::random()?),
            lines: Turnstile::default(),
            known: AtomicBool::new(false),
            is_plain: AtomicBool::new(false),
            board: Mutex::default(),
            changed: Condvar::default(),
        })
    }

    /// Where notices for this client are to be published about a name.
    pub(super) fn channel(&self, name: &[u8]) -> Cow<'_, [u8]> {
        match self.slot(name) {
            None => Cow::Borrowed(self.channel.as_bytes()),
            Some(slot) => Cow::Owned(self.channel_of(slot)),
        }
    }

    /// Where names lie in slots, and servers have channels there.
    fn slot(&self, name: &[u8]) -> Option<u16> {
        if self.is_plain.load(Ordering::Acquire) {
            return None;
        }
        self.places.slot(name)
    }

    /// Whether notices about a name reach us, as far as anybody knows.
    pub(super) fn are_open(&self, name: &[u8]) -> bool {
        let (place, slot) = (self.places.place(name), self.slot(name));
        place.is_ok_and(|place| self.board.lock().server(place.key, slot).is_some())
    }

    pub(super) fn are_any_open(&self) -> bool {
        !self.board.lock().open.is_empty()
    }

    /// Whether this client may stand in a queue: only then have some been open.
    pub(super) fn are_known(&self) -> bool {
        self.known.load(Ordering::Acquire)
    }

    /// Connects and subscribes, and has that acknowledged. An error that is not retriable means
    /// that this server does not let us listen.
    pub(super) fn open(&self, name: &[u8], deadline: Deadline) -> Result<ServerId, Error> {
        self.places.seek(name, deadline)?;
        let (place, slot) = (self.places.place(name)?, self.slot(name));
        let (key, board) = (place.key, self.board.lock());
        if let Some(server) = board.server(key, slot) {
            return Ok(server);
        }
        if let Some(error) = board.rests(key) {
            return Err(error.clone());
        }
        drop(board);
        let began = Moment::now();
        let opened = self.open_at(place, slot, name, deadline);
        let mut board = self.board.lock();
        let rest = match &opened {
            Err(error) if !error.is_retriable() => REFUSED,
            // It is another server's, or somebody else was faster.
            Err(error) if error.kind() == ErrorKind::Unavailable => Duration::ZERO,
            // Half of the time is for others; and no crowd of names knocks at a door that is shut.
            // (After a while in which the machine slept, it is not left alone as long as that.)
            Err(_) => Moment::now().since(began).clamp(LEAST_REST, self.io_timeout.max(LEAST_REST)),
            Ok(_) => Duration::ZERO,
        };
        board.resting.remove(&key);
        if let Err(error) = &opened
            && !rest.is_zero()
        {
            board.resting.insert(key, (Moment::now().plus(rest), error.clone()));
        }
        opened
    }

    /// Whether the server that tells of this name is left alone for a while.
    pub(super) fn are_resting(&self, name: &[u8]) -> bool {
        self.places.place(name).is_ok_and(|place| self.board.lock().rests(place.key).is_some())
    }

    fn open_at(
        &self,
        Place { key, target }: Place,
        slot: Option<u16>,
        name: &[u8],
        deadline: Deadline,
    ) -> Result<ServerId, Error> {
        {
            let mut board = self.board.lock();
            if let (Some(slot), Some(Open { slots: Some(_), .. })) = (slot, board.open.get(&key)) {
                board.refused.retain(|refused| (refused.0, refused.1) != (key, slot));
                board.wishes.push((key, slot));
                drop(board);
                return self.await_channel(key, slot, deadline);
            }
        }
        let made = self.subscribe(key, slot, target, deadline);
        let mut board = self.board.lock();
        let socket = board.opening.take();
        if board.closed {
            return Err(Error::bare(ErrorKind::Closed));
        }
        let line = made?;
        let server = line.wire.server;
        let Board { open, arrivals, .. } = &mut *board;
        if let Entry::Vacant(place) = open.entry(key) {
            let slots = slot.filter(|_| line.is_sharded).map(|slot| BTreeSet::from([slot]));
            place.insert(Open { server, socket, slots });
            arrivals.push(line);
            self.known.store(true, Ordering::Release);
        } else if board.server(key, self.slot(name)).is_none() {
            // Somebody else has made one meanwhile, for another slot.
            return Err(Error::new(ErrorKind::Unavailable, "another channel was opened first"));
        }
        drop(board);
        self.bell.ring();
        Ok(server)
    }

    fn subscribe(
        &self,
        key: u32,
        slot: Option<u16>,
        target: Arc<dyn Target>,
        deadline: Deadline,
    ) -> Result<Line, Error> {
        let mut wire = target.dial(deadline, &|socket| self.keep_handle(socket))?;
        if let Some(slot) = slot
            && self.subscribe_sharded(&mut wire, slot, &*target, deadline)?
        {
            let mut line = Line::new(key, wire, target);
            line.is_sharded = true;
            return Ok(line);
        }
        match ask(&mut wire, "SUBSCRIBE", self.channel.as_bytes(), deadline)? {
            Value::ServerError(error) => Err(fault::server(&error)),
            said if is_push(&said, b"subscribe") => Ok(Line::new(key, wire, target)),
            _ => Err(Error::new(ErrorKind::Protocol, "SUBSCRIBE was answered by something else")),
        }
    }

    fn keep_handle(&self, socket: &socket2::Socket) -> io::Result<()> {
        let mut board = self.board.lock();
        if board.closed {
            return Err(io::ErrorKind::NotConnected.into());
        }
        board.opening = Some(socket.try_clone()?);
        Ok(())
    }

    /// The notices that come by `until`; returns as soon as there is one. What lies there already
    /// is heard even if that moment has passed. After an error there is a connection less.
    pub(super) fn hear(
        &self,
        until: Moment,
        read: ReadNotice<'_>,
    ) -> Result<Vec<(Teller, Notice)>, Error> {
        let Some(mut lines) = self.lines.enter(Deadline::at(until)) else {
            // Somebody else listens, and nobody promised that what comes is for us.
            return Ok(Vec::new());
        };
        loop {
            self.welcome(&mut lines)?;
            let early = std::mem::take(&mut self.board.lock().early);
            let early = early.into_iter().filter_map(|(by, payload)| Some((by, read(&payload)?)));
            let notices = RefCell::new(early.collect::<Vec<_>>());
            let until = if notices.borrow().is_empty() { until } else { Moment::ZERO };
            let is_over = Moment::now() >= until;
            let hear = |by: Teller, payload: &[u8]| {
                let notice = read(payload).map(|notice| (by, notice));
                let says = notice.is_some();
                notices.borrow_mut().extend(notice);
                says
            };
            let wake = self.tend(&mut lines, until, &hear).min(until);
            let notices = notices.into_inner();
            if !notices.is_empty() {
                return Ok(notices);
            }
            let trouble = self.board.lock().trouble.is_some();
            if is_over && !trouble {
                return Ok(notices);
            }
            if !trouble {
                self.wait(&mut lines, wake);
            }
        }
    }

    /// Looks after the lines. Tells when it has to be done again.
    fn tend(
        &self,
        lines: &mut Vec<Line>,
        until: Moment,
        hear: &dyn Fn(Teller, &[u8]) -> bool,
    ) -> Moment {
        let mut wake = Moment::NEVER;
        lines.retain_mut(|line| {
            // What the servers tell one another is not dated by the clock of this one.
            let dated = self.places.are_apart() || line.is_sharded;
            let server = if dated { line.wire.server } else { line.nobody };
            let by = Teller { server, since: line.opened };
            let tended = line.tend(until, self.io_timeout, &|payload| hear(by, payload));
            self.note_changes(line);
            match tended {
                Ok(due) => {
                    wake = wake.min(due);
                    true
                }
                Err(error) => {
                    self.ended(line, error);
                    false
                }
            }
        });
        wake
    }

    /// Takes in what was made meanwhile. An error is that of a line that has ended.
    fn welcome(&self, lines: &mut Vec<Line>) -> Result<(), Error> {
        self.take_in(lines)?;
        if let Some(error) = self.board.lock().trouble.take() {
            return Err(error);
        }
        if lines.is_empty() {
            return Err(Error::new(ErrorKind::Refused, "nobody is connected to hear wake-ups"));
        }
        Ok(())
    }

    /// Takes in lines that were made meanwhile, and asks for the channels that are wanted on those
    /// that are here.
    fn take_in(&self, lines: &mut Vec<Line>) -> Result<(), Error> {
        let mut board = self.board.lock();
        if board.closed {
            lines.clear();
            return Err(Error::bare(ErrorKind::Closed));
        }
        lines.append(&mut board.arrivals);
        let wishes = std::mem::take(&mut board.wishes);
        drop(board);
        self.grant_wishes(lines, wishes);
        Ok(())
    }

    /// Until something comes on one of the lines, or the bell rings.
    fn wait(&self, lines: &mut [Line], wake: Moment) {
        match lines {
            [line] if self.places.is_one() => line.wait(wake),
            lines => {
                let fds: Vec<_> = lines.iter().filter_map(Line::fd).chain(self.bell.fd()).collect();
                // TLS may have decrypted what is left, of which the socket tells nothing.
                let has_more = lines.iter().any(|line| line.has_more);
                poll::readable(&fds, if has_more { Moment::ZERO } else { wake });
                self.bell.silence();
                lines.iter_mut().for_each(Line::look);
            }
        }
    }

    /// There is a line less, and why.
    fn ended(&self, line: &Line, error: Error) {
        let mut board = self.board.lock();
        board.open.remove(&line.key);
        if !error.is_retriable() {
            // It would be so again.
            board.resting.insert(line.key, (Moment::now().plus(REFUSED), error.clone()));
        }
        board.trouble = Some(error);
        self.changed.notify_all();
    }

    /// For good: every later call says so, and so does one that hears, or connects, at once. (One
    /// that looks up a host's name does by its deadline.)
    pub(super) fn close(&self) {
        let mut board = self.board.lock();
        board.closed = true;
        board.arrivals.clear();
        board.resting.clear();
        let sockets = std::mem::take(&mut board.open).into_values().map(|open| open.socket);
        for socket in sockets.chain([board.opening.take()]).flatten() {
            // It fails where the server was faster.
            let _ = socket.shutdown(Shutdown::Both);
        }
        drop(board);
        self.changed.notify_all();
        self.bell.ring();
        // Whoever reads them now drops them.
        if let Some(mut lines) = self.lines.enter_now() {
            lines.clear();
        }
    }
}

/// Sends a command with one argument and reads the answer.
fn ask(
    wire: &mut Wire,
    command: &str,
    argument: &[u8],
    deadline: Deadline,
) -> Result<Value, Error> {
    let bytes = redis::cmd(command).arg(argument).get_packed_command();
    wire.send(&bytes, deadline).map_err(|(_, error)| fault::io(command, &error))?;
    wire.receive(deadline)
}

fn is_push(said: &Value, kind: &[u8]) -> bool {
    matches!(said, Value::Array(said)
        if matches!(said.first(), Some(Value::BulkString(first)) if first == kind))
}
