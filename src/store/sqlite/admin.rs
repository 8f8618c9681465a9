//! What operators see of a file, and breaking a grant there.

use std::time::Duration;

use rusqlite::params;

use super::SqliteStore;
use super::connection::Cause;
use super::requests::{Tables, ago, known_fence};
use super::waiters::DEAD_AFTER;
use crate::clock::{Deadline, wall_micros};
use crate::error::Error;
#[cfg(feature = "examine")]
use crate::examination::{Examination, Subject};
use crate::store::breaking::{Breach, Breaches, LONGEST_BY, LONGEST_REMEMBERED, StoredGrant};
use crate::store::listing::{Bookmark, PAGE, Page, Wanted};
use crate::store::{Admin, Failure, Lane, LockState, Seen};

/// Made by the first break, so that a file which older programs use has nothing that they do not know.
const BROKEN: &str = "CREATE TABLE IF NOT EXISTS broken (
    name  BLOB    NOT NULL PRIMARY KEY,
    token TEXT    NOT NULL,   -- that of the grant
    at    INTEGER NOT NULL,   -- microseconds of wall clock
    by    BLOB    NOT NULL
) STRICT, WITHOUT ROWID";

impl Admin for SqliteStore {
    fn inspect(&self, name: &[u8], deadline: Deadline) -> Result<LockState, Error> {
        if self.is_missing() {
            return Ok(LockState::default());
        }
        let opened = self.opened(false, deadline)?;
        let inspect = |connection: &_| self.tables(connection, name, None).inspect();
        let state = opened.quick.read(deadline, Some(&self.key(name)), inspect)?;
        opened.files.check().map(|()| state)
    }

    fn list(&self, wanted: &Wanted, from: &Bookmark, deadline: Deadline) -> Result<Page, Error> {
        if self.is_missing() {
            return Ok(Page::default());
        }
        let opened = self.opened(false, deadline)?;
        let list = |connection: &_| self.tables(connection, b"", None).list(wanted, from);
        let page = opened.quick.read(deadline, None, list)?;
        opened.files.check().map(|()| page)
    }

    fn held(&self, name: &[u8], deadline: Deadline) -> Result<Option<StoredGrant>, Error> {
        if self.is_missing() {
            return Ok(None);
        }
        let opened = self.opened(false, deadline)?;
        let seen = |connection: &_| self.tables(connection, name, None).seen();
        let seen = opened.quick.read(deadline, Some(&self.key(name)), seen)?;
        opened.files.check()?;
        seen.held(name)
    }

    fn break_grant(
        &self,
        held: &StoredGrant,
        by: &[u8],
        deadline: Deadline,
    ) -> Result<bool, Failure> {
        let opened = self.opened(false, deadline).map_err(Failure::not_done)?;
        opened.durable.change(deadline, |connection, _| {
            let tables = self.tables(connection, &held.name, Some(held.token));
            let broken = tables.break_grant(held, by);
            broken.map_err(|error| Cause::from(error).of_row(&tables.name))
        })
    }

    fn breaches(&self, _: Lane, of: &[&[u8]], deadline: Deadline) -> Breaches {
        let breach = |name: &&[u8]| {
            if self.is_missing() {
                return Ok(None);
            }
            let breach = |connection: &_| self.tables(connection, name, None).breach();
            self.opened(false, deadline)?.quick.read(deadline, Some(&self.key(name)), breach)
        };
        of.iter().map(breach).collect()
    }

    #[cfg(feature = "examine")]
    fn examine(&self, subject: Subject<'_>, found: &mut Examination) -> Result<bool, Error> {
        self.look_around(subject, found).map(|()| true)
    }
}

impl Tables<'_> {
    /// The next rows of a range, of which those are listed that are wanted. `self.name` is the prefix.
    fn list(&self, wanted: &Wanted, from: &Bookmark) -> rusqlite::Result<Page> {
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
        let rows = statement.query_map(values, |row| {
            let waiting = row.get::<_, i64>(4)?.unsigned_abs();
            let left = Duration::from_nanos(row.get::<_, i64>(3)?.unsigned_abs());
            let seen = seen(row.get(1)?, row.get(2)?, left);
            Ok((row.get(0)?, Seen { waiting: Some(waiting), ..seen }))
        })?;
        Page::fill(rows, wanted, &self.name)
    }

    fn seen(&self) -> rusqlite::Result<Seen> {
        let lease = self.lease()?;
        Ok(lease.map_or_else(Seen::default, |it| seen(it.fence, it.holder, it.left)))
    }

    fn inspect(&self) -> rusqlite::Result<LockState> {
        let seen = self.seen()?;
        let (waiters, more_waiters) = self.waiting()?;
        Ok(LockState { waiters, more_waiters, ..seen.state() })
    }

    /// `self.token` is the grant's.
    fn break_grant(&self, held: &StoredGrant, by: &[u8]) -> rusqlite::Result<bool> {
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

    fn breach(&self) -> rusqlite::Result<Option<Breach>> {
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

/// What a row of the table says. The fences are this machine's wall clock, so they tell the age.
fn seen(fence: i64, holder: Option<String>, left: Duration) -> Seen {
    let fence = known_fence(fence);
    Seen {
        is_held: holder.is_some(),
        token: holder.and_then(|token| token.parse().ok()),
        left,
        first: fence,
        last: fence,
        age: fence.and_then(ago),
        waiting: None,
    }
}
