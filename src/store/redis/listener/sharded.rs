//! Channels that belong to slots.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::time::Duration;

use redis::Value;

use super::line::{Change, Line, refusal};
use super::{Listener, ask, is_push};
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::redis::dialect::keys::number_in_slot;
use crate::store::redis::target::Target;
use crate::store::redis::wire::Wire;
use crate::store::{ServerId, Teller};
use std::sync::atomic::Ordering;

/// Whoever waits for a channel looks this often whether it has to read the lines itself, since the
/// one who did so has gone.
const LOOK: Duration = Duration::from_millis(5);

impl Listener {
    /// This client's channel in a slot.
    pub(super) fn channel_of(&self, slot: u16) -> Vec<u8> {
        format!("{}:{{{}}}", self.channel, number_in_slot(slot)).into_bytes()
    }

    /// Opens the channel of a slot on a new connection. False where the server has no such channels,
    /// or keeps this user from them: then none is wanted any more, of any server.
    pub(super) fn subscribe_sharded(
        &self,
        wire: &mut Wire,
        slot: u16,
        target: &dyn Target,
        deadline: Deadline,
    ) -> Result<bool, Error> {
        let error = match ask(wire, "SSUBSCRIBE", &self.channel_of(slot), deadline)? {
            Value::ServerError(error) => refusal(&error),
            said if is_push(&said, b"ssubscribe") => return Ok(true),
            _ => Error::new(ErrorKind::Protocol, "SSUBSCRIBE was answered by something else"),
        };
        if error.is_retriable() {
            target.doubt(wire);
            return Err(error);
        }
        log::debug!("no channels that belong to slots: {error}");
        self.is_plain.store(true, Ordering::Release);
        let mut board = self.board.lock();
        let before = board.open.len();
        board.open.retain(|_, open| open.slots.is_none());
        if board.open.len() < before {
            board.trouble = Some(error);
        }
        Ok(false)
    }

    /// Waits until the channel of a slot is open on a line that is there. If somebody listens on it,
    /// that one asks for the channel and hears the answer; else it is done here.
    pub(super) fn await_channel(
        &self,
        key: u32,
        slot: u16,
        deadline: Deadline,
    ) -> Result<ServerId, Error> {
        self.bell.ring();
        loop {
            if let Some(ended) = self.wish_ended(key, slot, deadline) {
                return ended;
            }
            let until = deadline.moment().min(Moment::now().plus(LOOK));
            let has_room = !self.board.lock().is_full();
            if let Some(mut lines) = self.lines.enter_now().filter(|_| has_room) {
                let early = RefCell::new(Vec::new());
                let hear = |by: Teller, payload: &[u8]| {
                    early.borrow_mut().push((by, payload.to_vec()));
                    true
                };
                self.take_in(&mut lines)?;
                self.tend(&mut lines, Moment::NEVER, &hear);
                let mut early = early.into_inner();
                let is_for_others = !early.is_empty();
                self.board.lock().early.append(&mut early);
                if let Some(ended) = self.wish_ended(key, slot, deadline) {
                    return ended;
                }
                if !is_for_others {
                    self.wait(&mut lines, until);
                    continue;
                }
                // Whoever listens is let in, to pass on what was heard: the server that is waited for
                // here may be silent.
            }
            let board = self.board.lock();
            if board.server(key, Some(slot)).is_none() {
                drop(self.changed.wait_for(board, until.since(Moment::now())));
            }
        }
    }

    fn wish_ended(
        &self,
        key: u32,
        slot: u16,
        deadline: Deadline,
    ) -> Option<Result<ServerId, Error>> {
        let mut board = self.board.lock();
        let refused =
            board.refused.iter().position(|refused| (refused.0, refused.1) == (key, slot));
        let error = if board.closed {
            Error::bare(ErrorKind::Closed)
        } else if let Some(server) = board.server(key, Some(slot)) {
            return Some(Ok(server));
        } else if let Some(at) = refused {
            board.refused.swap_remove(at).2
        } else if !board.open.contains_key(&key) {
            Error::new(ErrorKind::Refused, "the connection for wake-ups was lost")
        } else if deadline.has_passed() {
            board.wishes.retain(|wish| *wish != (key, slot));
            Error::new(ErrorKind::NoAnswer, "opening a channel for wake-ups")
        } else {
            return None;
        };
        Some(Err(error))
    }

    /// Asks for channels on lines that we have at this moment.
    pub(super) fn grant_wishes(&self, lines: &mut Vec<Line>, wishes: Vec<(u32, u16)>) {
        if self.is_plain.load(Ordering::Acquire) && !self.places.is_one() {
            // Nobody is told on such channels any more.
            lines.retain(|line| !line.is_sharded);
        }
        for (key, slot) in wishes {
            if let Some(line) = lines.iter_mut().find(|line| line.key == key) {
                line.wish(slot, &self.channel_of(slot), self.io_timeout);
            }
        }
    }

    /// Notes what became of a line's channels.
    pub(super) fn note_changes(&self, line: &mut Line) {
        if line.changes.is_empty() {
            return;
        }
        let (mut board, key) = (self.board.lock(), line.key);
        for (slot, change) in std::mem::take(&mut line.changes) {
            let open = board.open.get_mut(&key).and_then(|open| open.slots.as_mut());
            match change {
                Change::Opened => {
                    open.map(|slots| slots.insert(slot));
                }
                Change::Closed => {
                    open.map(|slots| slots.remove(&slot));
                    line.doubt();
                    let moved = "the slot has moved to another server";
                    board.trouble = Some(Error::new(ErrorKind::Unavailable, moved));
                }
                Change::Refused(error) => {
                    if error.is_retriable() {
                        line.doubt();
                    }
                    board.refused.retain(|refused| (refused.0, refused.1) != (key, slot));
                    board.refused.push((key, slot, error));
                }
            }
        }
        drop(board);
        self.changed.notify_all();
    }
}
