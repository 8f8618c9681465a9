//! One member of a quorum: a Redis of its own, however many servers it consists of.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::dialect::{Asks, Ballot, Quorum, Said};
use crate::clock::{Deadline, Moment};
use crate::config::{RedisConfig, Servers};
use crate::error::{Error, ErrorKind};
use crate::store::net::poll;
use crate::store::outbox::{Concern, Outbox};
use crate::store::redis::several::{Batch, Carried, Deployment, Dialect, Pending};
use crate::store::{Answer, Failure, Identity, Lane, Owed, Place, Request};
use crate::sync::Mutex;

pub(super) struct Node {
    pub(super) shown: String,
    /// Which member it is.
    pub(super) index: u8,
    pub(super) deployment: Deployment<Quorum>,
    /// Gives that it has not carried out, as far as anybody knows; and tokens that do not have the
    /// lock here, as it turned out after others had decided.
    pub(super) outbox: Arc<Outbox>,
    rest: Mutex<Rest>,
    /// How long it took to answer when that was looked at last, in microseconds, or 0 where it never
    /// was: fast nodes are heard first.
    pace: AtomicU64,
    /// How often in a row it was slower than a majority and half as long again.
    slower: AtomicU32,
    /// Until when it may keep a lock that it was asked for, in nanoseconds.
    locked_until: AtomicU64,
    /// Until when tokens may stand in queues there.
    queued_until: AtomicU64,
    /// It is a Cluster, of which several servers may have to be asked: asking it waits for answers.
    pub(super) is_blocking: bool,
    /// How many replicas a grant is waited for there.
    replicas: u32,
}

/// After a failure a node is left alone for a while, unless it is needed.
#[derive(Default)]
struct Rest {
    until: Moment,
    times: u32,
}

/// How long after the last take that may have left a place in a queue there places are given up. A
/// place lasts while others wait there, and is told while its client listens: with two of them at the
/// head of a queue, no other waiter is told. Few nodes are cut off from one client for an hour.
const PLACES_KEPT: Duration = Duration::from_secs(3600);

/// A node that was slower so often in a row will be so again.
const OFTEN: u32 = 3;

const MOST_AT_ONCE: usize = 32;
/// More are left to the ttl.
const MOST_OWED: usize = 10_000;
const SOON: Duration = Duration::from_millis(100);

const FIRST_REST: Duration = Duration::from_millis(50);
const MOST_DOUBLINGS: u32 = 5;

/// Ballots for one node, or for several that are told the same.
pub(super) struct Sheet<'a> {
    pub(super) ballots: Vec<Ballot<'a>>,
    batch: Batch<'a>,
}

fn joins(ballots: &[Ballot<'_>]) -> bool {
    ballots.iter().any(|ballot| matches!(ballot.asks, Asks::Take { place: Place::Join(_), .. }))
}

impl<'a> Sheet<'a> {
    pub(super) fn requests(&self) -> Vec<Request<'a>> {
        self.ballots.iter().filter_map(Ballot::request).collect()
    }
}

pub(super) struct Asked<'a> {
    node: &'a Node,
    sheet: &'a Sheet<'a>,
    pending: Pending<'a>,
}

impl Node {
    pub(super) fn new(
        redis: &RedisConfig,
        index: u8,
        (deployment, outbox): (Deployment<Quorum>, Arc<Outbox>),
    ) -> Node {
        let (rest, pace, slower, locked_until, queued_until) = Default::default();
        let is_blocking = matches!(redis.servers, Servers::Cluster(_));
        let (shown, replicas) = (redis.display(), redis.replicas);
        Node {
            shown,
            index,
            deployment,
            outbox,
            rest,
            pace,
            slower,
            locked_until,
            queued_until,
            is_blocking,
            replicas,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.rest.lock().times == 0 && !self.deployment.is_silent()
    }

    /// How long it is to be waited for once it was asked: a Cluster has answered by then.
    pub(super) fn pace(&self) -> u64 {
        if self.is_blocking { 0 } else { self.pace.load(Ordering::Relaxed) }
    }

    /// Whether these ballots for it are packed like those for another node.
    pub(super) fn packs_as(&self, other: &Node, ballots: &[Ballot<'_>]) -> bool {
        // In a Cluster the marker has a slot, and whether a node is heard is not the same for all.
        !(self.is_blocking || other.is_blocking || joins(ballots))
            && self.replicas == other.replicas
    }

    /// It took as long as that to answer, or longer.
    pub(super) fn note_pace(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.pace.store(took.max(1), Ordering::Relaxed);
    }

    /// Whether it mostly answers later than those that suffice.
    pub(super) fn is_slower(&self) -> bool {
        self.slower.load(Ordering::Relaxed) >= OFTEN
    }

    pub(super) fn note_slower(&self, slower: bool) {
        let times = self.slower.load(Ordering::Relaxed).saturating_add(1);
        self.slower.store(if slower { times } else { 0 }, Ordering::Relaxed);
    }

    pub(super) fn pack<'a>(&self, ballots: Vec<Ballot<'a>>) -> Sheet<'a> {
        let batch = self.deployment.pack(&ballots);
        Sheet { ballots, batch }
    }

