//! Taking a lock, and standing in its queue: one transaction, safe to send twice and to arrive late. What
//! it creates is not there before, and what it changes nobody has written since. A key that comes into
//! being late is under a lease that nobody renews any more.

use std::time::Duration;

use super::dial::transact;
use super::keys::{self, Name, first_fence, is_of, is_ours, said};
use super::leases::Lease;
use super::messages::{Done, Key, Op, Txn};
use super::own_keys::{LATE, OwnKey};
use super::waits::Wait;
use super::wire::Wire;
use super::{EtcdStore, UNTOLD, fault};
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::{Answer, BLOCK, Failure, Outcome, Place, Reply};
use crate::token::Token;

/// A take starts anew so often at most, since a lease had ended or its key was another than known.
const MOST_TRIES: usize = 6;

/// A take that is under way.
pub(super) struct Take<'a> {
    name: &'a Name,
    raw: &'a [u8],
    token: Token,
    ttl: Duration,
    block: u32,
    /// Under which it would stand in the queue.
    ear: Option<i64>,
}

impl EtcdStore {
    pub(super) fn take(
        &self,
        wire: &mut Wire,
        raw: &[u8],
        (token, ttl): (Token, Duration),
        (place, block): (Place, u32),
        deadline: Deadline,
    ) -> Outcome {
        let name = self.name(raw);
        let ticket = match place {
            Place::Join(ticket) => ticket,
            Place::Try => 0,
        };
        for tried in 0..MOST_TRIES {
            // Asked each time: it may have ended.
            let ear = self.listener.ear().filter(|_| place != Place::Try);
            let take = Take { name: &name, raw, token, ttl, block: block.clamp(1, BLOCK), ear };
            let lease = self.leases.take(wire, ttl, deadline)?;
            let known = self.own_keys.get(token).or_else(|| self.left(&take, ticket));
            let own = known.unwrap_or_else(|| self.own_keys.begin(token, &name, tried));
            match self.stand(wire, &take, (own, lease), deadline) {
                Ok(Some(answer)) => return Ok(answer),
                // Something was not as it was known; now it is.
                Ok(None) => {}
                Err(failure) => {
                    let is_lost = failure.sent.is_none() && fault::is_lost_lease(&failure.error);
                    if place != Place::Try && (is_lost || failure.sent.is_some()) {
                        self.listener.end(ear.unwrap_or(0));
                    }
                    if !is_lost {
                        return Err(failure);
                    }
                }
            }
        }
        let moved = "others were faster, or leases ended";
        Err(Failure::not_done(Error::new(ErrorKind::Unavailable, moved)))
    }

    /// Where another token of this client stood, which does not wait any more.
    fn left(&self, take: &Take<'_>, ticket: u64) -> Option<OwnKey> {
        // Without a ticket, it would be one that is not there yet.
        take.ear.filter(|_| ticket != 0)?;
        let (other, own) = self.own_keys.created(&take.name.all, ticket)?;
        // What was told that it has the lock may have used its fences.
        if own.lease.is_some() || own.is_doubtful || !self.listener.rename(other, take.token) {
            return None;
        }
        self.own_keys.remove(other)
    }

