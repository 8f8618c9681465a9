//! The seam between a lock and where it is kept: plain requests, plain replies, one trait. A store
//! makes one attempt and says honestly how it ended; all else is decided above.

pub(crate) mod breaking;
#[cfg(feature = "etcd")]
pub(crate) mod etcd;
pub(crate) mod glob;
pub(crate) mod listing;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
mod net;
pub(crate) mod outbox;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
pub(crate) mod quorum;
pub(crate) mod redis;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod schema;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
mod state;
#[cfg(feature = "zookeeper")]
pub(crate) mod zookeeper;

#[cfg(all(feature = "sqlite", not(target_os = "linux")))]
compile_error!(
    "leasehold's feature 'sqlite' needs Linux: what tells of disks and restarts is there only"
);

use std::sync::Arc;
use std::time::Duration;

use self::breaking::{Breaches, Held};
use self::listing::{Bookmark, Page, Wanted};
pub use self::state::{Holder, LockState, Waiter};
pub(crate) use self::state::{Look, MOST_WAITERS, introduce};
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
#[cfg(feature = "examine")]
use crate::examination::{Examination, Subject};
use crate::token::{ClientId, Token};

/// A place where locks are kept.
pub(crate) trait Store: Send + Sync {
    /// Sends `requests` in order over one connection and returns as many results, in the same
    /// order, by the deadline. Every request is safe to send twice.
    fn run(&self, lane: Lane, requests: &[Request<'_>], deadline: Deadline) -> Vec<Outcome>;

    /// Looks at a name without changing anything: who has it, and who waits. Who the clients are is
    /// [told apart from that](Store::records).
    fn look(&self, name: &[u8], deadline: Deadline) -> Result<Look, Error>;

    /// A page of the names that are wanted, from a bookmark on. Names that are taken throughout are
    /// listed; one may come twice where the store has no order. No server is busy with a page for
    /// longer than a millisecond.
    fn list(&self, _wanted: &Wanted, _from: &Bookmark, _deadline: Deadline) -> Result<Page, Error> {
        Err(unable("list its locks"))
    }

    /// Whose the lock of a name is, for [`break_grant`](Store::break_grant); `None` where it is free. A
    /// name that is taken by something that is no lock is an error of the kind `WrongType`.
    fn held(&self, _name: &[u8], _deadline: Deadline) -> Result<Option<Held>, Error> {
        Err(unable("break its locks"))
    }

    /// Frees a lock that is this grant's, for the first living waiter, as a give does, and leaves word
    /// of who did it in the same step. False where it is not the grant's any more. No fence that was
    /// reserved for the grant is used again. Safe to send twice and late: it ends no other grant.
    fn break_grant(&self, _held: &Held, _by: &[u8], _deadline: Deadline) -> Result<bool, Failure> {
        Err(Failure::not_done(unable("break its locks")))
    }

    /// Who has broken locks of these names last, as far as the store still knows. After an error that
    /// would be the later names' too, there is nothing more.
    fn breaches(&self, _lane: Lane, of: &[&[u8]], _deadline: Deadline) -> Breaches {
        vec![Ok(None); of.len()]
    }

    /// How long the lock of a name stays taken if nobody extends it; zero if it is free.
    fn free_in(&self, name: &[u8], deadline: Deadline) -> Result<Duration, Error> {
        let holder = self.look(name, deadline)?.holder;
        Ok(holder.map_or(Duration::ZERO, |held| held.ttl))
    }

    /// Keeps what a client says of itself. Nothing depends on it.
    fn register(&self, _record: Record<'_>, _deadline: Deadline) -> Result<(), Error> {
        Ok(())
    }

    /// Forgets it, where that can be done without waiting for an answer.
    fn unregister(&self, _client: ClientId) {}

    /// What these clients say of themselves, in the same order; `None` where it is not known. Redis
    /// hands out the whole of what somebody has left there; a reader looks at `LONGEST_RECORD` of it.
    fn records(
        &self,
        clients: &[ClientId],
        _deadline: Deadline,
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        Ok(vec![None; clients.len()])
    }

    /// How it could lose grants that it has given, while nothing guards against that: a sentence, and
    /// what to do. Costs a request at most, and is asked once.
    fn weakness(&self, _deadline: Deadline) -> Result<Option<String>, Error> {
        Ok(None)
    }

    /// Whether it is certain that the lock is this grant's and that nobody is in the queue for it:
    /// found out in one command that writes nothing, or not at all.
    fn is_unawaited(&self, _grant: &Identity, _lane: Lane, _deadline: Deadline) -> bool {
        false
    }

    /// Reaches the store, with the credentials that it was given, and does nothing to a lock there.
    fn ping(&self, deadline: Deadline) -> Result<(), Error>;

    /// Finds out whether it is fit for locks, and changes nothing. Tells whether a lock may be tried:
    /// a server that guards against lost data is better not begun with. An error means that nothing of
    /// it is reached.
    #[cfg(feature = "examine")]
    fn examine(&self, subject: Subject<'_>, found: &mut Examination) -> Result<bool, Error> {
        found.time(&subject.config.display_store(), subject, || {
            let by = Deadline::after(subject.config.io_timeout);
            self.look(&subject.checkup.name, by).map(|_| None)
        })?;
        Ok(true)
    }

    /// Declares that every server of a store which guards against lost data knows all there is to
    /// know. Without `force`, a server that is in quarantine, or has to be because it came back with
    /// data of an earlier run, is refused. A server that came back empty looks new; it is refused in
    /// a quorum whose other servers do not.
    fn initialize(&self, _force: bool, _deadline: Deadline) -> Result<(), Error> {
        Err(unguarded())
    }

    /// What [`initialize`](Store::initialize) says to a store that needs tables.
    fn schema(&self) -> Option<&'static str> {
        None
    }

    fn abilities(&self) -> Abilities;

    /// Gives without waiting for the reply, where it can: `None` then, and the outbox hears of it.
    fn let_go(&self, owed: &Owed, lane: Lane, deadline: Deadline) -> Option<Outcome> {
        Some(self.ask(lane, owed.identity.give(), deadline))
    }

    /// Whether it sends by itself, in front of a take, the gives that the outbox has for that name.
    fn sends_owed(&self) -> bool {
        false
    }

    /// Does what nobody waits for: reads the replies that have come to what was sent before a
    /// moment, and stores leases on servers of a quorum that lack them. `held` tells which of these
    /// tokens are relied on still. Of a client that closes, the moment is [`Moment::NEVER`].
    fn tend(&self, _before: Moment, _held: &dyn Fn(&[Token]) -> Vec<Kept>, _deadline: Deadline) {}

    /// When it is to be [tended](Store::tend) besides what its client's outbox asks for.
    fn due(&self) -> Moment {
        Moment::NEVER
    }

    /// How often the keeper has to [`watch`](Store::watch), if at all.
    fn watch_every(&self) -> Option<Duration> {
        None
    }

    /// Where what was granted is gone, has every lease ended, and grants nothing before that.
    fn watch(&self, _end: &dyn Fn()) {}

    /// The client has ended, though handles of it may be left: lets go of what others could wait for.
    fn close(&self) {}

    /// `None` where the store tells waiters nothing, and they ask again and again.
    fn listener(&self) -> Option<&dyn Listener> {
        None
    }

    fn ask(&self, lane: Lane, request: Request<'_>, deadline: Deadline) -> Outcome {
        self.run(lane, &[request], deadline).pop().unwrap_or_else(no_reply)
    }
}

/// The connections of a client on which its waiters are told, one to each server on which it has
/// some. One of the waiting threads at a time listens here, to all of them.
pub(crate) trait Listener: Send + Sync {
    /// Whether notices about a name reach us, as far as is known. Only then do waiters take places.
    fn are_open(&self, name: &[u8]) -> bool;

