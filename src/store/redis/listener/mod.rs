//! Where this client is told that a lock was handed to it.
//!
//! A subscription is a RESP2 pub/sub connection, never of the pool. There is one to each server on
//! which this client has waiters, and its channels are this client's alone. No thread stands behind
//! it: a waiting thread reads all sockets, so that a notice costs no switch from thread to thread.
//!
//! A client has one channel. In a Cluster it has one for each slot with a waiter: such a channel is
//! heard on the server that has the slot, and ends when the slot moves. Servers before 7.0 have
//! only the one channel, and each of them repeats there what was published on any other: a message
//! is then only a reason to ask.

mod slots;
mod subscription;
#[cfg(test)]
#[cfg(kit)]
mod tests;

use std::borrow::Cow;
use std::collections::btree_map::Entry;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::Value;

use self::subscription::{Open, State, Subscription};
use super::dialect::notice::ReadNotice;
use super::server_source::{NO_SERVER, ServerSource};
use super::wire::Wire;
use super::{fault, frame};
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::net::poll::{self, Bell};
use crate::store::{self, Notice, ServerId, Teller, rest_after};
use crate::sync::{Condvar, Mutex, Turnstile};
use crate::token::Token;

const CHANNEL: &str = "leasehold:wake:";

/// After a connection could not be made.
const LEAST_REST: Duration = Duration::from_millis(100);

/// Takes the payload of a message; whether it says anything.
type Hear<'a> = &'a mut dyn FnMut(&[u8]) -> bool;

/// Which server publishes to the waiters of a name.
pub(super) trait Publishers: Send + Sync {
    fn publisher(&self, name: &[u8]) -> Result<Publisher, Error>;

    fn find(&self, _name: &[u8], _deadline: Deadline) -> Result<(), Error> {
        Ok(())
    }

    /// In which slot the name lies, in a Cluster.
    fn slot(&self, _name: &[u8]) -> Option<u16> {
        None
    }

    /// The same one for every name, always.
    fn is_one(&self) -> bool {
        false
    }
}

pub(super) struct Publisher {
    /// The same for as long as the client lives.
    pub(super) key: u32,
    pub(super) source: Arc<dyn ServerSource>,
}

pub(super) struct OnePublisher(pub(super) Arc<dyn ServerSource>);

impl Publishers for OnePublisher {
    fn publisher(&self, _name: &[u8]) -> Result<Publisher, Error> {
        Ok(Publisher { key: 0, source: Arc::clone(&self.0) })
    }

    fn is_one(&self) -> bool {
        true
    }
}

/// Those of several Redis, which one listener hears: each name has the index of its Redis before it.
pub(super) struct PublishersOfSeveral(pub(super) Vec<Box<dyn Publishers>>);

/// A name as a listener knows it that hears several Redis.
pub(in crate::store) fn name_on(index: u8, name: &[u8]) -> Vec<u8> {
    [&[index], name].concat()
}

impl Publishers for PublishersOfSeveral {
    fn publisher(&self, name: &[u8]) -> Result<Publisher, Error> {
        let found = self.0[usize::from(name[0])].publisher(&name[1..])?;
        Ok(Publisher { key: found.key << 8 | u32::from(name[0]), ..found })
    }

    fn find(&self, name: &[u8], deadline: Deadline) -> Result<(), Error> {
        self.0[usize::from(name[0])].find(&name[1..], deadline)
    }
}

pub(in crate::store) struct Listener {
    publishers: Box<dyn Publishers>,
    io_timeout: Duration,
    channel: String,
    read: ReadNotice,
    /// Of the thread that listens.
    subscriptions: Turnstile<Vec<Subscription>>,
    /// Whether there ever was a subscription.
    known: AtomicBool,
    /// A server has no channels that belong to slots: one channel is for all names.
    is_plain: AtomicBool,
    state: Mutex<State>,
    /// What became of the channel of a slot.
    changed: Condvar,
    bell: Bell,
}

