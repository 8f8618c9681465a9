//! The outbox: gives (requests that release a lock) whose outcome nobody waits for.
//!
//! # The life of an owed give
//!
//! ```text
//!   owe: not sent yet                     written: sent, and its caller has gone on
//!          |                                          |
//!          v         take_due, in_front               v
//!     +---------+ -----------------------------> +---------+ --+ in_front: one more copy,
//!     | Waiting |                                | Written |   | on another connection
//!     +---------+ <----------------------------- +---------+ <-+
//!          |         the last copy is answered,       |
//!          |         and the lock may be taken        | Given; or nothing is left to release
//!          v                                          v
//!        over: until has passed                     over
//! ```
//!
//! | state | in the code | who moves it on |
//! | --- | --- | --- |
//! | waiting | [`Delivery::Waiting`] | The keeper sends it when it is due. A take or a look of the same name sends it sooner, in front of itself. |
//! | written, unread | [`Delivery::Written`] | Whoever next reads the connection: a caller in front of its own reply (`Peer::skip`), or the keeper (`Single::read_idle`). |
//! | not done | `was_not_done` | A server did not carry out the last copy that was answered: it is no master, or not a byte was sent. The give is sent again. Requests that went out behind this copy saw the lock taken, so they are sent again, too (`Single::reload`). |
//! | denied | `was_not_ours` | A server said that the token does not have the lock. A [doubt](Concern::Doubt) goes on until a delayed take cannot arrive any more, but in front of no take. All others are over. |
//! | late | `List::late` | A [release](Concern::Release) came too late, or nobody knows whether it came. The keeper tells that once ([`take_late`](Outbox::take_late)); the give goes on as a doubt. |
//! | over | not in the list | The server said `Given`; or by `until` the store has forgotten the token in any case. |
//!
//! *Overdue* is a connection, not a give: its oldest reply has not come by its deadline
//! ([`is_overdue`](Outbox::is_overdue)). The keeper throws the connection away, and every give that was
//! unread on it is answered: unknown.
//!
//! # What must hold
//!
//! 1. **A copy more does no harm.** A give may be sent twice and arrive late, and its token is never
//!    taken again. So connections need no order among each other.
//! 2. **A connection answers in order.** The replies that it owes stand in its `UnreadReplies`
//!    (`store/redis/unread.rs`) in the order of their requests. Whoever uses the connection next reads
//!    them first, and then its own (`Peer::collect`).
//! 3. **Each copy is answered exactly once** ([`answered`](Outbox::answered)): by its reply, by an error if
//!    not a byte of it was sent (`UnreadReplies::take_back`), or by an unknown outcome when the
//!    connection ends (`Drop for UnreadReplies`). So `copies` counts the replies that are still to come.
//! 4. **A take does not find the lock taken by its own client.** It carries the gives of its name in front
//!    of it, in the same write ([`in_front`](Outbox::in_front)). A give that is unread on the same
//!    connection is there already.
//! 5. **No give is lost behind its own take.** On one of several servers a give may overtake a take of its
//!    token on another connection, and releases nothing then. It is owed again when the reply to that
//!    take was read ([`vote_written`](Outbox::vote_written),
//!    [`vote_read`](Outbox::vote_read)).
//! 6. **Nothing stays unread.** The keeper reads what nobody else has read after [`READ_AFTER`].

mod owed_give;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use self::owed_give::{Delivery, OwedGive};
use super::{Identity, Outcome, Owed, Reply, Request, ServerId};
use crate::clock::{Deadline, Moment};
use crate::sync::{AtomicUsize, Mutex};
use crate::token::Token;

/// The keeper reads replies that nobody waits for after this, if nobody else has read them.
pub(crate) const READ_AFTER: Duration = Duration::from_millis(50);
/// The first pause between two tries of a give; it doubles each time, up to the longest.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(5);
/// The most gives that one take carries: a long outage leaves more.
const MOST_IN_FRONT: usize = 32;
/// The most lost tokens that are remembered; their next extension shows the others.
const MOST_LACKING: usize = 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ConnectionId(pub(crate) ServerId, pub(crate) u64);

