//! Many who want one lock: how long it takes from hand to hand, at what cost, and in which order.
//!
//! The waiters are real processes. Each loops: ask for the lock, hold it, give it back, think.
//! Handing over is from the release call of one holder to the return of the next one's call, and
//! counts only where the next one waited already. It is compared with the idle round trip: a PING
//! from this process, before and after each slice of time, while nobody does anything else.

mod commands;
mod crew;
mod figures;
mod idle;
mod places;
mod plan;
mod table;
mod turns;
mod worker;

use std::time::{Duration, Instant};

use leasehold::{Client, Lock};

use self::commands::Count;
use self::crew::Crew;
use self::figures::{Errors, Figures, Sample};
use self::idle::Idle;
use self::places::{Places, Where};
use self::plan::{Row, Spread};
use self::table::Report;
use self::turns::Slice;
use self::worker::{Work, now};
use super::bare::{Address, Bare};
use super::pin::field;
use super::record::Recorded;
use super::redis::forget;
use super::watch::Watch;
use crate::exit::{Failure, USAGE};

#[derive(clap::Args, Debug)]
pub(super) struct Options {
    /// Instead of cycles, let so many wait for one lock, each in a process of its own.
    ///
    /// Tells how long handing the lock over takes, in idle round trips; how many commands that
    /// costs; the most turns of a waiter over the fewest of another; how long the wait is (its
    /// p99) over that for everybody's turn once; and the most turns that one waiter had while
    /// another waited. Beside these, how long handing over takes between 2 and between 8 threads
    /// of one process, which hold the lock for no time. --seconds is for each number of waiters.
    #[arg(long, value_name = "N", value_delimiter = ',', conflicts_with_all = ["leases", "also"],
        value_parser = clap::value_parser!(u32).range(2..=10_000))]
    contended: Vec<u32>,
    /// How many processes the waiters are in, or how many are in each, as in 31+1.
    #[arg(long, value_name = "P", requires = "contended")]
    processes: Option<Spread>,
    /// How long each one holds the lock.
    #[arg(long, value_name = "DURATION", default_value = "1ms", requires = "contended",
        value_parser = leasehold::parse_duration)]
    hold: Duration,
    /// How long each one pauses between two turns: on average, from a half of it to one and a half.
    #[arg(long, value_name = "DURATION", default_value = "3ms", requires = "contended",
        value_parser = leasehold::parse_duration)]
    think: Duration,
    /// Where the waiters and the server run, when the server is on this machine.
    #[arg(long = "where", value_enum, value_name = "PLACES", default_value_t = Where::Free,
        requires = "contended")]
    places: Where,
    /// Let others do the same work by asking again and again, for comparison.
    #[arg(long, requires = "contended")]
    controls: bool,
    /// Instead, let all of them wait for so long while somebody keeps the lock, and tell what
    /// that costs.
    #[arg(long, value_name = "DURATION", requires = "contended",
        value_parser = leasehold::parse_duration)]
    idle: Option<Duration>,
    /// Be the process of waiters.
    #[arg(long, hide = true)]
    worker: bool,
}

impl Options {
    pub(super) fn is_worker(&self) -> bool {
        self.worker
    }

    pub(super) fn is_wanted(&self) -> bool {
        !self.contended.is_empty()
    }

    /// About how long it takes with so much time for each number of waiters.
    pub(super) fn expected(&self, time: Duration) -> Duration {
        let rows = self.contended.len() as u32 * if self.controls { 2 } else { 1 };
        self.idle.unwrap_or(time * 13 / 10) * rows
    }
}

pub(super) fn worker() -> Result<u8, Failure> {
    worker::main()
}

/// Noise spreads over so many rounds, and a figure is the median of them.
const ROUNDS: u32 = 5;
/// Everybody should have so many turns in a slice, where that does not take for ever.
const TURNS: u32 = 24;
const TURNS_OF_MANY: u32 = 3;
const MANY: usize = 100;
/// Threads that do nothing but hand over need less time than others, by this.
const INSIDE_PART: u32 = 10;
/// How long those who wait at the end of a slice may go on.
const DRAIN: Duration = Duration::from_secs(120);
/// How long waiting processes come to rest before their rest is measured.
const REST: Duration = Duration::from_secs(2);

