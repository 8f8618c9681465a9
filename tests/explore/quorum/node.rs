//! A server, as far as one name goes.

use super::setup::Flaw;

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
    /// It lost its data, and has no vote.
    quarantined: bool,
}

/// One that counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Answer {
    Granted(u8),
    /// With the fence that it had before.
    Raised(u8),
    /// It stored the key when it was told to, or had it.
    Filled,
}

impl Node {
    pub(super) fn new(last: u8) -> Node {
        Node { last, held: None, quarantined: false }
    }

    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    pub(super) fn is_held_by(&self, by: Attempt) -> bool {
        self.held.is_some_and(|(holder, _)| holder == by)
    }

    /// It has the attempt's key, and was told of its fence, or granted it a larger one.
    pub(super) fn knows(&self, by: Attempt, fence: u8) -> bool {
        self.held.is_some_and(|(holder, known)| holder == by && known >= fence)
    }

    pub(super) fn is_quarantined(&self) -> bool {
        self.quarantined
    }

    pub(super) fn take(&mut self, by: Attempt, hint: u8) -> Option<Answer> {
        if self.quarantined {
            return None;
        }
        if let Some((holder, fence)) = self.held {
            if holder == by {
                return Some(Answer::Granted(fence));
            }
            if holder.client != by.client || holder.number > by.number {
                return None;
            }
        }
        self.last = (self.last + 1).max(hint);
        self.held = Some((by, self.last));
        Some(Answer::Granted(self.last))
    }

    pub(super) fn raise(&mut self, by: Attempt, to: u8, flaw: Option<Flaw>) -> Option<Answer> {
        if self.quarantined {
            return None;
        }
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

    /// The answer counts where that is wrong on purpose.
    pub(super) fn fill(&mut self, by: Attempt, fence: u8, flaw: Option<Flaw>) -> Option<Answer> {
        let is_taken = self.held.is_some() && flaw != Some(Flaw::FillsOverOthers);
        if self.quarantined || is_taken {
            return (!self.quarantined && self.is_held_by(by)).then_some(Answer::Filled);
        }
        self.held = Some((by, fence));
        self.last = match flaw {
            Some(Flaw::FillsWithoutTheFence) => self.last,
            Some(Flaw::FillsWithASmallerFence) => fence,
            _ => self.last.max(fence),
        };
        let counts = flaw == Some(Flaw::CountsFills);
        Some(if counts { Answer::Granted(fence) } else { Answer::Filled })
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

    /// As one that counts on it does: it says nothing until nobody relies on what it forgot.
    pub(super) fn restart(&mut self) {
        *self = Node { quarantined: true, ..Node::new(0) };
    }

    pub(super) fn votes_again(&mut self) {
        self.quarantined = false;
    }
}
