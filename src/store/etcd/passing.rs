//! Passing over those who are dead and stand before a waiter: a holder that does not renew, or one that was
//! handed the lock and does not claim it, with all the dead ones that follow.
//!
//! Nobody is passed over who may rely on the lock. A waiter first *asks*: it puts a mark behind what the key
//! says, by which the key is written. From then on its client can rely on it by writing it, and by nothing
//! else: each [renewal](super::turns), and each [look](super::waits) that a waiter counts its claim window
//! from, is followed by a read of the key, and counts only if it is as the client knows it. So what the
//! client relies on began before the question, or it is seen in the key. And it is over for a key that is
//! still as it was when it was asked, once
//!
//! - the ttl, or the claim window, has passed by our own clock since we have seen the question, or
//! - the leader says, after the question, that the lease was not renewed for that long.
//!
//! The first needs no server's clock: an election, at which an etcd begins the lives of all leases anew,
//! does not put it off. The second is known sooner, where there was none. The key is deleted only if nobody
//! has written it meanwhile.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::dial::transact;
use super::keys::{self, Name, Said, said};
use super::leases::lives_of;
use super::messages::{Key, Lives, Op, Txn, most_of};
use super::own_keys::OwnKey;
use super::wire::Wire;
use super::{EtcdStore, UNTOLD};
use crate::clock::{Deadline, Moment};
use crate::store::{Failure, Lane};
use crate::sync::Mutex;

/// So many are looked at, and passed over, at a time.
const MOST: usize = 24;
/// Whoever is handed the lock claims it within this, or gives it.
const CLAIMS: Duration = Duration::from_millis(100);
/// A waiter behind somebody who does not looks again after this.
const AGAIN: Duration = Duration::from_millis(150);

/// What was seen of the first keys of each name.
#[derive(Default)]
pub(super) struct Seen(Mutex<Sights>);

#[derive(Default)]
struct Sights {
    names: HashMap<Vec<u8>, Vec<Sight>>,
    /// So many there were when those were last removed that nobody waits for.
    before: usize,
}

/// A key as its own client has written it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sight {
    created: u64,
    written: u64,
    /// Since when we have seen it so, and under which leader.
    since: Moment,
    term: u64,
    /// Since when we have seen that it was asked.
    asked: Option<Moment>,
}

impl Seen {
    /// These are the first keys of a name, as was answered at `now`.
    fn see(
        &self,
        (name, awaited): (&Name, impl FnOnce() -> HashSet<Vec<u8>>),
        run: &[(Key, Said)],
        term: u64,
        now: Moment,
    ) -> Vec<Sight> {
        let mut sights = self.0.lock();
        let Sights { names, before: left } = &mut *sights;
        // What is known of a name that is waited for still would have to be seen for as long again.
        if names.len() > 64 + 2 * *left {
            let awaited = awaited();
            names.retain(|name, _| awaited.contains(name));
            *left = names.len();
        }
        let before = names.remove(&name.all).unwrap_or_default();
        let sight = |(key, who): &(Key, Said)| {
            let (created, written) = (key.created, who.asked.unwrap_or(key.modified));
            let is_it = |one: &&Sight| (one.created, one.written) == (created, written);
            let known = before.iter().find(is_it).copied();
            let new = Sight { created, written, since: now, term, asked: None };
            let sight = known.unwrap_or(new);
            Sight { asked: sight.asked.or(who.asked.map(|_| now)), ..sight }
        };
        let sights: Vec<_> = run.iter().map(sight).collect();
        names.insert(name.all.clone(), sights.clone());
        sights
    }

    pub(super) fn forget(&self, name: &Name) {
        self.0.lock().names.remove(&name.all);
    }
}

/// For how long its client relies on it at most, once it has written it or renewed its lease.
fn lasts(who: &Said) -> Duration {
    who.waits.unwrap_or(who.ttl)
}

/// The same by a clock of which it is known only that it is a hundredth off, as the client's may be: it
/// counts a hundredth less, and nothing below a millisecond is said.
fn slowly(span: Duration) -> Duration {
    span + span / 50 + Duration::from_millis(5)
}

/// Its lease was not renewed for that long, by the leader's clock. What is left of it is told in whole
/// seconds, and there may be almost one more.
fn is_silent(lives: &Lives, who: &Said) -> bool {
    let unrenewed = u64::try_from(lives.whole - lives.seconds.max(0) - 1).unwrap_or(0);
    lives.whole > 0 && Duration::from_secs(unrenewed) >= lasts(who)
}

