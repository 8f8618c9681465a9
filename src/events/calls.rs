//! Calling what a program wants to have called when one of its leases is lost.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{Event, EventKind, Events, Hub, Ring};
use crate::error::{Error, ErrorKind};
use crate::said::say;
use crate::sync::Mutex;
use crate::system::Thread;

/// Called with the event, once.
type Call = Box<dyn FnOnce(Event) + Send>;

/// What a thread of its own calls: it may take its time, and nothing is renewed or told later for that.
pub(super) struct Calls {
    by_lease: Mutex<HashMap<u64, Call>>,
    /// The subscription of that thread.
    ring: Arc<Ring>,
}

impl Hub {
    /// Has something called when a lease is lost. `loss` is asked afterwards whether it was lost
    /// before: so no loss falls between.
    pub(crate) fn on_lost(
        &self,
        lease: u64,
        call: Call,
        loss: impl FnOnce() -> Option<Event>,
    ) -> Result<(), Error> {
        let calls = self.calls()?;
        // What is replaced is dropped without the mutex: that runs the program's code.
        let former = calls.by_lease.lock().insert(lease, call);
        drop(former);
        if let Some(loss) = loss() {
            calls.ring.push(&loss);
        }
        // The thread may not have seen that one any more; then it has called nothing either.
        if self.rings.lock().is_none() && calls.take(lease).is_some() {
            return Err(Error::bare(ErrorKind::Closed));
        }
        Ok(())
    }

    /// Takes back what [`on_lost`](Hub::on_lost) was given. What is being called goes on.
    pub(crate) fn forget(&self, lease: u64) {
        let calls = self.calls.lock().clone();
        drop(calls.and_then(|calls| calls.take(lease)));
    }

    fn calls(&self) -> Result<Arc<Calls>, Error> {
        let mut place = self.calls.lock();
        if let Some(calls) = &*place {
            return Ok(Arc::clone(calls));
        }
        let events = self.subscribe()?;
        let calls = Calls { by_lease: Mutex::default(), ring: Arc::clone(&events.ring) };
        let calls = Arc::new(calls);
        let thread = Thread::start(c"leasehold-lost", {
            let calls = Arc::clone(&calls);
            move || calls.run(&events)
        });
        thread.map_err(|error| {
            Error::new(ErrorKind::Exhausted, format!("the thread for lost leases: {error}"))
        })?;
        Ok(Arc::clone(place.insert(calls)))
    }
}

impl Calls {
    fn take(&self, lease: u64) -> Option<Call> {
        self.by_lease.lock().remove(&lease)
    }

    fn run(&self, events: &Events) {
        while let Ok(event) = events.next() {
            if !matches!(event.kind, EventKind::Lost(_)) {
                continue;
            }
            let Some(call) = self.take(event.lease) else { continue };
            let name = Arc::clone(&event.name);
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| call(event))) {
                // Dropping it runs its code, which may panic again; so may the program's logger.
                std::mem::forget(payload);
                let _ = catch_unwind(|| say!(Error, "on-lost-failed", lock = &*name));
            }
        }
        // The client is closed: nothing is lost any more, and who waits for a loss is to know. Dropping a
        // call runs the program's code, which may panic.
        let uncalled = std::mem::take(&mut *self.by_lease.lock());
        let _ = catch_unwind(AssertUnwindSafe(|| drop(uncalled)));
    }
}