    /// A sheet that it packed is over.
    pub(super) fn keep(&self, sheet: Sheet<'_>) {
        self.deployment.keep(sheet.batch);
    }

    /// Sends a sheet. A node that has not answered an earlier request is not asked.
    pub(super) fn ask<'a>(
        &'a self,
        lane: Lane,
        sheet: &'a Sheet<'a>,
        deadline: Deadline,
    ) -> Result<Asked<'a>, Failure> {
        if self.deployment.is_silent() {
            let silent = "the server has left earlier requests unanswered";
            return Err(Failure::not_done(Error::new(ErrorKind::NoAnswer, silent)));
        }
        // The keeper comes again, and has others to look after.
        if lane == Lane::Keeper && Moment::now() < self.rest.lock().until {
            let resting = "the server could not be reached a moment ago";
            return Err(Failure::not_done(Error::new(ErrorKind::Refused, resting)));
        }
        let asked = self.tell(lane, sheet, deadline);
        if asked.as_ref().err().is_none_or(|failure| failure.sent.is_some()) {
            self.keeps(&sheet.ballots);
        }
        match &asked {
            Ok(asked) if asked.pending.is_in_vain() => self.is_unwell(),
            Ok(_) => self.is_well(),
            // That so much is under way at once says nothing against the server.
            Err(failure) if failure.error.kind() == ErrorKind::Exhausted => {}
            Err(_) => self.is_unwell(),
        }
        asked
    }

    fn keeps(&self, ballots: &[Ballot<'_>]) {
        let now = Moment::now();
        let keep = |until: &AtomicU64, span: Option<Duration>| {
            if let Some(span) = span {
                until.fetch_max(now.plus(span).as_nanos(), Ordering::Relaxed);
            }
        };
        let ttl = ballots.iter().filter_map(|ballot| match ballot.asks {
            Asks::Take { ttl, .. } | Asks::Extend { ttl, .. } | Asks::Fill { ttl, .. } => Some(ttl),
            Asks::Raise { .. } | Asks::Give { .. } => None,
        });
        keep(&self.locked_until, ttl.max());
        keep(&self.queued_until, joins(ballots).then_some(PLACES_KEPT));
    }

    /// Until when it may keep a lock, or, where a token is given up altogether, a place in a queue.
    /// (A request that reached it late may last a little longer.)
    pub(super) fn kept_until(&self, altogether: bool) -> Moment {
        let [locked, queued] = [&self.locked_until, &self.queued_until]
            .map(|until| Moment::from_nanos(until.load(Ordering::Relaxed)));
        if altogether { locked.max(queued) } else { locked }
    }

    /// Callers may never find out that trouble is over: where the others suffice, it is not asked.
    pub(super) fn is_to_be_tried(&self) -> bool {
        let rest = self.rest.lock();
        rest.times > 0 && rest.until <= Moment::now()
    }

    pub(super) fn try_again(&self, deadline: Deadline) {
        match self.deployment.ping(deadline) {
            Ok(()) => self.is_well(),
            Err(_) => self.is_unwell(),
        }
    }

    /// Sends a sheet in any case.
    pub(super) fn tell<'a>(
        &'a self,
        lane: Lane,
        sheet: &'a Sheet<'a>,
        deadline: Deadline,
    ) -> Result<Asked<'a>, Failure> {
        let pending = self.deployment.start(lane, &sheet.batch, deadline)?;
        Ok(Asked { node: self, sheet, pending })
    }

    fn is_well(&self) {
        *self.rest.lock() = Rest::default();
    }

    pub(super) fn is_unwell(&self) {
        self.note_pace(Duration::MAX);
        let mut rest = self.rest.lock();
        rest.until = Moment::now().plus(FIRST_REST * (1 << rest.times.min(MOST_DOUBLINGS)));
        rest.times = rest.times.saturating_add(1);
    }

    /// The trouble is still the same: however often it is looked at, it is no further failure.
    fn stays_unwell(&self) {
        self.note_pace(Duration::MAX);
        let mut rest = self.rest.lock();
        rest.until = rest.until.max(Moment::now().plus(FIRST_REST));
        rest.times = rest.times.max(1);
    }

    pub(super) fn owe(&self, gives: &[Request<'_>], concern: Concern) {
        for give in gives {
            if let Request::Give { name, token, fence, ttl } = *give
                && self.outbox.count_gives() < MOST_OWED
            {
                let identity = Identity { name: name.into(), token, fence, ttl };
                let now = Moment::now();
                self.outbox.owe(Owed { identity, until: now.plus(ttl) }, concern, now.plus(SOON));
            }
        }
    }

    pub(super) fn tend(&self, before: Moment, deadline: Deadline) {
        if self.deployment.is_silent() {
            // Its connection will be given up, and a new one is not to be waited for either.
            self.stays_unwell();
        }
        self.deployment.read_unread(before);
        self.outbox.were_read(Moment::now());
        // It may have been extended for longer than its takes asked for, or stand in a queue.
        self.outbox.prolong(|identity| self.kept_until(identity.fence == 0));
        let rests_until = self.rest.lock().until;
        if rests_until > Moment::now() {
            // Nothing would be sent. Counted as a try, it would put off the next one for seconds.
            self.outbox.put_off(rests_until);
            return;
        }
        let due = self.outbox.take_due(Moment::now(), MOST_AT_ONCE);
        if due.is_empty() {
            return;
        }
        let gives: Vec<_> = due.iter().map(|one| one.identity.give()).collect();
        let sheet = self.pack(gives.iter().filter_map(Quorum::give).collect());
        let (sent, server, by) = Default::default();
        let given = |said| Answer { reply: Quorum::given(said), sent, server, by, again: None };
        let mut outcomes = Vec::with_capacity(due.len());
        match self.ask(Lane::Keeper, &sheet, deadline) {
            Ok(asked) => asked.finish(|said| outcomes.push(said.map(given))),
            Err(failure) => outcomes.resize(due.len(), Err(failure)),
        }
        self.outbox.tried(&due, &outcomes);
    }

    /// A client that closes is not heard of any more, so no node takes it for a waiter: where it has
    /// locked nothing, there is nothing to give up.
    pub(super) fn forget_places(&self) {
        if self.kept_until(false) <= Moment::now() {
            self.outbox.forget_unsent();
        }
    }

    pub(super) fn is_marked(&self, deadline: Deadline) -> Result<bool, Error> {
        self.deployment.is_marked(deadline).map_err(|error| error.at(&self.shown))
    }

    pub(super) fn initialize(&self, force: bool, by: Deadline) -> Result<(), Error> {
        self.deployment.initialize(force, by).map_err(|error| error.at(&self.shown))
    }

    pub(super) fn free_in(&self, name: &[u8], by: Deadline) -> Result<Duration, Error> {
        let free_in = self.deployment.free_in(name, by);
        // The next look does not wait for it.
        if free_in.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoAnswer) {
            self.is_unwell();
        }
        free_in
    }
}

