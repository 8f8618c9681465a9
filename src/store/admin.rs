//! What operators look at in a store, and what they do there.

use super::breaking::{Breaches, StoredGrant};
use super::listing::{Bookmark, Page, Wanted};
use super::{Failure, Lane, LockState};
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
#[cfg(feature = "examine")]
use crate::examination::{Examination, Subject};

/// What people see of a store's locks, and what they do to them or to the store as a whole.
pub(crate) trait Admin {
    /// Who has the lock of a name, and who waits for it. Changes nothing. Holders and waiters come
    /// without their clients: the [records](super::Registry::records) tell who those are.
    fn inspect(&self, name: &[u8], deadline: Deadline) -> Result<LockState, Error>;

    /// A page of the names that are wanted, from a bookmark on; a default bookmark is the beginning.
    /// Whatever is held from the first page to the last is listed; a name may come twice where the
    /// store has no order. No server is busy with one page for longer than a millisecond.
    fn list(&self, _wanted: &Wanted, _from: &Bookmark, _deadline: Deadline) -> Result<Page, Error> {
        Err(unable("list its locks"))
    }

    /// The grant that has a name, for [`break_grant`](Admin::break_grant); `None` where the name is free.
    /// A name that is taken by something that is no lock is an error of the kind `WrongType`.
    fn held(&self, _name: &[u8], _deadline: Deadline) -> Result<Option<StoredGrant>, Error> {
        Err(unable("break its locks"))
    }

    /// Ends just this grant, as a give does, so that the first living waiter is granted the lock, and
    /// notes in the same step who did it. `false` where the name is not this grant's any more. No fence
    /// that was reserved for the grant is used again. Safe to send twice and late: sent again, it says
    /// whether it was this that ended the grant, and it ends no other one.
    fn break_grant(
        &self,
        _held: &StoredGrant,
        _by: &[u8],
        _deadline: Deadline,
    ) -> Result<bool, Failure> {
        Err(Failure::not_done(unable("break its locks")))
    }

    /// Who has broken the locks of these names last, in the same order, as far as the store still knows.
    /// After an error that would be the later names' too, nothing more follows.
    fn breaches(&self, _lane: Lane, of: &[&[u8]], _deadline: Deadline) -> Breaches {
        vec![Ok(None); of.len()]
    }

    /// Whether it was a break that ended this grant: for one that is sent again.
    #[cfg_attr(
        not(any(feature = "mysql", feature = "postgres")),
        allow(dead_code, reason = "other stores find out in the step of the break")
    )]
    fn was_broken(&self, held: &StoredGrant, deadline: Deadline) -> Result<bool, Failure> {
        let last = self.breaches(Lane::Caller, &[&held.name], deadline).pop().transpose();
        let last = last.map_err(Failure::not_done)?.flatten();
        Ok(last.is_some_and(|breach| breach.token == held.token))
    }

    /// Prepares a new deployment. Where a store needs tables, makes those that are missing. Where it
    /// guards against lost data, declares that each of its servers knows all there is to know: without
    /// `force`, it refuses a server that is in quarantine, or that came back with data of an earlier
    /// run, or, in a quorum, looks new while others do not.
    fn initialize(&self, _force: bool, _deadline: Deadline) -> Result<(), Error> {
        Err(unguarded())
    }

    /// How the store could lose grants that it has given, while nothing guards against that: a sentence
    /// with what to do. Costs a request at most, and is asked once.
    fn weakness(&self, _deadline: Deadline) -> Result<Option<String>, Error> {
        Ok(None)
    }

    /// Finds out whether the store is fit for locks, and changes nothing. Returns whether a lock may be
    /// tried there: a server that guards against lost data is better not begun with. An error means that
    /// nothing of the store is reached.
    #[cfg(feature = "examine")]
    fn examine(&self, subject: Subject<'_>, found: &mut Examination) -> Result<bool, Error> {
        found.time(&subject.config.display_store(), subject, || {
            let by = Deadline::after(subject.config.io_timeout);
            self.inspect(&subject.checkup.name, by).map(|_| None)
        })?;
        Ok(true)
    }
}

/// The error of what a store has no way to do.
fn unable(what: &str) -> Error {
    Error::new(ErrorKind::BadArgument, format!("this store cannot {what}"))
}

/// The error of `initialize` for a store that needs none.
pub(crate) fn unguarded() -> Error {
    Error::new(
        ErrorKind::BadArgument,
        "this store has no guard against lost data, and needs no initialisation",
    )
}
