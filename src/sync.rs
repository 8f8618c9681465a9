//! Waiting for one another in a way that a forked child survives: `std` sleeps on one word of memory
//! for each mutex. parking_lot lists all sleeping threads of the process in one table. A child
//! inherits that table locked, or with threads that it does not have, and hangs sooner or later.

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Duration;

use crate::clock::{Deadline, Moment};
use crate::system;
pub(crate) use crate::system::{AtomicUsize, MutexGuard};

/// A mutex that a panic does not close: every value is whole whenever code that may panic runs.
#[derive(Default)]
pub(crate) struct Mutex<T>(system::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Mutex<T> {
        Mutex(system::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A condition variable. A wait may end early, so its condition is asked again.
#[derive(Default)]
pub(crate) struct Condvar(system::Condvar);

impl Condvar {
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wait_for<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        span: Duration,
    ) -> MutexGuard<'a, T> {
        self.0.wait_timeout(guard, span).unwrap_or_else(PoisonError::into_inner).0
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Lets a number of callers in at a time; the others wait, no longer than until a deadline.
pub(crate) struct Permits {
    count: Mutex<Count>,
    returned: Condvar,
}

struct Count {
    free: u32,
    /// Without sleepers nobody is notified: that would be a system call for every request.
    sleepers: u32,
}

impl Permits {
    pub(crate) fn new(free: u32) -> Permits {
        Permits { count: Mutex::new(Count { free, sleepers: 0 }), returned: Condvar::default() }
    }

    /// `None` if there was none until then: one that is returned later is left to the next in line, who
    /// may have time to use it.
    pub(crate) fn take(&self, deadline: Deadline) -> Option<Permit<'_>> {
        let (mut count, mut has_waited) = (self.count.lock(), false);
        while count.free == 0 || has_waited && deadline.left().is_zero() {
            let left = deadline.left();
            if left.is_zero() {
                if count.free > 0 && count.sleepers > 0 {
                    self.returned.notify_one();
                }
                return None;
            }
            count.sleepers += 1;
            count = self.returned.wait_for(count, left);
            count.sleepers -= 1;
            has_waited = true;
        }
        count.free -= 1;
        Some(Permit(self))
    }

    pub(crate) fn take_now(&self) -> Option<Permit<'_>> {
        self.take(Deadline::at(Moment::ZERO))
    }
}

/// Given back when it is dropped.
pub(crate) struct Permit<'a>(&'a Permits);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut count = self.0.count.lock();
        count.free += 1;
        let awaited = count.sleepers > 0;
        drop(count);
        if awaited {
            self.0.returned.notify_one();
        }
    }
}

pub(crate) struct Turnstile<T> {
    entrance: Permits,
    /// Locked by the owner of the permit only. Nobody sleeps on it, so it may be parking_lot's.
    value: parking_lot::Mutex<T>,
}

impl<T> Turnstile<T> {
    pub(crate) fn new(value: T) -> Turnstile<T> {
        Turnstile { entrance: Permits::new(1), value: parking_lot::Mutex::new(value) }
    }

    /// `None` if other callers had the value until then.
    pub(crate) fn enter(&self, deadline: Deadline) -> Option<TurnstileGuard<'_, T>> {
        let permit = self.entrance.take(deadline)?;
        Some(TurnstileGuard { value: self.value.lock(), _permit: permit })
    }

    pub(crate) fn enter_now(&self) -> Option<TurnstileGuard<'_, T>> {
        self.enter(Deadline::at(Moment::ZERO))
    }
}

impl<T: Default> Default for Turnstile<T> {
    fn default() -> Turnstile<T> {
        Turnstile::new(T::default())
    }
}

/// The value, until this is dropped.
pub(crate) struct TurnstileGuard<'a, T> {
    // Dropped in this order: first the value is free, then the next one is let in.
    value: parking_lot::MutexGuard<'a, T>,
    _permit: Permit<'a>,
}

impl<T> Deref for TurnstileGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for TurnstileGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turnstile_lets_one_in_and_the_others_wait_for_so_long() {
        let stile = Turnstile::new(0);
        let turn = stile.enter(Deadline::after(Duration::ZERO)).unwrap();
        assert!(stile.enter(Deadline::after(Duration::from_millis(20))).is_none());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        *stile.enter(Deadline::after(Duration::from_secs(20))).unwrap() += 1;
                    }
                });
            }
            drop(turn);
        });
        assert_eq!(*stile.enter(Deadline::after(Duration::ZERO)).unwrap(), 400);
    }

    #[test]
    fn a_panic_leaves_the_way_open() {
        let stile = Turnstile::new(());
        let panics = || {
            let _turn = stile.enter(Deadline::after(Duration::ZERO));
            panic!("on purpose");
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert!(stile.enter(Deadline::after(Duration::ZERO)).is_some());
    }
}
