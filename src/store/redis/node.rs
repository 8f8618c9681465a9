//! One member of a quorum: a Redis of its own, however many servers it consists of.

mod members;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

pub(in crate::store) use self::members::Members;
use super::admin::Names;
use super::codec::Deployment;
use super::dialect::quorum::Quorum;
pub(crate) use super::dialect::quorum::Said;
pub(in crate::store) use super::dialect::quorum::{Asks, Ballot, LONGEST_BLOCK};
pub(in crate::store) use super::dialect::survey::Survey;
use super::dialect::{Batch, Dialect, look};
use super::route::single::Pending;
use super::route::{Carried, Parcel};
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::said::say;
use crate::store::breaking::Breaches;
use crate::store::glob::Glob;
use crate::store::listing::Bookmark;
use crate::store::net::poll;
use crate::store::outbox::{Concern, Outbox};
use crate::store::{Answer, Failure, Identity, Lane, LockState, Owed, Place, Record, Request};
use crate::sync::Mutex;
use crate::token::{ClientId, Token};

pub(in crate::store) struct Node {
    pub(in crate::store) shown: String,
    member: u8,
    deployment: Deployment<Quorum>,
    /// Gives that it has not carried out, as far as anybody knows; and tokens that do not have the
    /// lock here, as it turned out after others had decided.
    pub(in crate::store) outbox: Arc<Outbox>,
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
    pub(in crate::store) is_blocking: bool,
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
pub(in crate::store) struct Sheet<'a> {
    pub(in crate::store) ballots: Vec<Ballot<'a>>,
    batch: Batch<'a>,
}

fn joins(ballots: &[Ballot<'_>]) -> bool {
    ballots.iter().any(|ballot| matches!(ballot.asks, Asks::Take { place: Place::Join(_), .. }))
}

impl<'a> Sheet<'a> {
    pub(in crate::store) fn requests(&self) -> Vec<Request<'a>> {
        self.batch.calls.iter().filter_map(|call| call.request).collect()
    }
}

/// What a client says of itself.
#[derive(Clone, Copy)]
pub(in crate::store) enum Mention<'a> {
    Is(Record<'a>),
    /// It has closed.
    Was(ClientId),
}

pub(in crate::store) struct Asked<'a> {
    node: &'a Node,
    sheet: &'a Sheet<'a>,
    pending: Pending<'a>,
}

impl Node {
    pub(in crate::store) fn is_ready(&self) -> bool {
        self.rest.lock().times == 0 && !self.deployment.route.is_silent()
    }

    /// How long it is to be waited for once it was asked: a Cluster has answered by then.
    pub(in crate::store) fn pace(&self) -> u64 {
        if self.is_blocking { 0 } else { self.pace.load(Ordering::Relaxed) }
    }

