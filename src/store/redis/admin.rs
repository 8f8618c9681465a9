//! What operators see of one Redis and do there. What a [`Deployment`] does is the same for a
//! Redis that is alone in its store and for one of several.

use std::time::Duration;

use redis::Value;

use super::deployment::Deployment;
use super::dialect::native::Native;
use super::dialect::survey::{self, Survey};
use super::dialect::{Dialect, look};
#[cfg(feature = "examine")]
use super::examine;
use super::route::{Carried, Heard, Parcel, unanswered};
use super::{RedisStore, weakness};
use crate::clock::Deadline;
#[cfg(feature = "examine")]
use crate::config::StoreConfig;
use crate::error::{Error, ErrorKind};
#[cfg(feature = "examine")]
use crate::examination::{Examination, Subject};
use crate::store::breaking::{Breaches, StoredGrant};
use crate::store::glob::Glob;
use crate::store::listing::{Bookmark, PAGE, Page, Wanted};
use crate::store::{Admin, Failure, Lane, LockState, Request, Store};
use crate::token::Token;

/// So many of the longest names are a reply that is read.
const FEW: usize = 4;

/// Names that a server knows, and where to go on.
pub(in crate::store) type Names = (Vec<Vec<u8>>, Option<Bookmark>);

impl Admin for RedisStore {
    fn inspect(&self, name: &[u8], deadline: Deadline) -> Result<LockState, Error> {
        self.deployment.inspect(name, deadline)
    }

    fn list(&self, wanted: &Wanted, from: &Bookmark, deadline: Deadline) -> Result<Page, Error> {
        let (names, next) = self.deployment.names(&wanted.glob, from, deadline)?;
        let surveys = self.deployment.survey(&names, deadline)?;
        let row = |(name, survey): (_, Survey)| Ok((name, survey.seen(Native::FENCE)));
        // The names come without the prefix.
        let page = Page::fill::<Error>(names.into_iter().zip(surveys).map(row), wanted, b"")?;
        Ok(Page { next, ..page })
    }

    fn held(&self, name: &[u8], deadline: Deadline) -> Result<Option<StoredGrant>, Error> {
        let survey = self.deployment.survey(&[name.to_vec()], deadline)?.pop().unwrap_or_default();
        survey.seen(Native::FENCE).held(name)
    }

    fn break_grant(
        &self,
        held: &StoredGrant,
        by: &[u8],
        deadline: Deadline,
    ) -> Result<bool, Failure> {
        let grant = (held.token, held.fence.unwrap_or(0));
        let said = self.deployment.break_grant(Lane::Caller, (&held.name, grant), by, deadline)?;
        if said == Native::UNFINISHED {
            // A give that finds the lock free goes on where the break has stopped.
            let (name, token, ttl) = (&held.name, held.token, Duration::ZERO);
            let _ = self.ask(Lane::Caller, Request::Give { name, token, fence: 0, ttl }, deadline);
        }
        Ok(said != 0)
    }

    fn breaches(&self, lane: Lane, of: &[&[u8]], deadline: Deadline) -> Breaches {
        self.deployment.breaches(lane, of, deadline)
    }

    fn weakness(&self, deadline: Deadline) -> Result<Option<String>, Error> {
        let format = self.deployment.codec.dialect.format();
        if format.guard.is_some() {
            return Ok(None);
        }
        let info = self.deployment.info(deadline)?;
        Ok(weakness::found(&info, format.copies.is_some()))
    }

    #[cfg(feature = "examine")]
    fn examine(&self, subject: Subject<'_>, found: &mut Examination) -> Result<bool, Error> {
        match &subject.config.store {
            StoreConfig::Redis(redis) => examine::examine(redis, subject, found),
            _ => Ok(true),
        }
    }

    fn initialize(&self, force: bool, deadline: Deadline) -> Result<(), Error> {
        self.deployment.initialize(force, deadline)
    }
}

impl<D: Dialect> Deployment<D> {
    pub(in crate::store) fn inspect(
        &self,
        name: &[u8],
        deadline: Deadline,
    ) -> Result<LockState, Error> {
        let inspect = self.codec.dialect.format().pack_inspect(name);
        let said = self.ask_one(Lane::Caller, &inspect, deadline)?;
        match look::read_inspected(said, D::FENCE) {
            // The queue is perhaps what this user may not read, or is on its way to another server.
            Err(error)
                if matches!(error.kind(), ErrorKind::Permission | ErrorKind::Unavailable) =>
            {
                self.look(name, deadline).map(|seen| seen.state())
            }
            inspected => inspected,
        }
    }

    /// Of the bookmark, only server and cursor are looked at.
    pub(in crate::store) fn names(
        &self,
        glob: &Glob,
        from: &Bookmark,
        deadline: Deadline,
    ) -> Result<Names, Error> {
        let format = self.codec.dialect.format();
        let ask = |count| {
            let batch = format.pack_scan(glob, from.cursor, count);
            let parcel = Parcel { lane: Lane::Caller, batch: &batch, deadline };
            self.route.ask_master(from.server, &parcel)
        };
        let mut asked = ask(PAGE);
        if let Some((_, Err(Failure { error, .. }))) = &asked
            && error.kind() == ErrorKind::Protocol
        {
            // Names that are as long as they may be make a reply that is not read.
            asked = ask(FEW);
        }
        let Some((server, said)) = asked else {
            return Ok((Vec::new(), None));
        };
        // Another one's cursor: that server is gone, and this one is asked from its beginning.
        let is_anothers = from.cursor != 0 && server != from.server;
        let (next, names) = match said {
            Ok(_) if is_anothers => ((server, 0), Vec::new()),
            said => match format.read_scan(&value(said)?, glob)? {
                (0, names) => ((server.saturating_add(1), 0), names),
                (cursor, names) => ((server, cursor), names),
            },
        };
        let next = Bookmark { server: next.0, cursor: next.1, ..from.clone() };
        Ok((names, Some(next)))
    }

    pub(in crate::store) fn survey(
        &self,
        names: &[Vec<u8>],
        deadline: Deadline,
    ) -> Result<Vec<Survey>, Error> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let batch = self.codec.dialect.format().pack_survey(names);
        let parcel = Parcel { lane: Lane::Caller, batch: &batch, deadline };
        self.route.carry_all(&parcel).into_iter().map(|said| survey::read(value(said)?)).collect()
    }

    /// What the script said: 0 where it has not done it.
    pub(in crate::store) fn break_grant(
        &self,
        lane: Lane,
        (name, grant): (&[u8], (Token, u64)),
        by: &[u8],
        deadline: Deadline,
    ) -> Result<i64, Failure> {
        let script = self.codec.dialect.breaking();
        let batch = self.codec.dialect.format().pack_break(script, name, grant, by);
        let said = self.route.carry_all(&Parcel { lane, batch: &batch, deadline }).pop();
        let Heard { value, sent, .. } = said.unwrap_or_else(unanswered)?;
        survey::read_break(script, value, sent)
    }

    pub(in crate::store) fn breaches(
        &self,
        lane: Lane,
        of: &[&[u8]],
        deadline: Deadline,
    ) -> Breaches {
        let batch = self.codec.dialect.format().pack_notes(of);
        let said = self.route.carry_all(&Parcel { lane, batch: &batch, deadline });
        said.into_iter().map(|said| survey::read_note(&value(said)?)).collect()
    }
}

fn value(said: Carried) -> Result<Value, Error> {
    said.map(|Heard { value, .. }| value).map_err(|Failure { error, .. }| error)
}
