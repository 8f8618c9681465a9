//! Handing a lock on Redis over to one other client that waits, beside other libraries: each with the
//! settings that it has by default.
//!
//! The waiter has waited for a random time, since that decides how soon one looks again that polls.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use kit::Server;
use leasehold::Client;

use crate::also::Also;
use crate::bare::Bare;
use crate::cycle::NAMES;
use crate::limit::take;
use crate::measure::{Outcome, nanos, quantile};
use crate::passing::passed;
use crate::table::Table;
use crate::theirs::Theirs;

/// A waiter waits for this long at least, and at most for this much longer. The second is longer than
/// any of those beside ours sleeps between two looks.
const LEAST: Duration = Duration::from_millis(10);
const MORE_MS: u64 = 300;
/// Before it counts: connections are made, and Java compiles what it does often.
const WARM_UP: usize = 3;

pub(crate) fn measure(beside: &[Also], time: Duration) -> Outcome<Table> {
    let server = Server::start();
    let url = server.url();
    let (giver, taker) = (Client::open(&url)?, Client::open(&url)?);
    let mut bare = Bare::connect(&server)?;
    let start = |also: &Also| Theirs::start(&mut also.command(&url, "bench:theirs"));
    let mut theirs = beside.iter().map(start).collect::<Outcome<Vec<_>>>()?;
    let mut samples = vec![Vec::new(); 2 + theirs.len()];
    let (random, mut begun, mut round) = (RandomState::new(), Instant::now(), 0);
    while round < 2 * WARM_UP || begun.elapsed() < time {
        if round == WARM_UP {
            samples.iter_mut().for_each(Vec::clear);
            begun = Instant::now();
        }
        round += 1;
        let waited = LEAST + Duration::from_millis(random.hash_one(round) % MORE_MS);
        std::thread::sleep(waited);
        let asked = Instant::now();
        bare.ping()?;
        samples[0].push(nanos(asked.elapsed()));
        let held = take(&giver.lock(NAMES[0]))?;
        samples[1].push(passed(
            waited,
            || Ok(held.release()?),
            || Ok(taker.lock(NAMES[0]).acquire()?),
            |lease| Ok(lease.release()?),
        )?);
        for (theirs, samples) in theirs.iter_mut().zip(&mut samples[2..]) {
            samples.push(nanos(theirs.does(&format!("pass {}", nanos(waited)))?));
        }
    }
    let mut table = Table::new("handing over to one waiter", ["p50", "p90"]);
    let names = beside.iter().map(|also| also.name.as_str());
    for (name, samples) in ["PING", "Leasehold"].into_iter().chain(names).zip(&mut samples) {
        let figure = |samples: &mut Vec<u64>, share| quantile(samples, share);
        let figures = [0.5, 0.9].map(|share| Some(figure(samples, share)? as f64 / 1e3));
        table.row(&format!("{name}, µs"), figures);
    }
    Ok(table)
}
