//! Watching over the command while it runs: its lease, its signals and its terminal, in one loop.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use leasehold::command::{Limits, plain};
use leasehold::{EventKind, Events, Lease, Term};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::clock_gettime;

use super::child::Child;
use super::terminal::Terminal;
use crate::exit::say;
use crate::signals::{self, Signals};

/// How often the group is looked at once it was told to end.
const LOOK: Duration = Duration::from_millis(20);

/// The time since the machine started. It goes on while the machine is suspended, as leases do, and
/// is there on every Linux since 2.6.39.
pub(super) fn now() -> Duration {
    clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}

/// What the command runs under.
pub(crate) trait Held {
    fn name(&self) -> &[u8];
    fn fence(&self) -> u64;
    /// The validity that remains.
    fn left(&self) -> Duration;
}

impl Held for Lease {
    fn name(&self) -> &[u8] {
        self.name()
    }

    fn fence(&self) -> u64 {
        self.fence()
    }

    fn left(&self) -> Duration {
        self.remaining()
    }
}

impl Held for Term {
    fn name(&self) -> &[u8] {
        self.name()
    }

    fn fence(&self) -> u64 {
        self.fence()
    }

    fn left(&self) -> Duration {
        self.remaining()
    }
}

pub(super) struct Guard<'a> {
    pub(super) lease: &'a dyn Held,
    pub(super) events: &'a Events,
    pub(super) signals: &'a Signals,
    pub(super) terminal: Option<&'a Terminal>,
    pub(super) child: &'a mut Child,
    pub(super) in_front: bool,
    pub(super) limits: Limits,
    pub(super) seen: Seen,
}

pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    /// It was told to end, because of the lease.
    pub(crate) told: bool,
    /// The user knows what became of the lease, and by whom it was broken if it was.
    pub(crate) explained: bool,
    /// By ^C, which the terminal sends to the foreground only.
    pub(crate) interrupted: bool,
    /// We were told to end, and have told the command.
    pub(crate) stopped: bool,
}

/// What has happened to the command so far.
#[derive(Default)]
pub(super) struct Seen {
    /// When SIGTERM was sent for the lease's sake.
    told: Option<Duration>,
    killed: bool,
    explained: bool,
    /// A SIGINT was passed on by us.
    passed_on: bool,
    interrupted: bool,
    stopped: bool,
    status: Option<ExitStatus>,
    telling: Vec<JoinHandle<()>>,
}

