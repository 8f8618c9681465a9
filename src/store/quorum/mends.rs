//! Leases that a node lacks although it could have them: in a crowd, a loser had it there for a
//! moment; or it has lost its data, or its clock has jumped. One node more that fails would then take
//! the lease with it. Soon after that is noticed, all nodes are asked again, and where most have the
//! lease the others are told to store it, too.
//!
//! A node that is told when the lease was given up meanwhile would keep it for a ttl. So whoever
//! gives one up or passes it on looks here once that is done, and what may have been stored is given
//! up again. Whoever passes one on, or shortens what is left of it, waits first until it is not being
//! tried.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::QuorumStore;
use super::driver::{Scatter, Share};
use super::inquiry::Inquiry;
use crate::clock::{Deadline, Moment};
use crate::store::redis::node::Ballot;
use crate::store::{Identity, Kept, Lane, Reach, Request};
use crate::sync::Mutex;
use crate::token::Token;

/// Before the first try, and after it twice as long each time. Losers are gone in a moment.
const FIRST: Duration = Duration::from_millis(50);
/// For so long it is tried. After that it is noticed again with the next extension.
const SPAN: Duration = Duration::from_secs(1);
/// At once.
const MOST: usize = 32;
/// Between two looks whether one is being tried.
const LOOK: Duration = Duration::from_millis(1);

#[derive(Default)]
pub(super) struct Mends {
    /// With none, no mutex is asked for.
    count: AtomicUsize,
    list: Mutex<Vec<Mend>>,
}

struct Mend {
    token: Token,
    /// When it is tried next; never where every node has it by now, and while it is tried.
    next: Moment,
    pause: Duration,
    /// When it is thought of no longer.
    until: Moment,
    is_tried: bool,
    /// It was given up while it was tried.
    is_given: bool,
    /// The nodes that were told to store it.
    told: Vec<usize>,
    /// Since when all of them have done so.
    done: Moment,
}

impl Mends {
    /// A node lacks a lease, or what is taken for one.
    pub(super) fn note(&self, token: Token, now: Moment, next: Moment) {
        let mut list = self.list.lock();
        if !list.iter().any(|mend| mend.token == token) {
            let until = now.plus(SPAN);
            let ((is_tried, is_given, told), done) = (Default::default(), Moment::NEVER);
            list.push(Mend { token, next, pause: FIRST, until, is_tried, is_given, told, done });
        }
        self.count.store(list.len(), Ordering::Release);
    }

    /// The same for one that nobody has tried to mend yet.
    pub(super) fn note_soon(&self, token: Token) {
        let now = Moment::now();
        self.note(token, now, now.plus(FIRST));
    }

    pub(super) fn due(&self) -> Option<Moment> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        // What is over is cleared away, too.
        self.list.lock().iter().map(|mend| mend.next.min(mend.until)).min()
    }

    /// Those that are to be tried now.
    pub(super) fn begin(&self, now: Moment) -> Vec<Token> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut list = self.list.lock();
        list.retain(|mend| mend.until > now);
        self.count.store(list.len(), Ordering::Release);
        let due = list.iter_mut().filter(|mend| mend.next <= now).take(MOST);
        due.map(|mend| {
            (mend.next, mend.is_tried) = (Moment::NEVER, true);
            mend.token
        })
        .collect()
    }

    /// Before these nodes are told to store it. False where it was given up meanwhile.
    pub(super) fn tells(&self, token: Token, nodes: &[usize]) -> bool {
        let mut list = self.list.lock();
        let Some(mend) = list.iter_mut().find(|mend| mend.token == token) else { return false };
        if !mend.is_given {
            mend.told.extend(nodes);
        }
        !mend.is_given
    }

    /// After that. Returns where it has to be given up.
    pub(super) fn tried(&self, token: Token, is_whole: bool) -> Vec<usize> {
        let mut list = self.list.lock();
        let Some(at) = list.iter().position(|mend| mend.token == token) else { return Vec::new() };
        if list[at].is_given {
            return self.remove(&mut list, at);
        }
        let (mend, now) = (&mut list[at], Moment::now());
        mend.is_tried = false;
        if !is_whole {
            mend.next = now.plus(mend.pause);
            mend.pause *= 2;
        } else if mend.told.is_empty() {
            self.remove(&mut list, at);
        } else {
            // Whoever began to give it up before is done by then.
            (mend.done, mend.until) = (now, now.plus(SPAN));
        }
        Vec::new()
    }

    /// It is nobody's any more, or about to be given up.
    pub(super) fn is_over(&self, token: Token) {
        let mut list = self.list.lock();
        if let Some(at) = list.iter().position(|mend| mend.token == token) {
            list[at].is_tried = false;
            if list[at].told.is_empty() {
                self.remove(&mut list, at);
            }
        }
    }

    fn is_tried(&self, token: Token) -> bool {
        self.count.load(Ordering::Acquire) > 0
            && self.list.lock().iter().any(|mend| mend.token == token && mend.is_tried)
    }

    /// A token was given up on the nodes that could be asked, from `sent` on. Returns where it has to
    /// be given up once more.
    pub(super) fn given(&self, token: Token, sent: Moment) -> Vec<usize> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut list = self.list.lock();
        let Some(at) = list.iter().position(|mend| mend.token == token) else { return Vec::new() };
        if list[at].is_tried {
            // Whoever tries it finds that.
            list[at].is_given = true;
            return Vec::new();
        }
        let is_later = list[at].done < sent;
        let told = self.remove(&mut list, at);
        if is_later { Vec::new() } else { told }
    }

    /// Nobody is told any more.
    pub(super) fn forget(&self) {
        self.list.lock().clear();
        self.count.store(0, Ordering::Release);
    }

    fn remove(&self, list: &mut Vec<Mend>, at: usize) -> Vec<usize> {
        let mend = list.swap_remove(at);
        self.count.store(list.len(), Ordering::Release);
        mend.told
    }
}

