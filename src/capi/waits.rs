//! Waiting for many locks without a thread for each.

use std::collections::HashMap;
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use super::boundary::{self, leasehold_error};
use super::bytes::{CBytes, limit};
use super::failure::{
    Failure, LEASEHOLD_BUSY, LEASEHOLD_ERR_CLOSED, LEASEHOLD_TIMEOUT, bad, leasehold_status,
};
use super::lease::{leasehold_lease, leasehold_turn};
use super::lock::leasehold_lock;
use super::table;
use crate::inbox::Inbox;
use crate::sync::Mutex;
use crate::{Acquiring, Error, Lease};

/// Waits for locks that no thread of the program stands in: a few threads of each client do the
/// asking for all of them. For event loops, and for programs that wait for hundreds of locks at
/// once; from leasehold_waits_open(). Free it with leasehold_waits_free().
///
/// ```c
///     leasehold_waits_start(waits, lock, 17, &error);              // never blocks
///     // ... and when leasehold_waits_descriptor(waits) is readable:
///     while (leasehold_waits_next_within(waits, 0, &id, &error) == LEASEHOLD_OK)
///         if (leasehold_waits_take(waits, id, &turn, &error) == LEASEHOLD_OK)
///             go_on(id, turn);
/// ```
pub struct leasehold_waits {
    /// By the numbers that the program gave them. A poll never blocks, and may run under this.
    waits: Mutex<HashMap<u64, Wait>>,
    ended: Arc<Inbox<u64>>,
}

impl table::Handled for leasehold_waits {}

struct Wait {
    acquiring: Acquiring,
    /// What it came to at once.
    early: Option<Result<Lease, Error>>,
    name: Arc<CBytes>,
}

impl Wait {
    fn poll(&mut self, waker: &Waker) -> Poll<Result<Lease, Error>> {
        let mut context = Context::from_waker(waker);
        let early = self.early.take().map(Poll::Ready);
        early.unwrap_or_else(|| Pin::new(&mut self.acquiring).poll(&mut context))
    }
}

/// What the client's threads wake.
struct Ending {
    id: u64,
    ended: Arc<Inbox<u64>>,
}

impl Wake for Ending {
    fn wake(self: Arc<Self>) {
        self.ended.put(|ended| ended.push_back(self.id));
    }
}

impl leasehold_waits {
    fn new() -> Result<leasehold_waits, Failure> {
        Ok(leasehold_waits { waits: Mutex::default(), ended: Arc::new(Inbox::new("waits")?) })
    }

    fn waker(&self, id: u64) -> Waker {
        Waker::from(Arc::new(Ending { id, ended: Arc::clone(&self.ended) }))
    }

    fn start(&self, id: u64, lock: &leasehold_lock, wait_ms: Option<i64>) -> Result<(), Failure> {
        let (acquiring, name) = lock.acquire_async(wait_ms)?;
        let mut wait = Wait { acquiring, early: None, name };
        let mut waits = self.waits.lock();
        if waits.contains_key(&id) {
            return Err(bad(format!("the wait {id} is in the set already")));
        }
        if let Poll::Ready(result) = wait.poll(&self.waker(id)) {
            wait.early = Some(result);
            self.ended.put(|ended| ended.push_back(id));
        }
        waits.insert(id, wait);
        Ok(())
    }

    fn next(&self, most: Option<Duration>) -> Result<u64, Failure> {
        // Beyond what the clock can count is for ever.
        let end = most.and_then(|most| Instant::now().checked_add(most));
        let freed = |_| Failure::new(LEASEHOLD_ERR_CLOSED, "the waits were freed during the call");
        while let Some(id) = self.ended.next(end).map_err(freed)? {
            // Else it was stopped.
            if self.waits.lock().contains_key(&id) {
                return Ok(id);
            }
        }
        Err(Failure::new(LEASEHOLD_TIMEOUT, ""))
    }

    fn take(&self, id: u64) -> Result<leasehold_lease, Failure> {
        let mut waits = self.waits.lock();
        let none = || bad(format!("there is no wait {id} in the set"));
        let wait = waits.get_mut(&id).ok_or_else(none)?;
        let Poll::Ready(result) = wait.poll(&self.waker(id)) else {
            return Err(Failure::new(LEASEHOLD_BUSY, ""));
        };
        let name = Arc::clone(&wait.name);
        waits.remove(&id);
        Ok(leasehold_lease::new(result?, &name))
    }

