//! What each request does to the tables, inside a transaction that the store began.

use std::borrow::Cow;
use std::time::Duration;

use rusqlite::params;

use super::connection::Cause;
use super::tables::Tables;
use super::waiters::Waiter;
use crate::clock::wall_micros;
use crate::config::limits::MAX_FENCE;
use crate::error::{Error, ErrorKind};
use crate::store::{Holder, Look, Place, Reach, Reply, Request};

/// A released row stays for this long after its last grant or extension, for the sake of its fence.
const UNUSED_HOURS: i64 = 25;

/// The row of a name.
pub(super) struct Lease {
    fence: i64,
    /// The hour of its last grant or extension.
    used: i64,
    /// The holder's token; `None` if the name is free.
    holder: Option<String>,
    left: Duration,
}

/// What a take finds.
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
        let (free_in, waiter) = match self.found(place)? {
            Found::Mine(lease) => {
                let fence = known_fence(lease.fence).ok_or_else(|| no_fence(lease.fence))?;
                self.extend(ttl, Reach::Grow, 0)?;
                self.leave()?;
                return Ok(Reply::Granted { fence, block: 1 });
            }
            Found::Free(lease, waiter) => return self.grant(ttl, lease, waiter),
            Found::Busy(free_in, waiter) => (free_in, waiter),
        };
        let ticket = match place {
            Place::Try => 0,
            Place::Join(_) => self.join(waiter)?,
        };
        Ok(Reply::Busy { free_in, ticket, rank: 0, ours: false })
    }

    fn grant(
        &self,
        ttl: Duration,
        lease: Option<Lease>,
        waiter: Option<Waiter>,
    ) -> Result<Reply, Cause> {
        let last = lease.as_ref().map_or(0, |lease| lease.fence);
        let fence = next_fence(last, wall_micros()).ok_or_else(|| no_fence(last))?;
        let hour = hour();
        self.execute(
            include_str!("lease_grant.sql"),
            params![self.name, self.token, fence as i64, self.after(ttl), self.boot, hour],
        )?;
        if let Some(lease) = lease {
            self.touch(lease.used, hour)?;
        }
        self.leave_granted(waiter)?;
        self.sweep(hour)?;
        Ok(Reply::Granted { fence, block: 1 })
    }

    fn extend(&self, ttl: Duration, reach: Reach, fence: u64) -> rusqlite::Result<Reply> {
        let (to, fence) = match reach {
            Reach::Pass(to) => {
                let fence = i64::try_from(fence).unwrap_or(i64::MAX);
                (Cow::Owned(to.to_string()), Some(fence))
            }
            Reach::Grow | Reach::Refresh | Reach::Set => (Cow::Borrowed(&self.token), None),
        };
        let (now, expiry, grows) =
            (self.after(Duration::ZERO), self.after(ttl), reach != Reach::Set);
        let values = params![self.name, self.token, self.boot, now, to, expiry, grows, fence];
        let used: Option<(i64,)> = self.find(include_str!("lease_extend.sql"), values)?;
        let Some((used,)) = used else { return Ok(Reply::NotMine) };
        self.touch(used, hour())?;
        Ok(Reply::Extended)
    }

    fn give(&self, fence: u64) -> rusqlite::Result<Reply> {
        self.leave()?;
        let now = self.after(Duration::ZERO);
        let freed: Option<(i64, bool)> = self
            .find(include_str!("lease_give.sql"), params![self.name, self.token, self.boot, now])?;
        // A lease that had ended was no longer the token's, though nobody has taken it over yet.
        Ok(match freed {
            Some((stored, true)) if fence == 0 || i64::try_from(fence) == Ok(stored) => {
                Reply::Given
            }
            _ => Reply::NotMine,
        })
    }

    pub(super) fn look(&self) -> rusqlite::Result<Look> {
        let Some(lease) = self.lease()? else {
            return Ok(Look { holder: None, last_fence: None });
        };
        let fence = known_fence(lease.fence);
        let holder = lease.holder.map(|token| Holder {
            token_prefix: token.chars().take(8).collect(),
            ttl: lease.left,
            fence,
        });
        Ok(Look { holder, last_fence: fence })
    }

    fn lease(&self) -> rusqlite::Result<Option<Lease>> {
        let row: Option<(i64, i64, Option<String>, i64)> = self.find(
            include_str!("lease_read.sql"),
            params![self.name, self.boot, self.after(Duration::ZERO)],
        )?;
        Ok(row.map(|(fence, used, holder, left)| {
            let left = Duration::from_nanos(left.unsigned_abs());
            Lease { fence, used, holder, left }
        }))
    }

    fn touch(&self, noted: i64, hour: i64) -> rusqlite::Result<()> {
        if noted == hour {
            return Ok(());
        }
        self.execute(include_str!("lease_touch.sql"), params![self.name, hour])
    }

    fn sweep(&self, hour: i64) -> rusqlite::Result<()> {
        let unused: Vec<(Vec<u8>, bool)> = self
            .connection
            .prepare_cached(include_str!("lease_unused.sql"))?
            .query_map(
                params![hour - UNUSED_HOURS, self.boot, self.after(Duration::ZERO)],
                |row| row.try_into(),
            )?
            .collect::<rusqlite::Result<_>>()?;
        for (name, _) in unused.iter().filter(|(_, is_free)| *is_free) {
            self.execute(include_str!("lease_delete.sql"), [name])?;
            // A waiter that lives comes back with its ticket.
            self.execute(include_str!("waiter_clear.sql"), params![name, i64::MAX])?;
        }
        Ok(())
    }
}

/// The fence of a new grant: larger than every earlier one, also after the row was lost.
fn next_fence(last: i64, wall: u64) -> Option<u64> {
    let last = u64::try_from(last).ok()?;
    Some(wall.max(last.checked_add(1)?)).filter(|fence| *fence <= MAX_FENCE)
}

fn known_fence(stored: i64) -> Option<u64> {
    u64::try_from(stored).ok().filter(|fence| (1..=MAX_FENCE).contains(fence))
}

fn no_fence(stored: i64) -> Cause {
    Cause::Refused(Error::new(
        ErrorKind::Protocol,
        format!("the stored fence is {stored}, and none larger is left up to {MAX_FENCE}"),
    ))
}

fn hour() -> i64 {
    i64::try_from(wall_micros() / 3_600_000_000).unwrap_or(i64::MAX)
}
