//! SETNX, GET, GETSET: the key's value is the time when the lock ends, by the clock of the client
//! that wrote it.

use std::time::Duration;

use crate::{Outcome, Redis};

/// The recipe of books and old manuals. The clock is the caller's own.
struct ByHand<'a> {
    redis: &'a mut Redis,
    name: &'a str,
}

impl ByHand<'_> {
    fn try_lock(&mut self, clock: u64, hold: u64) -> redis::RedisResult<bool> {
        if self.redis.set_nx(self.name, &(clock + hold).to_string())? {
            return Ok(true);
        }
        match self.read_end()? {
            Some(end) if end < clock => self.take_over(end, clock + hold),
            _ => Ok(false),
        }
    }

    fn read_end(&mut self) -> redis::RedisResult<Option<u64>> {
        Ok(self.redis.get(self.name)?.and_then(|end| end.parse().ok()))
    }

    /// The lock has ended: the client that still finds the old value in the exchange has won.
    fn take_over(&mut self, seen: u64, end: u64) -> redis::RedisResult<bool> {
        let before: Option<u64> =
            redis::cmd("GETSET").arg(self.name).arg(end).query(&mut self.redis.by_hand)?;
        Ok(before == Some(seen))
    }
}

pub(crate) fn show(redis: &mut Redis, name: &str) -> Outcome {
    println!("2. SETNX, GET, GETSET with clock values");
    println!("   by hand, the clocks of two machines 15 s apart:");
    let mut lock = ByHand { redis, name };
    assert!(lock.try_lock(1_000_000, 10_000)?);
    println!("     A's clock says 1000 s. It takes the lock until 1010 s.");
    assert!(lock.try_lock(1_015_000, 10_000)?);
    println!("     In the same moment B's clock says 1015 s: to B, the lock has ended.");
    println!("     WRONG: A and B both hold it.");

    println!("   by hand, with equal clocks, after a holder has died:");
    lock.redis.delete(name)?;
    assert!(lock.try_lock(1_000_000, 10_000)?);
    let seen = lock.read_end()?.ok_or("no value")?;
    println!("     At 1011 s, both B and C read that it ended at {} s.", seen / 1000);
    assert!(lock.take_over(seen, 1_021_000)?);
    println!("     B exchanges the value for 1021 s and has won.");
    assert!(!lock.take_over(seen, 1_026_000)?);
    println!("     C exchanges it for 1026 s and has lost, but its value stays.");
    let end = lock.read_end()?;
    assert_eq!(end, Some(1_026_000));
    println!("     WRONG: B's lock now ends when C says, and B cannot recognise it to release it.");
    redis.delete(name)?;

    println!("   with Leasehold:");
    let lease = redis.leasehold()?.lock(name).ttl(Duration::from_secs(10)).acquire()?;
    let value = redis.get(name)?;
    println!("     A takes it. Its value is a token; the server alone counts the ttl.");
    for other in ["B", "C"] {
        assert!(redis.leasehold()?.lock(name).try_acquire()?.is_none());
        println!("     {other} tries, and has no clock to be wrong by.");
    }
    assert_eq!(redis.get(name)?, value);
    assert!(lease.is_valid());
    lease.release()?;
    println!("     RIGHT: one holder, the losers have written nothing, and A's release works.\n");
    Ok(())
}
