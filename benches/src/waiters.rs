//! The waiters of one client: a process of their own, with a thread for each, that asks for the
//! lock, holds it, gives it back, thinks, and asks again.
//!
//! The process says with an empty line that it is ready. Each line of its input says what to do, when
//! to begin and when to end; it answers with a line for each turn, and an empty one. It ends with its
//! input. In place of turns it is also asked for PINGs in their rhythm: then each client sends one when
//! its turn would come, after it and the server have been silent for as long.

use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use leasehold::Lock;
use nix::sys::prctl::set_timerslack;
use nix::time::{ClockId, clock_gettime};

use crate::bare::Bare;
use crate::measure::{Outcome, nanos};
use crate::stores::open;
use crate::turns::Turn;

/// How long a waiter thinks, on average; from a half of it to one and a half.
const THINK: Duration = Duration::from_millis(3);

#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    pub(crate) url: String,
    pub(crate) name: String,
    /// Which of the clients
    pub(crate) client: u32,
    pub(crate) clients: u32,
    /// Of all clients together
    pub(crate) waiters: u32,
    /// For how long a turn lasts, in nanoseconds; for no time, and nobody thinks
    pub(crate) hold: u64,
}

/// What to do, in which stretch of time, in nanoseconds of the machine's clock.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    /// PINGs, and no turns.
    pub(crate) pings: bool,
    pub(crate) start: u64,
    /// So much later than the waiter before it does each one begin.
    pub(crate) step: u64,
    pub(crate) stop: u64,
}

/// All processes of a machine have this clock.
pub(crate) fn now() -> nix::Result<u64> {
    Ok(nanos(Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC)?)))
}

pub(crate) fn serve(args: &Args, input: impl BufRead, mut output: impl Write) -> Outcome<()> {
    let lock = open(&args.url)?.lock(&args.name);
    // With the connection and the scripts there, a slice has nothing to do first.
    lock.acquire()?.release()?;
    writeln!(output)?;
    output.flush()?;
    for line in input.lines() {
        let numbers: Result<Vec<u64>, _> = line?.split(' ').map(str::parse).collect();
        let [pings, start, step, stop] = numbers?[..] else { return Err("no plan".into()) };
        let plan = Plan { pings: pings != 0, start, step, stop };
        if plan.pings {
            for took in args.ping(plan)? {
                writeln!(output, "{took}")?;
            }
        } else {
            for turn in args.all_work(&lock, plan)? {
                let Turn { who, fence, called, granted, released } = turn;
                writeln!(output, "{} {fence} {called} {granted} {released}", who.1)?;
            }
        }
        writeln!(output)?;
        output.flush()?;
    }
    Ok(())
}

impl Args {
    /// How long each took.
    fn ping(&self, plan: Plan) -> Outcome<Vec<u64>> {
        let address = self.url.strip_prefix("redis://").ok_or("a URL without redis://")?;
        let mut bare = Bare::over(TcpStream::connect(address)?)?;
        let _ = set_timerslack(1);
        let mut took = Vec::new();
        let mut next = plan.start + plan.step * u64::from(self.client);
        while next < plan.stop {
            sleep(Duration::from_nanos(next.saturating_sub(now()?)));
            let begun = now()?;
            bare.ping()?;
            took.push(now()? - begun);
            next += plan.step * u64::from(self.clients);
        }
        Ok(took)
    }

    fn all_work(&self, lock: &Lock, plan: Plan) -> Outcome<Vec<Turn>> {
        thread::scope(|scope| {
            let mut workers = Vec::new();
            for number in (self.client..self.waiters).step_by(self.clients as usize) {
                let work = move || self.work(number, lock, plan).map_err(|error| error.to_string());
                // A thousand threads fit everywhere.
                let small = thread::Builder::new().stack_size(256 * 1024);
                workers.push(small.spawn_scoped(scope, work)?);
            }
            let mut turns = Vec::new();
            for worker in workers {
                turns.extend(worker.join().map_err(|_| "a waiter has panicked")??);
            }
            Ok(turns)
        })
    }

