//! The lease: a holder's proof, and its end.

mod asking;
mod losing;
mod lost;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub use losing::Losing;

use asking::{best, unconfirmed, until_answered};

use crate::clock::{Deadline, Moment};
use crate::config::check_ttl;
use crate::error::{Error, ErrorKind};
use crate::events::LossReason;
use crate::grant::{Ended, Grant};
use crate::keeper::{Core, Keeper, Owed};
use crate::metrics::{Group, Series};
use crate::store::{Identity, Lane, Outcome, Place, Reach, Reply, Request, no_reply};
use crate::token::Token;
use crate::wait::{Ask, Ending};

/// The proof that you hold a lock, for as long as it says so.
///
/// The client renews the lease in the background unless that was switched off, and releases it when
/// it is dropped. Dropping does not wait for the store to answer: this client finds the lock free
/// at once, another one perhaps a moment later. On a quorum, dropping waits for most of the
/// servers. A program that must know that the lock is free calls [`release`](Lease::release).
///
/// Ending a lease consumes it, so a program cannot use a lease that is over.
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
const OVER: &str = "it was over before it was released";

struct EndedTurn {
    in_time: bool,
    /// `Core::losses` before.
    losses: u64,
    ending: Ending,
    attached: Option<Box<[Owed; 3]>>,
}

impl Lease {
    pub(crate) fn new(keeper: Arc<Keeper>, grant: Arc<Grant>) -> Lease {
        Lease { keeper, grant }
    }

    /// The fencing token (fence) of this lease: larger than that of every earlier lease on the
    /// name. Send it to the resource with each write, and let the resource reject a smaller one.
    ///
    /// It is at most [`MAX_FENCE`](crate::limits::MAX_FENCE), 2^53 - 1, which has 16 digits. A `BIGINT`
    /// holds it, and `lease.fence() as i64` loses nothing, where a driver knows no `u64`.
    pub fn fence(&self) -> u64 {
        self.grant.identity.fence
    }

    /// The token that marks the lease in the store.
    pub fn token(&self) -> Token {
        self.grant.identity.token
    }

    /// The name of the lock.
    pub fn name(&self) -> &[u8] {
        &self.grant.identity.name
    }

    /// How long you may still rely on the lease; zero once it is lost. Sends no request.
    pub fn remaining(&self) -> Duration {
        if !self.keeper.is_here() {
            return Duration::ZERO;
        }
        self.grant.remaining(Moment::now())
    }

    /// Whether you may rely on the lease at this moment. Sends no request.
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Makes the lease valid for its ttl from now on. Renewed leases do not need it.
    ///
    /// It never goes beyond `max_hold`, and never makes a lease shorter.
    ///
    /// # Errors
    /// - [`ErrorKind::Lost`]: the lease was no longer yours.
    /// - [`ErrorKind::Closed`]: the client was closed, and the lease has ended with it.
    /// - [`ErrorKind::Unknown`] and all others: the store did not confirm it. The lease stays valid
    ///   for as long as it was.
    pub fn extend(&self) -> Result<(), Error> {
        self.extend_for(self.grant.terms.ttl)
    }

    /// As [`extend`](Lease::extend), with another ttl than the lock's.
    ///
    /// # Errors
    /// As for [`extend`](Lease::extend), and [`ErrorKind::BadArgument`] for a ttl that no lock
    /// could have.
    pub fn extend_for(&self, ttl: Duration) -> Result<(), Error> {
        let core = self.keeper.core()?;
        self.check_ttl(ttl)?;
        let deadline = Deadline::after(core.config.io_timeout);
        let extended = until_answered(self.figures(core), deadline, |_| {
            if self.grant.is_over() {
                return Ok(Err(self.lost(core, LossReason::Expired, None)));
            }
            let now = Moment::now();
            let ttl = self.grant.ttl_from(ttl, now);
            let (token, ours) = (self.grant.stored_as(), self.token());
            let reach = if token == ours { self.grant.reach(now) } else { Reach::Pass(ours) };
            let stored = Identity { token, ..self.grant.identity.clone() };
            let (lane, request) = (Lane::Give(deadline), stored.extend(ttl, reach));
            let answer = core.ask(self.group(), lane, request, deadline)?;
            if answer.reply != Reply::Extended {
                return Ok(Err(self.lost(core, LossReason::NotHeld, Some(deadline))));
            }
            if reach == Reach::Claim {
                self.grant.refreshed(answer.sent);
            }
            if !self.grant.extended(answer.sent, ttl, Moment::now()) {
                return Ok(Err(self.lost(core, LossReason::Expired, None)));
            }
            Ok(core.keep(&self.grant))
        });
        self.named(extended.unwrap_or_else(|failure| Err(unconfirmed("extension", failure))))
    }

