//! Our cycle, through the public interface that every program uses.

use leasehold::{Lease, Lock};

use super::fault::Fault;

/// Takes the lock and gives it back.
pub(super) fn cycle(lock: &Lock) -> Result<(), Fault> {
    Ok(take(lock)?.release()?)
}

/// Takes the lock, which nobody else knows of.
pub(super) fn take(lock: &Lock) -> Result<Lease, Fault> {
    lock.try_acquire()?.ok_or_else(|| Fault::store("the lock is taken by somebody else"))
}
