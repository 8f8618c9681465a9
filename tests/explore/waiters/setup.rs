//! What is explored: how many clients and threads, what may go wrong, and what is wrong on purpose.

use std::time::Duration;

use crate::grant::Terms;
use crate::wait::Limits;

pub(super) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A small world, and how far it may go.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// How many threads each client has.
    pub(super) threads: Vec<usize>,
    /// How often each thread takes the lock.
    pub(super) rounds: u8,
    pub(super) ttl: Duration,
    pub(super) window: Duration,
    /// By how many ten thousandths the server's clock is faster than the clients'.
    pub(super) drift: i64,
    /// Every other thread of a client uses a lock with another ttl.
    pub(super) mixed: bool,
    pub(super) renew: bool,
    pub(super) limits: Limits,
    /// How many faults there may be, and which.
    pub(super) faults: u8,
    pub(super) kinds: Vec<Kind>,
    /// Nothing but the end of the run is explored after this time.
    pub(super) horizon: Duration,
    /// The order is looked at, as long as nothing goes wrong: then the server carries out what comes
    /// in one write without anything in between.
    pub(super) ordered: bool,
    pub(super) wrong: Option<Wrong>,
}

/// What may go wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Kind {
    /// A request or its reply is late: for as long as one likes, or after its sender gave up.
    Late,
    /// Notices are late.
    Mute,
    /// The wake-up connection breaks, with what was on it.
    Break,
    /// A client takes no steps for as long as one likes, and is subscribed all the same.
    Stop,
    /// A client is gone at once.
    Die,
    Close,
    Cancel,
    TimeOut,
    /// Somebody who knows nothing of queues takes the lock.
    Foreign,
    /// A lease is left to run out.
    LetExpire,
    /// The server forgets everything.
    Flush,
    /// Another server stands in, with another clock, and knows nothing.
    Replace,
}

impl Kind {
    pub(super) const ALL: [Kind; 12] = [
        Kind::Late,
        Kind::Mute,
        Kind::Break,
        Kind::Stop,
        Kind::Die,
        Kind::Close,
        Kind::Cancel,
        Kind::TimeOut,
        Kind::Foreign,
        Kind::LetExpire,
        Kind::Flush,
        Kind::Replace,
    ];
}

/// Ways to get it wrong, each of which a search has to find.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Wrong {
    /// A waiter that is told before its first take is answered does not listen.
    LateRegistration,
    /// Nobody looks at the lock.
    NeverLooks,
    /// A look that finds the lock free is not followed by a take.
    LooksWithoutAsking,
    /// What a message grants to a token that nobody waits for is given back.
    UndoesNotices,
    /// A lock that was left taken is given back by the answer to an earlier take.
    ForgetsWhatWasLeft,
    /// What is left of a cohort goes to the end of the store's queue.
    NewTicketForTheRest,
    /// Validity under a message counts from when it was read.
    DatedFromReceipt,
    /// Clocks do not drift apart while a sample of them grows old.
    DatedWithoutDrift,
    /// The server hands the lock over for the whole ttl, not just for the window.
    FullTtl,
    /// A give of a token under which no fence was used hands the lock to nobody.
    UndoFreesOnly,
    /// A grant is given before the rest of its cohort has its place again.
    GivesFirst,
    /// Nobody asks whether anybody waits before latecomers have their turns.
    PassesUnasked,
    /// Who comes after the server was asked has a turn before it is asked again.
    PassesLater,
    /// What the server says of a turn's token counts for that turn alone.
    RefusesOneTurn,
}

impl Setup {
    /// Each thread takes the lock once, and nothing goes wrong.
    pub(super) fn new(threads: &[usize]) -> Setup {
        Setup {
            threads: threads.to_vec(),
            rounds: 1,
            ttl: ms(900),
            window: ms(200),
            drift: 0,
            mixed: false,
            renew: false,
            limits: Limits { turns: 3, spread: Duration::ZERO, look: ms(200) },
            faults: 0,
            kinds: Vec::new(),
            horizon: ms(2_500),
            ordered: false,
            wrong: None,
        }
    }

    pub(super) fn faults(self, faults: u8, kinds: &[Kind]) -> Setup {
        Setup { faults, kinds: kinds.to_vec(), ..self }
    }

    pub(super) fn rounds(self, rounds: u8) -> Setup {
        Setup { rounds, ..self }
    }

    pub(super) fn drift(self, drift: i64) -> Setup {
        Setup { drift, ..self }
    }

    pub(super) fn mixed(self) -> Setup {
        Setup { mixed: true, ..self }
    }

    pub(super) fn renewing(self) -> Setup {
        Setup { renew: true, ..self }
    }

    pub(super) fn wrong(self, wrong: Wrong) -> Setup {
        Setup { wrong: Some(wrong), ..self }
    }

    pub(super) fn turns(self, turns: u32) -> Setup {
        Setup { limits: Limits { turns, ..self.limits }, ..self }
    }

    pub(super) fn ordered(self) -> Setup {
        Setup { ordered: true, ..self }
    }

    pub(super) fn until(self, horizon: Duration) -> Setup {
        Setup { horizon, ..self }
    }

    /// What the lock of a client's thread asks of its leases.
    pub(super) fn terms(&self, thread: usize) -> Terms {
        let ttl = if self.mixed && thread % 2 == 1 { self.ttl * 2 / 3 } else { self.ttl };
        Terms { ttl, renew: self.renew, max_hold: None, group: crate::metrics::Group::REST }
    }
}
