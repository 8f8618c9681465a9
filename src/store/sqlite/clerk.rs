//! What is done for each request, inside a transaction that somebody else began.

use std::borrow::Cow;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use super::queue::Spot;
use crate::clock::{Moment, wall_micros};
use crate::config::MAX_FENCE;
use crate::error::{Error, ErrorKind};
use crate::store::{Holder, Look, Place, Reach, Reply, Request};
use crate::token::Token;

/// A released row is kept so long after its last grant or extension, for the sake of its fence.
const UNUSED_HOURS: i64 = 25;

/// Answers requests at one moment, on a connection that is in a transaction or only reads.
pub(super) struct Clerk<'a> {
    pub(super) connection: &'a Connection,
    pub(super) prefix: &'a [u8],
    pub(super) boot: &'a str,
    pub(super) now: Moment,
}

/// Why a request got no reply, or a file was not opened.
pub(super) enum Trouble {
    /// This request alone is refused, and has written nothing.
    Refused(Error),
    /// The transaction cannot go on.
    Sql(rusqlite::Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Refused(error)
    }
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Trouble {
        Trouble::Sql(error)
    }
}

/// How a name stands, seen by one token.
enum Standing {
    Mine(Row),
    Free(Option<Row>),
    Taken { free_in: Duration },
}

struct Row {
    token: Option<String>,
    fence: i64,
    expiry: i64,
    boot: String,
    used: i64,
}

/// What a look without the write lock can say to a take.
pub(super) enum Glance {
    /// It is to be answered inside a transaction.
    Write,
    /// Busy, and nothing is to be written.
    Busy { free_in: Duration, ticket: u64 },
    /// Busy, and the waiter must show itself.
    Stand { free_in: Duration },
}

