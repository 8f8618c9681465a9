//! Many who want one lock: how long it takes from hand to hand, at what cost, and in which order.
//!
//! Each client is a process, and its waiters are threads. Handing over is from the release call of
//! one holder to the return of the next one's call, and counts only where the next one waited
//! already. In turn with it the same processes send PINGs in the same rhythm, with nothing else to
//! do: that part of a hand-over's time is the machine's. Another unit is the idle round trip: a PING
//! from core to core, before and after each slice of time, while nobody does anything else.

use std::thread;
use std::time::{Duration, Instant};

use kit::Server;

use crate::bare::Bare;
use crate::cores::{Cores, Place};
use crate::measure::{Outcome, nanos, quantile};
use crate::stores::Store;
use crate::table::Table;
use crate::turns::{Slice, Went};
use crate::waiters::{Args, Plan, Waiters, Where, now};

/// Noise spreads over these rounds, and a figure is the median of them.
const ROUNDS: u32 = 5;
/// Everybody should have this many turns in a slice, where that does not take for ever.
const TURNS: u32 = 24;
const TURNS_OF_MANY: u32 = 3;
const MANY: u32 = 100;
const LONG: Duration = Duration::from_millis(10);
/// About what a round trip takes on a store that syncs its disk, and how often it is doubled.
const TRIP: Duration = Duration::from_millis(2);
const MOST_LONGER: u32 = 7;
/// The threads of one client that do nothing but hand a lock over among themselves.
const INSIDE: [u32; 3] = [2, 3, 8];
/// They need less time than others, by this.
const INSIDE_PART: u32 = 10;
/// What clients send to have a lock; what else they send keeps them connected.
const ASKING: [&str; 2] = ["evalsha", "eval"];
const BESIDE: [&str; 10] = [
    "script|load",
    "script",
    "ping",
    "info",
    "hello",
    "client|",
    "auth",
    "subscribe",
    "ssubscribe",
    "unsubscribe",
];

pub(crate) struct Options<'a> {
    pub(crate) waiters: &'a [u32],
    pub(crate) clients: Option<u32>,
    pub(crate) holds: &'a [Duration],
    pub(crate) store: Store,
    pub(crate) place: Where,
}

impl Options<'_> {
    /// Waiters for each number of them, and for each hold.
    fn rows(&self, url: &str) -> Outcome<Vec<Row>> {
        let mut rows = Vec::new();
        for count in self.waiters {
            let clients = self.clients.map_or(*count, |clients| clients.clamp(2, *count));
            for hold in self.holds {
                rows.push(Row::new(url, *count, clients, *hold, self.place)?);
            }
        }
        Ok(rows)
    }
}

pub(crate) fn measure(options: &Options, time: Duration) -> Outcome<Vec<Table>> {
    if options.store == Store::Redis { on_redis(options, time) } else { elsewhere(options, time) }
}

/// A store whose commands nobody counts here, and which knows no PING.
fn elsewhere(options: &Options, time: Duration) -> Outcome<Vec<Table>> {
    let running = options.store.start()?;
    let cores = Cores::choose()?;
    let mut rows = options.rows(&running.url)?;
    for row in &mut rows {
        // As long a slice as turns enough for a fair share need, however slow the disk is.
        let (mut trip, mut longer) = (nanos(TRIP) as f64, 0);
        while row.samples.len() < ROUNDS as usize {
            let slice = row.slice(&[], &cores, time / ROUNDS, trip)?;
            if slice.fairness(row.waiters as usize).is_none() && longer < MOST_LONGER {
                (trip, longer) = (trip * 2.0, longer + 1);
            } else {
                row.note(&slice, trip, &mut []);
            }
        }
    }
    let title = format!("waiters on {}, each client a process", options.store);
    let mut table = Table::new(&title, rows.iter().map(Row::title));
    table.row("hand-over, p50, µs", rows.iter().map(|row| row.middle(|one| one.p50)));
    table.row("hand-over, p99, µs", rows.iter().map(|row| row.middle(|one| one.p99)));
    fairness(&mut table, &rows);
    Ok(vec![table])
}

fn on_redis(options: &Options, time: Duration) -> Outcome<Vec<Table>> {
    let server = Server::start();
    let cores = Cores::choose()?;
    let mut rows = options.rows(&server.url())?;
    let across = rows.len();
    for threads in INSIDE {
        // Between threads no core has to be woken unless they have two.
        cores.pin_self()?;
        rows.push(Row::new(&server.url(), threads, 1, Duration::ZERO, options.place)?);
        cores.let_self_go()?;
    }
    let mut idle = Idle::new(&server, &cores)?;
    let mut rtt = idle.look()?;
    for _ in 0..ROUNDS {
        for row in &mut rows {
            let before = Calls::of(&server);
            let slice = row.slice(&[&server], &cores, time / ROUNDS, rtt)?;
            row.count(&slice, Calls::of(&server).since(before));
            let mut pings = row.pings(time / ROUNDS, rtt)?;
            rtt = idle.look()?;
            row.note(&slice, rtt, &mut pings);
        }
    }
    let (across, inside) = rows.split_at(across);
    Ok(vec![between_clients(across), inside_a_client(inside)])
}

