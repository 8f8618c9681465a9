//! Asking all nodes at once: one scatter and one gather.
//!
//! What an answer means is decided by [`round`](super::round) and [`tally`](super::tally). Here it
//! is seen to that nobody is waited for who is not needed: the nodes that answered fastest last
//! time are heard first, and as soon as everything is decided the other replies are left to whoever
//! uses those connections next.

use std::time::Duration;

use super::inquiry::Inquiry;
use crate::clock::{Deadline, Moment};
use crate::store::redis::node::{Asked, Ballot, Node, Sheet, wait_for};
use crate::store::{Lane, Request};

/// How long one node is waited for before the others are looked at as well: longer than a server
/// takes that is not far away, and short enough for one that has just died to cost next to nothing.
const GLIMPSE: Duration = Duration::from_millis(2);

/// What one node is to be asked: for which inquiry, and how.
#[derive(Default)]
pub(super) struct Share<'r> {
    pub(super) inquiries: Vec<usize>,
    pub(super) ballots: Vec<Ballot<'r>>,
    /// The same as the connections know them.
    pub(super) requests: Vec<Request<'r>>,
}

/// One scatter and its gather.
pub(super) struct Scatter<'a> {
    pub(super) nodes: &'a [Node],
    pub(super) lane: Lane,
    /// By when a node must have answered.
    pub(super) deadline: Deadline,
    /// All of them are waited for.
    pub(super) is_patient: bool,
}

impl Scatter<'_> {
    /// Asks each node its share, and tells the inquiries what they said until all of them are
    /// settled. Returns which nodes were asked.
    pub(super) fn run(&self, shares: Vec<Share<'_>>, inquiries: &mut [Inquiry<'_>]) -> Vec<usize> {
        let both = self.nodes.iter().zip(shares);
        let sheets: Vec<_> = both
            .map(|(node, share)| (share.inquiries, node.pack(share.ballots, share.requests)))
            .collect();
        // Always in the same order: two that wait for each other's connections would wait in vain.
        let mut involved: Vec<_> =
            (0..sheets.len()).filter(|at| !sheets[*at].0.is_empty()).collect();
        involved.sort_by_key(|at| self.nodes[*at].is_blocking());
        let (ready, others): (Vec<_>, Vec<_>) =
            involved.into_iter().partition(|at| self.nodes[*at].is_ready());

        let mut asked = Vec::with_capacity(ready.len());
        self.send(&ready, &sheets, inquiries, &mut asked);
        asked.sort_by_key(|(at, _)| self.nodes[*at].pace());
        self.glimpse(&sheets, inquiries, &mut asked);
        // Those that had trouble before are asked where nothing is decided without them, and where
        // nobody waits.
        let mut reached = ready;
        if self.lane == Lane::Keeper || !self.is_over(inquiries) {
            self.send(&others, &sheets, inquiries, &mut asked);
            self.gather(&sheets, inquiries, &mut asked);
            reached.extend(others);
        }
        let is_late = self.deadline.has_passed();
        for (at, asked) in asked {
            let mut said = asked.leave(is_late).into_iter();
            for inquiry in &sheets[at].0 {
                match said.next() {
                    // It decides nothing any more, but a give that failed is still to be made.
                    Some(said) => inquiries[*inquiry].heard(at, said),
                    None => inquiries[*inquiry].is_late(at),
                }
            }
        }
        reached
    }

    fn send<'s>(
        &'s self,
        order: &[usize],
        sheets: &'s [(Vec<usize>, Sheet<'s>)],
        inquiries: &mut [Inquiry<'_>],
        asked: &mut Vec<(usize, Asked<'s>)>,
    ) {
        for at in order {
            let (which, sheet) = &sheets[*at];
            match self.nodes[*at].ask(self.lane, sheet, self.deadline) {
                Ok(begun) => asked.push((*at, begun)),
                Err(failure) => {
                    let failed = || Err(failure.clone());
                    which.iter().for_each(|inquiry| inquiries[*inquiry].heard(*at, failed()));
                }
            }
        }
    }

    /// Waits a little for each in turn: mostly the first ones have answered by the time that the
    /// last one was asked.
    fn glimpse<'s>(
        &self,
        sheets: &'s [(Vec<usize>, Sheet<'s>)],
        inquiries: &mut [Inquiry<'_>],
        asked: &mut Vec<(usize, Asked<'s>)>,
    ) {
        let until = self.deadline.min(Deadline::after(GLIMPSE));
        for (at, mut begun) in std::mem::take(asked) {
            if !self.is_over(inquiries) && begun.is_answered(until) {
                tell(at, begun, sheets, inquiries);
            } else {
                asked.push((at, begun));
            }
        }
    }

    fn is_over(&self, inquiries: &[Inquiry<'_>]) -> bool {
        !self.is_patient && inquiries.iter().all(Inquiry::is_settled)
    }

    /// Waits for whoever answers, until the deadline.
    fn gather<'s>(
        &self,
        sheets: &'s [(Vec<usize>, Sheet<'s>)],
        inquiries: &mut [Inquiry<'_>],
        asked: &mut Vec<(usize, Asked<'s>)>,
    ) {
        let now = Deadline::at(Moment::ZERO);
        loop {
            for (at, mut begun) in std::mem::take(asked) {
                if !self.is_over(inquiries) && begun.is_answered(now) {
                    tell(at, begun, sheets, inquiries);
                } else {
                    asked.push((at, begun));
                }
            }
            if asked.is_empty() || self.is_over(inquiries) || self.deadline.has_passed() {
                return;
            }
            wait_for(asked, self.deadline.moment());
        }
    }
}

fn tell(
    at: usize,
    answered: Asked<'_>,
    sheets: &[(Vec<usize>, Sheet<'_>)],
    inquiries: &mut [Inquiry<'_>],
) {
    for (inquiry, said) in sheets[at].0.iter().zip(answered.finish()) {
        inquiries[*inquiry].heard(at, said);
    }
}
