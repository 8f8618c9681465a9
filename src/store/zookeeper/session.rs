//! One connection that all threads of a client share. Each writes its requests and waits for the answers;
//! one of those that wait reads for all, and wakes the others. So a client costs the ensemble one session,
//! and no thread.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use super::dial::{Dialer, Identity};
use super::fault;
use super::jute::{Ask, EVENT, Packer, Reply, Unpacker};
use super::line::Line;
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::net::stream::LEAST;
use crate::store::{By, Failure};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// A packet that was lost is sent again within this, and ends nobody's connection.
const SILENCE: Duration = Duration::from_millis(300);

pub(super) struct Session {
    pub(super) dialer: Dialer,
    io_timeout: Duration,
    state: Mutex<State>,
    news: Condvar,
    /// Wakes a thread that reads for the sake of events.
    bell: (UnixStream, UnixStream),
}

#[derive(Default)]
struct State {
    line: Option<Arc<Line>>,
    /// How many connections there have been: what was asked on an earlier one has no answer.
    count: u64,
    /// Why the last one ended, or none could be made.
    trouble: Option<Error>,
    identity: Option<Identity>,
    /// The last change that a server has told us of: one that does not know it would tell old news, to a
    /// new session as well.
    seen: i64,
    last_xid: i32,
    /// Requests under way, with their answers as they come.
    asked: HashMap<i32, Option<Reply>>,
    /// Paths of nodes of which an event has told.
    events: VecDeque<String>,
    is_connecting: bool,
    /// How long who dialed last had for it.
    dialed_by: Moment,
    is_reading: bool,
    sleepers: u32,
    /// Nobody waits for events any more.
    is_deaf: bool,
}

/// What a thread waits for.
enum Awaited<'a> {
    Replies(&'a [i32]),
    Events,
    /// It takes in what has come.
    Nothing,
}

impl Session {
    pub(super) fn new(dialer: Dialer, io_timeout: Duration) -> Result<Session, Error> {
        let bell = UnixStream::pair().map_err(|error| fault::io("a pair of sockets", &error))?;
        let (state, news) = Default::default();
        Ok(Session { dialer, io_timeout, state, news, bell })
    }

    /// Which connection there is, if there is one.
    pub(super) fn count(&self) -> Option<u64> {
        let state = self.state.lock();
        state.line.as_ref().map(|_| state.count)
    }