    /// Whether these ballots for it are packed like those for another node.
    pub(in crate::store) fn packs_as(&self, other: &Node, ballots: &[Ballot<'_>]) -> bool {
        // In a Cluster the marker has a slot, and whether a node is heard is not the same for all.
        !(self.is_blocking || other.is_blocking || joins(ballots))
            && self.replicas == other.replicas
    }

    /// It took as long as that to answer, or longer.
    pub(in crate::store) fn note_pace(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.pace.store(took.max(1), Ordering::Relaxed);
    }

    /// Whether it mostly answers later than those that suffice.
    pub(in crate::store) fn is_slower(&self) -> bool {
        self.slower.load(Ordering::Relaxed) >= OFTEN
    }

    pub(in crate::store) fn note_slower(&self, slower: bool) {
        let times = self.slower.load(Ordering::Relaxed).saturating_add(1);
        self.slower.store(if slower { times } else { 0 }, Ordering::Relaxed);
    }

    pub(in crate::store) fn pack<'a>(&self, ballots: Vec<Ballot<'a>>) -> Sheet<'a> {
        let batch = self.deployment.codec.pack(&ballots);
        Sheet { ballots, batch }
    }

    /// A sheet that it packed is over.
    pub(in crate::store) fn keep(&self, sheet: Sheet<'_>) {
        self.deployment.codec.dialect.format().drafts.keep(sheet.batch);
    }

    /// Sends a sheet. A node that has not answered an earlier request is not asked.
    pub(in crate::store) fn ask<'a>(
        &'a self,
        lane: Lane,
        sheet: &'a Sheet<'a>,
        deadline: Deadline,
    ) -> Result<Asked<'a>, Failure> {
        if self.deployment.route.is_silent() {
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
    pub(in crate::store) fn kept_until(&self, altogether: bool) -> Moment {
        let [locked, queued] = [&self.locked_until, &self.queued_until]
            .map(|until| Moment::from_nanos(until.load(Ordering::Relaxed)));
        if altogether { locked.max(queued) } else { locked }
    }

    /// Callers may never find out that trouble is over: where the others suffice, it is not asked.
    pub(in crate::store) fn is_to_be_tried(&self) -> bool {
        let rest = self.rest.lock();
        rest.times > 0 && rest.until <= Moment::now()
    }

    pub(in crate::store) fn try_again(&self, deadline: Deadline) {
        match self.deployment.route.ping(deadline) {
            Ok(()) => self.is_well(),
            Err(_) => self.is_unwell(),
        }
    }

    /// Sends a sheet in any case.
    pub(in crate::store) fn tell<'a>(
        &'a self,
        lane: Lane,
        sheet: &'a Sheet<'a>,
        deadline: Deadline,
    ) -> Result<Asked<'a>, Failure> {
        let parcel = Parcel { lane, batch: &sheet.batch, deadline };
        let pending = self.deployment.route.start(parcel)?;
        Ok(Asked { node: self, sheet, pending })
    }

    fn is_well(&self) {
        *self.rest.lock() = Rest::default();
    }

    fn is_unwell(&self) {
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

    pub(in crate::store) fn owe(&self, gives: &[Request<'_>], concern: Concern) {
        for give in gives {
            if let Request::Give { name, token, fence, ttl } = *give
                && self.outbox.owed() < MOST_OWED
            {
                let identity = Identity { name: name.into(), token, fence, ttl };
                let now = Moment::now();
                self.outbox.owe(Owed { identity, until: now.plus(ttl) }, concern, now.plus(SOON));
            }
        }
    }

    pub(in crate::store) fn tend(&self, before: Moment, deadline: Deadline) {
        if self.deployment.route.is_silent() {
            // Its connection will be given up, and a new one is not to be waited for either.
            self.stays_unwell();
        }
        self.deployment.route.read_unread(before);
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
    pub(in crate::store) fn forget_places(&self) {
        if self.kept_until(false) <= Moment::now() {
            self.outbox.forget_unsent();
        }
    }

    pub(in crate::store) fn is_marked(&self, deadline: Deadline) -> Result<bool, Error> {
        self.deployment.is_marked(deadline).map_err(|error| error.at(&self.shown))
    }

    pub(in crate::store) fn initialize(&self, force: bool, by: Deadline) -> Result<(), Error> {
        self.deployment.initialize(force, by).map_err(|error| error.at(&self.shown))
    }

    pub(in crate::store) fn ping(&self, deadline: Deadline) -> Result<(), Error> {
        self.deployment.route.ping(deadline)
    }

    pub(in crate::store) fn free_in(&self, name: &[u8], by: Deadline) -> Result<Duration, Error> {
        let free_in = self.deployment.free_in(name, by);
        // The next look does not wait for it.
        if free_in.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoAnswer) {
            self.is_unwell();
        }
        free_in
    }

    pub(in crate::store) fn inspect(
        &self,
        name: &[u8],
        deadline: Deadline,
    ) -> Result<LockState, Error> {
        self.deployment.inspect(name, deadline)
    }

    /// Says something of which no answer is waited for.
    pub(in crate::store) fn mention(&self, what: Mention<'_>, deadline: Deadline) {
        let batch = match what {
            Mention::Is(record) => look::pack_register(record),
            Mention::Was(client) => look::pack_unregister(client),
        };
        if let Err(failure) = self.deployment.tell(&batch, deadline) {
            say!(Debug, "record-untold", store = &*self.shown, error = failure.error);
        }
    }

    pub(in crate::store) fn records(
        &self,
        clients: &[ClientId],
        deadline: Deadline,
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        self.deployment.records(clients, deadline)
    }

    pub(in crate::store) fn names(
        &self,
        glob: &Glob,
        from: &Bookmark,
        deadline: Deadline,
    ) -> Result<Names, Error> {
        self.deployment.names(glob, from, deadline)
    }

    pub(in crate::store) fn survey(
        &self,
        names: &[Vec<u8>],
        deadline: Deadline,
    ) -> Result<Vec<Survey>, Error> {
        self.deployment.survey(names, deadline)
    }

    /// Its part in a break: as a give of any attempt.
    pub(in crate::store) fn break_grant(
        &self,
        (name, token): (&[u8], Token),
        by: &[u8],
        deadline: Deadline,
    ) -> Result<Said, Failure> {
        let said = self.deployment.break_grant(Lane::Caller, (name, (token, 0)), by, deadline)?;
        Ok(if said == 0 { Said::NotMine } else { Said::Given })
    }

    pub(in crate::store) fn breaches(
        &self,
        lane: Lane,
        of: &[&[u8]],
        deadline: Deadline,
    ) -> Breaches {
        self.deployment.breaches(lane, of, deadline)
    }
}

impl Asked<'_> {
    pub(in crate::store) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.pending.fd()
    }

    pub(in crate::store) fn is_answered(&mut self, until: Deadline) -> bool {
        self.pending.is_answered(until)
    }

    /// Tells in order what it said to each ballot.
    pub(in crate::store) fn finish(self, mut tell: impl FnMut(Result<Said, Failure>)) {
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
    pub(in crate::store) fn leave(self, late: bool, gives: Concern) -> Vec<Result<Said, Failure>> {
        let Asked { node, sheet, pending } = self;
        if late {
            node.note_pace(Duration::MAX);
        }
        let both = sheet.ballots.iter().zip(pending.leave(gives));
        both.map(|(ballot, carried)| said(node, ballot, carried)).collect()
    }
}

fn said(node: &Node, ballot: &Ballot<'_>, carried: Carried) -> Result<Said, Failure> {
    Ok(node.deployment.codec.read(ballot, carried)?.reply)
}

/// Until one of them has something to say, or the moment has come.
pub(in crate::store) fn wait_for<'a>(asked: impl Iterator<Item = &'a Asked<'a>>, until: Moment) {
    let fds: Vec<_> = asked.filter_map(Asked::fd).collect();
    poll::readable(&fds, until);
}