#[derive(Default)]
pub(crate) struct Outbox {
    /// How many entries the list has: with none, nobody locks it. `SeqCst`, in one order with the time
    /// that the keeper sets before it sleeps.
    count: AtomicUsize,
    list: Mutex<List>,
    is_over: AtomicBool,
}

#[derive(Default)]
struct List {
    gives: VecDeque<OwedGive>,
    last_id: u64,
    unread_votes: Vec<UnreadVote>,
    /// The connections with unread replies.
    unread_connections: Vec<(ConnectionId, ReplyTimes)>,
    late: Vec<LateRelease>,
    /// Tokens that a server of several lacks although they have the lock.
    lacking: Vec<Token>,
    votes: Vec<PartVote>,
    /// When the keeper last read the unread replies.
    read_at: Moment,
    /// No give is sent before, because none of the last ones was answered.
    resume_at: Moment,
    /// How often in a row none of those that were sent was answered.
    failed: u32,
    is_closing: bool,
}

/// Why a give is owed: who is told of its outcome, and which reply is enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Concern {
    /// A lease was dropped. The keeper [tells](Outbox::take_late) if it was gone before, or if nobody
    /// knows.
    Release,
    /// A take may have been carried out, or may be still: "not yours" proves nothing before `until`.
    Doubt,
    /// On one of several servers, in case the lock is there: any reply is enough.
    AnyReply,
    /// One server's part in a release that nobody waits for: its reply is [a vote](Outbox::take_votes).
    Part,
}

/// What one server said to its part in a release; nothing, if that is not known.
pub(crate) type PartVote = (Token, Option<Reply>);

/// A take or an extension on one of several servers, whose reply nobody waits for: enough others have
/// answered.
struct UnreadVote {
    token: Token,
    on: ConnectionId,
    /// The give of its token that was written on another connection since.
    then: Option<Owed>,
}

/// The oldest reply that a connection owes: when its request was sent, and until when it is in time.
pub(crate) type ReplyTimes = (Moment, Deadline);

/// A release that came too late, or of which nobody knows whether it came.
pub(crate) struct LateRelease {
    pub(crate) identity: Identity,
    pub(crate) is_unknown: bool,
}

/// What is to be told of a release: that the lock was gone before, or that nobody knows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Late {
    Gone,
    Unknown,
}

/// A copy of an owed give, to be sent.
pub(crate) struct GiveCopy {
    pub(crate) id: u64,
    pub(crate) identity: Identity,
}

impl Outbox {
    /// Owes a give that is still to be sent. False if nobody sends it any more.
    pub(crate) fn owe(&self, owed: Owed, concern: Concern, now: Moment) -> bool {
        self.change(|list| list.owe(owed, concern, now));
        !self.is_over()
    }

    /// A give was written on a connection, and nobody waits for its reply.
    pub(crate) fn written(&self, owed: Owed, concern: Concern, on: ConnectionId) -> u64 {
        let delivery = Delivery::Written { copies: 1, on: Some(on) };
        self.change(|list| list.add(OwedGive::new(owed, concern, delivery)))
    }

    /// A take or an extension was written on a connection, and nobody waits for its reply.
    pub(crate) fn vote_written(&self, token: Token, on: ConnectionId) {
        self.change(|list| list.unread_votes.push(UnreadVote { token, on, then: None }));
    }

    /// The oldest reply that a connection owes from now on; none, if all are read.
    pub(crate) fn note_oldest_unread(&self, on: ConnectionId, oldest: Option<ReplyTimes>) {
        self.change(|list| {
            list.unread_connections.retain(|one| one.0 != on);
            list.unread_connections.extend(oldest.map(|oldest| (on, oldest)));
        });
    }

