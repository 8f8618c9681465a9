//! The lease: a holder's proof, and its end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Deadline, Moment};
use crate::config::check_ttl;
use crate::error::{Error, ErrorKind};
use crate::events::LossReason;
use crate::grant::{Ended, Grant};
use crate::keeper::{Desk, Keeper, Owed};
use crate::store::{Failure, Identity, Lane, Reach, Reply, Request};
use crate::token::Token;

/// One holder's turn: the proof that a lock is yours, for as long as it says so.
///
/// It is renewed in the background unless that was switched off, and released when it is dropped.
/// Dropping does not wait for the store to answer: this client finds the lock free at once, another
/// one perhaps a moment later. Whoever must know that it is free calls [`release`](Lease::release).
///
/// The end of a lease takes the lease itself, so that nothing can be done with one that is over.
///
/// ```no_run
/// # use leasehold::Client;
/// # fn write(_: u64) {}
/// let client = Client::open("redis://127.0.0.1")?;
/// let lease = client.lock("stock:sku-17").acquire()?;
/// write(lease.fence());        // the resource refuses a smaller fence than it has seen
/// lease.release()?;            // tells whether it was ours to the end; dropping it does not
/// # Ok::<(), leasehold::Error>(())
/// ```
#[must_use = "a lease that is dropped is released at once"]
pub struct Lease {
    keeper: Arc<Keeper>,
    grant: Arc<Grant>,
}

/// How long dropping a lease waits for a connection.
const DROP_WAIT: Duration = Duration::from_millis(50);
/// Between two tries of a release that did not get through.
const RETRY: Duration = Duration::from_millis(20);

/// How the store answered a release.
enum Release {
    Done,
    NotHeld,
    Unknown(Error),
}

impl Lease {
    pub(crate) fn new(keeper: Arc<Keeper>, grant: Arc<Grant>) -> Lease {
        Lease { keeper, grant }
    }

    /// The fence of this turn: larger than that of every turn on the name before it. Give it to
    /// the resource with each write, and let the resource refuse a smaller one.
    pub fn fence(&self) -> u64 {
        self.grant.identity.fence
    }

    /// The token that marks the grant in the store.
    pub fn token(&self) -> Token {
        self.grant.identity.token
    }

    /// The name of the lock.
    pub fn name(&self) -> &[u8] {
        &self.grant.identity.name
    }

    /// How long the lease may still be relied on, without asking anybody; nothing once it is lost.
    pub fn remaining(&self) -> Duration {
        if !self.keeper.is_here() {
            return Duration::ZERO;
        }
        self.grant.remaining(Moment::now())
    }

    /// Whether the lease may be relied on at this moment.
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Makes the lease valid for its ttl from now on. Renewed leases do not need it.
    ///
    /// It never goes beyond `max_hold`, and never makes a lease shorter.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`]: it was not ours any more. [`ErrorKind::Closed`]: the client was closed,
    /// and the lease has ended with it. [`ErrorKind::Unknown`] and all others: the store did not
    /// confirm it; the lease stays valid for as long as it was.
    pub fn extend(&self) -> Result<(), Error> {
        self.extend_for(self.grant.terms.ttl)
    }

    /// The same for another ttl than the lock's.
    ///
    /// # Errors
    /// As for [`extend`](Lease::extend), and [`ErrorKind::BadArgument`] for a ttl that no lock
    /// could have.
    pub fn extend_for(&self, ttl: Duration) -> Result<(), Error> {
        let desk = self.keeper.desk()?;
        check_ttl(ttl)?;
        let deadline = Deadline::after(self.keeper.io_timeout());
        loop {
            if self.grant.is_over() {
                return Err(self.lost(desk, LossReason::Expired));
            }
            let now = Moment::now();
            let (ttl, reach) = (self.grant.ttl_from(ttl, now), self.grant.reach(now));
            let failure = match self.send(desk, ttl, reach, deadline) {
                Ok(answer) if answer.reply == Reply::Extended => {
                    if reach == Reach::Refresh {
                        self.grant.refreshed(answer.sent);
                    }
                    if !self.grant.extended(answer.sent, ttl, Moment::now()) {
                        return Err(self.lost(desk, LossReason::Expired));
                    }
                    if !desk.keep(&self.grant) {
                        // Closed meanwhile. The keeper has ended what it knew of, and it does not
                        // know of a lease that was attached and never extended.
                        return Err(self.closed(desk));
                    }
                    return Ok(());
                }
                Ok(_) => return Err(self.lost(desk, LossReason::NotHeld)),
                Err(failure) => failure,
            };
            if failure.sent.is_some() {
                desk.metrics.unknown.add_one();
            }
            if !failure.error.is_retriable() || deadline.left() < RETRY {
                return Err(unconfirmed(failure));
            }
            std::thread::sleep(RETRY);
        }
    }

