//! Asking all nodes at once: one scatter and one gather.
//!
//! No node is waited for that is not needed: the nodes that answer fastest are read first, and as soon
//! as everything is decided the other replies are left to later users of those connections. Now and
//! then, and where one of these is slow, all of them are waited for at once, which costs more calls
//! of the system and shows which are the fastest.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::dialect::Ballot;
use super::node::{Asked, Node, Sheet, wait_for};
use super::question::Question;
use crate::clock::{Deadline, Moment};
use crate::store::Lane;
use crate::store::outbox::Concern;

/// How long one node is waited for before the others are looked at as well: longer than a server
/// takes that is not far away, and short enough for one that has just died to cost next to nothing.
const FIRST_LOOK: Duration = Duration::from_millis(2);

/// Whoever has won listens to the others for so long at least.
const LEAST_LINGER: Duration = Duration::from_micros(50);
/// How often also to those that were mostly slower.
const LINGERS_EVERY: u64 = 16;

const AT_ONCE: Deadline = Deadline::at(Moment::ZERO);

pub(super) struct Scatter<'a> {
    pub(super) nodes: &'a [Node],
    pub(super) lane: Lane,
    /// By when a node must have answered.
    pub(super) deadline: Deadline,
    /// All of them are waited for.
    pub(super) is_patient: bool,
    /// How many there were. The next one learns where this is 0.
    pub(super) scatters: &'a AtomicU64,
    /// How often those that had won listened to nodes that were not needed.
    pub(super) wins: &'a AtomicU64,
    /// Who answers first is not known well enough.
    pub(super) learns: bool,
}

/// What some nodes are asked, and the places of the questions that they are asked.
struct Letter<'r> {
    /// The first of these nodes.
    first: usize,
    places: Vec<usize>,
    sheet: Sheet<'r>,
}

/// When a node is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Usual,
    /// After the usual ones, since asking it waits for the answer.
    Blocking,
    /// It had trouble before: it is asked where nothing is decided without it, or no caller waits.
    Unwell,
}

/// A node that is to be asked; and asked, until it is heard.
struct Hearing<'s> {
    at: usize,
    letter: &'s Letter<'s>,
    turn: Turn,
    pace: u64,
    asked: Option<Asked<'s>>,
}

impl Hearing<'_> {
    /// Tells the questions what it says by then. False if that is nothing, or it was heard before.
    fn answer(&mut self, questions: &mut [Question<'_>], until: Deadline) -> bool {
        let asked = self.asked.take_if(|asked| asked.is_answered(until));
        let is_answered = asked.is_some();
        let mut places = self.letter.places.iter();
        if let Some(asked) = asked {
            asked.finish(|said| {
                if let Some(place) = places.next() {
                    questions[*place].heard(self.at, Some(said));
                }
            });
        }
        is_answered
    }
}

