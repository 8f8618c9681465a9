//! The short story: acquire a lock, send its fence to the resource, and release it.
//!
//! `cargo run --features sqlite --example story` uses the store that `LEASEHOLD_URL` names, or
//! else the embedded one.

use std::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use leasehold::{Client, ErrorKind};

/// The resource that the lock protects. It remembers the largest fence that it has seen, and rejects
/// a smaller one. A resource needs nothing more.
#[derive(Default)]
struct Till {
    largest_fence: u64,
    charged: u32,
}

impl Till {
    fn charge(&mut self, amount: u32, fence: u64) -> Result<(), String> {
        if fence < self.largest_fence {
            return Err(format!("fence {fence} comes after {}", self.largest_fence));
        }
        self.largest_fence = fence;
        self.charged += amount;
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::from_env()?;
    println!("The locks are kept in {}.", client.store());

    let name = format!("stock:sku-17:{:x}", RandomState::new().hash_one(0));
    let stock = client.lock(&name).ttl(Duration::from_secs(10)).wait(Duration::from_secs(5));
    let mut till = Till::default();

    let first = stock.try_acquire()?.ok_or("nobody else knows this name, and yet it is taken")?;
    println!("{name} was free and is ours, with fence {}.", first.fence());
    println!("For the next {:.1?} that may be relied on.", first.remaining());
    till.charge(20, first.fence())?;

    // Another client, as another process would have it.
    let elsewhere = Client::from_env()?.lock(&name);
    assert!(elsewhere.try_acquire()?.is_none());
    println!("Somebody else tries, and is told at once that it is taken.");

    let start = Instant::now();
    match elsewhere.acquire_within(Duration::from_millis(300)) {
        Err(error) if error.kind() == ErrorKind::Timeout => {
            println!("The second one waits for {:.1?} and is told: {error}.", start.elapsed());
        }
        Err(error) => return Err(error.into()),
        Ok(_) => return Err("two holders at once".into()),
    }

    let old_fence = first.fence();
    first.release()?;
    let second = elsewhere.acquire()?;
    println!("We give it back; the second one takes it, with the larger fence {}.", second.fence());
    assert!(second.fence() > old_fence);
    till.charge(10, second.fence())?;

    let refused = till.charge(20, old_fence);
    println!("A charge of ours that was on its way all the time: {refused:?}");
    assert!(refused.is_err());
    assert_eq!(till.charged, 30);

    drop(second);
    assert!(stock.inspect()?.holder.is_none());
    println!("The second lease goes out of scope, and the lock is free.");
    Ok(())
}
