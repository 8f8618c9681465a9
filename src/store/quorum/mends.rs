//! Leases that a node lacks although it could have them: in a crowd, a loser had it there for a
//! moment; or it has lost its data, or its clock has jumped. If one more node fails, the lease is
//! lost with it.
//!
//! A node that is told to store one does so only if the lock is free there, with its fence: the next
//! holder there gets a larger one, as on the nodes that voted. It counts neither among the nodes by
//! which the attempt succeeded, nor for the extension that found the lease missing.
//!
//! A node that is told when the lease was given up meanwhile would keep it for a ttl. So when a lease
//! is given up or passed on, the nodes that were told to store it are told to give it up again. Before
//! a lease is passed on, or what is left of it is shortened, the caller waits until no mend of it is
//! under way.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use super::QuorumStore;
use super::question::Question;
use super::scatter::Scatter;
use crate::clock::{Deadline, Moment};
use crate::store::outbox::Concern;
use crate::store::{Identity, Kept, Lane, Reach, Request};
use crate::sync::Mutex;
use crate::token::Token;

/// Before the first try, and twice as long before each further one. Losers are gone in a moment; a
/// node where somebody else stays would be asked in vain.
const PAUSE: Duration = Duration::from_millis(50);
/// So many tries in six seconds: on a machine that is that busy, the first four may all come too early. After
/// that, the next extension notices it again.
const TRIES: u32 = 7;
/// How long a lease is remembered at least.
const SPAN: Duration = Duration::from_secs(1);
/// At once.
const MOST: usize = 32;

#[derive(Default)]
pub(super) struct Mends(Mutex<HashMap<Token, Mend>>);

struct Mend {
    /// When it is tried next; never where every node has it by now, and while it is tried.
    next: Moment,
    pause: Duration,
    /// When it is forgotten.
    until: Moment,
    is_tried: bool,
    /// A call has won it, or a lease of it was extended: it is one, though the keeper may not know yet.
    is_won: bool,
    /// It was given up while it was tried.
    is_given: bool,
    /// The nodes that were told to store it.
    told: Vec<usize>,
}

impl Mend {
    /// It is tried again, however late.
    fn has_tries_left(&self) -> bool {
        self.next < Moment::NEVER && self.pause < PAUSE * (1 << TRIES)
    }

    fn due(&self) -> Moment {
        if self.has_tries_left() { self.next } else { self.next.min(self.until) }
    }
}

impl Mends {
    /// A node lacks a token that may be a lease.
    pub(super) fn note(&self, token: Token) {
        self.change(token, |_| {});
    }

    /// A node lacks a lease; these nodes were told to store it, and may do so yet.
    pub(super) fn note_won(&self, token: Token, told: &[usize]) {
        self.change(token, |mend| {
            mend.is_won = true;
            mend.told.extend(told);
        });
    }

    fn change(&self, token: Token, with: impl FnOnce(&mut Mend)) {
        let mut mends = self.0.lock();
        with(mends.entry(token).or_insert_with(|| {
            let (now, (is_tried, is_won, is_given, told)) = (Moment::now(), Default::default());
            let (next, pause, until) = (now.plus(PAUSE), PAUSE, now.plus(SPAN));
            Mend { next, pause, until, is_tried, is_won, is_given, told }
        }));
    }

    /// When one is to be tried, or forgotten.
    pub(super) fn due(&self) -> Option<Moment> {
        self.0.lock().values().map(Mend::due).min()
    }

    /// Those that are to be tried now.
    fn begin(&self, now: Moment) -> Vec<Token> {
        let mut mends = self.0.lock();
        mends.retain(|_, mend| mend.until > now || mend.has_tries_left());
        let due = mends.iter_mut().filter(|(_, mend)| mend.next <= now).take(MOST);
        due.map(|(token, mend)| {
            (mend.next, mend.is_tried) = (Moment::NEVER, true);
            *token
        })
        .collect()
    }

    /// Before a node is told to store it. False where it was given up meanwhile.
    fn tells(&self, token: Token, node: usize) -> bool {
        let mut mends = self.0.lock();
        let mend = mends.get_mut(&token).filter(|mend| !mend.is_given);
        mend.map(|mend| mend.told.push(node)).is_some()
    }

    /// Returns where it has to be given up. `is_over`: every node has it, or it is nobody's any more.
    fn tried(&self, token: Token, is_over: bool) -> Vec<usize> {
        let mut mends = self.0.lock();
        let Entry::Occupied(mut mend) = mends.entry(token) else { return Vec::new() };
        if mend.get().is_given || (is_over && mend.get().told.is_empty()) {
            return mend.remove().told;
        }
        let (mend, now) = (mend.get_mut(), Moment::now());
        mend.is_tried = false;
        if is_over {
            // A request that gives it up may have been sent before, and come to its end later.
            mend.until = now.plus(SPAN);
        } else {
            mend.pause *= 2;
            mend.next = now.plus(mend.pause);
        }
        Vec::new()
    }

