//! Whatever may happen next.

use std::rc::Rc;

use super::{Attempt, End, Flaw, Kind, Letter, NODES, Post, Setup, Step, Task, World};
use crate::explore::quorum::hearing::Decisions;
use crate::store::quorum::round::Round;

impl World {
    /// Carrying something out may turn out to change nothing.
    pub(in crate::explore::quorum) fn steps(
        &self,
        setup: &Setup,
        decisions: &Decisions,
    ) -> Vec<Step> {
        let mut steps = Vec::new();
        // Only successes can be wrong, and who is idle for good has no more of them.
        if self.clients.iter().zip(&setup.hints).all(|(client, hints)| client.is_over(hints)) {
            return steps;
        }
        for (c, client) in self.clients.iter().enumerate() {
            let is_last = client.post.len() == setup.hints[c].len();
            match &client.task {
                Task::Idle if !is_last && self.may_start(c, setup) => {
                    steps.push(Step::Start(c as u8));
                }
                Task::Idle => {}
                Task::Trying(round) => {
                    let raising = client.post.last().is_some_and(|post| post.raise_to > 0);
                    let all = decisions.of(round, raising, client.grants, &client.answers);
                    let matters =
                        |end: &End| !(matches!(end, End::Refusal) && is_last && setup.expiry);
                    let some = all.iter().filter(|decision| matters(&decision.end));
                    steps.extend(some.map(|decision| Step::Decide(c as u8, Rc::clone(decision))));
                }
                Task::Won(_) => {
                    let is_whole = |round: Round| round.is_whole();
                    if self.informed(c, setup.flaw).is_some_and(is_whole) {
                        steps.push(Step::Return(c as u8));
                    }
                    steps.push(Step::ReturnLate(c as u8));
                }
                Task::Holding if is_last && setup.expiry => {}
                Task::Holding => steps.push(Step::Release(c as u8)),
            }
            for (number, post) in client.post.iter().enumerate() {
                let attempt = Attempt { client: c as u8, number: number as u8 };
                self.arrivals(attempt, post, setup, &mut steps);
            }
        }
        if self.forgets > 0 {
            steps.extend((0..NODES).map(|n| Step::Forget(n as u8)));
        }
        self.troubles(&mut steps);
        self.fills(setup, &mut steps);
        steps
    }

    /// What nodes do by themselves.
    fn troubles(&self, steps: &mut Vec<Step>) {
        let holders = || {
            let fence = |c: usize| self.clients[c].post.last().map_or(0, |post| post.fence);
            self.holders().filter_map(move |c| Some((self.current(c)?, fence(c))))
        };
        let is_trying = self.clients.iter().any(|client| matches!(client.task, Task::Trying(_)));
        for (n, node) in self.nodes.iter().enumerate() {
            if self.jumps > 0 && node.is_held() {
                steps.push(Step::Jump(n as u8));
            }
            let is_spare = |(by, fence)| {
                let mut others = self.nodes.iter().enumerate().filter(|(other, _)| *other != n);
                others.all(|(_, node)| node.knows(by, fence))
            };
            if self.restarts > 0 && !node.is_quarantined() && holders().any(is_spare) {
                steps.push(Step::Restart(n as u8));
            }
            // A client that was trying before the restart has ended when that is over.
            if node.is_quarantined() && !is_trying {
                steps.push(Step::VoteAgain(n as u8));
            }
        }
    }

    fn fills(&self, setup: &Setup, steps: &mut Vec<Step>) {
        if self.fills == 0 {
            return;
        }
        for (c, client) in self.clients.iter().enumerate() {
            // One that waits tells those that are known to lack it.
            let missing: Option<Vec<_>> =
                self.informed(c, setup.flaw).map(|round| round.lacking().collect());
            let may = |n: &usize| match client.task {
                Task::Won(_) => missing.as_ref().is_some_and(|missing| missing.contains(n)),
                Task::Holding => true,
                Task::Trying(_) => setup.flaw == Some(Flaw::CountsFills) && client.granted() > 0,
                Task::Idle => false,
            };
            let (Some(by), Some(post)) = (self.current(c), client.post.last()) else { continue };
            let lacks = |n: &usize| !self.nodes[*n].is_held_by(by);
            let unsent = (0..NODES).filter(|n| may(n) && post.fills[*n] == Letter::Unsent);
            steps.extend(unsent.filter(lacks).map(|n| Step::Fill(c as u8, n as u8)));
        }
    }

    fn may_start(&self, c: usize, setup: &Setup) -> bool {
        let have_started = |c: usize| !self.clients[c].post.is_empty();
        c == 0 || have_started(c) || have_started(c - 1) || !setup.is_alike()
    }

    fn arrivals(&self, attempt: Attempt, post: &Post, setup: &Setup, steps: &mut Vec<Step>) {
        let kinds = [
            (Kind::Take, &post.takes),
            (Kind::Raise, &post.raises),
            (Kind::Fill, &post.fills),
            (Kind::Give, &post.gives),
        ];
        for (kind, letters) in kinds {
            for (n, letter) in letters.iter().enumerate() {
                let again = *letter == Letter::Carried;
                if *letter == Letter::Unsent || again && self.repeats == 0 {
                    continue;
                }
                let carry = |expires| Step::Carry { attempt, kind, node: n as u8, again, expires };
                steps.push(carry(false));
                if matches!(kind, Kind::Take | Kind::Fill)
                    && setup.expiry
                    && self.nodes[n].is_held()
                {
                    steps.push(carry(true));
                }
            }
        }
    }
}
