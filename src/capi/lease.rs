//! One holder's turn.

use std::ffi::c_char;
use std::sync::Arc;
use std::time::Duration;

use once_cell::race::OnceBox;

use super::boundary::{self, leasehold_error};
use super::bytes::{CBytes, millis, span};
use super::failure::{Failure, bad, leasehold_status};
use super::log;
use super::registered::Registered;
use super::table;
use crate::error::{Error, ErrorKind};
use crate::sync::Mutex;
use crate::{Event, Lease, Token};

/// The proof that you hold a lock, for as long as it says so. The client renews it in the
/// background unless that was switched off. Free it with leasehold_lease_free(), which releases the
/// lock if nothing else has ended the lease.
pub struct leasehold_lease {
    /// Ending a lease takes it out of here. Calls that talk to the store share it meanwhile.
    place: Mutex<Option<Arc<Lease>>>,
    fence: u64,
    token: Token,
    /// The token's digits, written when they are first asked for.
    digits: OnceBox<CBytes>,
    name: Arc<CBytes>,
    on_lost: Registered,
}

impl table::Handled for leasehold_lease {}

/// What leasehold_lock_take() and leasehold_waits_take() acquired: a lease and its fence, as
/// leasehold_lease_fence() returns it. End the lease with leasehold_lease_end(), or free it as any
/// other.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct leasehold_turn {
    pub(super) lease: *mut leasehold_lease,
    pub(super) fence: u64,
}

impl leasehold_turn {
    pub(super) fn of(lease: leasehold_lease) -> Result<leasehold_turn, Failure> {
        let fence = lease.fence;
        Ok(leasehold_turn { lease: table::open(lease)?, fence })
    }
}

/// Between two looks whether the calls that share a lease have returned.
const LOOK: Duration = Duration::from_millis(1);

impl leasehold_lease {
    pub(super) fn new(lease: Lease, name: &Arc<CBytes>) -> leasehold_lease {
        leasehold_lease {
            fence: lease.fence(),
            token: lease.token(),
            digits: OnceBox::new(),
            name: Arc::clone(name),
            place: Mutex::new(Some(Arc::new(lease))),
            on_lost: Registered::default(),
        }
    }

    fn over(&self) -> Failure {
        let error = Error::new(ErrorKind::Lost, "a call has ended it before");
        error.about(self.name.bytes()).into()
    }

    fn remaining(&self) -> Duration {
        self.place.lock().as_deref().map_or(Duration::ZERO, Lease::remaining)
    }

    pub(super) fn share(&self) -> Result<Arc<Lease>, Failure> {
        self.place.lock().clone().ok_or_else(|| self.over())
    }

    pub(super) fn on_lost(&self, call: impl FnOnce(Event) + Send + 'static) -> Result<(), Failure> {
        self.on_lost.register(&*self.share()?, call)
    }

    pub(super) fn forget_on_lost(&self) {
        // Not shared any more while the function is waited for: it may end the lease.
        self.on_lost.end(|| drop(self.share().map(|lease| lease.forget_on_lost())));
    }

    /// For a lease that is freed: what has ended before is not worth an error.
    fn end_if_held(&self) -> Option<Lease> {
        let is_held = self.place.lock().is_some();
        is_held.then(|| self.end().ok()).flatten()
    }

    /// Takes the lease out, and waits until no other call shares it.
    fn end(&self) -> Result<Lease, Failure> {
        let mut place = self.place.lock();
        let mut lease = place.take().ok_or_else(|| self.over())?;
        if log::is_inside() && Arc::strong_count(&lease) > 1 && lease.is_valid() {
            *place = Some(lease);
            return Err(bad("a lease that is being extended is not ended by a log function"));
        }
        drop(place);
        loop {
            lease = match Arc::try_unwrap(lease) {
                Ok(lease) => {
                    self.on_lost.end(|| lease.forget_on_lost());
                    return Ok(lease);
                }
                // The call that shares it may be waiting for this very call of the log function.
                Err(_) if log::is_inside() => return Err(self.over()),
                Err(shared) => shared,
            };
            std::thread::sleep(LOOK);
        }
    }
}

