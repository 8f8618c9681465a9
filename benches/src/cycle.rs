//! A cycle of taking a lock and giving it back, against the bare limit.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use kit::Server;
use leasehold::{Client, Lock};

use crate::also::{Also, Program};
use crate::cores::{Cores, Place};
use crate::limit::{Limit, take};
use crate::measure::{Loop, Outcome, interleave, part, whole};
use crate::table::Table;

/// Of our lock, and of the limit's: a quorum's slowest server may still be busy with the former.
pub(crate) const NAMES: [&str; 2] = ["bench", "bench:bare"];
/// Over how many cycles commands are counted.
const COUNTED: usize = 100;

pub(crate) fn measure(also: &[Also], time: Duration) -> Outcome<Vec<Table>> {
    let server = Server::start();
    let redis = against_limit("redis", &server.url(), &[&server], NAMES, also, time)?;
    #[cfg(not(feature = "sqlite"))]
    return Ok(vec![redis]);
    #[cfg(feature = "sqlite")]
    Ok(vec![redis, crate::sqlite::measure(also, time)?])
}

/// How long taking and giving back took.
pub(crate) fn cycle(lock: &Lock) -> Outcome<(Duration, Duration)> {
    let begun = Instant::now();
    let lease = take(lock)?;
    let taken = begun.elapsed();
    lease.release()?;
    Ok((taken, begun.elapsed() - taken))
}

/// `servers` are those that keep the locks with these names.
pub(crate) fn against_limit(
    title: &str,
    url: &str,
    servers: &[&Server],
    names: [&str; 2],
    also: &[Also],
    time: Duration,
) -> Outcome<Table> {
    let cores = Cores::choose()?;
    // Before the client is opened, so that its threads stay on the same core.
    cores.pin_self()?;
    let client = Client::open(url)?;
    let [lock, bare] = names.map(|name| client.lock(name));
    let limit = RefCell::new(Limit::new(&bare, servers)?);
    let programs: Outcome<Vec<_>> =
        also.iter().map(|also| Program::start(also, url, "bench:also")).collect();
    let mut programs = programs?;
    let mut columns = Vec::new();
    for place in cores.places() {
        cores.pin(servers, *place)?;
        let time = time / cores.places().len() as u32;
        columns.push(medians(&lock, &limit, &mut programs, time)?);
    }
    cores.let_go(servers)?;
    cores.let_self_go()?;
    let waited = commands(servers, || Ok(take(&lock)?.release()?))?;
    let deferred = commands(servers, || take(&lock).map(drop))?;

    let places = cores.places().iter().map(|place| match place {
        Place::OneCore => "one core",
        Place::CoreEach => "a core each",
    });
    let mut table = Table::new(title, places);
    let column = |at: usize| columns.iter().map(move |medians| Some(medians[at]));
    let ratio = |at: usize, base: usize| {
        columns.iter().map(move |medians| Some(medians[at] / medians[base]))
    };
    table.row("one round trip (PING), µs", column(0));
    table.row("the bare limit of a take, µs", column(1));
    table.row("our take, µs", column(2));
    table.row("  over the limit", ratio(2, 1));
    table.row("the bare limit of a cycle, µs", column(3));
    table.row("our cycle, µs", column(4));
    table.row("  over the limit", ratio(4, 3));
    table.row("release not waited for, µs", column(5));
    table.row("  over the limit", ratio(5, 3));
    for (at, also) in (6..).zip(also) {
        table.row(&format!("the cycle of {}, µs", also.name), column(at));
        table.row("  over the limit", ratio(at, 3));
        table.row("  over our cycle", ratio(at, 4));
    }
    table.row("commands a server and cycle", columns.iter().map(|_| Some(waited)));
    table.row("  release not waited for", columns.iter().map(|_| Some(deferred)));
    Ok(table)
}

fn medians(
    lock: &Lock,
    limit: &RefCell<Limit>,
    programs: &mut [Program],
    time: Duration,
) -> Outcome<Vec<f64>> {
    let mut loops: Vec<Loop<'_>> = vec![
        whole(|| limit.borrow_mut().ping()),
        part(|| Ok(limit.borrow_mut().cycle()?.0)),
        part(|| Ok(cycle(lock)?.0)),
        part(|| limit.borrow_mut().cycle().map(|(take, give)| take + give)),
        part(|| cycle(lock).map(|(take, give)| take + give)),
        whole(|| take(lock).map(drop)),
    ];
    loops.extend(programs.iter_mut().map(Program::timed));
    interleave(&mut loops, time)
}

/// How many commands the busiest server sees for each cycle.
fn commands(servers: &[&Server], mut cycle: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let mut watches: Vec<_> = servers.iter().map(|server| server.watch()).collect();
    (0..COUNTED).try_for_each(|_| cycle())?;
    // What was not waited for may be under way.
    std::thread::sleep(Duration::from_millis(100));
    let most = watches.iter_mut().map(|watch| watch.count()).max();
    Ok(most.unwrap_or(0) as f64 / COUNTED as f64)
}