    /// The reply to [such](Outbox::vote_written) a request was read, or will not come. `lacks_lock`: the server
    /// does not have the lock that the token holds on others.
    pub(crate) fn vote_read(&self, token: Token, on: ConnectionId, lacks_lock: bool) {
        let is_it = |unread: &UnreadVote| unread.token == token && unread.on == on;
        self.change(|list| {
            if let Some(at) = list.unread_votes.iter().position(is_it)
                && let Some(owed) = list.unread_votes.swap_remove(at).then
            {
                list.owe(owed, Concern::AnyReply, Moment::now());
            } else if lacks_lock && list.lacking.len() < MOST_LACKING {
                list.lacking.push(token);
            }
        });
    }

    /// The gives that go in front of these requests, or of a look at this name, on a connection.
    pub(crate) fn in_front<'a>(
        &self,
        requests: impl IntoIterator<Item = Request<'a>>,
        look: Option<&[u8]>,
        on: Option<ConnectionId>,
    ) -> Vec<GiveCopy> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut list = self.list.lock();
        let (now, mut again) = (Moment::now(), Vec::new());
        for request in requests {
            match request {
                Request::Take { name, .. } => again.extend(list.repeat(name, on)),
                Request::Give { name, token, fence, ttl } => {
                    let is_overtaken =
                        |one: &&mut UnreadVote| one.token == token && Some(one.on) != on;
                    for unread in list.unread_votes.iter_mut().filter(is_overtaken) {
                        let identity = Identity { name: name.into(), token, fence, ttl };
                        unread.then = Some(Owed { identity, until: now.plus(ttl) });
                    }
                }
                Request::Extend { .. } => {}
            }
        }
        if let Some(name) = look {
            again.extend(list.repeat(name, on));
        }
        again
    }

    /// What became of a copy that was sent on this connection, or by the keeper (`None`).
    pub(crate) fn answered(&self, id: u64, on: Option<ConnectionId>, outcome: &Outcome) {
        self.change(|list| list.answered(id, on, outcome));
    }

    /// Whether a request for this name has to be sent again: a give in front of it was not carried out.
    pub(crate) fn has_give_not_done(&self, name: &[u8]) -> bool {
        let is_it = |entry: &OwedGive| {
            entry.was_not_done && !entry.was_not_ours && *entry.owed.identity.name == *name
        };
        !self.is_empty() && self.list.lock().gives.iter().any(is_it)
    }

    /// The gives that are due; [`tried`](Outbox::tried) is told what became of them.
    pub(crate) fn take_due(&self, now: Moment, most: usize) -> Vec<GiveCopy> {
        self.change(|list| {
            // After a long outage there may be many that are in vain, in front of those that are not.
            let List { gives, votes, .. } = list;
            gives.retain(|entry| {
                let is_pointless = entry.is_pointless(now);
                if is_pointless && entry.concern == Concern::Part {
                    votes.push((entry.owed.identity.token, None));
                }
                !is_pointless
            });
            if list.resume_at > now {
                return Vec::new();
            }
            let due = list.gives.iter_mut().filter(|entry| entry.due() <= now).take(most);
            due.map(|entry| entry.send(None)).collect()
        })
    }

    /// No give can be sent before this moment. That does not count as a try of any of them.
    pub(crate) fn put_off(&self, until: Moment) {
        let mut list = self.list.lock();
        list.resume_at = list.resume_at.max(until);
    }

    /// What became of gives that were [due](Outbox::take_due). If none was answered, the others wait.
    pub(crate) fn tried(&self, sent: &[GiveCopy], outcomes: &[Outcome]) {
        let failed =
            |outcome: &Outcome| matches!(outcome, Err(failure) if failure.error.is_retriable());
        self.change(|list| {
            for (one, outcome) in sent.iter().zip(outcomes) {
                list.answered(one.id, None, outcome);
            }
            list.failed = if outcomes.iter().all(failed) { list.failed + 1 } else { 0 };
            list.resume_at = Moment::now().plus(pause(list.failed));
        });
    }

    /// When there is something to send, to read or to tell.
    pub(crate) fn due(&self) -> Moment {
        if self.is_empty() {
            return Moment::NEVER;
        }
        let list = self.list.lock();
        if !list.late.is_empty() {
            return Moment::ZERO;
        }
        let gives = list.gives.iter().map(OwedGive::due).min();
        let is_told = list.lacking.is_empty() && list.votes.is_empty();
        let sent = if is_told { list.oldest_unread() } else { Some(Moment::ZERO) };
        let read = sent.map_or(Moment::NEVER, |sent| sent.max(list.read_at).plus(READ_AFTER));
        gives.map_or(Moment::NEVER, |due| due.max(list.resume_at)).min(read)
    }

    /// Whether any reply to a request that was sent before this moment is unread.
    pub(crate) fn has_unread(&self, before: Moment) -> bool {
        !self.is_empty() && self.list.lock().oldest_unread().is_some_and(|sent| sent <= before)
    }

    /// The keeper has read what has come of the unread replies.
    pub(crate) fn were_read(&self, now: Moment) {
        self.list.lock().read_at = now;
    }

    pub(crate) fn has_unread_from(&self, server: ServerId) -> bool {
        self.list.lock().unread_connections.iter().any(|(on, _)| on.0 == server)
    }

    /// Whether a connection owes a reply whose deadline has passed. (It may have come and not be
    /// read.)
    pub(crate) fn is_overdue(&self) -> bool {
        !self.is_empty()
            && self.list.lock().unread_connections.iter().any(|(_, (_, by))| by.has_passed())
    }

    pub(crate) fn take_late(&self) -> Vec<LateRelease> {
        self.change(|list| std::mem::take(&mut list.late))
    }

    pub(crate) fn take_lacking(&self) -> Vec<Token> {
        self.change(|list| std::mem::take(&mut list.lacking))
    }

    pub(crate) fn take_votes(&self) -> Vec<PartVote> {
        if self.is_empty() {
            return Vec::new();
        }
        self.change(|list| std::mem::take(&mut list.votes))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// How many gives were ever noted here.
    pub(crate) fn noted(&self) -> u64 {
        self.list.lock().last_id
    }

    /// How many gives are owed now.
    pub(crate) fn count_gives(&self) -> usize {
        self.list.lock().gives.len()
    }

    /// Raises `until`: the store may keep the locks longer than the gives were owed for.
    pub(crate) fn prolong(&self, until: impl Fn(&Identity) -> Moment) {
        for entry in &mut self.list.lock().gives {
            entry.owed.until = entry.owed.until.max(until(&entry.owed.identity));
        }
    }

    /// From now on any reply is enough: there is no time to wait for delayed requests.
    pub(crate) fn close(&self, now: Moment) {
        let mut list = self.list.lock();
        (list.is_closing, list.resume_at) = (true, now);
        for entry in &mut list.gives {
            if let Delivery::Waiting { due } = &mut entry.delivery {
                (*due, entry.tries) = (now, 0);
            }
        }
    }

    /// Ends all sending, if nothing is left to send, or if `forced`. Returns whether it has ended.
    pub(crate) fn end(&self, forced: bool) -> bool {
        let list = self.list.lock();
        if forced || list.gives.is_empty() {
            self.is_over.store(true, Ordering::Release);
        }
        self.is_over()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    pub(crate) fn forget_unsent(&self) {
        self.change(|list| list.gives.retain(|entry| !entry.is_waiting()));
    }

    fn change<T>(&self, with: impl FnOnce(&mut List) -> T) -> T {
        let mut list = self.list.lock();
        let changed = with(&mut list);
        let List { gives, unread_votes, unread_connections, late, lacking, votes, .. } = &*list;
        let sent = gives.len() + unread_votes.len() + unread_connections.len();
        let count = sent + late.len() + lacking.len() + votes.len();
        self.count.store(count, Ordering::SeqCst);
        changed
    }
}

impl List {
    fn add(&mut self, entry: OwedGive) -> u64 {
        self.last_id += 1;
        self.gives.push_back(OwedGive { id: self.last_id, ..entry });
        self.last_id
    }

    fn owe(&mut self, owed: Owed, concern: Concern, now: Moment) {
        let Identity { token, fence, .. } = owed.identity;
        let same = |entry: &&mut OwedGive| {
            entry.owed.identity.token == token && entry.is_waiting() && entry.concern == concern
        };
        let Some(entry) = self.gives.iter_mut().rev().find(same) else {
            self.add(OwedGive::new(owed, concern, Delivery::Waiting { due: now }));
            return;
        };
        // In a quorum a token makes several attempts. A give names one of them, and a node gives up
        // all until that one: an earlier number would leave what a later attempt was granted.
        let fences = [entry.owed.identity.fence, fence];
        let any = fences.contains(&0);
        entry.owed.identity.fence = if any { 0 } else { fences[0].max(fences[1]) };
        entry.owed.until = entry.owed.until.max(owed.until);
        entry.was_not_ours = false;
    }

    /// Copies of the gives of a name, to be sent in front of a request; not of those of which the last
    /// copy is unread on the same connection.
    fn repeat(&mut self, name: &[u8], on: Option<ConnectionId>) -> impl Iterator<Item = GiveCopy> {
        let is_owed = move |entry: &&mut OwedGive| {
            let is_there = on.is_some() && entry.last_on() == on;
            *entry.owed.identity.name == *name && !is_there && !entry.was_not_ours
        };
        let owed = self.gives.iter_mut().rev().filter(is_owed).take(MOST_IN_FRONT);
        owed.map(move |entry| entry.send(on))
    }

    fn answered(&mut self, id: u64, on: Option<ConnectionId>, outcome: &Outcome) {
        let Ok(at) = self.gives.binary_search_by_key(&id, |entry| entry.id) else { return };
        let is_given = matches!(outcome, Ok(answer) if answer.reply == Reply::Given);
        let entry = &mut self.gives[at];
        let Some(unread) = entry.copy_answered(on, outcome) else { return };
        if !is_given && unread > 0 {
            // Another copy may have done it.
            entry.was_not_ours |= outcome.is_ok();
            return;
        }
        self.settle(at, is_given, outcome);
    }

    /// A copy was carried out, or the last one was answered: the give is over, or waits to be sent again.
    fn settle(&mut self, at: usize, is_given: bool, outcome: &Outcome) {
        let (entry, now) = (&mut self.gives[at], Moment::now());
        let mut told = None;
        let is_done = match outcome {
            Ok(_) if is_given => true,
            Ok(_) => {
                entry.was_not_ours = true;
                told = Some(Late::Gone);
                entry.concern != Concern::Doubt || self.is_closing
            }
            Err(failure) => {
                if !entry.was_not_done {
                    told = Some(if failure.sent.is_some() { Late::Unknown } else { Late::Gone });
                }
                if entry.tries == 0 {
                    // The store may keep the lock for a ttl from now, even if less was asked for.
                    entry.owed.until = entry.owed.until.max(now.plus(entry.owed.identity.ttl));
                }
                false
            }
        };
        let is_over = is_done || now >= entry.owed.until;
        let told = told.or((is_over && !is_given).then_some(Late::Gone));
        if entry.concern == Concern::Part && (is_given || told.is_some()) {
            let reply = outcome.as_ref().ok().map(|answer| answer.reply);
            self.votes.push((entry.owed.identity.token, reply));
            entry.concern = Concern::AnyReply;
        }
        if let Some(late) = told.filter(|_| entry.concern == Concern::Release) {
            let is_unknown = late == Late::Unknown;
            self.late.push(LateRelease { identity: entry.owed.identity.clone(), is_unknown });
            entry.concern = Concern::Doubt;
        }
        if is_over {
            self.gives.remove(at);
        } else {
            // The last try comes when no delayed request can arrive any more.
            let due = now.plus(pause(entry.tries)).min(entry.owed.until);
            entry.delivery = Delivery::Waiting { due };
            entry.tries += 1;
        }
    }

    fn oldest_unread(&self) -> Option<Moment> {
        self.unread_connections.iter().map(|(_, (sent, _))| *sent).min()
    }
}

fn pause(tries: u32) -> Duration {
    match tries {
        0 => Duration::ZERO,
        tries => FIRST_RETRY.saturating_mul(1 << (tries - 1).min(10)).min(LONGEST_RETRY),
    }
}

#[cfg(test)]
mod tests;
