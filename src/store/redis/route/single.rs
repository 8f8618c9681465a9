//! One server: which connection a request uses, and when it is sent again.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::Value;

use super::peer::{Letter, Peer, lacks_script, moved};
use super::{Carried, Gives, Heard, Parcel, Route, unanswered};
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::net::pool::{Pool, Pools};
use crate::store::outbox::{Concern, Outbox};
use crate::store::redis::dialect::Batch;
use crate::store::redis::fault;
use crate::store::redis::server_source::ServerSource;
use crate::store::redis::unread::{MOST, Subject};
use crate::store::redis::wire::{Lent, Wire};
use crate::store::{Failure, Identity, Lane, Owed, Request};

pub(in crate::store::redis) struct Single {
    peer: Peer,
    pool: Pool<Wire>,
    /// When a release that nobody waits for found no connection in time; zero if that never was.
    unreached_at: AtomicU64,
}

/// For how long other releases do not wait for a connection either: whoever drops a thousand leases while
/// the server stands still waits once a second, not a thousand times. The keeper sends them, and those
/// that find an open connection go out at once.
const UNREACHED_FOR: Duration = Duration::from_secs(1);

impl Single {
    pub(in crate::store::redis) fn new(
        source: Arc<dyn ServerSource>,
        pools: &Pools,
        (gives, outbox): (Arc<dyn Gives>, Arc<Outbox>),
        first_word: Option<Batch<'static>>,
    ) -> Result<Single, Error> {
        let (known_scripts, told) = Default::default();
        let peer = Peer { source, outbox, gives, known_scripts, first_word, told };
        Ok(Single { peer, pool: pools.make()?, unreached_at: AtomicU64::new(0) })
    }

    fn was_unreached(&self) -> bool {
        let at = Moment::from_nanos(self.unreached_at.load(Ordering::Relaxed));
        at != Moment::ZERO && Moment::now().since(at) < UNREACHED_FOR
    }

