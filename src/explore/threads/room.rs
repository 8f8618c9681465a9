//! What the exploration looks at in a room, and what it spoils to show that it finds that.

use super::Room;

impl Room {
    /// Nobody waits or listens here any more, and nothing is left of those who did.
    pub(crate) fn is_empty(&self, closed: bool, forbidden: bool) -> bool {
        let hall = self.hall.lock();
        // The turn that closing has ended is told to nobody: nobody could follow.
        assert!(!hall.has_warned || forbidden, "what closing did is taken for a refusal");
        let lines = closed || (hall.lines.is_empty() && !self.is_occupied());
        lines && hall.seats.is_empty() && hall.able.is_empty() && hall.listener.is_none()
    }

    /// Nobody is woken who does not sleep yet.
    pub(crate) fn forget_wake_ups(&self) {
        self.hall.lock().seats.values_mut().for_each(|seat| seat.woken = false);
    }

    /// Nobody is found who could listen.
    pub(crate) fn forget_who_could_listen(&self) {
        self.hall.lock().able.clear();
    }
}
