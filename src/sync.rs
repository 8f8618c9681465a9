//! Mutexes and condition variables that a forked child can use as well.
//!
//! Those of `std` are a word in memory each. parking_lot's are not for us: it keeps all sleeping
//! threads of the process in one table, and a child inherits the table without the threads. Its
//! own first threads are then given the memory of those that the table still lists, and sooner or
//! later somebody follows such a list in circles.

use std::ops::{Deref, DerefMut};
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Deadline;

/// A mutex that a panic does not close: whoever held it left every value whole.
#[derive(Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A condition variable. A wait may end early; whoever waits looks again.
#[derive(Default)]
pub(crate) struct Condvar(std::sync::Condvar);

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

/// A value for one caller at a time, who waits for it no longer than until a deadline.
#[derive(Default)]
pub(crate) struct Turnstile<T> {
    taken: Mutex<bool>,
    freed: Condvar,
    /// Only locked by whoever has set `taken`, so never waited for.
    value: Mutex<T>,
}

impl<T> Turnstile<T> {
    pub(crate) fn new(value: T) -> Turnstile<T> {
        Turnstile { taken: Mutex::new(false), freed: Condvar::default(), value: Mutex::new(value) }
    }

    /// `None` if somebody else had the value until then.
    pub(crate) fn enter(&self, deadline: Deadline) -> Option<Turn<'_, T>> {
        let mut taken = self.taken.lock();
        while *taken {
            let left = deadline.left();
            if left.is_zero() {
                return None;
            }
            taken = self.freed.wait_for(taken, left);
        }
        *taken = true;
        drop(taken);
        Some(Turn { value: self.value.lock(), _exit: Exit(&self.taken, &self.freed) })
    }
}

/// The value, until this is dropped.
pub(crate) struct Turn<'a, T> {
    // Dropped in this order: first the value is free, then the next one is let in.
    value: MutexGuard<'a, T>,
    _exit: Exit<'a>,
}

struct Exit<'a>(&'a Mutex<bool>, &'a Condvar);

impl Drop for Exit<'_> {
    fn drop(&mut self) {
        *self.0.lock() = false;
        self.1.notify_one();
    }
}

impl<T> Deref for Turn<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Turn<'_, T> {
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
