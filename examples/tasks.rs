//! A thousand tasks on one thread wait for locks, and none of them blocks the thread.
//!
//! Each task waits for the lock of one of 50 accounts and changes the account. A waiting task needs no
//! thread. A task that stops waiting is dropped, and leaves the queue. The loss of a lease cancels the work
//! that relies on it.
//!
//! `cargo run --features sqlite --example tasks` uses the store that `LEASEHOLD_URL` names, or else
//! the embedded one. It runs on tokio; any other executor does as well.

use std::cell::RefCell;
use std::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::time::Duration;

use leasehold::Client;
use tokio_util::sync::CancellationToken;

const TASKS: usize = 1000;
const ACCOUNTS: usize = 50;

/// A resource that rejects late writes: see `Lease::fence`.
#[derive(Clone, Copy, Default)]
struct Account {
    entries: usize,
    fence: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let tasks = tokio::task::LocalSet::new();
    runtime.block_on(tasks.run_until(all()))
}

async fn all() -> Result<(), Box<dyn Error>> {
    let client = Client::from_env()?;
    let run = RandomState::new().hash_one(0);
    let accounts = Rc::new(RefCell::new([Account::default(); ACCOUNTS]));
    let work = (0..TASKS).map(|task| {
        let lock = client.lock(format!("account:{run:x}:{}", task % ACCOUNTS));
        let accounts = Rc::clone(&accounts);
        tokio::task::spawn_local(async move {
            let lease = lock.acquire_async().await?;
            let before = accounts.borrow()[task % ACCOUNTS];
            assert!(lease.fence() > before.fence, "an older holder would be refused");
            tokio::time::sleep(Duration::from_millis(1)).await;
            let after = Account { entries: before.entries + 1, fence: lease.fence() };
            accounts.borrow_mut()[task % ACCOUNTS] = after;
            // Dropping it does not wait for the store's answer.
            drop(lease);
            Ok::<_, leasehold::Error>(())
        })
    });
    let work: Vec<_> = work.collect();
    for task in work {
        task.await??;
    }
    let entries: usize = accounts.borrow().iter().map(|account| account.entries).sum();
    assert_eq!(entries, TASKS, "an entry is missing");
    println!("{TASKS} tasks had their turns on {ACCOUNTS} accounts");

    let lock = client.lock(format!("account:{run:x}:0")).ttl(Duration::from_secs(3));
    let held = lock.acquire_async().await?;
    let patience = Duration::from_millis(100);
    assert!(tokio::time::timeout(patience, lock.acquire_async()).await.is_err());
    println!("another one lost patience, and left the queue");

    let cancelled = CancellationToken::new();
    tokio::task::spawn_local({
        let (loss, cancelled) = (held.losing()?, cancelled.clone());
        async move {
            // None: it was released, and nothing is to be cancelled.
            if loss.await.is_some() {
                cancelled.cancel();
            }
        }
    });
    lock.break_held(None, "ada")?;
    let work = tokio::time::sleep(Duration::from_secs(3600));
    assert_eq!(cancelled.run_until_cancelled(work).await, None);
    println!("the work of one that lost its lease was cancelled");
    client.close()?;
    Ok(())
}
