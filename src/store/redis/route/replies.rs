//! One server: reading replies, those that a wire owes before one's own.

use std::collections::{BTreeMap, VecDeque};

use redis::{ServerErrorKind, Value};

use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::{Failure, Owed, Reply};

use super::super::dialect::{Batch, Call};
use super::super::fault;
use super::super::owing::{About, Debt, Due};
use super::super::pool::Slot;
use super::super::sentinel::NEWS_EVERY;
use super::super::wire::Wire;
use super::single::{Carried, Heard, Letter, Single, moved};

impl Single {
    /// Reads what the slot's wire owes, and then the replies to these calls.
    pub(super) fn collect(
        &self,
        slot: &mut Slot,
        calls: &[Call],
        sent: Moment,
        deadline: Deadline,
        again: Again,
    ) -> Vec<Carried> {
        self.read_all(slot, (calls.len(), calls), sent, deadline, again)
    }

    /// The same for as many replies to what is no call of a script.
    pub(super) fn collect_plain(
        &self,
        slot: &mut Slot,
        count: usize,
        sent: Moment,
        deadline: Deadline,
    ) -> Vec<Carried> {
        self.read_all(slot, (count, &[]), sent, deadline, Again::Yes)
    }

    fn read_all(
        &self,
        slot: &mut Slot,
        (count, calls): (usize, &[Call]),
        sent: Moment,
        deadline: Deadline,
        again: Again,
    ) -> Vec<Carried> {
        let mut carried = Vec::with_capacity(count);
        let mut heard = self.hear(slot, deadline, again);
        while carried.len() < count {
            if let (Ok(()), Some(wire)) = (&heard, &mut slot.wire) {
                let is_awaited = calls.get(carried.len()).is_some_and(|call| call.is_awaited);
                let both = self.receive(wire, deadline).and_then(|value| {
                    let wait = || self.receive(wire, deadline);
                    Ok((value, is_awaited.then(wait).transpose()?))
                });
                match both {
                    Ok((value, copies)) => {
                        carried.push(Ok(Heard { value, sent, by: wire.server, copies }));
                    }
                    Err(error) => heard = Err(error),
                }
            } else {
                let error = heard.err().unwrap_or_else(|| Error::bare(ErrorKind::Refused));
                // Poisoned: the next reply on it could be to something else.
                self.discard(slot, &error);
                carried.resize(count, Err(Failure::unknown(error, sent)));
                break;
            }
        }
        carried
    }

    /// One reply. Where the server may be replaced, its place is looked at meanwhile: one that fell
    /// silent is not waited for when there is another one.
    fn receive(&self, wire: &mut Wire, deadline: Deadline) -> Result<Value, Error> {
        if !self.target.may_move() {
            return wire.receive(deadline);
        }
        loop {
            let glance = Deadline::after(NEWS_EVERY).min(deadline);
            match wire.receive(glance) {
                Err(error) if error.kind() == ErrorKind::NoAnswer && !deadline.has_passed() => {
                    if !self.target.is_current(wire) {
                        return Err(moved());
                    }
                }
                received => {
                    wire.is_demoted |= matches!(&received, Ok(value) if is_demoted(value));
                    return received;
                }
            }
        }
    }

    /// Reads what the slot's wire owes. What it owes afterwards are gives that were not carried out
    /// because the server lacks the script, or is no master, if those may be sent again.
    fn hear(&self, slot: &mut Slot, deadline: Deadline, again: Again) -> Result<(), Error> {
        let Some(wire) = slot.wire.as_mut().filter(|wire| !wire.account.owes_nothing()) else {
            return Ok(());
        };
        let (mut ended, mut undone) = (Vec::new(), VecDeque::new());
        while !wire.account.owes_nothing() {
            let value = match self.receive(wire, deadline) {
                Ok(value) => value,
                Err(error) => {
                    let refused = |owed| (owed, Err(Failure::not_done(error.clone())));
                    ended.extend(undone.into_iter().filter_map(into_give).map(refused));
                    self.owing.end(ended);
                    return Err(error);
                }
            };
            let Some(debt) = wire.account.debts.pop_front() else { break };
            let answer = Ok(Heard { value, sent: debt.sent, by: wire.server, copies: None });
            let owed = match debt.due {
                Due::Give(owed) => owed,
                due @ (Due::Vote(..) | Due::Other(_)) => {
                    if lacks_script(&answer) {
                        self.told.forget();
                    }
                    if let (Due::Vote(_, token), Ok(heard)) = (due, &answer)
                        && self.gives.lacks_lock(&heard.value)
                    {
                        self.owing.lacks(token);
                    }
                    continue;
                }
            };
            if again == Again::Yes && self.is_undone(&answer) {
                undone.push_back(Debt { due: Due::Give(owed), ..debt });
                continue;
            }
            let outcome = self.gives.read(&owed.identity.give(), answer);
            if !matches!(&outcome, Ok(answer) if answer.reply == Reply::Given) {
                ended.push((owed, outcome));
            }
        }
        if undone.is_empty() {
            self.owing.settled(&wire.account, ended);
        } else {
            wire.account.debts = undone;
            self.owing.end(ended);
        }
        Ok(())
    }

