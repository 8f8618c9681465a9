//! What is locked on one Redis, and breaking a grant there: the same for a single store and for each
//! member of a quorum.

use std::sync::Arc;

use redis::Value;

use super::codec::Deployment;
use super::dialect::Dialect;
use super::dialect::survey::{self, Survey};
use super::route::{Carried, Heard, Parcel, unanswered};
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
use crate::store::breaking::{Breaches, Held};
use crate::store::glob::Glob;
use crate::store::listing::{Bookmark, Listed, PAGE, Page, Wanted};
use crate::store::{Failure, Lane, LockState};
use crate::token::Token;

/// So many of the longest names are a reply that is read.
const FEW: usize = 4;

/// Names that a server knows, and where to go on.
pub(in crate::store) type Names = (Vec<Vec<u8>>, Option<Bookmark>);

impl<D: Dialect> Deployment<D> {
    pub(super) fn list(
        &self,
        wanted: &Wanted,
        from: &Bookmark,
        deadline: Deadline,
    ) -> Result<Page, Error> {
        let (names, next) = self.names(&wanted.glob, from, deadline)?;
        let surveys = self.survey(&names, deadline)?;
        let listed = |(name, survey): (Vec<u8>, Survey)| {
            let (last_fence, waiting) = (survey.last_fence(), survey.waiting);
            let holder = survey.to_holder(D::FENCE);
            let is_wanted = wanted.has(holder.as_ref());
            let state = LockState { holder, last_fence, ..LockState::default() };
            is_wanted.then_some(Listed { name, state, waiting })
        };
        let listed = names.into_iter().zip(surveys).filter_map(listed).collect();
        Ok(Page { listed, next })
    }

    /// Of the bookmark, only server and cursor are looked at.
    pub(super) fn names(
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

    pub(super) fn survey(
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
    pub(super) fn break_grant(
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

    pub(super) fn breaches(&self, lane: Lane, of: &[&[u8]], deadline: Deadline) -> Breaches {
        let batch = self.codec.dialect.format().pack_notes(of);
        let said = self.route.carry_all(&Parcel { lane, batch: &batch, deadline });
        said.into_iter().map(|said| survey::read_note(&value(said)?)).collect()
    }
}

/// The grant that may be broken, if somebody has one.
pub(in crate::store) fn held(
    name: &[u8],
    survey: &Survey,
    own: usize,
) -> Result<Option<Held>, Error> {
    let Some((token, left)) = survey.holder else { return Ok(None) };
    let foreign = || Error::new(ErrorKind::WrongType, Held::FOREIGN);
    let token: Token = token.ok_or_else(foreign)?;
    let fence = survey.fence_of(token, own);
    let last = survey.last_fence().filter(|_| fence.is_some()).unwrap_or(0);
    Ok(Some(Held { name: Arc::from(name), token, fence, last, left }))
}

fn value(said: Carried) -> Result<Value, Error> {
    said.map(|Heard { value, .. }| value).map_err(|Failure { error, .. }| error)
}
