//! The processes of a row, as the bench sees them.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use leasehold::URL_VARIABLE;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::super::watch::Watch;
use super::turns::Turn;
use super::worker::{Role, Way, Work};
use crate::exit::Failure;

/// How long a process may take to start.
const START: Duration = Duration::from_secs(30);
/// How long it may take to end.
const END: Duration = Duration::from_secs(2);
/// How often signals are looked at while processes work.
const PAUSE: Duration = Duration::from_millis(50);

/// All waiters of a row.
pub(super) struct Crew {
    workers: Vec<Worker>,
    pub(super) waiters: usize,
}

impl Crew {
    /// Starts a process for each of the sizes, with as many waiters.
    pub(super) fn start(
        url: &str,
        name: &str,
        way: Way,
        sizes: &[usize],
        watch: &Watch,
    ) -> Result<Crew, Failure> {
        let mut crew = Crew { workers: Vec::with_capacity(sizes.len()), waiters: 0 };
        for threads in sizes.iter().copied() {
            let mut worker = Worker::start(url, threads)?;
            worker.tell(&Role { way, threads, name: name.to_owned() }.line())?;
            crew.workers.push(worker);
            crew.waiters += threads;
        }
        let by = Instant::now() + START;
        for worker in &mut crew.workers {
            worker.expect("ready", by, watch)?;
        }
        for worker in &mut crew.workers {
            worker.tell("try")?;
            worker.expect("done", by, watch)?;
        }
        Ok(crew)
    }

    /// Lets all of them work, one beginning after the other, those of all processes mixed. Returns
    /// their turns, and what went wrong.
    pub(super) fn work(
        &mut self,
        work: Work,
        by: Instant,
        watch: &Watch,
    ) -> Result<(Vec<Turn>, Vec<String>), Failure> {
        for (worker, number) in self.workers.iter_mut().zip(0..) {
            let start = work.start + work.gap * number;
            let gap = work.gap * self.waiters as u64 / worker.threads.max(1) as u64;
            worker.tell(&Work { start, gap, ..work }.line())?;
        }
        let (mut turns, mut errors) = (Vec::new(), Vec::new());
        for (process, worker) in self.workers.iter_mut().enumerate() {
            loop {
                let line = worker.line(by, watch)?;
                match line.split_once(' ') {
                    None if line == "done" => break,
                    Some(("turn", words)) => {
                        turns.push(turn(process, words).ok_or_else(|| odd(&line))?);
                    }
                    Some(("error", what)) => errors.push(what.to_owned()),
                    _ => return Err(odd(&line)),
                }
            }
        }
        Ok((turns, errors))
    }

    /// Lets all of them wait for as long as they are there.
    pub(super) fn wait(&mut self, watch: &Watch) -> Result<(), Failure> {
        let by = Instant::now() + START;
        for worker in &mut self.workers {
            worker.tell("wait")?;
            worker.expect("done", by, watch)?;
        }
        Ok(())
    }

    /// How long their processes have run on a core, altogether.
    pub(super) fn cpu(&self) -> Option<Duration> {
        let ticks =
            self.workers.iter().map(|worker| ticks(worker.child.id())).sum::<Option<u64>>()?;
        Some(Duration::from_millis(ticks * 10))
    }
}

/// All of them are told before the first one is waited for.
impl Drop for Crew {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            worker.requests = None;
        }
    }
}

fn turn(process: usize, words: &str) -> Option<Turn> {
    let mut words = words.split(' ').map(|word| word.parse::<u64>().ok());
    let mut next = || words.next().flatten();
    let who = (process, usize::try_from(next()?).ok()?);
    let (fence, called, granted, released) = (next()?, next()?, next()?, next()?);
    Some(Turn { who, fence, called, granted, released })
}

fn odd(line: &str) -> Failure {
    Failure::unavailable(format!("a worker answers {line:?}"))
}

/// The time of a process, in user and system mode, in hundredths of a second.
fn ticks(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before the last bracket may hold anything; these are the 12th and 13th behind it.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11).map(|field| field.parse::<u64>().ok());
    Some(fields.next()?? + fields.next()??)
}

struct Worker {
    child: Child,
    threads: usize,
    // Taken away for the process to end.
    requests: Option<ChildStdin>,
    answers: ChildStdout,
    /// What was read and not yet asked for, from `taken` on.
    read: Vec<u8>,
    taken: usize,
}

impl Worker {
    fn start(url: &str, threads: usize) -> Result<Worker, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["bench", "--worker"])
            .env(URL_VARIABLE, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for this process, which ends the others.
            .process_group(0)
            .spawn()
            .map_err(|error| Failure::system("a worker cannot be started", error))?;
        match (child.stdin.take(), child.stdout.take()) {
            (requests @ Some(_), Some(answers)) => {
                Ok(Worker { child, threads, requests, answers, read: Vec::new(), taken: 0 })
            }
            _ => Err(Failure::unavailable("a worker has no input or output")),
        }
    }

    fn tell(&mut self, line: &str) -> Result<(), Failure> {
        let told = self.requests.as_mut().map(|requests| writeln!(requests, "{line}"));
        match told {
            Some(Ok(())) => Ok(()),
            _ => Err(self.ended()),
        }
    }

    fn expect(&mut self, wanted: &str, by: Instant, watch: &Watch) -> Result<(), Failure> {
        let line = self.line(by, watch)?;
        if line == wanted { Ok(()) } else { Err(odd(&line)) }
    }

    /// The next line that it writes.
    fn line(&mut self, by: Instant, watch: &Watch) -> Result<String, Failure> {
        loop {
            let unread = &self.read[self.taken..];
            if let Some(length) = unread.iter().position(|byte| *byte == b'\n') {
                let line = String::from_utf8_lossy(&unread[..length]).into_owned();
                self.taken += length + 1;
                return Ok(line);
            }
            self.read.drain(..self.taken);
            self.taken = 0;
            self.more(by, watch)?;
        }
    }

    fn more(&mut self, by: Instant, watch: &Watch) -> Result<(), Failure> {
        let pause = PollTimeout::try_from(PAUSE).unwrap_or(PollTimeout::ZERO);
        loop {
            watch.check()?;
            if poll(&mut [PollFd::new(self.answers.as_fd(), PollFlags::POLLIN)], pause)? > 0 {
                break;
            }
            if Instant::now() > by {
                return Err(Failure::unavailable("a worker does not answer"));
            }
        }
        let mut buffer = [0; 1 << 16];
        match self.answers.read(&mut buffer)? {
            0 => Err(self.ended()),
            read => {
                self.read.extend_from_slice(&buffer[..read]);
                Ok(())
            }
        }
    }

    fn ended(&mut self) -> Failure {
        self.requests = None;
        match self.child.wait() {
            Ok(status) => Failure::unavailable(format!("a worker has ended: {status}")),
            Err(error) => error.into(),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.requests = None;
        let asked = Instant::now();
        while asked.elapsed() < END {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                _ => return,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_read_as_it_was_written() {
        let turn = turn(3, "4 700 1 2 5").unwrap();
        assert_eq!(turn, Turn { who: (3, 4), fence: 700, called: 1, granted: 2, released: 5 });
        assert!(super::turn(3, "4 700 1 2").is_none());
    }

    #[test]
    fn the_time_of_a_process_is_known_while_it_lives() {
        assert!(ticks(std::process::id()).is_some());
        assert!(ticks(u32::MAX).is_none());
    }
}
