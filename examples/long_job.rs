//! A long job: its lease is renewed in the background, up to a limit, and it hears before that ends.
//!
//! The ttl says how soon another process can continue after a crash, so it is short. Renewal keeps
//! the lease of a living holder beyond that, up to `max_hold`: a job that hangs does not hold the lock
//! for ever. The job watches the events of its client and stops in order when it hears `AtRisk`.
//!
//! `cargo run --features sqlite --example long_job` uses the store that `LEASEHOLD_URL` names, or
//! else the embedded one.

use std::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::{Client, EventKind, Events, Lease};

const TTL: Duration = Duration::from_secs(2);
const MAX_HOLD: Duration = Duration::from_secs(4);
const STEPS: u32 = 120;

/// Continues after step `done` until all is done or the lease is about to end. Returns the last step.
fn work(lease: &Lease, events: &Events, mut done: u32) -> Result<u32, leasehold::Error> {
    while done < STEPS && lease.is_valid() {
        thread::sleep(Duration::from_millis(32));
        done += 1;
        while let Some(event) = events.try_next()? {
            // A client has one stream of events for all of its leases.
            if event.fence != lease.fence() || *event.name != *lease.name() {
                continue;
            }
            println!("  event {:?}, {:.1?} before the end", event.kind, lease.remaining());
            if let EventKind::AtRisk | EventKind::Lost(_) = event.kind {
                return Ok(done);
            }
        }
    }
    Ok(done)
}

fn main() -> Result<(), Box<dyn Error>> {
    let name = format!("reindex:{:x}", RandomState::new().hash_one(0));
    let client = Client::from_env()?;
    let events = client.events()?;
    let lock = client.lock(&name).ttl(TTL).max_hold(MAX_HOLD);

    println!("{name}: {STEPS} steps, a ttl of {TTL:?}, held for {MAX_HOLD:?} at most.");
    let mut saved = 0;
    let mut stopped_in_time = 0;
    for turn in 1..=5 {
        let lease = lock.acquire()?;
        println!("Turn {turn}, fence {}: goes on after step {saved}.", lease.fence());
        let start = Instant::now();
        let done = work(&lease, &events, saved)?;
        let held = start.elapsed();
        println!("  stopped after step {done}, held for {held:.1?}");

        if !lease.is_valid() {
            // This machine or the store stood still for longer than the ttl.
            println!("  too late: what this turn did is left to the next one");
            continue;
        }
        saved = done;
        if saved == STEPS {
            break;
        }
        assert!(held < MAX_HOLD, "it went on beyond the bound");
        stopped_in_time += u32::from(held > TTL);
        // The step is saved while the lease is valid. Now another process may acquire the lock.
        lease.release()?;
    }
    assert_eq!(saved, STEPS, "the job came to its end");
    assert!(stopped_in_time > 0, "no turn was renewed beyond its ttl and stopped in time");
    println!("All steps are done, with {} renewals.", client.counters().renewed);
    client.close()?;
    Ok(())
}
