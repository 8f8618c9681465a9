//! Connections that owe replies: to gives that were written and that nobody waits for, and to what
//! a server did not answer as soon as others did.
//!
//! Such a wire leaves its slot and lies here until somebody uses it for something else, or reads
//! the replies. Whoever wants to take a name must come behind the give that is owed for it, on the
//! same wire, else he could find the lock taken by himself: so he takes that wire for his own
//! (which then lies here instead, owing nothing), or, if somebody is reading it at this moment,
//! waits until the reply has come. For every wire that lies here a slot is empty, and whoever has
//! an empty slot looks here before he dials: so there are never more wires than slots.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::pool::Slot;
use super::wire::Wire;
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::{Failure, Lane, Outcome, Owed, Request};
use crate::sync::{Condvar, Mutex};
use crate::token::Token;

/// Replies that one wire may owe; before more is owed, they are read.
pub(super) const MOST: usize = 64;

/// Tokens that a server lacks; of more than these it is noticed when they are extended.
const MOST_LACKING: usize = 1024;

/// Something that was written and not answered yet.
pub(super) struct Debt {
    pub(super) due: Due,
    /// Before its first byte was sent.
    pub(super) sent: Moment,
    /// When nobody waits for the reply any longer.
    pub(super) by: Deadline,
}

/// What a reply that is owed is about.
pub(super) enum Due {
    Give(Owed),
    /// To a take or an extension on one of several servers, of which enough had answered.
    Vote(Arc<[u8]>, Token),
    /// Nobody wants to know any more; but what follows about this name comes behind it.
    Other(Arc<[u8]>),
}

impl Due {
    pub(super) fn name(&self) -> &Arc<[u8]> {
        match self {
            Due::Give(owed) => &owed.identity.name,
            Due::Vote(name, _) | Due::Other(name) => name,
        }
    }

    pub(super) fn give(self) -> Option<Owed> {
        match self {
            Due::Give(owed) => Some(owed),
            Due::Vote(..) | Due::Other(_) => None,
        }
    }
}

/// What one wire owes, in the order in which the replies will come.
#[derive(Default)]
pub(super) struct Account {
    pub(super) debts: VecDeque<Debt>,
    /// Another one each time that the wire is taken from here.
    loan: u64,
    /// The last round of [`Owing::fetch_due`] that came to it.
    round: Moment,
}

impl Account {
    pub(super) fn owes_nothing(&self) -> bool {
        self.debts.is_empty()
    }

    /// So many replies that are about no name.
    pub(super) fn owe_nobody(&mut self, count: usize, sent: Moment, by: Deadline) {
        let name: Arc<[u8]> = Arc::from(&b""[..]);
        let debt = || Debt { due: Due::Other(Arc::clone(&name)), sent, by };
        self.debts.extend(std::iter::repeat_with(debt).take(count));
    }

    fn since(&self) -> Option<Moment> {
        self.debts.front().map(|debt| debt.sent)
    }

    /// The reply that comes first is not waited for any longer.
    pub(super) fn is_overdue(&self) -> bool {
        self.debts.front().is_some_and(|debt| debt.by.has_passed())
    }
}

/// What a letter asks about.
#[derive(Clone, Copy, Debug)]
pub(super) enum About<'a> {
    /// No name, or one for which the order is of no account.
    Nothing,
    Name(&'a [u8]),
    Requests(&'a [Request<'a>]),
    /// The same where takes may have been left unanswered, and a give has to come behind those.
    Ballots(&'a [Request<'a>]),
}

impl About<'_> {
    /// Whether it must not be answered before a give of this name. (The keeper's extensions are of
    /// leases that are held.)
    fn comes_behind(&self, given: &[u8], lane: Lane) -> bool {
        let named = |request: &Request<'_>| match request {
            Request::Take { name, .. } => *name == given,
            Request::Extend { name, .. } => lane != Lane::Keeper && *name == given,
            Request::Give { .. } => false,
        };
        match self {
            About::Nothing => false,
            About::Name(name) => *name == given,
            About::Requests(requests) => requests.iter().any(named),
            About::Ballots(requests) => requests.iter().any(|request| match request {
                Request::Give { name, .. } => *name == given,
                request => named(request),
            }),
        }
    }

    /// The name that one of its calls takes or looks at; both may be sent twice without a change of
    /// what they bring.
    pub(super) fn sees(&self, call: usize) -> Option<&[u8]> {
        match self {
            About::Nothing => None,
            About::Name(name) => Some(name),
            About::Requests(requests) | About::Ballots(requests) => match requests.get(call)? {
                Request::Take { name, .. } => Some(name),
                Request::Extend { .. } | Request::Give { .. } => None,
            },
        }
    }
}

