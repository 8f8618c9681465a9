//! One connection: what is sent and read on it, and whether its server is there.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::dial::{Inbox, LONGEST};
use super::fault;
use super::jute::EVENT;
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind::Protocol};
use crate::store::net::stream::{LEAST, Stream};
use crate::sync::{Mutex, Turnstile};

/// How long a connection may lie unused before it is looked at whether the server has hung up.
pub(super) const UNSEEN: Duration = Duration::from_millis(100);

pub(super) struct Line {
    /// With what has come and was not read yet.
    pub(super) stream: Turnstile<(Stream, Inbox)>,
    /// To wait for bytes while others write, and to wake who waits.
    pub(super) handle: socket2::Socket,
    /// How long the session lives without a word from us.
    timeout: Duration,
    pulse: Mutex<Pulse>,
}

/// What shows whether the server is there.
struct Pulse {
    /// When bytes last went out.
    sent: Moment,
    /// How many requests have no answer, those of threads that wait no longer too: each will have one.
    open: usize,
    /// Since when there is one, or the server has last said something meanwhile.
    unanswered: Option<Moment>,
}

impl Line {
    pub(super) fn new(stream: Stream, inbox: Inbox, timeout: Duration) -> Result<Line, Error> {
        let handle = stream.fd().try_clone_to_owned();
        let handle = handle.map_err(|error| fault::io("a second handle", &error))?.into();
        let pulse = Mutex::new(Pulse { sent: Moment::now(), open: 0, unanswered: None });
        Ok(Line { stream: Turnstile::new((stream, inbox)), handle, timeout, pulse })
    }

    /// Sends so many requests. On an error, tells how many bytes had gone out.
    pub(super) fn send(
        &self,
        bytes: &[u8],
        count: usize,
        deadline: Deadline,
    ) -> Result<(), (usize, std::io::Error)> {
        // Another thread may be stuck here, with more time.
        let mut stream = self.stream.enter(deadline).ok_or((0, ErrorKind::TimedOut.into()))?;
        let (mut pulse, now) = (self.pulse.lock(), Moment::now());
        // Before they are out: another thread may read the answers at once.
        pulse.open += count;
        pulse.unanswered.get_or_insert(now);
        drop(pulse);
        let sent = stream.0.send(bytes, deadline);
        let mut pulse = self.pulse.lock();
        match sent {
            Err((0, _)) => {
                pulse.open -= count;
                pulse.unanswered = pulse.unanswered.filter(|_| pulse.open > 0);
            }
            _ => pulse.sent = now,
        }
        sent
    }

    /// When the server is to be told that this client is there; and when to leave it for another one,
    /// since it says nothing: in time for the session to go on there.
    pub(super) fn alarms(&self, io_timeout: Duration) -> (Moment, Moment) {
        let pulse = self.pulse.lock();
        let leave = pulse.unanswered.map(|since| since.plus(io_timeout.min(self.timeout / 2)));
        (pulse.sent.plus(self.timeout / 4), leave.unwrap_or(Moment::NEVER))
    }

    /// The messages that have come by then; more may be on their way.
    pub(super) fn read(
        &self,
        until: Moment,
        bell: Option<&UnixStream>,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let watch = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut watched = [watch(self.handle.as_fd()), watch(self.handle.as_fd())];
        if let Some(bell) = bell {
            watched[1] = watch(bell.as_fd());
        }
        loop {
            let left = until.since(Moment::now()).as_nanos().div_ceil(1_000_000);
            match poll(&mut watched, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(fault::io("waiting for the server", &error.into())),
                Ok(_) if watched[0].any() != Some(true) => return Ok(Vec::new()),
                Ok(_) => break,
            }
        }
        let by = Deadline::at(until.max(Moment::now().plus(LEAST)));
        let Some(mut stream) = self.stream.enter(by) else { return Ok(Vec::new()) };
        let (stream, inbox) = &mut *stream;
        let (mut messages, mut length) = (Vec::new(), 0);
        loop {
            // The rest of what is encrypted together may be on its way.
            let is_all = inbox.fill(stream, Deadline::after(LEAST))?;
            while let Some(message) = inbox.next()? {
                length += 4 + message.len();
                messages.push(message);
            }
            if length > 2 * LONGEST {
                return Err(Error::new(Protocol, "the server does not stop"));
            }
            if is_all || by.has_passed() {
                break;
            }
        }
        let is_answer = |message: &&Vec<u8>| !message.starts_with(&EVENT.to_be_bytes());
        let answers = messages.iter().filter(is_answer).count();
        self.pulse.lock().answered(answers, Moment::now());
        Ok(messages)
    }

    /// Whether the server has hung up, or is to be left, while nobody read. One that was sent something
    /// just now is not looked at: that would be a system call for every request.
    pub(super) fn has_ended(&self, io_timeout: Duration) -> bool {
        let sent = self.pulse.lock().sent;
        Moment::now().since(sent) >= UNSEEN && self.is_gone(io_timeout)
    }

    /// The same, whatever was sent.
    pub(super) fn is_gone(&self, io_timeout: Duration) -> bool {
        let mut byte = [std::mem::MaybeUninit::uninit()];
        match self.handle.recv_with_flags(&mut byte, libc::MSG_PEEK | libc::MSG_DONTWAIT) {
            Ok(count) => count == 0,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Moment::now() >= self.alarms(io_timeout).1
            }
            Err(_) => true,
        }
    }
}

impl Pulse {
    fn answered(&mut self, count: usize, now: Moment) {
        self.open = self.open.saturating_sub(count);
        self.unanswered = (self.open > 0).then_some(now);
    }
}
