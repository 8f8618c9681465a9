//! Many leases held by one client: none may be lost, and neither memory nor the keeper's time may
//! grow beyond what a program can spare.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use kit::Server;
use leasehold::{Client, Lease};
use nix::unistd::Pid;

use crate::limit::take;
use crate::measure::Outcome;
use crate::table::Table;

/// Each lease is renewed in a third of its ttl, and so four times.
const HOLD_TTLS: u32 = 4;

pub(crate) fn measure(count: u32, ttl: Duration, time: Duration) -> Outcome<Table> {
    let server = Server::start();
    let client = Client::open(&server.url())?;
    // A cycle first, so that what a client needs once is not counted with the leases.
    take(&client.lock(name(0)))?.release()?;
    let mut leases = Vec::with_capacity(count as usize);
    let before = resident()?;
    for number in 0..count {
        leases.push(take(&client.lock(name(number)).ttl(ttl).no_max_hold())?);
    }
    let names = f64::from(count) * name(0).len() as f64;
    let bytes = (resident()? - before - names) / f64::from(count);

    let ends = [Pid::this(), server.pid()];
    let used = || -> Outcome<[f64; 3]> {
        Ok([keeper_seconds()?, process_seconds(ends[0])?, process_seconds(ends[1])?])
    };
    let (before, started) = (used()?, Instant::now());
    std::thread::sleep(time.max(ttl * HOLD_TTLS));
    let (after, elapsed) = (used()?, started.elapsed().as_secs_f64());
    let share = |at: usize| Some((after[at] - before[at]) / elapsed * 100.0);
    let late = leases.drain(..).map(Lease::release).filter(Result::is_err).count();
    let lost = client.counters().lost.max(late as u64);

    let mut table = Table::new(&format!("{count} leases of {ttl:?}"), ["redis"]);
    table.row("lost", [Some(lost as f64)]);
    table.row("renewals", [Some(client.counters().renewed as f64)]);
    table.row("memory of a lease beyond its name, bytes", [Some(bytes)]);
    table.row("the keeper's share of a core, %", [share(0)]);
    table.row("the client's share of a core, %", [share(1)]);
    table.row("the server's share of a core, %", [share(2)]);
    Ok(table)
}

/// All of them are equally long.
fn name(number: u32) -> String {
    format!("bench:{number:08}")
}

/// The memory that the process has in use, in bytes. With many leases the allocator's slack and
/// everything else that is not a lease is a small part of the difference.
fn resident() -> Outcome<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()).ok_or("no VmRSS")?;
    Ok(kilobytes.parse::<f64>()? * 1024.0)
}

/// How long the keeper's thread has run.
fn keeper_seconds() -> Outcome<f64> {
    let own = std::process::id().to_string();
    for thread in fs::read_dir("/proc/self/task")?.flatten() {
        // The main thread has the program's name, which is the keeper's too.
        let is_main = thread.file_name().to_str() == Some(own.as_str());
        if !is_main && fs::read_to_string(thread.path().join("comm"))?.trim_end() == "leasehold" {
            return seconds(&thread.path());
        }
    }
    Err("the keeper has no thread".into())
}

/// How long all threads of a process have run.
pub(crate) fn process_seconds(process: Pid) -> Outcome<f64> {
    let threads = fs::read_dir(format!("/proc/{process}/task"))?.flatten();
    threads.map(|thread| seconds(&thread.path())).sum()
}

fn seconds(thread: &Path) -> Outcome<f64> {
    let times = fs::read_to_string(thread.join("schedstat"))?;
    let nanos = times.split_whitespace().next().ok_or("an empty schedstat")?;
    Ok(nanos.parse::<f64>()? / 1e9)
}
