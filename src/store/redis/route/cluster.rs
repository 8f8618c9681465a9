//! A Cluster: each lock is on the server that has its slot, and slots move. A call goes on to the
//! server that another one names; one that may have been carried out is never sent again from here.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;

use super::super::dialect::keys::{slot, slot_behind};
use super::super::dialect::lacks_lock;
use super::super::listener::{Publisher, Publishers};
use super::peer::plain;
use super::single::Pending;
use super::slots::{ClusterNode, Elsewhere, SlotMap, elsewhere};
use super::{Carried, Gives, Heard, Parcel, Route, unanswered};
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::outbox::Outbox;
use crate::store::{Failure, Owed};

/// How often a call is sent on. While a slot changes hands, its servers may point at each other.
const HOPS: usize = 4;
/// How long one server is waited for before the next one is looked at.
const GLIMPSE: Duration = Duration::from_millis(2);

pub(in crate::store::redis) struct Cluster {
    map: Arc<SlotMap>,
    outbox: Arc<Outbox>,
}

impl Cluster {
    pub(in crate::store::redis) fn new(
        map: Arc<SlotMap>,
        gives: Arc<dyn Gives>,
        outbox: Arc<Outbox>,
    ) -> Cluster {
        map.tell(gives, Arc::clone(&outbox));
        Cluster { map, outbox }
    }

    /// Sends calls to the servers that have their slots. Returns those that are to be sent on.
    fn ask_open(
        &self,
        parcel: &Parcel<'_>,
        open: Vec<usize>,
        carried: &mut [Carried],
    ) -> Vec<usize> {
        let batch = parcel.batch;
        let mut parts: BTreeMap<u32, (Arc<ClusterNode>, Vec<usize>)> = BTreeMap::new();
        for call in open {
            match self.map.owner(slot(batch.key(call))) {
                Ok(node) => parts.entry(node.key).or_insert((node, Vec::new())).1.push(call),
                Err(error) => carried[call] = Err(Failure::not_done(error)),
            }
        }
        let mut onward = Vec::new();
        let mut sort = |node: &ClusterNode, calls: &[usize], answers: Vec<Carried>| {
            for (call, answer) in calls.iter().zip(answers) {
                let (answer, goes_on) = self.sort(*call, answer, node, parcel);
                carried[*call] = answer;
                onward.extend(goes_on.then_some(*call));
            }
        };
        match parts.first_key_value() {
            // The everyday case, without a copy.
            Some((_, (node, calls))) if calls.len() == batch.calls.len() => {
                sort(node, calls, node.single.carry_all(parcel));
            }
            _ => {
                let parts: Vec<_> = parts.into_values().collect();
                for (part, answers) in parts.iter().zip(scatter(&parts, parcel)) {
                    sort(&part.0, &part.1, answers);
                }
            }
        }
        // In the order of the batch: all of them at one server are sent without a copy.
        onward.sort_unstable();
        onward
    }

    /// An answer, and whether the call is to be sent on. One that has to be asked for elsewhere is.
    fn sort(
        &self,
        call: usize,
        said: Carried,
        from: &ClusterNode,
        parcel: &Parcel<'_>,
    ) -> (Carried, bool) {
        let Parcel { batch, deadline, .. } = *parcel;
        let moved = match &said {
            Ok(Heard { value: Value::ServerError(error), .. }) => {
                elsewhere(error.code(), error.details().unwrap_or(""), &from.address)
            }
            // Not even connected: another server may have taken over.
            Err(Failure { sent: None, error }) if !deadline.has_passed() => {
                let moved = error.kind() == ErrorKind::Refused
                    && self.map.refresh(deadline).is_ok()
                    && self.map.owner(slot(batch.key(call))).is_ok_and(|to| to.key != from.key);
                return (said, moved);
            }
            Ok(_) | Err(_) => None,
        };
        match moved {
            // It went out behind a give that was not done, and goes out behind it again.
            None if self.is_in_vain(batch.sees(call), &said) => (said, true),
            None => (self.plain(said), false),
            Some(Elsewhere::Moved(slot, to)) => match self.map.moved(slot, to) {
                Ok(()) => (said, true),
                Err(error) => (Err(Failure::not_done(error)), false),
            },
            Some(Elsewhere::Ask(to)) => {
                let asked = self.map.at(to).map(|node| {
                    let asking = batch.asking(call);
                    let asking = Parcel { batch: &asking, ..*parcel };
                    node.single.carry_all(&asking).pop().unwrap_or(said)
                });
                let asked = asked.unwrap_or_else(|error| Err(Failure::not_done(error)));
                (self.plain(asked), false)
            }
        }
    }

    /// Whether a take did not get the lock of this name while a give of it was not done.
    fn is_in_vain(&self, name: Option<&[u8]>, answer: &Carried) -> bool {
        name.is_some_and(|name| self.outbox.has_give_not_done(name))
            && answer.as_ref().is_ok_and(|heard| lacks_lock(&heard.value))
    }

    fn plain(&self, carried: Carried) -> Carried {
        plain(carried, || self.map.doubt())
    }
}

