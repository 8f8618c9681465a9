//! Something that happened to a lease.

use std::ffi::c_char;

use super::boundary::{self, put};
use super::bytes::Lent;
use super::table::{self, Handled, Kind};
use crate::{Event, EventKind, LossReason};

/// Something that happened to a lease without its holder's doing, from leasehold_events_next().
/// Free it with leasehold_event_free().
pub struct leasehold_event(());

/// No event: what leasehold_event_kind() says of a wrong handle.
pub const LEASEHOLD_EVENT_NONE: i32 = 0;
/// Renewal has not got through for a while, or max_hold is near: less than a third of the ttl is
/// left. Time to finish.
pub const LEASEHOLD_EVENT_AT_RISK: i32 = 1;
/// The lease is over; it says so itself from now on. Told up to 100 ms before its validity would
/// have ended, unless this process itself did not run.
pub const LEASEHOLD_EVENT_LOST: i32 = 2;
/// A lease that was freed without a release was gone already, or the store did not say.
pub const LEASEHOLD_EVENT_RELEASED_LATE: i32 = 3;

/// No reason: the event is not LEASEHOLD_EVENT_LOST.
pub const LEASEHOLD_LOSS_NONE: i32 = 0;
/// The store says that the lock is not ours: deleted, flushed, or somebody else's by now.
pub const LEASEHOLD_LOSS_NOT_HELD: i32 = 1;
/// Its ttl ran out: the store could not be reached, or renewal was off.
pub const LEASEHOLD_LOSS_EXPIRED: i32 = 2;
/// max_hold was reached.
pub const LEASEHOLD_LOSS_MAX_HOLD: i32 = 3;
/// The client's background thread has failed. The client is closed.
pub const LEASEHOLD_LOSS_NOT_RENEWED: i32 = 4;

pub(super) struct EventObject {
    kind: i32,
    reason: i32,
    name: Lent,
    fence: u64,
}

impl EventObject {
    pub(super) fn new(event: &Event) -> EventObject {
        let (kind, reason) = match event.kind {
            EventKind::AtRisk => (LEASEHOLD_EVENT_AT_RISK, LEASEHOLD_LOSS_NONE),
            EventKind::Lost(reason) => (LEASEHOLD_EVENT_LOST, loss(reason)),
            EventKind::ReleasedLate => (LEASEHOLD_EVENT_RELEASED_LATE, LEASEHOLD_LOSS_NONE),
        };
        EventObject { kind, reason, name: Lent::new(&event.name), fence: event.fence }
    }
}

fn loss(reason: LossReason) -> i32 {
    match reason {
        LossReason::NotHeld => LEASEHOLD_LOSS_NOT_HELD,
        LossReason::Expired => LEASEHOLD_LOSS_EXPIRED,
        LossReason::MaxHold => LEASEHOLD_LOSS_MAX_HOLD,
        LossReason::NotRenewed => LEASEHOLD_LOSS_NOT_RENEWED,
    }
}

impl Handled for EventObject {
    type Handle = leasehold_event;
    const KIND: Kind = Kind::Event;
}

/// What happened: one of LEASEHOLD_EVENT_... More may come. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_event_kind(event: *const leasehold_event) -> i32 {
    boundary::value(LEASEHOLD_EVENT_NONE, || Ok(table::get::<EventObject>(event)?.kind))
}

/// Why a lease was lost: one of LEASEHOLD_LOSS_... More may come. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_event_reason(event: *const leasehold_event) -> i32 {
    boundary::value(LEASEHOLD_LOSS_NONE, || Ok(table::get::<EventObject>(event)?.reason))
}

/// The name of the lock, and its length in `*length` unless that is NULL. A zero byte follows it,
/// and it may hold others. Borrowed: it is valid until the event is freed. Never NULL; empty for a
/// wrong handle. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_event_name(
    event: *const leasehold_event,
    length: *mut usize,
) -> *const c_char {
    // SAFETY: the header asks for NULL or room for a length.
    unsafe { put(length, 0) };
    boundary::value(c"".as_ptr(), || {
        let object = table::get::<EventObject>(event)?;
        // SAFETY: the header asks for NULL or room for a length.
        Ok(unsafe { object.name.lend(length) })
    })
}

/// The fence of the lease: with the name, it says which lease it was. 0 for a wrong handle. Any
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_event_fence(event: *const leasehold_event) -> u64 {
    boundary::value(0, || Ok(table::get::<EventObject>(event)?.fence))
}

/// Frees an event and its strings. Does nothing for NULL, and for a handle that is wrong. Any
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_event_free(event: *mut leasehold_event) {
    boundary::silent(|| table::take::<EventObject>(event).map(drop));
}
