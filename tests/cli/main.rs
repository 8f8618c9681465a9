//! The command line, as a program that others start, signal and wait for.
#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod command;
mod doctor;
mod each;
mod elect;
mod listing;
mod metrics;
mod mistaken;
mod outcomes;
mod schedulers;
mod shells;
#[path = "../stores/mod.rs"]
mod stores;
mod terminal;
mod top;
mod unasked;
mod watching;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use kit::{Process, Server, eventually};

const LIMIT: Duration = Duration::from_secs(20);

/// A command that says when it runs and ends with its standard input.
const HOLD: [&str; 3] = ["sh", "-c", "echo ready; read _; exit 7"];

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A test run in the background of a script ignores ^C, and so would all that it starts.
fn mind_signals() {
    use nix::sys::signal::{SigHandler, Signal, signal};

    for signal_of_terminal in [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP] {
        // SAFETY: the default action runs no code of ours.
        #[allow(unsafe_code)]
        unsafe {
            signal(signal_of_terminal, SigHandler::SigDfl).unwrap();
        }
    }
}

fn leasehold<W: AsRef<OsStr>>(url: &str, words: impl IntoIterator<Item = W>) -> Command {
    mind_signals();
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    // It would warn of those that only tests know.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name != "LEASEHOLD_CONF") {
        if name.as_encoded_bytes().starts_with(b"LEASEHOLD_") {
            command.env_remove(name);
        }
    }
    command.env("LEASEHOLD_URL", url).env_remove("RUST_LOG").args(words).stdin(Stdio::null());
    command
}

/// A store that bears with being given no processor for a while; a quorum waits a tenth of it for one.
fn patient(store: &stores::Store) -> String {
    let url = store.url();
    let sign = if url.contains('?') { '&' } else { '?' };
    format!("{url}{sign}io_timeout=20s")
}

/// Without a URL, on a machine that has no file for it.
fn nowhere<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>) -> Command {
    let mut command = leasehold("", words);
    command.env_remove("LEASEHOLD_URL").env("LEASEHOLD_CONF", "/dev/null");
    command
}

/// `leasehold run OPTIONS name -- COMMAND`
fn run(server: &Server, options: &[&str], name: &str, words: &[&str]) -> Command {
    leasehold(&server.url(), [&["run"], options, &[name, "--"], words].concat())
}

fn sh(server: &Server, options: &[&str], name: &str, script: &str) -> Command {
    run(server, options, name, &["sh", "-c", script])
}

#[track_caller]
fn code(mut command: Command) -> i32 {
    let Output { status, .. } = command.output().unwrap();
    status.code().unwrap_or_else(|| panic!("{command:?}: {status}"))
}

/// What it prints, if it succeeds.
#[track_caller]
fn printed(mut command: Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    assert!(status.success(), "{command:?}: {status} {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

/// A command under way.
struct Started {
    process: Process,
    lines: Receiver<String>,
}

impl Started {
    fn new(mut command: Command) -> Started {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::spawn(&mut command);
        let out = process.handle().stdout.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // The test may have seen enough.
                let _ = sender.send(line);
            }
        });
        Started { process, lines }
    }

    #[track_caller]
    fn says(&self, line: &str) {
        assert_eq!(self.lines.recv_timeout(LIMIT).as_deref(), Ok(line));
    }

    /// The command and all that it started have ended: nobody has its output open.
    #[track_caller]
    fn is_gone(&self) {
        assert_eq!(self.lines.recv_timeout(LIMIT), Err(RecvTimeoutError::Disconnected));
    }

    fn end_input(&mut self) {
        drop(self.process.handle().stdin.take());
    }

    #[track_caller]
    fn code(&mut self) -> i32 {
        self.process.wait(LIMIT).code().expect("it ends by itself")
    }
}

fn start(command: Command) -> Started {
    let started = Started::new(command);
    started.says("ready");
    started
}

fn is_held(server: &Server, name: &str) -> bool {
    server.cmd(&["EXISTS", name]) == redis::Value::Int(1)
}

/// Until it has asked the store at least once more.
fn until_it_asks(server: &Server) {
    let before = server.calls("evalsha");
    eventually(LIMIT, || server.calls("evalsha") > before);
}