    /// Releases the lock, and waits until the store confirms it.
    ///
    /// # Errors
    /// - [`ErrorKind::Lost`]: the lease was no longer yours, so another program may have worked at
    ///   the same time. The fence tells which one is later.
    /// - [`ErrorKind::Unknown`]: the store did not answer within `io_timeout`. The client tries
    ///   again in the background until the ttl has passed.
    /// - [`ErrorKind::Closed`]: closing the client has released it before.
    /// - Those that are not retriable, such as [`ErrorKind::Permission`]: the store refused, and
    ///   the lock stays held until its ttl has passed.
    pub fn release(self) -> Result<(), Error> {
        let core = self.keeper.core_even_closed()?;
        let figures = self.figures(core);
        let now = Moment::now();
        let deadline = Deadline::at(now.plus(core.config.io_timeout));
        let over = || Err(Error::new(ErrorKind::Lost, self.grant.why_over(now, OVER)));
        let turn = self.end_turn(core, now);
        let given = turn.map_or_else(over, |turn| self.give(core, turn, deadline, true));
        self.grant.span.end(match &given {
            Ok(()) => "released",
            Err(error) if error.kind() == ErrorKind::Lost => "lost",
            Err(_) => "unknown",
        });
        self.named(given).map_err(|error| {
            if error.kind() == ErrorKind::Lost && core.room.is_closed() {
                return Error::bare(ErrorKind::Closed);
            }
            figures.released_late.add_one();
            error
        })
    }

    /// Stops renewing and leaves the lock held until its ttl runs out. Useful for "once per
    /// interval".
    ///
    /// Sends a request only where the lease was [handed over](crate::WaitMode::Auto) a moment ago
    /// and the store has not yet confirmed its whole ttl, or where it was attached and never
    /// extended.
    ///
    /// # Errors The lease is over in any case.
    ///
    /// - [`ErrorKind::Lost`]: the lease was no longer yours.
    /// - [`ErrorKind::Closed`]: closing the client has released it before.
    /// - Others, such as [`ErrorKind::Unknown`]: the lease was handed over a moment ago and the
    ///   store did not confirm its whole ttl. The lock may be free when the [claim
    ///   window](crate::Config::claim_window) has passed.
    pub fn let_expire(self) -> Result<(), Error> {
        let core = self.keeper.core()?;
        let claimed = if self.grant.is_unclaimed() { self.extend() } else { Ok(()) };
        let ended = self.end_taken(core);
        claimed?;
        self.named(if ended == Ended::Before { Err(self.over(core)) } else { Ok(()) })
    }

    /// Leaves the lock taken without asking the store. A claim that is still to be made is left to
    /// the keeper.
    #[cfg(feature = "capi")]
    pub(crate) fn abandon(self) {
        let Ok(core) = self.keeper.core() else { return };
        if let Ended::Valid(legacy) = self.end_taken(core)
            && let Some(left) = self.grant.abandoned(legacy, Moment::now())
        {
            let _ = core.keep(&left);
        }
    }

    /// Stops renewing and leaves the lock held for `after` from now, whatever its ttl was. A
    /// renewal that is under way at this moment can still keep it for a whole ttl, if that is
    /// longer.
    ///
    /// # Errors
    /// - [`ErrorKind::Lost`]: the lease was no longer yours.
    /// - [`ErrorKind::BadArgument`]: no ttl can be that long or short.
    /// - Others: the store did not confirm it. The lock expires by the ttl that it had, or by the
    ///   claim window if it was handed over a moment ago.
    pub fn let_expire_in(self, after: Duration) -> Result<(), Error> {
        let core = self.keeper.core()?;
        self.check_ttl(after)?;
        // Invalid by then: this may shorten what an earlier extension has promised.
        self.named(self.end_left_taken(core, after, Reach::Set))
    }

    fn end_taken(&self, core: &Core) -> Ended {
        let ended = self.end(core, Moment::now());
        if ended != Ended::Before {
            core.room.left_taken(&self.grant.identity);
            self.grant.span.end("left_held");
        }
        ended
    }

