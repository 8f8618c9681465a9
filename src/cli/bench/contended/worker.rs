//! The process of some waiters. It reads what to do from its input, a line each, and answers on
//! its output; it ends with its input, so it outlives the bench in no case.

use std::fmt::Write as _;
use std::io::{self, BufRead, Write};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use leasehold::{Client, Error, Lock};
use nix::sys::prctl::set_timerslack;
use nix::time::{ClockId, clock_gettime};

use super::super::ours;
use crate::exit::Failure;

/// How waiters wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// As a lock does that sets nothing.
    Auto,
    /// By asking again and again.
    Spin,
}

impl Way {
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Auto => "auto",
            Way::Spin => "spin",
        }
    }
}

/// The lock of all waiters of a row.
fn lock(client: &Client, name: &str, way: Way) -> Lock {
    let lock = client.lock(name);
    match way {
        Way::Auto => lock,
        Way::Spin => lock.turn(leasehold::Turn::Spin),
    }
}

/// What a worker is told first: who it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Role {
    pub(super) way: Way,
    pub(super) threads: usize,
    pub(super) name: String,
}

impl Role {
    pub(super) fn line(&self) -> String {
        format!("{} {} {}", self.way.name(), self.threads, self.name)
    }

    fn of(line: &str) -> Option<Role> {
        let mut words = line.splitn(3, ' ');
        let way = match words.next()? {
            "auto" => Way::Auto,
            "spin" => Way::Spin,
            _ => return None,
        };
        Some(Role { way, threads: words.next()?.parse().ok()?, name: words.next()?.to_owned() })
    }
}

/// What it is told for each slice. Moments and spans are in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Work {
    /// The first call of the worker's first thread.
    pub(super) start: u64,
    /// The next one calls so much later, and so on: as waiters come in the midst of a slice.
    pub(super) gap: u64,
    /// Nobody calls after this.
    pub(super) stop: u64,
    pub(super) hold: u64,
    pub(super) think: u64,
}

impl Work {
    pub(super) fn line(&self) -> String {
        let Work { start, gap, stop, hold, think } = self;
        format!("work {start} {gap} {stop} {hold} {think}")
    }

    fn of(line: &str) -> Option<Work> {
        let words = line.strip_prefix("work ")?.split(' ').map(|word| word.parse().ok());
        let words: Vec<u64> = words.collect::<Option<_>>()?;
        let [start, gap, stop, hold, think] = words[..] else { return None };
        Some(Work { start, gap, stop, hold, think })
    }
}

/// Nanoseconds since the machine started.
pub(super) fn now() -> u64 {
    // It is there on every Linux since 2.6.39.
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from);
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn main() -> Result<u8, Failure> {
    let (sender, lines) = mpsc::channel();
    thread::Builder::new().name("leasehold-input".to_owned()).spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
        // Whatever the waiters do just now: nobody is left to tell.
        std::process::exit(0);
    })?;
    let unknown = || Failure::unavailable("a worker does not understand what it is told");
    let role = lines.recv().ok().and_then(|line| Role::of(&line)).ok_or_else(unknown)?;
    let client = Client::from_env()?;
    client.ping()?;
    let lock = lock(&client, &role.name, role.way);
    answer("ready\n")?;
    for line in lines {
        if line == "try" {
            // With the connection and the scripts there, a slice has nothing to do first.
            ours::cycle(&lock)?;
            answer("done\n")?;
        } else if line == "wait" {
            wait_in_vain(&lock, role.threads)?;
            answer("done\n")?;
        } else {
            let work = Work::of(&line).ok_or_else(unknown)?;
            answer(&slice(&lock, role.threads, work)?)?;
        }
    }
    Ok(0)
}

fn answer(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}

/// A thousand threads fit everywhere.
fn small() -> thread::Builder {
    thread::Builder::new().stack_size(256 * 1024)
}

/// Lets all threads work, and tells of each turn and each error in a line.
fn slice(lock: &Lock, threads: usize, work: Work) -> Result<String, Failure> {
    thread::scope(|scope| {
        let mut workers = Vec::with_capacity(threads);
        for number in 0..threads {
            workers.push(small().spawn_scoped(scope, move || waiter(lock, number, work))?);
        }
        let mut text = String::new();
        for worker in workers {
            match worker.join() {
                Ok(lines) => text += &lines,
                Err(_) => return Err(Failure::unavailable("a waiter has panicked")),
            }
        }
        Ok(text + "done\n")
    })
}

fn waiter(lock: &Lock, number: usize, work: Work) -> String {
    // Holding for a millisecond shall not be a matter of when the kernel likes to wake us.
    let _ = set_timerslack(1);
    let start = work.start + work.gap * number as u64;
    let mut lines = String::new();
    let mut chance = Chance(start | 1);
    sleep(start.saturating_sub(now()));
    while now() < work.stop {
        match turn(lock, work.hold) {
            Ok([fence, called, granted, released]) => {
                let _ = writeln!(lines, "turn {number} {fence} {called} {granted} {released}");
            }
            Err(error) => {
                let _ = writeln!(lines, "error {error}");
            }
        }
        sleep(chance.around(work.think));
    }
    lines
}

/// One turn: its fence, and when it was asked for, granted and given back.
fn turn(lock: &Lock, hold: u64) -> Result<[u64; 4], Error> {
    let called = now();
    let lease = lock.acquire()?;
    let granted = now();
    sleep(hold);
    let (fence, released) = (lease.fence(), now());
    lease.release()?;
    Ok([fence, called, granted, released])
}

fn sleep(nanos: u64) {
    if nanos > 0 {
        thread::sleep(Duration::from_nanos(nanos));
    }
}

/// Enough chance that waiters do not fall into step (xorshift).
struct Chance(u64);

impl Chance {
    /// From a half of it to one and a half.
    fn around(&mut self, span: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        span / 2 + if span > 0 { self.0 % span } else { 0 }
    }
}

/// Lets all threads wait for a lock that somebody else holds, for as long as this process is there.
fn wait_in_vain(lock: &Lock, threads: usize) -> io::Result<()> {
    for _ in 0..threads {
        let lock = lock.clone().wait_forever();
        small().spawn(move || drop(lock.acquire()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_understands_what_it_is_told() {
        let role = Role { way: Way::Spin, threads: 31, name: "a b".to_owned() };
        assert_eq!(Role::of(&role.line()), Some(role));
        let work = Work { start: 5, gap: 4, stop: 3, hold: 2, think: 1 };
        assert_eq!(Work::of(&work.line()), Some(work));
        assert_eq!(Work::of("work 5 4 3 2"), None);
        assert_eq!(Role::of("never 1 n"), None);
    }

    #[test]
    fn thinking_takes_so_long_on_average() {
        let mut chance = Chance(1);
        let drawn: Vec<_> = (0..10_000).map(|_| chance.around(1000)).collect();
        assert!(drawn.iter().all(|span| (500..1500).contains(span)));
        let mean = drawn.iter().sum::<u64>() / 10_000;
        assert!((980..1020).contains(&mean), "{mean}");
        assert_eq!(chance.around(0), 0);
    }
}
