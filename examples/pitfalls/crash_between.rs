//! SETNX, then EXPIRE, and a crash between the two.

use std::io::Read;
use std::time::{Duration, Instant};

use crate::{Outcome, Redis, run_until_it_holds};

const TTL: Duration = Duration::from_secs(1);

pub(crate) fn show(redis: &mut Redis, name: &str) -> Outcome {
    println!("1. SETNX, then EXPIRE, and a crash between the two");
    println!("   by hand:");
    let mut holder = run_until_it_holds("by-hand", name)?;
    holder.kill()?;
    holder.wait()?;
    println!("     A process sends SETNX, gets the lock, and is killed before it sends EXPIRE.");
    let left = redis.ttl_ms(name)?;
    println!("     PTTL says {left}: the lock has no end.");
    assert_eq!(left, -1);
    assert!(!redis.set_nx(name, "B")?);
    println!("     WRONG: nobody holds it, and nobody will ever get it.");

    let refused = redis.leasehold()?.lock(name).try_acquire();
    let Err(error) = refused else { return Err("a key without ttl was taken for a lease".into()) };
    println!("     Leasehold leaves such a key alone and tells: {error}.");
    redis.delete(name)?;

    println!("   with Leasehold:");
    let mut holder = run_until_it_holds("leasehold", name)?;
    holder.kill()?;
    holder.wait()?;
    println!("     A process takes the lock with a ttl of {TTL:?} and is killed.");
    let start = Instant::now();
    let lease = redis.leasehold()?.lock(name).acquire()?;
    println!(
        "     RIGHT: key and ttl are one step. The next one has it after {:.1?}.\n",
        start.elapsed()
    );
    lease.release()?;
    Ok(())
}

/// The process that is killed.
pub(crate) fn hold(redis: &mut Redis, scheme: &str, name: &str) -> Outcome {
    let client;
    let _lease;
    if scheme == "by-hand" {
        assert!(redis.set_nx(name, "A")?);
    } else {
        client = redis.leasehold()?;
        _lease = client.lock(name).ttl(TTL).acquire()?;
    }
    println!("holds");
    // Until it is killed, or the process that was to kill it has ended.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
