//! The seam between a lock and where it is kept: plain requests, plain replies, and the trait
//! [`Store`]. A store makes one attempt and says honestly how it ended; all else is decided above.

mod admin;
pub(crate) mod breaking;
#[cfg(feature = "etcd")]
pub(crate) mod etcd;
pub(crate) mod glob;
pub(crate) mod listing;
#[cfg(feature = "testing")]
pub(crate) mod memory;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
mod net;
pub(crate) mod outbox;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
pub(crate) mod quorum;
pub(crate) mod redis;
mod registry;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod schema;
mod seen;
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

pub(crate) use self::admin::{Admin, unguarded};
pub(crate) use self::registry::{Record, Registry};
pub(crate) use self::seen::Seen;
pub use self::state::{Holder, LockState, Waiter};
pub(crate) use self::state::{MOST_WAITERS, introduce};
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::token::Token;

/// What a lock asks of the place where it is kept. Beside it stand [`Registry`], what clients say of
/// themselves, and [`Admin`], what operators look at and do: no lock depends on those two.
///
/// A store makes one attempt for each request, on the calling thread, and returns by the deadline. Any
/// thread may call any method at any time.
///
/// Names come without the prefix of the client's config, here and in the two other traits: each store puts
/// [`prefix`](crate::Config::prefix) before them, or clients with different prefixes would share a lock.
/// Prefix and name together are called the key: whatever concerns one lock is kept under the same one.
pub(crate) trait Store: Registry + Admin + Send + Sync {
    /// Carries out `requests` in order and returns as many outcomes, in the same order.
    ///
    /// Each request is atomic: all that the store keeps of a name changes in one step, by the store's
    /// clock alone. The store must guarantee that
    /// - one token at a time has a name, from its grant until a give, or until its ttl is over;
    /// - each grant of a name has a larger first fence than every fence that was granted before, those that
    ///   a block reserved among them. A free name may be forgotten only if its next fence is larger still,
    ///   as one is that is made of the wall clock;
    /// - a request is safe to send twice and to arrive late: a take of a token that has the lock answers
    ///   with the same grant, a give of a token that does not have it changes nobody else's lock, and
    ///   an extension other than [`Reach::Set`] never shortens a ttl;
    /// - a failure whose [`sent`](Failure::sent) is `None` was not carried out and never will be.
    fn run(&self, lane: Lane, requests: &[Request<'_>], deadline: Deadline) -> Vec<Outcome>;

    /// Carries out one request, as [`run`](Store::run) does.
    fn ask(&self, lane: Lane, request: Request<'_>, deadline: Deadline) -> Outcome {
        self.run(lane, &[request], deadline).pop().unwrap_or_else(no_reply)
    }

    /// How long the lock of a name stays taken if nobody extends it; zero if it is free. Changes nothing,
    /// and may be a little old: waiters plan their next take by it.
    fn free_in(&self, name: &[u8], deadline: Deadline) -> Result<Duration, Error>;

    /// Whether it is certain that the lock is this grant's and that no other process stands in the queue.
    /// Found out in one command that writes nothing, or not at all: `false` is always right, and costs a
    /// release through the store where a turn could have been passed on inside the process.
    fn is_unawaited(&self, _grant: &Identity, _lane: Lane, _deadline: Deadline) -> bool {
        false
    }

    /// Reaches the store, with the credentials that it was given, and changes nothing.
    fn ping(&self, deadline: Deadline) -> Result<(), Error>;

    /// How the store differs from others. Asked often: it costs nothing and reaches no server.
    fn abilities(&self) -> Abilities;

    /// How waiters learn that it is their turn; `None` where they have to ask again and again. It is
    /// either always there or never.
    fn listener(&self) -> Option<&dyn Listener> {
        None
    }

    /// Gives without waiting for the reply, where the store can do that: then it returns `None`, and
    /// tells its client's outbox what became of the give.
    fn let_go(&self, owed: &Owed, lane: Lane, deadline: Deadline) -> Option<Outcome> {
        Some(self.ask(lane, owed.identity.give(), deadline))
    }

    /// Does what nobody waits for, on the keeper's thread: reads the replies that have come to what was
    /// sent before a moment, and stores leases on servers of a quorum that lack them. `held` tells which
    /// of these tokens are relied on still. Of a client that closes, the moment is [`Moment::NEVER`].
    fn tend(&self, _before: Moment, _held: &dyn Fn(&[Token]) -> Vec<Kept>, _deadline: Deadline) {}

    /// When it is to be [tended](Store::tend) besides what its client's outbox asks for.
    fn due(&self) -> Moment {
        Moment::NEVER
    }

    /// Called by the keeper as often as [`Abilities::watch_every`] says. Where all that was granted is
    /// gone, calls `end`, which ends every lease, and grants nothing before that.
    fn watch(&self, _end: &dyn Fn()) {}

    /// The client has ended, though handles of it may be left: lets go of what others could wait for.
    fn close(&self) {}
}

/// The connections of a client on which its waiters are told, one to each server on which it has
/// some. One of the waiting threads at a time listens here, to all of them.
///
/// A notice only saves time. It may come late, twice or never, and it may name a token that no longer
/// waits: that changes nothing. A waiter that hears nothing looks at the lock by itself
/// ([`free_in`](Store::free_in)) once in a claim window, and at least once a second. A lock that was handed
/// to a waiter that did not hear of it is free again after a claim window.
pub(crate) trait Listener: Send + Sync {
    /// Whether notices about a name reach us, as far as is known. Only then do waiters take places.
    fn are_open(&self, name: &[u8]) -> bool;

    /// Whether every message about it reaches us. In a quorum, `are_open` is true once enough
    /// servers are heard that no majority can free the lock without one of them.
    fn are_all_open(&self, name: &[u8]) -> bool {
        self.are_open(name)
    }

    fn are_any_open(&self) -> bool;

    /// Opens them for a name: connects, subscribes, and has that acknowledged, by the deadline. Returns
    /// which server is heard now, at once where that is so already. One thread at a time calls it, also
    /// while another one is in [`hear`](Listener::hear), which hears the new connection from then on.
    ///
    /// Once it has returned, each notice about the name comes out of `hear`, or an error does. What was
    /// sent before is lost: its caller has the first waiter of each name that was not open ask again.
    ///
    /// An error of a kind that is not retriable means that this server does not let us listen, as far as
    /// it can be believed for [`REFUSED`]; others may.
    fn open(&self, name: &[u8], deadline: Deadline) -> Result<ServerId, Error>;

    /// The notices that have come, each with who sent it. Waits for the first one until `until`, and
    /// returns none if that passes; those that lie there already are returned even if it has passed.
    ///
    /// Returns an error at once when a connection ends, when none is open, and when [`close`](Listener::close)
    /// is called. Then some are closed, and notices may be lost. Its caller has the first waiter of each
    /// name ask again of which not [every message](Listener::are_all_open) comes any more.
    fn hear(&self, until: Moment) -> Result<Vec<(Teller, Notice)>, Error>;

    /// Closes them for good; a thread that listens returns with an error at once.
    fn close(&self);
}

/// How many fences a hand-over reserves, and a take of a client in which several threads wait. They are a
/// *block*: one number after the other, of which the *first fence* of the grant is the smallest. Each turn of
/// that client under the grant has the next one, and costs the store nothing. A give tells which one was
/// used last, and the store may grant those behind it again.
///
/// So many turns one client can have in a row while another one waits, and a hand-over is two or three
/// commands: with 64, a crowd of threads costs less than one command in twenty turns. A take may be
/// granted fewer than it asks for: files and ZooKeeper grant one. Scripts and statements have the number, too.
pub(crate) const BLOCK: u32 = 64;

/// How long a server that did not let us listen is not asked again. It may do so later.
pub(crate) const REFUSED: Duration = Duration::from_secs(60);

/// How long a listener that was refused is not asked again. A password may be in the middle of a change.
pub(crate) fn rest_after(error: &Error) -> Duration {
    if error.kind() == ErrorKind::Auth { Duration::from_secs(1) } else { REFUSED }
}

/// A server, as this process tells servers apart: a server that has taken another one's place has a
/// number of its own, and a clock of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub(crate) struct ServerId(pub(crate) u32);

/// Who tells a waiter: a server, over a connection that was open at this moment. Before that moment
/// the number may have stood for another server, with another clock. A store without servers has the
/// default number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Teller {
    pub(crate) server: ServerId,
    pub(crate) since: Moment,
}

/// What a waiter is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Notice {
    /// The lock is the token's, for `span` from the server's moment (its clock in microseconds)
    /// on, under a [block](BLOCK) of so many fences from this one on.
    Granted { name: Vec<u8>, token: Token, fence: u64, block: u32, server: u64, span: Duration },
    /// The lock that the token waits for is free, for the first that asks.
    Free { name: Vec<u8>, token: Token },
}

