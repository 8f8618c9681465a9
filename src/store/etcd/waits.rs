//! Who waits on a wake-up connection, whom each of them waits for, and what is heard of that.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::keys::{Name, first_fence, is_ours, said};
use super::messages::{self, Done, Key, MOST_OPS, Op, Told, Txn, most_of};
use super::proto::Message;
use crate::clock::Moment;
use crate::store::{BLOCK, Notice};
use crate::token::Token;

#[derive(Default)]
pub(super) struct Waits {
    waits: HashMap<Token, Wait>,
    /// The number of the last watch, and those that nobody needs any more.
    last: i64,
    over: Vec<i64>,
}

/// A place in a queue.
pub(super) struct Wait {
    pub(super) name: Vec<u8>,
    pub(super) key: Vec<u8>,
    /// The revisions that created it, and last wrote it.
    pub(super) created: u64,
    pub(super) modified: u64,
    /// For so long it is handed the lock, ...
    pub(super) span: Duration,
    /// ... from this moment on at the earliest: its ear was renewed later, and after that the key was as it
    /// is. Whoever passes over it has waited since then, or asked it since then.
    pub(super) since: Moment,
    /// The key that it waits for; `None` once that is gone.
    pub(super) ahead: Option<Vec<u8>>,
    /// Whoever that is has the lock, and this is the next.
    pub(super) is_next: bool,
    pub(super) watch: i64,
    /// The first revision of which the watch tells.
    pub(super) from: u64,
}

/// What is heard for a waiter.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Heard {
    Told(Notice),
    /// Who stood before it is gone, and was not known to have the lock; or may be gone.
    Asks(Question),
}

/// Who stands before a place now.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Question {
    token: Token,
    watch: i64,
    /// The watch will tell, but late.
    is_early: bool,
    pub(super) txn: Txn,
}

impl Waits {
    /// A place waits from now on, or for another one than before, as was seen at a revision. Tells what to
    /// send for it.
    pub(super) fn follow(&mut self, token: Token, wait: Wait, revision: u64) -> Vec<Message> {
        if let Some(known) = self.waits.get_mut(&token)
            && (known.created, &known.ahead) == (wait.created, &wait.ahead)
        {
            (known.is_next, known.modified, known.since) =
                (wait.is_next, wait.modified, wait.since);
            return Vec::new();
        }
        self.forget(token);
        self.last += 1;
        let ahead = wait.ahead.as_deref().unwrap_or_default();
        let mut messages: Vec<_> = self.over.drain(..).map(messages::unwatch).collect();
        let from = revision + 1;
        messages.push(messages::watch(self.last, ahead, from));
        self.waits.insert(token, Wait { watch: self.last, from, ..wait });
        messages
    }

    pub(super) fn forget(&mut self, token: Token) {
        self.over.extend(self.waits.remove(&token).map(|wait| wait.watch));
    }

    /// The place of a token that was told nothing is another one's from now on.
    pub(super) fn rename(&mut self, from: Token, to: Token) -> bool {
        if self.waits.get(&from).is_none_or(|wait| wait.ahead.is_none()) {
            return false;
        }
        self.waits.remove(&from).and_then(|wait| self.waits.insert(to, wait));
        true
    }

    /// The looks at all places, as the ear is renewed: each at a key that anybody may ask for, and behind it
    /// at those of these tokens. A place that is not looked at is handed the lock for less, and does not
    /// answer whoever asks whether it lives.
    pub(super) fn looks(&self, any: &[u8]) -> Vec<(Vec<Token>, Txn)> {
        let waits = self.waits.iter().filter(|(_, wait)| wait.ahead.is_some());
        let places: Vec<_> = waits.map(|(token, wait)| (*token, &*wait.key)).collect();
        let most = most_of(places.iter().map(|(_, key)| *key)).min(MOST_OPS - 1);
        let look = |places: &[(Token, &[u8])]| {
            let any = Txn::default().then(Op::get(any));
            let looks = places.iter().map(|(_, key)| Op::get(key));
            (places.iter().map(|(token, _)| *token).collect(), looks.fold(any, Txn::then))
        };
        match places.is_empty() {
            true => vec![look(&[])],
            false => places.chunks(most).map(look).collect(),
        }
    }

    pub(super) fn names(&self) -> HashSet<Vec<u8>> {
        self.waits.values().map(|wait| Name::of_key(&wait.key).all).collect()
    }

