//! What goes on beside a measurement: the progress bar, and Ctrl-C, after which everything that
//! was changed on a server is put back first.

use std::cell::Cell;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::exit::Failure;

pub(super) struct Watch {
    signals: Option<SignalFd>,
    bar: ProgressBar,
    started: Instant,
    looked: Cell<Instant>,
}

/// Looking costs a system call, which a cycle should not be charged with.
const PAUSE: Duration = Duration::from_millis(50);

impl Watch {
    /// From here on the calling thread, and those that it starts, leave the signals that end a
    /// program to `check`. The bar is drawn when stderr is a terminal.
    pub(super) fn start(expected: Duration) -> Result<Watch, Failure> {
        let mut signals = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            signals.add(signal);
        }
        signals.thread_block()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&signals, flags)?;
        let bar = ProgressBar::new(millis(expected));
        if let Ok(style) = ProgressStyle::with_template("{msg:24} {wide_bar} {percent:>3}%") {
            bar.set_style(style);
        }
        Ok(Watch::with(Some(signals), bar))
    }

    /// Neither shows nor looks at anything.
    #[cfg(test)]
    pub(super) fn blind() -> Watch {
        Watch::with(None, ProgressBar::hidden())
    }

    fn with(signals: Option<SignalFd>, bar: ProgressBar) -> Watch {
        let now = Instant::now();
        Watch { signals, bar, started: now, looked: Cell::new(now) }
    }

    /// Names what is going on.
    pub(super) fn say(&self, what: &'static str) {
        self.bar.set_message(what);
    }

    /// A line for people, above the bar.
    pub(super) fn note(&self, text: &str) {
        self.bar.suspend(|| eprintln!("leasehold: {text}"));
    }

    /// A failure once a signal has come.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let now = Instant::now();
        if now.duration_since(self.looked.get()) < PAUSE {
            return Ok(());
        }
        self.looked.set(now);
        self.bar.set_position(millis(now.duration_since(self.started)));
        match self.signals.as_ref().map(SignalFd::read_signal) {
            Some(Ok(Some(_))) => {
                Err(Failure::interrupted("stopped; what was put into the store is removed"))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