#[derive(Default)]
pub(super) struct Owing {
    /// Of wires, debts and ended gives that are here; with none, the list is not even locked.
    count: AtomicUsize,
    list: Mutex<List>,
    heard: Condvar,
}

#[derive(Default)]
struct List {
    lying: Vec<Wire>,
    /// The debts of wires that somebody has taken from here and is reading.
    away: Vec<Away>,
    /// Gives that were answered with anything but that they were done, or not at all.
    ended: Vec<(Owed, Outcome)>,
    /// Tokens that do not have the lock on this server, as it turned out.
    lacking: Vec<Token>,
    loans: u64,
    /// Nobody is notified where nobody sleeps.
    sleepers: u32,
}

struct Away {
    loan: u64,
    name: Arc<[u8]>,
    sent: Moment,
}

/// What has to be done with a slot's wire before it is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fetched {
    Nothing,
    /// Its replies are to be read, since another wire must be read as well.
    ReadFirst,
}

impl Owing {
    /// Gets the wire for a slot that a letter must use, if there is such a one, or any for a slot
    /// that is empty. (It may stay empty; the keeper's takes none that owes what has not come yet, since
    /// it does not wait for others before it has renewed.)
    pub(super) fn fetch(
        &self,
        slot: &mut Slot,
        about: About<'_>,
        lane: Lane,
        deadline: Deadline,
    ) -> Result<Fetched, Error> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Ok(Fetched::Nothing);
        }
        let comes_behind = |name: &[u8]| about.comes_behind(name, lane);
        let mut list = self.list.lock();
        while list.away.iter().any(|away| comes_behind(&away.name)) {
            let left = deadline.left();
            if left.is_zero() {
                let what = "a release of the same name was not answered";
                return Err(Error::new(ErrorKind::NoAnswer, what));
            }
            list.sleepers += 1;
            list = self.heard.wait_for(list, left);
            list.sleepers -= 1;
        }
        let owes = |wire: &Wire| {
            let debts = &wire.account.debts;
            debts.iter().any(|debt| comes_behind(debt.due.name()))
        };
        let mut owing = (0..list.lying.len()).filter(|at| owes(&list.lying[*at]));
        let (mut at, more) = (owing.next(), owing.next().is_some());
        if at.is_none() && slot.wire.is_none() {
            at = list.lying.iter().position(|wire| wire.account.owes_nothing());
            at = at.or_else(|| match lane {
                Lane::Keeper => list.lying.iter_mut().position(Wire::has_news),
                Lane::Caller | Lane::Give(_) => list.lying.len().checked_sub(1),
            });
        }
        if let Some(at) = at {
            list.hand_out(at, slot);
            self.count.store(list.count(), Ordering::Release);
        }
        Ok(if more { Fetched::ReadFirst } else { Fetched::Nothing })
    }

    /// Gets the next wire of which a reply is due: to a give sent before this moment, and either
    /// it has come, or nobody waits for it any longer. Each round comes to a wire once.
    pub(super) fn fetch_due(&self, slot: &mut Slot, before: Moment, round: Moment) -> bool {
        let mut list = self.list.lock();
        let due = |wire: &mut Wire| {
            wire.account.since().is_some_and(|since| since <= before)
                && wire.account.round != round
                && (wire.account.is_overdue() || wire.has_news())
        };
        let Some(at) = list.lying.iter_mut().position(due) else { return false };
        list.lying[at].account.round = round;
        list.hand_out(at, slot);
        self.count.store(list.count(), Ordering::Release);
        true
    }

    /// Whether a wire lies here whose server has not answered in time, and still does not.
    pub(super) fn is_silent(&self) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let silent = |wire: &mut Wire| wire.account.is_overdue() && !wire.has_news();
        self.list.lock().lying.iter_mut().any(silent)
    }

    /// Lays a slot's wire here, with what it owes.
    pub(super) fn lay_down(&self, slot: &mut Slot) {
        if let Some(wire) = slot.wire.take() {
            let mut list = self.list.lock();
            list.bring_back(wire.account.loan);
            list.lying.push(wire);
            self.tell(&list);
        }
    }

    /// A wire that was taken from here owes nothing any more; tells what became of some of it.
    pub(super) fn settled(&self, account: &Account, ended: Vec<(Owed, Outcome)>) {
        let mut list = self.list.lock();
        list.bring_back(account.loan);
        list.ended.extend(ended);
        self.tell(&list);
    }

    /// A wire is of no use any more. Whether what it owes was done, nobody knows.
    pub(super) fn abandon(&self, wire: Wire, error: &Error) {
        let mut account = wire.account;
        let unknown = |debt: Debt| {
            let Debt { due, sent, .. } = debt;
            due.give().map(|owed| (owed, Err(Failure::unknown(error.clone(), sent))))
        };
        let ended = account.debts.drain(..).filter_map(unknown).collect();
        self.settled(&account, ended);
    }

    /// Tells what became of gives, beyond what is told with their wire.
    pub(super) fn end(&self, ended: Vec<(Owed, Outcome)>) {
        let mut list = self.list.lock();
        list.ended.extend(ended);
        self.tell(&list);
    }

    /// Everything that was told since the last call.
    pub(super) fn take_ended(&self) -> Vec<(Owed, Outcome)> {
        let mut list = self.list.lock();
        let ended = std::mem::take(&mut list.ended);
        self.count.store(list.count(), Ordering::Release);
        ended
    }

    /// Whether a reply is owed to a give of this name.
    pub(super) fn is_for(&self, name: &[u8]) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let list = self.list.lock();
        let mut debts = list.lying.iter().flat_map(|wire| &wire.account.debts);
        debts.any(|debt| **debt.due.name() == *name)
            || list.away.iter().any(|away| *away.name == *name)
    }

    /// A server does not have the lock for a token, which nobody has heard in time.
    pub(super) fn lacks(&self, token: Token) {
        let mut list = self.list.lock();
        if list.lacking.len() < MOST_LACKING {
            list.lacking.push(token);
        }
    }

    /// All those that were told of since the last call.
    pub(super) fn take_lacking(&self) -> Vec<Token> {
        std::mem::take(&mut self.list.lock().lacking)
    }

    /// Takes out the gives of a name that were answered, and not done.
    pub(super) fn take_undone(&self, name: &[u8]) -> Vec<Owed> {
        let mut list = self.list.lock();
        let undone = list.ended.extract_if(.., |ended| is_undone(ended, name));
        let undone = undone.map(|(owed, _)| owed).collect();
        self.count.store(list.count(), Ordering::Release);
        undone
    }

    pub(super) fn has_undone(&self, name: &[u8]) -> bool {
        self.list.lock().ended.iter().any(|ended| is_undone(ended, name))
    }

    /// When the oldest give was sent that is not answered, or of which was not told. (What another
    /// thread owes is seen here by whoever has locked the list since, as in taking what has ended.)
    pub(super) fn since(&self) -> Option<Moment> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let list = self.list.lock();
        if !list.ended.is_empty() {
            return Some(Moment::ZERO);
        }
        let lying = list.lying.iter().filter_map(|wire| wire.account.since());
        lying.chain(list.away.iter().map(|away| away.sent)).min()
    }

    fn tell(&self, list: &List) {
        self.count.store(list.count(), Ordering::Release);
        if list.sleepers > 0 {
            self.heard.notify_all();
        }
    }
}

fn is_undone((owed, outcome): &(Owed, Outcome), name: &[u8]) -> bool {
    let not_done = matches!(outcome, Err(failure) if failure.sent.is_none());
    not_done && *owed.identity.name == *name
}

impl List {
    /// Gives a slot one of the wires; its own lies here instead, and owes nothing.
    fn hand_out(&mut self, at: usize, slot: &mut Slot) {
        let mut wire = self.lying.swap_remove(at);
        self.loans += 1;
        wire.account.loan = self.loans;
        let away = wire.account.debts.iter().map(|debt| Away {
            loan: self.loans,
            name: Arc::clone(debt.due.name()),
            sent: debt.sent,
        });
        self.away.extend(away);
        self.lying.extend(slot.wire.replace(wire));
    }

    fn bring_back(&mut self, loan: u64) {
        self.away.retain(|away| away.loan != loan);
    }

    fn count(&self) -> usize {
        self.lying.len() + self.away.len() + self.ended.len()
    }
}

#[cfg(test)]
mod tests;