    /// Reads what the slot's wire owes while nothing else is under way on it. If the replies do not
    /// come by a moment, they may still come later.
    pub(super) fn settle_slot(
        &self,
        slot: &mut Slot,
        by: Deadline,
        deadline: Deadline,
    ) -> Result<(), Error> {
        let Some(wire) = &mut slot.wire else { return Ok(()) };
        // Nobody waits any longer for what has not come by now.
        let overdue = wire.account.is_overdue();
        let by = if overdue && !wire.has_news() { Deadline::at(Moment::ZERO) } else { by };
        match self.hear(slot, by, Again::Yes) {
            Ok(()) => {
                self.reload(slot, &Batch::default(), About::Nothing, &mut [], deadline);
                Ok(())
            }
            Err(error) => {
                if error.kind() == ErrorKind::NoAnswer && !overdue {
                    self.owing.lay_down(slot);
                } else {
                    self.discard(slot, &error);
                }
                Err(error)
            }
        }
    }

    /// Reads what has come of the replies that a slot's wire owes. Whether all of it was read; if
    /// not, and more is still owed than may be, the wire lies where it lay.
    pub(super) fn read_some(
        &self,
        slot: &mut Slot,
        letter: &Letter<'_>,
        must_be_read: bool,
    ) -> Result<bool, Error> {
        let now = Deadline::at(Moment::ZERO);
        let Some(wire) = &mut slot.wire else { return Ok(true) };
        // Brings it here from the socket.
        wire.has_whole(wire.account.debts.len(), now);
        match self.hear(slot, now, Again::Yes) {
            Ok(()) => {
                self.reload(slot, &Batch::default(), About::Nothing, &mut [], letter.deadline);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::NoAnswer => {
                let owes = slot.wire.as_ref().map_or(0, |wire| wire.account.debts.len());
                if owes <= letter.most && !must_be_read {
                    return Ok(false);
                }
                self.owing.lay_down(slot);
                Err(Error::new(ErrorKind::Exhausted, "the server is behind with its replies"))
            }
            Err(error) => {
                self.discard(slot, &error);
                Err(error)
            }
        }
    }

    /// Loads scripts that the server does not have (it was restarted, or its cache flushed) and
    /// sends the calls that needed them once more: those were not carried out. The same where the
    /// server is no master any more, to the one that is. If gives are among them that are owed, what
    /// looked at the same name behind them does so once more.
    pub(super) fn reload(
        &self,
        slot: &mut Slot,
        batch: &Batch,
        about: About<'_>,
        carried: &mut [Carried],
        deadline: Deadline,
    ) {
        let mut undone = VecDeque::new();
        if let Some(wire) = slot.wire.as_mut().filter(|wire| !wire.account.owes_nothing()) {
            undone = std::mem::take(&mut wire.account.debts);
        }
        let is_behind = |name: &[u8]| undone.iter().any(|debt| **debt.due.name() == *name);
        let is_again = |index: &usize| {
            self.is_undone(&carried[*index]) || about.sees(*index).is_some_and(is_behind)
        };
        let again: Vec<usize> = (0..carried.len()).filter(is_again).collect();
        if again.is_empty() && undone.is_empty() {
            return;
        }
        if slot.wire.as_ref().is_some_and(|wire| wire.is_demoted) {
            self.discard(slot, &moved());
        }
        let give = |debt: &Debt| match &debt.due {
            Due::Give(owed) => Some(owed.clone()),
            Due::Vote(..) | Due::Other(_) => None,
        };
        let owed: Vec<_> = undone.iter().filter_map(give).collect();
        let gives: Vec<_> = owed.iter().map(|owed| owed.identity.give()).collect();
        let (gives, own) = (self.gives.pack(&gives), batch.only(&again));
        let sent = self
            .load(slot, [&gives, &own], deadline)
            .and_then(|()| self.send(slot, &Letter::more(&gives.and(&own), deadline)));
        match sent {
            Ok(sent) => {
                if let Some(wire) = &mut slot.wire {
                    let debts = undone.into_iter().map(|debt| Debt { sent, ..debt });
                    wire.account.debts.extend(debts);
                }
                let answers = self.collect(slot, &own.calls, sent, deadline, Again::No);
                for (index, answer) in again.into_iter().zip(answers) {
                    carried[index] = answer;
                }
            }
            Err(failure) => {
                for index in again {
                    // What was answered before was, if it did not go out once more.
                    if self.is_undone(&carried[index]) || failure.sent.is_some() {
                        carried[index] = Err(failure.clone());
                    }
                }
                let failed = |owed| (owed, Err(failure.clone()));
                let ended = undone.into_iter().filter_map(into_give).map(failed);
                match &slot.wire {
                    Some(wire) => self.owing.settled(&wire.account, ended.collect()),
                    None => self.owing.end(ended.collect()),
                }
            }
        }
    }

    /// Whether the call was not carried out, and can be elsewhere or in a moment.
    fn is_undone(&self, carried: &Carried) -> bool {
        lacks_script(carried) || self.is_refused(carried)
    }

    /// Whether the server said that it is not the one to ask, where there may be another one.
    fn is_refused(&self, carried: &Carried) -> bool {
        self.target.may_move() && matches!(carried, Ok(heard) if is_demoted(&heard.value))
    }

    /// Who says so still is about to be replaced, or to be a master again.
    pub(super) fn pass_over_refusals(&self, carried: &mut [Carried]) {
        for refused in carried.iter_mut().filter(|carried| self.is_refused(carried)) {
            if let Ok(Heard { value: Value::ServerError(error), .. }) = refused {
                let why = fault::server(error);
                let error = Error::new(ErrorKind::Unavailable, why.detail());
                *refused = Err(Failure::not_done(error));
            }
        }
    }

    /// Loads the scripts that these calls need. A failure means that none of them was made.
    fn load(
        &self,
        slot: &mut Slot,
        batches: [&Batch; 2],
        deadline: Deadline,
    ) -> Result<(), Failure> {
        let (load, count) = pack_loads(batches);
        let sent = self.send(slot, &Letter::more(&Batch::plain(load), deadline));
        let sent = sent.map_err(|failure| Failure::not_done(failure.error))?;
        for answer in self.read_all(slot, (count, &[]), sent, deadline, Again::No) {
            match answer {
                Ok(Heard { value: Value::ServerError(error), .. }) => {
                    return Err(Failure::not_done(fault::server(&error)));
                }
                Ok(_) => {}
                Err(failure) => return Err(Failure::not_done(failure.error)),
            }
        }
        Ok(())
    }
}

/// Commands that load the scripts of these calls, and how many they are.
pub(super) fn pack_loads<const N: usize>(batches: [&Batch; N]) -> (Vec<u8>, usize) {
    let calls = batches.into_iter().flat_map(|batch| &batch.calls);
    let scripts: BTreeMap<_, _> = calls
        .flat_map(|call| [Some(call.script), call.script.follower])
        .flatten()
        .map(|script| (script.digest(), script.source))
        .collect();
    let mut load = Vec::new();
    for source in scripts.values() {
        redis::cmd("SCRIPT").arg("LOAD").arg(*source).write_packed_command(&mut load);
    }
    (load, scripts.len())
}

/// Whether gives that the server lacked the script for may be sent once more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Again {
    Yes,
    No,
}

/// The words of a replica, also of one that is only becoming one.
fn is_demoted(value: &Value) -> bool {
    match value {
        Value::ServerError(error) => {
            fault::server(error).kind() == ErrorKind::ReadOnly
                || matches!(error.code(), "MASTERDOWN" | "LOADING")
        }
        _ => false,
    }
}

fn into_give(debt: Debt) -> Option<Owed> {
    debt.due.give()
}

pub(super) fn lacks_script(carried: &Carried) -> bool {
    matches!(carried, Ok(Heard { value: Value::ServerError(error), .. })
        if error.kind() == Some(ServerErrorKind::NoScript))
}