    /// Gives the lock back, waiting for the store to say so.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`]: it was not ours any more, so what was done since may have met somebody
    /// else's work; the fence tells. [`ErrorKind::Unknown`]: the store did not answer by
    /// `io_timeout`; it is asked again in the background until the ttl has passed.
    /// [`ErrorKind::Closed`]: closing the client has released it before. Those that are not
    /// retriable, such as [`ErrorKind::Permission`]: the store refused, and the lock stays taken
    /// until its ttl has passed.
    pub fn release(self) -> Result<(), Error> {
        let desk = self.keeper.desk_even_closed()?;
        let deadline = Deadline::after(self.keeper.io_timeout());
        let outcome = match self.end(desk) {
            Ended::Before => Release::NotHeld,
            ended => self.give(desk, ended, Lane::Give(deadline.left()), deadline, true),
        };
        match outcome {
            Release::Done => Ok(()),
            Release::NotHeld if desk.gate.is_closed() => Err(Error::bare(ErrorKind::Closed)),
            Release::NotHeld => {
                desk.metrics.released_late.add_one();
                Err(Error::new(ErrorKind::Lost, "it was over before it was released"))
            }
            Release::Unknown(error) => {
                desk.metrics.released_late.add_one();
                Err(error)
            }
        }
    }

    /// Stops renewing and leaves the lock taken until its ttl runs out: "once per interval".
    pub fn let_expire(self) {
        if let Ok(desk) = self.keeper.desk_even_closed() {
            self.end(desk);
        }
    }

    /// As [`let_expire`](Lease::let_expire), and tells whether there was anything left to leave.
    #[cfg(feature = "capi")]
    pub(crate) fn let_go(self) -> Result<(), Error> {
        match self.end(self.keeper.desk()?) {
            Ended::Before => Err(Error::bare(ErrorKind::Lost)),
            Ended::Valid | Ended::Stale => Ok(()),
        }
    }

    /// The same, with the lock free `after` from now, whatever its ttl was. (A renewal that is on
    /// its way at this moment can still keep it for a whole ttl, if that is longer.)
    ///
    /// # Errors
    /// [`ErrorKind::Lost`]: it was not ours any more. [`ErrorKind::BadArgument`]: no ttl can be
    /// that long or short. Others: the store did not confirm it, and the lock runs out by the ttl
    /// that it had.
    pub fn let_expire_in(self, after: Duration) -> Result<(), Error> {
        let desk = self.keeper.desk()?;
        check_ttl(after)?;
        if self.end(desk) == Ended::Before {
            return Err(Error::bare(ErrorKind::Lost));
        }
        // Invalid already: this may shorten what an earlier extension has promised.
        let deadline = Deadline::after(self.keeper.io_timeout());
        loop {
            let failure = match self.send(desk, after, Reach::Set, deadline) {
                Ok(answer) if answer.reply == Reply::Extended => return Ok(()),
                Ok(_) => return Err(Error::bare(ErrorKind::Lost)),
                Err(failure) => failure,
            };
            if !failure.error.is_retriable() || deadline.left() < RETRY {
                return Err(unconfirmed(failure));
            }
            std::thread::sleep(RETRY);
        }
    }

    /// Lets go of the lease without releasing the lock, for another process to go on with: see
    /// [`Lock::attach`](crate::Lock::attach). The lock stays taken for what is left of its ttl.
    pub fn detach(self) -> (Token, u64) {
        let handed = (self.token(), self.fence());
        self.let_expire();
        handed
    }

