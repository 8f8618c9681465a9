//! Leases that a node lacks although it could have them: in a crowd, a loser had it there for a
//! moment; or it has lost its data, or its clock has jumped. If one more node fails, the lease is
//! lost with it. Soon after that is noticed, all nodes are asked again, and where most have the
//! lease the others are told to store it, too.
//!
//! A node that is told when the lease was given up meanwhile would keep it for a ttl. So when a lease
//! is given up or passed on, the nodes that were told to store it are told to give it up again. Before
//! a lease is passed on, or what is left of it is shortened, the caller waits until no mend of it is
//! under way.

use std::time::Duration;

use super::QuorumStore;
use super::question::Question;
use super::scatter::{Scatter, sheets};
use crate::clock::{Deadline, Moment};
use crate::store::{Identity, Kept, Lane, Reach, Request};
use crate::sync::Mutex;
use crate::token::Token;

/// The pause before the first try; doubled after each one. Losers are gone in a moment.
const FIRST: Duration = Duration::from_millis(50);
/// How long a lease is tried. After that, the next extension notices it again.
const SPAN: Duration = Duration::from_secs(1);
/// At once.
const MOST: usize = 32;
/// Between two looks whether one is being tried.
const LOOK: Duration = Duration::from_millis(1);

#[derive(Default)]
pub(super) struct Mends(Mutex<Vec<Mend>>);

struct Mend {
    token: Token,
    /// When it is tried next; never where every node has it by now, and while it is tried.
    next: Moment,
    pause: Duration,
    /// When it is forgotten.
    until: Moment,
    is_tried: bool,
    /// It was given up while it was tried.
    is_given: bool,
    /// The nodes that were told to store it.
    told: Vec<usize>,
}

impl Mends {
    /// A node lacks a lease, or a token that may be one.
    pub(super) fn note(&self, token: Token, next: Moment) {
        let mut list = self.0.lock();
        if !list.iter().any(|mend| mend.token == token) {
            let until = Moment::now().plus(SPAN);
            let (is_tried, is_given, told) = Default::default();
            list.push(Mend { token, next, pause: FIRST, until, is_tried, is_given, told });
        }
    }

    /// When one is to be tried, or forgotten.
    pub(super) fn due(&self) -> Option<Moment> {
        self.0.lock().iter().map(|mend| mend.next.min(mend.until)).min()
    }

    /// Those that are to be tried now.
    fn begin(&self, now: Moment) -> Vec<Token> {
        let mut list = self.0.lock();
        list.retain(|mend| mend.until > now);
        let due = list.iter_mut().filter(|mend| mend.next <= now).take(MOST);
        due.map(|mend| {
            (mend.next, mend.is_tried) = (Moment::NEVER, true);
            mend.token
        })
        .collect()
    }

    /// Before a node is told to store it. False where it was given up meanwhile.
    fn tells(&self, token: Token, node: usize) -> bool {
        let mut list = self.0.lock();
        let mend = list.iter_mut().find(|mend| mend.token == token && !mend.is_given);
        mend.map(|mend| mend.told.push(node)).is_some()
    }

    /// After that. Returns where it has to be given up. `is_over`: every node has it, or it is
    /// nobody's any more.
    fn tried(&self, token: Token, is_over: bool) -> Vec<usize> {
        let mut list = self.0.lock();
        let Some(at) = list.iter().position(|mend| mend.token == token) else { return Vec::new() };
        let (mend, now) = (&mut list[at], Moment::now());
        mend.is_tried = false;
        if mend.is_given || (is_over && mend.told.is_empty()) {
            return list.swap_remove(at).told;
        }
        if is_over {
            // A request that gives it up may have been sent before, and come to its end later.
            mend.until = now.plus(SPAN);
        } else {
            mend.next = now.plus(mend.pause);
            mend.pause *= 2;
        }
        Vec::new()
    }

    fn is_tried(&self, token: Token) -> bool {
        self.0.lock().iter().any(|mend| mend.token == token && mend.is_tried)
    }