impl QuorumStore {
    /// Before a lease that nobody relies on is passed on or shortened: what the nodes are asked to
    /// mend it must not come behind that. Half of the time is left for the request itself.
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

    /// Remembers leases that nodes lack, and gives up what such nodes were told of while it was
    /// released or passed on. For requests that were sent from that moment on.
    pub(super) fn remember(&self, inquiries: &[Inquiry<'_>], sent: Moment) {
        let lacking = inquiries.iter().filter_map(Inquiry::lacking);
        for (token, _) in lacking.filter(|(_, nodes)| !nodes.is_empty()) {
            self.mends.note_soon(token);
        }
        for (name, token, ttl) in inquiries.iter().filter_map(Inquiry::given) {
            self.give_again(&self.mends.given(token, sent), (name, token, ttl));
        }
    }

    fn give_again(&self, nodes: &[usize], (name, token, ttl): (&[u8], Token, Duration)) {
        for index in nodes {
            if let Some(node) = self.nodes().get(*index) {
                self.debts.add(*index, node, &[Request::Give { name, token, fence: 0, ttl }]);
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
            self.mends.is_over(token);
        }
        let (sent, nodes) = (Moment::now(), self.nodes().len());
        let requests = leases.iter().map(extension);
        let mut inquiries: Vec<_> =
            requests.map(|request| Inquiry::new(request, 0, nodes, sent)).collect();
        let scatter = || Scatter { is_patient: true, ..self.scatter(Lane::Keeper, deadline) };
        let mut shares = self.shares(&inquiries);
        for (node, share) in self.nodes().iter().zip(&mut shares) {
            // All that are asked are waited for, and short leases have to be renewed meanwhile.
            if !node.is_ready() {
                *share = Share::default();
            }
        }
        scatter().run(shares, &mut inquiries);
        // Only now, and where most have just said that they have it.
        let mut shares: Vec<_> = self.nodes().iter().map(|_| Share::default()).collect();
        for (index, (lease, inquiry)) in leases.iter().zip(&inquiries).enumerate() {
            let Some((token, lacking)) = inquiry.lacking() else { continue };
            if !self.mends.tells(token, lacking) {
                continue;
            }
            for node in lacking {
                if let Some(share) = shares.get_mut(*node) {
                    share.inquiries.push(index);
                    share.ballots.push(fill(lease));
                    share.requests.push(inquiry.request());
                }
            }
        }
        scatter().run(shares, &mut inquiries);
        for (lease, inquiry) in leases.iter().zip(inquiries) {
            let Identity { name, token, ttl, .. } = &lease.identity;
            let told = self.mends.tried(*token, inquiry.stands_on_all());
            self.give_again(&told, (name, *token, *ttl));
        }
    }
}

fn extension(Kept { identity, span }: &Kept) -> Request<'_> {
    let Identity { name, token, fence, .. } = identity;
    Request::Extend { name, token: *token, fence: *fence, ttl: *span, reach: Reach::Grow }
}

fn fill(Kept { identity, span }: &Kept) -> Ballot<'_> {
    let Identity { name, token, fence, .. } = identity;
    Ballot::Fill { name, token: *token, fence: *fence, ttl: *span }
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
        mends.note(token(), now, now);
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
        assert!(mends.tells(token(), &[2]));
        assert_eq!(mends.tried(token(), true), []);
        assert_eq!(mends.begin(soon), []);
        // An answer that was late tells what was known before.
        mends.note(token(), soon, soon);
        assert_eq!(mends.begin(soon), []);
        assert_eq!(mends.begin(soon.plus(SPAN)), []);
        assert_eq!(mends.due(), None);

        let mends = begun();
        assert!(mends.is_tried(token()));
        mends.is_over(token());
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
        assert_eq!(mends.given(token(), Moment::now()), []);
        assert!(!mends.tells(token(), &[2]));
        assert_eq!(mends.tried(token(), false), []);
        assert_eq!(mends.due(), None);
        // while they are,
        let mends = begun();
        assert!(mends.tells(token(), &[2]));
        assert_eq!(mends.given(token(), Moment::now()), []);
        assert_eq!(mends.tried(token(), true), [2]);
        assert_eq!(mends.due(), None);
        // by one that began before they had done so,
        let (mends, sent) = (begun(), Moment::now());
        assert!(mends.tells(token(), &[1, 2]));
        assert_eq!(mends.tried(token(), true), []);
        assert_eq!(mends.given(token(), sent), [1, 2]);
        assert_eq!(mends.due(), None);
        // or where nobody knows whether they have; but not where that is known.
        for (is_done, told) in [(false, vec![2]), (true, vec![])] {
            let mends = begun();
            assert!(mends.tells(token(), &[2]));
            assert_eq!(mends.tried(token(), is_done), []);
            std::thread::sleep(Duration::from_millis(1));
            assert_eq!(mends.given(token(), Moment::now()), told);
            assert_eq!(mends.due(), None);
        }
    }
}
