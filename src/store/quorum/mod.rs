//! One lock on several servers that know nothing of each other: a client that has a majority of all
//! of them has it, and a minority may be down.
//!
//! [`round`] is the algorithm of an attempt, which `docs/protocol.md` explains; [`tally`] that of an
//! extension and of a give. A [`question`] hands them what the nodes say, and [`scatter`] asks the
//! nodes. [`mends`] stores leases on nodes that lack them.
//!
//! Each [`node`] is a Redis of its own, however many servers it consists of; [`members`] are all of
//! them. How a lock is written there is the [`dialect`]'s.

mod admin;
mod breaking;
mod clients;
pub(crate) mod dialect;
mod dropping;
#[cfg(feature = "examine")]
pub(crate) mod examine;
mod listing;
mod members;
mod mends;
mod node;
mod question;
pub(crate) mod round;
mod scatter;
mod tally;
mod winning;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use self::dropping::Drops;
use self::members::Members;
use self::mends::Mends;
use self::node::Node;
use self::question::Question;
use self::round::{majority, too_few};
use self::scatter::Scatter;
use self::winning::Rivals;
use super::outbox::{Concern, Outbox};
use super::{Abilities, Failure, Kept, Lane, Listener, Outcome, Owed, Request, Store};
use crate::clock::{Deadline, Moment, wall_micros};
use crate::config::{Config, RedisConfig};
use crate::error::{Error, ErrorKind};
use crate::sync::{Permit, Permits};
use crate::token::Token;

/// Clients that ask at once can keep each other from a majority. They are notified at about the same
/// time, so each waits for a random part of this first: some round trips.
const SPREAD: Duration = Duration::from_millis(2);

/// The keeper tries a node that had trouble no longer than this: renewals wait meanwhile.
const LONGEST_TRIAL: Duration = Duration::from_millis(100);

/// At the latest after so many scatters it is looked anew which nodes answer first.
const LEARNS_EVERY: u64 = 256;

/// A node takes no number that is further ahead of its own clock, in microseconds.
const MOST_AHEAD: u64 = 3_600_000_000;

pub(crate) struct QuorumStore {
    members: Members,
    node_timeout: Duration,
    /// As many as each node has connections for callers.
    entrance: Permits,
    last_attempt: AtomicU64,
    /// Since one of the fastest nodes became slow.
    scatters: AtomicU64,
    /// After which somebody listened to nodes that were not needed.
    wins: AtomicU64,
    /// A node had trouble, and it is time to see whether that is over.
    tries: AtomicBool,
    mends: Mends,
    rivals: Rivals,
    drops: Drops,
}

impl QuorumStore {
    pub(crate) fn new(
        members: &[RedisConfig],
        config: &Config,
        outbox: &Arc<Outbox>,
    ) -> Result<QuorumStore, Error> {
        let members = Members::new(members, config)?;
        let (node_timeout, entrance) = (config.node_timeout(), Permits::new(config.pool));
        let (last_attempt, scatters, wins, tries, (mends, rivals)) = Default::default();
        Ok(QuorumStore {
            members,
            node_timeout,
            entrance,
            last_attempt,
            scatters,
            wins,
            tries,
            mends,
            rivals,
            drops: Drops::new(outbox),
        })
    }

    fn nodes(&self) -> &[Node] {
        &self.members.nodes
    }

    fn next_attempt(&self) -> u64 {
        let now = wall_micros();
        let next = |last| Some(following(last, now));
        let last = self.last_attempt.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        following(last.unwrap_or_default(), now)
    }

    /// By when a node that is asked now must have answered.
    fn by(&self, deadline: Deadline) -> Deadline {
        deadline.min(Deadline::after(self.node_timeout))
    }

