//! Looking: who has a lock, who waits, and who the clients are. What a client says of itself stands in a
//! node below the root that ends with its session.

use std::time::Duration;

use super::jute::{ANY, Ask, Kind, Op, Reply as Said, code};
use super::names::{self, LASTING};
use super::step::{Held, Step, TRIES};
use super::{ZookeeperStore, hash};
use crate::clock::{Deadline, Moment};
use crate::store::net::stream::LEAST;
use crate::store::{Failure, Holder, Look, MOST_WAITERS, Record, Waiter, millis};
use crate::token::{ClientId, Token};

impl ZookeeperStore {
    fn record(&self, client: ClientId) -> String {
        format!("{}/c-{client}", self.session.dialer.root)
    }

    /// Its folder, and the node.
    fn lasting_record(&self, client: ClientId) -> (String, String) {
        let folder = names::folder((client.number() % u64::from(names::FOLDERS)) as u8);
        let folder = format!("{}/{folder}", self.session.dialer.root);
        let path = format!("{folder}/{client}{LASTING}");
        (folder, path)
    }

    pub(super) fn keep_record(
        &self,
        record: Record<'_>,
        deadline: Deadline,
    ) -> Result<(), Failure> {
        let mut step = self.step(deadline, deadline);
        if !record.outlives {
            let (path, data) = (self.record(record.client), record.text.as_bytes());
            return step.keep(&path, data, Kind::Ephemeral, None);
        }
        let (folder, path) = self.lasting_record(record.client);
        let data = format!("{} {}", millis(record.ttl), record.text);
        step.keep(&path, data.as_bytes(), Kind::Lasting, Some(&folder))
    }

    pub(super) fn read_records(
        &self,
        clients: &[ClientId],
        deadline: Deadline,
    ) -> Result<Vec<Option<Vec<u8>>>, Failure> {
        // One that lasts tells more.
        let both = |client: &ClientId| [self.lasting_record(*client).1, self.record(*client)];
        let paths: Vec<_> = clients.iter().flat_map(both).collect();
        let asks: Vec<_> = paths.iter().map(|path| Ask::Get(path)).collect();
        let (_, replies) = self.step(deadline, deadline).call(&asks)?;
        let read = |said: &Said| {
            let data = said.data().ok().filter(|_| said.code == 0);
            data.map(|(data, _)| data.to_vec())
        };
        let record = |said: &[Said]| {
            let lasting = said.first().and_then(read);
            let lasting = lasting.and_then(|data| Some(names::read_lasting(&data)?.1.to_vec()));
            lasting.or_else(|| said.last().and_then(read))
        };
        Ok(replies.chunks(2).map(record).collect())
    }
}

impl Step<'_> {
    /// Has a node say this, and makes it where it is missing, and its folder.
    fn keep(
        &mut self,
        path: &str,
        data: &[u8],
        kind: Kind,
        folder: Option<&str>,
    ) -> Result<(), Failure> {
        let set = Op::Set { path, data, version: ANY };
        let folder = folder.map(|path| Op::Create { path, data: b"", kind: Kind::Lasting });
        let ops = [Some(set), folder, Some(Op::Create { path, data, kind })];
        for (op, does_it) in ops.into_iter().zip([true, false, true]) {
            let Some(op) = op else { continue };
            let (_, replies) = self.call(&[Ask::One(op)])?;
            if self.expect(replies.first(), &[code::EXISTS, code::NO_NODE])? && does_it {
                break;
            }
        }
        Ok(())
    }

    /// For a waiter that looks now and then: what this server knows will do.
    pub(super) fn free_in(&mut self, name: &[u8]) -> Result<Duration, Failure> {
        let node = self.store.node(name);
        // All that waits is listed only where the holder is another one.
        let last = self.store.crowded.lock().get(&hash(name)).copied().flatten();
        let place = self.store.place_in(name);
        if let Some(token) = last {
            let own = names::holder(&node.path, token);
            let there = place.iter().map(|path| Ask::Exists { path, watch: false });
            let asks: Vec<_> = [Ask::Get(&own)].into_iter().chain(there).collect();
            let (_, replies) = self.call(&asks)?;
            if replies.get(1).is_some_and(|said| said.code == code::NO_NODE) {
                // Others have passed over it, or it has become the lock.
                return Ok(Duration::ZERO);
            }
            if let Some(held) = self.read_held(replies.first())? {
                return self.free_after(name, token, &held);
            }
        }
        let holding = self.holding(&node.path, &[Ask::Children(&node.path)])?;
        let Some((inside, token, held)) = holding else { return Ok(Duration::ZERO) };
        if let Some(last) = self.store.crowded.lock().get_mut(&hash(name)) {
            *last = Some(token);
        }
        let is_there =
            |place: &String| inside.waiters.iter().any(|it| it.path(&node.path) == *place);
        if !place.as_ref().is_none_or(is_there) {
            return Ok(Duration::ZERO);
        }
        self.free_after(name, token, &held)
    }

    fn free_after(&mut self, name: &[u8], holder: Token, held: &Held) -> Result<Duration, Failure> {
        let left = self.left_seen((name, holder), held, Duration::ZERO)?;
        Ok(left.unwrap_or(Duration::from_millis(held.ttl)))
    }

    /// A holder, if its time is not over.
    pub(super) fn shown(&mut self, token: Token, held: &Held) -> Result<Option<Holder>, Failure> {
        let is_over = self.left(held)?.is_zero();
        let (clock, now, ttl) =
            (self.store.clock.lock(), Moment::now(), Duration::from_millis(held.ttl));
        Ok((!is_over).then(|| Holder {
            token_prefix: token.shown(),
            ttl: clock.seems_left(&held.stat, ttl, now).max(LEAST),
            fence: Some(held.fence),
            held: clock.age(&held.stat, now),
            client: None,
        }))
    }

    pub(super) fn look(&mut self, name: &[u8]) -> Result<Look, Failure> {
        let node = self.store.node(name);
        for _ in 0..TRIES {
            // What other servers have done by now is known to this one as well.
            let (_, replies) = self.call(&[Ask::Sync(&node.path), Ask::Children(&node.path)])?;
            let Some((inside, _)) = self.inside(replies.last())? else { break };
            let Some(token) = inside.holder else { break };
            let Some(held) = self.held(&names::holder(&node.path, token))? else { continue };
            let holder = self.shown(token, &held)?;
            let shown = &inside.waiters[..inside.waiters.len().min(MOST_WAITERS)];
            let paths: Vec<_> = shown.iter().map(|queued| queued.path(&node.path)).collect();
            let ask = |path| Ask::Exists { path, watch: false };
            let asks: Vec<_> = paths.iter().map(|path| ask(path)).collect();
            let replies = if asks.is_empty() { Vec::new() } else { self.call(&asks)?.1 };
            let (clock, now) = (self.store.clock.lock(), Moment::now());
            let waiters = shown.iter().zip(&replies).map(|(queued, said)| Waiter {
                token_prefix: queued.token.shown(),
                waited: said.stat().ok().and_then(|stat| clock.age(&stat, now)),
                client: None,
            });
            return Ok(Look {
                holder,
                last_fence: Some(held.fence),
                waiters: waiters.collect(),
                more_waiters: inside.waiters.len().saturating_sub(MOST_WAITERS) as u64,
            });
        }
        Ok(Look::default())
    }
}
