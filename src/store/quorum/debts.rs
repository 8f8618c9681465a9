//! Gives that a node has not carried out, as far as anybody knows: it could not be reached, or the
//! connection broke. They are sent again until it answers, or has forgotten the lock in any case.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::clock::{Deadline, Moment};
use crate::store::redis::node::{self, Ballot, Node};
use crate::store::{Identity, Lane, Owed, Request};
use crate::sync::Mutex;

/// Between two tries at a node; doubled each time, up to the longest.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
/// In one write.
const MOST: usize = 32;
/// More of one node's are left to the ttl, so that a long outage under load costs no more than this.
const MOST_OWED: usize = 10_000;

pub(super) struct Debts {
    /// With none, no mutex is asked for.
    count: AtomicUsize,
    nodes: Mutex<Vec<Account>>,
}

/// What is owed to one node.
#[derive(Default)]
struct Account {
    owed: Vec<Owed>,
    since: Moment,
    next: Moment,
    pause: Duration,
}

impl Debts {
    pub(super) fn new(nodes: usize) -> Debts {
        let nodes = (0..nodes).map(|_| Account::default()).collect();
        Debts { count: AtomicUsize::new(0), nodes: Mutex::new(nodes) }
    }

    /// Gives that could not be sent.
    pub(super) fn add(&self, node: usize, gives: &[Request<'_>]) {
        let now = Moment::now();
        for give in gives {
            if let Request::Give { name, token, fence, ttl } = *give {
                let identity = Identity { name: name.into(), token, fence, ttl };
                self.owe(node, Owed { identity, until: now.plus(ttl) });
            }
        }
    }

    /// One that was sent, and nobody knows what became of it.
    pub(super) fn owe(&self, node: usize, owed: Owed) {
        let mut nodes = self.nodes.lock();
        let Some(account) = nodes.get_mut(node) else { return };
        if account.owed.is_empty() {
            let now = Moment::now();
            *account =
                Account { since: now, next: now.plus(FIRST), pause: FIRST, ..Account::default() };
        }
        let same = |other: &Owed| other.identity.token == owed.identity.token;
        if account.owed.len() >= MOST_OWED || account.owed.iter().rev().any(same) {
            return;
        }
        account.owed.push(owed);
        self.count.fetch_add(1, Ordering::Release);
    }

    pub(super) fn since(&self) -> Option<Moment> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let nodes = self.nodes.lock();
        nodes.iter().filter(|account| !account.owed.is_empty()).map(|account| account.since).min()
    }

    /// Sends a node what is owed to it, if it is time.
    pub(super) fn pay(&self, index: usize, node: &Node, deadline: Deadline) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let now = Moment::now();
        let due = {
            let mut nodes = self.nodes.lock();
            let Some(account) = nodes.get_mut(index).filter(|account| account.next <= now) else {
                return;
            };
            let before = account.owed.len();
            account.owed.retain(|owed| owed.until > now);
            let most = account.owed.len().min(MOST);
            let due: Vec<Owed> = account.owed.drain(..most).collect();
            self.count.fetch_sub(before - account.owed.len(), Ordering::Release);
            due
        };
        if due.is_empty() {
            return;
        }
        let gives: Vec<_> = due.iter().map(|owed| owed.identity.give()).collect();
        let sheet = node.pack(due.iter().map(ballot).collect(), gives);
        let told = node.ask(Lane::Keeper, &sheet, deadline);
        let is_done = told.is_ok_and(|mut told| {
            let is_answered = told.is_answered(deadline);
            if !is_answered {
                told.leave(true);
                // Its reply is owed now, and told of if it never comes.
                return true;
            }
            told.finish().iter().all(Result::is_ok)
        });
        let mut nodes = self.nodes.lock();
        let Some(account) = nodes.get_mut(index) else { return };
        if is_done {
            (account.pause, account.next) = (FIRST, Moment::now());
        } else {
            self.count.fetch_add(due.len(), Ordering::Release);
            account.owed.splice(0..0, due);
            account.pause = (account.pause * 2).min(LONGEST);
            account.next = Moment::now().plus(account.pause);
        }
    }
}

fn ballot(owed: &Owed) -> Ballot<'_> {
    let Identity { name, token, fence, .. } = &owed.identity;
    node::give_again(name, *token, *fence)
}