/// How a store differs from others. The default is a store that tells its waiters, and needs nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Abilities {
    /// Set where the store keeps waiters in order that it cannot tell: a waiter that pauses for longer
    /// loses its place.
    pub(crate) place_kept: Option<Duration>,
    /// The longest pause between two polls of a waiter that sets none.
    pub(crate) longest_pause: Duration,
    /// Waiters that are told that a lock is free ask for it at different times within this span.
    pub(crate) spread: Duration,
    /// A grant of which a message tells counts only once a take was answered with the same grant.
    pub(crate) claims_first: bool,
    /// The store sends by itself, in front of a take, the gives that the outbox has for that name.
    pub(crate) sends_owed: bool,
    /// How often the keeper has to call [`Store::watch`], if at all.
    pub(crate) watch_every: Option<Duration>,
    /// The statements of [`Admin::initialize`], where the store needs tables.
    pub(crate) schema: Option<&'static str>,
}

impl Default for Abilities {
    fn default() -> Abilities {
        Abilities {
            place_kept: None,
            longest_pause: Duration::from_millis(64),
            spread: Duration::ZERO,
            claims_first: false,
            sends_owed: false,
            watch_every: None,
            schema: None,
        }
    }
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

/// The deadlines of a request: one for getting a connection, and one for the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct By {
    pub(crate) connect: Deadline,
    pub(crate) done: Deadline,
}