    fn work(&self, number: u32, lock: &Lock, plan: Plan) -> Outcome<Vec<Turn>> {
        // Holding for a millisecond shall not be a matter of when the kernel likes to wake us.
        let _ = set_timerslack(1);
        let who = (self.client as usize, number as usize);
        let hold = Duration::from_nanos(self.hold);
        let think = if hold.is_zero() { hold } else { THINK };
        let (mut turns, mut chance) = (Vec::new(), u64::from(number) * 2 + 1);
        let begin = plan.start + plan.step * u64::from(number);
        sleep(Duration::from_nanos(begin.saturating_sub(now()?)));
        loop {
            let called = now()?;
            if called >= plan.stop {
                return Ok(turns);
            }
            let lease = lock.acquire()?;
            let granted = now()?;
            sleep(hold);
            let (fence, released) = (lease.fence(), now()?);
            lease.release()?;
            turns.push(Turn { who, fence, called, granted, released });
            // Enough chance that waiters do not fall into step (xorshift).
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            sleep(think / 2 + think * (chance % 1000) as u32 / 1000);
        }
    }
}

fn sleep(span: Duration) {
    if !span.is_zero() {
        thread::sleep(span);
    }
}

/// Where waiters run.
#[derive(Clone, Copy)]
pub(crate) enum Where {
    /// In a process, for which this program is started again.
    Process,
    /// In a thread, for a program that has no such command: a test.
    Thread,
}

/// The waiters of one client, seen by who started them. They stay on the cores that the starting
/// thread was on.
pub(crate) struct Waiters {
    client: usize,
    // Taken away for them to end.
    requests: Option<Box<dyn Write>>,
    answers: BufReader<Box<dyn Read>>,
    runs: Runs,
}

enum Runs {
    Process(Child),
    Thread(Option<JoinHandle<()>>),
}

impl Waiters {
    pub(crate) fn start(args: &Args, place: Where) -> Outcome<Waiters> {
        let (requests, answers, runs): (Box<dyn Write>, Box<dyn Read>, _) = match place {
            Where::Process => {
                let numbers = [args.client, args.clients, args.waiters].map(|one| one.to_string());
                let mut child = Command::new(std::env::current_exe()?)
                    .args(["waiters", &args.url, &args.name])
                    .args(numbers)
                    .arg(args.hold.to_string())
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()?;
                let pipes = child.stdin.take().zip(child.stdout.take());
                let (requests, answers) = pipes.ok_or("a process without pipes")?;
                (Box::new(requests), Box::new(answers), Runs::Process(child))
            }
            Where::Thread => {
                let (input, requests) = io::pipe()?;
                let (answers, output) = io::pipe()?;
                let args = args.clone();
                let thread = thread::spawn(move || serve_here(&args, input, output));
                (Box::new(requests), Box::new(answers), Runs::Thread(Some(thread)))
            }
        };
        let (client, answers) = (args.client as usize, BufReader::new(answers));
        let mut waiters = Waiters { client, requests: Some(requests), answers, runs };
        waiters.turns()?;
        Ok(waiters)
    }

    pub(crate) fn begin(&mut self, plan: Plan) -> Outcome<()> {
        let requests = self.requests.as_mut().ok_or("waiters that were ended")?;
        let Plan { pings, start, step, stop } = plan;
        Ok(writeln!(requests, "{} {start} {step} {stop}", u8::from(pings))?)
    }

    /// Waits for the end of turns that were begun.
    pub(crate) fn turns(&mut self) -> Outcome<Vec<Turn>> {
        let client = self.client;
        let turn = |numbers: &[u64]| match *numbers {
            [number, fence, called, granted, released] => {
                Some(Turn { who: (client, number as usize), fence, called, granted, released })
            }
            _ => None,
        };
        self.answers(turn)
    }

    /// Waits for the end of PINGs that were begun.
    pub(crate) fn pings(&mut self) -> Outcome<Vec<u64>> {
        self.answers(|numbers| numbers.first().copied())
    }

    fn answers<T>(&mut self, one: impl Fn(&[u64]) -> Option<T>) -> Outcome<Vec<T>> {
        let mut all = Vec::new();
        loop {
            let mut line = String::new();
            if self.answers.read_line(&mut line)? == 0 {
                return Err("a process of waiters has ended".into());
            }
            let numbers: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
            match &numbers?[..] {
                [] => return Ok(all),
                numbers => all.push(one(numbers).ok_or("an answer to something else")?),
            }
        }
    }
}

fn serve_here(args: &Args, input: PipeReader, output: PipeWriter) {
    if let Err(error) = serve(args, BufReader::new(input), output) {
        eprintln!("waiters: {error}");
    }
}

impl Drop for Waiters {
    fn drop(&mut self) {
        self.requests = None;
        match &mut self.runs {
            Runs::Process(child) => {
                let _ = child.wait();
            }
            Runs::Thread(thread) => {
                let _ = thread.take().map(JoinHandle::join);
            }
        }
    }
}