impl Asked<'_> {
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.pending.fd()
    }

    pub(super) fn is_answered(&mut self, until: Deadline) -> bool {
        self.pending.is_answered(until)
    }

    /// Tells in order what it said to each ballot.
    pub(super) fn finish(self, mut tell: impl FnMut(Result<Said, Failure>)) {
        let Asked { node, sheet, pending } = self;
        let mut ballots = sheet.ballots.iter();
        pending.finish(&mut |carried| {
            if let Some(ballot) = ballots.next() {
                tell(said(node, ballot, carried));
            }
        });
    }

    /// Does not wait any longer, which took too long if `late`. Returns what is known already; the rest
    /// is left to the outbox, gives as of this concern.
    pub(super) fn leave_unread(self, late: bool, gives: Concern) -> Vec<Result<Said, Failure>> {
        let Asked { node, sheet, pending } = self;
        if late {
            node.note_pace(Duration::MAX);
        }
        let both = sheet.ballots.iter().zip(pending.leave_unread(gives));
        both.map(|(ballot, carried)| said(node, ballot, carried)).collect()
    }
}

fn said(node: &Node, ballot: &Ballot<'_>, carried: Carried) -> Result<Said, Failure> {
    Ok(node.deployment.read(ballot, carried)?.reply)
}

/// Until one of them has something to say, or the moment has come.
pub(super) fn wait_for<'a>(asked: impl Iterator<Item = &'a Asked<'a>>, until: Moment) {
    let fds: Vec<_> = asked.filter_map(Asked::fd).collect();
    poll::readable(&fds, until);
}
