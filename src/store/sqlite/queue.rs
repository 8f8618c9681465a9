//! The waiters of a name, in the order of their tickets.
//!
//! Nobody is told anything: whoever waits looks again and again, and stamps its row so that the
//! ones behind it know that it lives. A row whose stamp is old holds nobody up.

use std::time::Duration;

use rusqlite::{OptionalExtension, params};

use super::clerk::{Clerk, nanos};
use crate::clock::wall_micros;
use crate::store::Place;

/// The longest pause between two looks of a waiter: a hand-over costs less than half of it, and a
/// look a few microseconds.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// A waiter with a stamp of this age is taken for dead. Many pauses long, so that a busy machine
/// does not make somebody overtaken who was only late, and half a second at most is lost when a
/// waiter was killed; one that leaves removes its row.
pub(super) const DEAD_AFTER: Duration = Duration::from_millis(500);
/// A stamp of this age is written anew: at most four times a second, and not at every look.
const FRESH_FOR: Duration = Duration::from_millis(240);

/// A waiter that pauses no longer than this keeps its place: its stamp is not older than the two
/// together when it comes back.
pub(super) const PLACE_KEPT: Duration = Duration::from_millis(200);

/// A place among the waiters; the row may be missing where the ticket is an old one.
pub(super) struct Spot {
    pub(super) ticket: i64,
    /// There is a row, with the token that asks and a stamp that need not be written anew.
    pub(super) fresh: bool,
}

impl Clerk<'_> {
    /// Where a take stands already.
    pub(super) fn spot(
        &self,
        name: &[u8],
        token: &str,
        place: Place,
    ) -> rusqlite::Result<Option<Spot>> {
        let ticket = match place {
            Place::Try => return Ok(None),
            Place::Join(ticket) => i64::try_from(ticket).ok().filter(|ticket| *ticket > 0),
        };
        let read = |row: &rusqlite::Row<'_>| {
            let (ticket, theirs, stamp): (i64, String, i64) =
                (row.get(0)?, row.get(1)?, row.get(2)?);
            let fresh = theirs == token && stamp >= nanos(self.now.minus(FRESH_FOR));
            Ok(Spot { ticket, fresh })
        };
        let Some(ticket) = ticket else {
            return self
                .connection
                .prepare_cached(include_str!("waiter_by_token.sql"))?
                .query_row(params![name, token], read)
                .optional();
        };
        let spot = self
            .connection
            .prepare_cached(include_str!("waiter_by_ticket.sql"))?
            .query_row(params![name, ticket], read)
            .optional()?;
        // Whoever was taken for dead and was only late has its old place again.
        Ok(Some(spot.unwrap_or(Spot { ticket, fresh: false })))
    }

    /// For how long the first living waiter before a spot, or before a newcomer, would hold it up
    /// without another sign of life.
    pub(super) fn ahead(
        &self,
        name: &[u8],
        token: &str,
        spot: Option<&Spot>,
    ) -> rusqlite::Result<Option<Duration>> {
        let ticket = spot.map_or(i64::MAX, |spot| spot.ticket);
        let stamp: Option<i64> = self
            .connection
            .prepare_cached(include_str!("waiter_ahead.sql"))?
            .query_row(params![name, ticket, token, self.boot, self.oldest()], |row| row.get(0))
            .optional()?;
        Ok(stamp.map(|stamp| Duration::from_nanos((stamp - self.oldest()).unsigned_abs())))
    }

    /// Stands among the waiters, or shows that it still does, and answers the ticket.
    pub(super) fn stand(
        &self,
        name: &[u8],
        token: &str,
        spot: Option<Spot>,
    ) -> rusqlite::Result<u64> {
        let newcomer = spot.is_none();
        let spot = match spot {
            Some(spot) => spot,
            None => Spot { ticket: self.new_ticket(name)?, fresh: false },
        };
        if !spot.fresh {
            self.execute(
                include_str!("waiter_stand.sql"),
                params![name, spot.ticket, token, nanos(self.now), self.boot],
            )?;
        }
        // Only newcomers make the table longer, so they see to it that it gets shorter.
        if newcomer {
            self.execute(
                include_str!("waiter_bury.sql"),
                params![name, spot.ticket, self.boot, self.oldest()],
            )?;
        }
        Ok(spot.ticket.unsigned_abs())
    }

    /// Leaves with the lock. Whoever was ahead is dead, or it would not have been granted.
    pub(super) fn pass(&self, name: &[u8], spot: Option<Spot>) -> rusqlite::Result<()> {
        let ticket = spot.map_or(i64::MAX, |spot| spot.ticket);
        self.execute(include_str!("waiter_pass.sql"), params![name, ticket])
    }

    /// Leaves without it.
    pub(super) fn leave(&self, name: &[u8], token: &str) -> rusqlite::Result<()> {
        self.execute(include_str!("waiter_leave.sql"), params![name, token])
    }

    pub(super) fn forget(&self, name: &[u8]) -> rusqlite::Result<()> {
        self.execute(include_str!("waiter_forget.sql"), [name])
    }

    /// Behind all others, and by the wall clock, so that a number is not given twice when the
    /// queue has been empty.
    fn new_ticket(&self, name: &[u8]) -> rusqlite::Result<i64> {
        let last: Option<i64> = self
            .connection
            .prepare_cached(include_str!("waiter_last.sql"))?
            .query_row([name], |row| row.get(0))
            .optional()?;
        let wall = i64::try_from(wall_micros()).unwrap_or(i64::MAX);
        Ok(last.map_or(wall, |last| wall.max(last.saturating_add(1))))
    }

    /// The oldest stamp that still counts.
    fn oldest(&self) -> i64 {
        nanos(self.now.minus(DEAD_AFTER))
    }
}
