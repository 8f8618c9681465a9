//! Asking all nodes at once: one scatter and one gather.
//!
//! What an answer means is decided by [`round`](super::round) and [`tally`](super::tally). Here no
//! node is waited for that is not needed: the nodes that answered fastest last time are heard first,
//! and as soon as everything is decided the other replies are left to later users of those
//! connections.

use std::time::Duration;

use super::question::Question;
use crate::clock::{Deadline, Moment};
use crate::store::Lane;
use crate::store::redis::node::{Asked, Ballot, Node, Sheet, wait_for};

/// How long one node is waited for before the others are looked at as well: longer than a server
/// takes that is not far away, and short enough for one that has just died to cost next to nothing.
const FIRST_LOOK: Duration = Duration::from_millis(2);

/// For each node what it is asked, and for the questions at which places.
pub(super) type Sheets<'r> = Vec<(Vec<usize>, Sheet<'r>)>;

/// What each node is to be asked for each question.
pub(super) fn sheets<'r>(
    nodes: &[Node],
    questions: &[Question<'r>],
    ballot: impl Fn(&Question<'r>, usize) -> Option<Ballot<'r>>,
) -> Sheets<'r> {
    let sheet = |(at, node): (usize, &Node)| {
        let asked = questions.iter().enumerate();
        let asked = asked.filter_map(|(place, question)| Some((place, ballot(question, at)?)));
        let (places, ballots): (_, Vec<_>) = asked.unzip();
        (places, node.pack(ballots))
    };
    nodes.iter().enumerate().map(sheet).collect()
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
    /// Asks each node, and tells the questions what they said until all of them are settled. Returns
    /// which nodes were asked.
    pub(super) fn run(&self, sheets: &Sheets<'_>, questions: &mut [Question<'_>]) -> Vec<usize> {
        // Always in the same order: two threads that wait for each other's connections would wait
        // in vain.
        let mut involved: Vec<_> =
            (0..sheets.len()).filter(|at| !sheets[*at].0.is_empty()).collect();
        involved.sort_by_key(|at| self.nodes[*at].is_blocking());
        let (ready, others): (Vec<_>, Vec<_>) =
            involved.into_iter().partition(|at| self.nodes[*at].is_ready());

        let mut asked = Vec::with_capacity(ready.len());
        self.send(&ready, sheets, questions, &mut asked);
        asked.sort_by_key(|(at, _)| self.nodes[*at].pace());
        // Mostly the first ones have answered by the time that the last one was asked.
        let first_look = self.deadline.min(Deadline::after(FIRST_LOOK));
        self.hear(first_look, sheets, questions, &mut asked);
        // Nodes that had trouble before are asked where nothing is decided without them, and where
        // no caller waits.
        let mut reached = ready;
        if self.lane == Lane::Keeper || !self.is_over(questions) {
            self.send(&others, sheets, questions, &mut asked);
            reached.extend(others);
            loop {
                self.hear(Deadline::at(Moment::ZERO), sheets, questions, &mut asked);
                if asked.is_empty() || self.is_over(questions) || self.deadline.has_passed() {
                    break;
                }
                wait_for(&asked, self.deadline.moment());
            }
        }
        let is_late = self.deadline.has_passed();
        for (at, asked) in asked {
            // What was said decides nothing any more, but a give that failed is still to be made.
            let mut said = asked.leave(is_late).into_iter();
            for place in &sheets[at].0 {
                questions[*place].heard(at, said.next());
            }
        }
        reached
    }

    fn send<'s>(
        &'s self,
        order: &[usize],
        sheets: &'s Sheets<'s>,
        questions: &mut [Question<'_>],
        asked: &mut Vec<(usize, Asked<'s>)>,
    ) {
        for at in order {
            let (places, sheet) = &sheets[*at];
            match self.nodes[*at].ask(self.lane, sheet, self.deadline) {
                Ok(begun) => asked.push((*at, begun)),
                Err(failure) => {
                    for place in places {
                        questions[*place].heard(*at, Some(Err(failure.clone())));
                    }
                }
            }
        }
    }

    /// Tells the questions what came, waiting for each node in turn.
    fn hear<'s>(
        &self,
        until: Deadline,
        sheets: &'s Sheets<'s>,
        questions: &mut [Question<'_>],
        asked: &mut Vec<(usize, Asked<'s>)>,
    ) {
        for (at, mut begun) in std::mem::take(asked) {
            if self.is_over(questions) || !begun.is_answered(until) {
                asked.push((at, begun));
                continue;
            }
            for (place, said) in sheets[at].0.iter().zip(begun.finish()) {
                questions[*place].heard(at, Some(said));
            }
        }
    }

    fn is_over(&self, questions: &[Question<'_>]) -> bool {
        !self.is_patient && questions.iter().all(Question::is_settled)
    }
}