    pub(super) fn begin<'a>(
        &'a self,
        parcel: Parcel<'a>,
        connected_by: Deadline,
        is_scattered: bool,
    ) -> Result<Pending<'a>, Failure> {
        let most = MOST.saturating_sub(parcel.batch.replies());
        let mut letter = Letter { most, is_scattered, ..Letter::new(&parcel) };
        letter.by.connect = letter.by.connect.min(connected_by);
        let lent = self.pool.lend(parcel.lane, letter.by.connect);
        let mut lent = lent.map_err(Failure::not_done)?;
        let sent = self.peer.send(&mut lent, &letter)?;
        Ok(Pending(Replies::Sent { single: self, lent, parcel, sent }))
    }

    /// Reads replies on connections that are not in use, while any to requests before that moment are
    /// unread. With `given_up`, a connection whose reply is overdue is thrown away.
    pub(super) fn read_idle(&self, before: Moment, given_up: bool) {
        if !self.peer.outbox.has_unread(before) {
            return;
        }
        self.pool.each_idle(|lent| {
            if lent.wire.as_ref().is_some_and(|wire| !wire.unread.is_empty()) {
                self.peer.catch_up(lent, Deadline::at(Moment::ZERO));
                if given_up && lent.wire.as_ref().is_some_and(|wire| wire.unread.is_overdue()) {
                    let late = "a reply did not come in time";
                    self.peer.discard(lent, &Error::new(ErrorKind::NoAnswer, late));
                }
            }
            self.peer.outbox.has_unread(before)
        });
    }

    fn finish(&self, lent: &mut Lent<'_>, parcel: &Parcel<'_>, said: &mut [Carried], sent: Moment) {
        self.peer.collect(lent, parcel.batch, said, (sent, parcel.deadline));
        let is_error =
            |one: &Carried| matches!(one, Ok(Heard { value: Value::ServerError(_), .. }));
        if self.peer.outbox.is_empty() && !said.iter().any(is_error) {
            return;
        }
        self.reload(lent, parcel, said);
        for answer in said {
            *answer = self.peer.without_refusal(std::mem::replace(answer, unanswered()));
        }
    }

    /// Loads scripts that the server does not have (it was restarted, or its cache flushed) and
    /// sends the calls that needed them again: those were not carried out. If the server is no master
    /// any more, they go to the new one. Also repeats takes and looks behind a give that was not done.
    fn reload(&self, lent: &mut Lent<'_>, parcel: &Parcel<'_>, carried: &mut [Carried]) {
        let Parcel { batch, deadline, .. } = *parcel;
        let is_behind =
            |call| batch.sees(call).is_some_and(|name| self.peer.outbox.has_give_not_done(name));
        // A call that was cut off may have been carried out: that stays the answer.
        let is_again = |call: &usize| {
            self.is_undone(&carried[*call]) || (carried[*call].is_ok() && is_behind(*call))
        };
        let again: Vec<usize> = (0..carried.len()).filter(is_again).collect();
        if again.is_empty() {
            return;
        }
        if lent.wire.as_ref().is_some_and(|wire| wire.is_demoted) {
            self.peer.discard(lent, &moved());
        }
        let (own, lane) = (batch.only(&again), Lane::Caller);
        let own = Parcel { batch: &own, lane, deadline };
        let sent = self
            .command(lent, &own.batch.loads(), deadline)
            .and_then(|()| self.peer.send(lent, &Letter::new(&own)));
        match sent {
            Ok(sent) => {
                let mut answers = vec![unanswered(); again.len()];
                self.peer.collect(lent, own.batch, &mut answers, (sent, deadline));
                for (index, answer) in again.into_iter().zip(answers) {
                    carried[index] = answer;
                }
            }
            Err(failure) => {
                for index in again {
                    // Earlier answers stand for calls that were not sent again.
                    if self.is_undone(&carried[index]) || failure.sent.is_some() {
                        carried[index] = Err(failure.clone());
                    }
                }
            }
        }
    }

    /// Whether the call was not carried out, and can be elsewhere or in a moment.
    fn is_undone(&self, carried: &Carried) -> bool {
        lacks_script(carried) || self.peer.is_refused(carried)
    }

    /// Sends commands that ask for no lock. After a failure they matter to nobody.
    fn command(&self, lent: &mut Lent<'_>, batch: &Batch<'_>, by: Deadline) -> Result<(), Failure> {
        let lane = Lane::Caller;
        let sent = self.peer.send(lent, &Letter::new(&Parcel { lane, batch, deadline: by }));
        let answers = sent.map(|sent| {
            let mut answers = vec![unanswered(); batch.calls.len()];
            self.peer.collect(lent, batch, &mut answers, (sent, by));
            answers
        });
        let check = |answer: Carried| match answer?.value {
            Value::ServerError(error) => Err(Failure::not_done(fault::server(&error))),
            _ => Ok(()),
        };
        let done = answers.and_then(|answers| answers.into_iter().try_for_each(check));
        done.map_err(|failure| Failure::not_done(failure.error))
    }
}

impl Route for Single {
    fn carry(&self, parcel: &Parcel<'_>, carried: &mut [Carried]) {
        let letter = Letter::new(parcel);
        let failed = self.pool.on_connection(parcel.lane, letter.by.connect, |lent| {
            let sent = self.peer.send(lent, &letter)?;
            self.finish(lent, parcel, carried, sent);
            Ok(())
        });
        if let Err(failure) = failed {
            carried.fill(Err(failure));
        }
    }

    fn ask_master(&self, from: u32, parcel: &Parcel<'_>) -> Option<(u32, Carried)> {
        (from == 0).then(|| (0, self.carry_all(parcel).pop().unwrap_or_else(unanswered)))
    }

    fn start<'a>(&'a self, parcel: Parcel<'a>) -> Result<Pending<'a>, Failure> {
        // Others are asked after this one: it may not take all of their time only to be reached.
        self.begin(parcel, Deadline::after(parcel.deadline.left() / 2), true)
    }

    fn tell(&self, parcel: Parcel<'_>) -> Result<(), Failure> {
        self.start(parcel)?.leave_unread(Concern::AnyReply);
        Ok(())
    }

    fn let_go(&self, owed: &Owed, give: &Parcel<'_>) -> Result<(), Failure> {
        let mut letter = Letter { most: MOST - 1, ..Letter::new(give) };
        let waits = !self.was_unreached();
        if !waits {
            letter.by.connect = Deadline::at(Moment::ZERO);
        }
        let done = self.pool.on_connection(give.lane, letter.by.connect, |lent| {
            let sent = self.peer.send(lent, &letter)?;
            if let Some(wire) = &mut lent.wire {
                let (concern, when) = (Concern::Release, (sent, give.deadline));
                let id = self.peer.outbox.written(owed.clone(), concern, wire.unread.on);
                wire.unread.push(Subject::Give(id, owed.identity.clone()), when);
            }
            Ok(())
        });
        let is_unreached =
            |failure: &Failure| failure.sent.is_none() && failure.error.is_retriable();
        if waits && done.as_ref().is_err_and(is_unreached) {
            self.unreached_at.store(Moment::now().as_nanos(), Ordering::Relaxed);
        }
        done
    }

