//! The command as a child process, in a process group of its own.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{self, Command, ExitStatus};

use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigHandler, Signal, killpg, signal};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpid, getppid, tcsetpgrp};

use super::terminal::Terminal;
use crate::signals::Signals;

/// Whether `cargo leasehold` has rustup pin the toolchain, which would override the one that a cargo in
/// the command's own folder asks for. What the user's shell has set stays, and so does what cargo has
/// set for a program that called us.
fn has_toolchain_of_our_checkout() -> bool {
    let is = |name: &str, value: &str| env::var_os(name).is_some_and(|found| found == value);
    is("CARGO_PKG_NAME", env!("CARGO_PKG_NAME")) && !is("RUSTUP_TOOLCHAIN_SOURCE", "env")
}

/// The running command and everything in its group.
pub(super) struct Child {
    process: process::Child,
    pub(super) group: Pid,
}

impl Child {
    /// Starts the command: leader of a group of its own, in the foreground if `terminal` is given,
    /// with the signal mask that this process was started with.
    pub(super) fn spawn(
        words: &[OsString],
        variables: [(&str, OsString); 2],
        signals: &Signals,
        terminal: Option<&Terminal>,
    ) -> io::Result<Child> {
        let [program, arguments @ ..] = words else {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        };
        let mut command = Command::new(program);
        command.args(arguments).envs(variables).process_group(0);
        if has_toolchain_of_our_checkout() {
            command.env_remove("RUSTUP_TOOLCHAIN");
        }
        let tty = terminal.map(|terminal| terminal.tty.try_clone()).transpose()?;
        let (parent, mask) = (getpid(), signals.before);
        let prepare = move || {
            set_pdeathsig(Signal::SIGTERM)?;
            if getppid() != parent {
                // It died before it could be watched.
                return Err(io::Error::from(Errno::ESRCH));
            }
            if let Some(tty) = &tty {
                // Here and not in the parent: the command may read its first key at once. If the
                // terminal has hung up, the command runs without it.
                let _ = tcsetpgrp(tty, getpid());
            }
            mask.thread_set_mask()?;
            Ok(())
        };
        // Our parent may ignore SIGCHLD, and then the kernel would throw our child's status away.
        // SAFETY: the default action runs no code of ours, and nothing else in this process has set
        // an action that this could replace.
        #[allow(unsafe_code)]
        unsafe {
            signal(Signal::SIGCHLD, SigHandler::SigDfl)?;
        }
        // SAFETY: what runs between fork and exec may only make calls that are safe in a signal
        // handler, since another thread may have held any mutex at the fork. `prepare` makes five
        // system calls (prctl, getppid, ioctl, getpid, rt_sigprocmask) on values that were made
        // before; errors are numbers, so nothing is allocated or freed.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(prepare);
        }
        let spawned = command.spawn();
        if let (Err(_), Some(terminal)) = (&spawned, terminal) {
            terminal.take_back();
        }
        let process = spawned?;
        let group = Pid::from_raw(process.id().cast_signed());
        Ok(Child { process, group })
    }

    pub(super) fn signal(&self, signal: Signal) {
        // The group may be gone by now.
        let _ = killpg(self.group, signal);
    }

    pub(super) fn group_lives(&self) -> bool {
        killpg(self.group, None) != Err(Errno::ESRCH)
    }

    /// The signal that has stopped the command since this was last asked.
    pub(super) fn stopped(&self) -> Option<Signal> {
        match waitid(Id::Pid(self.group), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG) {
            Ok(WaitStatus::Stopped(_, signal)) => Some(signal),
            _ => None,
        }
    }

    pub(super) fn status(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }
}