impl Lane {
    pub(crate) fn by(self, done: Deadline) -> By {
        let connect = match self {
            Lane::Give(until) => done.min(until),
            Lane::Caller | Lane::Keeper => done,
        };
        By { connect, done }
    }
}

impl From<Deadline> for By {
    /// One for both.
    fn from(deadline: Deadline) -> By {
        By { connect: deadline, done: deadline }
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

/// One thing asked of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request<'a> {
    /// Take the lock for `token` if it is free, with a [block](BLOCK) of as many fences, or fewer.
    Take { name: &'a [u8], token: Token, ttl: Duration, place: Place, block: u32 },
    /// Make a lock that is `token`'s last for `ttl` from now on. Its fences stay as they are, except that
    /// a [pass](Reach::Pass) leaves only the one that it names.
    ///
    /// `fence` is one of the grant's. A pass under another one is [`NotMine`](Reply::NotMine). For the
    /// other reaches a store may leave the comparison out: only a late copy of its take gives a token a
    /// second grant, and only once the first one is over, whose validity no answer raises any more. (If
    /// the first one was broken or forgotten too early, its holder may go on under its old fence. No
    /// other token has the lock meanwhile, and whoever compares fences rejects it.)
    Extend { name: &'a [u8], token: Token, fence: u64, ttl: Duration, reach: Reach },
    /// Give up `token`: its place among the waiters, and the lock if it is its own, for the first
    /// living waiter. A give that finds the lock free while others wait hands it over as well. `ttl` is
    /// the ttl that its takes asked for, by which the store finds its place.
    ///
    /// `fence` is the last one that was used under the token: the rest of the [block](BLOCK) goes back. It
    /// is 0 where none was used, or none is known, as after a take that brought no answer: then the store
    /// compares none, and none goes back. The grant of a lease that was detached or attached has only the
    /// fence under which it was [passed](Reach::Pass).
    ///
    /// - [`Given`](Reply::Given): the lock was the token's, under that fence, or under any with 0.
    /// - [`NotMine`](Reply::NotMine): the token only waited; its ttl was over; or the lock was passed or
    ///   granted to another token, and stays that token's.
    /// - `NotMine` as well where the token has the lock under other fences: the lock is freed all the same.
    ///   A late copy of its take has brought that grant, and nobody relies on it. A store in which no take
    ///   comes that late need not compare.
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
    /// It stands with the waiters, with the ticket of an earlier poll or 0. The ticket is the place: a
    /// token that comes with the ticket of another one takes its place. A store that cannot tell waiters
    /// anything at this moment, and has no other order for them, does as for a try.
    Join(u64),
}

/// What an extension reaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reach {
    /// The lock's ttl, never making it shorter: an extension that was delayed on its way can then
    /// not cut a validity that a later one has promised. Only the ttl grows, never the block of fences.
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
    /// The server's clock in microseconds as it answered; 0 where the reply has none. It may be any clock, as
    /// long as [`Notice::Granted`] reads the same one.
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
    /// The lock was the token's, and is free or a waiter's now.
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
