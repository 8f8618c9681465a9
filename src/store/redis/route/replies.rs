//! One server: reading replies, those that a wire owes before one's own.

use std::collections::{BTreeMap, VecDeque};

use redis::{ServerErrorKind, Value};

use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::{Failure, Reply};

use super::super::dialect::Batch;
use super::super::fault;
use super::super::owing::{About, Debt};
use super::super::pool::Slot;
use super::single::{Carried, Letter, Single};

impl Single {
    /// Reads what the slot's wire owes, and then as many replies of one's own.
    pub(super) fn collect(
        &self,
        slot: &mut Slot,
        count: usize,
        sent: Moment,
        deadline: Deadline,
        again: Again,
    ) -> Vec<Carried> {
        let mut carried = Vec::with_capacity(count);
        let mut heard = self.hear(slot, deadline, again);
        while carried.len() < count {
            if let (Ok(()), Some(wire)) = (&heard, &mut slot.wire) {
                match wire.receive(deadline) {
                    Ok(value) => carried.push(Ok((value, sent))),
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

    /// Reads what the slot's wire owes. What it owes afterwards are gives that were not carried out
    /// because the server lacks the script, if those may be sent again.
    fn hear(&self, slot: &mut Slot, deadline: Deadline, again: Again) -> Result<(), Error> {
        let Some(wire) = slot.wire.as_mut().filter(|wire| !wire.account.owes_nothing()) else {
            return Ok(());
        };
        let (mut ended, mut undone) = (Vec::new(), VecDeque::new());
        while !wire.account.owes_nothing() {
            let value = match wire.receive(deadline) {
                Ok(value) => value,
                Err(error) => {
                    let refused = |debt: Debt| (debt.owed, Err(Failure::not_done(error.clone())));
                    ended.extend(undone.into_iter().map(refused));
                    self.owing.end(ended);
                    return Err(error);
                }
            };
            let Some(debt) = wire.account.debts.pop_front() else { break };
            let answer = Ok((value, debt.sent));
            if again == Again::Yes && lacks_script(&answer) {
                undone.push_back(debt);
                continue;
            }
            let outcome = self.gives.read(&debt.owed.identity.give(), answer);
            if !matches!(&outcome, Ok(answer) if answer.reply == Reply::Given) {
                ended.push((debt.owed, outcome));
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

    /// Loads scripts that the server does not have (it was restarted, or its cache flushed) and
    /// sends the calls that needed them once more: those were not carried out. If gives are among
    /// them that are owed, what looked at the same name behind them does so once more.
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
        let is_behind = |name: &[u8]| undone.iter().any(|debt| *debt.owed.identity.name == *name);
        let is_again = |index: &usize| {
            lacks_script(&carried[*index]) || about.sees(*index).is_some_and(is_behind)
        };
        let again: Vec<usize> = (0..carried.len()).filter(is_again).collect();
        if again.is_empty() && undone.is_empty() {
            return;
        }
        let gives: Vec<_> = undone.iter().map(|debt| debt.owed.identity.give()).collect();
        let (gives, own) = (self.gives.pack(&gives), batch.only(&again));
        let sent = self.load(slot, [&gives, &own], deadline).and_then(|()| {
            let bytes = [&gives.bytes[..], &own.bytes].concat();
            self.send(slot, &Letter::more(&bytes, deadline))
        });
        match sent {
            Ok(sent) => {
                if let Some(wire) = &mut slot.wire {
                    let debts = undone.into_iter().map(|debt| Debt { sent, ..debt });
                    wire.account.debts.extend(debts);
                }
                let answers = self.collect(slot, again.len(), sent, deadline, Again::No);
                for (index, answer) in again.into_iter().zip(answers) {
                    carried[index] = answer;
                }
            }
            Err(failure) => {
                for index in again {
                    // What was answered before was, if it did not go out once more.
                    if lacks_script(&carried[index]) || failure.sent.is_some() {
                        carried[index] = Err(failure.clone());
                    }
                }
                let ended = undone.into_iter().map(|debt| (debt.owed, Err(failure.clone())));
                match &slot.wire {
                    Some(wire) => self.owing.settled(&wire.account, ended.collect()),
                    None => self.owing.end(ended.collect()),
                }
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
        let sent = self.send(slot, &Letter::more(&load, deadline));
        let sent = sent.map_err(|failure| Failure::not_done(failure.error))?;
        for answer in self.collect(slot, scripts.len(), sent, deadline, Again::No) {
            match answer {
                Ok((Value::ServerError(error), _)) => {
                    return Err(Failure::not_done(fault::server(&error)));
                }
                Ok(_) => {}
                Err(failure) => return Err(Failure::not_done(failure.error)),
            }
        }
        Ok(())
    }
}

/// Whether gives that the server lacked the script for may be sent once more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Again {
    Yes,
    No,
}

fn lacks_script(carried: &Carried) -> bool {
    matches!(carried, Ok((Value::ServerError(error), _))
        if error.kind() == Some(ServerErrorKind::NoScript))
}
