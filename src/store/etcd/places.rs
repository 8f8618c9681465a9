//! What this client knows of its own keys: a token's place, and the lease that it is under.

use std::collections::BTreeSet;
use std::collections::hash_map::{Entry, HashMap};
use std::time::Duration;

use super::keys::Name;
use super::leases::Lease;
use crate::clock::Moment;
use crate::sync::Mutex;
use crate::token::Token;

#[derive(Clone)]
pub(super) struct Held {
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    /// The revisions that created the key and last wrote it; 0 while it is not known to be there.
    pub(super) created: u64,
    pub(super) modified: u64,
    /// `None` while it is under an ear.
    pub(super) lease: Option<Lease>,
    /// The ear that it is under; 0 for none.
    pub(super) ear: i64,
    /// How many waiters stand before it at most.
    pub(super) rank: u32,
    /// A request is under way, or nothing was heard of one: what it is under is not known.
    pub(super) is_doubtful: bool,
    /// When what was promised is over: nobody relies on it any more. A waiter is promised nothing.
    pub(super) ends: Moment,
    /// The store has forgotten it by then if nothing more is done for it.
    pub(super) until: Moment,
}

impl Held {
    /// One that nothing is known of yet.
    pub(super) fn new(key: Vec<u8>) -> Held {
        Held {
            key,
            value: Vec::new(),
            created: 0,
            modified: 0,
            lease: None,
            ear: 0,
            rank: u32::MAX,
            is_doubtful: false,
            ends: Moment::NEVER,
            until: Moment::ZERO,
        }
    }

    /// The same while something is under way that would put it under this lease.
    pub(super) fn in_doubt(&self, lease: Lease) -> Held {
        let until = Moment::now().plus(lease.span).plus(LATE);
        Held { is_doubtful: true, ear: 0, until, ..self.clone() }
    }
}

#[derive(Default)]
pub(super) struct Places(Mutex<Known>);

#[derive(Default)]
struct Known {
    held: HashMap<Token, Held>,
    /// Of how many tokens a key is, or may be.
    keys: HashMap<Vec<u8>, usize>,
    /// By when what was promised is over.
    ends: BTreeSet<(Moment, [u8; 16])>,
    /// So many there were when those that have ended were last removed.
    before: usize,
}

impl Places {
    pub(super) fn get(&self, token: Token) -> Option<Held> {
        self.0.lock().held.get(&token).cloned()
    }

    pub(super) fn set(&self, token: Token, held: &Held) {
        let mut known = self.0.lock();
        known.put(token, Some(held.clone()));
        if known.held.len() > 64 + 2 * known.before {
            let now = Moment::now();
            known.held.retain(|_, held| held.until > now);
            known.keys.clear();
            let Known { held, keys, .. } = &mut *known;
            held.values().for_each(|held| *keys.entry(held.key.clone()).or_default() += 1);
            known.before = known.held.len();
        }
    }

    /// A key for a token that has none: the first of its client's that is not in use, so far as is known,
    /// but for those that were tried.
    pub(super) fn begin(&self, token: Token, name: &Name, tried: usize) -> Held {
        let mut known = self.0.lock();
        let mut keys = (tried..).map(|number| name.key(token, number));
        let free = keys.find(|key| !known.keys.contains_key(key)).unwrap_or_default();
        let held = Held::new(free);
        known.put(token, Some(held.clone()));
        held
    }

    /// Another process goes on with a grant, and ends it unheard: its key is tried again.
    pub(super) fn lend(&self, key: &[u8]) {
        self.0.lock().keys.remove(key);
    }

    /// Nothing came of a request: what is known is what was known before it. An earlier copy that took a
    /// place of its own may still be on its way, or have done so.
    pub(super) fn restore(&self, token: Token, before: &Held) {
        if before.created == 0 && !before.is_doubtful {
            self.remove(token);
        } else {
            self.set(token, before);
        }
    }