    fn read_unread(&self, before: Moment) {
        self.read_idle(before, true);
    }

    fn is_silent(&self) -> bool {
        if !self.peer.outbox.is_overdue() {
            return false;
        }
        // They may have come, and nobody has read them.
        self.read_idle(Moment::NEVER, false);
        self.peer.outbox.is_overdue()
    }

    fn ping(&self, deadline: Deadline) -> Result<(), Error> {
        let ping = Batch::default().command(&["PING"]);
        let run = |lent: &mut Lent<'_>| self.command(lent, &ping, deadline);
        self.pool.on_connection(Lane::Caller, deadline, run).map_err(|failure| failure.error)
    }
}

/// Replies that are not read yet, or stand in the place of them.
pub(in crate::store) struct Pending<'a>(Replies<'a>);

enum Replies<'a> {
    Answered(Vec<Carried>),
    Sent { single: &'a Single, lent: Lent<'a>, parcel: Parcel<'a>, sent: Moment },
}

impl Pending<'_> {
    pub(super) fn answered(carried: Vec<Carried>) -> Pending<'static> {
        Pending(Replies::Answered(carried))
    }

    /// What becomes readable when one comes; none where nothing will.
    pub(in crate::store) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            Replies::Answered(_) => None,
            Replies::Sent { lent, .. } => lent.wire.as_deref().map(Wire::fd),
        }
    }

    /// Whether all of them have come by then, or there will be none.
    pub(in crate::store) fn is_answered(&mut self, until: Deadline) -> bool {
        let Replies::Sent { lent, parcel, .. } = &mut self.0 else { return true };
        let Some(wire) = &mut lent.wire else { return true };
        wire.has_whole(wire.unread.len() + parcel.batch.replies(), until)
    }

    /// Whether it is known by now that nothing was carried out.
    pub(in crate::store) fn is_in_vain(&self) -> bool {
        matches!(&self.0, Replies::Answered(all) if all.iter().all(Result::is_err))
    }

    /// Tells them in order.
    pub(in crate::store) fn finish(self, tell: &mut dyn FnMut(Carried)) {
        match self.0 {
            Replies::Answered(carried) => carried.into_iter().for_each(tell),
            Replies::Sent { single, mut lent, parcel, sent } => {
                let (mut one, mut many) = ([unanswered()], Vec::new());
                let carried = if parcel.batch.calls.len() == 1 {
                    &mut one[..]
                } else {
                    many.resize(parcel.batch.calls.len(), unanswered());
                    &mut many[..]
                };
                single.finish(&mut lent, &parcel, carried, sent);
                carried.iter_mut().for_each(|one| tell(std::mem::replace(one, unanswered())));
            }
        }
    }

    /// Leaves them to the next user of the connection: the outbox hears of them, and of gives as of
    /// this concern. All of them are returned instead if they have come already.
    pub(in crate::store) fn leave_unread(self, gives: Concern) -> Vec<Carried> {
        let (single, mut lent, Parcel { batch, deadline, .. }, sent) = match self.0 {
            Replies::Answered(carried) => return carried,
            Replies::Sent { single, lent, parcel, sent } => (single, lent, parcel, sent),
        };
        let Some(wire) = &mut lent.wire else { return Vec::new() };
        let (outbox, on) = (&single.peer.outbox, wire.unread.on);
        let vote = |token| {
            outbox.vote_written(token, on);
            Subject::Vote(token)
        };
        for call in &batch.calls {
            let subject = match call.request {
                Some(Request::Give { name, token, fence, ttl }) => {
                    let identity = Identity { name: Arc::from(name), token, fence, ttl };
                    let owed = Owed { identity: identity.clone(), until: sent.plus(ttl) };
                    Subject::Give(outbox.written(owed, gives, on), identity)
                }
                Some(Request::Take { token, .. }) => vote(token),
                Some(Request::Extend { token, reach, .. }) => vote(reach.holder(token)),
                None => Subject::Nothing,
            };
            wire.unread.push(subject, (sent, deadline));
            if call.is_awaited {
                wire.unread.push(Subject::Nothing, (sent, deadline));
            }
        }
        Vec::new()
    }
}
