//! What the exploration of threads looks at in a crew, and what it spoils to show that it finds that.

use super::{CallPhase, Crew};

#[allow(dead_code, reason = "only where threads are explored")]
impl Crew {
    /// No call goes on that was woken before it is parked.
    pub(crate) fn forget_wake_ups(&self) {
        for entry in self.roster.lock().calls.values_mut() {
            if let CallPhase::GoesOn { is_woken } = &mut entry.phase {
                *is_woken = false;
            }
        }
    }

    /// Nobody is to listen.
    pub(crate) fn forget_who_is_unheard(&self) {
        self.roster.lock().unheard = None;
    }

    /// No call is left, and no thread.
    pub(crate) fn is_empty(&self) -> bool {
        let roster = self.roster.lock();
        roster.calls.is_empty() && roster.threads.is_empty()
    }
}