pub(super) fn measure(
    options: &Options,
    url: &str,
    name: &str,
    time: Duration,
    watch: &Watch,
) -> Result<Report, Failure> {
    let waiters: Vec<usize> = options.contended.iter().map(|count| *count as usize).collect();
    let mut rows = plan::rows(
        &waiters,
        options.processes.as_ref(),
        options.hold,
        options.think,
        options.controls,
    )?;
    let Some(address) = Address::of(url) else {
        let message = "handing over is measured on redis:// and unix:// stores".to_owned();
        return Err(Failure { code: USAGE, message });
    };
    if options.idle.is_some() {
        rows.retain(|row| !row.hold.is_zero());
    }
    let mut bare = Bare::connect(&address)?;
    let info = bare.info("server").unwrap_or_default();
    let version = field(&info, "valkey_version").or_else(|| field(&info, "redis_version"));
    let places = Places::choose(options.places, &address, &mut bare, watch)?;
    let client = Client::open(url)?;
    client.ping()?;
    let names: Vec<_> = (0..rows.len()).map(|row| format!("{name}:{row}")).collect();
    let locks: Vec<_> = names.iter().map(|name| client.lock(name)).collect();
    let keys = keys(&locks, &address, &mut bare, watch);
    let idle = Idle::new(Bare::connect(&address)?);
    let mut bench = Bench { url, address: &address, names: &names, bare, idle, places, watch };
    let figures = match options.idle {
        Some(span) => bench.rest(&rows, &locks, span),
        None => bench.rows(&rows, time),
    };
    if !keys.is_empty() {
        forget(&mut bench.bare, keys);
    }
    Ok(Report {
        store: client.store().to_owned(),
        server: version.map(str::to_owned),
        rtt_us: bench.idle.median_us(),
        rows: rows.into_iter().zip(figures?).collect(),
    })
}

/// What the locks leave on the server.
fn keys(locks: &[Lock], address: &Address, bare: &mut Bare, watch: &Watch) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    for lock in locks {
        match Recorded::of(lock, address, bare) {
            Ok(recorded) => keys.extend(recorded.keys().into_iter().map(<[u8]>::to_vec)),
            Err(failure) => {
                watch.note(&format!("the fences of the names stay for 25 hours: {failure}"));
                break;
            }
        }
    }
    keys
}

struct Bench<'a> {
    url: &'a str,
    address: &'a Address,
    names: &'a [String],
    bare: Bare,
    idle: Idle,
    places: Places,
    watch: &'a Watch,
}

/// When everybody is at work in a slice, and when they stop.
struct Span {
    work: Work,
    full: u64,
}

