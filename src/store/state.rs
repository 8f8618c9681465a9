//! What people see of a lock: who has it, who waits.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::Registry;
use crate::clock::Deadline;
use crate::config::spoken;
use crate::said::say;
use crate::token::ClientId;
use crate::who::ClientInfo;

/// So many waiters of a lock are shown.
pub(crate) const MOST_WAITERS: usize = 100;

/// Who has a lock and who waits for it, from [`Lock::inspect`](crate::Lock::inspect).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct LockState {
    /// Who has it; `None` when it is free.
    pub holder: Option<Holder>,
    /// The last fence given out, where the store still knows it.
    pub last_fence: Option<u64>,
    /// Who waits in the store's queue, in its order, the first 100: one for each process, however many
    /// of its threads wait. Who asks again and again stands in no queue. On a quorum, those that wait
    /// at most of its servers, in the order of one of them.
    pub waiters: Vec<Waiter>,
    /// How many more wait than those.
    pub more_waiters: u64,
}

/// The holder of a lock, as everybody may see it. As a text: who that is, and since when.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Holder {
    /// The first 16 digits of the token, of which 12 are its client's: enough to tell holders apart,
    /// too few to release with. Empty where the key holds no token: it is an application's own key,
    /// or another library's lock.
    pub token_prefix: String,
    /// When the lock is free if nobody renews it.
    pub ttl: Duration,
    /// The fence; `None` where another program holds the key without one.
    pub fence: Option<u64>,
    /// For how long the client has had it, by the store's clock (on a quorum beside that of the client
    /// that took it); `None` where that is not known.
    pub held: Option<Duration>,
    /// Who that is; `None` where it has not said so, or what it said may not be read.
    pub client: Option<ClientInfo>,
}

/// A process that waits for a lock, as everybody may see it. As a text: who that is, and since when.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Waiter {
    /// The first 16 digits of the token that it waits with, of which 12 are its client's.
    pub token_prefix: String,
    /// For how long, by the store's clock, as far as that tells.
    pub waited: Option<Duration>,
    /// Who that is; `None` where it has not said so, or what it said may not be read.
    pub client: Option<ClientInfo>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.client.is_none() && self.fence.is_none() {
            return f.write_str("somebody without a fence");
        }
        write_client(f, self.client.as_ref(), &self.token_prefix, self.held)
    }
}

impl fmt::Display for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_client(f, self.client.as_ref(), &self.token_prefix, self.waited)
    }
}

fn write_client(
    f: &mut fmt::Formatter<'_>,
    client: Option<&ClientInfo>,
    token_prefix: &str,
    since: Option<Duration>,
) -> fmt::Result {
    match client {
        Some(client) => write!(f, "{client}")?,
        None => write!(f, "client {}", token_prefix.get(..12).unwrap_or("unknown"))?,
    }
    let Some(since) = since else { return Ok(()) };
    // Nobody wants to know it to the millisecond.
    let since = if since.as_secs() > 0 { Duration::from_secs(since.as_secs()) } else { since };
    write!(f, " since {}", spoken(Duration::from_millis(crate::store::millis(since))))
}

/// Adds who the clients are that hold these locks or wait for them, as far as the store tells.
pub(crate) fn introduce(store: &dyn Registry, states: &mut [LockState], deadline: Deadline) {
    let id = |shown: &str| Some((ClientId::of(shown)?, None));
    let holders = states.iter().filter_map(|state| state.holder.as_ref());
    let waiters = states.iter().flat_map(|state| &state.waiters);
    let shown = holders.map(|one| &one.token_prefix).chain(waiters.map(|one| &one.token_prefix));
    let mut known: BTreeMap<ClientId, Option<ClientInfo>> =
        shown.filter_map(|shown| id(shown)).collect();
    let ids: Vec<_> = known.keys().copied().collect();
    if ids.is_empty() {
        return;
    }
    match store.records(&ids, deadline) {
        Ok(records) => {
            for (id, record) in ids.into_iter().zip(records) {
                let read = |record: Vec<u8>| ClientInfo::read(id.to_string(), &record);
                known.insert(id, record.and_then(read));
            }
        }
        Err(error) => say!(Debug, "records-unread", error = error),
    }
    let client = |shown: &str| known.get(&ClientId::of(shown)?)?.clone();
    for state in states {
        if let Some(holder) = &mut state.holder {
            holder.client = client(&holder.token_prefix);
        }
        for waiter in &mut state.waiters {
            waiter.client = client(&waiter.token_prefix);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_told_as_far_as_it_is_known() {
        let mut holder = Holder { token_prefix: "00112233aabb4455".into(), ..Holder::default() };
        assert_eq!(holder.to_string(), "somebody without a fence");
        holder.fence = Some(7);
        assert_eq!(holder.to_string(), "client 00112233aabb");
        holder.held = Some(Duration::from_micros(12_345_678));
        assert_eq!(holder.to_string(), "client 00112233aabb since 12 s");
        let record = b"host=web-3 pid=4711 language=python program=worker.py label=billing";
        holder.client = ClientInfo::read("00112233aabb".into(), record);
        holder.held = Some(Duration::from_micros(345_678));
        assert_eq!(
            holder.to_string(),
            "web-3 (python worker.py, pid 4711, label billing) since 345 ms"
        );
        let waiter = Waiter { token_prefix: "x".into(), ..Waiter::default() };
        assert_eq!(waiter.to_string(), "client unknown");
    }
}
