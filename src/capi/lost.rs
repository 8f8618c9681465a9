//! Being told that one lease is lost.

use std::ffi::{c_int, c_void};

use super::boundary::{self, leasehold_error};
use super::events::{leasehold_event, leasehold_events};
use super::failure::leasehold_status;
use super::lease::leasehold_lease;
use super::{registered, table};
use crate::Event;
use crate::said::say;

/// Is called when a lease is lost: see leasehold_lease_on_lost(). The event is borrowed for the
/// call. What it returns is 0, or its failure is logged. It may call this library, but must return,
/// not longjmp() or throw.
pub type leasehold_lease_lost_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, event: *const leasehold_event) -> c_int>;

/// Frees what `user_data` leads to, when nobody will use it any more. It must not call this library.
pub type leasehold_lease_drop_fn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;

/// Has `function` called if this lease is lost; at once if it was lost before. NULL takes back the
/// one that is registered, and a new one takes its place.
///
/// It is called once at most, and not any more when a call has ended the lease (released or freed it,
/// for example), or its client was closed. When such a call, or this one, returns, the former
/// function is not running any more, so what its `user_data` leads to can be freed. (Only within
/// such a function, or a log function, nobody waits for that.) So it must not wait for a thread that ends
/// the lease. All functions of a client are called one after the other, by a thread that does
/// nothing else, `leasehold-lost`: a slow one holds up the others, and no renewal. It may end leases,
/// take locks, and close the client, which does not wait for the background thread then. A forked
/// child never calls it.
///
/// `drop` may be NULL. Else it is called once, whatever comes of this call: when the function was
/// called, will not be called any more, or was not registered.
///
/// Returns LEASEHOLD_OK; LEASEHOLD_LOST when a call has ended the lease before; LEASEHOLD_ERR_CLOSED
/// when its client is closed; LEASEHOLD_ERR_EXHAUSTED when there is no thread or descriptor for it.
/// Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_on_lost(
    lease: *mut leasehold_lease,
    function: leasehold_lease_lost_fn,
    user_data: *mut c_void,
    drop: leasehold_lease_drop_fn,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    let data = UserData { data: user_data, drop };
    boundary::call(error, move || {
        let lease = table::get(lease)?;
        lease.forget_on_lost();
        function.map_or(Ok(()), |function| lease.on_lost(move |event| call(function, data, &event)))
    })
}

/// Gives the number by which the events of a subscription to its client name this lease
/// (leasehold_event_lease_id()). Where it was lost before, the subscription is told of that again:
/// so no loss falls between. For languages on top of C, whose code cannot be called on any thread.
///
/// Returns LEASEHOLD_OK; LEASEHOLD_LOST when a call has ended the lease before; LEASEHOLD_ERR_CLOSED
/// when its client is closed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_watch(
    lease: *const leasehold_lease,
    events: *mut leasehold_events,
    lease_id: *mut u64,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::output(error, "lease_id", lease_id, || {
        let lease = table::get(lease)?;
        table::get(events)?.watch(&*lease.share()?)
    })
}

type Function = unsafe extern "C" fn(*mut c_void, *const leasehold_event) -> c_int;

struct UserData {
    data: *mut c_void,
    drop: leasehold_lease_drop_fn,
}

// SAFETY: the header says on which threads the function is called and the data freed, and asks for
// data for which that is right; nobody else follows the pointer.
unsafe impl Send for UserData {}

impl Drop for UserData {
    fn drop(&mut self) {
        if let Some(drop) = self.drop {
            // SAFETY: the header asks for a function that may be called so; a value is dropped once.
            unsafe { drop(self.data) };
        }
    }
}

fn call(function: Function, data: UserData, event: &Event) {
    let failed = boundary::value(1, || {
        let told = table::open(leasehold_event::new(event))?;
        // SAFETY: the header asks for a function that may be called so, with this data.
        let failed = registered::inside(|| unsafe { function(data.data, told) });
        boundary::free(told, drop);
        Ok(failed)
    });
    if failed != 0 {
        say!(Error, "on-lost-failed", lock = &*event.name);
    }
}