/// The fencing token (fence), from 1 to `2^53-1`: larger than that of every earlier lease on the
/// name. Send it to the resource with each write, and let the resource reject a smaller one. It has
/// at most 16 digits: an int64_t and a BIGINT hold it. It stays when the lease is over. Sends no
/// request. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_fence(lease: *const leasehold_lease) -> u64 {
    boundary::get(lease, 0, |lease| lease.fence)
}

/// The token that marks the lease in the store: 32 hexadecimal digits. Whoever has it can release
/// the lock. Borrowed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_token(lease: *const leasehold_lease) -> *const c_char {
    boundary::string(lease, std::ptr::null_mut(), |lease| {
        lease.digits.get_or_init(|| Box::new(CBytes::new(lease.token.to_string())))
    })
}

/// The name of the lock, and its length in `*length` unless that is NULL. A zero byte follows it,
/// and it may hold others. Borrowed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_name(
    lease: *const leasehold_lease,
    length: *mut usize,
) -> *const c_char {
    boundary::string(lease, length, |lease| &lease.name)
}

/// How many milliseconds you may still rely on the lease; 0 when it is over or lost. Sends no
/// request. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_remaining_ms(lease: *const leasehold_lease) -> i64 {
    boundary::get(lease, 0, |lease| millis(lease.remaining()))
}

/// Whether you may rely on the lease at this moment. Sends no request. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_is_valid(lease: *const leasehold_lease) -> bool {
    boundary::get(lease, false, |lease| !lease.remaining().is_zero())
}

/// Makes the lease valid for its ttl from now on. Renewed leases do not need it. It never goes
/// beyond max_hold, and never makes a lease shorter.
///
/// Returns:
/// - LEASEHOLD_OK.
/// - LEASEHOLD_LOST when the lease was no longer yours.
/// - LEASEHOLD_ERR_CLOSED when its client is closed. The lease has ended with it.
/// - LEASEHOLD_UNKNOWN or another error when the store did not confirm it. The lease stays valid
///   for as long as it was.
///
/// Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_extend(
    lease: *mut leasehold_lease,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || Ok(table::get(lease)?.share()?.extend()?))
}

/// As leasehold_lease_extend(), with another ttl than the lock's. Errors: as
/// leasehold_lease_extend(), and LEASEHOLD_ERR_BAD_ARGUMENT for a ttl that no lock could have. Any
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_extend_for_ms(
    lease: *mut leasehold_lease,
    ttl_ms: i64,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || {
        let ttl = span("ttl", ttl_ms)?;
        Ok(table::get(lease)?.share()?.extend_for(ttl)?)
    })
}

/// Releases the lock. The lease is over at once, whatever the call returns.
///
/// Returns:
/// - LEASEHOLD_OK when the lease was yours to the end.
/// - LEASEHOLD_LOST when it was lost before, or ended before by this or another call.
/// - LEASEHOLD_UNKNOWN when the store did not confirm it. The client releases the lock in the
///   background, or its ttl frees it.
/// - LEASEHOLD_ERR_CLOSED when the client was closed, which has released it.
/// - Another error when the store refused, such as LEASEHOLD_ERR_PERMISSION. The lock stays held
///   until its ttl runs out.
///
/// If another thread is extending the lease, the release waits for that first. Within a log
/// function it does not: there it returns LEASEHOLD_ERR_BAD_ARGUMENT, and the lease continues. Any
/// thread, also another one than acquired it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_release(
    lease: *mut leasehold_lease,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || Ok(table::get(lease)?.end()?.release()?))
}

/// Ends the lease without releasing the lock: it stays held until its ttl runs out. Useful for
/// "once per interval". Sends a request only where the lease was handed over a moment ago and the
/// store has not yet confirmed its whole ttl, or where it was attached and never extended.
///
/// Returns:
/// - LEASEHOLD_OK.
/// - LEASEHOLD_LOST when the lease was lost or ended before.
/// - LEASEHOLD_ERR_CLOSED when its client is closed.
/// - LEASEHOLD_UNKNOWN or another error when the store did not confirm that request. The lease is
///   over, and the lock may be free when the claim window (leasehold_config_set_claim_window_ms())
///   has passed.
///
/// Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_let_expire(
    lease: *mut leasehold_lease,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || Ok(table::get(lease)?.end()?.let_expire()?))
}

