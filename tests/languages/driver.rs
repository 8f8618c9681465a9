//! The drivers, as processes that are told what to do.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use kit::Process;
use nix::unistd::Pid;

/// How this test program is told to be the driver of Rust.
pub(crate) const RUST: &str = "--driver";
const OTHERS: &str = "KIT_DRIVERS";
const MARK: &str = "@@ ";
/// Longer than anything that a driver is told to wait for.
const LIMIT: Duration = Duration::from_secs(90);

pub(crate) struct Language {
    pub(crate) name: String,
    program: String,
    /// Drivers that have forgotten their play: a JVM takes long to start.
    idle: Mutex<Vec<Driver>>,
}

impl Language {
    pub(crate) fn new(name: &str, program: &str) -> Language {
        Language { name: name.into(), program: program.into(), idle: Mutex::default() }
    }

    pub(crate) fn all() -> Vec<Language> {
        let own = std::env::current_exe().unwrap();
        let mut all = vec![Language::new("rust", own.to_str().unwrap())];
        if cfg!(feature = "cli") {
            let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/languages/drivers/shell");
            all.push(Language::new("shell", script));
        }
        for named in std::env::var(OTHERS).unwrap_or_default().split_whitespace() {
            let (name, program) = named.split_once('=').expect("NAME=PROGRAM");
            all.push(Language::new(name, program));
        }
        all
    }

    /// One that is idle, or else another process.
    pub(crate) fn driver(&self) -> Driver {
        let idle = self.idle.lock().unwrap().pop();
        idle.unwrap_or_else(|| self.start())
    }

    /// After a play.
    pub(crate) fn give_back(&self, mut driver: Driver) {
        if driver.ask("forget") == "ok" {
            self.idle.lock().unwrap().push(driver);
        } else {
            driver.end();
        }
    }

    pub(crate) fn end(self) {
        self.idle.into_inner().unwrap().into_iter().for_each(Driver::end);
    }

    pub(crate) fn start(&self) -> Driver {
        let mut command = Command::new(&self.program);
        if self.name == "rust" {
            command.arg(RUST);
        }
        if let Some(leasehold) = option_env!("CARGO_BIN_EXE_leasehold") {
            command.env("LEASEHOLD", leasehold);
        }
        command.env_remove("LEASEHOLD_URL").stdin(Stdio::piped()).stdout(Stdio::piped());
        // What it starts is stopped and killed with it.
        command.process_group(0);
        let mut process = Process::spawn(&mut command);
        let out = process.handle().stdout.take().unwrap();
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let Some(answer) = line.strip_prefix(MARK) else { continue };
                if sender.send(answer.to_owned()).is_err() {
                    return;
                }
            }
        });
        Driver { name: self.name.clone(), process, answers }
    }
}

pub(crate) struct Driver {
    pub(crate) name: String,
    process: Process,
    answers: Receiver<String>,
}

impl Driver {
    pub(crate) fn tell(&mut self, line: &str) {
        let input = self.process.handle().stdin.as_mut().unwrap();
        writeln!(input, "{line}").unwrap_or_else(|error| panic!("{}: {line}: {error}", self.name));
    }

    pub(crate) fn answer(&self) -> String {
        let answer = self.answers.recv_timeout(LIMIT);
        answer.unwrap_or_else(|error| panic!("the driver of {} says nothing: {error}", self.name))
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.answer()
    }

    /// The same of one that may be killed meanwhile: then there is no answer.
    pub(crate) fn try_ask(&mut self, line: &str) -> Option<String> {
        let input = self.process.handle().stdin.as_mut().unwrap();
        writeln!(input, "{line}").ok()?;
        match self.answers.recv_timeout(LIMIT) {
            Ok(answer) => Some(answer),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the driver of {} hangs: {line}", self.name),
        }
    }

    /// Of all processes that it has started.
    pub(crate) fn group(&self) -> Pid {
        self.process.pid()
    }

    /// Its input ends, and so it does.
    pub(crate) fn end(mut self) {
        drop(self.process.handle().stdin.take());
        let status = self.process.wait(LIMIT);
        assert!(status.success(), "the driver of {} ended with {status}", self.name);
    }
}
