//! The tables as one request sees them.

use std::borrow::Cow;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Params, Row};

use crate::clock::Moment;

/// All that a statement needs. The connection is in a transaction, or only reads.
pub(super) struct Tables<'a> {
    pub(super) connection: &'a Connection,
    pub(super) boot: &'a str,
    pub(super) now: Moment,
    /// What the request is about, behind the client's prefix.
    pub(super) name: Cow<'a, [u8]>,
    /// The request's token; empty for a look.
    pub(super) token: String,
}

impl Tables<'_> {
    pub(super) fn execute(&self, sql: &str, values: impl Params) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute(values).map(drop)
    }

    /// The first row, if there is one.
    pub(super) fn find<T>(&self, sql: &str, values: impl Params) -> rusqlite::Result<Option<T>>
    where
        T: for<'r> TryFrom<&'r Row<'r>, Error = rusqlite::Error>,
    {
        let mut statement = self.connection.prepare_cached(sql)?;
        statement.query_row(values, |row| T::try_from(row)).optional()
    }

    pub(super) fn after(&self, span: Duration) -> i64 {
        nanos(self.now.plus(span))
    }

    pub(super) fn before(&self, span: Duration) -> i64 {
        nanos(self.now.minus(span))
    }
}

/// A moment as the tables have it.
fn nanos(moment: Moment) -> i64 {
    i64::try_from(moment.as_nanos()).unwrap_or(i64::MAX)
}
