//! What each request does to the tables. Each is safe to send twice: a take finds its own token, an
//! extension that passes a lease on finds it passed on, and a give finds nothing.

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use super::connection::{Cause, strange_row};
use crate::clock::{Moment, wall_micros};
use crate::config::limits::MAX_FENCE;
use crate::store::{Place, Reach, Reply, Request};
use crate::token::Token;

/// A released row stays for this long after its last grant or extension, for the sake of its fence.
const UNUSED_HOURS: i64 = 25;

pub(super) const GRANT: &str = "INSERT INTO lease (name, token, fence, expiry, boot, used)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)
    ON CONFLICT (name)
    DO UPDATE SET token = ?2, fence = ?3, expiry = ?4, boot = ?5";
pub(super) const EXTEND: &str =
    "UPDATE lease SET token = ifnull(?5, token), expiry = max(?6, iif(?7, expiry, 0))
    WHERE name = ?1 AND (token = ?2 OR token = ?5) AND boot = ?3 AND expiry > ?4
    AND (?5 IS NULL OR fence = ?8)
    RETURNING used";
pub(super) const GIVE: &str = "UPDATE lease SET token = NULL WHERE name = ?1 AND token = ?2
    RETURNING boot = ?3 AND expiry > ?4 AND ?5 IN (0, fence)";
pub(super) const LEASE: &str =
    "SELECT fence, used, iif(boot = ?2 AND expiry > ?3, token, NULL), expiry - ?3
    FROM lease WHERE name = ?1";
pub(super) const UNUSED: &str =
    "SELECT name FROM (SELECT * FROM lease WHERE used < ?1 ORDER BY used LIMIT 4)
    WHERE token IS NULL OR boot <> ?2 OR expiry <= ?3";
pub(super) const CLEAR: &str = "DELETE FROM waiter WHERE name = ?1 AND ticket <= ?2";

/// The tables as one request sees them. The connection is in a transaction, or only reads.
pub(super) struct Tables<'a> {
    pub(super) connection: &'a Connection,
    pub(super) boot: &'a str,
    pub(super) now: Moment,
    /// What the request is about, behind the client's prefix.
    pub(super) name: Cow<'a, [u8]>,
    /// The request's token; empty for a look.
    pub(super) token: String,
}

pub(super) struct Lease {
    pub(super) fence: i64,
    /// The hour of its last grant or extension.
    used: i64,
    /// The holder's token; `None` if the name is free.
    pub(super) holder: Option<String>,
    pub(super) left: Duration,
}

pub(super) struct Waiter {
    pub(super) ticket: i64,
    /// There is a row, with the token that asks and a stamp that need not be written anew.
    pub(super) is_fresh: bool,
}

pub(super) enum Found {
    Mine(Lease),
    Free(Option<Lease>, Option<Waiter>),
    /// Another token has the lock, or is ahead of us.
    Busy(Duration, Option<Waiter>),
}