fn between_clients(rows: &[Row]) -> Table {
    let mut table = Table::new("waiters, each client a process", rows.iter().map(Row::title));
    let mut row = |name: &str, figure: fn(&Sample) -> Option<f64>| {
        table.row(name, rows.iter().map(|row| row.middle(figure)));
    };
    row("hand-over, p50, µs", |one| one.p50);
    row("  PING in that rhythm, p50, µs", |one| one.ping_p50);
    row("  over PING's p50", |one| Some(one.p50? / one.ping_p50?));
    row("hand-over, p99, µs", |one| one.p99);
    row("  PING in that rhythm, p99, µs", |one| one.ping_p99);
    row("  over PING's p99", |one| Some(one.p99? / one.ping_p99?));
    row("an idle round trip, µs", |one| Some(one.rtt));
    row("hand-over, p50, round trips", |one| Some(one.p50? / one.rtt));
    row("hand-over, p99, round trips", |one| Some(one.p99? / one.rtt));
    let calls = |calls: fn(&Calls) -> u64| {
        rows.iter().map(move |row| Some(calls(&row.calls) as f64 / row.crossed as f64))
    };
    table.row("commands an acquisition", calls(|calls| calls.asking));
    table.row("  called inside scripts", calls(|calls| calls.inside));
    fairness(&mut table, rows);
    table
}

/// In which order they had their turns.
fn fairness(table: &mut Table, rows: &[Row]) {
    table.row("most turns over fewest", rows.iter().map(|row| row.middle(|one| one.fairness)));
    table.row("p99 of the wait over a round", rows.iter().map(|row| row.middle(|one| one.wait)));
    let most = |row: &Row, overtaken: fn(&Sample) -> u32| {
        row.samples.iter().map(overtaken).max().map(f64::from)
    };
    table.row("most overtaken by one", rows.iter().map(|row| most(row, |one| one.overtaken.0)));
    table.row("  who asked later", rows.iter().map(|row| most(row, |one| one.overtaken.1)));
}

fn inside_a_client(rows: &[Row]) -> Table {
    let mut table =
        Table::new("threads of one client, held for no time", rows.iter().map(Row::title));
    table.row("hand-over, p50, µs", rows.iter().map(|row| row.middle(|one| one.inside)));
    table.row("  of a turn passed on", rows.iter().map(|row| row.middle(|one| one.passed_on)));
    table.row("turns passed on, %", rows.iter().map(|row| row.middle(|one| one.passed)));
    let calls = |row: &Row, turns: u64| Some(row.calls.asking as f64 / turns as f64);
    table.row("commands a turn", rows.iter().map(|row| calls(row, row.turns)));
    table.row("commands a grant", rows.iter().map(|row| calls(row, row.granted)));
    table
}

/// Waiters for one lock, and what was measured of them.
struct Row {
    waiters: u32,
    clients: Vec<Waiters>,
    hold: Duration,
    samples: Vec<Sample>,
    calls: Calls,
    turns: u64,
    crossed: u64,
    granted: u64,
}

/// One slice, in microseconds; what it does not tell is `None`.
struct Sample {
    rtt: f64,
    p50: Option<f64>,
    p99: Option<f64>,
    ping_p50: Option<f64>,
    ping_p99: Option<f64>,
    inside: Option<f64>,
    passed_on: Option<f64>,
    passed: Option<f64>,
    fairness: Option<f64>,
    wait: Option<f64>,
    overtaken: (u32, u32),
}

impl Row {
    fn new(url: &str, waiters: u32, clients: u32, hold: Duration, place: Where) -> Outcome<Row> {
        let name = format!("bench:{waiters}:{clients}:{}", hold.as_micros());
        let args = |client| {
            let (url, name, hold) = (url.to_owned(), name.clone(), nanos(hold));
            Args { url, name, client, clients, waiters, hold }
        };
        let clients: Outcome<_> =
            (0..clients).map(|client| Waiters::start(&args(client), place)).collect();
        let (clients, samples, calls) = (clients?, Vec::new(), Calls::default());
        Ok(Row { waiters, clients, hold, samples, calls, turns: 0, crossed: 0, granted: 0 })
    }

    fn title(&self) -> String {
        match (self.is_inside(), self.waiters as usize > self.clients.len()) {
            (true, _) => self.waiters.to_string(),
            (false, false) => format!("{}, {:?}", self.waiters, self.hold),
            (false, true) => format!("{}/{}, {:?}", self.waiters, self.clients.len(), self.hold),
        }
    }

