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
pub(super) struct OwnKey {
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

impl OwnKey {
    /// One that nothing is known of yet.
    pub(super) fn new(key: Vec<u8>) -> OwnKey {
        OwnKey {
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
    pub(super) fn in_doubt(&self, lease: Lease) -> OwnKey {
        let until = Moment::now().plus(lease.span).plus(LATE);
        OwnKey { is_doubtful: true, ear: 0, until, ..self.clone() }
    }
}

#[derive(Default)]
pub(super) struct OwnKeys(Mutex<Known>);

#[derive(Default)]
struct Known {
    own: HashMap<Token, OwnKey>,
    /// Of how many tokens a key is, or may be.
    keys: HashMap<Vec<u8>, usize>,
    /// By when what was promised is over.
    ends: BTreeSet<(Moment, [u8; 16])>,
    /// So many there were when those that have ended were last removed.
    before: usize,
}

impl OwnKeys {
    pub(super) fn get(&self, token: Token) -> Option<OwnKey> {
        self.0.lock().own.get(&token).cloned()
    }

    pub(super) fn set(&self, token: Token, own: &OwnKey) {
        let mut known = self.0.lock();
        known.put(token, Some(own.clone()));
        if known.own.len() > 64 + 2 * known.before {
            let now = Moment::now();
            known.own.retain(|_, own| own.until > now);
            known.keys.clear();
            let Known { own, keys, .. } = &mut *known;
            own.values().for_each(|own| *keys.entry(own.key.clone()).or_default() += 1);
            known.before = known.own.len();
        }
    }

    /// A key for a token that has none: the first of its client's that is not in use, so far as is known,
    /// but for those that were tried.
    pub(super) fn begin(&self, token: Token, name: &Name, tried: usize) -> OwnKey {
        let mut known = self.0.lock();
        let mut keys = (tried..).map(|number| name.key(token, number));
        let free = keys.find(|key| !known.keys.contains_key(key)).unwrap_or_default();
        let own = OwnKey::new(free);
        known.put(token, Some(own.clone()));
        own
    }

    /// Another process goes on with a grant, and ends it unheard: its key is tried again.
    pub(super) fn lend(&self, key: &[u8]) {
        self.0.lock().keys.remove(key);
    }

    /// Nothing came of a request: what is known is what was known before it. An earlier copy that took a
    /// place of its own may still be on its way, or have done so.
    pub(super) fn restore(&self, token: Token, before: &OwnKey) {
        if before.created == 0 && !before.is_doubtful {
            self.remove(token);
        } else {
            self.set(token, before);
        }
    }

    pub(super) fn remove(&self, token: Token) -> Option<OwnKey> {
        self.0.lock().put(token, None)
    }

    /// What a token waited for was handed to it, until then.
    pub(super) fn promise(&self, token: Token, ends: Moment) {
        let mut known = self.0.lock();
        let waits = |own: &&OwnKey| own.lease.is_none() || own.is_doubtful;
        if let Some(own) = known.own.get(&token).filter(waits).cloned() {
            known.put(token, Some(OwnKey { ends, ..own }));
        }
    }

    /// When the next promise is over.
    pub(super) fn due(&self) -> Moment {
        self.0.lock().ends.first().map_or(Moment::NEVER, |(ends, _)| *ends)
    }

    /// Those whose promises are over, as they were, some at a time. Each is told once, and no renewal that
    /// is under way counts any more.
    pub(super) fn take_ended(&self, now: Moment, most: usize) -> Vec<(Token, OwnKey)> {
        let mut known = self.0.lock();
        let mut ended = Vec::new();
        while ended.len() < most
            && let Some((_, bits)) = known.ends.first().copied().filter(|(ends, _)| *ends <= now)
        {
            known.ends.pop_first();
            let token = Token::from_bits(bits);
            if let Some(own) = known.own.get_mut(&token) {
                let before = OwnKey { is_doubtful: true, ends: Moment::NEVER, ..own.clone() };
                ended.push((token, std::mem::replace(own, before)));
            }
        }
        ended
    }

    /// Changes what is known of a key as it was seen; false if it was written since, or may have been.
    pub(super) fn change(
        &self,
        (token, seen): (Token, &OwnKey),
        change: impl FnOnce(&mut OwnKey),
    ) -> bool {
        let mut known = self.0.lock();
        let is_it = |own: &&OwnKey| own.modified == seen.modified && !own.is_doubtful;
        let Some(mut own) = known.own.get(&token).filter(is_it).cloned() else { return false };
        change(&mut own);
        known.put(token, Some(own));
        true
    }

    /// What is under this ear, or may be, ends with it.
    pub(super) fn ear_ended(&self, ear: i64) {
        let until = Moment::now().plus(LATE);
        let mut known = self.0.lock();
        let gone = known.own.values_mut().filter(|own| own.ear == ear);
        gone.for_each(|own| own.until = own.until.min(until));
    }

    /// What is left is for the store to end.
    pub(super) fn leave_ends(&self) {
        self.0.lock().ends.clear();
    }

    /// Whose the place is that was created with this revision among keys that begin so.
    pub(super) fn created(&self, all: &[u8], created: u64) -> Option<(Token, OwnKey)> {
        let known = self.0.lock();
        let is_it = |own: &OwnKey| own.created == created && own.key.starts_with(all);
        let mut found = known.own.iter().filter(|(_, own)| is_it(own));
        found.next().map(|(token, own)| (*token, own.clone()))
    }
}

impl Known {
    fn put(&mut self, token: Token, own: Option<OwnKey>) -> Option<OwnKey> {
        let ends = own.as_ref().map_or(Moment::NEVER, |own| own.ends);
        let known = self.own.get(&token).map(|own| &own.key);
        let is_same = known == own.as_ref().map(|own| &own.key);
        if let Some(own) = own.as_ref().filter(|_| !is_same) {
            *self.keys.entry(own.key.clone()).or_default() += 1;
        }
        let before = match own {
            Some(own) => self.own.insert(token, own),
            None => self.own.remove(&token),
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
