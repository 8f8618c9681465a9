//! SET NX PX, and a plain DEL after the ttl ran out.

use std::thread;
use std::time::Duration;

use leasehold::ErrorKind;

use crate::{Outcome, Redis};

const SHORT: Duration = Duration::from_millis(150);

pub(crate) fn show(redis: &mut Redis, name: &str) -> Outcome {
    println!("3. SET NX PX, and a plain DEL after the ttl ran out");
    println!("   by hand:");
    assert!(redis.set_nx_px(name, "A", SHORT.as_millis() as u64)?);
    println!("     A takes the lock for {SHORT:?} and works longer than that.");
    while !redis.set_nx_px(name, "B", 10_000)? {
        thread::sleep(Duration::from_millis(10));
    }
    println!("     The ttl runs out, and B takes the lock for 10 s.");
    assert!(redis.delete(name)?);
    println!("     A has finished and sends DEL.");
    assert!(redis.set_nx_px(name, "C", 10_000)?);
    println!("     WRONG: A has deleted B's lock. B and C both hold it.");
    redis.delete(name)?;

    println!("   with Leasehold:");
    let a = redis.leasehold()?.lock(name).ttl(SHORT).renew(false).acquire()?;
    println!("     A takes the lock for {SHORT:?}, without renewal, and works longer than that.");
    let b = redis.leasehold()?.lock(name).ttl(Duration::from_secs(10)).acquire()?;
    println!("     The ttl runs out, and B takes the lock for 10 s.");
    match a.release() {
        Err(error) if error.kind() == ErrorKind::Lost => println!("     A releases: {error}."),
        other => return Err(format!("a lost lease was released: {other:?}").into()),
    }
    assert!(redis.leasehold()?.lock(name).try_acquire()?.is_none());
    assert!(b.is_valid());
    b.release()?;
    println!(
        "     RIGHT: B still holds it, C was turned away, and A knows that it was too late.\n"
    );
    Ok(())
}
