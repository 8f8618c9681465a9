//! A lock that was won while somebody else had it on some of the nodes: mostly another who asked at the
//! same moment, and gives it up there as soon as he hears that he has lost.
//!
//! Until such a node has it too, it stands on a bare majority: one more that dies, or whose clock jumps,
//! is enough for it to be lost. So these nodes are told to store it before the call returns. Where they
//! do not come round to it in time, [`mends`](super::mends) goes on while the lease is held.

use std::collections::HashMap;
use std::time::Duration;

use super::QuorumStore;
use super::question::Question;
use super::scatter::Scatter;
use crate::clock::{Deadline, Moment};
use crate::store::Lane;
use crate::sync::{Mutex, Permit};

/// Between the first two tries; doubled each time.
const PAUSE: Duration = Duration::from_micros(100);
/// No more are remembered.
const MOST: usize = 256;

/// Holders that were waited for in vain, and until when they may stay: one that died amid its attempt
/// keeps a node for a ttl, and delays nobody twice.
#[derive(Default)]
pub(super) struct Rivals(Mutex<HashMap<u64, Moment>>);

impl Rivals {
    fn stays(&self, rival: u64) -> bool {
        self.0.lock().get(&rival).is_some_and(|until| *until > Moment::now())
    }

    fn note(&self, rival: u64, until: Moment) {
        let (mut rivals, now) = (self.0.lock(), Moment::now());
        if rivals.len() >= MOST {
            rivals.retain(|_, until| *until > now);
        }
        if rivals.len() < MOST {
            rivals.insert(rival, until);
        }
    }
}

impl QuorumStore {
    /// Has nodes that answered and lack what was won store it, as long as an answer of one node is
    /// waited for. Others may ask during the pauses.
    pub(super) fn complete<'s>(
        &'s self,
        lane: Lane,
        permit: &mut Option<Permit<'s>>,
        questions: &mut [Question<'_>],
        deadline: Deadline,
    ) {
        let is_bare = |question: &Question<'_>, node: &usize| {
            let rival = question.rival_on(*node);
            self.nodes()[*node].is_ready() && !rival.is_some_and(|(who, _)| self.rivals.stays(who))
        };
        let any_bare =
            |question: &Question<'_>| question.bare_on().any(|at| is_bare(question, &at));
        if !questions.iter().any(any_bare) {
            return;
        }
        let until = questions.iter().map(Question::early).min().unwrap_or(Moment::NEVER);
        let until = self.by(deadline.min(Deadline::at(until)));
        let (begun, mut pause) = (Moment::now(), PAUSE);
        loop {
            let scatter = Scatter { is_patient: true, ..self.scatter(lane, until) };
            scatter.run(questions, |question, node| {
                question.fill(node).filter(|_| is_bare(question, &node))
            });
            if !questions.iter().any(any_bare) {
                break;
            }
            let mut is_over = until.left() <= pause;
            if !is_over {
                drop(permit.take());
                std::thread::sleep(pause);
                pause *= 2;
                let entered = self.enter(lane, until);
                is_over = entered.is_none();
                *permit = entered.flatten();
            }
            if is_over {
                // One that there was little time for may be about to leave.
                if Moment::now().since(begun) >= self.node_timeout / 4 {
                    self.leave_bare(questions);
                }
                break;
            }
        }
    }

    fn leave_bare(&self, questions: &[Question<'_>]) {
        let now = Moment::now();
        for question in questions {
            for (rival, free_in) in question.bare_on().filter_map(|node| question.rival_on(node)) {
                self.rivals.note(rival, now.plus(free_in));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rival_that_stays_is_waited_for_once_and_few_are_remembered() {
        let rivals = Rivals::default();
        let (now, later) = (Moment::now(), Moment::now().plus(Duration::from_secs(3600)));
        assert!(!rivals.stays(7));
        rivals.note(7, later);
        rivals.note(8, now);
        assert!(rivals.stays(7) && !rivals.stays(8), "its ttl is over");
        for rival in 100..1000 {
            rivals.note(rival, if rival % 2 == 0 { later } else { now });
        }
        assert!(rivals.stays(7) && rivals.stays(500), "those that are gone make room");
        assert!(rivals.0.lock().len() <= MOST);
        assert!(!rivals.stays(998), "there was no room for it");
    }
}
