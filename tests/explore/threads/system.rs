//! What stands in the place of `src/system.rs` while the tests explore in which order threads can meet:
//! mutexes and threads of the `shuttle` crate, which tries one order after the other and finds out
//! when nobody can go on.
//!
//! Time is made up as well. It all but stands still until a short wait ends by itself, and then it
//! is the end of that wait: at any moment, however many others act before. A long wait never ends by
//! itself, so that a thread that should have been woken, and was not, is found out.

use std::cell::Cell;
use std::ffi::CStr;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError};
use std::time::Duration;

pub(crate) use shuttle::sync::atomic::AtomicUsize;

/// Looks at the lock stay away: they would make up for a wake-up that was lost.
pub(crate) const LONGEST_LOOK_SPAN: Duration = Duration::from_secs(3600);
/// Each execution has clients of its own, whose mutexes no other one may touch.
pub(crate) const KNOWS_OTHER_CLIENTS: bool = false;

/// To look at the clock takes some time, too, in nanoseconds: no two looks see the same.
const GLANCE: u64 = 1_000;
/// Shorter waits end by themselves.
const LONG: Duration = Duration::from_millis(900);

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
}

/// Before each execution: all of them begin alike.
pub(crate) fn restart() {
    NOW.set(1_000_000_000_000);
}

pub(crate) fn nanos() -> u64 {
    NOW.set(NOW.get() + GLANCE);
    NOW.get()
}

#[derive(Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Mutex<T> {
        Mutex(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(MutexGuard { guard, mutex: self })
    }
}

/// Knows its mutex, so that it can be given up and had again.
pub(crate) struct MutexGuard<'a, T> {
    guard: shuttle::sync::MutexGuard<'a, T>,
    mutex: &'a Mutex<T>,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[derive(Default)]
pub(crate) struct Condvar(shuttle::sync::Condvar);

impl Condvar {
    pub(crate) fn wait<'a, T>(
        &self,
        MutexGuard { guard, mutex }: MutexGuard<'a, T>,
    ) -> LockResult<MutexGuard<'a, T>> {
        let guard = self.0.wait(guard).unwrap_or_else(PoisonError::into_inner);
        Ok(MutexGuard { guard, mutex })
    }

    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        span: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, ())> {
        let end = nanos().saturating_add(span.as_nanos() as u64);
        let guard = if span < LONG {
            let mutex = guard.mutex;
            drop(guard);
            shuttle::thread::yield_now();
            NOW.set(NOW.get().max(end));
            mutex.lock()
        } else {
            self.wait(guard)
        };
        guard.map(|guard| (guard, ())).map_err(|_| unreachable!())
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// In the place of [`fork::Thread`](crate::fork::thread::Thread).
pub(crate) struct Thread(shuttle::thread::JoinHandle<()>);

impl Thread {
    pub(crate) fn start(
        _name: &'static CStr,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<Thread> {
        Ok(Thread(shuttle::thread::spawn(work)))
    }

    pub(crate) fn join(self) {
        self.0.join().unwrap();
    }
}