    /// For what callers ask, of which the others stand apart. None if too many were asking until then.
    fn enter(&self, lane: Lane, deadline: Deadline) -> Option<Option<Permit<'_>>> {
        if lane == Lane::Caller { self.entrance.take(deadline).map(Some) } else { Some(None) }
    }

    fn scatter(&self, lane: Lane, deadline: Deadline) -> Scatter<'_> {
        let (nodes, deadline) = (self.nodes(), self.by(deadline));
        let is_time = self.scatters.fetch_add(1, Ordering::Relaxed).is_multiple_of(LEARNS_EVERY);
        let is_unknown = |node: &Node| node.pace() == 0 && !node.is_blocking;
        let learns = is_time || nodes.iter().any(is_unknown);
        let (scatters, wins) = (&self.scatters, &self.wins);
        Scatter { nodes, lane, deadline, is_patient: false, scatters, wins, learns }
    }

    /// Gives up attempts that failed, wherever they may have been granted something, and waits for
    /// no reply. Owes gives to nodes that failed, or were left out since the others sufficed.
    fn clean_up(&self, lane: Lane, questions: &[Question<'_>], deadline: Deadline) {
        for (at, node) in self.nodes().iter().enumerate() {
            let gives: Vec<_> = questions.iter().filter_map(|one| one.leftover(at)).collect();
            if !gives.is_empty() {
                let sheet = node.pack(gives);
                // What takes longer is owed: the caller does not wait for it.
                let said = match node.tell(lane, &sheet, self.by(deadline)) {
                    Ok(told) => told.leave_unread(false, Concern::AnyReply),
                    Err(failure) => vec![Err(failure); sheet.requests().len()],
                };
                let said = sheet.requests().into_iter().zip(said).filter(|(_, said)| said.is_err());
                node.owe(&said.map(|(request, _)| request).collect::<Vec<_>>(), Concern::AnyReply);
            }
            let untold: Vec<_> = questions.iter().filter_map(|one| one.untold(at, lane)).collect();
            if !untold.is_empty() && node.kept_until(true) > Moment::now() {
                node.owe(&untold, Concern::AnyReply);
            }
        }
    }

    /// Each node, those first that are well, and by when it must have answered: one that does not
    /// leaves time for the others.
    fn in_turn(&self, deadline: Deadline) -> impl Iterator<Item = (&Node, Deadline)> {
        let (ready, others): (Vec<_>, Vec<_>) = self.nodes().iter().partition(|it| it.is_ready());
        let left = (1..=self.nodes().len()).rev();
        let all = ready.into_iter().chain(others).zip(left);
        all.map(move |(node, left)| (node, self.by(deadline.share(left))))
    }

    /// What the nodes answer, if most do.
    fn reach<T>(
        &self,
        deadline: Deadline,
        ask: impl Fn(&Node, Deadline) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let (mut answers, mut troubles) = (Vec::new(), Vec::new());
        for (node, by) in self.in_turn(deadline) {
            match ask(node, by) {
                Ok(answer) => answers.push(answer),
                Err(error) => troubles.push(error),
            }
        }
        let (answered, all) = (answers.len(), self.nodes().len());
        if answered >= majority(all) { Ok(answers) } else { Err(too_few(answered, all, &troubles)) }
    }
}

/// The number of an attempt: our clock, but never the same twice, nor less than before. Only where it
/// was so far ahead that nodes refuse what it numbered, it begins anew: they would refuse all else
/// until it is as late as it was then.
fn following(last: u64, now: u64) -> u64 {
    if last > now.saturating_add(MOST_AHEAD) { now } else { now.max(last.saturating_add(1)) }
}

