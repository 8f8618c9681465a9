//! Many who want one lock: how long it takes from hand to hand, at what cost, and in which order.
//!
//! Each waiter loops: ask for the lock, hold it, give it back, think. Waiters with clients of their
//! own have no more in common than processes have. Handing over is from the release call of one
//! holder to the return of the next one's call, and counts only where the next one waited already.
//! Its unit is the idle round trip: a PING from core to core, before and after each slice of time,
//! while nobody does anything else.

use std::thread;
use std::time::{Duration, Instant};

use kit::Server;
use leasehold::{Client, Lock};
use nix::sys::prctl::set_timerslack;

use crate::bare::Bare;
use crate::cores::{Cores, Place};
use crate::measure::{Outcome, nanos, quantile};
use crate::table::Table;
use crate::turns::{Slice, Turn, Went};

/// Noise spreads over these rounds, and a figure is the median of them.
const ROUNDS: u32 = 5;
/// Everybody should have this many turns in a slice, where that does not take for ever.
const TURNS: u32 = 24;
const TURNS_OF_MANY: u32 = 3;
const MANY: u32 = 100;
const HOLD: Duration = Duration::from_millis(1);
/// On average; from a half of it to one and a half.
const THINK: Duration = Duration::from_millis(3);
/// The threads of one client that do nothing but hand a lock over among themselves.
const INSIDE: [u32; 2] = [2, 8];
/// They need less time than others, by this.
const INSIDE_PART: u32 = 10;
/// What a client sends to stay connected.
const BESIDE: [&str; 5] = ["PING", "SUBSCRIBE", "UNSUBSCRIBE", "SSUBSCRIBE", "SUNSUBSCRIBE"];

pub(crate) fn measure(
    waiters: &[u32],
    clients: Option<u32>,
    time: Duration,
) -> Outcome<Vec<Table>> {
    let server = Server::start();
    let cores = Cores::choose()?;
    let mut rows = Vec::new();
    for count in waiters {
        let clients = clients.map_or(*count, |clients| clients.clamp(2, *count));
        rows.push(Row::new(&server, *count, clients, HOLD)?);
    }
    for threads in INSIDE {
        // Between threads no core has to be woken unless they have two.
        cores.pin_self()?;
        rows.push(Row::new(&server, threads, 1, Duration::ZERO)?);
        cores.let_self_go()?;
    }
    let mut idle = Idle::new(&server, &cores)?;
    let mut rtt = idle.look()?;
    for _ in 0..ROUNDS {
        for row in &mut rows {
            let turns = row.slice(&server, &cores, time / ROUNDS, rtt)?;
            rtt = idle.look()?;
            row.note(&turns, rtt);
        }
    }
    for row in &mut rows {
        let mut watch = server.watch();
        let turns = row.slice(&server, &cores, time / ROUNDS, rtt)?;
        let beside = |line: &String| BESIDE.iter().any(|name| line.starts_with(name));
        let sent = watch.client_commands();
        row.commands = sent.iter().filter(|line| !beside(line)).count() as f64;
        row.crossed = turns.crossed() as f64;
        row.granted = turns.granted() as f64;
    }
    let (across, inside) = rows.split_at(waiters.len());
    Ok(vec![between_clients(across), inside_a_client(inside)])
}

fn between_clients(rows: &[Row]) -> Table {
    let mut table =
        Table::new("waiters with own clients", rows.iter().map(|row| row.waiters.to_string()));
    table.row("hand-over, p50, round trips", rows.iter().map(|row| row.middle(|one| one.p50_rtt)));
    table.row("hand-over, p99, round trips", rows.iter().map(|row| row.middle(|one| one.p99_rtt)));
    table.row("commands an acquisition", rows.iter().map(|row| Some(row.commands / row.crossed)));
    table.row("most turns over fewest", rows.iter().map(|row| row.middle(|one| one.fairness)));
    table.row("p99 of the wait over a round", rows.iter().map(|row| row.middle(|one| one.wait)));
    let most = |row: &Row, overtaken: fn(&Sample) -> u32| {
        row.samples.iter().map(overtaken).max().map(f64::from)
    };
    table.row("most overtaken by one", rows.iter().map(|row| most(row, |one| one.overtaken.0)));
    table.row("  who asked later", rows.iter().map(|row| most(row, |one| one.overtaken.1)));
    table
}

