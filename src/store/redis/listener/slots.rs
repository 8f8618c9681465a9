//! Channels that belong to slots.

#[cfg(test)]
#[cfg(kit)]
mod tests;

use std::time::Duration;

use redis::Value;

use super::subscription::{Change, Subscription, refusal};
use super::{Listener, ask};
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::said::say;
use crate::store::ServerId;
use crate::store::redis::dialect::keys::number_in_slot;
use crate::store::redis::frame;
use crate::store::redis::server_source::ServerSource;
use crate::store::redis::wire::Wire;
use std::sync::atomic::Ordering;

/// How often a thread that waits for a channel looks whether it has to read the subscriptions itself,
/// since the thread that did so has gone.
const LOOK: Duration = Duration::from_millis(5);

/// With so much that came while a channel was waited for, it has to be heard before more is read.
const MOST_UNHEARD: usize = 100;

impl Listener {
    pub(super) fn channel_of(&self, slot: u16) -> Vec<u8> {
        format!("{}:{{{}}}", self.channel, number_in_slot(slot)).into_bytes()
    }

    /// Opens the channel of a slot on a new connection. False where the server has no such channels,
    /// or keeps this user from them: then none is wanted any more, of any server.
    pub(super) fn subscribe_sharded(
        &self,
        wire: &mut Wire,
        slot: u16,
        source: &dyn ServerSource,
        deadline: Deadline,
    ) -> Result<bool, Error> {
        let error = match ask(wire, "SSUBSCRIBE", &self.channel_of(slot), deadline)? {
            Value::ServerError(error) => refusal(&error),
            said if frame::begins(&said, b"ssubscribe") => return Ok(true),
            _ => Error::new(ErrorKind::Protocol, "SSUBSCRIBE was answered by something else"),
        };
        if error.is_retriable() {
            source.doubt(wire);
            return Err(error);
        }
        say!(Debug, "slot-channels-refused", error = error);
        self.is_plain.store(true, Ordering::Release);
        let mut state = self.state.lock();
        let before = state.open.len();
        state.open.retain(|_, open| open.slots.is_none());
        if state.open.len() < before {
            state.ended = Some(error);
        }
        Ok(false)
    }

    /// Waits until the channel of a slot is open on a subscription that is there. A thread that
    /// listens asks for the channel and hears the answer; if there is none, this one does.
    pub(super) fn await_channel(
        &self,
        key: u32,
        slot: u16,
        deadline: Deadline,
    ) -> Result<ServerId, Error> {
        self.bell.ring();
        loop {
            if let Some(ended) = self.opened(key, slot, deadline) {
                return ended;
            }
            let until = deadline.moment().min(Moment::now().plus(LOOK));
            let has_room = self.state.lock().unheard.len() < MOST_UNHEARD;
            if let Some(mut subscriptions) = self.subscriptions.enter_now().filter(|_| has_room) {
                let mut unheard = Vec::new();
                self.take_in(&mut subscriptions)?;
                self.tend(&mut subscriptions, Moment::NEVER, &mut unheard);
                let is_for_others = !unheard.is_empty();
                self.state.lock().unheard.append(&mut unheard);
                if let Some(ended) = self.opened(key, slot, deadline) {
                    return ended;
                }
                if !is_for_others {
                    self.wait(&mut subscriptions, until);
                    continue;
                }
                // A thread that listens is let in, to pass messages on: this server may be silent.
            }
            let state = self.state.lock();
            if state.server(key, Some(slot)).is_none() {
                drop(self.changed.wait_for(state, until.since(Moment::now())));
            }
        }
    }

    fn opened(&self, key: u32, slot: u16, deadline: Deadline) -> Option<Result<ServerId, Error>> {
        let mut state = self.state.lock();
        let error = if state.closed {
            Error::bare(ErrorKind::Closed)
        } else if let Some(server) = state.server(key, Some(slot)) {
            return Some(Ok(server));
        } else if let Some(error) = state.refused.remove(&(key, slot)) {
            error
        } else if !state.open.contains_key(&key) {
            Error::new(ErrorKind::Refused, "the connection for wake-ups was lost")
        } else if deadline.has_passed() {
            state.wanted.retain(|want| *want != (key, slot));
            Error::new(ErrorKind::NoAnswer, "opening a channel for wake-ups")
        } else {
            return None;
        };
        Some(Err(error))
    }

    pub(super) fn note_changes(&self, subscription: &mut Subscription) {
        if subscription.changes.is_empty() {
            return;
        }
        let (mut state, key) = (self.state.lock(), subscription.key);
        for (slot, change) in std::mem::take(&mut subscription.changes) {
            let open = state.open.get_mut(&key).and_then(|open| open.slots.as_mut());
            match change {
                Change::Opened => {
                    open.map(|slots| slots.insert(slot));
                }
                Change::Closed => {
                    open.map(|slots| slots.remove(&slot));
                    subscription.doubt();
                    let moved = "the slot has moved to another server";
                    state.ended = Some(Error::new(ErrorKind::Unavailable, moved));
                }
                Change::Refused(error) => {
                    if error.is_retriable() {
                        subscription.doubt();
                    }
                    state.refused.insert((key, slot), error);
                }
            }
        }
        drop(state);
        self.changed.notify_all();
    }
}
