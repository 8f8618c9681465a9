//! What is locked, in the order of the keys; and breaking a grant, with word of who did it beside.

use std::time::Duration;

use super::EtcdStore;
use super::clients::lives_of;
use super::dial::transact;
use super::keys::{self, Name, Said, said};
use super::messages::{Key, Op, Txn, behind};
use super::turns::MOST_TRIES;
use crate::clock::{Deadline, wall_micros};
use crate::error::{Error, ErrorKind};
use crate::store::breaking::{Breach, Breaches, Held, LONGEST_BY, LONGEST_REMEMBERED};
use crate::store::listing::{Bookmark, Listed, PAGE, Page, Wanted};
use crate::store::{Failure, Lane, LockState};
use crate::token::Token;

/// A note outlasts the lease that was broken by this.
pub(super) const REMEMBERED: Duration = Duration::from_secs(60);

impl EtcdStore {
    /// The bookmark has the key at which to go on.
    pub(super) fn list_page(
        &self,
        wanted: &Wanted,
        from: &Bookmark,
        deadline: Deadline,
    ) -> Result<Page, Failure> {
        let (first, end) = Name::range(&[&*self.prefix, &wanted.glob.head()].concat());
        let first = from.name.clone().unwrap_or(first);
        let list = |most| {
            self.on_wire(Lane::Caller, deadline, |wire, deadline| {
                let some = Txn::default().then(Op::between(&first, &end, most));
                let some = transact(wire, &some, deadline)?.0.part(0);
                let mut locks: Vec<(Key, u64)> = some
                    .keys
                    .chunk_by(|one, other| of(one).all == of(other).all)
                    .filter_map(|keys| {
                        let first = keys.iter().min_by_key(|key| key.created)?;
                        Some((first.clone(), keys.len() as u64))
                    })
                    .collect();
                let mut page = Page::default();
                if some.count > some.keys.len() as u64
                    && let Some(last) = locks.last_mut()
                {
                    let all = of(&last.0).all;
                    let mut next = [&all[..], b"\0"].concat();
                    if all.ends_with(b"/") {
                        // More keys of that name may follow.
                        let look = Txn::default().then(Op::first(&all));
                        let mut part = transact(wire, &look, deadline)?.0.part(0);
                        *last = (part.first().unwrap_or_default(), part.count.max(1));
                        next = behind(&all);
                    }
                    page.next = Some(Bookmark { name: Some(next), ..from.clone() });
                }
                locks.retain(|(first, _)| {
                    let name = of(first).plain();
                    let name = name.strip_prefix(&*self.prefix).filter(|name| !name.is_empty());
                    name.is_some_and(|name| wanted.glob.matches(name))
                });
                let leases: Vec<_> = locks.iter().map(|(first, _)| first.lease).collect();
                let lives = lives_of(wire, &leases, deadline)?;
                for ((first, count), lives) in locks.into_iter().zip(lives) {
                    let holder = Some(self.holder(&first, &lives)).filter(|_| lives.seconds > 0);
                    if wanted.has(holder.as_ref()) {
                        let last_fence = holder.as_ref().and_then(|holder| holder.fence);
                        let state = LockState { holder, last_fence, ..LockState::default() };
                        let name = of(&first).plain()[self.prefix.len()..].to_vec();
                        page.listed.push(Listed { name, state, waiting: Some(count - 1) });
                    }
                }
                Ok(page)
            })
        };
        match list(PAGE) {
            // Long names are more than is read of one answer.
            Err(failure) if failure.error.kind() == ErrorKind::Protocol => list(PAGE / 16),
            done => done,
        }
    }

    pub(super) fn whose(&self, name: &[u8], deadline: Deadline) -> Result<Option<Held>, Failure> {
        let Some((all, lives)) = self.looked(&self.name(name), 1, deadline)? else {
            return Ok(None);
        };
        let said = all.keys.first().and_then(|first| said(&first.value, first.created));
        let (Some(said), Some(first)) = (said, all.keys.first()) else {
            let key = all.keys.first().map_or(&[][..], |first| &first.key);
            return Err(Failure::not_done(keys::foreign(key)));
        };
        let (left, last) = (self.holder(first, &lives).ttl, said.first + u64::from(said.block) - 1);
        Ok(Some(Held { name: name.into(), token: said.token, fence: Some(said.first), last, left }))
    }

    /// Deletes the key of this very grant, and in the same change leaves the note.
    pub(super) fn break_held(
        &self,
        held: &Held,
        by: &[u8],
        deadline: Deadline,
    ) -> Result<bool, Failure> {
        let (name, fence) = (self.name(&held.name), held.fence.unwrap_or(0));
        let head = format!("{} {fence} {} ", held.token, wall_micros());
        let note = [head.as_bytes(), &by[..by.len().min(LONGEST_BY)]].concat();
        let path = name.note();
        let lasts = (held.left + REMEMBERED).min(LONGEST_REMEMBERED);
        self.on_wire(Lane::Caller, deadline, |wire, deadline| {
            for _ in 0..MOST_TRIES {
                let is_it = |who: &Said| who.token == held.token && who.first == fence;
                let Some(key) = self.find(wire, &name, (fence, None), is_it, deadline)? else {
                    // It was this that did it; a token may have had another place before.
                    let look = Txn::default().then(Op::get(&path));
                    let looked = transact(wire, &look, deadline);
                    let looked = looked.map_err(|failure| Failure::not_done(failure.error));
                    let last = looked?.0.part(0).first().and_then(|key| breach(&key.value));
                    let is_it = |(of, it): (u64, Breach)| (of, it.token) == (fence, held.token);
                    return Ok(last.is_some_and(is_it));
                };
                let lease = self.leases.take(wire, lasts, deadline)?;
                let broken = Txn::default()
                    .if_unchanged(&key.key, key.modified)
                    .then(Op::delete(&key.key))
                    .then(Op::put(&path, &note, lease.id));
                if transact(wire, &broken, deadline)?.0.is_so {
                    return Ok(true);
                }
                // The next break is faster by as much.
                self.leases.put_back(lease);
            }
            let moved = "the holder was faster each time";
            Err(Failure::not_done(Error::new(ErrorKind::Unavailable, moved)))
        })
    }

    pub(super) fn breaches_of(&self, lane: Lane, of: &[&[u8]], deadline: Deadline) -> Breaches {
        let breach = |note: Option<Vec<u8>>| Ok(note.and_then(|note| Some(breach(&note)?.1)));
        match self.read(lane, of.iter().map(|name| self.name(name).note()), deadline) {
            Ok(notes) => notes.into_iter().map(breach).collect(),
            Err(failure) => vec![Err(failure.error)],
        }
    }
}

fn of(key: &Key) -> Name {
    Name::of_key(&key.key)
}

/// A note: a token and the first fence of its grant, microseconds of the clock of whoever broke the lock,
/// and who that was.
fn breach(note: &[u8]) -> Option<(u64, Breach)> {
    let mut words = note.splitn(4, |byte| *byte == b' ');
    let mut word = || std::str::from_utf8(words.next()?).ok();
    let (token, fence, at): (Token, u64, u64) =
        (word()?.parse().ok()?, word()?.parse().ok()?, word()?.parse().ok()?);
    Some((fence, Breach::new(token, words.next()?, at)))
}
