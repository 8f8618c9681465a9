//! A loser that rewrites the ttl.

use std::time::Duration;

use crate::{Outcome, Redis};

const TRIES: u32 = 20;

pub(crate) fn show(redis: &mut Redis, name: &str) -> Outcome {
    println!("4. A loser that rewrites the ttl");
    println!("   by hand, SETNX and EXPIRE in one pipeline against the crash of number 1:");
    assert!(redis.set_nx_px(name, "A", 5_000)?);
    println!("     A takes the lock for 5 s and dies. It should be free in 5 s.");
    for _ in 0..TRIES {
        let (taken, _): (bool, bool) = redis::pipe()
            .cmd("SETNX")
            .arg(name)
            .arg("B")
            .cmd("PEXPIRE")
            .arg(name)
            .arg(30_000)
            .query(&mut redis.by_hand)?;
        assert!(!taken);
    }
    let left = redis.ttl_ms(name)?;
    println!("     B tries {TRIES} times and loses. PTTL says {left} ms.");
    assert!(left > 5_000);
    println!("     WRONG: as long as anybody tries, nobody gets it.");
    redis.delete(name)?;

    println!("   with Leasehold:");
    let lock = redis.leasehold()?.lock(name).ttl(Duration::from_secs(5)).renew(false);
    // No client renews it from here on, as if its holder had died.
    lock.acquire()?.let_expire()?;
    println!("     A takes the lock for 5 s and dies.");
    let before = redis.ttl_ms(name)?;
    let b = redis.leasehold()?.lock(name).ttl(Duration::from_secs(30));
    for _ in 0..TRIES {
        assert!(b.try_acquire()?.is_none());
    }
    let after = redis.ttl_ms(name)?;
    println!("     B tries {TRIES} times with a ttl of 30 s and loses. PTTL says {after} ms.");
    assert!(0 < after && after <= before);
    println!("     RIGHT: losing touches nothing, and the lock is free when A's ttl is over.");
    redis.delete(name)?;
    Ok(())
}
