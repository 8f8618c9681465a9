//! The lease: a holder's proof, and its end.

mod leaving;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Deadline, Moment};
use crate::config::check_ttl;
use crate::error::{Error, ErrorKind};
use crate::events::LossReason;
use crate::grant::{Ended, Grant};
use crate::keeper::{Core, Keeper, Owed};
use crate::store::{Failure, Identity, Lane, Outcome, Place, Reach, Reply, Request, no_reply};
use crate::token::Token;
use crate::wait::{Ask, Ending};

/// One holder's turn: the proof that a lock is yours, for as long as it says so.
///
/// It is renewed in the background unless that was switched off, and released when it is dropped.
/// Dropping does not wait for the store to answer: this client finds the lock free at once, another
/// one perhaps a moment later. (On a quorum it waits for most of the servers.) A program that must
/// know that the lock is free calls [`release`](Lease::release).
///
/// Ending a lease consumes it, so that nothing can be done with a lease that is over.
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
/// Between two tries of a request that did not get through.
const RETRY: Duration = Duration::from_millis(20);

/// A turn that has ended, in time or not, and what is to be sent for it.
struct EndedTurn {
    in_time: bool,
    ending: Ending,
}

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
        self.named(self.make_valid_for(ttl))
    }

    fn make_valid_for(&self, ttl: Duration) -> Result<(), Error> {
        let core = self.keeper.core()?;
        self.check_ttl(ttl)?;
        let deadline = Deadline::after(self.keeper.io_timeout());
        let extended = until_answered(core, deadline, |_| {
            if self.grant.is_over() {
                return Ok(Err(self.lost(core, LossReason::Expired)));
            }
            let now = Moment::now();
            let ttl = self.grant.ttl_from(ttl, now);
            let (token, reach) = match self.grant.handed_on() {
                Some(from) => (from.detached(self.fence()), Reach::Pass(self.token())),
                None => (self.token(), self.grant.reach(now)),
            };
            let answer = self.send(core, token, ttl, reach, deadline)?;
            if answer.reply != Reply::Extended {
                return Ok(Err(self.lost(core, LossReason::NotHeld)));
            }
            if reach == Reach::Refresh {
                self.grant.refreshed(answer.sent);
            }
            if !self.grant.extended(answer.sent, ttl, Moment::now()) {
                return Ok(Err(self.lost(core, LossReason::Expired)));
            }
            if !core.keep(&self.grant) {
                // Closed meanwhile. The keeper has ended what it knew of, and it does not know of a
                // lease that was attached and never extended.
                return Ok(Err(self.closed(core)));
            }
            Ok(Ok(()))
        });
        extended.unwrap_or_else(|unanswered| Err(unanswered.of("extension")))
    }

    /// Gives the lock back, waiting for the store to say so.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`]: it was not ours any more, so another program may have worked at the
    /// same time; the fence tells which is later. [`ErrorKind::Unknown`]: the store did not answer
    /// by `io_timeout`; it is asked again in the background until the ttl has passed.
    /// [`ErrorKind::Closed`]: closing the client has released it before. Those that are not
    /// retriable, such as [`ErrorKind::Permission`]: the store refused, and the lock stays taken
    /// until its ttl has passed.
    pub fn release(self) -> Result<(), Error> {
        self.named(self.give_back())
    }

    fn give_back(&self) -> Result<(), Error> {
        let core = self.keeper.core_even_closed()?;
        let deadline = Deadline::after(self.keeper.io_timeout());
        if let Some(from) = self.grant.handed_on() {
            return self.ask_as_handed_on(core, from, deadline, |identity| identity.give());
        }
        let outcome = match self.end_turn(core) {
            None => Release::NotHeld,
            Some(turn) => self.give(core, turn, deadline, true),
        };
        match outcome {
            Release::Done => Ok(()),
            Release::NotHeld if core.room.is_closed() => Err(Error::bare(ErrorKind::Closed)),
            Release::NotHeld => {
                core.metrics.released_late.add_one();
                Err(Error::new(ErrorKind::Lost, "it was over before it was released"))
            }
            Release::Unknown(error) => {
                core.metrics.released_late.add_one();
                Err(error)
            }
        }
    }

    /// Whether its store takes such a ttl.
    pub(crate) fn check_ttl(&self, ttl: Duration) -> Result<(), Error> {
        check_ttl(ttl, self.keeper.max_ttl())
    }

    fn named<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|error| error.about(self.name()))
    }

    /// Ends the turn: invalid before anything is sent, and no event about it from now on.
    fn end(&self, core: &Core) -> Ended {
        let ended = self.grant.end(Moment::now());
        if ended != Ended::Before {
            core.forget(&self.grant);
        }
        ended
    }

    /// Ends the turn and begins the next one under the same grant, if there is one; `None` if it
    /// was over before.
    fn end_turn(&self, core: &Core) -> Option<EndedTurn> {
        let (in_time, legacy) = match self.end(core) {
            Ended::Before => return None,
            Ended::Valid(legacy) => (true, Some(legacy)),
            Ended::Stale => (false, None),
        };
        let ending = core.room.end_turn(&self.grant.identity, legacy, Moment::now());
        Some(EndedTurn { in_time, ending })
    }

    fn send(
        &self,
        core: &Core,
        token: Token,
        ttl: Duration,
        reach: Reach,
        deadline: Deadline,
    ) -> Outcome {
        let Identity { name, fence, .. } = &self.grant.identity;
        let request = Request::Extend { name, token, fence: *fence, ttl, reach };
        core.ask(Lane::Give(deadline.left()), request, deadline)
    }

    /// Sends what the end of a turn asks for. What was not answered is tried `again` until its time
    /// is over, or left to the keeper at once.
    fn give(
        &self,
        core: &Core,
        EndedTurn { in_time, ending }: EndedTurn,
        deadline: Deadline,
        again: bool,
    ) -> Release {
        let (mut take, owed_until) = match ending {
            Ending::Passed(_) => return Release::Done,
            Ending::Give { take, until } => (take, until),
        };
        let identity = &self.grant.identity;
        let (until, lane) = match again {
            true => (deadline, Lane::Give(deadline.left())),
            false => (Deadline::at(Moment::ZERO), Lane::Give(DROP_WAIT)),
        };
        let given = until_answered(core, until, |asked_before| {
            let answer = match take.take() {
                None => core.ask(lane, identity.give(), deadline),
                Some(take) => self.give_and_take(core, identity.give(), take, lane, deadline),
            }?;
            Ok(match answer.reply {
                Reply::Given => Release::Done,
                // Some request gave it: an earlier try of this release whose reply was lost, if it
                // was ours to give then.
                _ if asked_before && in_time => Release::Done,
                _ if asked_before => Release::Unknown(Error::new(
                    ErrorKind::Unknown,
                    "the reply to the release was lost, and the lease had ended before",
                )),
                _ => Release::NotHeld,
            })
        });
        if let Some(until) = owed_until {
            // Not before: the keeper's give would make this release find nothing of its own.
            core.owe(Owed { identity: identity.clone(), until });
        }
        given.unwrap_or_else(|unanswered| {
            let until = self.grant.kept_until(Moment::now());
            core.owe(Owed { identity: identity.clone(), until });
            // The keeper will try again, so the outcome is unknown.
            let is_asked = unanswered.is_asked || unanswered.error.is_retriable();
            Release::Unknown(Unanswered { is_asked, ..unanswered }.of("release"))
        })
    }

    /// Gives the lock up and stands in line for the thread of this process that is next, in one
    /// write. Where the give hands the lock to the first waiter, a place with an older ticket is
    /// taken before it.
    fn give_and_take(
        &self,
        core: &Core,
        give: Request<'_>,
        ask: Ask,
        lane: Lane,
        deadline: Deadline,
    ) -> Outcome {
        let name = &self.grant.identity.name;
        let Ask { token, ttl, ticket, block, .. } = ask;
        let take = Request::Take { name, token, ttl, place: Place::Join(ticket), block };
        core.metrics.attempts.add_one();
        let stands_first = ticket != 0 && core.store.listener().is_some();
        let requests = if stands_first { [take, give] } else { [give, take] };
        let mut outcomes = core.run(lane, &requests, deadline);
        let mut last = || outcomes.pop().unwrap_or_else(no_reply);
        let (second, first) = (last(), last());
        let (given, taken) = if stands_first { (second, first) } else { (first, second) };
        core.owe_all(core.room.answered(name, &ask, &taken, Moment::now()));
        given
    }

    fn closed(&self, core: &Core) -> Error {
        if let Some(turn) = self.end_turn(core) {
            let deadline = Deadline::after(self.keeper.io_timeout());
            self.give(core, turn, deadline, false);
        }
        Error::bare(ErrorKind::Closed)
    }

    fn lost(&self, core: &Core, reason: LossReason) -> Error {
        if self.end(core) != Ended::Before {
            core.tell_lost(&self.grant, reason);
        } else if core.room.is_closed() {
            return Error::bare(ErrorKind::Closed);
        }
        Error::bare(ErrorKind::Lost)
    }
}