    /// Ends the turn: invalid before anything is sent, and no event about it from now on.
    fn end(&self, desk: &Desk) -> Ended {
        let ended = self.grant.end(Moment::now());
        desk.forget(&self.grant);
        ended
    }

    fn send(
        &self,
        desk: &Desk,
        ttl: Duration,
        reach: Reach,
        deadline: Deadline,
    ) -> Result<crate::store::Answer, Failure> {
        let Identity { name, token, fence, .. } = &self.grant.identity;
        let request = Request::Extend { name, token: *token, fence: *fence, ttl, reach };
        desk.store.ask(Lane::Give(deadline.left()), request, deadline)
    }

    fn give(
        &self,
        desk: &Desk,
        ended: Ended,
        lane: Lane,
        deadline: Deadline,
        again: bool,
    ) -> Release {
        let identity = &self.grant.identity;
        let mut asked_before = false;
        loop {
            let failure = match desk.store.ask(lane, identity.give(), deadline) {
                Ok(answer) if answer.reply == Reply::Given => return Release::Done,
                // Somebody gave it: an earlier try of this release whose reply was lost, if it was
                // ours to give then.
                Ok(_) if asked_before && ended == Ended::Valid => return Release::Done,
                Ok(_) if asked_before => {
                    return Release::Unknown(Error::new(
                        ErrorKind::Unknown,
                        "the reply to the release was lost, and the lease had ended before",
                    ));
                }
                Ok(_) => return Release::NotHeld,
                Err(failure) => failure,
            };
            if failure.sent.is_some() {
                desk.metrics.unknown.add_one();
                asked_before = true;
            }
            if !again || !failure.error.is_retriable() || deadline.left() < RETRY {
                let until = self.grant.kept_until(Moment::now());
                desk.owe(Owed { identity: identity.clone(), until });
                if !asked_before && !failure.error.is_retriable() {
                    return Release::Unknown(failure.error);
                }
                return Release::Unknown(Error::new(
                    ErrorKind::Unknown,
                    format!("the release was not confirmed ({})", failure.error),
                ));
            }
            std::thread::sleep(RETRY);
        }
    }

    fn closed(&self, desk: &Desk) -> Error {
        let ended = self.end(desk);
        if ended != Ended::Before {
            let deadline = Deadline::after(self.keeper.io_timeout());
            self.give(desk, ended, Lane::Give(DROP_WAIT), deadline, false);
        }
        Error::bare(ErrorKind::Closed)
    }

    fn lost(&self, desk: &Desk, reason: LossReason) -> Error {
        if self.end(desk) != Ended::Before {
            desk.tell_lost(&self.grant, reason);
        } else if desk.gate.is_closed() {
            return Error::bare(ErrorKind::Closed);
        }
        Error::bare(ErrorKind::Lost)
    }
}

/// An extension that may have been made or not: the lease is as valid as it was.
fn unconfirmed(failure: Failure) -> Error {
    match failure.sent {
        None => failure.error,
        Some(_) => Error::new(
            ErrorKind::Unknown,
            format!("the extension was not confirmed ({})", failure.error),
        ),
    }
}

/// Releases the lock if that was not done, without waiting for the reply. It waits 50 ms at most
/// for a connection and never tries twice: what is left to do is the keeper's.
impl Drop for Lease {
    fn drop(&mut self) {
        let Ok(desk) = self.keeper.desk_even_closed() else { return };
        if self.end(desk) == Ended::Before {
            return;
        }
        let until = self.grant.kept_until(Moment::now());
        let owed = Owed { identity: self.grant.identity.clone(), until };
        desk.let_go(owed, Lane::Give(DROP_WAIT), Deadline::after(self.keeper.io_timeout()));
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let identity = &self.grant.identity;
        f.debug_struct("Lease")
            .field("name", &identity.name.escape_ascii().to_string())
            .field("fence", &identity.fence)
            .field("token", &identity.token)
            .finish_non_exhaustive()
    }
}
