//! A value that is made when it is first asked for.

use std::sync::atomic::{AtomicPtr, Ordering};

/// Unlike a `OnceLock`, nobody waits for whoever is making it: a child that was forked meanwhile
/// would do so for ever. Threads that are first together make one each, and all use one of them.
pub(crate) struct First<T>(AtomicPtr<T>);

impl<T: Send + Sync> First<T> {
    pub(crate) const fn new() -> First<T> {
        First(AtomicPtr::new(std::ptr::null_mut()))
    }

    #[allow(unsafe_code)]
    pub(crate) fn get(&self, make: impl FnOnce() -> T) -> &T {
        let mut found = self.0.load(Ordering::Acquire);
        if found.is_null() {
            let made = Box::into_raw(Box::new(make()));
            found = match self.0.compare_exchange(found, made, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => made,
                Err(theirs) => {
                    // SAFETY: it comes from Box::into_raw, and nobody else has heard of it.
                    drop(unsafe { Box::from_raw(made) });
                    theirs
                }
            };
        }
        // SAFETY: it is not null, comes from Box::into_raw, and is freed with `self` only.
        unsafe { &*found }
    }
}

impl<T> Drop for First<T> {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        let found = *self.0.get_mut();
        if !found.is_null() {
            // SAFETY: it comes from Box::into_raw, and no reference outlives `self`.
            drop(unsafe { Box::from_raw(found) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn all_threads_use_the_same_one() {
        for _ in 0..50 {
            let (first, counted) = (First::new(), Arc::new(()));
            let addresses = std::thread::scope(|scope| {
                let ask = || std::ptr::from_ref(first.get(|| Arc::clone(&counted))).addr();
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            });
            assert!(addresses.iter().all(|address| *address == addresses[0]));
            assert_eq!(Arc::strong_count(&counted), 2, "those that were not used are dropped");
            drop(first);
            assert_eq!(Arc::strong_count(&counted), 1);
        }
    }
}
