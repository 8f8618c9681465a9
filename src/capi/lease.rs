//! One holder's turn.

use std::ffi::c_char;
use std::sync::Arc;

use super::boundary::{self, leasehold_error};
use super::bytes::{CBytes, millis, span};
use super::failure::{Failure, bad, leasehold_status};
use super::log;
use super::table::{self, Handled};
use crate::Lease;
use crate::error::{Error, ErrorKind};
use crate::sync::{Condvar, Mutex};

/// One holder's turn: the proof that a lock is yours, for as long as it says so. It is renewed in
/// the background unless that was switched off. Free it with leasehold_lease_free(), which releases
/// it if nothing else has ended it.
pub struct leasehold_lease {
    // Ending a lease takes the lease itself. So it lies in a place that is empty afterwards; calls
    // that talk to the store borrow it from there, and the call that ends it waits for them.
    place: Mutex<Place>,
    returned: Condvar,
    fence: u64,
    token: CBytes,
    name: CBytes,
}

struct Place {
    lease: Option<Arc<Lease>>,
    borrowers: u32,
}

impl Handled for leasehold_lease {
    const KIND: (u64, &'static str) = (6, "lease");
}

impl leasehold_lease {
    pub(super) fn new(lease: Lease) -> leasehold_lease {
        leasehold_lease {
            fence: lease.fence(),
            token: CBytes::new(lease.token().to_string()),
            name: CBytes::new(lease.name()),
            place: Mutex::new(Place { lease: Some(Arc::new(lease)), borrowers: 0 }),
            returned: Condvar::default(),
        }
    }

    fn over(&self) -> Failure {
        let error = Error::new(ErrorKind::Lost, "a call has ended it before");
        error.about(self.name.bytes()).into()
    }

    /// Looks at the lease, which takes an instant; `None` when it was ended.
    fn look<T>(&self, look: impl FnOnce(&Lease) -> T) -> Option<T> {
        self.place.lock().lease.as_deref().map(look)
    }

    /// Lets a call that may take long use the lease.
    fn borrow<T>(&self, talk: impl FnOnce(&Lease) -> Result<T, Error>) -> Result<T, Failure> {
        let mut place = self.place.lock();
        let lease = place.lease.clone().ok_or_else(|| self.over())?;
        place.borrowers += 1;
        drop(place);
        // Dropped after the clone, which is declared later, and so it is when there is a panic: the
        // call that waits for it must be the only one that has the lease.
        let _borrower = Borrower(self);
        let lease = lease;
        Ok(talk(&lease)?)
    }

    /// Takes the lease out, when nobody uses it any more.
    fn end(&self) -> Result<Lease, Failure> {
        let mut place = self.place.lock();
        if place.borrowers > 0 && log::is_inside() {
            // The call that uses it may be waiting for this very call of the log function. What it
            // was told of is over, so that there is nothing to wait for.
            if place.lease.as_deref().is_some_and(Lease::is_valid) {
                return Err(bad("a lease that is being extended is not ended by a log function"));
            }
            let over_already = place.lease.take();
            drop(place);
            drop(over_already);
            return Err(self.over());
        }
        let lease = place.lease.take().ok_or_else(|| self.over())?;
        while place.borrowers > 0 {
            place = self.returned.wait(place);
        }
        drop(place);
        Arc::into_inner(lease).ok_or_else(|| self.over())
    }
}

struct Borrower<'a>(&'a leasehold_lease);

impl Drop for Borrower<'_> {
    fn drop(&mut self) {
        self.0.place.lock().borrowers -= 1;
        self.0.returned.notify_all();
    }
}

/// The fence: larger than that of every turn on the name before it, from 1 to 2^53 - 1. Give it to
/// the resource with each write, and let the resource refuse a smaller one. It stays when the lease
/// is over. 0 for a wrong handle. Asks nobody. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_fence(lease: *const leasehold_lease) -> u64 {
    boundary::get(lease, 0, |lease| lease.fence)
}

/// The token that marks the grant in the store: 32 hexadecimal digits. It is all that is needed to
/// release the lock. Borrowed: it is valid until the lease is freed. Never NULL; empty for a wrong
/// handle. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_token(lease: *const leasehold_lease) -> *const c_char {
    boundary::string(lease, std::ptr::null_mut(), |lease| &lease.token)
}

/// The name of the lock, and its length in `*length` unless that is NULL. A zero byte follows it,
/// and it may hold others. Borrowed: it is valid until the lease is freed. Never NULL; empty for a
/// wrong handle. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_name(
    lease: *const leasehold_lease,
    length: *mut usize,
) -> *const c_char {
    boundary::string(lease, length, |lease| &lease.name)
}

/// For how many milliseconds the lease may still be relied on, without asking anybody; 0 when it
/// is over or lost, and for a wrong handle. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_remaining_ms(lease: *const leasehold_lease) -> i64 {
    boundary::get(lease, 0, |lease| lease.look(Lease::remaining).map_or(0, millis))
}

/// Whether the lease may be relied on at this moment, without asking anybody; false for a wrong
/// handle. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_is_valid(lease: *const leasehold_lease) -> bool {
    boundary::get(lease, false, |lease| lease.look(Lease::is_valid).unwrap_or(false))
}

