//! A connected socket, whose reads and writes end by a deadline however the bytes come: the kernel's
//! timeouts are per call, which a server that sends one byte now and then never reaches.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::PollFlags;

use super::{poll, stranger};
use crate::clock::{Deadline, Moment};

pub(super) struct Socket {
    pub(super) inner: socket2::Socket,
    pub(super) deadline: Deadline,
    /// When it last brought or took bytes.
    pub(super) used: Moment,
    /// The kernel's for reading from it now; zero for none yet.
    timeout: Duration,
    pub(super) opening: Opening,
}

/// The first bytes that have come: by them a server of another kind is known.
#[derive(Default)]
pub(super) struct Opening {
    bytes: [u8; stranger::ENOUGH],
    count: usize,
}

impl Opening {
    pub(super) fn note(&mut self, came: &[u8]) {
        if self.count < stranger::ENOUGH {
            let taken = came.len().min(stranger::ENOUGH - self.count);
            self.bytes[self.count..self.count + taken].copy_from_slice(&came[..taken]);
            self.count += taken;
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
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

impl Socket {
    pub(super) fn new(inner: socket2::Socket) -> Socket {
        Socket {
            inner,
            deadline: Deadline::at(Moment::ZERO),
            used: Moment::now(),
            timeout: Duration::ZERO,
            opening: Opening::default(),
        }
    }

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
