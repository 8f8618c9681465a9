//! Ends of a lease that leave its lock taken: for an interval, or for another process to go on with.

#[cfg(feature = "capi")]
use std::sync::Arc;
use std::time::Duration;

use super::{Lease, until_answered};
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::grant::Ended;
#[cfg(feature = "capi")]
use crate::grant::Grant;
use crate::keeper::{Core, Owed};
use crate::store::{Identity, Lane, Outcome, Reach, Reply, Request};
use crate::token::Token;

impl Lease {
    /// Stops renewing and leaves the lock taken until its ttl runs out: "once per interval".
    ///
    /// Asks the store only where the lease was [handed over](crate::WaitMode::Queue) a moment ago and is
    /// not yet claimed for its whole ttl, or was attached and never extended.
    ///
    /// # Errors
    /// The lease is over in any case. [`ErrorKind::Lost`]: it was not ours any more.
    /// [`ErrorKind::Closed`]: closing the client has released it before. Others, such as
    /// [`ErrorKind::Unknown`]: it was handed over a moment ago and the store did not confirm the
    /// claim, so that the lock may be free when the claim window is over.
    pub fn let_expire(self) -> Result<(), Error> {
        let core = self.keeper.core()?;
        let claimed = if self.grant.is_unclaimed() { self.extend() } else { Ok(()) };
        let ended = self.end(core);
        core.room.left_taken(&self.grant.identity);
        claimed?;
        match ended {
            Ended::Before if core.room.is_closed() => Err(Error::bare(ErrorKind::Closed)),
            Ended::Before => self.named(Err(Error::bare(ErrorKind::Lost))),
            Ended::Valid(_) | Ended::Stale => Ok(()),
        }
    }

    /// Leaves the lock taken without asking anybody: a claim that is not made yet is the keeper's.
    #[cfg(feature = "capi")]
    pub(crate) fn abandon(self) {
        let Ok(core) = self.keeper.core() else { return };
        let ended = self.end(core);
        core.room.left_taken(&self.grant.identity);
        if let Ended::Valid(legacy) = ended {
            let Grant { identity, terms, .. } = &*self.grant;
            let (id, now) = (self.keeper.next_id(), Moment::now());
            if let Some(left) = Grant::abandoned(identity.clone(), *terms, id, legacy, now) {
                core.keep(&Arc::new(left));
            }
        }
    }

    /// Stops renewing and leaves the lock taken for `after` from now, whatever its ttl was. (A renewal
    /// that is on its way at this moment can still keep it for a whole ttl, if that is longer.)
    ///
    /// # Errors
    /// [`ErrorKind::Lost`]: it was not ours any more. [`ErrorKind::BadArgument`]: no ttl can be
    /// that long or short. Others: the store did not confirm it, and the lock runs out by the ttl
    /// that it had: the claim window, where it was handed over a moment ago.
    pub fn let_expire_in(self, after: Duration) -> Result<(), Error> {
        self.named(self.leave_taken_for(after))
    }

    fn leave_taken_for(&self, after: Duration) -> Result<(), Error> {
        let core = self.keeper.core()?;
        self.check_ttl(after)?;
        if let Some(from) = self.grant.handed_on() {
            let deadline = Deadline::after(self.keeper.io_timeout());
            return self.ask_as_handed_on(core, from, deadline, |identity| {
                let Identity { name, token, fence, .. } = identity;
                let (token, fence) = (*token, *fence);
                Request::Extend { name, token, fence, ttl: after, reach: Reach::Set }
            });
        }
        // Invalid by then: this may shorten what an earlier extension has promised.
        self.leave(core, self.token(), after, Reach::Set)
    }

    /// Ends the turn, and has the store do the last thing for it that leaves the lock taken.
    fn leave(&self, core: &Core, token: Token, ttl: Duration, reach: Reach) -> Result<(), Error> {
        if self.end(core) == Ended::Before {
            let closed = core.room.is_closed();
            return Err(Error::bare(if closed { ErrorKind::Closed } else { ErrorKind::Lost }));
        }
        core.room.left_taken(&self.grant.identity);
        let deadline = Deadline::after(self.keeper.io_timeout());
        let left = until_answered(core, deadline, |_| {
            let answer = self.send(core, token, ttl, reach, deadline)?;
            let is_done = answer.reply == Reply::Extended;
            Ok(if is_done { Ok(()) } else { Err(Error::bare(ErrorKind::Lost)) })
        });
        left.unwrap_or_else(|unanswered| Err(unanswered.of("extension")))
    }

    /// Ends a turn that was attached and never extended, with the same request for each token under
    /// which the store may have the lock: the token is enough to release it.
    pub(super) fn ask_as_handed_on(
        &self,
        core: &Core,
        from: Token,
        deadline: Deadline,
        request: impl Fn(&Identity) -> Request<'_>,
    ) -> Result<(), Error> {
        let all = self.grant.handed_on_as(from);
        self.end(core);
        let requests: Vec<_> = all.iter().map(|(identity, _)| request(identity)).collect();
        let ended = until_answered(core, deadline, |asked_before| {
            let outcomes = core.run(Lane::Give(deadline.left()), &requests, deadline);
            let is_done =
                |outcome: &Outcome| matches!(outcome, Ok(answer) if answer.reply != Reply::NotMine);
            if outcomes.iter().any(is_done) {
                return Ok(Ok(()));
            }
            match outcomes.into_iter().find_map(Result::err) {
                Some(failure) => Err(failure),
                None if asked_before => {
                    Ok(Err(Error::new(ErrorKind::Unknown, "the reply to an earlier try was lost")))
                }
                None => Ok(Err(Error::bare(ErrorKind::Lost))),
            }
        });
        ended.unwrap_or_else(|unanswered| {
            if matches!(requests.first(), Some(Request::Give { .. })) {
                owe_all(core, all.clone());
            }
            Err(unanswered.of("extension"))
        })
    }

    /// Lets go of the lease without releasing the lock, for another process to go on with: see
    /// [`Lock::attach`](crate::Lock::attach). The lock stays taken for a ttl from now, and nobody
    /// holds it until then.
    ///
    /// # Errors
    /// The lease is over in any case. [`ErrorKind::Lost`]: it was not ours any more.
    /// [`ErrorKind::Closed`]: closing the client has released it before. Others: the store did not
    /// confirm it, perhaps nobody can attach it, and the lock runs out by the ttl that it had.
    pub fn detach(self) -> Result<(Token, u64), Error> {
        let core = self.keeper.core()?;
        let (token, fence) = (self.token(), self.fence());
        let from = self.grant.handed_on().map_or(token, |from| from.detached(fence));
        let ttl = self.grant.ttl_from(self.grant.terms.ttl, Moment::now());
        self.leave(core, from, ttl, Reach::Pass(token.detached(fence)))?;
        Ok((token, fence))
    }
}

/// Leaves it to the keeper to give a lock that was handed on.
pub(super) fn owe_all(core: &Core, all: impl IntoIterator<Item = (Identity, Moment)>) {
    all.into_iter().for_each(|(identity, until)| core.leave(Owed { identity, until }));
}