    /// Whether every message about it reaches us. In a quorum, `are_open` is true once enough
    /// servers are heard that no majority can free the lock without one of them.
    fn are_all_open(&self, name: &[u8]) -> bool {
        self.are_open(name)
    }

    fn are_any_open(&self) -> bool;

    /// Opens them for a name: connects, subscribes, and has that acknowledged, by the deadline; also
    /// while somebody listens to others. Tells which server is heard now. An error of a kind that is
    /// not retriable means that this server does not let us listen, as far as it can be believed
    /// for [`REFUSED`]; others may.
    fn open(&self, name: &[u8], deadline: Deadline) -> Result<ServerId, Error>;

    /// The notices that come by `until`, each with who sent it; returns as soon as there is one.
    /// After an error some are closed, and messages were lost: every waiter has to ask once they
    /// are open again.
    fn hear(&self, until: Moment) -> Result<Vec<(Teller, Notice)>, Error>;

    /// Closes them for good; a thread that listens returns with an error at once.
    fn close(&self);
}

/// How long a server that did not let us listen is not asked again. It may do so later.
pub(crate) const REFUSED: Duration = Duration::from_secs(60);

/// A server, as this process tells servers apart: a server that has taken another one's place has a
/// number of its own, and a clock of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub(crate) struct ServerId(pub(crate) u32);

/// Who tells a waiter: a server, over a connection that was open at this moment. Before that moment
/// the number may have stood for another server, with another clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Teller {
    pub(crate) server: ServerId,
    pub(crate) since: Moment,
}

