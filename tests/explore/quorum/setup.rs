//! What is explored, and what is wrong on purpose.

pub(super) const NODES: usize = 3;

/// A small world, and how far it may go.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    /// The hints of each client's attempts, a later one never being less.
    pub(super) hints: Vec<Vec<u8>>,
    /// The last fence of each node.
    pub(super) last: [u8; NODES],
    /// Keys expire whenever they like. Else they stay until they are given, so that the lock is
    /// exclusive.
    pub(super) expiry: bool,
    /// How many requests are carried out once more.
    pub(super) repeats: u8,
    /// How often a holder tells a node that lacks its key to store it.
    pub(super) fills: u8,
    /// How often the clock of a node jumps ahead, so that its key expires, where no other does. Only
    /// here a call that has won does not return at once.
    pub(super) jumps: u8,
    /// How often a node is restarted, empty, while the others have a holder's key and its fence.
    pub(super) restarts: u8,
    pub(super) flaw: Option<Flaw>,
}

/// Ways to get it wrong, each of which a search has to find.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Flaw {
    /// A client counts the majority of the members that granted anything, not of all of them.
    MajorityOfTheGranted,
    /// A grant that comes after the largest one was chosen counts as a confirmation.
    CountsLateGrants,
    /// The largest grant is the fence, and nobody is told to raise to it.
    TakesTheLargestGrant,
    /// A node raises without asking whose the key is.
    RaisesWhoeverHasIt,
    /// A node that was granted anew, by the same request come again, raises to a fence below that
    /// of others in between.
    RaisesPastLargerFences,
    /// A give for an attempt that failed takes the next one's key.
    GivesLaterAttempts,
    /// A node forgets its data, once, and votes.
    Forgets,
    /// A key that an attempt was stored under, and not granted, counts for it.
    CountsFills,
    /// A key is stored over another's.
    FillsOverOthers,
    /// A key is stored, and not the fence.
    FillsWithoutTheFence,
    /// The fence is stored over a larger one.
    FillsWithASmallerFence,
    /// A call returns a lock that another had on a node, without waiting until that node has it, too.
    ReturnsBare,
    /// It waits until the node was told, and not for its answer.
    CountsSentFills,
    /// A holder need not have been on all nodes for a clock to be allowed to jump.
    NeverFills,
}

impl Setup {
    pub(super) fn new(hints: &[&[u8]]) -> Setup {
        Setup {
            hints: hints.iter().map(|hints| hints.to_vec()).collect(),
            last: [0; NODES],
            expiry: true,
            repeats: 0,
            fills: 0,
            jumps: 0,
            restarts: 0,
            flaw: None,
        }
    }

    pub(super) fn last(self, last: [u8; NODES]) -> Setup {
        Setup { last, ..self }
    }

    pub(super) fn exclusive(self) -> Setup {
        Setup { expiry: false, ..self }
    }

    pub(super) fn repeats(self, repeats: u8) -> Setup {
        Setup { repeats, ..self }
    }

    pub(super) fn fills(self, fills: u8) -> Setup {
        Setup { fills, ..self }
    }

    pub(super) fn jumps(self, jumps: u8) -> Setup {
        Setup { jumps, ..self }
    }

    pub(super) fn restarts(self, restarts: u8) -> Setup {
        Setup { restarts, ..self }
    }

    pub(super) fn wrong(self, flaw: Flaw) -> Setup {
        Setup { flaw: Some(flaw), ..self }
    }

    /// Of a client's attempt, both by number.
    pub(super) fn hint(&self, client: u8, attempt: u8) -> u8 {
        self.hints[usize::from(client)][usize::from(attempt)]
    }

    /// The clients differ in their names only.
    pub(super) fn is_alike(&self) -> bool {
        self.hints.windows(2).all(|two| two[0] == two[1])
    }
}