fn inside_a_client(rows: &[Row]) -> Table {
    let columns = rows.iter().map(|row| row.waiters.to_string());
    let mut table = Table::new("threads of one client, held for no time", columns);
    table.row("hand-over, p50, µs", rows.iter().map(|row| row.middle(|one| one.inside_us)));
    table.row("  of a turn passed on", rows.iter().map(|row| row.middle(|one| one.passed_us)));
    table.row("turns passed on, %", rows.iter().map(|row| row.middle(|one| one.passed)));
    table.row("commands a grant", rows.iter().map(|row| Some(row.commands / row.granted)));
    table
}

/// Waiters for one lock, and what was measured of them.
struct Row {
    waiters: u32,
    /// In the order of the clients; a client's threads have the same.
    locks: Vec<(usize, Lock)>,
    hold: Duration,
    think: Duration,
    samples: Vec<Sample>,
    commands: f64,
    crossed: f64,
    granted: f64,
}

/// One slice; what it does not tell is `None`.
struct Sample {
    p50_rtt: Option<f64>,
    p99_rtt: Option<f64>,
    inside_us: Option<f64>,
    passed_us: Option<f64>,
    passed: Option<f64>,
    fairness: Option<f64>,
    wait: Option<f64>,
    overtaken: (u32, u32),
}

impl Row {
    fn new(server: &Server, waiters: u32, clients: u32, hold: Duration) -> Outcome<Row> {
        let name = format!("bench:{waiters}:{clients}");
        let clients: Result<Vec<_>, _> =
            (0..clients).map(|_| Client::open(&server.url())).collect();
        let clients = clients?;
        let of_client = |waiter: u32| waiter as usize % clients.len();
        let mut locks = Vec::new();
        for waiter in 0..waiters {
            let client = &clients[of_client(waiter)];
            // With the connection and the scripts there, a slice has nothing to do first.
            client.lock(&name).acquire()?.release()?;
            locks.push((of_client(waiter), client.lock(&name)));
        }
        let think = if hold.is_zero() { hold } else { THINK };
        let (samples, [commands, crossed, granted]) = (Vec::new(), [0.0; 3]);
        Ok(Row { waiters, locks, hold, think, samples, commands, crossed, granted })
    }

    fn is_inside(&self) -> bool {
        self.hold.is_zero()
    }

    /// Lets all waiters work for `time`, or longer, so that everybody has turns enough.
    fn slice(&self, server: &Server, cores: &Cores, time: Duration, rtt: f64) -> Outcome<Slice> {
        if self.is_inside() {
            cores.pin_self()?;
            cores.pin(&[server], Place::CoreEach)?;
        } else {
            cores.let_self_go()?;
            cores.let_go(&[server])?;
        }
        let turn = self.hold + Duration::from_nanos(2 * rtt as u64);
        let turns = if self.waiters > MANY { TURNS_OF_MANY } else { TURNS };
        let length = if self.is_inside() {
            time / INSIDE_PART
        } else {
            time.max(turn * turns * self.waiters)
        };
        let epoch = Instant::now();
        // Threads have to be there when they are to begin; the last one begins a round later.
        let start = Duration::from_millis(20) + Duration::from_micros(100) * self.waiters;
        let full = start + turn * self.waiters;
        let stop = full + length;
        let turns = thread::scope(|scope| {
            let mut workers = Vec::new();
            for (number, (client, lock)) in (0..).zip(&self.locks) {
                let begin = epoch + start + turn * number;
                let who = (*client, number as usize);
                let work = move || self.work(who, lock, epoch, begin, epoch + stop);
                // A thousand threads fit everywhere.
                let small = thread::Builder::new().stack_size(256 * 1024);
                workers.push(small.spawn_scoped(scope, work)?);
            }
            let mut turns = Vec::new();
            for worker in workers {
                turns.extend(worker.join().map_err(|_| "a waiter has panicked")??);
            }
            Ok::<_, Box<dyn std::error::Error>>(turns)
        });
        cores.let_self_go()?;
        Slice::new(turns?, nanos(full), nanos(stop))
    }

