//! Our cycle, through the public interface that every program uses.

use leasehold::Lock;

use super::fault::Fault;

/// Takes the lock and gives it back.
pub(super) fn cycle(lock: &Lock) -> Result<(), Fault> {
    let lease =
        lock.try_acquire()?.ok_or_else(|| Fault::store("the lock is taken by somebody else"))?;
    Ok(lease.release()?)
}
