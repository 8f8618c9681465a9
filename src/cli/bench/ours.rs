//! Our cycle, through the public interface that every program uses.

use leasehold::{Lease, Lock};

use crate::exit::Failure;

/// Takes the lock and gives it back.
pub(super) fn cycle(lock: &Lock) -> Result<(), Failure> {
    Ok(take(lock)?.release()?)
}

/// Takes the lock and drops the lease, which releases it without waiting for the reply.
pub(super) fn deferred_cycle(lock: &Lock) -> Result<(), Failure> {
    drop(take(lock)?);
    Ok(())
}

/// Takes the lock, which nobody else knows of.
pub(super) fn take(lock: &Lock) -> Result<Lease, Failure> {
    lock.try_acquire()?.ok_or_else(|| Failure::unavailable("the lock is taken by somebody else"))
}
