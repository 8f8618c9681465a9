//! One leader among the processes that run this: a scheduler that does one step after the other, on one
//! node, and goes on where another one has stopped.
//!
//!     cargo run --example leader --features sqlite -- node-1 100
//!
//! Start it in two shells and stop the one that leads: the other one goes on, with a larger fence.

use std::env;
use std::time::Duration;

use leasehold::{Client, Error, Leadership};

/// Between two steps. The work wakes before that if its term ends.
const STEP: Duration = Duration::from_millis(100);

fn main() -> Result<(), Error> {
    let node = env::args().nth(1).unwrap_or_else(|| "node".to_owned());
    let steps: u32 = env::args().nth(2).and_then(|count| count.parse().ok()).unwrap_or(10);
    let client = Client::from_env()?;
    let election =
        client.election("scheduler").ttl(Duration::from_secs(15)).on_change(move |change| {
            match change {
                Leadership::Elected { fence } => println!("{node} leads, fence {fence}"),
                Leadership::Ended { why, .. } => println!("{node} leads no longer: {why:?}"),
                _ => {}
            }
        });

    // Returns when the work has done all steps; after a loss it stands again.
    election.run_as_leader(|term| {
        let mut done = 0;
        while done < steps && !term.ended_within(STEP) {
            done += 1;
            // A real step writes with term.fence(), and the database rejects a smaller one.
            println!("step {done}");
        }
        Ok::<(), Error>(())
    })
}