impl Listener {
    pub(super) fn new(
        publishers: Box<dyn Publishers>,
        io_timeout: Duration,
        read: ReadNotice,
    ) -> Result<Listener, Error> {
        Ok(Listener {
            bell: Bell::new(!publishers.is_one())?,
            publishers,
            io_timeout,
            channel: format!("{CHANNEL}{}", Token::random()?),
            read,
            subscriptions: Turnstile::default(),
            known: AtomicBool::new(false),
            is_plain: AtomicBool::new(false),
            state: Mutex::default(),
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

    fn slot(&self, name: &[u8]) -> Option<u16> {
        if self.is_plain.load(Ordering::Acquire) {
            return None;
        }
        self.publishers.slot(name)
    }

    pub(super) fn are_known(&self) -> bool {
        self.known.load(Ordering::Acquire)
    }

    /// Whether the server that tells of this name is left alone for a while.
    pub(in crate::store) fn are_resting(&self, name: &[u8]) -> bool {
        let publisher = self.publishers.publisher(name);
        publisher.is_ok_and(|publisher| self.state.lock().rests(publisher.key).is_some())
    }

    fn open_at(
        &self,
        Publisher { key, source }: Publisher,
        slot: Option<u16>,
        name: &[u8],
        deadline: Deadline,
    ) -> Result<ServerId, Error> {
        let mut state = self.state.lock();
        if let (Some(slot), Some(Open { slots: Some(_), .. })) = (slot, state.open.get(&key)) {
            state.refused.remove(&(key, slot));
            state.wanted.push((key, slot));
            drop(state);
            return self.await_channel(key, slot, deadline);
        }
        drop(state);
        let made = self.subscribe(key, slot, source, deadline);
        let mut state = self.state.lock();
        let socket = state.opening.take();
        if state.closed {
            return Err(Error::bare(ErrorKind::Closed));
        }
        let subscription = made?;
        let server = subscription.wire.server;
        let State { open, made, .. } = &mut *state;
        if let Entry::Vacant(publisher) = open.entry(key) {
            let slots = slot.filter(|_| subscription.is_sharded).map(|slot| [slot].into());
            publisher.insert(Open { server, socket, slots });
            made.push(subscription);
            self.known.store(true, Ordering::Release);
        } else if state.server(key, self.slot(name)).is_none() {
            return Err(Error::new(ErrorKind::Unavailable, "another channel was opened first"));
        }
        drop(state);
        self.bell.ring();
        Ok(server)
    }

    fn subscribe(
        &self,
        key: u32,
        slot: Option<u16>,
        source: Arc<dyn ServerSource>,
        deadline: Deadline,
    ) -> Result<Subscription, Error> {
        let mut wire = source.dial(deadline, &|socket| self.keep_handle(socket))?;
        if wire.login.is_some() {
            wire.is_resp3 = matches!(ask(&mut wire, "HELLO", b"3", deadline)?, Value::Map(_));
        }
        if let Some(slot) = slot
            && self.subscribe_sharded(&mut wire, slot, &*source, deadline)?
        {
            return Ok(Subscription::new(key, wire, source, true));
        }
        match ask(&mut wire, "SUBSCRIBE", self.channel.as_bytes(), deadline)? {
            Value::ServerError(error) => Err(fault::server(&error)),
            said if frame::begins(&said, b"subscribe") => {
                Ok(Subscription::new(key, wire, source, false))
            }
            _ => Err(Error::new(ErrorKind::Protocol, "SUBSCRIBE was answered by something else")),
        }
    }

    fn keep_handle(&self, socket: &socket2::Socket) -> Result<(), Error> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Error::bare(ErrorKind::Closed));
        }
        let handle = socket.try_clone().map_err(|error| fault::io("a second handle", &error))?;
        state.opening = Some(handle);
        Ok(())
    }

    /// Tells when to do it again.
    fn tend(
        &self,
        subscriptions: &mut Vec<Subscription>,
        until: Moment,
        notices: &mut Vec<(Teller, Notice)>,
    ) -> Moment {
        let mut wake = Moment::NEVER;
        subscriptions.retain_mut(|subscription| {
            // Servers pass messages on to one another, and this one's clock did not date them.
            let dated = self.publishers.is_one() || subscription.is_sharded;
            let server = if dated { subscription.wire.server } else { NO_SERVER };
            let by = Teller { server, since: subscription.opened };
            let mut hear = |payload: &[u8]| {
                let notice = (self.read)(payload);
                let says = notice.is_some();
                notices.extend(notice.map(|notice| (by, notice)));
                says
            };
            let tended = subscription.tend(until, self.io_timeout, &mut hear);
            self.note_changes(subscription);
            match tended {
                Ok(due) => {
                    wake = wake.min(due);
                    true
                }
                Err(error) => {
                    self.ended(subscription, error);
                    false
                }
            }
        });
        wake
    }

    /// Takes in what was made and is wanted since.
    fn take_in(&self, subscriptions: &mut Vec<Subscription>) -> Result<(), Error> {
        let mut state = self.state.lock();
        if state.closed {
            subscriptions.clear();
            return Err(Error::bare(ErrorKind::Closed));
        }
        subscriptions.append(&mut state.made);
        let wanted = std::mem::take(&mut state.wanted);
        drop(state);
        if self.is_plain.load(Ordering::Acquire) && !self.publishers.is_one() {
            // No server has such channels for us any more.
            subscriptions.retain(|subscription| !subscription.is_sharded);
        }
        for (key, slot) in wanted {
            if let Some(subscription) = subscriptions.iter_mut().find(|one| one.key == key) {
                subscription.want(slot, &self.channel_of(slot), self.io_timeout);
            }
        }
        Ok(())
    }

