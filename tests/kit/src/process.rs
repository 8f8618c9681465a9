//! A process that ends when its owner does: on drop, and also when the test run is killed.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{self, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

/// Waits for the end of its standard input, which only this process holds open, then kills.
/// PR_SET_PDEATHSIG would not do: it fires when the *thread* that started the child ends, so a
/// server that several tests share would die with the first of them.
const WATCHER: &str = r#"trap '' INT TERM HUP; read -r _; kill -KILL "$1" 2>/dev/null"#;

pub struct Process {
    child: process::Child,
    watcher: process::Child,
    status: Option<ExitStatus>,
}

impl Process {
    pub fn spawn(command: &mut Command) -> Process {
        let child =
            command.spawn().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
        let watcher = Command::new("sh")
            .args(["-c", WATCHER, "sh", &child.id().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh starts");
        Process { child, watcher, status: None }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    pub fn handle(&mut self) -> &mut process::Child {
        &mut self.child
    }

    /// Does nothing once the process was seen to end: its number may be another's by now.
    pub fn signal(&self, signal: Signal) {
        if self.status.is_none() {
            kill(self.pid(), signal).expect("a process that was not reaped can be signalled");
        }
    }

    /// Returns when the process does stand still; SIGSTOP by itself is only a request.
    pub fn stop(&self) {
        self.signal(Signal::SIGSTOP);
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        waitid(Id::Pid(self.pid()), flags).expect("the process is a child of this one");
    }

    pub fn cont(&self) {
        self.signal(Signal::SIGCONT);
    }

    pub fn try_wait(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("the process is a child of this one");
            if self.status.is_some() {
                self.dismiss_watcher();
            }
        }
        self.status
    }

    #[track_caller]
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.try_wait() {
                return status;
            }
            assert!(start.elapsed() < limit, "process {} still runs after {limit:?}", self.pid());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// SIGKILL, which a stopped process obeys too.
    pub fn kill(&mut self) -> ExitStatus {
        if let Some(status) = self.try_wait() {
            return status;
        }
        // First, so that it can never see a number that belongs to somebody else already.
        self.dismiss_watcher();
        self.signal(Signal::SIGKILL);
        let status = self.child.wait().unwrap_or(ExitStatus::from_raw(Signal::SIGKILL as i32));
        self.status = Some(status);
        status
    }

    fn dismiss_watcher(&mut self) {
        // Errors mean that it is gone, which is what is wanted.
        let _ = self.watcher.kill();
        let _ = self.watcher.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Processor time that a process has used.
pub fn cpu(pid: Pid) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let fields = stat.rsplit_once(") ").expect("behind the name").1.split(' ');
    // A tick of these is a hundredth of a second on every Linux.
    let ticks = fields.skip(11).take(2).map(|field| field.parse::<u64>().expect("a number"));
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

/// Signals a process that is not a [`Process`], and those that it has started: a PostgreSQL serves
/// each connection by one of these.
pub fn signal_family(pid: u32, signal: Signal) {
    // First itself: one that stands still starts no others.
    kill(Pid::from_raw(pid.cast_signed()), signal).expect("it runs");
    signal_children(pid, signal);
}

/// Ends all of them, those that it has started first: nobody could tell later which these were.
pub fn kill_family(pid: u32) {
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGSTOP).expect("it runs");
    signal_children(pid, Signal::SIGKILL);
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).expect("it runs");
}

fn signal_children(pid: u32, signal: Signal) {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    for thread in threads.map_while(Result::ok) {
        let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            // It may end just now.
            let _ = kill(Pid::from_raw(child), signal);
        }
    }
}
