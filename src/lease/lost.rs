//! How a lease is lost, and who is called then.

use std::sync::Arc;

use super::Lease;
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
#[cfg(feature = "capi")]
use crate::events::Events;
use crate::events::{Event, EventKind, Loss, LossReason};
use crate::grant::Ended;
use crate::keeper::Core;
use crate::store::Lane;

impl Lease {
    /// Calls `call` with the event if this lease is lost; at once if it was lost before.
    ///
    /// It is called once at most, and never after the lease has ended in another way: released,
    /// dropped, left to expire, detached, or with its client. A later `on_lost` of the same lease
    /// replaces it, and [`forget_on_lost`](Lease::forget_on_lost) removes it. A call that is under
    /// way at that moment continues.
    ///
    /// The calls for all leases of a client are made one after the other, by a thread that does
    /// nothing else, `leasehold-lost`. So a slow call delays the others, but no renewal. It may
    /// acquire locks. It may close the client, which then does not wait for the background thread.
    /// A panic in it ends nothing else, and is logged.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    ///
    /// # let client = leasehold::Client::open("redis://127.0.0.1")?;
    /// let lease = client.lock("reindex").acquire()?;
    /// let is_lost = Arc::new(AtomicBool::new(false));
    /// lease.on_lost({
    ///     let is_lost = Arc::clone(&is_lost);
    ///     move |_| is_lost.store(true, Ordering::Relaxed)
    /// })?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Exhausted`]: there is no thread or descriptor left for it.
    /// [`ErrorKind::Closed`]: the client was closed, and the lease has ended with it.
    /// [`ErrorKind::Forked`]: it is the parent's lease.
    pub fn on_lost(&self, call: impl FnOnce(Event) + Send + 'static) -> Result<(), Error> {
        let core = self.keeper.core()?;
        core.hub.on_lost(self.grant.id, Box::new(call), || self.loss())
    }

    /// Removes what [`on_lost`](Lease::on_lost) has registered.
    pub fn forget_on_lost(&self) {
        if let Ok(core) = self.keeper.core_even_closed() {
            core.hub.forget(self.grant.id);
        }
    }

    /// The number by which events name this lease. Where it was lost before, the subscription is
    /// told of that again: so no loss falls between.
    #[cfg(feature = "capi")]
    pub(crate) fn watch(&self, events: &Events) -> Result<u64, Error> {
        self.keeper.core()?;
        if let Some(loss) = self.loss() {
            events.tell_again(&loss);
        }
        Ok(self.grant.id)
    }

    fn loss(&self) -> Option<Event> {
        let Loss { reason, detail } = self.grant.loss.lock().clone()?;
        let name = Arc::clone(&self.grant.identity.name);
        let (fence, lease) = (self.fence(), self.grant.id);
        Some(Event { kind: EventKind::Lost(reason), name, fence, lease, detail })
    }

    /// Ends a lease that was found lost. With `ask`, the store is asked until then who has broken
    /// it.
    pub(super) fn lost(&self, core: &Core, reason: LossReason, ask: Option<Deadline>) -> Error {
        if self.grant.end(Moment::now()) == Ended::Before {
            return self.over(core);
        }
        core.forget(&self.grant);
        core.report_lost(&self.grant, reason, ask);
        Error::new(ErrorKind::Lost, self.grant.why_over(Moment::now(), ""))
    }

    /// The error of a last request that found the lock gone. The store is asked until `by` who has
    /// broken it.
    pub(super) fn not_ours(&self, core: &Core, otherwise: &str, by: Deadline) -> Error {
        let breach = core.breaches(Lane::Give(by), &[&self.grant.identity], by).pop().flatten();
        Error::new(ErrorKind::Lost, breach.map_or_else(|| otherwise.into(), |it| it.to_string()))
    }

    /// The error of a call on a lease that was over before.
    pub(super) fn over(&self, core: &Core) -> Error {
        let kind = if core.room.is_closed() { ErrorKind::Closed } else { ErrorKind::Lost };
        Error::new(kind, self.grant.why_over(Moment::now(), ""))
    }
}