impl Tables<'_> {
    pub(super) fn answer(&self, request: &Request<'_>) -> Result<Reply, Cause> {
        match *request {
            Request::Take { ttl, place, .. } => self.take(ttl, place),
            Request::Extend { ttl, reach, fence, .. } => Ok(self.extend(ttl, reach, fence)?),
            Request::Give { fence, .. } => Ok(self.give(fence)?),
        }
    }

    /// What a take would find. Writes nothing.
    pub(super) fn found(&self, place: Place) -> rusqlite::Result<Found> {
        let waiter = self.waiter(place)?;
        let lease = match self.lease()? {
            Some(lease) if lease.holder.as_ref() == Some(&self.token) => {
                return Ok(Found::Mine(lease));
            }
            Some(lease) if lease.holder.is_some() => return Ok(Found::Busy(lease.left, waiter)),
            lease => lease,
        };
        Ok(match self.ahead(waiter.as_ref())? {
            Some(free_in) => Found::Busy(free_in, waiter),
            None => Found::Free(lease, waiter),
        })
    }

    fn take(&self, ttl: Duration, place: Place) -> Result<Reply, Cause> {
        match self.found(place)? {
            Found::Mine(lease) => {
                let fence = known_fence(lease.fence).ok_or_else(|| self.no_fence(lease.fence))?;
                self.extend(ttl, Reach::Grow, 0)?;
                self.leave()?;
                Ok(Reply::Granted { fence, block: 1 })
            }
            Found::Free(lease, waiter) => {
                let hour = hour();
                let (last, used) = lease.map_or((0, hour), |lease| (lease.fence, lease.used));
                let fence = next_fence(last, wall_micros()).ok_or_else(|| self.no_fence(last))?;
                self.execute(
                    GRANT,
                    params![self.name, self.token, fence as i64, self.after(ttl), self.boot, hour],
                )?;
                self.touch(used, hour)?;
                // The waiters ahead are dead, or they would have been granted it.
                self.clear(&self.name, waiter.map_or(i64::MAX, |waiter| waiter.ticket))?;
                self.sweep(hour)?;
                Ok(Reply::Granted { fence, block: 1 })
            }
            Found::Busy(free_in, _) => {
                Ok(Reply::Busy { free_in, ticket: self.join(place)?, rank: 0, ours: false })
            }
        }
    }

    fn extend(&self, ttl: Duration, reach: Reach, fence: u64) -> rusqlite::Result<Reply> {
        let to = match reach {
            Reach::Pass(to) => Some(to.to_string()),
            Reach::Grow | Reach::Claim | Reach::Set => None,
        };
        let fence = i64::try_from(fence).unwrap_or(i64::MAX);
        let (now, expiry) = (self.after(Duration::ZERO), self.after(ttl));
        let grows = reach != Reach::Set;
        let used = self.find(
            EXTEND,
            params![self.name, self.token, self.boot, now, to, expiry, grows, fence],
            |row| row.get(0),
        )?;
        let Some(used) = used else { return Ok(Reply::NotMine) };
        self.touch(used, hour())?;
        Ok(Reply::Extended)
    }

    fn give(&self, fence: u64) -> rusqlite::Result<Reply> {
        self.leave()?;
        let fence = i64::try_from(fence).unwrap_or(i64::MAX);
        // A lease that had ended was no longer the token's, though nobody has taken it over yet.
        let freed = self.find(
            GIVE,
            params![self.name, self.token, self.boot, self.after(Duration::ZERO), fence],
            |row| row.get(0),
        )?;
        Ok(if freed == Some(true) { Reply::Given } else { Reply::NotMine })
    }

    fn no_fence(&self, stored: i64) -> Cause {
        let path = self.connection.path().unwrap_or_default();
        let name: String = self.name.iter().map(|byte| format!("{byte:02x}")).collect();
        Cause::Refused(strange_row(Path::new(path), "", &name, &format!("fence = {stored}")))
    }

    /// For how long the lock stays taken.
    pub(super) fn free_in(&self) -> rusqlite::Result<Duration> {
        let held = self.lease()?.filter(|lease| lease.holder.is_some());
        Ok(held.map_or(Duration::ZERO, |lease| lease.left))
    }

    pub(super) fn lease(&self) -> rusqlite::Result<Option<Lease>> {
        self.find(LEASE, params![self.name, self.boot, self.after(Duration::ZERO)], |row| {
            let left = Duration::from_nanos(row.get::<_, i64>(3)?.unsigned_abs());
            Ok(Lease { fence: row.get(0)?, used: row.get(1)?, holder: row.get(2)?, left })
        })
    }

    /// Apart from the rest, because it rewrites an index, and is needed once an hour.
    fn touch(&self, noted: i64, hour: i64) -> rusqlite::Result<()> {
        if noted == hour {
            return Ok(());
        }
        self.execute("UPDATE lease SET used = ?2 WHERE name = ?1", params![self.name, hour])
    }

    /// The wall clock only picks the candidates.
    fn sweep(&self, hour: i64) -> rusqlite::Result<()> {
        let mut statement = self.connection.prepare_cached(UNUSED)?;
        let values = params![hour - UNUSED_HOURS, self.boot, self.after(Duration::ZERO)];
        let unused = statement.query_map(values, |row| row.get(0))?;
        for name in unused.collect::<rusqlite::Result<Vec<Vec<u8>>>>()? {
            self.execute("DELETE FROM lease WHERE name = ?1", [&name])?;
            // A waiter that lives comes back with its ticket.
            self.clear(&name, i64::MAX)?;
        }
        Ok(())
    }

    /// Removes the waiters of a name up to a ticket.
    fn clear(&self, name: &[u8], ticket: i64) -> rusqlite::Result<()> {
        self.execute(CLEAR, params![name, ticket])
    }

    pub(super) fn execute(&self, sql: &str, values: impl Params) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute(values).map(drop)
    }

    /// The first row, if there is one.
    pub(super) fn find<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        self.connection.prepare_cached(sql)?.query_row(values, read).optional()
    }

    pub(super) fn after(&self, span: Duration) -> i64 {
        nanos(self.now.plus(span))
    }

    pub(super) fn before(&self, span: Duration) -> i64 {
        nanos(self.now.minus(span))
    }
}

/// The digits of a token that everybody may see.
pub(super) fn shown(token: &str) -> String {
    token.parse().map_or(String::new(), Token::shown)
}

/// How long ago a wall clock's microseconds were, if it was not set back since.
pub(super) fn ago(micros: u64) -> Option<Duration> {
    wall_micros().checked_sub(micros).map(Duration::from_micros)
}

fn nanos(moment: Moment) -> i64 {
    i64::try_from(moment.as_nanos()).unwrap_or(i64::MAX)
}

/// Larger than every earlier one, also after the row was lost.
fn next_fence(last: i64, wall: u64) -> Option<u64> {
    let last = u64::try_from(last).ok()?;
    Some(wall.max(last.checked_add(1)?)).filter(|fence| *fence <= MAX_FENCE)
}

pub(super) fn known_fence(stored: i64) -> Option<u64> {
    u64::try_from(stored).ok().filter(|fence| (1..=MAX_FENCE).contains(fence))
}

fn hour() -> i64 {
    i64::try_from(wall_micros() / 3_600_000_000).unwrap_or(i64::MAX)
}
