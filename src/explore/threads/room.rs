//! What the exploration looks at in a room, and what it spoils to show that it finds that.

use super::WaitingRoom;

impl WaitingRoom {
    /// Nobody waits or listens here any more, and nothing is left of those who did.
    pub(crate) fn is_empty(&self, closed: bool, forbidden: bool) -> bool {
        let waiters = self.waiters.lock();
        // The turn that closing has ended is told to nobody: nobody could follow.
        assert!(!waiters.has_warned || forbidden, "what closing did is taken for a refusal");
        let queues = closed || (waiters.queues.is_empty() && !self.is_occupied());
        queues
            && waiters.sleepers.is_empty()
            && waiters.could_listen.is_empty()
            && waiters.listener.is_none()
            && self.crew.is_empty()
    }

    /// Nobody is woken who does not sleep yet.
    pub(crate) fn forget_wake_ups(&self) {
        self.waiters.lock().sleepers.values_mut().for_each(|sleeper| sleeper.woken = false);
    }

    /// Nobody is found who could listen.
    pub(crate) fn forget_who_could_listen(&self) {
        self.waiters.lock().could_listen.clear();
    }
}