    /// How long the server lets the session live without a word from us.
    #[cfg(feature = "examine")]
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.state.lock().identity.as_ref().map(|identity| identity.timeout)
    }

    /// Sends some requests and returns their answers, in order, with the moment before they were sent
    /// and the number of the connection.
    pub(super) fn call(
        &self,
        asks: &[Ask<'_>],
        by: By,
    ) -> Result<(Moment, u64, Vec<Reply>), Failure> {
        loop {
            let (line, count, is_new) = self.connected(by.connect).map_err(Failure::not_done)?;
            let mut state = self.state.lock();
            if state.count != count {
                continue;
            }
            let mut out = Vec::new();
            let mut packer = Packer { out: &mut out, acl: self.dialer.acl() };
            let mut xids = Vec::with_capacity(asks.len());
            for ask in asks {
                let xid = state.last_xid.checked_add(1).unwrap_or(1);
                state.last_xid = xid;
                state.asked.insert(xid, None);
                packer.ask(xid, ask);
                xids.push(xid);
            }
            drop(state);
            let sent = Moment::now();
            if sent >= by.done.moment() {
                self.forget(&xids);
                return Err(Failure::not_done(late()));
            }
            if let Err((gone, error)) = line.send(&out, asks.len(), by.done) {
                self.forget(&xids);
                let is_late = error.kind() == std::io::ErrorKind::TimedOut;
                let error = fault::io("sending to the server", &error);
                if gone == 0 && is_late {
                    // The connection is everybody's: who has little time does not end it.
                    return Err(Failure::not_done(error));
                }
                self.end(&mut self.state.lock(), count, &error);
                if gone > 0 {
                    return Err(Failure::unknown(error, sent));
                }
                if is_new {
                    return Err(Failure::not_done(error));
                }
                // It had died unseen.
                continue;
            }
            let waited = self.wait(count, &Awaited::Replies(&xids), by.done.moment());
            let mut state = self.state.lock();
            // All of them, also behind one that is missing: nobody asks for them any more.
            let replies: Vec<Option<Reply>> =
                xids.iter().map(|xid| state.asked.remove(xid).flatten()).collect();
            let replies: Option<Vec<Reply>> = replies.into_iter().collect();
            let failed = waited.err().unwrap_or_else(fault::silent);
            return replies
                .map(|replies| (sent, count, replies))
                .ok_or_else(|| Failure::unknown(failed, sent));
        }
    }

    /// The paths that events have told of by then; an error if that connection is there no longer.
    pub(super) fn hear(&self, count: u64, until: Moment) -> Result<Vec<String>, Error> {
        self.wait(count, &Awaited::Events, until)?;
        Ok(self.state.lock().events.drain(..).collect())
    }

    /// The connection that there is, or a new one; tells whether it is that.
    fn connected(&self, deadline: Deadline) -> Result<(Arc<Line>, u64, bool), Error> {
        let mut state = self.state.lock();
        let began = state.count;
        loop {
            if let Some(line) = state.line.clone() {
                let count = state.count;
                if state.is_reading || !line.has_ended(self.io_timeout) {
                    return Ok((line, count, false));
                }
                let hung_up = Error::new(ErrorKind::Refused, "the server had hung up");
                self.end(&mut state, count, &hung_up);
            }
            if !state.is_connecting {
                break;
            }
            let left = deadline.left();
            if left.is_zero() {
                return Err(state.trouble.clone().unwrap_or_else(late));
            }
            state = self.sleep(state, left);
            if state.line.is_none()
                && !state.is_connecting
                && state.count != began
                && let Some(trouble) = &state.trouble
                && (!trouble.is_retriable() || state.dialed_by >= deadline.moment())
            {
                // What another thread has just found holds for this one, which has no more time.
                return Err(trouble.clone());
            }
        }
        if deadline.has_passed() {
            return Err(late());
        }
        state.is_connecting = true;
        let (before, seen) = (state.identity.clone(), state.seen);
        drop(state);
        let made = self.dialer.dial((before.as_ref(), seen), deadline);
        let mut state = self.state.lock();
        (state.is_connecting, state.dialed_by) = (false, deadline.moment());
        state.count += 1;
        self.wake(&state);
        let made = made.and_then(|(stream, inbox, identity)| {
            Ok((Line::new(stream, inbox, identity.timeout)?, identity))
        });
        let (line, identity) = made.inspect_err(|error| state.trouble = Some(error.clone()))?;
        let line = Arc::new(line);
        (state.identity, state.line) = (Some(identity), Some(Arc::clone(&line)));
        Ok((line, state.count, true))
    }

    /// Waits for something to come, and reads meanwhile if no other thread does.
    fn wait(&self, count: u64, what: &Awaited<'_>, until: Moment) -> Result<(), Error> {
        let mut state = self.state.lock();
        loop {
            let is_here = match what {
                Awaited::Replies(xids) => {
                    xids.iter().all(|xid| matches!(state.asked.get(xid), None | Some(Some(_))))
                }
                Awaited::Events if state.is_deaf => return Err(Error::bare(ErrorKind::Closed)),
                Awaited::Events => !state.events.is_empty(),
                Awaited::Nothing => false,
            };
            if is_here {
                return Ok(());
            }
            let line = match &state.line {
                Some(line) if state.count == count => Arc::clone(line),
                _ => return Err(state.trouble.clone().unwrap_or_else(fault::silent)),
            };
            let now = Moment::now();
            if now >= until {
                return Ok(());
            }
            if state.is_reading {
                state = self.sleep(state, until.since(now));
                continue;
            }
            state.is_reading = true;
            drop(state);
            let bell = matches!(what, Awaited::Events).then_some(&self.bell.1);
            let (ping_at, leave_at) = line.alarms(self.io_timeout);
            let read = line.read(until.min(ping_at).min(leave_at), bell);
            let (now, (ping_at, leave_at)) = (Moment::now(), line.alarms(self.io_timeout));
            let kept = match &read {
                Ok(_) if now >= leave_at => Err(fault::silent()),
                Ok(_) if now >= ping_at => self.ping(&line),
                _ => Ok(()),
            };
            state = self.state.lock();
            state.is_reading = false;
            let taken = read.and_then(|messages| {
                messages.iter().try_for_each(|message| state.take_in(message))
            });
            if let Err(error) = taken.and(kept) {
                self.end(&mut state, count, &error);
            }
            self.wake(&state);
        }
    }

    fn ping(&self, line: &Line) -> Result<(), Error> {
        let mut out = Vec::new();
        Packer { out: &mut out, acl: self.dialer.acl() }.ping();
        match line.send(&out, 1, Deadline::after(LEAST)) {
            // It is tried again.
            Err((0, error)) if error.kind() == std::io::ErrorKind::TimedOut => Ok(()),
            sent => sent.map_err(|(_, error)| fault::io("sending to the server", &error)),
        }
    }

    /// Keeps an idle session, if it is time to, and leaves a server that says nothing.
    pub(super) fn keep(&self) {
        let state = self.state.lock();
        let (Some(line), count, now) = (state.line.clone(), state.count, Moment::now()) else {
            return;
        };
        let is_read = state.is_reading;
        drop(state);
        let (ping_at, leave_at) = line.alarms(self.io_timeout);
        if !is_read && now >= ping_at.min(leave_at) {
            let _ = self.wait(count, &Awaited::Nothing, now.plus(LEAST));
        }
    }

    /// A lease was not extended in time. Where the server says nothing at all, the next try is on another
    /// connection: what is left of the ttl may end before the server would be left anyway.
    pub(super) fn leave_if_silent(&self) {
        let mut state = self.state.lock();
        if state.line.as_ref().is_some_and(|line| line.is_gone(SILENCE)) {
            let count = state.count;
            self.end(&mut state, count, &fault::silent());
        }
    }

    /// A thread that waits for events returns at once, and none waits again.
    pub(super) fn deafen(&self) {
        let mut state = self.state.lock();
        state.is_deaf = true;
        self.wake(&state);
        let _ = self.bell.0.shutdown(Shutdown::Both);
    }

    fn forget(&self, xids: &[i32]) {
        let mut state = self.state.lock();
        xids.iter().for_each(|xid| drop(state.asked.remove(xid)));
    }

    /// A connection has ended, if it is still that one.
    fn end(&self, state: &mut State, count: u64, error: &Error) {
        if state.count != count {
            return;
        }
        if let Some(line) = state.line.take() {
            let _ = line.handle.shutdown(Shutdown::Both);
        }
        if error.kind() == ErrorKind::NoAnswer {
            self.dialer.hosts.leave();
        }
        state.count += 1;
        state.trouble = Some(error.clone());
        state.events.clear();
        self.wake(state);
    }

    fn sleep<'a>(&self, mut state: MutexGuard<'a, State>, span: Duration) -> MutexGuard<'a, State> {
        state.sleepers += 1;
        state = self.news.wait_for(state, span);
        state.sleepers -= 1;
        state
    }

    /// Without sleepers nobody is notified: that would be a system call for every request.
    fn wake(&self, state: &State) {
        if state.sleepers > 0 {
            self.news.notify_all();
        }
    }
}

impl Drop for Session {
    /// The server need not wait for the session to run out.
    fn drop(&mut self) {
        let line = self.state.lock().line.take();
        if let Some(line) = line {
            let mut out = Vec::new();
            Packer { out: &mut out, acl: self.dialer.acl() }.close_session();
            let _ = line.send(&out, 1, Deadline::after(self.io_timeout));
            let _ = line.handle.shutdown(Shutdown::Write);
        }
    }
}

impl State {
    fn take_in(&mut self, message: &[u8]) -> Result<(), Error> {
        let (xid, reply) = Reply::read(message)?;
        self.seen = self.seen.max(reply.zxid);
        if xid == EVENT {
            let mut from = Unpacker(&reply.body);
            from.int()?;
            from.int()?;
            self.events.push_back(from.text()?.to_owned());
        } else if let Some(asked) = self.asked.get_mut(&xid) {
            *asked = Some(reply);
        }
        Ok(())
    }
}

fn late() -> Error {
    Error::new(ErrorKind::NoAnswer, "the deadline had passed")
}