/// Makes the lease valid for its ttl from now on. Renewed leases do not need it. It never goes
/// beyond max_hold, and never makes a lease shorter.
///
/// Returns LEASEHOLD_OK; LEASEHOLD_NOT_HELD when it was not ours any more; LEASEHOLD_ERR_CLOSED
/// when its client is closed: then the lease has ended; LEASEHOLD_UNKNOWN or another error when
/// the store did not confirm it: then the lease stays valid for as long as it was. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_extend(
    lease: *mut leasehold_lease,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || table::get(lease)?.borrow(Lease::extend))
}

/// The same for another ttl than the lock's. Errors: as leasehold_lease_extend(), and
/// LEASEHOLD_ERR_BAD_ARGUMENT for a ttl that no lock could have. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_extend_for_ms(
    lease: *mut leasehold_lease,
    ttl_ms: i64,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || {
        let ttl = span("ttl", ttl_ms)?;
        table::get(lease)?.borrow(|lease| lease.extend_for(ttl))
    })
}

/// Gives the lock back. The lease is over at once and whatever comes of it; its handle still has to
/// be freed.
///
/// Returns LEASEHOLD_OK when it was ours to the end; LEASEHOLD_NOT_HELD when it was lost before, or
/// ended before by this or another call; LEASEHOLD_UNKNOWN when the store did not confirm it: then
/// it is given back in the background, or by its ttl; LEASEHOLD_ERR_CLOSED when the client was
/// closed, which has released it; another error when the store refused, such as
/// LEASEHOLD_ERR_PERMISSION: then the lock stays taken until its ttl runs out. A release that meets
/// an extension under way in another thread waits for that one first (within a log function it does
/// not: there it is LEASEHOLD_ERR_BAD_ARGUMENT, and the lease goes on). Any thread, also another
/// one than took it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_release(
    lease: *mut leasehold_lease,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || Ok(table::get(lease)?.end()?.release()?))
}

/// Ends the lease without giving the lock back: it stays taken until its ttl runs out. Useful for
/// "once per interval". Asks the store only where the lease was handed over a moment ago and is not
/// yet claimed for its whole ttl, or was attached and never extended. The handle still has to be
/// freed.
///
/// Returns LEASEHOLD_OK; LEASEHOLD_NOT_HELD when the lease was lost or ended before;
/// LEASEHOLD_ERR_CLOSED when its client is closed; LEASEHOLD_UNKNOWN or another error when the store
/// did not confirm that claim: then the lease is over, and the lock may be free when the claim
/// window is. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_let_expire(
    lease: *mut leasehold_lease,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || Ok(table::get(lease)?.end()?.let_expire()?))
}

/// The same, with the lock free `after_ms` from now, whatever its ttl was.
///
/// Returns LEASEHOLD_OK; LEASEHOLD_NOT_HELD when it was not ours any more;
/// LEASEHOLD_ERR_BAD_ARGUMENT for what no ttl can be: then the lease goes on; others when the store
/// did not confirm it: then the lease is over, and the lock runs out by the ttl that it had (the claim
/// window, where it was handed over a moment ago). Any thread.
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
        object.look(|lease| lease.check_ttl(after)).transpose()?;
        Ok(object.end()?.let_expire_in(after)?)
    })
}

/// Ends the lease here for another process to go on with it: hand that one the token and the
/// fence, and it calls leasehold_lock_attach(). The lock stays taken for a ttl from now, and nobody
/// holds it until then. The handle still has to be freed, and its token and fence stay until then.
///
/// Returns LEASEHOLD_OK; LEASEHOLD_NOT_HELD when the lease was lost or ended before;
/// LEASEHOLD_ERR_CLOSED when its client is closed; LEASEHOLD_UNKNOWN or another error when the store
/// did not confirm it: then the lease is over, perhaps nobody can attach it, and the lock runs out by
/// the ttl that it had. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_detach(
    lease: *mut leasehold_lease,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || {
        table::get(lease)?.end()?.detach()?;
        Ok(())
    })
}

/// Frees a lease, and releases it if nothing has ended it. That waits 50 ms at most for a
/// connection, tells nobody how it went (but see LEASEHOLD_EVENT_RELEASED_LATE), and what it could
/// not do is done in the background. (It waits for an extension that is under way in another
/// thread.) Does nothing for NULL, and for a handle that is wrong; in a forked child, nothing that
/// is the parent's. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_free(lease: *mut leasehold_lease) {
    // Where ending it is refused, the last call that uses it drops it.
    boundary::free(lease, |lease| drop(lease.end()));
}

/// Frees a lease that nobody can end any more, such as one that a garbage collector found. It is not
/// renewed any more and not released: the lock stays taken until its ttl runs out. Never waits for
/// the store. Does nothing for NULL, and for a handle that is wrong; in a forked child, nothing that
/// is the parent's. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lease_abandon(lease: *mut leasehold_lease) {
    boundary::free(lease, |lease| {
        if let Ok(lease) = lease.end() {
            lease.abandon();
        }
    });
}