impl Store for QuorumStore {
    fn run(&self, lane: Lane, requests: &[Request<'_>], deadline: Deadline) -> Vec<Outcome> {
        let Some(mut permit) = self.enter(lane, deadline) else {
            let busy = Error::new(ErrorKind::Exhausted, "all connections of the pool were in use");
            return vec![Err(Failure::not_done(busy)); requests.len()];
        };
        self.await_mends(requests, deadline);
        let (attempt, sent) = (self.next_attempt(), Moment::now());
        let question = |request: &_| Question::new(*request, attempt, self.nodes().len(), sent);
        let mut questions: Vec<_> = requests.iter().map(question).collect();
        self.scatter(lane, deadline).run(&mut questions, |question, _| Some(question.ballot()));
        if questions.iter().any(Question::has_raise) {
            self.scatter(lane, deadline).run(&mut questions, Question::raise);
        }
        self.clean_up(lane, &questions, deadline);
        self.complete(lane, &mut permit, &mut questions, deadline);
        self.remember(&questions);
        self.count_votes();
        if self.nodes().iter().any(Node::is_to_be_tried) {
            self.tries.store(true, Ordering::SeqCst);
        }
        questions.into_iter().map(Question::outcome).collect()
    }

    /// When most nodes are free. Nodes that had trouble a moment ago are not waited for.
    fn free_in(&self, name: &[u8], deadline: Deadline) -> Result<Duration, Error> {
        let mut spans = Vec::new();
        for node in self.nodes().iter().filter(|node| node.is_ready()) {
            if deadline.has_passed() {
                break;
            }
            spans.extend(node.free_in(name, self.by(deadline)).ok());
        }
        spans.sort_unstable();
        let most = spans.get(majority(self.nodes().len()) - 1).copied();
        most.ok_or_else(|| Error::bare(ErrorKind::NoQuorum))
    }

    fn ping(&self, deadline: Deadline) -> Result<(), Error> {
        self.reach(deadline, |node, by| node.deployment.ping(by)).map(drop)
    }

    fn abilities(&self) -> Abilities {
        Abilities { spread: SPREAD, ..Abilities::default() }
    }

    /// The gives go out to all nodes at once. What they say is counted when it is read.
    fn let_go(&self, owed: &Owed, lane: Lane, deadline: Deadline) -> Option<Outcome> {
        self.drop_on_all(owed, lane, deadline);
        None
    }

    fn tend(&self, before: Moment, held: &dyn Fn(&[Token]) -> Vec<Kept>, deadline: Deadline) {
        let is_closing = before == Moment::NEVER;
        // A mend is tried a few times only, and a node that had trouble once is not told by it: where
        // no caller asks, nobody else would find out that the trouble is over.
        let is_mending = || self.mends.due().is_some_and(|due| due <= Moment::now());
        let tries = !is_closing && (self.tries.swap(false, Ordering::SeqCst) || is_mending());
        for node in self.nodes() {
            if tries && node.is_to_be_tried() {
                node.try_again(self.by(deadline).min(Deadline::after(LONGEST_TRIAL)));
            }
            if is_closing {
                node.forget_places();
            }
            node.tend(before, self.by(deadline));
            node.outbox.take_lacking().into_iter().for_each(|token| self.mends.note(token));
        }
        if is_closing {
            self.mends.forget();
        }
        self.count_votes();
        self.drops.expire(Moment::now());
        self.mend_due(held, deadline);
    }

    fn due(&self) -> Moment {
        if self.tries.load(Ordering::SeqCst) {
            return Moment::ZERO;
        }
        let nodes = self.nodes().iter().map(|node| node.outbox.due());
        nodes.chain(self.mends.due()).min().unwrap_or(Moment::NEVER)
    }

    fn listener(&self) -> Option<&dyn Listener> {
        Some(&self.members)
    }
}

/// The largest value that this many nodes have reached. A holder left his fence on most of them; a
/// larger one on a few is that of an attempt that failed.
fn known_to<T: Ord + Copy>(most: usize, values: impl Iterator<Item = T>) -> Option<T> {
    let mut values: Vec<_> = values.collect();
    values.sort_unstable_by(|one, other| other.cmp(one));
    values.get(most - 1).or(values.last()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_numbered_upwards_and_a_clock_that_was_wrong_is_forgotten() {
        let now = 1_795_182_559_483_864;
        assert_eq!(following(0, now), now);
        assert_eq!(following(now, now), now + 1);
        assert_eq!(following(now + MOST_AHEAD, now), now + MOST_AHEAD + 1);
        assert_eq!(following(now + MOST_AHEAD + 1, now), now);
        assert_eq!(following(u64::MAX, now), now);
    }
}
