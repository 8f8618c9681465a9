//! Who has a lock and who waits for it, and what clients say of themselves.

use std::time::Duration;

use super::dial::transact;
use super::fault::{self, End};
use super::keys::{self, Name};
use super::leases::Leases;
use super::messages::{self, Key, Lives, Op, Part, Txn, most_of};
use super::wire::Wire;
use super::{EtcdStore, UNTOLD};
use crate::clock::{Deadline, Moment};
use crate::said::say;
use crate::store::{Failure, Holder, Lane, Look, MOST_WAITERS, Record, Waiter};

/// A client that closes waits no longer until it is forgotten.
const LEAVES: Duration = Duration::from_millis(100);
/// The seconds of what nothing ends.
const ENDLESS: i64 = UNTOLD.as_secs() as i64;

impl EtcdStore {
    /// The first keys of a name, and how the lease of the holder stands.
    pub(super) fn looked(
        &self,
        name: &Name,
        most: usize,
        deadline: Deadline,
    ) -> Result<Option<(Part, Lives)>, Failure> {
        let most = most.min(most_of([&*name.all].into_iter()));
        let look = Txn::default().then(Op::first_of(&name.all, most));
        self.on_wire(Lane::Caller, deadline, |wire, deadline| {
            let all = transact(wire, &look, deadline)?.0.part(0);
            let lease = all.keys.first().map(|first| first.lease);
            let lives = lives_of(wire, lease.as_slice(), deadline)?.pop();
            Ok(lives.map(|lives| (all, lives)))
        })
    }

    pub(super) fn seen(&self, name: &Name, deadline: Deadline) -> Result<Look, Failure> {
        let Some((all, lives)) = self.looked(name, MOST_WAITERS + 1, deadline)? else {
            return Ok(Look::default());
        };
        let Some((first, others)) = all.keys.split_first() else { return Ok(Look::default()) };
        let (holder, waiters) = (self.holder(first, &lives), others.iter().map(waiter).collect());
        let more_waiters = all.count.saturating_sub(1 + others.len() as u64);
        Ok(Look { last_fence: holder.fence, holder: Some(holder), waiters, more_waiters })
    }

    pub(super) fn holder(&self, first: &Key, lives: &Lives) -> Holder {
        let said = keys::said(&first.value, first.created);
        let seconds = |count| Duration::from_secs(u64::try_from(count).unwrap_or(0));
        // The lease has more time than was asked for.
        let asked = said.map_or(UNTOLD, |said| said.ttl).min(seconds(lives.whole));
        let left = seconds(lives.seconds).saturating_sub(seconds(lives.whole) - asked);
        let ours = said.and_then(|said| self.places.get(said.token));
        let ends = ours.map_or(Moment::NEVER, |held| held.ends);
        Holder {
            token_prefix: shown(first),
            ttl: if ends == Moment::NEVER { left } else { ends.since(Moment::now()) },
            fence: said.map(|said| said.first),
            held: said.map(|said| said.age()),
            client: None,
        }
    }

    pub(super) fn keep_record(
        &self,
        record: Record<'_>,
        deadline: Deadline,
    ) -> Result<(), Failure> {
        let key = keys::client(&self.prefix, record.client);
        self.on_wire(Lane::Keeper, deadline, |wire, deadline| {
            // The one before it ends by itself.
            let lease = Leases::exactly(wire, record.ttl, deadline)?;
            let put = Op::put(&key, record.text.as_bytes(), lease.id);
            transact(wire, &Txn::default().then(put), deadline)?;
            *self.record.lock() = Some(lease.id);
            Ok(())
        })
    }

    pub(super) fn forget_record(&self) {
        let lease = self.record.lock().take();
        if let Err(failure) = self.revoke(lease.as_slice(), Deadline::after(LEAVES)) {
            say!(Debug, "record-left", error = failure.error);
        }
    }

    /// Ends leases, with what is under them.
    pub(super) fn revoke(&self, leases: &[i64], deadline: Deadline) -> Result<(), Failure> {
        if leases.is_empty() {
            return Ok(());
        }
        self.on_wire(Lane::Keeper, deadline, |wire, deadline| {
            ask_each(wire, messages::REVOKE, leases, deadline).map(drop)
        })
    }

    pub(super) fn read(
        &self,
        lane: Lane,
        keys: impl Iterator<Item = Vec<u8>>,
        deadline: Deadline,
    ) -> Result<Vec<Option<Vec<u8>>>, Failure> {
        let (keys, mut all) = (keys.collect::<Vec<_>>(), Vec::new());
        for some in keys.chunks(most_of(keys.iter().map(|key| &**key))) {
            let look = some.iter().map(|key| Op::get(key)).fold(Txn::default(), Txn::then);
            let mut done = self.transact(lane, &look, deadline)?;
            all.extend((0..some.len()).map(|at| done.part(at).first().map(|key| key.value)));
        }
        Ok(all)
    }
}

/// How these leases stand. What has none never ends.
pub(super) fn lives_of(
    wire: &mut Wire,
    leases: &[i64],
    deadline: Deadline,
) -> Result<Vec<Lives>, Failure> {
    let sent = Moment::now();
    let answers = ask_each(wire, messages::TIME_TO_LIVE, leases, deadline)?;
    let lives = |(lease, answer): (&i64, Result<Vec<u8>, End>)| {
        if *lease == 0 {
            return Ok(Lives { seconds: ENDLESS, whole: ENDLESS, ..Lives::default() });
        }
        let answer = answer.map_err(|end| fault::ended(&end, sent))?;
        Lives::read(&answer).ok_or_else(|| Failure::unknown(fault::foreign(), sent))
    };
    leases.iter().zip(answers).map(lives).collect()
}

/// Asks the same of each lease, of as many at a time as the server takes; tells what it answered.
fn ask_each(
    wire: &mut Wire,
    path: &str,
    leases: &[i64],
    deadline: Deadline,
) -> Result<Vec<Result<Vec<u8>, End>>, Failure> {
    let (mut all, sent) = (Vec::new(), Moment::now());
    for some in leases.chunks(wire.most_streams) {
        let mut streams = Vec::new();
        for lease in some {
            let stream = wire.begin(path);
            wire.write(stream, &messages::of_lease(*lease), true);
            streams.push(stream);
        }
        // It may all be asked again.
        wire.send(deadline).map_err(|(_, error)| Failure::not_done(error))?;
        for stream in streams {
            let answer = wire.receive(stream, deadline);
            all.push(answer.map_err(|error| Failure::unknown(error, sent))?);
            wire.leave(stream);
        }
    }
    Ok(all)
}

fn waiter(key: &Key) -> Waiter {
    let waited = keys::said(&key.value, key.created).map(|said| said.age());
    Waiter { token_prefix: shown(key), waited, client: None }
}

/// As much of its token as everybody may see.
fn shown(key: &Key) -> String {
    keys::said(&key.value, key.created).map_or(String::new(), |said| said.token.shown())
}
