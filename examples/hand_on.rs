//! Handing over a lease: a web request acquires the lock, and a worker in another process releases it.
//!
//! The request detaches its lease and puts token and fence into the job. The worker attaches the
//! lease and may rely on it after its first successful `extend`. The worker's client then renews it,
//! and the worker releases it.
//!
//! `cargo run --features sqlite --example hand_on` starts the worker as a process of its own. It
//! uses the store that `LEASEHOLD_URL` names, or else the embedded one.

use std::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::{Client, ErrorKind, Token};

/// The worker's exit status if the lease was lost before it was attached.
const TOO_LATE: i32 = 75;

fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1).as_deref() {
        Some("worker") => worker(),
        _ => web(),
    }
}

fn web() -> Result<(), Box<dyn Error>> {
    let name = format!("video:{:x}", RandomState::new().hash_one(0));
    let lock = Client::from_env()?.lock(&name);

    let lease = lock.clone().ttl(Duration::from_secs(10)).try_acquire()?.ok_or("taken")?;
    println!("web:    took {name}, with fence {}", lease.fence());
    let (token, fence) = lease.detach()?;
    let held = lock.inspect()?.holder.ok_or("detaching has released the lock")?;
    println!("web:    let go of it; it stays taken for {:.1?}. The request is answered.", held.ttl);
    assert_eq!(run_worker(&name, token, fence)?, Some(0));
    assert!(lock.inspect()?.holder.is_none());
    println!("web:    the worker has released it\n");

    // The ttl covers the time in the queue. A job that waits there for longer comes too late.
    let lease = lock.clone().ttl(Duration::from_millis(200)).try_acquire()?.ok_or("taken")?;
    println!("web:    took it again, for 200 ms only, and let go of it");
    let (token, fence) = lease.detach()?;
    let next = lock.acquire()?;
    println!("other:  took it when the 200 ms were over, with fence {}", next.fence());
    assert_eq!(run_worker(&name, token, fence)?, Some(TOO_LATE));
    assert!(next.is_valid());
    next.release()?;
    println!("other:  was not disturbed");
    Ok(())
}

/// Puts a job into the queue: by standard input, not as arguments. Every user of a machine can read
/// its command lines, and a process that knows the token can release the lock.
fn run_worker(name: &str, token: Token, fence: u64) -> Result<Option<i32>, Box<dyn Error>> {
    let mut worker =
        Command::new(std::env::current_exe()?).arg("worker").stdin(Stdio::piped()).spawn()?;
    let mut queue = worker.stdin.take().ok_or("no standard input")?;
    writeln!(queue, "{name} {token} {fence}")?;
    drop(queue);
    Ok(worker.wait()?.code())
}

fn worker() -> Result<(), Box<dyn Error>> {
    let mut job = String::new();
    std::io::stdin().read_line(&mut job)?;
    let [name, token, fence] = job.split_whitespace().collect::<Vec<_>>()[..] else {
        return Err("a job is a name, a token and a fence".into());
    };
    let client = Client::from_env()?;
    let lease = client.lock(name).attach(token.parse()?, fence.parse()?)?;
    assert!(!lease.is_valid(), "nobody has asked the store yet");
    match lease.extend() {
        Ok(()) => println!("worker: may rely on it for {:.1?}", lease.remaining()),
        Err(error) if error.kind() == ErrorKind::Lost => {
            println!("worker: came too late and does nothing: {error}");
            std::process::exit(TOO_LATE);
        }
        Err(error) => return Err(error.into()),
    }
    println!("worker: does the work under fence {}", lease.fence());
    lease.release()?;
    Ok(())
}
