//! How many locks a second one server serves at most: clients enough to keep it busy, each a process with
//! a lock of its own, beside as many of those that people write by hand.

use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

use kit::Server;
use leasehold::Client;

use crate::also::{Also, Program};
use crate::byhand;
use crate::cores::{Cores, Place};
use crate::cycle::cycle;
use crate::leases::process_seconds;
use crate::measure::{Outcome, nanos};
use crate::table::Table;

/// Noise spreads over these, and a figure is the median of them.
const ROUNDS: u32 = 10;
/// Before anything is timed, and to learn how many cycles fit.
const WARM_UP: u32 = 20;

pub(crate) fn measure(ours: Also, clients: u32, time: Duration) -> Outcome<Table> {
    let server = Server::start();
    let cores = Cores::choose()?;
    // The server has a core of its own where there are two.
    cores.pin_self()?;
    cores.pin(&[&server], Place::CoreEach)?;
    let mut kinds = vec![ours];
    kinds.extend(byhand::programs(1));
    let mut crews = Vec::new();
    for kind in &kinds {
        crews.push(Crew::start(kind, &server, clients)?);
    }
    let slice = time / ROUNDS / kinds.len() as u32;
    for crew in &mut crews {
        crew.work(WARM_UP)?;
        let (rate, _) = crew.work(WARM_UP)?;
        crew.cycles = ((rate * slice.as_secs_f64()) as u32 / clients).max(1);
    }
    for _ in 0..ROUNDS {
        for crew in &mut crews {
            let sample = crew.work(crew.cycles)?;
            crew.samples.push(sample);
        }
    }
    cores.let_self_go()?;
    let mut table = Table::new(&format!("{clients} clients of one server"), ["a core each"]);
    let first = crews.iter_mut().map(|crew| crew.median(|one| one.0)).collect::<Vec<_>>();
    for (kind, (crew, rate)) in kinds.iter().zip(crews.iter_mut().zip(&first)) {
        table.row(&format!("locks a second: {}", kind.name), [Some(*rate)]);
        table.row(
            &format!("the server's share of a core, %: {}", kind.name),
            [Some(crew.median(|one| one.1))],
        );
    }
    for (kind, rate) in kinds.iter().zip(&first).skip(1) {
        table.row(&format!("ours over {}", kind.name), [Some(first[0] / rate)]);
    }
    Ok(table)
}

/// Clients of one kind.
struct Crew<'a> {
    server: &'a Server,
    programs: Vec<Program>,
    cycles: u32,
    /// Locks a second, and how busy the server was.
    samples: Vec<(f64, f64)>,
}

impl Crew<'_> {
    fn start<'a>(kind: &Also, server: &'a Server, clients: u32) -> Outcome<Crew<'a>> {
        let start = |number| Program::start(kind, &server.url(), &format!("bench:{number}"));
        let programs = (0..clients).map(start).collect::<Outcome<_>>()?;
        Ok(Crew { server, programs, cycles: 0, samples: Vec::new() })
    }

    /// Each makes so many cycles.
    fn work(&mut self, cycles: u32) -> Outcome<(f64, f64)> {
        let (busy, begun) = (process_seconds(self.server.pid())?, Instant::now());
        for program in &mut self.programs {
            program.ask(cycles)?;
        }
        let mut took = Vec::new();
        for program in &mut self.programs {
            program.answer(cycles, &mut took)?;
        }
        let elapsed = begun.elapsed().as_secs_f64();
        let busy = process_seconds(self.server.pid())? - busy;
        Ok((took.len() as f64 / elapsed, busy / elapsed * 100.0))
    }

    fn median(&mut self, figure: impl Fn(&(f64, f64)) -> f64) -> f64 {
        self.samples.sort_by(|one, other| figure(one).total_cmp(&figure(other)));
        self.samples.get(self.samples.len() / 2).map_or(0.0, figure)
    }
}

/// This program, as one of ours.
pub(crate) fn ours() -> Outcome<Also> {
    Ok(Also::new("Leasehold", format!("'{}' cycles", std::env::current_exe()?.display())))
}

/// What it does then: as `also` has it.
pub(crate) fn serve(
    url: &str,
    name: &str,
    input: impl BufRead,
    mut output: impl Write,
) -> Outcome<()> {
    let lock = Client::open(url)?.lock(name);
    for line in input.lines() {
        for _ in 0..line?.trim().parse::<u32>()? {
            let (taken, given) = cycle(&lock)?;
            write!(output, "{} ", nanos(taken + given))?;
        }
        writeln!(output)?;
        output.flush()?;
    }
    Ok(())
}
