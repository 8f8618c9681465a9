//! A master that fails while somebody waits: how long after the election of another one he has
//! the lock.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::{Client, Lease};
use nix::sys::signal::Signal;

use super::super::ours;
use super::super::server::Spawned;
use super::super::watch::Watch;
use super::servers::{Group, connect, until};
use crate::exit::Failure;

/// So many groups fail, one after the other.
const TIMES: usize = 5;
/// How long a waiter has to come to rest, and a write to reach the replica.
const REST: Duration = Duration::from_millis(200);
/// When the holder has left: later than the master dies, earlier than another one is elected.
const LEAVES_IN: Duration = Duration::from_millis(500);
const WAIT: Duration = Duration::from_secs(30);

/// From the first word of a new master to the return of the waiting call, sorted.
pub(super) fn measure(name: &str, watch: &Watch) -> Result<Vec<Duration>, Failure> {
    watch.say("failing over");
    let mut took = Vec::new();
    for _ in 0..TIMES {
        let group = Group::sentinel(watch)?;
        took.push(once(&group, name, watch)?);
    }
    took.sort_unstable();
    Ok(took)
}

fn once(group: &Group, name: &str, watch: &Watch) -> Result<Duration, Failure> {
    let elected = listen(&group.sentinels)?;
    let (holder, waiter) = (Client::open(&group.url)?, Client::open(&group.url)?);
    let held = ours::take(&holder.lock(name))?;
    let lock = waiter.lock(name).wait(WAIT);
    let stop = AtomicBool::new(false);
    let acquired = thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let lease = lock.acquire_unless(|| stop.load(Ordering::Relaxed));
            (lease, Instant::now())
        });
        let failed = fail(group, held, watch)
            .and_then(|()| until(watch, "the waiter goes on waiting", || Ok(waits.is_finished())));
        stop.store(true, Ordering::Relaxed);
        let ended = || Failure::unavailable("the waiter ended without a result");
        let waited = waits.join().map_err(|_| ended());
        failed.and(waited)
    });
    let (lease, acquired) = acquired?;
    lease?.release()?;
    let none = |_| Failure::unavailable("no Sentinel told of a new master");
    let elected = elected.recv_timeout(WAIT).map_err(none)?;
    Ok(acquired.saturating_duration_since(elected))
}

/// The holder leaves, and the master dies before anybody hears of it.
fn fail(group: &Group, held: Lease, watch: &Watch) -> Result<(), Failure> {
    thread::sleep(REST);
    held.let_expire_in(LEAVES_IN)?;
    thread::sleep(REST);
    watch.check()?;
    group.servers.iter().try_for_each(|master| master.signal(Signal::SIGKILL))
}

/// When a Sentinel has announced a new master; of several that do, the first comes first.
fn listen(sentinels: &[Spawned]) -> Result<Receiver<Instant>, Failure> {
    let (sender, elected) = channel();
    for sentinel in sentinels {
        let mut bare = connect(sentinel)?;
        bare.call(&[b"SUBSCRIBE", b"+switch-master"])?;
        let (socket, sender) = (bare.into_socket(), sender.clone());
        thread::spawn(move || hear(socket, &sender));
    }
    Ok(elected)
}

/// Until something comes, or the Sentinel has ended.
fn hear(mut socket: impl Read, sender: &Sender<Instant>) {
    let mut byte = [0];
    loop {
        match socket.read(&mut byte) {
            Ok(0) => return,
            Ok(_) => {
                // Nobody may want to know any more.
                let _ = sender.send(Instant::now());
                return;
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(_) => return,
        }
    }
}