    /// What is dropped leaves the queue, or gives the lock back.
    fn stop(&self, id: u64) {
        let stopped = self.waits.lock().remove(&id);
        drop(stopped);
    }

    fn stop_all(&self) {
        self.ended.close();
        let stopped = std::mem::take(&mut *self.waits.lock());
        drop(stopped);
    }
}

/// Makes an empty set of waits, for locks of any clients. Any thread. Errors:
/// LEASEHOLD_ERR_EXHAUSTED when no descriptors are left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_waits_open(
    waits: *mut *mut leasehold_waits,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::open(error, "waits", waits, leasehold_waits::new)
}

/// Begins to wait for a lock, as long as leasehold_lock_set_wait_ms() says, and returns at once.
/// `id` is a number of the program's that no other wait in the set has: from now on
/// leasehold_waits_next_within() can tell it, and leasehold_waits_take() has what the wait came to.
/// The wait goes on when the lock is freed; it has its options as they are now.
///
/// Waits in a set stand in the queue as threads do, in the order of coming. Any thread. Errors:
/// LEASEHOLD_ERR_BAD_ARGUMENT for an id that is in the set, and for options that can never work;
/// LEASEHOLD_ERR_CLOSED. What the store says is what the wait comes to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_waits_start(
    waits: *mut leasehold_waits,
    lock: *mut leasehold_lock,
    id: u64,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || table::get(waits)?.start(id, &*table::get(lock)?, None))
}

/// As leasehold_waits_start(), with a limit of its own, whatever leasehold_lock_set_wait_ms() said:
/// 0 tries once, LEASEHOLD_FOREVER waits without limit. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_waits_start_within(
    waits: *mut leasehold_waits,
    lock: *mut leasehold_lock,
    wait_ms: i64,
    id: u64,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || table::get(waits)?.start(id, &*table::get(lock)?, Some(wait_ms)))
}

/// A descriptor that is readable while leasehold_waits_next_within() has a wait to tell: for poll(2)
/// and the like. (It may be so in vain, where a wait that had ended was stopped.) Only poll it; do
/// not read from it or close it. It is valid until the set is freed. -1 for a wrong handle, and in a
/// forked child. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_waits_descriptor(waits: *const leasehold_waits) -> c_int {
    boundary::get(waits, -1, |waits| waits.ended.as_fd().as_raw_fd())
}

/// The next wait that has ended, waiting for one `wait_ms` at most: 0 does not wait,
/// LEASEHOLD_FOREVER has no limit. Each one is told once.
///
/// Returns LEASEHOLD_OK and writes `*id`; or LEASEHOLD_TIMEOUT when none has ended;
/// LEASEHOLD_ERR_CLOSED when the set was freed meanwhile. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_waits_next_within(
    waits: *mut leasehold_waits,
    wait_ms: i64,
    id: *mut u64,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::output(error, "id", id, || table::get(waits)?.next(limit("wait", wait_ms)?))
}

/// Returns what a wait came to, and removes it from the set. Returns what leasehold_lock_take()
/// would have returned (but not LEASEHOLD_ERR_WOULD_DEADLOCK, which goes by threads), with the
/// lease and its fence in `*turn`, or LEASEHOLD_BUSY while the wait goes on. A lease is valid and
/// renewed from the end of the wait on, taken or not. Any thread. Errors:
/// LEASEHOLD_ERR_BAD_ARGUMENT also for an id that is not in the set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_waits_take(
    waits: *mut leasehold_waits,
    id: u64,
    turn: *mut leasehold_turn,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::output(error, "turn", turn, || leasehold_turn::of(table::get(waits)?.take(id)?))
}

/// Ends a wait, if it is in the set: it leaves the queue, and releases the lock if it has acquired
/// it already. Returns at once. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_waits_stop(
    waits: *mut leasehold_waits,
    id: u64,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || {
        table::get(waits)?.stop(id);
        Ok(())
    })
}

/// Stops all waits of a set, and frees it; its descriptor is closed. A thread that waits in
/// leasehold_waits_next_within() returns LEASEHOLD_ERR_CLOSED. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_waits_free(waits: *mut leasehold_waits) {
    boundary::free(waits, |waits| waits.stop_all());
}
