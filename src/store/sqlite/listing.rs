//! What is locked in a file, and breaking a grant there.

use std::time::Duration;

use rusqlite::{Row, params};

use super::requests::{Tables, ago, known_fence, shown};
use super::waiters::DEAD_AFTER;
use crate::clock::wall_micros;
use crate::store::breaking::{Breach, Held, LONGEST_BY, LONGEST_REMEMBERED};
use crate::store::listing::{Bookmark, Listed, PAGE, Page, Wanted};
use crate::store::{Holder, LockState};

/// Made by the first break, so that a file which older programs use has nothing that they do not know.
const BROKEN: &str = "CREATE TABLE IF NOT EXISTS broken (
    name  BLOB    NOT NULL PRIMARY KEY,
    token TEXT    NOT NULL,   -- that of the grant
    at    INTEGER NOT NULL,   -- microseconds of wall clock
    by    BLOB    NOT NULL
) STRICT, WITHOUT ROWID";

impl Tables<'_> {
    /// The next rows of a range, of which those are listed that are wanted. `self.name` is the prefix.
    pub(super) fn list(&self, wanted: &Wanted, from: &Bookmark) -> rusqlite::Result<Page> {
        let (first, end) = wanted.range(&self.name);
        let after = from.name.as_deref().unwrap_or_default();
        let mut statement = self.connection.prepare_cached(
            "SELECT name, fence, iif(boot = ?1 AND expiry > ?2, token, NULL), expiry - ?2,
                 (SELECT count(*) FROM waiter
                  WHERE waiter.name = lease.name AND waiter.boot = ?1 AND stamp >= ?3)
             FROM lease WHERE name >= ?4 AND name > ?5 AND (?6 IS NULL OR name < ?6)
             ORDER BY name LIMIT ?7",
        )?;
        let (now, alive) = (self.after(Duration::ZERO), self.before(DEAD_AFTER));
        let values = params![self.boot, now, alive, first, after, end, PAGE as i64];
        let rows = statement.query_map(values, |row| self.listed(row))?;
        let rows = rows.collect::<rusqlite::Result<Vec<(Vec<u8>, Listed)>>>()?;
        let last = rows.last().filter(|_| rows.len() == PAGE).map(|(key, _)| key.clone());
        let next = last.map(|name| Bookmark { name: Some(name), ..Bookmark::default() });
        let is_wanted = |listed: &Listed| {
            wanted.glob.matches(&listed.name) && wanted.has(listed.state.holder.as_ref())
        };
        let listed = rows.into_iter().map(|(_, listed)| listed).filter(is_wanted).collect();
        Ok(Page { listed, next })
    }

    fn listed(&self, row: &Row<'_>) -> rusqlite::Result<(Vec<u8>, Listed)> {
        let (key, token): (Vec<u8>, Option<String>) = (row.get(0)?, row.get(2)?);
        let ttl = Duration::from_nanos(row.get::<_, i64>(3)?.unsigned_abs());
        let fence = known_fence(row.get(1)?);
        let held = fence.and_then(ago);
        let holder =
            |token: String| Holder { token_prefix: shown(&token), ttl, fence, held, client: None };
        let holder = token.map(holder);
        let name = key.strip_prefix(&*self.name).unwrap_or(&key).to_vec();
        let waiting = Some(row.get::<_, i64>(4)?.unsigned_abs());
        let state = LockState { holder, last_fence: fence, ..LockState::default() };
        Ok((key, Listed { name, state, waiting }))
    }

    pub(super) fn held(&self, name: &[u8]) -> rusqlite::Result<Option<Held>> {
        let Some(lease) = self.lease()? else { return Ok(None) };
        let token = lease.holder.as_deref().and_then(|token| token.parse().ok());
        let fence = known_fence(lease.fence);
        Ok(token.map(|token| Held {
            name: name.into(),
            token,
            fence,
            last: fence.unwrap_or(0),
            left: lease.left,
        }))
    }

    /// `self.token` is the grant's.
    pub(super) fn break_grant(&self, held: &Held, by: &[u8]) -> rusqlite::Result<bool> {
        let wall = i64::try_from(wall_micros()).unwrap_or(i64::MAX);
        let oldest = wall.saturating_sub(LONGEST_REMEMBERED.as_micros() as i64);
        let fence = held.fence.and_then(|fence| i64::try_from(fence).ok()).unwrap_or(0);
        self.execute(BROKEN, [])?;
        let freed = self.find(
            "UPDATE lease SET token = NULL
             WHERE name = ?1 AND token = ?2 AND boot = ?3 AND expiry > ?4 AND ?5 IN (0, fence)
             RETURNING 1",
            params![self.name, self.token, self.boot, self.after(Duration::ZERO), fence],
            |row| row.get::<_, i64>(0),
        )?;
        if freed.is_none() {
            return Ok(self.breach()?.is_some_and(|breach| breach.token == held.token));
        }
        self.execute("DELETE FROM broken WHERE at < ?1", [oldest])?;
        self.execute(
            "INSERT INTO broken (name, token, at, by) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (name) DO UPDATE SET token = ?2, at = ?3, by = ?4",
            params![self.name, self.token, wall, &by[..by.len().min(LONGEST_BY)]],
        )?;
        Ok(true)
    }

    pub(super) fn breach(&self) -> rusqlite::Result<Option<Breach>> {
        let found = self.find(
            "SELECT token, by, at FROM broken WHERE name = ?1",
            params![self.name],
            |row| {
                let (token, by): (String, Vec<u8>) = (row.get(0)?, row.get(1)?);
                let at = row.get::<_, i64>(2)?.unsigned_abs();
                Ok(token.parse().ok().map(|token| Breach::new(token, &by, at)))
            },
        )?;
        Ok(found.flatten())
    }
}
