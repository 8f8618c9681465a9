//! What a client can hear of one round trip, and what its round makes of it.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use super::node::Answer;
use super::setup::{Flaw, NODES};
use crate::clock::Moment;
use crate::store::quorum::round::{Round, Said, Step, Vote};

/// What has come back to a client; none of it is ever taken away, since it may come twice.
pub(super) type Answers = [Vec<Answer>; NODES];

/// A grant that a client has heard of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) enum Grant {
    #[default]
    None,
    /// Not in time.
    Late,
    /// Its fence, and whether it was raised after that.
    Counts(u8, bool),
}

/// All that a round knows.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Situation {
    raising: bool,
    grants: [Grant; NODES],
    answers: Answers,
}

/// An order in which some answers come, up to the one that decides something.
pub(super) struct Decision {
    /// `None` for a node that is waited for no longer.
    heard: Vec<(usize, Option<Answer>)>,
    pub(super) grants: [Grant; NODES],
    pub(super) end: End,
}

pub(super) enum End {
    Raise { round: Round, fence: u8, nodes: Vec<usize> },
    Success { round: Round, fence: u8 },
    Refusal,
}

/// Decisions that were worked out before: in the same situation a round does the same.
pub(super) struct Decisions {
    flaw: Option<Flaw>,
    known: RefCell<HashMap<Situation, Rc<[Rc<Decision>]>>>,
}

impl Decisions {
    pub(super) fn new(flaw: Option<Flaw>) -> Decisions {
        Decisions { flaw, known: RefCell::default() }
    }

    pub(super) fn of(
        &self,
        round: &Round,
        raising: bool,
        grants: [Grant; NODES],
        answers: &Answers,
    ) -> Rc<[Rc<Decision>]> {
        let situation = Situation { raising, grants, answers: answers.clone() };
        let mut known = self.known.borrow_mut();
        let decisions = known.entry(situation).or_insert_with_key(|situation| {
            let mut found = Found { flaw: self.flaw, ..Found::default() };
            found.look(round, Vec::new(), situation, situation.grants);
            found.decisions.into()
        });
        Rc::clone(decisions)
    }
}

#[derive(Default)]
struct Found {
    flaw: Option<Flaw>,
    decisions: Vec<Rc<Decision>>,
    /// What has been heard, in whatever order, without a decision.
    undecided: HashSet<[Option<Option<Answer>>; NODES]>,
    /// Ends are told apart by the grants that count and by the fence, or 0.
    ends: HashSet<([Grant; NODES], u8)>,
}

impl Found {
    fn look(
        &mut self,
        round: &Round,
        heard: Vec<(usize, Option<Answer>)>,
        situation: &Situation,
        grants: [Grant; NODES],
    ) {
        for n in (0..NODES).filter(|n| heard.iter().all(|(other, _)| other != n)) {
            let answers = &situation.answers[n];
            for first in answers.iter().copied().map(Some).chain([None]) {
                let (mut heard, mut grants) = (heard.clone(), grants);
                heard.push((n, first));
                // It comes again, and whatever else came from this node comes after it.
                let more = [first].into_iter().chain(answers.iter().copied().map(Some));
                let mut round = round.clone();
                let mut step = self.feed(&mut round, n, first, &mut grants[n]);
                for answer in more {
                    let Step::Wait = step else { break };
                    step = self.feed(&mut round, n, answer, &mut grants[n]);
                }
                match step {
                    Step::Wait => {
                        let mut all = [None; NODES];
                        heard.iter().for_each(|(n, answer)| all[*n] = Some(*answer));
                        if self.undecided.insert(all) {
                            self.look(&round, heard, situation, grants);
                        }
                    }
                    step => self.decided(step, round, heard, grants),
                }
            }
        }
    }

    fn decided(
        &mut self,
        step: Step,
        round: Round,
        heard: Vec<(usize, Option<Answer>)>,
        mut grants: [Grant; NODES],
    ) {
        let (end, fence) = match step {
            Step::Raise { fence, nodes } => {
                for grant in grants.iter_mut().filter(|grant| **grant == Grant::None) {
                    *grant = Grant::Late;
                }
                let fence = fence as u8;
                (End::Raise { round, fence, nodes }, fence)
            }
            Step::Granted { fence } => {
                let fence = fence as u8;
                (End::Success { round, fence }, fence)
            }
            Step::Refused { give, .. } => {
                assert_eq!(give.len(), NODES, "a node that was asked is not given");
                grants = Default::default();
                (End::Refusal, 0)
            }
            Step::Wait => return,
        };
        if self.ends.insert((grants, fence)) {
            self.decisions.push(Rc::new(Decision { heard, grants, end }));
        }
    }

    fn feed(&self, round: &mut Round, n: usize, answer: Option<Answer>, grant: &mut Grant) -> Step {
        let vote = match answer {
            None => {
                if *grant == Grant::None {
                    *grant = Grant::Late;
                }
                None
            }
            Some(Answer::Granted(fence)) => {
                if *grant == Grant::None {
                    *grant = Grant::Counts(fence, false);
                }
                Some(Ok(Said::Granted { fence: fence.into() }))
            }
            Some(Answer::Raised(fence)) => {
                *grant = Grant::Counts(fence, true);
                Some(Ok(Said::Raised))
            }
            Some(Answer::Filled) => Some(Ok(Said::Filled)),
        };
        heard(round, n, vote, self.flaw)
    }
}

/// What the round makes of a vote, or of what is wrong on purpose.
fn heard(round: &mut Round, n: usize, vote: Vote, flaw: Option<Flaw>) -> Step {
    let is_granted = matches!(vote, Some(Ok(Said::Granted { .. })));
    let vote = if is_granted && flaw == Some(Flaw::CountsLateGrants) && round.is_late(n) {
        round.count_late(n);
        Some(Ok(Said::Raised))
    } else {
        vote
    };
    match (round.heard(n, vote, Moment::ZERO), flaw) {
        (Step::Raise { fence, .. }, Some(Flaw::TakesTheLargestGrant)) => Step::Granted { fence },
        (Step::Wait, Some(Flaw::MajorityOfTheGranted)) => {
            round.fence_of_the_granted().map_or(Step::Wait, |fence| Step::Granted { fence })
        }
        (step, _) => step,
    }
}

/// What a round that has succeeded learns from all that has come since: of each node whether it was
/// asked and `is_busy`, and its answers.
pub(super) fn informed(round: &Round, is_busy: [bool; NODES], answers: &Answers) -> Round {
    let mut round = round.clone();
    let mut heard = |n, said| {
        let _: Step = round.heard(n, Some(Ok(said)), Moment::ZERO);
    };
    for n in 0..NODES {
        if is_busy[n] {
            let free_in = Duration::ZERO;
            heard(n, Said::Busy { free_in, rank: 0, ticket: 0, holder: 0, ours: true });
        }
        for answer in &answers[n] {
            heard(
                n,
                match answer {
                    Answer::Granted(fence) => Said::Granted { fence: (*fence).into() },
                    Answer::Raised(_) => Said::Raised,
                    Answer::Filled => Said::Filled,
                },
            );
        }
    }
    round
}

/// Fresh rounds of an attempt that nobody has answered yet.
pub(super) fn round() -> Round {
    Round::new(NODES, Moment::ZERO, Duration::from_secs(1))
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = match &self.end {
            End::Raise { fence, nodes, .. } => format!("raise {nodes:?} to {fence}"),
            End::Success { fence, .. } => format!("success with {fence}"),
            End::Refusal => "refusal".to_owned(),
        };
        write!(f, "{:?}: {end}", self.heard)
    }
}
