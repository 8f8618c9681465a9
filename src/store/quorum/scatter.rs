//! Asking all nodes at once: one scatter and one gather.
//!
//! No node is waited for that is not needed: the nodes that answered fastest last time are heard
//! first, and as soon as everything is decided the other replies are left to later users of those
//! connections.

use std::time::Duration;

use super::question::Question;
use crate::clock::{Deadline, Moment};
use crate::store::redis::node::{Asked, Ballot, Node, Said, wait_for};
use crate::store::{Failure, Lane};

/// How long one node is waited for before the others are looked at as well: longer than a server
/// takes that is not far away, and short enough for one that has just died to cost next to nothing.
const FIRST_LOOK: Duration = Duration::from_millis(2);

pub(super) struct Scatter<'a> {
    pub(super) nodes: &'a [Node],
    pub(super) lane: Lane,
    /// By when a node must have answered.
    pub(super) deadline: Deadline,
    /// All of them are waited for.
    pub(super) is_patient: bool,
}

/// A node that was asked, and the places of the questions that it was asked.
type Hearing<'s> = (usize, &'s [usize], Asked<'s>);

impl Scatter<'_> {
    /// Asks each node, and tells the questions what it said until all of them are settled.
    pub(super) fn run<'r>(
        &self,
        questions: &mut [Question<'r>],
        ballot: impl Fn(&mut Question<'r>, usize) -> Option<Ballot<'r>>,
    ) {
        let sheet = |(at, node): (usize, &Node)| {
            let asked = questions.iter_mut().enumerate();
            let asked = asked.filter_map(|(place, question)| Some((place, ballot(question, at)?)));
            let (places, ballots): (Vec<_>, Vec<_>) = asked.unzip();
            (places, node.pack(ballots))
        };
        let sheets: Vec<_> = self.nodes.iter().enumerate().map(sheet).collect();
        // Always in the same order: two threads that wait for each other's connections would wait
        // in vain.
        let mut involved: Vec<_> =
            (0..sheets.len()).filter(|at| !sheets[*at].0.is_empty()).collect();
        involved.sort_by_key(|at| self.nodes[*at].is_blocking);
        let (ready, others) = involved.into_iter().partition(|at| self.nodes[*at].is_ready());

        let mut asked: Vec<Hearing<'_>> = Vec::with_capacity(sheets.len());
        let orders: [(Vec<_>, _); 2] = [(ready, FIRST_LOOK), (others, Duration::ZERO)];
        for (order, span) in orders {
            // Nodes that had trouble before are asked where nothing is decided without them, and
            // where no caller waits.
            if self.is_over(questions) && self.lane != Lane::Keeper {
                break;
            }
            for at in order {
                let (places, sheet) = &sheets[at];
                match self.nodes[at].ask(self.lane, sheet, self.deadline) {
                    Ok(begun) => asked.push((at, places, begun)),
                    Err(failure) => {
                        tell(questions, (at, places), vec![Err(failure); places.len()]);
                    }
                }
            }
            asked.sort_by_key(|(at, ..)| self.nodes[*at].pace());
            self.hear(self.deadline.min(Deadline::after(span)), questions, &mut asked);
        }
        let at_once = Deadline::at(Moment::ZERO);
        while !(asked.is_empty() || self.is_over(questions) || self.deadline.has_passed()) {
            wait_for(asked.iter().map(|(.., begun)| begun), self.deadline.moment());
            self.hear(at_once, questions, &mut asked);
        }
        let is_late = self.deadline.has_passed();
        for (at, places, begun) in asked {
            // What was said decides nothing any more, but a give that failed is still to be made.
            tell(questions, (at, places), begun.leave(is_late));
        }
    }

    /// Tells the questions what came, waiting for each node in turn.
    fn hear<'s>(
        &self,
        until: Deadline,
        questions: &mut [Question<'_>],
        asked: &mut Vec<Hearing<'s>>,
    ) {
        for (at, places, mut begun) in std::mem::take(asked) {
            if self.is_over(questions) || !begun.is_answered(until) {
                asked.push((at, places, begun));
            } else {
                tell(questions, (at, places), begun.finish());
            }
        }
    }

    fn is_over(&self, questions: &[Question<'_>]) -> bool {
        !self.is_patient && questions.iter().all(Question::is_settled)
    }
}

/// `None` for what a node has not said.
fn tell(
    questions: &mut [Question<'_>],
    (node, places): (usize, &[usize]),
    said: Vec<Result<Said, Failure>>,
) {
    let mut said = said.into_iter();
    for place in places {
        questions[*place].heard(node, said.next());
    }
}
