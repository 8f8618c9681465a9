//! The waiters of a name, in the order of their tickets.
//!
//! SQLite notifies nobody: a waiter looks again and again, and stamps its row to show those behind
//! it that it lives. A row with an old stamp holds nobody up.

use std::time::Duration;

use rusqlite::params;

use super::tables::Tables;
use crate::clock::wall_micros;
use crate::store::Place;

/// The longest pause between two looks of a waiter: a hand-over costs less than half of it, and a
/// look a few microseconds.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// A waiter with a stamp of this age counts as dead. Many pauses long, so that nobody overtakes a
/// waiter that is only late on a busy machine. One that was killed holds the others up for this
/// long at most; one that leaves removes its row.
pub(super) const DEAD_AFTER: Duration = Duration::from_millis(500);
/// A stamp of this age is written anew: at most four times a second, and not at every look.
const FRESH_FOR: Duration = Duration::from_millis(240);

/// A waiter that pauses no longer than this keeps its place: its stamp is not older than the two
/// together when it comes back.
pub(super) const PLACE_KEPT: Duration = Duration::from_millis(200);

pub(super) struct Waiter {
    pub(super) ticket: i64,
    /// There is a row, with the token that asks and a stamp that need not be written anew.
    pub(super) is_fresh: bool,
}

impl Tables<'_> {
    /// The request's own place among the waiters, if it has one.
    pub(super) fn waiter(&self, place: Place) -> rusqlite::Result<Option<Waiter>> {
        let known = match place {
            Place::Try => return Ok(None),
            Place::Join(ticket) => i64::try_from(ticket).ok().filter(|ticket| *ticket > 0),
        };
        let (first, last) = known.map_or((0, i64::MAX), |ticket| (ticket, ticket));
        let found = self.find(
            include_str!("waiter_read.sql"),
            params![self.name, first, last, self.token, self.before(FRESH_FOR)],
        )?;
        Ok(match found {
            Some((ticket, is_fresh)) => Some(Waiter { ticket, is_fresh }),
            // Others took it for dead while it was only late: it has its old place again.
            None => known.map(|ticket| Waiter { ticket, is_fresh: false }),
        })
    }

    /// For how long the first living waiter ahead of this one, or of a newcomer, would hold it up
    /// without another stamp.
    pub(super) fn ahead(&self, waiter: Option<&Waiter>) -> rusqlite::Result<Option<Duration>> {
        let ticket = waiter.map_or(i64::MAX, |waiter| waiter.ticket);
        let left: Option<(i64,)> = self.find(
            include_str!("waiter_ahead.sql"),
            params![self.name, ticket, self.token, self.boot, self.before(DEAD_AFTER)],
        )?;
        Ok(left.map(|(nanos,)| Duration::from_nanos(nanos.unsigned_abs())))
    }

    /// Joins the waiters or stamps the row that is there, and answers the ticket.
    pub(super) fn join(&self, waiter: Option<Waiter>) -> rusqlite::Result<u64> {
        let is_new = waiter.is_none();
        let ticket = match waiter {
            Some(Waiter { ticket, is_fresh: true }) => return Ok(ticket.unsigned_abs()),
            Some(Waiter { ticket, .. }) => ticket,
            None => self.new_ticket()?,
        };
        self.execute(
            include_str!("waiter_stand.sql"),
            params![self.name, ticket, self.token, self.after(Duration::ZERO), self.boot],
        )?;
        // Only newcomers make the table longer, so they are the ones that remove the dead.
        if is_new {
            self.execute(
                include_str!("waiter_bury.sql"),
                params![self.name, ticket, self.boot, self.before(DEAD_AFTER)],
            )?;
        }
        Ok(ticket.unsigned_abs())
    }

    /// Leaves with the lock, and removes the waiters ahead: they are dead, or they would have been
    /// granted it.
    pub(super) fn leave_granted(&self, waiter: Option<Waiter>) -> rusqlite::Result<()> {
        let ticket = waiter.map_or(i64::MAX, |waiter| waiter.ticket);
        self.execute(include_str!("waiter_clear.sql"), params![self.name, ticket])
    }

    /// Leaves without it.
    pub(super) fn leave(&self) -> rusqlite::Result<()> {
        self.execute(include_str!("waiter_leave.sql"), params![self.name, self.token])
    }

    /// Behind all others, and by the wall clock, so that no number is given twice when the queue
    /// has been empty.
    fn new_ticket(&self) -> rusqlite::Result<i64> {
        let last: Option<(i64,)> = self.find(include_str!("waiter_last.sql"), [&self.name])?;
        let wall = i64::try_from(wall_micros()).unwrap_or(i64::MAX);
        Ok(last.map_or(wall, |(last,)| wall.max(last.saturating_add(1))))
    }
}