    /// How the place of a token stands in a look at this revision, begun after the ear was renewed at
    /// `since`. Tells what its waiter has to know: it is asked whether it lives, or its place is gone.
    pub(super) fn looked(
        &mut self,
        token: Token,
        (key, revision): (Option<&Key>, u64),
        since: Moment,
    ) -> Option<Notice> {
        let wait = self.waits.get_mut(&token).filter(|wait| wait.modified <= revision)?;
        let place = key.filter(|key| key.created == wait.created);
        if place.is_some_and(|key| key.modified == wait.modified) {
            wait.since = wait.since.max(since);
            return None;
        }
        // One that it has written itself is known in a moment.
        let is_asked =
            |key: &Key| said(&key.value, key.created).is_some_and(|it| it.asked.is_some());
        let has_to_know = place.is_none_or(is_asked);
        has_to_know.then(|| Notice::Free { name: wait.name.clone(), token })
    }

    pub(super) fn of(&self, name: &[u8]) -> Option<Token> {
        self.waits.iter().find(|(_, wait)| wait.name == name).map(|(token, _)| *token)
    }

    /// What a message of the server says to whom. `Err` if no more will be told.
    pub(super) fn hear(
        &mut self,
        told: &Told,
        validity: impl Fn(Moment, Duration) -> Option<(u64, Duration)>,
    ) -> Result<Option<Heard>, String> {
        // Refused before it had a number. One that is over for another reason began too long ago.
        let has_reason = !told.why.is_empty() && !told.why.contains("compacted");
        if told.is_over && (told.watch < 0 || has_reason) {
            return Err(told.why.clone());
        }
        let waits = |wait: &Wait| wait.watch == told.watch && wait.ahead.is_some();
        let Some((token, wait)) = self.waits.iter_mut().find(|(_, wait)| waits(wait)) else {
            return Ok(None);
        };
        let (token, watch) = (*token, wait.watch);
        let ask = |wait: &Wait, ahead: &[u8], is_early| {
            let all = Name::of_key(ahead).all;
            let txn = Txn::default().then(Op::last_two(&all, wait.created));
            Heard::Asks(Question { token, watch, is_early, txn: txn.then(Op::first(&all)) })
        };
        if !told.is_gone && !told.is_over {
            // Of what was done before a watch began, a server tells up to 100 ms later.
            let is_late = told.begun.is_some_and(|done| done >= wait.from);
            return Ok(wait.ahead.as_ref().filter(|_| is_late).map(|it| ask(wait, it, true)));
        }
        let gone = wait.ahead.take().filter(|_| told.is_gone && !wait.is_next);
        Ok(Some(match gone {
            Some(ahead) => ask(wait, &ahead, false),
            None => Heard::Told(wait.told(token, told.is_gone, validity)),
        }))
    }

    /// What the answer to a question says, if it still matters: the lock is its token's, or there is
    /// somebody else to watch. Without an answer, that is for a take to find out.
    pub(super) fn answered(
        &mut self,
        question: &Question,
        done: Option<Done>,
        validity: impl Fn(Moment, Duration) -> Option<(u64, Duration)>,
    ) -> (Option<Notice>, Vec<Message>) {
        let (token, is_early) = (question.token, question.is_early);
        // The watch may have told meanwhile.
        let is_it =
            |wait: &&mut Wait| wait.watch == question.watch && wait.ahead.is_some() == is_early;
        let Some(wait) = self.waits.get_mut(&token).filter(is_it) else {
            return (None, Vec::new());
        };
        if is_early && done.is_none() {
            return (None, Vec::new());
        }
        let mut done = done.unwrap_or_default();
        let (ours, holder) = (done.part(0).keys, done.part(1).first());
        let is_here = ours.first().is_some_and(|key| key.created == wait.created);
        let is_lock = ours.iter().chain(&holder).all(is_ours);
        if let Some(ahead) = ours.get(1).filter(|_| is_here && is_lock) {
            let is_next = holder.is_some_and(|holder| holder.key == ahead.key);
            let ahead = Some(ahead.key.clone());
            let (name, key) = (wait.name.clone(), wait.key.clone());
            let wait = Wait { name, key, ahead, is_next, ..*wait };
            return (None, self.follow(token, wait, done.revision));
        }
        wait.ahead = None;
        (Some(wait.told(token, is_here && ours.len() == 1, validity)), Vec::new())
    }
}

