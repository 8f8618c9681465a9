//! A server, as far as one name goes.

use super::setup::{Flaw, Setup};

/// Who asks: a client, which has one token, and the number of its attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Attempt {
    pub(super) client: u8,
    pub(super) number: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Node {
    last: u8,
    /// The attempt that has the key, and the fence that it was granted or raised to.
    held: Option<(Attempt, u8)>,
}

/// One that counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Answer {
    Granted(u8),
    /// With the fence that it had before.
    Raised(u8),
}

impl Node {
    pub(super) fn new(last: u8) -> Node {
        Node { last, held: None }
    }

    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    pub(super) fn take(&mut self, by: Attempt, setup: &Setup) -> Option<Answer> {
        if let Some((holder, fence)) = self.held {
            if holder == by {
                return Some(Answer::Granted(fence));
            }
            if holder.client != by.client || holder.number > by.number {
                return None;
            }
        }
        self.last = (self.last + 1).max(setup.hint(by));
        self.held = Some((by, self.last));
        Some(Answer::Granted(self.last))
    }

    pub(super) fn raise(&mut self, by: Attempt, to: u8, flaw: Option<Flaw>) -> Option<Answer> {
        let past = flaw == Some(Flaw::RaisesPastLargerFences);
        match self.held {
            Some((holder, fence)) if holder == by && (self.last <= to || past) => {
                self.last = self.last.max(to);
                self.held = Some((by, to));
                Some(Answer::Raised(fence))
            }
            _ if flaw == Some(Flaw::RaisesWhoeverHasIt) => {
                self.last = self.last.max(to);
                Some(Answer::Raised(to))
            }
            _ => None,
        }
    }

    pub(super) fn give(&mut self, by: Attempt, flaw: Option<Flaw>) {
        let any = flaw == Some(Flaw::GivesLaterAttempts);
        let mine = |(holder, _): &mut (Attempt, u8)| {
            holder.client == by.client && (holder.number <= by.number || any)
        };
        self.held.take_if(mine);
    }

    pub(super) fn expire(&mut self) {
        self.held = None;
    }

    pub(super) fn forget(&mut self) {
        *self = Node::new(0);
    }
}
