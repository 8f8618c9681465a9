//! Signals as things to read, in the order of one loop, instead of interruptions.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, killpg, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::getpgrp;

const ENDING: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];
const OTHERS: [Signal; 4] = [Signal::SIGWINCH, Signal::SIGCONT, Signal::SIGTSTP, Signal::SIGCHLD];
const FLAGS: SfdFlags = SfdFlags::SFD_CLOEXEC.union(SfdFlags::SFD_NONBLOCK);

/// From the moment it is made, signals wait until they are read.
pub(crate) struct Signals {
    arrived: SignalFd,
    /// What was blocked when this process started, for the command.
    pub(crate) before: SigSet,
}

impl Signals {
    /// Before any other thread starts: threads inherit what is blocked, and a single one that
    /// does not block a signal would be interrupted by it.
    pub(crate) fn watch() -> Result<Signals, Errno> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = ignored(&status);
        // What our parent wants ignored (nohup, a shell with a background job) stays ignored.
        let watched: SigSet = ENDING
            .into_iter()
            .chain(OTHERS)
            .filter(|signal| *signal == Signal::SIGCHLD || !is_in(ignored, *signal))
            .collect();
        let mut blocked = watched;
        // Blocked, it does not keep a process in the background from moving the foreground.
        blocked.add(Signal::SIGTTOU);
        let before = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        Ok(Signals { arrived: SignalFd::with_flags(&watched, FLAGS)?, before })
    }

    pub(crate) fn read(&self) -> Option<Signal> {
        first(&self.arrived)
    }

    /// Whether there is one to be read.
    pub(crate) fn have_arrived(&self) -> bool {
        let mut source = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
        poll(&mut source, PollTimeout::ZERO).is_ok_and(|count| count > 0)
    }
}

fn first(arrived: &SignalFd) -> Option<Signal> {
    let info = arrived.read_signal().ok().flatten()?;
    Signal::try_from(i32::try_from(info.ssi_signo).ok()?).ok()
}

/// Does what may take long. A signal that wants the program to end is told to `end` meanwhile, which
/// has to end it, on a thread of its own: the one that waits for a silent store hears of nothing. To
/// be called while signals are watched; others than these go on waiting until they are read.
pub(crate) fn ended_meanwhile<T>(end: fn(Signal), long: impl FnOnce() -> T) -> T {
    let watch = || {
        Some((SignalFd::with_flags(&ENDING.into_iter().collect(), FLAGS).ok()?, io::pipe().ok()?))
    };
    let Some((arrived, (over, running))) = watch() else { return long() };
    thread::scope(|scope| {
        let heed = move || {
            let mut sources = [arrived.as_fd(), over.as_fd()]
                .map(|source| PollFd::new(source, PollFlags::POLLIN));
            while poll(&mut sources, PollTimeout::NONE) == Err(Errno::EINTR) {}
            first(&arrived).into_iter().for_each(end);
        };
        // Without that thread, it lasts as long as it lasts.
        let _ = thread::Builder::new().spawn_scoped(scope, heed);
        let outcome = long();
        drop(running);
        outcome
    })
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.arrived.as_fd()
    }
}

/// Stops this process and all others of its job, as ^Z does, and returns when it goes on. Where no
/// shell could continue it, the kernel discards the signal and this returns at once.
pub(crate) fn suspend() {
    let stop = SigSet::from(Signal::SIGTSTP);
    // None of the three can fail: the signal, the group and the mask are our own.
    let _ = killpg(getpgrp(), Signal::SIGTSTP);
    let _ = stop.thread_unblock();
    let _ = stop.thread_block();
}

/// Ends this process by SIGINT, so that a shell ends its script too: an exit with 130 would only
/// be a failed command there. Returns where SIGINT is ignored.
pub(crate) fn end_interrupted() {
    let _ = raise(Signal::SIGINT);
    let _ = SigSet::from(Signal::SIGINT).thread_unblock();
}

/// The set of ignored signals that the kernel shows of a process, bit 0 for signal 1.
fn ignored(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0)
}

fn is_in(set: u64, signal: Signal) -> bool {
    set & (1 << (signal as u64 - 1)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_what_is_ignored() {
        let set = ignored("Name:\tx\nSigBlk:\t0000000000000004\nSigIgn:\t0000000000001001\n");
        assert!(is_in(set, Signal::SIGHUP) && is_in(set, Signal::SIGPIPE));
        assert!(!is_in(set, Signal::SIGINT) && !is_in(set, Signal::SIGQUIT));
        assert_eq!(ignored(""), 0);
    }
}