impl EtcdStore {
    /// When the lock may be free that this client waits for, with those passed over who are dead.
    pub(super) fn look_ahead(&self, raw: &[u8], deadline: Deadline) -> Result<Duration, Failure> {
        let name = self.name(raw);
        let ours = self.listener.waits_for(raw).and_then(|token| self.own_keys.get(token));
        let free_in = self.on_wire(Lane::Caller, deadline, |wire, deadline| {
            self.first_of(wire, &name, ours.as_ref(), deadline)
        })?;
        if free_in.is_zero() {
            self.seen.forget(&name);
        }
        // Nobody would tell: a take finds out.
        let is_heard = ours.is_some() || self.listener.waits_for(raw).is_none();
        Ok(if is_heard { free_in } else { Duration::ZERO })
    }

    fn first_of(
        &self,
        wire: &mut Wire,
        name: &Name,
        ours: Option<&OwnKey>,
        deadline: Deadline,
    ) -> Result<Duration, Failure> {
        let most = MOST.min(most_of([&*name.all].into_iter()));
        let look = Txn::default().then(Op::first_of(&name.all, most));
        let look = ours.iter().map(|ours| Op::get(&ours.key)).fold(look, Txn::then);
        let (mut done, _) = transact(wire, &look, deadline)?;
        let (now, all, place) = (Moment::now(), done.part(0).keys, done.part(1).first());
        if all.is_empty() {
            return Ok(Duration::ZERO);
        }
        let Some(ours) = ours else { return Ok(UNTOLD) };
        // The lock is ours, or our place is gone: that is for a take to find out.
        let is_here = place.is_some_and(|place| place.created == ours.created);
        if !is_here || all.first().is_some_and(|first| first.key == ours.key) {
            return Ok(Duration::ZERO);
        }
        let before = all.into_iter().take_while(|key| key.key != ours.key);
        let read = |key: Key| said(&key.value, key.created).map(|who| (key, who));
        let mut run: Vec<_> = before.map_while(read).collect();
        let Some((_, first)) = run.first() else { return Ok(UNTOLD) };
        // Behind one that waits still, all that do not are nothing of ours. Behind one that holds the lock,
        // nobody is in the way.
        let waiting = run.iter().take_while(|(_, who)| who.waits.is_some()).count();
        let is_held = first.waits.is_none();
        run.truncate(waiting.max(1));
        let sights = self.seen.see((name, || self.listener.names()), &run, done.term, now);
        let (first, age) = (*first_said(&run), now.since(sights[0].since));
        let is_old = age >= slowly(lasts(&first));
        if is_held && !is_old {
            return Ok(slowly(lasts(&first)) - age);
        }
        if !is_held && age < CLAIMS {
            return Ok(AGAIN);
        }
        let has_passed =
            self.pass_over(wire, (name, run), (sights, is_old), done.term, deadline)?;
        Ok(if is_held && !has_passed { UNTOLD } else { AGAIN })
    }

    /// Passes over the first of a run who are dead. Whether it has asked them, or done so.
    fn pass_over(
        &self,
        wire: &mut Wire,
        (name, mut run): (&Name, Vec<(Key, Said)>),
        (mut sights, is_old): (Vec<Sight>, bool),
        term: u64,
        deadline: Deadline,
    ) -> Result<bool, Failure> {
        let mut silent = silent_of(wire, &run, deadline)?;
        let is_held = first_said(&run).waits.is_none();
        // Who was handed the lock and has done nothing with it for all of its window is not there; nor is,
        // then, who stands behind it and does not answer. A holder may be there for as long as it wants:
        // where an election has begun its lease anew, it is asked.
        let is_suspect = |at: usize| match is_held {
            true => is_old && (silent[at] || sights[at].term != term),
            false => silent[at] || is_old,
        };
        let count = (0..run.len()).take_while(|at| is_suspect(*at)).count();
        run.truncate(count);
        sights.truncate(count);
        if run.is_empty() {
            return Ok(false);
        }
        let is_new = |sight: &Sight| sight.asked.is_none();
        if sights.iter().any(is_new) {
            let new = run.iter().zip(&sights).filter(|(_, sight)| is_new(sight));
            let ask = new.fold(Txn::default(), |txn, ((key, _), _)| {
                let txn = txn.if_unchanged(&key.key, key.modified);
                txn.then(Op::put_in_place(&key.key, &keys::asked(key)))
            });
            let (done, _) = transact(wire, &ask, deadline)?;
            if !done.is_so {
                return Ok(true);
            }
            for ((key, who), sight) in run.iter_mut().zip(&sights).filter(|(_, it)| is_new(it)) {
                (key.modified, who.asked) = (done.revision, Some(sight.written));
            }
            sights = self.seen.see((name, || self.listener.names()), &run, term, Moment::now());
            silent = silent_of(wire, &run, deadline)?;
        }
        // A leader that was none any more would not know what was renewed: none had come by then.
        let any = Txn::default().then(Op::get(&run[0].0.key));
        let is_led = transact(wire, &any, deadline)?.0.term == term;
        let now = Moment::now();
        let is_over = |((_, who), sight): &(&(Key, Said), &Sight), silent: bool| {
            let since_asked = sight.asked.is_some_and(|at| now >= at.plus(slowly(lasts(who))));
            // A grant may count from later than its lease.
            since_asked || is_led && silent && (who.waits.is_some() || is_old)
        };
        let all = run.iter().zip(&sights).zip(&silent);
        let over = all.take_while(|(one, silent)| is_over(one, **silent));
        let over: Vec<_> = over.map(|(((key, _), _), _)| key).collect();
        if !over.is_empty() {
            let pass = over.iter().fold(Txn::default(), |txn, key| {
                txn.if_unchanged(&key.key, key.modified).then(Op::delete(&key.key))
            });
            transact(wire, &pass, deadline)?;
        }
        Ok(true)
    }
}

