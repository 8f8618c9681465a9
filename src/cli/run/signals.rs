//! Signals as things to read, in the order of one loop, instead of interruptions.

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, killpg, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::getpgrp;

const WATCHED: [Signal; 10] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGCONT,
    Signal::SIGTSTP,
    Signal::SIGCHLD,
];

/// From the moment it is made, signals wait until they are read.
pub(super) struct Signals {
    arrived: SignalFd,
    /// What was blocked when this process started, for the command.
    pub(super) before: SigSet,
}

impl Signals {
    /// Before any other thread starts: threads inherit what is blocked, and a single one that
    /// does not block a signal would be interrupted by it.
    pub(super) fn watch() -> Result<Signals, Errno> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = ignored(&status);
        // What our parent wants ignored (nohup, a shell with a background job) stays ignored.
        let watched: SigSet = WATCHED
            .into_iter()
            .filter(|signal| *signal == Signal::SIGCHLD || !is_in(ignored, *signal))
            .collect();
        let mut blocked = watched;
        // Blocked, it does not keep a process in the background from moving the foreground.
        blocked.add(Signal::SIGTTOU);
        let before = blocked.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Signals { arrived: SignalFd::with_flags(&watched, flags)?, before })
    }

    pub(super) fn read(&self) -> Option<Signal> {
        let info = self.arrived.read_signal().ok().flatten()?;
        Signal::try_from(i32::try_from(info.ssi_signo).ok()?).ok()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.arrived.as_fd()
    }
}

/// Stops this process and all others of its job, as ^Z does, and returns when it goes on. Where no
/// shell could continue it, the kernel discards the signal and this returns at once.
pub(super) fn suspend() {
    let stop = SigSet::from(Signal::SIGTSTP);
    // None of the three can fail: the signal, the group and the mask are our own.
    let _ = killpg(getpgrp(), Signal::SIGTSTP);
    let _ = stop.thread_unblock();
    let _ = stop.thread_block();
}

/// Ends this process by SIGINT, so that a shell ends its script too: an exit with 130 would only
/// be a failed command there. Returns where SIGINT is ignored.
pub(super) fn end_interrupted() {
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
