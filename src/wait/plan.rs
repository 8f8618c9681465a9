//! What comes out of a local queue: requests, turns, and what is left to do.

use std::time::Duration;

use crate::clock::Moment;
use crate::token::Token;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Limits {
    /// The most turns under one grant, and the number of fences that are asked for.
    pub(crate) turns: u32,
    /// A waiter that is told that the lock is free asks after a random part of this: where several
    /// ask at once, they may keep each other from the lock.
    pub(crate) spread: Duration,
    /// A waiter with a place in the store's queue looks at the lock at least this often.
    pub(crate) look: Duration,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    Turn(Turn),
    Ask(Ask),
    /// Look at the lock that this token waits for.
    Look(Token),
    Sleep(Moment),
}

/// A take to be sent, with the ticket of an earlier one or 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Ask {
    pub(crate) token: Token,
    pub(crate) ttl: Duration,
    pub(crate) ticket: u64,
    pub(crate) block: u32,
    /// Another token had the place: its give is owed before this is asked, so that it goes in
    /// front.
    pub(crate) give: Option<Owe>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Turn {
    pub(crate) token: Token,
    pub(crate) fence: u64,
    pub(crate) validity: Validity,
    /// Others here wait for turns under the same grant.
    pub(crate) followed: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Validity {
    /// By an answer to a request that was sent then: the whole ttl.
    Whole { sent: Moment },
    /// By a message: `span` from `since` on, and the rest after a claim.
    Window { since: Moment, span: Duration },
    /// Passed on by the turn before it under the same grant.
    Passed,
}

/// A token that is to be given; again and again until a moment, if that is still to come.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Owe {
    pub(crate) token: Token,
    pub(crate) ttl: Duration,
    pub(crate) until: Moment,
}

/// What follows from an answer or a notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Effects {
    pub(crate) wake: Option<u64>,
    pub(crate) owe: Option<Owe>,
}

/// What follows from the end of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// The next turn went to this waiter; nothing is sent.
    Passed(u64),
    /// The token is given, and the take is sent in the same write. `until`: another give is owed as
    /// long, since a take for the token has an unknown outcome.
    Give { take: Option<Ask>, until: Option<Moment> },
}

impl Ending {
    /// Give to the store and nothing else. Also where threads wait here: a holder that tried alone has
    /// no `SharedGrant`, so its waiters are told by the store.
    pub(crate) const TO_STORE: Ending = Ending::Give { take: None, until: None };
}