/// As leasehold_lease_let_expire(), but the lock is free `after_ms` from now, whatever its ttl was.
///
/// Returns:
/// - LEASEHOLD_OK.
/// - LEASEHOLD_LOST when the lease was no longer yours.
/// - LEASEHOLD_ERR_BAD_ARGUMENT for what no ttl can be. The lease continues.
/// - Others when the store did not confirm it. The lease is over, and the lock expires by the ttl
///   that it had, or by the claim window if it was handed over a moment ago.
///
/// Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_let_expire_in_ms(
    lease: *mut leasehold_lease,
    after_ms: i64,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || {
        let object = table::get(lease)?;
        let after = span("ttl", after_ms)?;
        // Before the lease is taken out: one that is dropped here would be released.
        object.place.lock().as_deref().map_or(Ok(()), |lease| lease.check_ttl(after))?;
        Ok(object.end()?.let_expire_in(after)?)
    })
}

/// Ends the lease here so that another process can continue it. Send that process the token and the
/// fence, and it calls leasehold_lock_attach(). The lock stays taken for a ttl from now, with no
/// holder until then. Token and fence stay readable until the handle is freed.
///
/// Returns:
/// - LEASEHOLD_OK.
/// - LEASEHOLD_LOST when the lease was lost or ended before.
/// - LEASEHOLD_ERR_CLOSED when its client is closed.
/// - LEASEHOLD_UNKNOWN or another error when the store did not confirm it. The lease is over,
///   attaching it may fail, and the lock expires by the ttl that it had.
///
/// Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_detach(
    lease: *mut leasehold_lease,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || Ok(table::get(lease)?.end()?.detach().map(drop)?))
}

/// Releases the lock and frees the lease in one call. With `wait`, it returns what
/// leasehold_lease_release() would. Without `wait`, it waits for the store only if the lease can no
/// longer be relied on, and then returns the same.
///
/// If the lease can be relied on, LEASEHOLD_OK says so without waiting: the lease was valid to the
/// end, and other clients find the lock free a moment later. The store's answer could add only that
/// the lock was deleted by hand, or lost with the store's data, since the last renewal.
/// LEASEHOLD_EVENT_RELEASED_LATE reports that, and an answer that does not come.
///
/// It waits all the same on a quorum, on an SQLite file, and at the last of several leases that
/// threads of this process handed to each other, while others still wait. A program that exits
/// right after it may leave the lock to its ttl, unless it has closed the client.
///
/// The handle is freed whatever the call returns, except LEASEHOLD_ERR_FORKED. So
/// LEASEHOLD_ERR_BAD_ARGUMENT, in a log function that is called during an extension of this lease,
/// does not mean that the lease continues: it is released when the extension returns. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_end(
    lease: *mut leasehold_lease,
    wait: bool,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || {
        let lease = table::take(lease)?.end()?;
        if wait || !lease.is_valid() {
            lease.release()?;
        }
        Ok(())
    })
}

/// Frees a lease, and releases the lock if nothing has ended the lease. It waits 50 ms at most for
/// a connection, and the client does the rest in the background. It does not return how the release
/// went: see LEASEHOLD_EVENT_RELEASED_LATE. If another thread is extending the lease, it waits for
/// that. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_free(lease: *mut leasehold_lease) {
    // Where ending it is refused, the last call that uses it drops it.
    boundary::free(lease, |lease| drop(lease.end_if_held()));
}

/// Frees a lease that the program can no longer end, such as one that a garbage collector found.
/// The client stops renewing it and does not release it: the lock stays held until its ttl runs
/// out. Never waits for the store. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_abandon(lease: *mut leasehold_lease) {
    boundary::free(lease, |lease| lease.end_if_held().into_iter().for_each(Lease::abandon));
}
