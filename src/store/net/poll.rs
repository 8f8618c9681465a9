//! Waiting for several sockets at once.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout};

use crate::clock::Moment;
use crate::error::{Error, ErrorKind};

/// Until one of them has something to read, or has ended, or the moment has come; perhaps earlier.
pub(in crate::store) fn readable(fds: &[BorrowedFd<'_>], until: Moment) {
    let mut fds: Vec<_> = fds.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
    await_one(&mut fds, until);
}

/// Whether this one can be read or written by then; false, too, after a signal.
pub(super) fn is_ready(fd: BorrowedFd<'_>, flags: PollFlags, until: Moment) -> bool {
    await_one(&mut [PollFd::new(fd, flags)], until)
}

fn await_one(fds: &mut [PollFd<'_>], until: Moment) -> bool {
    let left = until.since(Moment::now()).min(Duration::from_secs(3600));
    // The kernel counts in milliseconds; rounded down, the last one would be spent asking.
    let millis = left.as_micros().div_ceil(1000);
    let timeout = i32::try_from(millis).ok().and_then(|millis| PollTimeout::try_from(millis).ok());
    // After a signal, or without memory for it, the caller looks and comes back.
    nix::poll::poll(fds, timeout.unwrap_or(PollTimeout::ZERO)).is_ok_and(|ready| ready > 0)
}

pub(in crate::store) struct Bell(Option<(UnixDatagram, UnixDatagram)>);

impl Bell {
    /// One that nobody hears costs no descriptors.
    pub(in crate::store) fn new(is_heard: bool) -> Result<Bell, Error> {
        let pair = || -> std::io::Result<_> {
            let (ring, hear) = UnixDatagram::pair()?;
            ring.set_nonblocking(true)?;
            hear.set_nonblocking(true)?;
            Ok((ring, hear))
        };
        let ends = is_heard.then(pair).transpose();
        Ok(Bell(ends.map_err(|error| Error::new(ErrorKind::Exhausted, error.to_string()))?))
    }

    pub(in crate::store) fn ring(&self) {
        if let Some((ring, _)) = &self.0 {
            // Full, it rings already.
            let _ = ring.send(&[0]);
        }
    }

    pub(in crate::store) fn silence(&self) {
        if let Some((_, hear)) = &self.0 {
            while hear.recv(&mut [0]).is_ok() {}
        }
    }

    pub(in crate::store) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(|(_, hear)| hear.as_fd())
    }
}