/// What a waiter is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Notice {
    /// The lock is the token's, for `span` from the server's moment (its clock in microseconds)
    /// on, under a block of fences from this one on.
    Granted { name: Vec<u8>, token: Token, fence: u64, block: u32, server: u64, span: Duration },
    /// The lock that the token waits for is free, for the first that asks.
    Free { name: Vec<u8>, token: Token },
}

/// What a store can do beyond the requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Abilities {
    /// Where it keeps waiters in order: a waiter that pauses for longer loses its place.
    pub(crate) place_kept: Option<Duration>,
    /// The longest pause between two polls of a waiter that sets none.
    pub(crate) longest_pause: Duration,
    /// Waiters that are told that a lock is free ask for it at different times within this span.
    pub(crate) spread: Duration,
    /// A grant of which a message tells counts only once a take was answered with the same grant.
    pub(crate) claims_first: bool,
}

/// Which connection a request may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lane {
    /// One of the pool, waited for until the deadline.
    Caller,
    /// One of the pool if one is idle, else the connection reserved for giving, waited for until
    /// then at the most: releases go through when every other connection is busy.
    Give(Deadline),
    /// The keeper's own.
    Keeper,
}

impl Lane {
    /// By when there is a connection for what is to be done by the deadline.
    pub(crate) fn connect_by(self, deadline: Deadline) -> Deadline {
        match self {
            Lane::Give(until) => deadline.min(until),
            Lane::Caller | Lane::Keeper => deadline,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) name: Arc<[u8]>,
    pub(crate) token: Token,
    pub(crate) fence: u64,
    /// The ttl that its takes asked for: the store finds a place in the queue by it.
    pub(crate) ttl: Duration,
}

impl Identity {
    pub(crate) fn give(&self) -> Request<'_> {
        let Identity { name, token, fence, ttl } = self;
        Request::Give { name, token: *token, fence: *fence, ttl: *ttl }
    }

    pub(crate) fn extend(&self, ttl: Duration, reach: Reach) -> Request<'_> {
        let Identity { name, token, fence, .. } = self;
        Request::Extend { name, token: *token, fence: *fence, ttl, reach }
    }
}

/// A grant that is relied on, and for how long the store must keep it.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) identity: Identity,
    pub(crate) span: Duration,
}

/// A token that must be given up and whose giving is not confirmed yet.
#[derive(Clone, Debug)]
pub(crate) struct Owed {
    pub(crate) identity: Identity,
    /// When the store has forgotten it in any case: a ttl after the last take or extension of it.
    pub(crate) until: Moment,
}

/// What a client says of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub(crate) client: ClientId,
    pub(crate) text: &'a str,
    /// For how long the store keeps it.
    pub(crate) ttl: Duration,
    /// It is kept for as long although the client has ended.
    #[cfg_attr(
        not(feature = "zookeeper"),
        allow(dead_code, reason = "where nothing else ends it")
    )]
    pub(crate) outlives: bool,
}

