//! Gives that are owed to a store: written and not answered yet, or still to be sent.
//!
//! A give is safe to send twice, and its token is not taken again. So connections need no order: a
//! take carries the gives of its name in front of it, in the same write, unless they were written
//! on the same connection before. Only a give that overtakes a take of its own token would be in
//! vain: it is sent again when the reply to that [take](Outbox::asked) has been read.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Failure, Identity, Outcome, Owed, Reply, Request, ServerId};
use crate::clock::{Deadline, Moment};
use crate::sync::{AtomicUsize, Mutex};
use crate::token::Token;

/// The keeper reads replies that nobody waits for after this, if nobody else has read them.
pub(crate) const READ_AFTER: Duration = Duration::from_millis(50);
/// Between two tries of a give that nothing has confirmed: doubled each time, up to the longest.
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(5);
/// A long outage leaves many gives; a take does not grow with it.
const MOST_IN_FRONT: usize = 32;
/// How many tokens that a server lacks are remembered; more are noticed when they are extended.
const MOST_LACKING: usize = 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ConnectionId(pub(crate) ServerId, pub(crate) u64);

#[derive(Default)]
pub(crate) struct Outbox {
    /// Entries in the list: with none, nobody locks it. In one order with the keeper's sleep.
    count: AtomicUsize,
    list: Mutex<List>,
    is_over: AtomicBool,
}

#[derive(Default)]
struct List {
    gives: VecDeque<Entry>,
    last_id: u64,
    unread: Vec<Unread>,
    owing: Vec<(ConnectionId, Oldest)>,
    late: Vec<Late>,
    lacking: Vec<Token>,
    votes: Vec<PartVote>,
    read_at: Moment,
    /// When gives are sent again after none of the last ones was answered.
    resume_at: Moment,
    failed: u32,
    is_closing: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Concern {
    /// A lease was dropped: if it was gone before, or that is not known, this is told.
    Release,
    /// A take may have been carried out, or may be still: an answer proves nothing before `until`.
    Doubt,
    /// A copy on one of several servers: any answer will do.
    Copy,
    /// One server's part in a release that nobody waits for: its answer is [a vote](Outbox::take_votes).
    Part,
}

/// What one server said to its part in a release; nothing, if that is not known.
pub(crate) type PartVote = (Token, Option<Reply>);

struct Entry {
    id: u64,
    owed: Owed,
    concern: Concern,
    /// How often it was written and not answered yet, and where the last time.
    copies: u32,
    on: Option<ConnectionId>,
    due: Moment,
    tries: u32,
    /// A server said that it did not carry it out, and may do so later or elsewhere.
    is_undone: bool,
    is_answered: bool,
}

/// A take or an extension on one of several servers, of which enough others had answered.
struct Unread {
    token: Token,
    on: ConnectionId,
    /// Its token was given up on another connection.
    then: Option<Owed>,
}

/// The oldest reply that a connection owes: when its request was sent, and until when it is in time.
pub(crate) type Oldest = (Moment, Deadline);

/// A release that came too late, or of which nobody knows whether it came.
pub(crate) struct Late {
    pub(crate) identity: Identity,
    pub(crate) is_unknown: bool,
}

pub(crate) struct Again {
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
        let entry = Entry::new(owed, concern, Moment::NEVER);
        self.change(|list| list.add(Entry { copies: 1, on: Some(on), ..entry }))
    }

    /// A take or an extension was written on a connection, and nobody waits for its reply.
    pub(crate) fn asked(&self, token: Token, on: ConnectionId) {
        self.change(|list| list.unread.push(Unread { token, on, then: None }));
    }

    pub(crate) fn owes(&self, on: ConnectionId, oldest: Option<Oldest>) {
        self.change(|list| {
            list.owing.retain(|one| one.0 != on);
            list.owing.extend(oldest.map(|oldest| (on, oldest)));
        });
    }

