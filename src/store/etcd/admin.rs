//! What operators see, in the order of the keys; and breaking a grant, with word of who did it beside.

use std::time::Duration;

use super::dial::transact;
use super::keys::{self, Name, Said, said};
use super::leases::lives_of;
use super::messages::{Key, Lives, Op, Part, Txn, behind, most_of};
use super::turns::MOST_TRIES;
use super::{EtcdStore, UNTOLD};
use crate::clock::{Deadline, Moment, wall_micros};
use crate::error::{Error, ErrorKind};
#[cfg(feature = "examine")]
use crate::examination::{Examination, Subject};
use crate::store::breaking::{Breach, Breaches, LONGEST_BY, LONGEST_REMEMBERED, StoredGrant};
use crate::store::listing::{Bookmark, PAGE, Page, Wanted};
use crate::store::{Admin, Failure, Lane, LockState, MOST_WAITERS, Seen, Waiter};
use crate::token::Token;

/// A note outlasts the lease that was broken by this.
pub(super) const REMEMBERED: Duration = Duration::from_secs(60);

impl Admin for EtcdStore {
    fn inspect(&self, name: &[u8], deadline: Deadline) -> Result<LockState, Error> {
        let looked = self.looked(&self.name(name), MOST_WAITERS + 1, deadline);
        let looked = looked.map_err(|failure| failure.error)?;
        let Some((all, lives)) = looked else { return Ok(LockState::default()) };
        let Some((first, others)) = all.keys.split_first() else {
            return Ok(LockState::default());
        };
        // The key is there, so the lock is held, whatever is left of its lease.
        let seen = Seen { is_held: true, ..self.seen(first, &lives) };
        let waiters = others.iter().map(waiter).collect();
        let more_waiters = all.count.saturating_sub(1 + others.len() as u64);
        Ok(LockState { waiters, more_waiters, ..seen.state() })
    }

    fn list(&self, wanted: &Wanted, from: &Bookmark, deadline: Deadline) -> Result<Page, Error> {
        self.list_locks(wanted, from, deadline).map_err(|failure| failure.error)
    }

    fn held(&self, name: &[u8], deadline: Deadline) -> Result<Option<StoredGrant>, Error> {
        let looked = self.looked(&self.name(name), 1, deadline);
        let Some((all, lives)) = looked.map_err(|failure| failure.error)? else {
            return Ok(None);
        };
        let first = all.keys.first();
        let Some(first) = first.filter(|first| said(&first.value, first.created).is_some()) else {
            return Err(keys::foreign(first.map_or(&[][..], |first| &first.key)));
        };
        Seen { is_held: true, ..self.seen(first, &lives) }.held(name)
    }

    /// Deletes the key of this very grant, and in the same change leaves the note.
    fn break_grant(
        &self,
        held: &StoredGrant,
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

    fn breaches(&self, lane: Lane, of: &[&[u8]], deadline: Deadline) -> Breaches {
        let breach = |note: Option<Vec<u8>>| Ok(note.and_then(|note| Some(breach(&note)?.1)));
        match self.read(lane, of.iter().map(|name| self.name(name).note()), deadline) {
            Ok(notes) => notes.into_iter().map(breach).collect(),
            Err(failure) => vec![Err(failure.error)],
        }
    }

    #[cfg(feature = "examine")]
    fn examine(&self, subject: Subject<'_>, found: &mut Examination) -> Result<bool, Error> {
        self.look_around(subject, found)
    }
}

impl EtcdStore {
    /// The bookmark has the key at which to go on.
    fn list_locks(
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
                let mut next = None;
                if some.count > some.keys.len() as u64
                    && let Some(last) = locks.last_mut()
                {
                    let all = of(&last.0).all;
                    let mut begin = [&all[..], b"\0"].concat();
                    if all.ends_with(b"/") {
                        // More keys of that name may follow.
                        let look = Txn::default().then(Op::first(&all));
                        let mut part = transact(wire, &look, deadline)?.0.part(0);
                        *last = (part.first().unwrap_or_default(), part.count.max(1));
                        begin = behind(&all);
                    }
                    next = Some(Bookmark { name: Some(begin), ..from.clone() });
                }
                locks.retain(|(first, _)| {
                    let name = of(first).plain();
                    let name = name.strip_prefix(&*self.prefix).filter(|name| !name.is_empty());
                    name.is_some_and(|name| wanted.glob.matches(name))
                });
                let leases: Vec<_> = locks.iter().map(|(first, _)| first.lease).collect();
                let lives = lives_of(wire, &leases, deadline)?;
                let rows = locks.into_iter().zip(lives).map(|((first, count), lives)| {
                    let waiting = Some(count - 1);
                    Ok((of(&first).plain(), Seen { waiting, ..self.seen(&first, &lives) }))
                });
                let page = Page::fill(rows, wanted, &self.prefix)?;
                Ok(Page { next, ..page })
            })
        };
        match list(PAGE) {
            // Long names are more than is read of one answer.
            Err(failure) if failure.error.kind() == ErrorKind::Protocol => list(PAGE / 16),
            done => done,
        }
    }

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

    /// What is seen of the first key of a name.
    fn seen(&self, first: &Key, lives: &Lives) -> Seen {
        let said = keys::said(&first.value, first.created);
        let seconds = |count| Duration::from_secs(u64::try_from(count).unwrap_or(0));
        // The lease has more time than was asked for.
        let asked = said.map_or(UNTOLD, |said| said.ttl).min(seconds(lives.whole));
        let left = seconds(lives.seconds).saturating_sub(seconds(lives.whole) - asked);
        let ours = said.and_then(|said| self.own_keys.get(said.token));
        let ends = ours.map_or(Moment::NEVER, |held| held.ends);
        Seen {
            is_held: lives.seconds > 0,
            token: said.map(|said| said.token),
            left: if ends == Moment::NEVER { left } else { ends.since(Moment::now()) },
            first: said.map(|said| said.first),
            last: said.map(|said| (said.first + u64::from(said.block)).saturating_sub(1)),
            age: said.map(|said| said.age()),
            waiting: None,
        }
    }
}

fn waiter(key: &Key) -> Waiter {
    let said = keys::said(&key.value, key.created);
    let token_prefix = said.map_or_else(String::new, |said| said.token.shown());
    Waiter { token_prefix, waited: said.map(|said| said.age()), client: None }
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