    fn work(
        &self,
        who: (usize, usize),
        lock: &Lock,
        epoch: Instant,
        begin: Instant,
        stop: Instant,
    ) -> Result<Vec<Turn>, leasehold::Error> {
        // Holding for a millisecond shall not be a matter of when the kernel likes to wake us.
        let _ = set_timerslack(1);
        let (mut turns, mut chance) = (Vec::new(), who.1 as u64 * 2 + 1);
        thread::sleep(begin.saturating_duration_since(Instant::now()));
        loop {
            let called = Instant::now();
            if called >= stop {
                return Ok(turns);
            }
            let lease = lock.acquire()?;
            let granted = Instant::now();
            sleep(self.hold);
            let (fence, released) = (lease.fence(), Instant::now());
            lease.release()?;
            let [called, granted, released] =
                [called, granted, released].map(|moment| nanos(moment - epoch));
            turns.push(Turn { who, fence, called, granted, released });
            // Enough chance that waiters do not fall into step (xorshift).
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            sleep(self.think / 2 + self.think * (chance % 1000) as u32 / 1000);
        }
    }

    fn note(&mut self, slice: &Slice, rtt: f64) {
        let mut across = slice.handovers(|went| went == Went::Across);
        let mut inside = slice.handovers(|went| went != Went::Across);
        let mut passed = slice.handovers(|went| went == Went::Passed);
        let mut all = slice.handovers(|_| true);
        let in_rtt = |nanos: u64| nanos as f64 / rtt;
        let in_us = |nanos: u64| nanos as f64 / 1e3;
        // What it takes when everybody has one turn.
        let hold = quantile(&mut slice.holds(), 0.5).unwrap_or(0);
        let round = |handover: u64| f64::from(self.waiters) * (hold + handover) as f64;
        self.samples.push(Sample {
            p50_rtt: quantile(&mut across, 0.5).map(in_rtt),
            p99_rtt: quantile(&mut across, 0.99).map(in_rtt),
            inside_us: quantile(&mut inside, 0.5).map(in_us),
            passed_us: quantile(&mut passed, 0.5).map(in_us),
            passed: Some(100.0 * (1.0 - slice.granted() as f64 / slice.count().max(1) as f64)),
            fairness: slice.fairness(self.waiters as usize),
            wait: quantile(&mut slice.waits(), 0.99)
                .zip(quantile(&mut all, 0.5))
                .map(|(wait, handover)| wait as f64 / round(handover)),
            overtaken: slice.overtaking(),
        });
    }

    /// The median over the slices.
    fn middle(&self, figure: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        let mut figures: Vec<f64> = self.samples.iter().filter_map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied()
    }
}

fn sleep(span: Duration) {
    if !span.is_zero() {
        thread::sleep(span);
    }
}

/// Round trips to an idle server on another core.
struct Idle<'a> {
    server: &'a Server,
    cores: &'a Cores,
    bare: Bare,
    latest: Vec<u64>,
}

impl Idle<'_> {
    fn new<'a>(server: &'a Server, cores: &'a Cores) -> Outcome<Idle<'a>> {
        Ok(Idle { server, cores, bare: Bare::connect(server)?, latest: Vec::new() })
    }

    /// The median of this look and the one before it, in nanoseconds: what a round trip took
    /// before and after that which was measured between the two.
    fn look(&mut self) -> Outcome<f64> {
        /// Both ends fall asleep between two, and have to be woken.
        const PAUSE: Duration = Duration::from_millis(5);
        const UNCOUNTED: usize = 5;
        const COUNTED: usize = 40;
        self.cores.pin(&[self.server], Place::CoreEach)?;
        self.cores.pin_self()?;
        let mut both = std::mem::take(&mut self.latest);
        for number in 0..UNCOUNTED + COUNTED {
            thread::sleep(PAUSE);
            let begun = Instant::now();
            self.bare.exchange(b"*1\r\n$4\r\nPING\r\n")?;
            if number >= UNCOUNTED {
                self.latest.push(nanos(begun.elapsed()));
            }
        }
        both.extend(&self.latest);
        self.cores.let_self_go()?;
        Ok(quantile(&mut both, 0.5).unwrap_or(1) as f64)
    }
}