    /// A token was given up on the nodes that could be asked. Returns where it has to be given up
    /// again.
    fn given(&self, token: Token) -> Vec<usize> {
        let mut list = self.0.lock();
        let Some(at) = list.iter().position(|mend| mend.token == token) else { return Vec::new() };
        if !list[at].is_tried {
            return list.swap_remove(at).told;
        }
        // The thread that tries it gives it up once more after that.
        list[at].is_given = true;
        list[at].told.clone()
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
                    std::thread::sleep(LOOK);
                }
            }
        }
    }

    /// Remembers leases that nodes lack, and gives up the copies that nodes were told to store
    /// while the lease was released or passed on.
    pub(super) fn remember(&self, questions: &[Question<'_>]) {
        let lacking = questions.iter().filter_map(Question::lacking);
        for (token, _) in lacking.filter(|(_, nodes)| !nodes.is_empty()) {
            self.mends.note(token, Moment::now().plus(FIRST));
        }
        for (name, token, ttl) in questions.iter().filter_map(Question::given) {
            self.give_again(&self.mends.given(token), (name, token, ttl));
        }
    }

    fn give_again(&self, nodes: &[usize], (name, token, ttl): (&[u8], Token, Duration)) {
        for index in nodes {
            if let Some(node) = self.nodes().get(*index) {
                node.owe(&[Request::Give { name, token, fence: 0, ttl }]);
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
            self.mends.tried(token, true);
        }
        let (sent, nodes) = (Moment::now(), self.nodes());
        let question = |lease| Question::new(extension(lease), 0, nodes.len(), sent);
        let mut questions: Vec<_> = leases.iter().map(question).collect();
        let scatter = || Scatter { is_patient: true, ..self.scatter(Lane::Keeper, deadline) };
        // All that are asked are waited for, and short leases have to be renewed meanwhile.
        let asks = sheets(nodes, &questions, |question, node| {
            nodes[node].is_ready().then(|| question.ballot())
        });
        scatter().run(&asks, &mut questions);
        // Only now: a majority has just said that it has the lease.
        let fills = sheets(nodes, &questions, |question, node| {
            let (token, _) = question.lacking()?;
            question.fill(node).filter(|_| self.mends.tells(token, node))
        });
        scatter().run(&fills, &mut questions);
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

// (Beside what explores threads, `[]` has no type of its own.)
#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    fn token() -> Token {
        "00112233445566778899aabbccddeeff".parse().unwrap()
    }

    /// Noted, and begun.
    fn begun() -> Mends {
        let (mends, now) = (Mends::default(), Moment::now());
        mends.note(token(), now);
        assert_eq!(mends.begin(now), [token()]);
        mends
    }

    #[test]
    fn what_is_mended_or_over_is_not_tried_again_and_what_failed_is_for_a_while() {
        let mends = begun();
        let soon = Moment::now().plus(SPAN / 2);
        assert_eq!(mends.begin(soon), []);
        assert_eq!(mends.tried(token(), false), []);
        assert_eq!(mends.begin(Moment::now()), []);
        assert_eq!(mends.begin(soon), [token()]);
        assert!(mends.tells(token(), 2));
        assert_eq!(mends.tried(token(), true), []);
        assert_eq!(mends.begin(soon), []);
        // An answer that was late tells what was known before.
        mends.note(token(), soon);
        assert_eq!(mends.begin(soon), []);
        assert_eq!(mends.begin(soon.plus(SPAN)), []);
        assert_eq!(mends.due(), None);

        let mends = begun();
        assert!(mends.is_tried(token()));
        assert_eq!(mends.tried(token(), true), []);
        assert!(!mends.is_tried(token()));
        assert_eq!(mends.due(), None);
        let mends = begun();
        assert_eq!(mends.tried(token(), true), []);
        assert_eq!(mends.due(), None);
    }

    #[test]
    fn what_was_stored_around_a_release_is_given_up_again() {
        // Given before anybody is told,
        let mends = begun();
        assert_eq!(mends.given(token()), []);
        assert!(!mends.tells(token(), 2));
        assert_eq!(mends.tried(token(), false), []);
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
            assert_eq!(mends.tried(token(), is_done), []);
            assert_eq!(mends.given(token()), [1, 2]);
            assert_eq!(mends.due(), None);
        }
    }
}