    fn is_inside(&self) -> bool {
        self.hold.is_zero()
    }

    /// Lets all waiters work for `time`, or longer, so that everybody has turns enough.
    fn slice(
        &mut self,
        servers: &[&Server],
        cores: &Cores,
        time: Duration,
        rtt: f64,
    ) -> Outcome<Slice> {
        if self.is_inside() {
            cores.pin(servers, Place::CoreEach)?;
        } else {
            cores.let_go(servers)?;
        }
        let plan = self.begin(false, time, rtt)?;
        let mut turns = Vec::new();
        for client in &mut self.clients {
            turns.extend(client.turns()?);
        }
        Slice::new(turns, plan.start + plan.step * u64::from(self.waiters), plan.stop)
    }

    /// The same for PINGs in the rhythm of the turns.
    fn pings(&mut self, time: Duration, rtt: f64) -> Outcome<Vec<u64>> {
        let mut pings = Vec::new();
        if !self.is_inside() {
            self.begin(true, time, rtt)?;
            for client in &mut self.clients {
                pings.extend(client.pings()?);
            }
        }
        Ok(pings)
    }

    fn begin(&mut self, pings: bool, time: Duration, rtt: f64) -> Outcome<Plan> {
        let step = nanos(self.hold) + 2 * rtt as u64;
        let many = self.waiters > MANY || self.hold > LONG;
        let turns = if many { TURNS_OF_MANY } else { TURNS };
        let length = if self.is_inside() {
            nanos(time / INSIDE_PART)
        } else {
            nanos(time).max(step * u64::from(turns * self.waiters))
        };
        // Threads have to be there when they are to begin; the last one begins a round later.
        let start = now()? + nanos(Duration::from_millis(20)) + 100_000 * u64::from(self.waiters);
        let plan =
            Plan { pings, start, step, stop: start + step * u64::from(self.waiters) + length };
        for client in &mut self.clients {
            client.begin(plan)?;
        }
        Ok(plan)
    }

    fn count(&mut self, slice: &Slice, calls: Calls) {
        self.calls = Calls {
            asking: self.calls.asking + calls.asking,
            inside: self.calls.inside + calls.inside,
        };
        self.turns += slice.count() as u64;
        self.crossed += slice.crossed() as u64;
        self.granted += slice.granted() as u64;
    }

    fn note(&mut self, slice: &Slice, rtt: f64, pings: &mut [u64]) {
        let mut across = slice.handovers(|went| went == Went::Across);
        let mut inside = slice.handovers(|went| went != Went::Across);
        let mut passed = slice.handovers(|went| went == Went::Passed);
        let mut all = slice.handovers(|_| true);
        let in_us = |nanos: u64| nanos as f64 / 1e3;
        // What it takes when everybody has one turn.
        let hold = quantile(&mut slice.holds(), 0.5).unwrap_or(0);
        let round = |handover: u64| f64::from(self.waiters) * (hold + handover) as f64;
        self.samples.push(Sample {
            rtt: rtt / 1e3,
            p50: quantile(&mut across, 0.5).map(in_us),
            p99: quantile(&mut across, 0.99).map(in_us),
            ping_p50: quantile(pings, 0.5).map(in_us),
            ping_p99: quantile(pings, 0.99).map(in_us),
            inside: quantile(&mut inside, 0.5).map(in_us),
            passed_on: quantile(&mut passed, 0.5).map(in_us),
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

/// How many commands a server has run.
#[derive(Clone, Copy, Default)]
struct Calls {
    /// That clients sent to have a lock.
    asking: u64,
    /// That scripts called.
    inside: u64,
}

impl Calls {
    fn of(server: &Server) -> Calls {
        let mut calls = Calls::default();
        for line in server.info("commandstats").lines() {
            let Some((name, rest)) =
                line.strip_prefix("cmdstat_").and_then(|line| line.split_once(":calls="))
            else {
                continue;
            };
            let count = rest.split(',').next().and_then(|count| count.parse().ok()).unwrap_or(0);
            if ASKING.contains(&name) {
                calls.asking += count;
            } else if !BESIDE.iter().any(|beside| name.starts_with(beside)) {
                calls.inside += count;
            }
        }
        calls
    }

    fn since(self, before: Calls) -> Calls {
        Calls { asking: self.asking - before.asking, inside: self.inside - before.inside }
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
            self.bare.ping()?;
            if number >= UNCOUNTED {
                self.latest.push(nanos(begun.elapsed()));
            }
        }
        both.extend(&self.latest);
        self.cores.let_self_go()?;
        Ok(quantile(&mut both, 0.5).unwrap_or(1) as f64)
    }
}
