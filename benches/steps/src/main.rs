//! Nothing but cycles, so that a tool can count what the client and the server do for each.
//!
//! usage: steps URL CYCLES [deferred | among WAITERS], or steps URL CLIENTS held
//!
//! Takes a lock and gives it back that often. `deferred` does not wait for the release. `among` lets
//! so many clients do it that often each, and hold the lock for a millisecond, so that each turn
//! comes from another client. `held` has so many clients, each with a lock of its own that needs no
//! renewal for minutes, until its input ends.

use std::error::Error;
use std::thread;
use std::time::Duration;

use leasehold::{Client, Lock};

const HOLD: Duration = Duration::from_millis(1);
/// A third of it is longer than anybody counts.
const LONG: Duration = Duration::from_secs(3600);

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [url, cycles] => alone(url, cycles.parse()?, false),
        [url, cycles, "deferred"] => alone(url, cycles.parse()?, true),
        [url, cycles, "among", waiters] => among(url, cycles.parse()?, waiters.parse()?),
        [url, clients, "held"] => held(url, clients.parse()?),
        _ => {
            Err("usage: steps URL CYCLES [deferred | among WAITERS], or steps URL CLIENTS held"
                .into())
        }
    }
}

fn alone(url: &str, cycles: u32, deferred: bool) -> Result<(), Box<dyn Error>> {
    let lock = Client::open(url)?.lock("steps");
    for _ in 0..cycles {
        let lease = lock.try_acquire()?.ok_or("somebody else has the lock")?;
        if deferred { drop(lease) } else { lease.release()? }
    }
    Ok(())
}

fn among(url: &str, cycles: u32, waiters: u32) -> Result<(), Box<dyn Error>> {
    let locks: Result<Vec<_>, _> = (0..waiters).map(|_| open(url)).collect();
    let locks = locks?;
    thread::scope(|scope| {
        let work = |lock: &Lock| -> Result<(), leasehold::Error> {
            for _ in 0..cycles {
                let lease = lock.acquire()?;
                thread::sleep(HOLD);
                lease.release()?;
            }
            Ok(())
        };
        let workers: Vec<_> = locks.iter().map(|lock| scope.spawn(move || work(lock))).collect();
        for worker in workers {
            worker.join().map_err(|_| "a waiter has panicked")??;
        }
        Ok(())
    })
}

fn held(url: &str, clients: u32) -> Result<(), Box<dyn Error>> {
    let process = std::process::id();
    let hold = |number: u32| -> Result<_, leasehold::Error> {
        let client = Client::open(url)?;
        let lease = client.lock(format!("steps:{process}:{number}")).ttl(LONG).acquire()?;
        Ok((client, lease))
    };
    let _all: Vec<_> = (0..clients).map(hold).collect::<Result<_, _>>()?;
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

fn open(url: &str) -> Result<Lock, leasehold::Error> {
    Ok(Client::open(url)?.lock("steps"))
}