    pub(super) fn remove(&self, token: Token) -> Option<Held> {
        self.0.lock().put(token, None)
    }

    /// What a token waited for was handed to it, until then.
    pub(super) fn promise(&self, token: Token, ends: Moment) {
        let mut known = self.0.lock();
        let waits = |held: &&Held| held.lease.is_none() || held.is_doubtful;
        if let Some(held) = known.held.get(&token).filter(waits).cloned() {
            known.put(token, Some(Held { ends, ..held }));
        }
    }

    /// When the next promise is over.
    pub(super) fn due(&self) -> Moment {
        self.0.lock().ends.first().map_or(Moment::NEVER, |(ends, _)| *ends)
    }

    /// Those whose promises are over, as they were, some at a time. Each is told once, and no renewal that
    /// is under way counts any more.
    pub(super) fn take_ended(&self, now: Moment, most: usize) -> Vec<(Token, Held)> {
        let mut known = self.0.lock();
        let mut ended = Vec::new();
        while ended.len() < most
            && let Some((_, bits)) = known.ends.first().copied().filter(|(ends, _)| *ends <= now)
        {
            known.ends.pop_first();
            let token = Token::from_bits(bits);
            if let Some(held) = known.held.get_mut(&token) {
                let before = Held { is_doubtful: true, ends: Moment::NEVER, ..held.clone() };
                ended.push((token, std::mem::replace(held, before)));
            }
        }
        ended
    }

    /// Changes what is known of a key as it was seen; false if it was written since, or may have been.
    pub(super) fn change(
        &self,
        (token, seen): (Token, &Held),
        change: impl FnOnce(&mut Held),
    ) -> bool {
        let mut known = self.0.lock();
        let is_it = |held: &&Held| held.modified == seen.modified && !held.is_doubtful;
        let Some(mut held) = known.held.get(&token).filter(is_it).cloned() else { return false };
        change(&mut held);
        known.put(token, Some(held));
        true
    }

    /// What is under this ear, or may be, ends with it.
    pub(super) fn ear_ended(&self, ear: i64) {
        let until = Moment::now().plus(LATE);
        let mut known = self.0.lock();
        let gone = known.held.values_mut().filter(|held| held.ear == ear);
        gone.for_each(|held| held.until = held.until.min(until));
    }

    /// What is left is for the store to end.
    pub(super) fn leave_ends(&self) {
        self.0.lock().ends.clear();
    }

    /// Whose the place is that was created with this revision among keys that begin so.
    pub(super) fn created(&self, all: &[u8], created: u64) -> Option<(Token, Held)> {
        let known = self.0.lock();
        let is_it = |held: &Held| held.created == created && held.key.starts_with(all);
        let mut found = known.held.iter().filter(|(_, held)| is_it(held));
        found.next().map(|(token, held)| (*token, held.clone()))
    }
}

impl Known {
    fn put(&mut self, token: Token, held: Option<Held>) -> Option<Held> {
        let ends = held.as_ref().map_or(Moment::NEVER, |held| held.ends);
        let known = self.held.get(&token).map(|held| &held.key);
        let is_same = known == held.as_ref().map(|held| &held.key);
        if let Some(held) = held.as_ref().filter(|_| !is_same) {
            *self.keys.entry(held.key.clone()).or_default() += 1;
        }
        let before = match held {
            Some(held) => self.held.insert(token, held),
            None => self.held.remove(&token),
        };
        if let Some(before) = &before {
            if !is_same && let Entry::Occupied(mut users) = self.keys.entry(before.key.clone()) {
                *users.get_mut() -= 1;
                if *users.get() == 0 {
                    users.remove();
                }
            }
            self.ends.remove(&(before.ends, token.bits()));
        }
        if ends != Moment::NEVER {
            self.ends.insert((ends, token.bits()));
        }
        before
    }
}

/// No request is on its way for longer, and no lease of ours that nobody renews goes on for longer than
/// this after it would have ended.
pub(super) const LATE: Duration = Duration::from_secs(600);