    /// It is relied on by nobody; or not yet, where it was only just won.
    fn not_held(&self, token: Token) {
        let is_won = self.0.lock().get(&token).is_some_and(|mend| mend.is_won);
        self.tried(token, !is_won);
    }

    fn is_tried(&self, token: Token) -> bool {
        self.0.lock().get(&token).is_some_and(|mend| mend.is_tried)
    }

    /// A token was given up. Returns where that has to be done again.
    pub(super) fn given(&self, token: Token) -> Vec<usize> {
        let mut mends = self.0.lock();
        if let Some(mend) = mends.get_mut(&token).filter(|mend| mend.is_tried) {
            // The thread that tries it gives it up once more after that.
            mend.is_given = true;
            return mend.told.clone();
        }
        mends.remove(&token).map(|mend| mend.told).unwrap_or_default()
    }

    /// A lease was shortened, and is extended no more. Returns where it has to be given up, of the
    /// nodes that were told to store it: all but those that have it. While it is tried that is not
    /// known, and a majority must keep it.
    fn shortened(&self, token: Token, has_it: impl Fn(usize) -> bool) -> Vec<usize> {
        let mut mends = self.0.lock();
        let Some(mend) = mends.get_mut(&token).filter(|mend| !mend.is_tried) else {
            return Vec::new();
        };
        mend.told.extract_if(.., |node| !has_it(*node)).collect()
    }

    /// No node is told any more.
    pub(super) fn forget(&self) {
        self.0.lock().clear();
    }
}

