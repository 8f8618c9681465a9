//! A long job: renewed in the background, with an upper bound, and told before its lease ends.
//!
//! The ttl says how soon somebody else can go on after a crash, so it is short. Renewal makes a
//! living holder's lease last longer than that, and `max_hold` is where it ends: a job that hangs
//! does not keep the lock for ever. The job watches the events of its client and stops in order
//! when it hears `AtRisk`.
//!
//! `cargo run --example long_job` uses the store that `LEASEHOLD_URL` names, or else the embedded
//! one.

use std::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::{Client, EventKind, Events, Lease};

const TTL: Duration = Duration::from_millis(1500);
const MAX_HOLD: Duration = Duration::from_millis(3500);
const ALL: u32 = 120;

/// Goes on from `done` in small steps until all is done or the lease is at risk; says how far it
/// came.
fn work(lease: &Lease, events: &Events, mut done: u32, all: u32) -> Result<u32, leasehold::Error> {
    while done < all && lease.is_valid() {
        thread::sleep(Duration::from_millis(30));
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

    println!("{name}: {ALL} steps, a ttl of {TTL:?}, held for {MAX_HOLD:?} at most.");
    let mut done = 0;
    let mut turns = 0;
    while done < ALL {
        let lease = lock.acquire()?;
        turns += 1;
        println!("Turn {turns}, fence {}: goes on after step {done}.", lease.fence());
        let start = Instant::now();
        done = work(&lease, &events, done, ALL)?;
        let held = start.elapsed();

        println!("  stopped after step {done}, held for {held:.1?}");
        assert!(lease.is_valid(), "it was told too late to stop in order");
        if done < ALL {
            assert!(held > TTL, "it was renewed");
            assert!(held < MAX_HOLD, "it stopped before the bound");
        }
        // The step is saved while the lease still stands; others have their turn now.
        lease.release()?;
    }
    assert!(turns > 1, "one turn was too short for it");
    println!("All steps are done, in {turns} turns; {} renewals.", client.counters().renewed);
    client.close()?;
    Ok(())
}
