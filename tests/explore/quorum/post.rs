//! What is on its way.

use super::setup::NODES;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Kind {
    Take,
    Raise,
    Fill,
    Give,
}

/// The requests of one attempt.
#[derive(Clone, Copy, Default)]
pub(super) struct Post {
    pub(super) raise_to: u8,
    /// The fence that the attempt has succeeded with.
    pub(super) fence: u8,
    pub(super) takes: [Letter; NODES],
    pub(super) raises: [Letter; NODES],
    pub(super) fills: [Letter; NODES],
    pub(super) gives: [Letter; NODES],
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Letter {
    #[default]
    Unsent,
    Sent,
    Carried,
}

impl Post {
    pub(super) fn letters(&mut self, kind: Kind) -> &mut [Letter; NODES] {
        match kind {
            Kind::Take => &mut self.takes,
            Kind::Raise => &mut self.raises,
            Kind::Fill => &mut self.fills,
            Kind::Give => &mut self.gives,
        }
    }

    /// How far it has come with one node.
    pub(super) fn column(&self, n: usize) -> u8 {
        let letters = [self.takes, self.raises, self.gives, self.fills];
        letters.iter().rev().fold(0, |column, letters| column << 2 | letters[n] as u8)
    }
}