    /// The same; an error where a subscription has ended since the last call, or there is none.
    fn take_all_in(&self, subscriptions: &mut Vec<Subscription>) -> Result<(), Error> {
        self.take_in(subscriptions)?;
        if let Some(error) = self.state.lock().ended.take() {
            return Err(error);
        }
        if subscriptions.is_empty() {
            return Err(Error::new(ErrorKind::Refused, "nobody is connected to hear wake-ups"));
        }
        Ok(())
    }

    /// Until something comes on one of the subscriptions, or the bell rings.
    fn wait(&self, subscriptions: &mut [Subscription], wake: Moment) {
        match subscriptions {
            [subscription] if self.publishers.is_one() => subscription.wait(wake),
            subscriptions => {
                let fds: Vec<_> = subscriptions
                    .iter()
                    .filter_map(Subscription::fd)
                    .chain(self.bell.fd())
                    .collect();
                // TLS may have decrypted what is left, of which the socket tells nothing.
                let has_more = subscriptions.iter().any(|subscription| subscription.has_more);
                poll::readable(&fds, if has_more { Moment::ZERO } else { wake });
                self.bell.silence();
                subscriptions.iter_mut().for_each(Subscription::look);
            }
        }
    }

    fn ended(&self, subscription: &Subscription, error: Error) {
        let mut state = self.state.lock();
        state.open.remove(&subscription.key);
        if !error.is_retriable() {
            state
                .resting
                .insert(subscription.key, (Moment::now().plus(rest_after(&error)), error.clone()));
        }
        state.ended = Some(error);
        self.changed.notify_all();
    }
}

impl store::Listener for Listener {
    fn are_open(&self, name: &[u8]) -> bool {
        let (publisher, slot) = (self.publishers.publisher(name), self.slot(name));
        publisher.is_ok_and(|publisher| self.state.lock().server(publisher.key, slot).is_some())
    }

    fn are_any_open(&self) -> bool {
        !self.state.lock().open.is_empty()
    }

    fn open(&self, name: &[u8], deadline: Deadline) -> Result<ServerId, Error> {
        self.publishers.find(name, deadline)?;
        let (publisher, slot) = (self.publishers.publisher(name)?, self.slot(name));
        let (key, state) = (publisher.key, self.state.lock());
        if let Some(server) = state.server(key, slot) {
            return Ok(server);
        }
        if let Some(error) = state.rests(key) {
            return Err(error.clone());
        }
        drop(state);
        let began = Moment::now();
        let opened = self.open_at(publisher, slot, name, deadline);
        let (mut state, now) = (self.state.lock(), Moment::now());
        state.resting.remove(&key);
        if let Err(error) = &opened {
            let rest = match error.kind() {
                _ if !error.is_retriable() => rest_after(error),
                // The slot is on another server, or another thread was faster.
                ErrorKind::Unavailable => Duration::ZERO,
                // As long as the attempt took: half of the time is for other names and servers. Not
                // longer than a request may take: the machine may have slept meanwhile.
                _ => now.since(began).clamp(LEAST_REST, self.io_timeout.max(LEAST_REST)),
            };
            state.resting.insert(key, (now.plus(rest), error.clone()));
        }
        opened
    }

    /// What lies there already is heard even if that moment has passed.
    fn hear(&self, until: Moment) -> Result<Vec<(Teller, Notice)>, Error> {
        let Some(mut subscriptions) = self.subscriptions.enter(Deadline::at(until)) else {
            return Ok(Vec::new());
        };
        loop {
            self.take_all_in(&mut subscriptions)?;
            let mut notices = std::mem::take(&mut self.state.lock().unheard);
            let until = if notices.is_empty() { until } else { Moment::ZERO };
            let is_over = Moment::now() >= until;
            let wake = self.tend(&mut subscriptions, until, &mut notices).min(until);
            let has_ended = self.state.lock().ended.is_some();
            if !notices.is_empty() || (is_over && !has_ended) {
                return Ok(notices);
            }
            if !has_ended {
                self.wait(&mut subscriptions, wake);
            }
        }
    }

    /// For good: every later call says so, and so does one that hears, or connects, at once. (One
    /// that looks up a host's name does by its deadline.)
    fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.made.clear();
        state.resting.clear();
        let sockets = std::mem::take(&mut state.open).into_values().map(|open| open.socket);
        for socket in sockets.chain([state.opening.take()]).flatten() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        drop(state);
        self.changed.notify_all();
        self.bell.ring();
        // A thread that reads them now drops them.
        if let Some(mut subscriptions) = self.subscriptions.enter_now() {
            subscriptions.clear();
        }
    }
}

fn ask(wire: &mut Wire, command: &str, argument: &[u8], by: Deadline) -> Result<Value, Error> {
    let bytes = redis::cmd(command).arg(argument).get_packed_command();
    wire.send(&bytes, by).map_err(|(_, error)| fault::io(command, &error))?;
    wire.receive(by)
}
