//! Who has the foreground of the terminal: what a shell does for its jobs, for one command.

use std::fs::{File, OpenOptions};
use std::io;

use nix::sys::stat::{SFlag, fstat};
use nix::sys::termios::{SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

pub(crate) struct Terminal {
    pub(super) tty: File,
    ours: Pid,
    /// How the terminal was set before the command had it.
    modes: Option<Termios>,
}

impl Terminal {
    /// `None` where there is none: in cron, in a service, without a session.
    pub(super) fn open() -> Option<Terminal> {
        let tty = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        let modes = tcgetattr(&tty).ok();
        Some(Terminal { tty, ours: getpgrp(), modes })
    }

    pub(super) fn is_ours(&self) -> bool {
        self.belongs_to(self.ours)
    }

    pub(super) fn belongs_to(&self, group: Pid) -> bool {
        tcgetpgrp(&self.tty) == Ok(group)
    }

    /// Whether the command is to have the foreground from its start. Where standard output is a
    /// pipe it may be a pager of our own job that reads the keys; then the command gets the
    /// foreground when it asks for it.
    pub(super) fn is_wanted(&self) -> bool {
        let piped = fstat(io::stdout())
            .is_ok_and(|out| SFlag::S_IFMT.bits() & out.st_mode == SFlag::S_IFIFO.bits());
        tcgetpgrp(io::stdin()) == Ok(self.ours) && !piped
    }

    pub(super) fn give(&self, group: Pid) {
        // It fails where the terminal has hung up; then there is nothing to give.
        let _ = tcsetpgrp(&self.tty, group);
    }

    pub(super) fn take_back(&self) {
        self.give(self.ours);
    }

    /// Undoes what a command did to the terminal and, killed, could not undo itself.
    pub(super) fn restore(&self) {
        if let Some(modes) = &self.modes {
            let _ = tcsetattr(&self.tty, SetArg::TCSADRAIN, modes);
        }
    }
}
