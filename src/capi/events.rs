//! What happens to leases in the background, and subscriptions to that.

use std::ffi::{c_char, c_int};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::boundary::{self, leasehold_error};
use super::bytes::{CBytes, limit};
use super::failure::{Failure, LEASEHOLD_ERR_CLOSED, LEASEHOLD_TIMEOUT, leasehold_status};
use super::table;
use crate::{Event, EventKind, Events, Lease, LossReason};

/// Something that happened to a lease without its holder's doing, from leasehold_events_next_within().
/// Free it with leasehold_event_free().
pub struct leasehold_event {
    kind: i32,
    reason: i32,
    name: CBytes,
    fence: u64,
    lease_id: u64,
    detail: CBytes,
}

impl table::Handled for leasehold_event {}

/// No event: what leasehold_event_kind() says of a wrong handle.
pub const LEASEHOLD_EVENT_NONE: i32 = 0;
/// Less than a third of the ttl is left, because renewals have failed or max_hold is near. Finish
/// now.
pub const LEASEHOLD_EVENT_AT_RISK: i32 = 1;
/// The lease is over; it says so itself from now on. Told up to 100 ms before its validity would
/// have ended, unless this process itself did not run.
pub const LEASEHOLD_EVENT_LOST: i32 = 2;
/// A lease that was freed without a release was gone already, or the store did not say.
pub const LEASEHOLD_EVENT_RELEASED_LATE: i32 = 3;

/// No reason: the event is not LEASEHOLD_EVENT_LOST.
pub const LEASEHOLD_LOSS_NONE: i32 = 0;
/// The store says that the lock is not yours: it was deleted or flushed, or another holder has it
/// now.
pub const LEASEHOLD_LOSS_NOT_HELD: i32 = 1;
/// Its ttl ran out: the store could not be reached, or renewal was off.
pub const LEASEHOLD_LOSS_EXPIRED: i32 = 2;
/// max_hold was reached.
pub const LEASEHOLD_LOSS_MAX_HOLD: i32 = 3;
/// The client's background thread has failed. The client is closed.
pub const LEASEHOLD_LOSS_NOT_RENEWED: i32 = 4;
/// An operator broke the lock, as leasehold_lock_break() does: leasehold_event_detail() says who.
pub const LEASEHOLD_LOSS_BROKEN: i32 = 5;

pub(super) fn loss(reason: LossReason) -> i32 {
    match reason {
        LossReason::NotHeld => LEASEHOLD_LOSS_NOT_HELD,
        LossReason::Broken => LEASEHOLD_LOSS_BROKEN,
        LossReason::Expired => LEASEHOLD_LOSS_EXPIRED,
        LossReason::MaxHold => LEASEHOLD_LOSS_MAX_HOLD,
        LossReason::NotRenewed => LEASEHOLD_LOSS_NOT_RENEWED,
    }
}

impl leasehold_event {
    pub(super) fn new(event: &Event) -> leasehold_event {
        use EventKind::{AtRisk, Lost, ReleasedLate};
        let (kind, reason) = match event.kind {
            AtRisk => (LEASEHOLD_EVENT_AT_RISK, LEASEHOLD_LOSS_NONE),
            ReleasedLate => (LEASEHOLD_EVENT_RELEASED_LATE, LEASEHOLD_LOSS_NONE),
            Lost(reason) => (LEASEHOLD_EVENT_LOST, loss(reason)),
        };
        let (name, fence, lease_id) = (CBytes::new(&event.name), event.fence, event.lease);
        let detail = CBytes::new(event.detail.as_deref().unwrap_or(""));
        leasehold_event { kind, reason, name, fence, lease_id, detail }
    }
}

/// What happened: one of LEASEHOLD_EVENT_... More may come. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_event_kind(event: *const leasehold_event) -> i32 {
    boundary::get(event, LEASEHOLD_EVENT_NONE, |event| event.kind)
}

/// Why a lease was lost: one of LEASEHOLD_LOSS_... More may come. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_event_reason(event: *const leasehold_event) -> i32 {
    boundary::get(event, LEASEHOLD_LOSS_NONE, |event| event.reason)
}

/// The name of the lock, without the prefix of the URL, and its length in `*length` unless that is
/// NULL. A zero byte follows it, and it may hold others. Borrowed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_event_name(
    event: *const leasehold_event,
    length: *mut usize,
) -> *const c_char {
    boundary::string(event, length, |event| &event.name)
}

/// What is known besides, in words for people: who broke the lock, and when. Else empty. Borrowed. Any
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_event_detail(event: *const leasehold_event) -> *const c_char {
    boundary::string(event, std::ptr::null_mut(), |event| &event.detail)
}

/// The fence of the lease: with the name, it says which lease it was. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_event_fence(event: *const leasehold_event) -> u64 {
    boundary::get(event, 0, |event| event.fence)
}

/// The number of the lease: leasehold_lease_watch() gives it. 0 for LEASEHOLD_EVENT_RELEASED_LATE,
/// and for a wrong handle. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_event_lease_id(event: *const leasehold_event) -> u64 {
    boundary::get(event, 0, |event| event.lease_id)
}

/// Frees an event and its strings. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_event_free(event: *mut leasehold_event) {
    boundary::free(event, drop);
}

/// A subscription to what happens to a client's leases, from leasehold_client_events(). Free it
/// with leasehold_events_free().
///
/// Each subscription keeps its own events for a reader that is slow: it may miss
/// LEASEHOLD_EVENT_AT_RISK (they are counted), never LEASEHOLD_EVENT_LOST.
pub struct leasehold_events {
    events: Events,
    freed: AtomicBool,
}

impl table::Handled for leasehold_events {}

/// How soon a thread that waits learns that the subscription was freed.
const SLICE: Duration = Duration::from_millis(100);

impl leasehold_events {
    pub(super) fn new(events: Events) -> leasehold_events {
        leasehold_events { events, freed: AtomicBool::new(false) }
    }

    pub(super) fn watch(&self, lease: &Lease) -> Result<u64, Failure> {
        Ok(lease.watch(&self.events)?)
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
            let event = self.events.next_within(left.min(SLICE))?;
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
    boundary::get(events, -1, |events| events.events.as_fd().as_raw_fd())
}

/// The next event, waiting for it `wait_ms` at most: 0 does not wait, LEASEHOLD_FOREVER has no
/// limit.
///
/// Returns LEASEHOLD_OK and writes `*event`, to be freed with leasehold_event_free(); or
/// LEASEHOLD_TIMEOUT when there was none; or LEASEHOLD_ERR_CLOSED when the client is closed and
/// nothing is left to read, or the subscription was freed meanwhile. Any thread; threads that wait
/// at once share the events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_events_next_within(
    events: *mut leasehold_events,
    wait_ms: i64,
    event: *mut *mut leasehold_event,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::open(error, "event", event, || {
        let next = table::get(events)?.next(limit("wait", wait_ms)?)?;
        next.as_ref().map(leasehold_event::new).ok_or_else(|| Failure::new(LEASEHOLD_TIMEOUT, ""))
    })
}

/// How many LEASEHOLD_EVENT_AT_RISK this subscription has dropped, because the program did not read
/// them in time. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_events_dropped(events: *const leasehold_events) -> u64 {
    boundary::get(events, 0, |events| events.events.dropped())
}

/// Ends a subscription and frees it; its descriptor is closed. A thread that waits in
/// leasehold_events_next_within() returns LEASEHOLD_ERR_CLOSED within 200 ms. Events that were read before
/// stay. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_events_free(events: *mut leasehold_events) {
    boundary::free(events, |events| events.freed.store(true, Ordering::Release));
}