impl Guard<'_> {
    /// Returns when the command has ended; on an error it may still run.
    pub(super) fn watch(mut self) -> io::Result<Finished> {
        // This clock goes on while the machine is suspended, as the lease does.
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let alarm = TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?;
        loop {
            if let Some(finished) = self.finished() {
                for telling in self.seen.telling {
                    // It only writes; a panic in there would have been shown.
                    let _ = telling.join();
                }
                return Ok(finished);
            }
            self.look_at_lease();
            let next = Expiration::OneShot(TimeSpec::from_duration(self.next()));
            alarm.set(next, TimerSetTimeFlags::empty())?;
            let Guard { signals, events, .. } = self;
            let mut sources = [signals.as_fd(), events.as_fd(), alarm.as_fd()]
                .map(|source| PollFd::new(source, PollFlags::POLLIN));
            match poll(&mut sources, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            while let Some(signal) = signals.read() {
                self.signalled(signal)?;
            }
            self.read_events();
        }
    }

    fn look_at_lease(&mut self) {
        let left = self.lease.left();
        let limits = self.limits;
        let grace_over = self.seen.told.is_some_and(|told| now() >= told + limits.grace);
        if left <= limits.kill || grace_over {
            self.kill(None);
        } else if left <= limits.stop && self.seen.told.is_none() {
            self.seen.told = Some(now());
            self.child.signal(Signal::SIGTERM);
            // One that is stopped would not hear of it.
            self.child.signal(Signal::SIGCONT);
            self.tell("is at risk: it could not be renewed; ending the command");
        }
    }

    /// `why` is what the event of the loss says.
    fn kill(&mut self, why: Option<&str>) {
        if self.seen.killed {
            return;
        }
        self.seen.killed = true;
        self.child.signal(Signal::SIGKILL);
        self.seen.told.get_or_insert_with(now);
        match why {
            None if !self.lease.left().is_zero() => {
                self.tell("is at risk, and the command did not end in time; killing it");
                self.seen.explained = true;
            }
            // The end of the lease may be able to say more.
            None => self.tell("was lost; killing the command"),
            Some(why) => {
                self.tell(&format!("was lost, {why}; killing the command"));
                self.seen.explained = true;
            }
        }
    }

    /// Says it on a thread of its own: a terminal that is held with ^S, or a full pipe, must not
    /// keep us from what is due next.
    fn tell(&mut self, what: &str) {
        let message = format!("the lease on {} {what}", plain(self.lease.name()));
        let name = "leasehold-say".to_owned();
        self.seen.telling.extend(thread::Builder::new().name(name).spawn(move || say(&message)));
    }

    /// Once the command was told to end, the whole group has to.
    fn finished(&self) -> Option<Finished> {
        let told = self.seen.told.is_some();
        let over = !told || self.seen.killed || !self.child.group_lives();
        let Seen { interrupted, explained, stopped, .. } = self.seen;
        let finished = |status| Finished { status, told, explained, interrupted, stopped };
        self.seen.status.filter(|_| over).map(finished)
    }

    /// How long there is nothing to do unless something happens.
    fn next(&self) -> Duration {
        let left = self.lease.left();
        let next = match self.seen.told {
            None => left.saturating_sub(self.limits.stop),
            Some(_) if self.seen.killed => LOOK,
            Some(_) => LOOK.min(left.saturating_sub(self.limits.kill)),
        };
        // Zero would switch the timer off.
        next.max(Duration::from_millis(1))
    }

    fn read_events(&mut self) {
        let fence = self.lease.fence();
        while let Ok(Some(event)) = self.events.try_next() {
            if event.fence == fence && matches!(event.kind, EventKind::Lost(_)) {
                self.kill(event.detail.as_deref());
            }
        }
    }

    fn signalled(&mut self, signal: Signal) -> io::Result<()> {
        match signal {
            Signal::SIGCHLD => return self.child_changed(),
            Signal::SIGCONT => self.go_on(),
            signal => {
                self.seen.passed_on |= signal == Signal::SIGINT;
                self.seen.stopped |=
                    matches!(signal, Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTERM);
                self.child.signal(signal);
            }
        }
        Ok(())
    }

    fn child_changed(&mut self) -> io::Result<()> {
        while let Some(signal) = self.child.stopped() {
            self.child_stopped(signal);
        }
        if self.seen.status.is_none()
            && let Some(status) = self.child.status()?
        {
            self.seen.status = Some(status);
            self.child_ended(status);
        }
        Ok(())
    }

    fn child_ended(&mut self, status: ExitStatus) {
        let Some(terminal) = self.terminal else { return };
        if !terminal.belongs_to(self.child.group) {
            return;
        }
        terminal.take_back();
        if let Some(signal) = status.signal() {
            terminal.restore();
            self.seen.interrupted = signal == Signal::SIGINT as i32 && !self.seen.passed_on;
        }
    }

    /// The command was stopped, by ^Z or because it wants the terminal: then so are we, and the
    /// shell can continue both. Without a terminal no shell could, and the lease stays held.
    fn child_stopped(&mut self, signal: Signal) {
        let Some(terminal) = self.terminal else { return };
        let wants_terminal = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        if wants_terminal && terminal.is_ours() {
            self.in_front = true;
        } else {
            if terminal.belongs_to(self.child.group) {
                terminal.take_back();
            }
            signals::suspend();
        }
        self.go_on();
    }

    /// Continues the command, in the foreground if we are there. A lease that ended while we were
    /// stopped ends the command first.
    fn go_on(&mut self) {
        self.look_at_lease();
        if let Some(terminal) = self.terminal
            && terminal.is_ours()
            && self.in_front
        {
            terminal.give(self.child.group);
        }
        self.child.signal(Signal::SIGCONT);
    }
}
