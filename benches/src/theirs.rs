//! A program that locks in another library's way, and answers each line of what to do with nanoseconds;
//! and what is measured beside it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cycle::{NAMES, cycle};
use crate::limit::take;
use crate::measure::{Loop, Outcome, interleave, median_us, nanos, part, whole};
use crate::passing::{PAUSE, passed};
use crate::stores::open;
use crate::table::Table;

pub(crate) struct Theirs {
    program: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Theirs {
    pub(crate) fn start(command: &mut Command) -> Outcome<Theirs> {
        let mut program = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (program.stdin.take(), program.stdout.take());
        let input = input.ok_or("no input")?;
        Ok(Theirs { program, input, output: BufReader::new(output.ok_or("no output")?) })
    }

    pub(crate) fn does(&mut self, what: &str) -> Outcome<Duration> {
        writeln!(self.input, "{what}")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(Duration::from_nanos(line.trim().parse()?))
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// Two bare changes, which nobody who takes and gives back can do without.
pub(crate) trait Change {
    fn make(&mut self) -> Outcome<()>;
    fn remove(&mut self) -> Outcome<()>;
}

/// In turn: our cycle, with the release waited for and not, the bare changes, and their cycle, where they
/// are asked; and then handing over.
pub(crate) fn medians(
    url: &str,
    mut bare: impl Change,
    mut theirs: Option<Theirs>,
    time: Duration,
) -> Outcome<Vec<Option<f64>>> {
    let client = open(url)?;
    let lock = client.lock(NAMES[0]);
    let mut loops: Vec<Loop<'_>> = vec![
        part(|| cycle(&lock).map(|(take, give)| take + give)),
        whole(|| take(&lock).map(drop)),
        whole(|| bare.make().and_then(|()| bare.remove())),
    ];
    if let Some(theirs) = &mut theirs {
        loops.push(part(|| theirs.does("cycle")));
    }
    let mut medians: Vec<_> = interleave(&mut loops, time / 3)?.into_iter().map(Some).collect();
    drop(loops);
    medians.resize(4, None);
    medians.extend(hand_over(url, bare, theirs, time / 6)?);
    Ok(medians)
}

/// Of a store whose sync to disk was on and off; theirs has a long name and a short one.
pub(crate) fn table(name: &str, theirs: (&str, &str), columns: &[Vec<Option<f64>>]) -> Table {
    let mut table = Table::new(name, ["disk synced", "not synced"]);
    let mut row = |name: &str, figure: &dyn Fn(&[Option<f64>]) -> Option<f64>| {
        table.row(name, columns.iter().map(|medians| figure(medians)));
    };
    row("the bare limit of a cycle, µs", &|of| of[2]);
    row("our cycle, µs", &|of| of[0]);
    row("  over the limit", &|of| Some(of[0]? / of[2]?));
    row("  the lease dropped, over the limit", &|of| Some(of[1]? / of[2]?));
    row(&format!("{}, over the limit", theirs.0), &|of| Some(of[3]? / of[2]?));
    row("a bare change after a pause, µs", &|of| of[4]);
    row("hand-over, p50, µs", &|of| of[5]);
    row("  hand-over over it", &|of| Some(of[5]? / of[4]?));
    row(&format!("  of {}, over it", theirs.1), &|of| Some(of[6]? / of[4]?));
    table
}

/// What one bare change takes after a pause; and in the same rhythm, from a release until another client,
/// which waits, has the lock: ours, and theirs. Medians, in microseconds.
fn hand_over(
    url: &str,
    mut bare: impl Change,
    mut theirs: Option<Theirs>,
    time: Duration,
) -> Outcome<[Option<f64>; 3]> {
    let (giver, taker) = (open(url)?, open(url)?);
    let (begun, mut samples) = (Instant::now(), [(); 3].map(|()| Vec::new()));
    while begun.elapsed() < time || samples[0].len() < 3 {
        std::thread::sleep(PAUSE);
        let asked = Instant::now();
        bare.make()?;
        samples[0].push(nanos(asked.elapsed()));
        bare.remove()?;
        let held = take(&giver.lock(NAMES[1]))?;
        samples[1].push(passed(
            PAUSE,
            || Ok(held.release()?),
            || Ok(taker.lock(NAMES[1]).acquire()?),
            |lease| Ok(lease.release()?),
        )?);
        if let Some(theirs) = &mut theirs {
            samples[2].push(nanos(theirs.does("pass")?));
        }
    }
    Ok(samples.map(|mut samples| (!samples.is_empty()).then(|| median_us(&mut samples))))
}