/// One thing asked of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request<'a> {
    /// Take the lock for `token` if it is free, with `block` fences.
    Take { name: &'a [u8], token: Token, ttl: Duration, place: Place, block: u32 },
    /// Make a lock that is `token`'s, under the grant of this fence, last for `ttl` from now on.
    Extend { name: &'a [u8], token: Token, fence: u64, ttl: Duration, reach: Reach },
    /// Give up `token`: its place among the waiters, and the lock if it is its own, for the first
    /// living waiter. `fence` is the last one that was used under it, or 0 where none was; `ttl` is
    /// the ttl that its takes asked for, by which the store finds its place.
    Give { name: &'a [u8], token: Token, fence: u64, ttl: Duration },
}

impl<'a> Request<'a> {
    /// Of the lock that it is about.
    #[allow(dead_code, reason = "for stores that are features")]
    pub(crate) fn name(&self) -> &'a [u8] {
        let (Request::Take { name, .. }
        | Request::Extend { name, .. }
        | Request::Give { name, .. }) = *self;
        name
    }
}

/// Whether a take that finds the lock taken leaves a place behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// It does not.
    Try,
    /// It stands with the waiters, with the ticket of an earlier poll or 0. A store that cannot
    /// tell waiters anything at this moment, and has no other order for them, does as for a try.
    Join(u64),
}

/// What an extension reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// The lock's ttl, never making it shorter: an extension that was delayed on its way can then
    /// not cut a validity that a later one has promised.
    Grow,
    /// The same, and what the store keeps beside the lock as well: how a lock is claimed that was
    /// handed over, and what is done once in an hour.
    Claim,
    /// The same as grow, and the lock becomes this token's, or is, under just the request's fence.
    Pass(Token),
    /// The lock's ttl to just this. Only for a lease that nobody relies on any more.
    Set,
}

impl Reach {
    /// Whose the lock is after an extension that was asked for this token.
    pub(crate) fn holder(self, token: Token) -> Token {
        match self {
            Reach::Pass(to) => to,
            Reach::Grow | Reach::Claim | Reach::Set => token,
        }
    }
}

pub(crate) type Outcome = Result<Answer, Failure>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answer<R = Reply> {
    pub(crate) reply: R,
    /// Before its request was sent: validity counts from here.
    pub(crate) sent: Moment,
    /// The server's clock in microseconds as it answered; 0 where the reply has none.
    pub(crate) server: u64,
    /// Whose clock it is.
    pub(crate) by: ServerId,
    /// After which a waiter with a place asks again, from a store that tells waiters nothing: one behind
    /// others need not ask as often as the first.
    pub(crate) again: Option<Duration>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Reply {
    /// The lock is the token's, under this fence and those after it, `block` in all.
    Granted { fence: u64, block: u32 },
    /// Somebody else has it, or is before us. It can be free by its ttl after `free_in`. Where a
    /// place was taken, `ticket` is not 0 and `rank` waiters stand before it. `ours`: the holder is a
    /// client of this library, which hands the lock to the first waiter.
    Busy { free_in: Duration, ticket: u64, rank: u32, ours: bool },
    /// The lock is the token's for the ttl that was asked for.
    Extended,
    /// The lock was the token's and is free now.
    Given,
    /// The lock is not the token's.
    NotMine,
}

/// An attempt that brought no reply.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// Before the first byte was sent, if one was and the server did not say that it refused: then
    /// the request may have been, or may yet be, carried out.
    pub(crate) sent: Option<Moment>,
}

impl Failure {
    /// Nor will it be.
    pub(crate) fn not_done(error: Error) -> Failure {
        Failure { error, sent: None }
    }

    pub(crate) fn unknown(error: Error, sent: Moment) -> Failure {
        Failure { error, sent: Some(sent) }
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

/// The error of `initialize` where what is there stays as it is.
#[cfg(any(feature = "postgres", feature = "mysql", feature = "zookeeper"))]
pub(crate) fn unforced(force: bool, what: &str) -> Result<(), Error> {
    let nothing = || format!("there is nothing to force: {what} that are there stay as they are");
    if force { Err(Error::new(ErrorKind::BadArgument, nothing())) } else { Ok(()) }
}

/// The outcome where a store returned fewer outcomes than requests.
pub(crate) fn no_reply() -> Outcome {
    Err(Failure::not_done(Error::new(ErrorKind::Protocol, "the store gave no reply")))
}

/// Whole milliseconds, rounded down: a store is asked for no more than what is relied on.
pub(crate) fn millis(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)
}
