//! What operators see of a quorum, and what they do there: what most of its members say, and do.

use std::collections::HashSet;

use super::round::majority;
use super::{QuorumStore, known_to};
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};
#[cfg(feature = "examine")]
use crate::examination::{Examination, Subject};
use crate::store::breaking::{Breaches, StoredGrant};
use crate::store::listing::{Bookmark, Page, Wanted};
use crate::store::{Admin, Failure, Holder, Lane, LockState, MOST_WAITERS, Waiter};

impl Admin for QuorumStore {
    /// Only what most nodes say is told as so.
    fn inspect(&self, name: &[u8], deadline: Deadline) -> Result<LockState, Error> {
        let looks = self.reach(deadline, |node, by| node.deployment.inspect(name, by))?;
        let most = majority(self.nodes().len());
        let last_fence = known_to(most, looks.iter().filter_map(|look| look.last_fence));
        let (waiters, more_waiters) = waiting(most, &looks);
        let held: Vec<Holder> = looks.into_iter().filter_map(|look| look.holder).collect();
        let holder = held.iter().find_map(|one| {
            let same = || held.iter().filter(|held| held.token_prefix == one.token_prefix);
            (same().count() >= most).then(|| Holder {
                token_prefix: one.token_prefix.clone(),
                ttl: same().map(|held| held.ttl).min().unwrap_or_default(),
                fence: known_to(most, same().filter_map(|held| held.fence)),
                held: known_to(most, same().filter_map(|held| held.held)),
                client: None,
            })
        });
        Ok(LockState { holder, last_fence, waiters, more_waiters })
    }

    fn list(&self, wanted: &Wanted, from: &Bookmark, by: Deadline) -> Result<Page, Error> {
        self.list_page(wanted, from, by)
    }

    fn held(&self, name: &[u8], deadline: Deadline) -> Result<Option<StoredGrant>, Error> {
        self.held_by_most(name, deadline)
    }

    fn break_grant(
        &self,
        held: &StoredGrant,
        by: &[u8],
        deadline: Deadline,
    ) -> Result<bool, Failure> {
        self.break_on_most(held, by, deadline)
    }

    fn breaches(&self, lane: Lane, of: &[&[u8]], deadline: Deadline) -> Breaches {
        self.breaches_of(lane, of, deadline)
    }

    #[cfg(feature = "examine")]
    fn examine(&self, subject: Subject<'_>, found: &mut Examination) -> Result<bool, Error> {
        self.look_at_members(subject, found)
    }

    fn initialize(&self, force: bool, deadline: Deadline) -> Result<(), Error> {
        if !force {
            self.look_new(deadline)?;
        }
        // All of them, so that none starts in quarantine for another one's sake.
        let (mut first, nodes) = (Ok(()), self.nodes());
        for (node, left) in nodes.iter().zip((1..=nodes.len()).rev()) {
            // One that does not answer must leave time for the others.
            first = first.and(node.initialize(force, deadline.share(left)));
        }
        first
    }
}

impl QuorumStore {
    /// Whether all members look new, or none does: one that does among others that do not came back
    /// empty, and may have forgotten leases that are relied on.
    fn look_new(&self, deadline: Deadline) -> Result<(), Error> {
        let mut new = Vec::new();
        for node in self.nodes() {
            if !node.is_marked(deadline)? {
                new.push(node.shown.as_str());
            }
        }
        if new.is_empty() || new.len() == self.nodes().len() {
            return Ok(());
        }
        let detail = format!(
            "new or come back empty, while others were in use: {} (it grants locks without \
             leasehold init once its wait of max_ttl is over; force declares that nobody relies on \
             a lease)",
            new.join(", ")
        );
        Err(Error::new(ErrorKind::Unavailable, detail))
    }
}

/// Those that wait at so many nodes, in the order in which they are met, and how many more there are:
/// there may be as many as most nodes say.
fn waiting(most: usize, looks: &[LockState]) -> (Vec<Waiter>, u64) {
    let places = |token: &str| {
        let all = looks.iter().flat_map(|look| &look.waiters);
        all.filter(|waiter| waiter.token_prefix == token).count()
    };
    let mut met = HashSet::new();
    let all = looks.iter().flat_map(|look| &look.waiters);
    let new = all.filter(|waiter| met.insert(waiter.token_prefix.clone()));
    let waiters: Vec<_> = new
        .filter(|waiter| places(&waiter.token_prefix) >= most)
        .take(MOST_WAITERS)
        .cloned()
        .collect();
    let more = known_to(most, looks.iter().map(|look| look.more_waiters)).unwrap_or(0);
    (waiters, more)
}