    /// Ends the turn with a last extension that leaves the lock taken: for `ttl`, or passed on to
    /// another process.
    fn end_left_taken(&self, core: &Core, ttl: Duration, reach: Reach) -> Result<(), Error> {
        let stored = Identity { token: self.grant.stored_as(), ..self.grant.identity.clone() };
        // Whichever token an attached lease is stored under, its ttl is set. Only the mark is
        // passed on.
        let attached = self.grant.attached_gives().filter(|_| reach == Reach::Set);
        let all = attached.map_or(vec![stored], |all| all.map(|owed| owed.identity).into());
        let requests: Vec<_> = all.iter().map(|identity| identity.extend(ttl, reach)).collect();
        if self.end_taken(core) == Ended::Before {
            return Err(self.over(core));
        }
        let deadline = Deadline::after(core.config.io_timeout);
        let left = until_answered(self.figures(core), deadline, |_| {
            let answer = best(core, self.group(), Lane::Give(deadline), &requests, deadline)?;
            let is_done = answer.reply == Reply::Extended;
            Ok(if is_done { Ok(()) } else { Err(self.not_ours(core, "", deadline)) })
        });
        left.unwrap_or_else(|failure| Err(unconfirmed("extension", failure)))
    }

    /// Ends the lease here without releasing the lock, so that another process can continue it with
    /// [`Lock::attach`](crate::Lock::attach). The lock stays taken for a ttl from now, with no
    /// holder until then.
    ///
    /// # Errors The lease is over in any case.
    ///
    /// - [`ErrorKind::Lost`]: the lease was no longer yours.
    /// - [`ErrorKind::Closed`]: closing the client has released it before.
    /// - Others: the store did not confirm it. Attaching it may fail, and the lock expires by the
    ///   ttl that it had.
    pub fn detach(self) -> Result<(Token, u64), Error> {
        let core = self.keeper.core()?;
        let (token, fence) = (self.token(), self.fence());
        let ttl = self.grant.ttl_from(self.grant.terms.ttl, Moment::now());
        self.named(self.end_left_taken(core, ttl, Reach::Pass(token.detached(fence))))?;
        Ok((token, fence))
    }

    /// Whether its store takes such a ttl.
    pub(crate) fn check_ttl(&self, ttl: Duration) -> Result<(), Error> {
        check_ttl(ttl, self.keeper.config().longest_ttl())
    }

    fn group(&self) -> Group {
        self.grant.terms.group
    }

    fn figures<'a>(&self, core: &'a Core) -> &'a Series {
        core.metrics.of(self.group())
    }

    fn named<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|error| error.about(self.name()))
    }

    /// Ends the turn: invalid before anything is sent, and no event about it from now on.
    fn end(&self, core: &Core, now: Moment) -> Ended {
        let ended = self.grant.end(now);
        if ended != Ended::Before {
            core.forget(&self.grant);
        }
        if matches!(ended, Ended::Valid(_)) || ended == Ended::Stale && self.grant.was_held() {
            core.observe_hold(&self.grant, now);
        }
        ended
    }

    /// Ends the turn and begins the next one under the same grant, if there is one; `None` if it
    /// was over before.
    fn end_turn(&self, core: &Core, now: Moment) -> Option<EndedTurn> {
        let attached = self.grant.attached_gives();
        let losses = core.losses.load(Ordering::Relaxed);
        let legacy = match self.end(core, now) {
            Ended::Before => return None,
            Ended::Valid(legacy) => Some(legacy),
            Ended::Stale => None,
        };
        let identity = &self.grant.identity;
        let look = || {
            // Most of the time is left for the give.
            let spans = [DROP_WAIT, core.config.io_timeout / 4];
            let [until, by] = spans.map(|span| Deadline::at(now.plus(span)));
            core.with_store(|store| store.is_unawaited(identity, Lane::Give(until), by))
        };
        let ending = core.room.end_turn(identity, legacy, look, now);
        Some(EndedTurn { in_time: legacy.is_some(), losses, ending, attached })
    }

    /// Sends what the end of a turn asks for. A give that brings no answer is tried `again` until
    /// the deadline, or left to the keeper at once.
    fn give(
        &self,
        core: &Core,
        EndedTurn { in_time, losses, ending, attached }: EndedTurn,
        deadline: Deadline,
        again: bool,
    ) -> Result<(), Error> {
        let (mut take, owed_until) = match ending {
            Ending::Passed(_) => return Ok(()),
            Ending::Give { take, until } => (take, until),
        };
        let identity = &self.grant.identity;
        let (until, lane) = match again {
            true => (deadline, Lane::Give(deadline)),
            false => (Deadline::at(Moment::ZERO), Lane::Give(Deadline::after(DROP_WAIT))),
        };
        let given = until_answered(self.figures(core), until, |asked_before| {
            let answer = match (take.take(), &attached) {
                (Some(take), _) => self.give_and_take(core, identity.give(), take, lane, deadline),
                (None, None) => core.ask(self.group(), lane, identity.give(), deadline),
                (None, Some(all)) => {
                    let gives = all.each_ref().map(|owed| owed.identity.give());
                    best(core, self.group(), lane, &gives, deadline)
                }
            }?;
            Ok(match answer.reply {
                // What was found in the store after it had lost its grants proves nothing of before.
                Reply::Given if core.losses.load(Ordering::Relaxed) != losses => {
                    Err(self.not_ours(core, OVER, deadline))
                }
                Reply::Given => Ok(()),
                // An earlier try of this release, whose reply was lost, has given the lock, if the
                // lease was still valid then.
                _ if asked_before && in_time => Ok(()),
                _ if asked_before => Err(Error::new(
                    ErrorKind::Unknown,
                    "the reply to the release was lost, and the lease had ended before",
                )),
                _ => Err(self.not_ours(core, OVER, deadline)),
            })
        });
        if let Some(until) = owed_until {
            // Owed only now: after a give of the keeper's, this release would find that the lock is
            // gone.
            core.owe(Owed { identity: identity.clone(), until });
        }
        given.unwrap_or_else(|mut failure| {
            let now = Moment::now();
            match attached {
                Some(all) => all.into_iter().for_each(|owed| core.owe_or_give(owed)),
                None => drop(core.owe(self.grant.owed(now))),
            }
            // The keeper will try again, so the outcome is unknown.
            failure.sent = failure.sent.or(failure.error.is_retriable().then_some(now));
            Err(unconfirmed("release", failure))
        })
    }

    /// Sends the give, and a take for the thread of this process that is next, in one write. A take
    /// with an older ticket goes first: the give hands the lock to the first in the store's queue.
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
        self.figures(core).attempts.add_one();
        let stands_first = ticket != 0 && core.store.listener().is_some();
        let requests = if stands_first { [take, give] } else { [give, take] };
        let mut outcomes = core.run(self.group(), lane, &requests, deadline);
        let mut last = || outcomes.pop().unwrap_or_else(no_reply);
        let (second, first) = (last(), last());
        let (given, taken) = if stands_first { (second, first) } else { (first, second) };
        core.owe_all(core.room.answered(name, &ask, &taken, Moment::now()));
        given
    }
}