/// Sends every part before the first answer is waited for; each has its share of the time for that.
fn scatter(parts: &[(Arc<ClusterNode>, Vec<usize>)], parcel: &Parcel<'_>) -> Vec<Vec<Carried>> {
    let deadline = parcel.deadline;
    let batches: Vec<_> = parts.iter().map(|(_, calls)| parcel.batch.only(calls)).collect();
    let mut sent: Vec<_> = parts
        .iter()
        .zip(&batches)
        .zip((2..=parts.len() + 1).rev())
        .map(|(((node, _), batch), left)| {
            let part = Parcel { batch, ..*parcel };
            let begun = node.single.begin(part, deadline.share(left), false);
            begun.unwrap_or_else(|failure| Pending::answered(vec![Err(failure); batch.calls.len()]))
        })
        .map(Some)
        .collect();
    let mut answers: Vec<_> = parts.iter().map(|_| Vec::new()).collect();
    // A server that answers at once is read first: one that has to be told its scripts again needs
    // the time that a silent one would take.
    for is_last in [false, true] {
        for (pending, answers) in sent.iter_mut().zip(&mut answers) {
            let until = if is_last { deadline } else { deadline.min(Deadline::after(GLIMPSE)) };
            // After the deadline, this still reads what has come in time.
            if let Some(pending) = pending.take_if(|one| one.is_answered(until) || is_last) {
                pending.finish(&mut |carried| answers.push(carried));
            }
        }
    }
    answers
}

impl Route for Cluster {
    fn carry(&self, parcel: &Parcel<'_>, carried: &mut [Carried]) {
        let Parcel { batch, deadline, .. } = *parcel;
        if let Err(error) = self.map.freshen(deadline) {
            return carried.fill(Err(Failure::not_done(error)));
        }
        let mut open: Vec<usize> = (0..batch.calls.len()).collect();
        for _ in 0..HOPS {
            open = self.ask_open(parcel, open, carried);
            if open.is_empty() || deadline.has_passed() {
                break;
            }
        }
        for call in open {
            let answer = std::mem::replace(&mut carried[call], unanswered());
            carried[call] = self.plain(answer).and_then(|_| {
                let what = "its own release waits for a slot that moves to another server";
                Err(Failure::not_done(Error::new(ErrorKind::Unavailable, what)))
            });
        }
    }

    /// A server that takes another one's place meanwhile has a larger number, and is asked too.
    fn ask_master(&self, from: u32, parcel: &Parcel<'_>) -> Option<(u32, Carried)> {
        if let Err(error) = self.map.freshen(parcel.deadline) {
            return Some((from, Err(Failure::not_done(error))));
        }
        let next = self.map.masters().into_iter().find(|node| node.key >= from)?;
        let said = next.single.carry_all(parcel).pop().unwrap_or_else(unanswered);
        Some((next.key, self.plain(said)))
    }

    /// Where it goes is known only from the answers, so they are here when it returns.
    fn start<'a>(&'a self, parcel: Parcel<'a>) -> Result<Pending<'a>, Failure> {
        Ok(Pending::answered(self.carry_all(&parcel)))
    }

    fn tell(&self, parcel: Parcel<'_>) -> Result<(), Failure> {
        let node = self.map.owner(slot(parcel.batch.key(0))).map_err(Failure::not_done)?;
        node.single.tell(parcel)
    }

    fn let_go(&self, owed: &Owed, give: &Parcel<'_>) -> Result<(), Failure> {
        let node = self.map.owner(slot(give.batch.key(0))).map_err(Failure::not_done)?;
        node.single.let_go(owed, give)
    }

    fn read_unread(&self, before: Moment) {
        self.map.nodes().iter().for_each(|node| node.single.read_unread(before));
    }

    fn is_silent(&self) -> bool {
        false
    }

    fn ping(&self, deadline: Deadline) -> Result<(), Error> {
        self.map.refresh(deadline)?;
        let masters = self.map.masters();
        for (node, left) in masters.iter().zip((1..=masters.len()).rev()) {
            node.single.ping(deadline.share(left))?;
        }
        Ok(())
    }
}

/// The server that has a name's slot tells its waiters. The map itself leads to the listener.
pub(in crate::store::redis) struct SlotPublishers {
    pub(in crate::store::redis) prefix: Vec<u8>,
    pub(in crate::store::redis) map: Weak<SlotMap>,
}

impl SlotPublishers {
    fn map(&self) -> Result<Arc<SlotMap>, Error> {
        self.map.upgrade().ok_or_else(|| Error::bare(ErrorKind::Closed))
    }
}

impl Publishers for SlotPublishers {
    fn publisher(&self, name: &[u8]) -> Result<Publisher, Error> {
        let node = self.map()?.owner(slot_behind(&self.prefix, name))?;
        Ok(Publisher { key: node.key, source: Arc::clone(&node.source) })
    }

    fn find(&self, _name: &[u8], deadline: Deadline) -> Result<(), Error> {
        self.map()?.freshen(deadline)
    }

    fn slot(&self, name: &[u8]) -> Option<u16> {
        Some(slot_behind(&self.prefix, name))
    }
}

#[cfg(test)]
mod tests;