impl Bench<'_> {
    fn crews(&self, rows: &[Row]) -> Result<Vec<Crew>, Failure> {
        let mut crews = Vec::with_capacity(rows.len());
        for (row, name) in rows.iter().zip(self.names) {
            self.places.start(row)?;
            crews.push(Crew::start(self.url, name, row.way, &row.sizes, self.watch)?);
        }
        Ok(crews)
    }

    /// Slices of all rows in turn; then one more of each in which commands are counted.
    fn rows(&mut self, rows: &[Row], time: Duration) -> Result<Vec<Figures>, Failure> {
        self.watch.say("starting");
        let mut crews = self.crews(rows)?;
        let mut errors: Vec<Errors> = rows.iter().map(|_| Errors::default()).collect();
        let mut samples: Vec<Vec<Sample>> = rows.iter().map(|_| Vec::new()).collect();
        let mut rtt = self.look()?;
        for round in 0..ROUNDS {
            self.watch.say("handing over");
            for step in 0..rows.len() {
                // Nobody always follows the same one.
                let at = (step + round as usize) % rows.len();
                let span = span(&rows[at], time / ROUNDS, rtt);
                self.places.work(&rows[at])?;
                let (slice, wrong) = self.slice(&mut crews[at], &span)?;
                errors[at].add(wrong);
                // The others are not compared with it.
                if !rows[at].is_inside() {
                    rtt = self.look()?;
                }
                let (full, stop) = (span.full, span.work.stop);
                samples[at].push(Sample::of(&rows[at], &slice, rtt, full, stop));
            }
        }
        self.watch.say("counting commands");
        let mut all = Vec::with_capacity(rows.len());
        for (at, row) in rows.iter().enumerate() {
            let mut figures = Figures::of(&samples[at]);
            self.places.work(row)?;
            let span = span(row, time / ROUNDS, rtt);
            if let Some((commands, slice)) = self.counted(&mut crews[at], &span)? {
                figures.count(commands, &slice);
            }
            errors[at].explain(figures.turns)?;
            figures.errors = errors[at].count;
            if let Some(first) = &errors[at].first {
                self.watch.note(&format!("an error of {} waiters: {first}", row.waiters));
            }
            all.push(figures);
        }
        Ok(all)
    }

    fn look(&mut self) -> Result<f64, Failure> {
        self.places.look()?;
        self.idle.look(self.watch)
    }

    fn slice(&self, crew: &mut Crew, span: &Span) -> Result<(Slice, Vec<String>), Failure> {
        let left = Duration::from_nanos(span.work.stop.saturating_sub(now()));
        let (turns, errors) = crew.work(span.work, Instant::now() + left + DRAIN, self.watch)?;
        Ok((Slice::new(turns)?, errors))
    }

    /// `None` where the server does not let us look.
    fn counted(&mut self, crew: &mut Crew, span: &Span) -> Result<Option<(u64, Slice)>, Failure> {
        let marker = format!("end:{}", self.names.first().map_or("", String::as_str));
        let count = match Count::start(self.address, marker) {
            Ok(count) => count,
            Err(failure) => {
                self.watch.note(&format!("commands are not counted: {failure}"));
                return Ok(None);
            }
        };
        let worked = self.slice(crew, span);
        let commands = count.finish(&mut self.bare)?;
        let (slice, _) = worked?;
        Ok(Some((commands, slice)))
    }

    /// What waiting costs while nothing happens.
    fn rest(
        &mut self,
        rows: &[Row],
        locks: &[Lock],
        span: Duration,
    ) -> Result<Vec<Figures>, Failure> {
        let mut all = Vec::with_capacity(rows.len());
        for (at, row) in rows.iter().enumerate() {
            self.watch.say("waiting");
            self.places.start(row)?;
            let mut crew = Crew::start(self.url, &self.names[at], row.way, &row.sizes, self.watch)?;
            // Renewed as long as it takes.
            let held = locks[at].clone().no_max_hold().acquire()?;
            crew.wait(self.watch)?;
            self.pause(REST)?;
            let marker = format!("end:{}", self.names[at]);
            let count = Count::start(self.address, marker)?;
            let (before, started) = (crew.cpu(), Instant::now());
            self.pause(span)?;
            let seconds = started.elapsed().as_secs_f64();
            let cpu = before.zip(crew.cpu()).map(|(before, after)| after.saturating_sub(before));
            let commands = count.finish(&mut self.bare)?;
            // Those who wait end first, and so get nothing.
            drop(crew);
            held.release()?;
            all.push(Figures {
                idle_share: cpu.map(|cpu| cpu.as_secs_f64() / seconds),
                idle_commands: Some(commands as f64 / seconds),
                ..Figures::default()
            });
        }
        Ok(all)
    }

    fn pause(&self, span: Duration) -> Result<(), Failure> {
        let started = Instant::now();
        while let Some(left) = span.checked_sub(started.elapsed()).filter(|left| !left.is_zero()) {
            self.watch.check()?;
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
        Ok(())
    }
}

/// A slice that takes `time`, or longer, so that everybody has turns enough.
fn span(row: &Row, time: Duration, rtt: f64) -> Span {
    let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    let turn = nanos(row.hold) + 2 * rtt as u64;
    let waiters = row.waiters as u64;
    let turns = if row.waiters > MANY { TURNS_OF_MANY } else { TURNS };
    let length = if row.hold.is_zero() {
        nanos(time / INSIDE_PART)
    } else {
        nanos(time).max(u64::from(turns) * waiters * turn)
    };
    // Threads have to be there when they are to begin.
    let start = now() + 20_000_000 + 100_000 * waiters;
    // The last process begins later than the first one, by a turn for each.
    let full = start + turn * (waiters + row.sizes.len() as u64);
    let stop = full + length;
    let (hold, think) = (nanos(row.hold), nanos(row.think));
    Span { work: Work { start, gap: turn, stop, hold, think }, full }
}
