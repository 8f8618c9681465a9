//! Rejecting a duplicate request: a try, which does not wait for the holder.
//!
//! A user clicks twice, or a proxy sends a request again. The first request acquires a lock that is
//! named after it. The server rejects the others at once, since the lock is held. After the answer the
//! lock stays held until its ttl has passed, so that the server rejects a late duplicate too.
//!
//! `cargo run --features sqlite --example duplicate_request` uses the store that `LEASEHOLD_URL`
//! names, or else the embedded one.

use std::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::{Client, Lease};

/// How long after an answer the same request counts as a duplicate.
const REMEMBERED: Duration = Duration::from_secs(2);

/// What every server does first with a request. `None`: answer "409 Conflict".
fn admit(client: &Client, request: &str) -> Result<Option<Lease>, leasehold::Error> {
    client.lock(format!("request:{request}")).ttl(Duration::from_secs(10)).try_acquire()
}

fn main() -> Result<(), Box<dyn Error>> {
    let request = format!("{:016x}", RandomState::new().hash_one(0));
    let server = Client::from_env()?;

    let lease = admit(&server, &request)?.ok_or("the first request was turned away")?;
    println!("Request {request} arrives and is admitted, with fence {}.", lease.fence());

    let duplicates: Vec<_> = (1..=3)
        .map(|number| {
            let request = request.clone();
            thread::spawn(move || -> Result<bool, leasehold::Error> {
                let another_server = Client::from_env()?;
                let start = Instant::now();
                let admitted = admit(&another_server, &request)?.is_some();
                println!(
                    "Duplicate {number}: admitted is {admitted}, after {:.1?}.",
                    start.elapsed()
                );
                Ok(admitted)
            })
        })
        .collect();
    for duplicate in duplicates {
        let admitted = duplicate.join().map_err(|_| "a thread panicked")??;
        assert!(!admitted, "a duplicate was admitted");
    }

    let_it_be_remembered(lease)?;
    assert!(admit(&server, &request)?.is_none());
    println!("A duplicate that comes after the answer is turned away too.");

    // A new request with the same name, once the old one is forgotten. It waits here only to see
    // when that is.
    let start = Instant::now();
    let lease = server.lock(format!("request:{request}")).acquire_within(REMEMBERED * 4)?;
    println!("After {:.1?} more the name is free for another request.", start.elapsed());
    lease.release()?;
    Ok(())
}

fn let_it_be_remembered(lease: Lease) -> Result<(), leasehold::Error> {
    println!("The request is answered. The lock stays taken for another {REMEMBERED:?}.");
    lease.let_expire_in(REMEMBERED)
}