    /// The reply to that was read, or will not come.
    pub(crate) fn heard(&self, token: Token, on: ConnectionId, lacks_lock: bool) {
        let is_it = |unread: &Unread| unread.token == token && unread.on == on;
        self.change(|list| {
            if let Some(at) = list.unread.iter().position(is_it)
                && let Some(owed) = list.unread.swap_remove(at).then
            {
                list.owe(owed, Concern::Copy, Moment::now());
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
    ) -> Vec<Again> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut list = self.list.lock();
        let (now, mut again) = (Moment::now(), Vec::new());
        for request in requests {
            match request {
                Request::Take { name, .. } => again.extend(list.repeat(name, on)),
                Request::Give { name, token, fence, ttl } => {
                    let is_overtaken = |one: &&mut Unread| one.token == token && Some(one.on) != on;
                    for unread in list.unread.iter_mut().filter(is_overtaken) {
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

    /// What became of a give that was sent: on this connection, or by the keeper.
    pub(crate) fn answered(&self, id: u64, on: Option<ConnectionId>, outcome: &Outcome) {
        self.change(|list| list.answered(id, on, outcome));
    }

    pub(crate) fn has_undone(&self, name: &[u8]) -> bool {
        let is_it = |entry: &Entry| {
            entry.is_undone && !entry.is_answered && *entry.owed.identity.name == *name
        };
        !self.is_empty() && self.list.lock().gives.iter().any(is_it)
    }

    /// The gives that are due; [`tried`](Outbox::tried) is told what became of them.
    pub(crate) fn take_due(&self, now: Moment, most: usize) -> Vec<Again> {
        self.change(|list| {
            // In a long outage these would hide what can still be done.
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
            let due = list.gives.iter_mut().filter(|entry| entry.due <= now).take(most);
            due.map(|entry| entry.send(None)).collect()
        })
    }

    /// Nothing can be sent before that, which is no try of any of them.
    pub(crate) fn put_off(&self, until: Moment) {
        let mut list = self.list.lock();
        list.resume_at = list.resume_at.max(until);
    }

    /// Where none of them was answered, the others wait, too.
    pub(crate) fn tried(&self, sent: &[Again], outcomes: &[Outcome]) {
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
        let gives = list.gives.iter().map(|entry| entry.due).min();
        let is_told = list.lacking.is_empty() && list.votes.is_empty();
        let sent = if is_told { list.oldest_unread() } else { Some(Moment::ZERO) };
        let read = sent.map_or(Moment::NEVER, |sent| sent.max(list.read_at).plus(READ_AFTER));
        gives.map_or(Moment::NEVER, |due| due.max(list.resume_at)).min(read)
    }

    pub(crate) fn has_unread(&self, before: Moment) -> bool {
        !self.is_empty() && self.list.lock().oldest_unread().is_some_and(|sent| sent <= before)
    }

    pub(crate) fn were_read(&self, now: Moment) {
        self.list.lock().read_at = now;
    }

    pub(crate) fn has_unread_from(&self, server: ServerId) -> bool {
        self.list.lock().owing.iter().any(|(on, _)| on.0 == server)
    }

    /// Whether a reply has not come in time, or was not read.
    pub(crate) fn is_overdue(&self) -> bool {
        !self.is_empty() && self.list.lock().owing.iter().any(|(_, (_, by))| by.has_passed())
    }

    pub(crate) fn take_late(&self) -> Vec<Late> {
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

    pub(crate) fn owed(&self) -> usize {
        self.list.lock().gives.len()
    }

    /// The store may keep what these are for until a later moment.
    pub(crate) fn prolong(&self, until: impl Fn(&Identity) -> Moment) {
        for entry in &mut self.list.lock().gives {
            entry.owed.until = entry.owed.until.max(until(&entry.owed.identity));
        }
    }

    /// From now on every answer will do: there is no time to wait for requests that were delayed.
    pub(crate) fn close(&self, now: Moment) {
        let mut list = self.list.lock();
        (list.is_closing, list.resume_at) = (true, now);
        for entry in list.gives.iter_mut().filter(|entry| entry.copies == 0) {
            (entry.due, entry.tries) = (now, 0);
        }
    }

    /// Nobody sends anything any more; unless something is left, where that is `forced`.
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
        self.change(|list| list.gives.retain(|entry| entry.copies > 0));
    }

    fn change<T>(&self, with: impl FnOnce(&mut List) -> T) -> T {
        let mut list = self.list.lock();
        let changed = with(&mut list);
        let List { gives, unread, owing, late, lacking, votes, .. } = &*list;
        let sent = gives.len() + unread.len() + owing.len();
        let count = sent + late.len() + lacking.len() + votes.len();
        self.count.store(count, Ordering::SeqCst);
        changed
    }
}

impl List {
    fn add(&mut self, entry: Entry) -> u64 {
        self.last_id += 1;
        self.gives.push_back(Entry { id: self.last_id, ..entry });
        self.last_id
    }

    fn owe(&mut self, owed: Owed, concern: Concern, now: Moment) {
        let Identity { token, fence, .. } = owed.identity;
        let same = |entry: &&mut Entry| {
            entry.owed.identity.token == token && entry.copies == 0 && entry.concern == concern
        };
        let Some(entry) = self.gives.iter_mut().rev().find(same) else {
            self.add(Entry::new(owed, concern, now));
            return;
        };
        // In a quorum a token makes one attempt after the other, and a node gives up those until the
        // one that it is told: an earlier one would leave it what the later one was granted.
        let fences = [entry.owed.identity.fence, fence];
        let any = fences.contains(&0);
        entry.owed.identity.fence = if any { 0 } else { fences[0].max(fences[1]) };
        entry.owed.until = entry.owed.until.max(owed.until);
        entry.is_answered = false;
    }

    fn repeat(&mut self, name: &[u8], on: Option<ConnectionId>) -> impl Iterator<Item = Again> {
        let is_owed = move |entry: &&mut Entry| {
            let is_behind = on.is_some() && entry.on == on;
            *entry.owed.identity.name == *name && !is_behind && !entry.is_answered
        };
        let owed = self.gives.iter_mut().rev().filter(is_owed).take(MOST_IN_FRONT);
        owed.map(move |entry| entry.send(on))
    }

    fn answered(&mut self, id: u64, on: Option<ConnectionId>, outcome: &Outcome) {
        let Ok(at) = self.gives.binary_search_by_key(&id, |entry| entry.id) else { return };
        let (entry, now) = (&mut self.gives[at], Moment::now());
        entry.copies -= 1;
        if entry.on == on {
            entry.on = None;
        }
        let is_given = matches!(outcome, Ok(answer) if answer.reply == Reply::Given);
        // What went out behind this copy found the lock taken, whatever another copy does.
        entry.is_undone = matches!(outcome, Err(Failure { sent: None, error })
            if error.is_retriable() && (on.is_some() || error.kind().is_not_now()));
        if !is_given && entry.copies > 0 {
            // Another copy may have done it.
            entry.is_answered |= outcome.is_ok();
            return;
        }
        let mut told = None;
        let is_done = match outcome {
            Ok(_) if is_given => true,
            Ok(_) => {
                entry.is_answered = true;
                told = Some(false);
                entry.concern != Concern::Doubt || self.is_closing
            }
            Err(failure) => {
                if !entry.is_undone {
                    told = Some(failure.sent.is_some());
                }
                if entry.tries == 0 {
                    // As long as the store may keep it, however little was thought to be needed.
                    entry.owed.until = entry.owed.until.max(now.plus(entry.owed.identity.ttl));
                }
                false
            }
        };
        let is_over = is_done || now >= entry.owed.until;
        let told = told.or((is_over && !is_given).then_some(false));
        if entry.concern == Concern::Part && (is_given || told.is_some()) {
            let reply = outcome.as_ref().ok().map(|answer| answer.reply);
            self.votes.push((entry.owed.identity.token, reply));
            entry.concern = Concern::Copy;
        }
        if let Some(is_unknown) = told.filter(|_| entry.concern == Concern::Release) {
            self.late.push(Late { identity: entry.owed.identity.clone(), is_unknown });
            entry.concern = Concern::Doubt;
        }
        if is_over {
            self.gives.remove(at);
        } else {
            // The last try comes when nothing that was delayed can be alive any more.
            entry.due = now.plus(pause(entry.tries)).min(entry.owed.until);
            entry.tries += 1;
        }
    }

    fn oldest_unread(&self) -> Option<Moment> {
        self.owing.iter().map(|(_, (sent, _))| *sent).min()
    }
}

impl Entry {
    fn new(owed: Owed, concern: Concern, due: Moment) -> Entry {
        let (id, copies, on, tries, is_undone, is_answered) = Default::default();
        Entry { id, owed, concern, copies, on, due, tries, is_undone, is_answered }
    }

    /// The store has forgotten its token, and nobody waits to be told.
    fn is_pointless(&self, now: Moment) -> bool {
        let is_one_of_several = matches!(self.concern, Concern::Copy | Concern::Part);
        let was_tried = self.tries > 0 || is_one_of_several;
        let is_told = self.concern != Concern::Release;
        self.copies == 0 && was_tried && is_told && self.owed.until <= now
    }

    fn send(&mut self, on: Option<ConnectionId>) -> Again {
        (self.copies, self.on) = (self.copies + 1, on);
        (self.due, self.is_undone) = (Moment::NEVER, false);
        Again { id: self.id, identity: self.owed.identity.clone() }
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