impl Scatter<'_> {
    /// Asks each node, and tells the questions what it said until all of them are settled.
    pub(super) fn run<'r>(
        &self,
        questions: &mut [Question<'r>],
        ballot: impl Fn(&mut Question<'r>, usize) -> Option<Ballot<'r>>,
    ) {
        let begun = Moment::now();
        let (letters, mut told) = self.pack(questions, ballot);
        // Always in the same order: two threads must not wait for each other's connections.
        told.sort_by_key(|(at, _)| self.nodes[*at].is_blocking);
        let hearing = |(at, letter): (usize, usize)| {
            let node = &self.nodes[at];
            let turn = match (node.is_ready(), node.is_blocking) {
                (false, _) => Turn::Unwell,
                (true, true) => Turn::Blocking,
                (true, false) => Turn::Usual,
            };
            Hearing { at, letter: &letters[letter], turn, pace: node.pace(), asked: None }
        };
        let mut hearings: Vec<_> = told.into_iter().map(hearing).collect();
        let mut took = None;
        for turn in [Turn::Usual, Turn::Blocking, Turn::Unwell] {
            if turn != Turn::Blocking && self.is_over(questions) && self.lane != Lane::Keeper {
                break;
            }
            for one in hearings.iter_mut().filter(|one| one.turn == turn) {
                let Letter { places, sheet, .. } = one.letter;
                match self.nodes[one.at].ask(self.lane, sheet, self.deadline) {
                    Ok(asked) => one.asked = Some(asked),
                    Err(failure) => {
                        let vote = || Some(Err(failure.clone()));
                        places.iter().for_each(|place| questions[*place].heard(one.at, vote()));
                    }
                }
            }
            match turn {
                Turn::Usual if self.learns => {
                    let until = self.deadline.min(Deadline::after(FIRST_LOOK));
                    took = self.learn((begun, until), questions, &mut hearings);
                }
                Turn::Usual => {}
                Turn::Blocking if !self.learns => self.look(questions, &mut hearings),
                Turn::Blocking | Turn::Unwell => {
                    _ = self.hear((AT_ONCE, None), questions, &mut hearings);
                }
            }
        }
        took = self.learn((begun, self.deadline), questions, &mut hearings).or(took);
        if questions.iter().any(Question::has_won) {
            self.linger(begun, questions, &mut hearings);
        }
        let is_late = self.deadline.has_passed();
        for Hearing { at, letter, asked, .. } in hearings {
            // What was said decides nothing any more, but a give that failed is still to be made.
            if let Some(asked) = asked {
                // Longer than those that were heard, and so after them in the next look.
                let longer = took.map(|took| took + Duration::from_micros(1));
                longer.into_iter().for_each(|took| self.nodes[at].note_pace(took));
                let mut said = asked.leave_unread(is_late, Concern::AnyReply).into_iter();
                letter.places.iter().for_each(|place| questions[*place].heard(at, said.next()));
            }
        }
        letters.into_iter().for_each(|letter| self.nodes[letter.first].keep(letter.sheet));
    }

    /// Tells the questions what comes from the nodes that are mostly the fastest.
    fn look(&self, questions: &mut [Question<'_>], hearings: &mut [Hearing<'_>]) {
        let mut hearings: Vec<_> = hearings.iter_mut().collect();
        hearings.sort_by_key(|one| one.pace);
        let begun = Moment::now();
        let until = self.deadline.min(Deadline::at(begun.plus(FIRST_LOOK)));
        let usual = Duration::from_micros(self.hear((until, None), questions, hearings));
        // One of them has become slow: without this each call would wait for it until it is time to
        // learn again. Where all are waited for, slow ones are no surprise.
        if !self.is_patient && Moment::now().since(begun) / 2 > usual {
            self.scatters.store(0, Ordering::Relaxed);
        }
    }

    /// Tells the questions what comes from any node, and notes how long that took. Returns how long
    /// the last to come took, if one was waited for.
    fn learn(
        &self,
        (begun, until): (Moment, Deadline),
        questions: &mut [Question<'_>],
        hearings: &mut [Hearing<'_>],
    ) -> Option<Duration> {
        let is_asked = |one: &Hearing<'_>| one.asked.is_some();
        let mut took = None;
        while hearings.iter().any(is_asked) && !(self.is_over(questions) || until.has_passed()) {
            let asked = hearings.iter().filter_map(|one| one.asked.as_ref());
            wait_for(asked, until.moment());
            took = Some(Moment::now().since(begun));
            _ = self.hear((AT_ONCE, took), questions, &mut *hearings);
        }
        took
    }

    /// Hears those too that nothing hangs on any more, for half as long again at most: whoever has won
    /// learns from them whether somebody else has the lock there, and that has to be mended.
    fn linger(&self, begun: Moment, questions: &mut [Question<'_>], hearings: &mut [Hearing<'_>]) {
        if !hearings.iter().any(|one| one.asked.is_some()) {
            return;
        }
        let now = Moment::now();
        let span = (now.since(begun) / 2).max(LEAST_LINGER);
        let until = self.deadline.min(Deadline::at(now.plus(span)));
        // (Of all scatters, those of one thread that takes and releases would always be odd.)
        let is_time = self.wins.fetch_add(1, Ordering::Relaxed).is_multiple_of(LINGERS_EVERY);
        for one in hearings.iter_mut().filter(|one| one.asked.is_some()) {
            let node = &self.nodes[one.at];
            // One that is always slower is tried now and then; what has come of it is heard in any case.
            let is_awaited = one.turn == Turn::Usual && (is_time || !node.is_slower());
            let is_heard = one.answer(questions, if is_awaited { until } else { AT_ONCE });
            if is_awaited {
                node.note_slower(!is_heard);
            }
        }
    }

    /// What is to be told, and to which nodes. It is packed once for nodes that are told the same.
    fn pack<'r>(
        &self,
        questions: &mut [Question<'r>],
        ballot: impl Fn(&mut Question<'r>, usize) -> Option<Ballot<'r>>,
    ) -> (Vec<Letter<'r>>, Vec<(usize, usize)>) {
        let mut letters = Vec::<Letter<'r>>::new();
        let (mut told, mut asked) = (Vec::with_capacity(self.nodes.len()), Vec::new());
        for (at, node) in self.nodes.iter().enumerate() {
            asked.clear();
            let ask = |(place, question)| Some((place, ballot(question, at)?));
            asked.extend(questions.iter_mut().enumerate().filter_map(ask));
            if asked.is_empty() {
                continue;
            }
            // A question asks all nodes the same.
            let is_same = |letter: &Letter<'r>| {
                letter.places.iter().eq(asked.iter().map(|(place, _)| place))
                    && node.packs_as(&self.nodes[letter.first], &letter.sheet.ballots)
            };
            let letter = letters.iter().position(is_same).unwrap_or_else(|| {
                let (places, ballots) = asked.iter().copied().unzip();
                letters.push(Letter { first: at, places, sheet: node.pack(ballots) });
                letters.len() - 1
            });
            told.push((at, letter));
        }
        (letters, told)
    }

    /// Tells the questions what came, waiting for each node in turn. They took as long as `took`,
    /// where that is known. Returns how long the slowest of them usually takes, in microseconds.
    fn hear<'h, 's: 'h>(
        &self,
        (until, took): (Deadline, Option<Duration>),
        questions: &mut [Question<'_>],
        hearings: impl IntoIterator<Item = &'h mut Hearing<'s>>,
    ) -> u64 {
        let mut usual = 0;
        for one in hearings {
            if self.is_over(questions) {
                break;
            }
            if one.answer(questions, until) {
                usual = usual.max(one.pace);
                took.into_iter().for_each(|took| self.nodes[one.at].note_pace(took));
            }
        }
        usual
    }

    fn is_over(&self, questions: &[Question<'_>]) -> bool {
        !self.is_patient && questions.iter().all(Question::is_settled)
    }
}
