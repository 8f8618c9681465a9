//! A cycle of taking a lock and giving it back, beside what people write by hand, and beside the
//! bytes of our own cycle replayed on a bare socket.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use kit::Server;
use leasehold::{Client, Lock};

use crate::also::{Also, Program};
use crate::byhand;
use crate::cores::{Cores, Place};
use crate::limit::{Limit, take};
use crate::measure::{Loop, Outcome, interleave, part, whole};
use crate::table::Table;

/// Of our lock, and of the limit's: a quorum's slowest server may still be busy with the former.
pub(crate) const NAMES: [&str; 2] = ["bench", "bench:bare"];
/// Over how many cycles commands are counted.
const COUNTED: usize = 100;

/// On Redis.
pub(crate) fn measure(also: &[Also], time: Duration) -> Outcome<Table> {
    let server = Server::start();
    against_limit("redis", &server.url(), &[&server], NAMES, also, time)
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
    let by_hand = byhand::programs(servers.len());
    let urls = servers.iter().map(|server| server.url()).collect::<Vec<_>>().join(",");
    let mut programs = Vec::new();
    for program in &by_hand {
        programs.push(Program::start(program, &urls, names[1])?);
    }
    for program in also {
        programs.push(Program::start(program, url, "bench:also")?);
    }
    let mut columns = Vec::new();
    for place in cores.places() {
        cores.pin(servers, *place)?;
        let time = time / cores.places().len() as u32;
        columns.push(medians(&lock, &limit, &mut programs, time)?);
    }
    cores.let_go(servers)?;
    cores.let_self_go()?;
    let waited = commands(servers, &lock, || Ok(take(&lock)?.release()?))?;
    let deferred = commands(servers, &lock, || take(&lock).map(drop))?;

    let places = cores.places().iter().map(|place| match place {
        Place::OneCore => "one core",
        Place::CoreEach => "a core each",
    });
    let mut table = Table::new(title, places);
    let column = |at: usize| columns.iter().map(move |medians| Some(medians[at]));
    let ratio = |at: usize, base: usize| {
        columns.iter().map(move |medians| Some(medians[at] / medians[base]))
    };
    table.row("one round trip (PING), µs", column(PING));
    table.row("a take's bytes replayed, µs", column(BARE_TAKE));
    table.row("our take, µs", column(TAKE));
    table.row("  over its bytes", ratio(TAKE, BARE_TAKE));
    // The last one does most of what ours does, and is what everything is compared with.
    let base =
        by_hand.len().checked_sub(1).map(|last| (OTHERS + last, by_hand[last].name.as_str()));
    let over_base = |table: &mut Table, at: usize| {
        if let Some((base, name)) = base {
            table.row(&format!("  over {name}"), ratio(at, base));
        }
    };
    for (at, program) in (OTHERS..).zip(&by_hand) {
        table.row(&format!("by hand: {}, µs", program.name), column(at));
    }
    table.row("our bytes replayed, µs", column(BARE));
    over_base(&mut table, BARE);
    table.row("our cycle, µs", column(CYCLE));
    over_base(&mut table, CYCLE);
    table.row("  over its bytes", ratio(CYCLE, BARE));
    table.row("release not waited for, µs", column(DEFERRED));
    over_base(&mut table, DEFERRED);
    for (at, program) in (OTHERS + by_hand.len()..).zip(also) {
        table.row(&format!("the cycle of {}, µs", program.name), column(at));
        over_base(&mut table, at);
        table.row("  over our cycle", ratio(at, CYCLE));
    }
    table.row("commands a server and cycle", columns.iter().map(|_| Some(waited)));
    table.row("  release not waited for", columns.iter().map(|_| Some(deferred)));
    Ok(table)
}

/// Where the medians stand.
const PING: usize = 0;
const BARE_TAKE: usize = 1;
const TAKE: usize = 2;
const BARE: usize = 3;
const CYCLE: usize = 4;
const DEFERRED: usize = 5;
/// From here on: by hand, and then other programs.
const OTHERS: usize = 6;

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
fn commands(
    servers: &[&Server],
    lock: &Lock,
    mut cycle_once: impl FnMut() -> Outcome<()>,
) -> Outcome<f64> {
    let mut watches: Vec<_> = servers.iter().map(|server| server.watch()).collect();
    (0..COUNTED).try_for_each(|_| cycle_once())?;
    // A release that was not waited for may be under way: once the lock is taken again, it is not.
    cycle(lock)?;
    let most = watches.iter_mut().map(|watch| watch.count()).max();
    Ok(most.unwrap_or(0) as f64 / (COUNTED + 1) as f64)
}