impl Wait {
    fn told(
        &self,
        token: Token,
        is_first: bool,
        validity: impl Fn(Moment, Duration) -> Option<(u64, Duration)>,
    ) -> Notice {
        let name = self.name.clone();
        let fence = first_fence(self.created).filter(|_| is_first);
        match fence.zip(validity(self.since, self.span)) {
            Some((fence, (server, span))) => {
                Notice::Granted { name, token, fence, block: BLOCK, server, span }
            }
            None => Notice::Free { name, token },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys;
    use super::super::messages::Part;
    use super::*;

    const SPAN: Duration = Duration::from_secs(1);

    /// A place behind a holder, and what it sends.
    fn follow(waits: &mut Waits, token: Token) -> usize {
        let (name, ahead) = (b"n".to_vec(), Some(b"ahead".to_vec()));
        let (key, since, watch, from) = (b"own".to_vec(), Moment::ZERO, 0, 0);
        let wait = Wait {
            name,
            key,
            created: 7,
            modified: 9,
            span: SPAN,
            since,
            ahead,
            is_next: true,
            watch,
            from,
        };
        waits.follow(token, wait, 9).len()
    }

    #[test]
    fn c10_a_renewal_looks_at_all_places_however_many_wait() {
        let mut waits = Waits::default();
        assert_eq!(waits.looks(b"any").len(), 1, "it says that a majority answers");
        let tokens: HashSet<_> = (0..300).map(|_| Token::random().unwrap()).collect();
        tokens.iter().for_each(|token| _ = follow(&mut waits, *token));
        let looks = waits.looks(b"any");
        assert!(looks.iter().all(|(tokens, _)| tokens.len() < MOST_OPS));
        let looked: Vec<_> = looks.into_iter().flat_map(|(tokens, _)| tokens).collect();
        assert_eq!((looked.len(), looked.into_iter().collect::<HashSet<_>>()), (300, tokens));
    }

    fn over(watch: i64, why: &str) -> Told {
        Told { watch, begun: None, is_over: true, why: why.to_owned(), is_gone: false }
    }

    #[test]
    fn c10_a_watch_that_is_over_is_made_anew_by_those_who_waited_for_it() {
        let (mut waits, token) = (Waits::default(), Token::random().unwrap());
        let validity = |_, span| Some((0, span));
        assert_eq!(follow(&mut waits, token), 1);
        assert_eq!(follow(&mut waits, token), 0, "it is watched");
        for why in ["", "etcdserver: mvcc: required revision has been compacted"] {
            let number = waits.last;
            let free = Notice::Free { name: b"n".to_vec(), token };
            assert_eq!(waits.hear(&over(number, why), validity), Ok(Some(Heard::Told(free))));
            // The end of the one before it, and a new one.
            assert_eq!(follow(&mut waits, token), 2);
        }
    }

    /// What a question finds: our place and who stands before it, and who is first.
    fn found(ours: &[&[u8]], first: &[u8]) -> Option<Done> {
        let value = keys::value(Token::random().unwrap(), SPAN, BLOCK, None);
        let key = |(key, created): (&[u8], u64)| Key {
            key: key.to_vec(),
            created,
            value: value.clone(),
            ..Key::default()
        };
        let places = ours.iter().copied().zip([7, 6]).map(key).collect();
        let parts = [places, vec![key((first, 5))]];
        let part = |keys: Vec<Key>| Part { count: keys.len() as u64, keys, ..Part::default() };
        Some(Done { revision: 20, parts: parts.map(part).into(), ..Done::default() })
    }

    #[test]
    fn c10_a_watch_that_begins_late_is_not_waited_for() {
        let validity = |_, span| Some((0, span));
        let begun = |watch, done| Told { watch, begun: Some(done), ..Told::default() };
        for done in [9, 10, 12] {
            let (mut waits, token) = (Waits::default(), Token::random().unwrap());
            follow(&mut waits, token);
            let heard = waits.hear(&begun(1, done), validity).unwrap();
            let Some(Heard::Asks(question)) = heard else {
                assert!(done == 9, "what was done since may have been the end of who is ahead");
                continue;
            };
            // Nothing was heard, or nothing has changed: it is still watched.
            assert_eq!(waits.answered(&question, None, validity), (None, Vec::new()));
            let same = found(&[b"own", b"ahead"], b"ahead");
            assert_eq!(waits.answered(&question, same, validity), (None, Vec::new()));
            let alone = || found(&[b"own"], b"own");
            if done == 10 {
                let (notice, _) = waits.answered(&question, alone(), validity);
                assert!(matches!(notice, Some(Notice::Granted { .. })), "{notice:?}");
            }
            let gone = Told { watch: 1, is_gone: true, ..Told::default() };
            let heard = waits.hear(&gone, validity).unwrap();
            assert_eq!(heard.is_some(), done == 12, "it is granted once");
            assert_eq!(waits.answered(&question, alone(), validity), (None, Vec::new()));
        }
    }

    #[test]
    fn c13_a_watch_that_is_refused_ends_them_all() {
        let (mut waits, token) = (Waits::default(), Token::random().unwrap());
        follow(&mut waits, token);
        for number in [-1, 1] {
            let refused = over(number, "etcdserver: permission denied");
            let why = waits.hear(&refused, |_, span| Some((0, span))).unwrap_err();
            assert!(why.contains("permission denied"));
        }
    }
}
