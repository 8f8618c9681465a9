//! The same test binary as another process.
//!
//! A file of tests that needs processes names their roles:
//!
//! ```ignore
//! pub const ROLES: Roles = &[("holder", holder)];
//!
//! fn holder(args: &[String]) {
//!     kit::child::say("ready");
//! }
//! ```
//!
//! and starts one with `Child::start("holder", &[&server.url()])`. One ignored test in the program's
//! `main.rs`, named `child_entry`, calls `play` with the roles of all files.
//!
//! A test that cannot share a process with others runs `alone`.

use std::env;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use nix::sys::signal::Signal;

use super::clocked::Clock;
use super::process::Process;

const ENTRY: &str = "child_entry";
const ALONE: &str = "KIT_ALONE";
const ROLE: &str = "KIT_ROLE";
const ARGS: &str = "KIT_ARGS";
const SEPARATOR: &str = "\u{1f}";
/// Tells the lines of a role from those that the test harness prints.
const MARK: &str = "@@ ";

pub type Role = fn(&[String]);
pub type Roles = &'static [(&'static str, Role)];

/// In a child: plays the role it was started for, then exits. Elsewhere: does nothing.
pub fn play(roles: &[Roles]) {
    let Ok(wanted) = env::var(ROLE) else { return };
    let args = env::var(ARGS).unwrap_or_default();
    let args: Vec<String> = args.split_terminator(SEPARATOR).map(str::to_owned).collect();
    let role = roles.iter().copied().flatten().find(|(name, _)| *name == wanted);
    let (_, role) = role.unwrap_or_else(|| panic!("no role is named {wanted}"));
    role(&args);
}

/// Runs a test in a process of its own, where it may set a logger or measure the whole process. It
/// has to be the first thing that the test calls, and the only one.
#[track_caller]
pub fn alone(test: impl FnOnce()) {
    if env::var_os(ALONE).is_some() {
        return test();
    }
    let thread = std::thread::current();
    let name = thread.name().expect("the harness names each test's thread after the test");
    let mut command = Command::new(env::current_exe().expect("the test binary has a path"));
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(ALONE, "yes");
    let output = command.stdin(Stdio::null()).output().expect("the test binary runs");
    let [said, complained] = [&output.stdout, &output.stderr].map(|o| String::from_utf8_lossy(o));
    let passed = output.status.success() && said.contains("1 passed");
    assert!(passed, "{name}, alone: {}\n{said}{complained}", output.status);
}

/// In a child: one line to the parent.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // The harness may have left its own line unfinished.
    write!(out, "\n{MARK}{line}\n").and_then(|()| out.flush()).expect("the parent listens");
}

/// In a child: the next line that the parent sends; None when there are no more.
pub fn hear() -> Option<String> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line).expect("standard input is a pipe");
    (read > 0).then(|| line.trim_end_matches('\n').to_owned())
}

pub struct Child {
    process: Process,
    lines: Receiver<String>,
}

impl Child {
    pub fn start(role: &str, args: &[&str]) -> Child {
        Child::start_by(role, args, None)
    }

    /// With a wall clock of its own.
    pub fn start_by(role: &str, args: &[&str], clock: Option<&Clock>) -> Child {
        Child::start_behind(&[], role, args, clock)
    }

    /// By a command that becomes the process whose command line follows its own.
    pub fn start_behind(
        before: &[&str],
        role: &str,
        args: &[&str],
        clock: Option<&Clock>,
    ) -> Child {
        let mut joined = args.join(SEPARATOR);
        if !args.is_empty() {
            joined.push_str(SEPARATOR);
        }
        let binary = env::current_exe().expect("the test binary has a path");
        let mut words = before.iter().map(OsStr::new).chain([binary.as_os_str()]);
        let mut command = Command::new(words.next().expect("the binary at least"));
        command
            .args(words)
            .args([ENTRY, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(ARGS, joined)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(clock) = clock {
            clock.wind(&mut command);
        }
        let mut process = Process::spawn(&mut command);
        let out = process.handle().stdout.take().expect("stdout is piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if let Some(text) = line.strip_prefix(MARK)
                    && sender.send(text.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        Child { process, lines }
    }

    /// The next line that the child says.
    #[track_caller]
    pub fn line(&self, limit: Duration) -> String {
        match self.lines.recv_timeout(limit) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("the child said nothing within {limit:?}"),
            Err(RecvTimeoutError::Disconnected) => panic!("the child ended without another line"),
        }
    }

    /// What the child has said by now and nobody has looked at.
    pub fn said(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// What the child says until it closes its output.
    #[track_caller]
    pub fn rest(&self, limit: Duration) -> Vec<String> {
        let start = std::time::Instant::now();
        let mut lines = Vec::new();
        loop {
            match self.lines.recv_timeout(limit.saturating_sub(start.elapsed())) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => return lines,
                Err(RecvTimeoutError::Timeout) => panic!("the child still speaks after {limit:?}"),
            }
        }
    }

    /// One line to the child, which gets it by `hear`.
    pub fn tell(&mut self, line: &str) {
        let input = self.process.handle().stdin.as_mut().expect("stdin is piped");
        writeln!(input, "{line}").expect("the child lives");
    }

    pub fn pid(&self) -> nix::unistd::Pid {
        self.process.pid()
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// SIGSTOP; returns when the child stands still.
    pub fn stop(&self) {
        self.process.stop();
    }

    pub fn cont(&self) {
        self.process.cont();
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Waits for the child's own end. A role that panicked is no success.
    #[track_caller]
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        drop(self.process.handle().stdin.take());
        self.process.wait(limit)
    }
}
