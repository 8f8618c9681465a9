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
    /// When it is tried again.
    next: Moment,
    pause: Duration,
}

impl Account {
    /// Returns by how many there are more.
    fn add(&mut self, owed: Owed) -> usize {
        let Identity { token, fence, .. } = owed.identity;
        let mut others = self.owed.iter_mut().rev();
        if let Some(same) = others.find(|other| other.identity.token == token) {
            // A token makes one attempt after the other, and a node gives up those until the one
            // that it is told: an earlier one would leave it what the later one was granted.
            let fences = [same.identity.fence, fence];
            let any = fences.contains(&0);
            same.identity.fence = if any { 0 } else { fences[0].max(fences[1]) };
            same.until = same.until.max(owed.until);
            return 0;
        }
        if self.owed.len() >= MOST_OWED {
            return 0;
        }
        self.owed.push(owed);
        1
    }
}

impl Debts {
    pub(super) fn new(nodes: usize) -> Debts {
        let nodes = (0..nodes).map(|_| Account::default()).collect();
        Debts { count: AtomicUsize::new(0), nodes: Mutex::new(nodes) }
    }

    /// Gives that could not be sent, or were not carried out.
    pub(super) fn add(&self, index: usize, node: &Node, gives: &[Request<'_>]) {
        let now = Moment::now();
        for give in gives {
            if let Request::Give { name, token, fence, ttl } = *give {
                let identity = Identity { name: name.into(), token, fence, ttl };
                self.owe(index, node, Owed { identity, until: now.plus(ttl) });
            }
        }
    }

    /// One that was sent, and nobody knows what became of it.
    pub(super) fn owe(&self, index: usize, node: &Node, mut owed: Owed) {
        // It may have been extended for longer than its takes asked for, or stand in a queue.
        owed.until = owed.until.max(node.kept_until(owed.identity.fence == 0));
        let mut nodes = self.nodes.lock();
        let Some(account) = nodes.get_mut(index) else { return };
        if account.owed.is_empty() {
            (account.pause, account.next) = (FIRST, Moment::now().plus(FIRST));
        }
        let added = account.add(owed);
        self.count.fetch_add(added, Ordering::Release);
    }

    /// A client that closes is not heard of any more, so no node takes it for a waiter: where it has
    /// locked nothing, there is nothing to give up.
    pub(super) fn forget_places(&self, index: usize, node: &Node) {
        if node.kept_until(false) > Moment::now() {
            return;
        }
        let mut nodes = self.nodes.lock();
        if let Some(account) = nodes.get_mut(index) {
            self.count.fetch_sub(account.owed.len(), Ordering::Release);
            account.owed.clear();
        }
    }

    /// When something is to be paid next.
    pub(super) fn due(&self) -> Option<Moment> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let nodes = self.nodes.lock();
        nodes.iter().filter(|account| !account.owed.is_empty()).map(|account| account.next).min()
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
        let sheet = node.pack(due.iter().map(ballot).collect());
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
            let added = due.into_iter().map(|owed| account.add(owed)).sum();
            self.count.fetch_add(added, Ordering::Release);
            account.pause = (account.pause * 2).min(LONGEST);
            account.next = Moment::now().plus(account.pause);
        }
    }
}

fn ballot(owed: &Owed) -> Ballot<'_> {
    let Identity { name, token, fence, ttl } = &owed.identity;
    node::give_again(name, *token, *fence, *ttl)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "00112233445566778899aabbccddeeff";

    fn owed(token: &str, fence: u64, until: Moment) -> Owed {
        let (token, ttl) = (token.parse().unwrap(), Duration::from_secs(1));
        Owed { identity: Identity { name: (*b"n").into(), token, fence, ttl }, until }
    }

    #[test]
    fn of_a_tokens_attempts_the_last_one_is_given_up_and_any_covers_all() {
        let (now, later) = (Moment::now(), Moment::now().plus(FIRST));
        let mut account = Account::default();
        assert_eq!(account.add(owed(TOKEN, 5, now)), 1);
        assert_eq!(account.add(owed(&TOKEN.replace("00", "ff"), 1, now)), 1);
        assert_eq!(account.add(owed(TOKEN, 7, later)), 0);
        assert_eq!(account.add(owed(TOKEN, 6, now)), 0);
        assert_eq!((account.owed[0].identity.fence, account.owed[0].until), (7, later));
        assert_eq!(account.add(owed(TOKEN, 0, now)), 0);
        assert_eq!(account.add(owed(TOKEN, 8, now)), 0);
        assert_eq!((account.owed[0].identity.fence, account.owed[1].identity.fence), (0, 1));
    }

    #[test]
    fn an_outage_costs_no_more_than_so_much() {
        let mut account = Account::default();
        let token = |nth: usize| format!("{nth:032x}");
        let added = |nth| account.add(owed(&token(nth), 1, Moment::now()));
        assert_eq!((0..MOST_OWED + 5).map(added).sum::<usize>(), MOST_OWED);
    }
}