fn first_said(run: &[(Key, Said)]) -> &Said {
    &run[0].1
}

fn silent_of(
    wire: &mut Wire,
    run: &[(Key, Said)],
    deadline: Deadline,
) -> Result<Vec<bool>, Failure> {
    let leases: Vec<_> = run.iter().map(|(key, _)| key.lease).collect();
    let lives = lives_of(wire, &leases, deadline)?;
    Ok(lives.iter().zip(run).map(|(lives, (_, who))| is_silent(lives, who)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::drift;
    use crate::token::Token;

    fn who(ttl: Duration) -> Said {
        said(&keys::value(Token::random().unwrap(), ttl, 64, None), 7).unwrap()
    }

    proptest::proptest! {
        /// A leader's clock that is a hundredth too fast, and one of ours beside a holder's that is a
        /// hundredth too slow.
        #[test]
        fn c1_nothing_is_over_that_its_client_may_rely_on(
            millis in 1u64..100_000,
            whole in 1i64..200,
            unrenewed in 0u64..200_000,
        ) {
            let span = Duration::from_millis(millis);
            let valid_for = span - drift(span);
            let who = who(span);
            // What the leader counts in that time.
            let counted = unrenewed + unrenewed / 100;
            let left = whole * 1000 - i64::try_from(counted).unwrap();
            let lives = Lives { whole, seconds: left / 1000, ..Lives::default() };
            if is_silent(&lives, &who) {
                proptest::prop_assert!(Duration::from_millis(unrenewed + 1) > valid_for);
            }
            let counted = slowly(span);
            proptest::prop_assert!(counted - counted / 100 > span);
        }
    }

    #[test]
    fn c1_a_key_that_its_client_has_written_was_seen_since_then_only() {
        let (seen, name) = (Seen::default(), Name::new(b"", b"n"));
        let at = |millis: u64| Moment::from_nanos(millis * 1_000_000);
        let see = |modified, asked, millis| {
            let key = Key { created: 5, modified, ..Key::default() };
            let mut who = who(Duration::from_secs(2));
            who.asked = asked;
            let Sight { since, asked, .. } =
                seen.see((&name, HashSet::new), &[(key, who)], 1, at(millis))[0];
            (since, asked)
        };
        assert_eq!(see(6, None, 10), (at(10), None));
        assert_eq!(see(6, None, 20), (at(10), None));
        // A question is no word of its client's, ...
        assert_eq!(see(8, Some(6), 30), (at(10), Some(at(30))));
        assert_eq!(see(8, Some(6), 40), (at(10), Some(at(30))));
        // ... and its answer is.
        assert_eq!(see(9, None, 50), (at(50), None));
        assert_eq!(see(12, Some(9), 60), (at(50), Some(at(60))));
    }

    #[test]
    fn c10_what_was_seen_of_names_that_are_waited_for_is_kept_however_many_they_are() {
        let (seen, at) = (Seen::default(), |millis: u64| Moment::from_nanos(millis * 1_000_000));
        let names: Vec<_> = (0..1500).map(|n: u32| Name::new(b"", &n.to_le_bytes())).collect();
        let awaited = || names.iter().map(|name| name.all.clone()).collect();
        let see = |name: &Name, millis| {
            let (key, who) = (Key { created: 5, ..Key::default() }, who(Duration::from_secs(2)));
            seen.see((name, awaited), &[(key, who)], 1, at(millis))[0].since
        };
        names.iter().for_each(|name| _ = see(name, 10));
        assert!(names.iter().all(|name| see(name, 20) == at(10)));
        for number in 0..10_000u32 {
            see(&Name::new(b"won", &number.to_le_bytes()), 30);
        }
        assert!(names.iter().all(|name| see(name, 40) == at(10)));
        assert!(seen.0.lock().names.len() <= 64 + 2 * names.len() + 1);
        seen.forget(&names[0]);
        assert_eq!(see(&names[0], 50), at(50));
    }
}