    /// Takes the lock if nobody is before it: before its place, or at all where it has none yet. Else it
    /// stands there, or behind all others, if it can be told.
    fn stand(
        &self,
        wire: &mut Wire,
        take: &Take<'_>,
        (own, mut lease): (OwnKey, Lease),
        deadline: Deadline,
    ) -> Result<Option<Answer>, Failure> {
        let (all, key, token) = (&take.name.all, &own.key, take.token);
        let is_new = own.created == 0;
        let mine = said(&own.value, own.created).filter(|who| who.token == token);
        let value = |block| match mine {
            // What it says bounds what is promised.
            Some(who) if who.ttl < take.ttl => {
                keys::value(token, take.ttl, who.block, Some(who.first))
            }
            Some(_) => keys::unmarked(&own.value),
            None => keys::value(token, take.ttl, block, None),
        };
        // Whoever is handed the lock has many fences.
        let (takes, waits) = (value(take.block), value(BLOCK));
        let waits = keys::waiting(&waits, self.listener.span(take.ttl));
        let stays = match take.ear {
            Some(ear) => Op::put(key, &waits, ear),
            None => Op::get(key),
        };
        let stands = Txn::default()
            .if_unchanged(key, own.modified)
            .then(stays)
            .then(Op::last_two(all, own.created))
            .then(Op::first(all))
            .otherwise(Op::get(key));
        let txn = Txn::default().if_none_before(all, own.created);
        let txn = if is_new { txn } else { txn.if_unchanged(key, own.modified) };
        let txn = txn.then(Op::put(key, &takes, lease.id)).otherwise(Op::txn(&stands));
        // What may be under the lease is noted before.
        self.own_keys.set(token, &own.in_doubt(lease));
        let sent = transact(wire, &txn, deadline).inspect_err(|failure| {
            if failure.sent.is_none() {
                self.own_keys.restore(token, &own);
                self.put_back(lease, failure);
            }
        });
        let (mut done, sent) = sent?;
        let revision = done.revision;
        let created = if is_new { revision } else { own.created };
        if done.is_so {
            lease.confirm(done.term);
            let before = own.lease.filter(|_| !own.is_doubtful);
            before.into_iter().for_each(|lease| self.leases.put_back(lease));
            let own = OwnKey { value: takes, created, modified: revision, ..own };
            return self.granted(take, own, lease, sent).map(Some);
        }
        self.leases.put_back(lease);
        let mut inner = done.inner(0);
        if !inner.is_so {
            // One that was taken over says another token's name still; but for a question, it is as it was.
            let is_asked = |key: &Key| {
                let asked = said(&key.value, key.created).and_then(|who| who.asked);
                key.created == own.created && asked == Some(own.modified)
            };
            let is_it = |key: &Key| is_of(key, token) || is_asked(key);
            match inner.part(0).first().filter(is_it) {
                Some(ours) => self.own_keys.set(token, &self.adopted(token, &ours)),
                // Its place is gone: it stands behind all others, under another key if somebody has this.
                None => drop(self.own_keys.remove(token)),
            }
            return Ok(None);
        }
        let own = match take.ear {
            Some(ear) => OwnKey {
                value: waits,
                created,
                modified: revision,
                lease: None,
                ear,
                until: Moment::NEVER,
                ..own
            },
            None => own,
        };
        if !inner.parts.iter().skip(1).flat_map(|part| &part.keys).all(is_ours) {
            // Nobody would ever tell it that it is next.
            let has_left = own.created == 0
                || self.delete(wire, take.name, (token, &own), 0, deadline)?.is_some();
            if has_left {
                self.own_keys.remove(token);
            }
            let foreign = inner.parts.iter().skip(1).flat_map(|part| &part.keys);
            let foreign = foreign.into_iter().find(|key| !is_ours(key));
            let error = keys::foreign(foreign.map_or(&[][..], |key| &key.key));
            return Err(Failure { error, sent: Some(sent).filter(|_| !has_left) });
        }
        Ok(self.waits(take, own, &mut inner, (revision, sent)))
    }

    fn granted(&self, take: &Take<'_>, own: OwnKey, lease: Lease, sent: Moment) -> Outcome {
        self.listener.forget(take.token);
        self.seen.forget(take.name);
        let first = said(&own.value, own.created).map(|said| said.first);
        let first = first.filter(|_| first_fence(own.created).is_some());
        let sent = lease.counts_from(take.ttl, sent);
        let (ends, until) = (sent.plus(take.ttl), lease.lives_until().plus(LATE));
        let own = OwnKey { lease: Some(lease), ear: 0, is_doubtful: false, ends, until, ..own };
        self.own_keys.set(take.token, &own);
        let Some(fence) = first else {
            let large = "the revisions of this etcd are too large for fences";
            return Err(Failure::unknown(Error::new(ErrorKind::Protocol, large), sent));
        };
        Ok(self.answer(Reply::Granted { fence, block: take.block }, sent))
    }

    /// Others are before it, as the parts of a transaction show: itself, who is before it, and the holder.
    /// `None` if it has to ask again.
    fn waits(
        &self,
        take: &Take<'_>,
        own: OwnKey,
        inner: &mut Done,
        (revision, sent): (u64, Moment),
    ) -> Option<Answer> {
        let (part, holder) = (inner.part(1), inner.part(2).first());
        if own.created == 0 {
            self.own_keys.restore(take.token, &own);
            return Some(self.busy(holder.as_ref(), sent));
        }
        // Some have gone since it came, and others have come behind it.
        let others = u32::try_from(part.count.saturating_sub(2)).unwrap_or(u32::MAX);
        let ahead = part.keys.get(1);
        let is_held = ahead.map(|ahead| &ahead.key) == holder.as_ref().map(|holder| &holder.key);
        let rank = if is_held { 0 } else { own.rank.min(others) };
        let OwnKey { key, created, modified, ear, .. } = own.clone();
        let own = OwnKey { is_doubtful: false, rank, ends: Moment::NEVER, ..own };
        self.own_keys.set(take.token, &own);
        if take.ear.is_none() {
            return Some(self.busy(holder.as_ref(), sent));
        }
        let (name, span) = (take.raw.to_vec(), self.listener.span(take.ttl));
        let ahead = Some(ahead?.key.clone());
        let wait = Wait {
            name,
            key,
            created,
            modified,
            span,
            since: sent,
            ahead,
            is_next: is_held,
            watch: 0,
            from: 0,
        };
        let reply = Reply::Busy { free_in: UNTOLD, ticket: created, rank, ours: true };
        let follows = self.listener.follow(ear, take.token, wait, revision);
        follows.then(|| self.answer(reply, sent))
    }

    /// Somebody has the lock, and no place was taken.
    fn busy(&self, holder: Option<&Key>, sent: Moment) -> Answer {
        let said = holder.and_then(|key| said(&key.value, key.created));
        let free_in = said.map_or(UNTOLD, |said| said.ttl);
        let reply = Reply::Busy { free_in, ticket: 0, rank: 0, ours: said.is_some() };
        self.answer(reply, sent)
    }
}
