//! The function that is to be called when a lease is lost, from its registration until it has returned.

use std::cell::Cell;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::failure::Failure;
use super::log;
use crate::sync::Mutex;
use crate::{Event, Lease};

thread_local! {
    /// This thread is in such a function.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Calls such a function: meanwhile this thread waits for none to return.
pub(super) fn inside<T>(call: impl FnOnce() -> T) -> T {
    // It may be called within another one.
    let before = INSIDE.replace(true);
    let returned = call();
    INSIDE.set(before);
    returned
}

/// What is left of a function while it is registered or running.
#[derive(Default)]
pub(super) struct Registered(Mutex<Weak<()>>);

/// Between two looks whether a function has returned.
const LOOK: Duration = Duration::from_millis(1);

impl Registered {
    pub(super) fn register(
        &self,
        lease: &Lease,
        call: impl FnOnce(Event) + Send + 'static,
    ) -> Result<(), Failure> {
        // Of two threads that register, the later one sees the former's gone.
        let mut registered = self.0.lock();
        let running = Arc::new(());
        *registered = Arc::downgrade(&running);
        // What is called has freed its data before it lets go of this.
        lease.on_lost(move |event| {
            call(event);
            drop(running);
        })?;
        Ok(())
    }

    /// Waits until the function is gone, once its lease has forgotten it.
    pub(super) fn end(&self, forget: impl FnOnce()) {
        let registered = self.0.lock().clone();
        if registered.strong_count() > 0 {
            forget();
        }
        while registered.strong_count() > 0 && !INSIDE.get() && !log::is_inside() {
            std::thread::sleep(LOOK);
        }
        // What the function did comes before what is done from here on.
        fence(Ordering::Acquire);
    }
}