impl Clerk<'_> {
    pub(super) fn answer(&self, request: &Request<'_>) -> Result<Reply, Trouble> {
        match *request {
            Request::Take { name, token, ttl, place, .. } => {
                self.take(&self.full(name), token, ttl, place)
            }
            Request::Extend { name, token, fence, ttl, reach: Reach::Pass(to) } => {
                Ok(self.pass_on(&self.full(name), (token, fence), to, ttl)?)
            }
            Request::Extend { name, token, ttl, reach, .. } => {
                Ok(self.extend(&self.full(name), token, ttl, reach)?)
            }
            Request::Give { name, token, fence, .. } => {
                Ok(self.give(&self.full(name), token, fence)?)
            }
        }
    }

    /// The answer to a take that needs no writing, if that is so: somebody else has the lock or is
    /// before us, and our own stamp, if we wait, is fresh.
    pub(super) fn glance(
        &self,
        name: &[u8],
        token: Token,
        place: Place,
    ) -> rusqlite::Result<Glance> {
        let (name, hex) = (&*self.full(name), &*token.to_string());
        let spot = self.spot(name, hex, place)?;
        let free_in = match self.standing(name, hex)? {
            Standing::Mine(_) => return Ok(Glance::Write),
            Standing::Taken { free_in } => free_in,
            Standing::Free(_) => match self.ahead(name, hex, spot.as_ref())? {
                Some(free_in) => free_in,
                None => return Ok(Glance::Write),
            },
        };
        Ok(match (place, spot) {
            (Place::Try, _) => Glance::Busy { free_in, ticket: 0 },
            (Place::Join(_), Some(Spot { ticket, fresh: true })) => {
                Glance::Busy { free_in, ticket: ticket.unsigned_abs() }
            }
            (Place::Join(_), _) => Glance::Stand { free_in },
        })
    }

    /// Stands among the waiters without asking for the lock, and answers the ticket.
    pub(super) fn show(&self, name: &[u8], token: Token, place: Place) -> rusqlite::Result<u64> {
        let (name, hex) = (&*self.full(name), &*token.to_string());
        let spot = self.spot(name, hex, place)?;
        self.stand(name, hex, spot)
    }

    fn take(
        &self,
        name: &[u8],
        token: Token,
        ttl: Duration,
        place: Place,
    ) -> Result<Reply, Trouble> {
        let hex = &*token.to_string();
        let spot = self.spot(name, hex, place)?;
        let free_in = match self.standing(name, hex)? {
            Standing::Mine(row) => {
                let fence = known_fence(row.fence).ok_or_else(|| refused_fence(row.fence))?;
                self.lengthen(name, hex, ttl, true)?;
                self.leave(name, hex)?;
                return Ok(Reply::Granted { fence, block: 1 });
            }
            Standing::Taken { free_in } => free_in,
            Standing::Free(row) => match self.ahead(name, hex, spot.as_ref())? {
                Some(free_in) => free_in,
                None => return self.grant(name, hex, ttl, row, spot),
            },
        };
        let ticket = match place {
            Place::Try => 0,
            Place::Join(_) => self.stand(name, hex, spot)?,
        };
        Ok(Reply::Busy { free_in, ticket, rank: 0, ours: false })
    }

    fn grant(
        &self,
        name: &[u8],
        token: &str,
        ttl: Duration,
        row: Option<Row>,
        spot: Option<Spot>,
    ) -> Result<Reply, Trouble> {
        let last = row.as_ref().map_or(0, |row| row.fence);
        let fence = next_fence(last, wall_micros()).ok_or_else(|| refused_fence(last))?;
        let (expiry, hour) = (nanos(self.now.plus(ttl)), hour());
        match row {
            None => self.execute(
                include_str!("lease_insert.sql"),
                params![name, token, fence as i64, expiry, self.boot, hour],
            )?,
            Some(row) => {
                self.execute(
                    include_str!("lease_update.sql"),
                    params![name, token, fence as i64, expiry, self.boot],
                )?;
                self.touch(name, row.used, hour)?;
            }
        }
        self.pass(name, spot)?;
        self.sweep(hour)?;
        Ok(Reply::Granted { fence, block: 1 })
    }

    fn extend(
        &self,
        name: &[u8],
        token: Token,
        ttl: Duration,
        reach: Reach,
    ) -> rusqlite::Result<Reply> {
        let extended = self.lengthen(name, &token.to_string(), ttl, reach != Reach::Set)?;
        Ok(if extended { Reply::Extended } else { Reply::NotMine })
    }

    fn pass_on(
        &self,
        name: &[u8],
        (token, fence): (Token, u64),
        to: Token,
        ttl: Duration,
    ) -> rusqlite::Result<Reply> {
        let (expiry, fence) = (nanos(self.now.plus(ttl)), i64::try_from(fence).unwrap_or(i64::MAX));
        let (token, to) = (token.to_string(), to.to_string());
        let values = params![name, token, self.boot, nanos(self.now), expiry, to, fence];
        let noted: Option<i64> = self
            .connection
            .prepare_cached(include_str!("pass.sql"))?
            .query_row(values, |row| row.get(0))
            .optional()?;
        let Some(noted) = noted else { return Ok(Reply::NotMine) };
        self.touch(name, noted, hour())?;
        Ok(Reply::Extended)
    }

    fn lengthen(
        &self,
        name: &[u8],
        token: &str,
        ttl: Duration,
        grow: bool,
    ) -> rusqlite::Result<bool> {
        let expiry = nanos(self.now.plus(ttl));
        let noted: Option<i64> = self
            .connection
            .prepare_cached(include_str!("extend.sql"))?
            .query_row(params![name, token, self.boot, nanos(self.now), expiry, grow], |row| {
                row.get(0)
            })
            .optional()?;
        if let Some(noted) = noted {
            self.touch(name, noted, hour())?;
        }
        Ok(noted.is_some())
    }

    fn give(&self, name: &[u8], token: Token, fence: u64) -> rusqlite::Result<Reply> {
        let hex = &*token.to_string();
        self.leave(name, hex)?;
        let freed: Option<(i64, bool)> = self
            .connection
            .prepare_cached(include_str!("give.sql"))?
            .query_row(params![name, hex, self.boot, nanos(self.now)], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()?;
        // A lease that had ended was no longer the token's, though nobody has taken it over yet.
        Ok(match freed {
            Some((stored, true)) if fence == 0 || i64::try_from(fence) == Ok(stored) => {
                Reply::Given
            }
            _ => Reply::NotMine,
        })
    }

    pub(super) fn look(&self, name: &[u8]) -> rusqlite::Result<Look> {
        let row = self.row(&self.full(name))?;
        Ok(Look {
            last_fence: row.as_ref().and_then(|row| known_fence(row.fence)),
            holder: row.filter(|row| self.is_held(row)).map(|row| Holder {
                ttl: self.left(&row),
                fence: known_fence(row.fence),
                token_prefix: row.token.unwrap_or_default().chars().take(8).collect(),
            }),
        })
    }

    fn standing(&self, name: &[u8], token: &str) -> rusqlite::Result<Standing> {
        Ok(match self.row(name)? {
            Some(row) if self.is_held(&row) => match row.token.as_deref() == Some(token) {
                true => Standing::Mine(row),
                false => Standing::Taken { free_in: self.left(&row) },
            },
            row => Standing::Free(row),
        })
    }

    fn row(&self, name: &[u8]) -> rusqlite::Result<Option<Row>> {
        self.connection
            .prepare_cached(include_str!("lease_read.sql"))?
            .query_row([name], |row| {
                Ok(Row {
                    token: row.get(0)?,
                    fence: row.get(1)?,
                    expiry: row.get(2)?,
                    boot: row.get(3)?,
                    used: row.get(4)?,
                })
            })
            .optional()
    }

    fn is_held(&self, row: &Row) -> bool {
        row.token.is_some() && row.boot == self.boot && row.expiry > nanos(self.now)
    }

    fn left(&self, row: &Row) -> Duration {
        Duration::from_nanos((row.expiry - nanos(self.now)).unsigned_abs())
    }

    fn touch(&self, name: &[u8], noted: i64, hour: i64) -> rusqlite::Result<()> {
        if noted == hour {
            return Ok(());
        }
        self.execute(include_str!("lease_touch.sql"), params![name, hour])
    }

    fn sweep(&self, hour: i64) -> rusqlite::Result<()> {
        let unused: Vec<(Vec<u8>, bool)> = self
            .connection
            .prepare_cached(include_str!("sweep.sql"))?
            .query_map(params![hour - UNUSED_HOURS, self.boot, nanos(self.now)], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?
            .collect::<rusqlite::Result<_>>()?;
        for (name, _) in unused.iter().filter(|(_, free)| *free) {
            self.execute(include_str!("lease_delete.sql"), [name])?;
            self.forget(name)?;
        }
        Ok(())
    }

    pub(super) fn execute(&self, sql: &str, values: impl rusqlite::Params) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute(values).map(drop)
    }

    pub(super) fn full<'n>(&self, name: &'n [u8]) -> Cow<'n, [u8]> {
        if self.prefix.is_empty() {
            return Cow::Borrowed(name);
        }
        Cow::Owned([self.prefix, name].concat())
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

fn refused_fence(stored: i64) -> Trouble {
    Trouble::Refused(Error::new(
        ErrorKind::Protocol,
        format!("the stored fence is {stored}, and none larger is left up to {MAX_FENCE}"),
    ))
}

/// A moment as the file has it.
pub(super) fn nanos(moment: Moment) -> i64 {
    i64::try_from(moment.as_nanos()).unwrap_or(i64::MAX)
}

fn hour() -> i64 {
    i64::try_from(wall_micros() / 3_600_000_000).unwrap_or(i64::MAX)
}