/// Why a request was not tried again: its time was over, or another try would be of no use.
struct Unanswered {
    error: Error,
    /// Any of its tries may have been carried out.
    is_asked: bool,
}

impl Unanswered {
    fn of(self, what: &str) -> Error {
        if !self.is_asked {
            return self.error;
        }
        let detail = format!("the {what} was not confirmed ({})", self.error);
        Error::new(ErrorKind::Unknown, detail)
    }
}

/// Tries until there is an answer; each try is told whether an earlier one may have been carried
/// out.
fn until_answered<T>(
    core: &Core,
    deadline: Deadline,
    mut attempt: impl FnMut(bool) -> Result<T, Failure>,
) -> Result<T, Unanswered> {
    let mut is_asked = false;
    loop {
        let Failure { error, sent } = match attempt(is_asked) {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        if sent.is_some() {
            core.metrics.unknown.add_one();
            is_asked = true;
        }
        if !error.is_retriable() || deadline.left() < RETRY {
            return Err(Unanswered { error, is_asked });
        }
        std::thread::sleep(RETRY);
    }
}

/// Releases the lock if that was not done, without waiting for the reply. It waits 50 ms at most
/// for a connection and never tries twice: what is left to do is the keeper's. A program that ends
/// right after it dropped several leases may leave the last ones to their ttl; closing the client, or
/// releasing them, does not.
impl Drop for Lease {
    fn drop(&mut self) {
        let Ok(core) = self.keeper.core_even_closed() else { return };
        if let Some(from) = self.grant.handed_on() {
            self.end(core);
            // Not under the token itself: nothing says that its holder has let go of it.
            let [detached, ours, _] = self.grant.handed_on_as(from);
            return leaving::owe_all(core, [detached, ours]);
        }
        let Some(turn) = self.end_turn(core) else { return };
        let deadline = Deadline::after(self.keeper.io_timeout());
        // The next waiters of this process must hear the outcome of their take.
        if turn.ending == Ending::ALONE {
            let until = self.grant.kept_until(Moment::now());
            let owed = Owed { identity: self.grant.identity.clone(), until };
            core.let_go(owed, Lane::Give(DROP_WAIT), deadline);
            return;
        }
        match self.give(core, turn, deadline, false) {
            Release::Done => {}
            Release::NotHeld | Release::Unknown(_) => core.tell_late(&self.grant.identity),
        }
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