impl QuorumStore {
    /// Before a lease that nobody relies on is passed on or shortened: a request that mends it must
    /// not arrive after that. Half of the time is left for the request itself.
    pub(super) fn await_mends(&self, requests: &[Request<'_>], deadline: Deadline) {
        for request in requests {
            if let Request::Extend { token, reach: Reach::Pass(_) | Reach::Set, .. } = *request {
                let until = Deadline::after(deadline.left() / 2);
                while self.mends.is_tried(token) && !until.has_passed() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }

    /// Remembers leases that nodes lack, and gives up the copies that nodes were told to store
    /// while the lease was released or passed on.
    pub(super) fn remember(&self, questions: &[Question<'_>]) {
        for question in questions {
            if let Some(token) = question.lacking() {
                self.mends.note_won(token, question.may_store());
            }
        }
        for question in questions {
            if let Some((name, token, ttl)) = question.shortened() {
                let told = self.mends.shortened(token, |node| question.has_extended(node));
                self.give_again(&told, (name, token, ttl));
            }
        }
        for (name, token, ttl) in questions.iter().filter_map(Question::given) {
            self.give_again(&self.mends.given(token), (name, token, ttl));
        }
    }

    pub(super) fn give_again(&self, nodes: &[usize], (name, token, ttl): (&[u8], Token, Duration)) {
        for index in nodes {
            if let Some(node) = self.nodes().get(*index) {
                node.owe(&[Request::Give { name, token, fence: 0, ttl }], Concern::AnyReply);
            }
        }
    }

    /// Asks all nodes for the leases that are to be mended, and tells those that lack one.
    pub(super) fn mend_due(&self, held: &dyn Fn(&[Token]) -> Vec<Kept>, deadline: Deadline) {
        let tokens = self.mends.begin(Moment::now());
        if tokens.is_empty() {
            return;
        }
        let leases = held(&tokens);
        let is_held = |token| leases.iter().any(|lease| lease.identity.token == token);
        for token in tokens.into_iter().filter(|token| !is_held(*token)) {
            self.mends.not_held(token);
        }
        let (sent, nodes) = (Moment::now(), self.nodes());
        let question = |lease| Question::new(extension(lease), 0, nodes.len(), sent);
        let mut questions: Vec<_> = leases.iter().map(question).collect();
        let scatter = || Scatter { is_patient: true, ..self.scatter(Lane::Keeper, deadline) };
        // All that are asked are waited for, and short leases have to be renewed meanwhile.
        scatter().run(&mut questions, |question, node| {
            nodes[node].is_ready().then(|| question.ballot())
        });
        // Only now: a majority has just said that it has the lease.
        scatter().run(&mut questions, |question, node| {
            let token = question.lacking()?;
            question.fill(node).filter(|_| self.mends.tells(token, node))
        });
        for (lease, question) in leases.iter().zip(questions) {
            let Identity { name, token, ttl, .. } = &lease.identity;
            let told = self.mends.tried(*token, question.is_on_all());
            self.give_again(&told, (name, *token, *ttl));
        }
    }
}

fn extension(Kept { identity, span }: &Kept) -> Request<'_> {
    let Identity { name, token, fence, .. } = identity;
    Request::Extend { name, token: *token, fence: *fence, ttl: *span, reach: Reach::Grow }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        "00112233445566778899aabbccddeeff".parse().unwrap()
    }

    /// Noted, and begun.
    fn begun() -> Mends {
        let mends = Mends::default();
        mends.note(token());
        assert_eq!(mends.begin(Moment::now()), []);
        assert_eq!(mends.begin(Moment::now().plus(PAUSE)), [token()]);
        mends
    }

    #[test]
    fn what_is_mended_or_over_is_not_tried_again_and_what_failed_is_for_a_while() {
        let mends = begun();
        let soon = Moment::now().plus(SPAN / 2);
        assert_eq!(mends.begin(soon), []);
        assert!(mends.tried(token(), false).is_empty());
        assert_eq!(mends.begin(Moment::now()), []);
        assert_eq!(mends.begin(soon), [token()]);
        assert!(mends.tells(token(), 2));
        assert!(mends.tried(token(), true).is_empty());
        assert_eq!(mends.begin(soon), []);
        // An answer that was late tells what was known before.
        mends.note(token());
        assert_eq!(mends.begin(soon), []);
        assert_eq!(mends.begin(soon.plus(SPAN)), []);
        assert_eq!(mends.due(), None);

        let mends = begun();
        assert!(mends.is_tried(token()));
        assert!(mends.tried(token(), true).is_empty());
        assert!(!mends.is_tried(token()));
        assert_eq!(mends.due(), None);
        let mends = begun();
        assert!(mends.tried(token(), true).is_empty());
        assert_eq!(mends.due(), None);
    }

    /// Those that say that they have it are the majority that it stands on.
    #[test]
    fn a_lease_that_is_shortened_is_given_up_where_it_may_be_stored_later() {
        let mends = Mends::default();
        mends.note_won(token(), &[1, 2]);
        assert_eq!(mends.shortened(token(), |node| node == 1), [2]);
        assert_eq!(mends.given(token()), [1]);
        let mends = begun();
        assert!(mends.tells(token(), 2));
        assert!(mends.shortened(token(), |_| false).is_empty(), "it is tried");
    }

    /// The keeper may come before the call that has won it has returned.
    #[test]
    fn a_lease_that_nobody_relies_on_yet_is_tried_again() {
        let mends = begun();
        mends.not_held(token());
        assert_eq!(mends.due(), None, "an attempt that may have failed");
        let mends = Mends::default();
        mends.note(token());
        mends.note_won(token(), &[2]);
        let soon = Moment::now().plus(SPAN / 2);
        assert_eq!(mends.begin(soon), [token()]);
        mends.not_held(token());
        assert_eq!(mends.begin(soon), [token()]);
        assert_eq!(mends.given(token()), [2]);
        assert!(mends.tried(token(), false) == [2] && mends.due().is_none());
    }

    #[test]
    fn a_keeper_that_comes_late_tries_it_as_often_all_the_same() {
        let mends = Mends::default();
        mends.note_won(token(), &[]);
        for _ in 0..TRIES {
            let late = Moment::now().plus(SPAN * 10);
            assert!(mends.due().is_some_and(|due| due < late));
            assert_eq!(mends.begin(late), [token()]);
            assert!(mends.tried(token(), false).is_empty());
        }
        assert_eq!(mends.begin(Moment::now().plus(SPAN * 10)), []);
        assert_eq!(mends.due(), None);
    }

    #[test]
    fn what_was_stored_around_a_release_is_given_up_again() {
        // Given before anybody is told,
        let mends = begun();
        assert!(mends.given(token()).is_empty());
        assert!(!mends.tells(token(), 2));
        assert!(mends.tried(token(), false).is_empty());
        assert_eq!(mends.due(), None);
        // while they are,
        let mends = begun();
        assert!(mends.tells(token(), 2));
        assert_eq!(mends.given(token()), [2]);
        assert!(!mends.tells(token(), 1));
        assert_eq!(mends.tried(token(), true), [2]);
        assert_eq!(mends.due(), None);
        // or after that, whether they have done so or not.
        for is_done in [false, true] {
            let mends = begun();
            assert!(mends.tells(token(), 1) && mends.tells(token(), 2));
            assert!(mends.tried(token(), is_done).is_empty());
            assert_eq!(mends.given(token()), [1, 2]);
            assert_eq!(mends.due(), None);
        }
    }
}
