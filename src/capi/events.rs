//! A subscription to what happens to leases in the background.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::boundary::{self, Failure, put, wanted};
use super::bytes::limit;
use super::error::leasehold_error;
use super::event::{EventObject, leasehold_event};
use super::status::{LEASEHOLD_ERR_CLOSED, LEASEHOLD_OK, LEASEHOLD_TIMEOUT, leasehold_status};
use super::table::{self, Handled, Kind};
use crate::{Event, Events};

/// A subscription to what happens to a client's leases, from leasehold_client_events(). Free it
/// with leasehold_events_free().
///
/// Each subscription keeps its own events for a reader that is slow: it may miss
/// LEASEHOLD_EVENT_AT_RISK (they are counted), never LEASEHOLD_EVENT_LOST.
pub struct leasehold_events(());

pub(super) struct EventsObject {
    events: Events,
    freed: AtomicBool,
}

/// How soon a thread that waits learns that the subscription was freed.
const SLICE: Duration = Duration::from_millis(100);

impl Handled for EventsObject {
    type Handle = leasehold_events;
    const KIND: Kind = Kind::Events;
}

impl EventsObject {
    pub(super) fn new(events: Events) -> EventsObject {
        EventsObject { events, freed: AtomicBool::new(false) }
    }

    fn next(&self, wait: Option<Duration>) -> Result<Option<Event>, Failure> {
        // Beyond what the clock can count is for ever.
        let end = wait.and_then(|wait| Instant::now().checked_add(wait));
        loop {
            if self.freed.load(Ordering::Acquire) {
                let detail = "the subscription was freed during the call";
                return Err(Failure::new(LEASEHOLD_ERR_CLOSED, detail));
            }
            let left = end.map_or(SLICE, |end| end.saturating_duration_since(Instant::now()));
            let event = self.events.recv_timeout(left.min(SLICE))?;
            if event.is_some() || left.is_zero() {
                return Ok(event);
            }
        }
    }
}

/// A descriptor that is readable while events wait in the subscription, and when the client is
/// closed: for poll(2) and the like. Only poll it; do not read from it or close it. It is valid
/// until the subscription is freed. -1 for a wrong handle, and in a forked child. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_events_descriptor(events: *const leasehold_events) -> c_int {
    boundary::value(-1, || Ok(table::get::<EventsObject>(events)?.events.as_fd().as_raw_fd()))
}

/// The next event, waiting for it `wait_ms` at most: 0 does not wait, LEASEHOLD_FOREVER has no
/// limit.
///
/// Returns LEASEHOLD_OK and writes `*event`, to be freed with leasehold_event_free(); or
/// LEASEHOLD_TIMEOUT when there was none; or LEASEHOLD_ERR_CLOSED when the client is closed and
/// nothing is left to read, or the subscription was freed meanwhile. Any thread; threads that wait
/// at once share the events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_events_next(
    events: *mut leasehold_events,
    wait_ms: i64,
    event: *mut *mut leasehold_event,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || {
        wanted("event", event)?;
        let object = table::get::<EventsObject>(events)?;
        let Some(next) = object.next(limit("wait", wait_ms)?)? else {
            return Ok(LEASEHOLD_TIMEOUT);
        };
        let handle = table::open(EventObject::new(&next))?;
        // SAFETY: the header asks for room for a handle.
        unsafe { put(event, handle) };
        Ok(LEASEHOLD_OK)
    })
}

/// How many LEASEHOLD_EVENT_AT_RISK this subscription has dropped, because nobody read them in
/// time; 0 for a wrong handle. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_events_dropped(events: *const leasehold_events) -> u64 {
    boundary::value(0, || Ok(table::get::<EventsObject>(events)?.events.dropped()))
}

/// Ends a subscription and frees it; its descriptor is closed. A thread that waits in
/// leasehold_events_next() returns LEASEHOLD_ERR_CLOSED within 200 ms. Events that were read
/// before stay. Does nothing for NULL, and for a handle that is wrong. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_events_free(events: *mut leasehold_events) {
    boundary::silent(|| {
        let object = table::take::<EventsObject>(events)?;
        object.freed.store(true, Ordering::Release);
        Ok(())
    });
}
