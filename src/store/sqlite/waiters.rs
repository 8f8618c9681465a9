//! The waiters of a name, in the order of their tickets. SQLite notifies nobody: a waiter looks again
//! and again, and stamps its row to show those behind it that it lives.

use std::time::Duration;

use rusqlite::params;

use super::requests::{Tables, Waiter, ago, shown};
use crate::clock::wall_micros;
use crate::store::{MOST_WAITERS, Place, Waiter as Waiting};

/// The longest pause between two looks of a waiter: a hand-over costs less than half of it, and a
/// look a few microseconds.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// A waiter with a stamp of this age counts as dead. Many pauses long, so that nobody overtakes a
/// waiter that is only late on a busy machine.
pub(super) const DEAD_AFTER: Duration = Duration::from_millis(500);
/// A stamp of this age is written anew, and not at every look.
const FRESH_FOR: Duration = Duration::from_millis(240);
/// A waiter that pauses no longer than this keeps its place: its stamp is not older than the two
/// together when it comes back.
pub(super) const PLACE_KEPT: Duration = Duration::from_millis(200);

pub(super) const PLACE: &str = "SELECT ticket, token = ?4 AND stamp >= ?5 FROM waiter
    WHERE name = ?1 AND ticket BETWEEN ?2 AND ?3 AND (?2 = ?3 OR token = ?4)";
pub(super) const AHEAD: &str = "SELECT stamp - ?5 FROM waiter
    WHERE name = ?1 AND ticket < ?2 AND token <> ?3 AND boot = ?4 AND stamp >= ?5
    ORDER BY ticket LIMIT 1";
pub(super) const LEAVE: &str = "DELETE FROM waiter WHERE name = ?1 AND token = ?2";

impl Tables<'_> {
    /// The request's own place among the waiters, if it has one.
    pub(super) fn waiter(&self, place: Place) -> rusqlite::Result<Option<Waiter>> {
        let known = match place {
            Place::Try => return Ok(None),
            Place::Join(ticket) => i64::try_from(ticket).ok().filter(|ticket| *ticket > 0),
        };
        let (first, last) = known.map_or((0, i64::MAX), |ticket| (ticket, ticket));
        let found = self.find(
            PLACE,
            params![self.name, first, last, self.token, self.before(FRESH_FOR)],
            |row| Ok(Waiter { ticket: row.get(0)?, is_fresh: row.get(1)? }),
        )?;
        // Others took it for dead while it was only late: it has its old place again.
        Ok(found.or_else(|| known.map(|ticket| Waiter { ticket, is_fresh: false })))
    }

    /// For how long the first living waiter ahead of this one, or of a newcomer, would hold it up
    /// without another stamp.
    pub(super) fn ahead(&self, waiter: Option<&Waiter>) -> rusqlite::Result<Option<Duration>> {
        let ticket = waiter.map_or(i64::MAX, |waiter| waiter.ticket);
        self.find(
            AHEAD,
            params![self.name, ticket, self.token, self.boot, self.before(DEAD_AFTER)],
            |row| Ok(Duration::from_nanos(row.get::<_, i64>(0)?.unsigned_abs())),
        )
    }

    /// Joins the waiters or stamps the row that is there, and answers the ticket; 0 for a try.
    pub(super) fn join(&self, place: Place) -> rusqlite::Result<u64> {
        let waiter = self.waiter(place)?;
        let is_new = waiter.is_none();
        let ticket = match waiter {
            _ if place == Place::Try => return Ok(0),
            Some(Waiter { ticket, is_fresh: true }) => return Ok(ticket.unsigned_abs()),
            Some(Waiter { ticket, .. }) => ticket,
            None => self.new_ticket()?,
        };
        self.execute(
            "INSERT INTO waiter (name, ticket, token, stamp, boot) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (name, ticket) DO UPDATE SET token = ?3, stamp = ?4, boot = ?5",
            params![self.name, ticket, self.token, self.after(Duration::ZERO), self.boot],
        )?;
        // Only newcomers make the table longer, so they are the ones that remove the dead.
        if is_new {
            self.execute(
                "DELETE FROM waiter
                 WHERE name = ?1 AND ticket < ?2 AND (boot <> ?3 OR stamp < ?4)",
                params![self.name, ticket, self.boot, self.before(DEAD_AFTER)],
            )?;
        }
        Ok(ticket.unsigned_abs())
    }

    pub(super) fn leave(&self) -> rusqlite::Result<()> {
        let values = params![self.name, self.token];
        self.execute(LEAVE, values)
    }

    /// Those that live, the first of them and how many more there are.
    pub(super) fn waiting(&self) -> rusqlite::Result<(Vec<Waiting>, u64)> {
        let mut statement = self.connection.prepare_cached(
            "SELECT token, ticket, count(*) OVER () FROM waiter
             WHERE name = ?1 AND boot = ?2 AND stamp >= ?3 ORDER BY ticket LIMIT ?4",
        )?;
        let most = i64::try_from(MOST_WAITERS).unwrap_or(i64::MAX);
        let values = params![self.name, self.boot, self.before(DEAD_AFTER), most];
        let mut all = 0;
        let waiters = statement.query_map(values, |row| {
            all = row.get::<_, i64>(2)?.unsigned_abs();
            let (token, ticket): (String, i64) = (row.get(0)?, row.get(1)?);
            let waited = ago(ticket.unsigned_abs());
            Ok(Waiting { token_prefix: shown(&token), waited, client: None })
        })?;
        let waiters = waiters.collect::<rusqlite::Result<Vec<_>>>()?;
        let more = all.saturating_sub(waiters.len() as u64);
        Ok((waiters, more))
    }

    /// Behind all others, and by the wall clock, so that no number is given twice when the queue
    /// has been empty.
    fn new_ticket(&self) -> rusqlite::Result<i64> {
        let last: Option<i64> = self.find(
            "SELECT ticket FROM waiter WHERE name = ?1 ORDER BY ticket DESC LIMIT 1",
            [&self.name],
            |row| row.get(0),
        )?;
        let wall = i64::try_from(wall_micros()).unwrap_or(i64::MAX);
        Ok(last.map_or(wall, |last| wall.max(last.saturating_add(1))))
    }
}
