//! One server: reading replies, those that a wire owes before one's own.

use std::collections::BTreeMap;

use redis::{ServerErrorKind, Value};

use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::Failure;

use super::super::dialect::{Batch, Call};
use super::super::fault;
use super::super::pool::Slot;
use super::super::sentinel::NEWS_EVERY;
use super::super::unread::{About, Owing, Subject};
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
    ) -> Vec<Carried> {
        self.read_all(slot, (calls.len(), calls), sent, deadline)
    }

    /// The same for as many replies to what is no call of a script.
    pub(super) fn collect_plain(
        &self,
        slot: &mut Slot,
        count: usize,
        sent: Moment,
        deadline: Deadline,
    ) -> Vec<Carried> {
        self.read_all(slot, (count, &[]), sent, deadline)
    }

    fn read_all(
        &self,
        slot: &mut Slot,
        (count, calls): (usize, &[Call]),
        sent: Moment,
        deadline: Deadline,
    ) -> Vec<Carried> {
        let mut carried = Vec::with_capacity(count);
        let mut heard = self.hear(slot, deadline);
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

    /// Reads what the slot's wire owes.
    fn hear(&self, slot: &mut Slot, deadline: Deadline) -> Result<(), Error> {
        let Some(wire) = &mut slot.wire else { return Ok(()) };
        while !wire.unread.is_empty() {
            let value = self.receive(wire, deadline)?;
            let Some(Owing { subject, sent, .. }) = wire.unread.pop() else { break };
            let answer = Ok(Heard { value, sent, by: wire.server, copies: None });
            if lacks_script(&answer) {
                self.told.forget();
            }
            match subject {
                Subject::Nothing => {}
                Subject::Vote(token) => {
                    let lacks = answer.is_ok_and(|heard| self.gives.lacks_lock(&heard.value));
                    self.outbox.heard(token, wire.unread.on, lacks);
                }
                Subject::Give(id, identity) => {
                    let mut answer = [answer];
                    self.pass_over_refusals(&mut answer);
                    let [answer] = answer;
                    let outcome = self.gives.read(&identity.give(), answer);
                    self.outbox.answered(id, Some(wire.unread.on), &outcome);
                }
            }
        }
        Ok(())
    }

    /// Reads what the slot's wire owes while nothing else is under way on it, as far as it comes by
    /// a moment. The rest may still come later.
    pub(super) fn catch_up(&self, slot: &mut Slot, by: Deadline) {
        let Some(wire) = &mut slot.wire else { return };
        wire.has_whole(wire.unread.len(), by);
        match self.hear(slot, Deadline::at(Moment::ZERO)) {
            Err(error) if error.kind() != ErrorKind::NoAnswer => self.discard(slot, &error),
            Ok(()) | Err(_) => {}
        }
    }

    /// Loads scripts that the server does not have (it was restarted, or its cache flushed) and
    /// sends the calls that needed them once more: those were not carried out. The same where the
    /// server is no master any more, to the one that is; and for what takes or looks at a name
    /// behind a give that was not done.
    pub(super) fn reload(
        &self,
        slot: &mut Slot,
        batch: &Batch,
        about: About<'_>,
        carried: &mut [Carried],
        deadline: Deadline,
    ) {
        let is_behind = |call| about.sees(call).is_some_and(|name| self.outbox.has_undone(name));
        let is_again = |call: &usize| self.is_undone(&carried[*call]) || is_behind(*call);
        let again: Vec<usize> = (0..carried.len()).filter(is_again).collect();
        if again.is_empty() {
            return;
        }
        if slot.wire.as_ref().is_some_and(|wire| wire.is_demoted) {
            self.discard(slot, &moved());
        }
        let own = batch.only(&again);
        let requests: Vec<_> =
            again.iter().filter_map(|call| about.requests().get(*call).copied()).collect();
        let about = if requests.is_empty() { about } else { About::Requests(&requests) };
        let sent = self
            .load(slot, &own, deadline)
            .and_then(|()| self.send(slot, &Letter::more(&own, about, deadline)));
        match sent {
            Ok(sent) => {
                let answers = self.collect(slot, &own.calls, sent, deadline);
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
    fn load(&self, slot: &mut Slot, batch: &Batch, deadline: Deadline) -> Result<(), Failure> {
        let (load, count) = pack_loads(batch);
        let sent = self.send(slot, &Letter::more(&Batch::plain(load), About::Nothing, deadline));
        let sent = sent.map_err(|failure| Failure::not_done(failure.error))?;
        for answer in self.read_all(slot, (count, &[]), sent, deadline) {
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
pub(super) fn pack_loads(batch: &Batch) -> (Vec<u8>, usize) {
    let calls = batch.calls.iter();
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

pub(super) fn lacks_script(carried: &Carried) -> bool {
    matches!(carried, Ok(Heard { value: Value::ServerError(error), .. })
        if error.kind() == Some(ServerErrorKind::NoScript))
}
