//! What the locks guard: a process in another language, written without a look at this one, that only
//! sees writes with their fences.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use kit::Process;

pub(super) struct Resource {
    process: Mutex<Process>,
    /// What is asked, and what is answered.
    ends: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
}

impl Resource {
    pub(super) fn start(program: &Path) -> Resource {
        let mut command = Command::new(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::spawn(&mut command);
        let input = process.handle().stdin.take().unwrap();
        let output = BufReader::new(process.handle().stdout.take().unwrap());
        Resource { process: Mutex::new(process), ends: Mutex::new((input, output)) }
    }

    fn ask(&self, line: &str) -> String {
        let mut ends = self.ends.lock().unwrap();
        writeln!(ends.0, "{line}").unwrap();
        let mut answer = String::new();
        ends.1.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }

    /// Whether the write was accepted.
    pub(super) fn write(&self, name: usize, fence: u64) -> bool {
        self.ask(&format!("write {name} {fence}")) == "accepted"
    }

    /// A write that comes after a later holder's, on purpose.
    pub(super) fn write_late(&self, name: usize, fence: u64) {
        self.ask(&format!("late {name} {fence}"));
    }

    /// The write of one who is valid still was refused.
    pub(super) fn complain(&self, name: usize, fence: u64) {
        self.ask(&format!("complain {name} {fence}"));
    }

    /// What it has counted.
    pub(super) fn end(&self) -> BTreeMap<String, u64> {
        let mut ends = self.ends.lock().unwrap();
        writeln!(ends.0, "end").unwrap();
        let mut said = String::new();
        ends.1.read_to_string(&mut said).unwrap();
        self.process.lock().unwrap().wait(Duration::from_secs(20));
        said.lines()
            .map(|line| {
                let (what, count) = line.split_once(' ').unwrap();
                (what.to_owned(), count.parse().unwrap())
            })
            .collect()
    }
}