/// Releases the lock if that was not done. It does not wait for the reply, except where threads of this
/// process wait for the lock: then also for a look, a quarter of `io_timeout` at most. It waits 50 ms at
/// most for a connection, on Redis once a second, and never tries twice: the rest is the keeper's. A
/// program that ends right after it dropped several leases may leave the last ones to their ttl; closing
/// the client, or releasing does not.
impl Drop for Lease {
    fn drop(&mut self) {
        let Ok(core) = self.keeper.core_even_closed() else { return };
        core.hub.forget(self.grant.id);
        if self.grant.is_over() {
            return;
        }
        let now = Moment::now();
        let Some(turn) = self.end_turn(core, now) else { return };
        self.grant.span.end("released");
        if let Some(all) = turn.attached {
            let [detached, ours, _] = *all;
            // Not under the token of the process that took it: that may never have detached its
            // lease.
            return [detached, ours].into_iter().for_each(|owed| core.owe_or_give(owed));
        }
        let [until, deadline] =
            [DROP_WAIT, core.config.io_timeout].map(|span| Deadline::at(now.plus(span)));
        // The next waiters of this process must hear the outcome of their take.
        if turn.ending == Ending::TO_STORE {
            core.let_go(self.grant.owed(now), Lane::Give(until), deadline);
        } else if self.give(core, turn, deadline, false).is_err() {
            core.report_late(&self.grant.identity, None);
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

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::keeper::lose_all;

    /// The keeper finds the loss while the release is under way, whose lease it does not know any more.
    #[test]
    fn c6_a_release_during_which_the_store_lost_its_grants_is_no_release() {
        for loses in [false, true] {
            let memory = crate::testing::Memory::new();
            let client = Client::open(memory.url()).unwrap();
            let lease = client.lock("n").acquire().unwrap();
            let core = lease.keeper.core().unwrap();
            let turn = lease.end_turn(core, Moment::now()).unwrap();
            if loses {
                lose_all(core);
            }
            let given = lease.give(core, turn, Deadline::after(Duration::from_secs(60)), true);
            assert_eq!(given.map_err(|error| error.kind()).err(), loses.then_some(ErrorKind::Lost));
        }
    }
}
