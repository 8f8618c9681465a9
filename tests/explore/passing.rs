//! All that may happen between one who is handed the lock and one who would pass over it, in small steps of
//! time: each request may take any time, the leader may change, and one that is none any more may answer.
//! A mistake on either side has to be found.

use std::collections::HashSet;

/// For how many steps a key may be relied on, once its lease was renewed. (Clocks agree here: the margins are
/// the other tests' subject.)
const SPAN: u8 = 2;
/// So many steps a run has.
const MOST: u8 = 5;

/// What one of the two does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mistake {
    None,
    /// It passes over a key whose token it has not asked.
    AsksNobody,
    /// It asks the leader about the lease before it asks the token.
    AsksLate,
    /// It believes one who may not be the leader any more.
    BelievesAnyLeader,
    /// It takes what the leader says for what its own clock shows.
    CountsFromLook,
    /// The other counts its window from when it heard of it.
    CountsFromHearing,
    /// It renews its lease and does not look at its key.
    LooksAtNothing,
    /// It looks at its key and renews its lease after that.
    RenewsAfterLook,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct World {
    now: u8,
    term: u8,
    /// When the lease was last renewed, as the leader of each term knows.
    renewed: [u8; 2],
    key: Key,
    owner: Owner,
    passer: Passer,
    /// Since when another may have the lock.
    passed: Option<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct Key {
    /// Counts who has written it.
    written: u8,
    is_asked: bool,
    /// Whoever stood before it is gone.
    is_first: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct Owner {
    knows: u8,
    /// From when its window counts.
    since: u8,
    /// A renewal that is under way, sent then; and one that the leader of a term has made.
    asks: Option<u8>,
    renewed: Option<(u8, u8)>,
    /// It relies on the lock until then.
    until: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct Passer {
    /// How it saw the key, in which term, and since when it has seen that it was asked.
    sees: Option<(u8, u8)>,
    asked: Option<u8>,
    /// The lease was not renewed for a span, said a leader; and he was the leader.
    is_silent: bool,
    is_sure: bool,
}

impl World {
    fn next(self, mistake: Mistake) -> Vec<World> {
        let mut all = Vec::new();
        if self.now < MOST {
            all.push(World { now: self.now + 1, ..self });
        }
        if self.term == 0 {
            // The new leader counts each lease anew.
            let renewed = [self.renewed[0], self.now];
            all.push(World { term: 1, renewed, ..self });
        }
        if !self.key.is_first {
            all.push(World { key: Key { is_first: true, ..self.key }, ..self });
        }
        all.extend(self.owner_steps(mistake));
        if self.passed.is_none() {
            all.extend(self.passer_steps(mistake));
        }
        all
    }

    fn owner_steps(self, mistake: Mistake) -> Vec<World> {
        let (mut all, owner, now) = (Vec::new(), self.owner, self.now);
        match (owner.asks, owner.renewed) {
            (None, None) => {
                let owner = Owner { asks: Some(now), ..owner };
                all.push(World { owner, ..self });
            }
            (Some(sent), _) => {
                for term in 0..=self.term {
                    let mut renewed = self.renewed;
                    renewed[usize::from(term)] = now;
                    let owner = Owner { asks: None, renewed: Some((sent, term)), ..owner };
                    all.push(World { owner, renewed, ..self });
                }
            }
            (None, Some((sent, term))) => {
                let is_same = self.passed.is_none() && self.key.written == owner.knows;
                let counts = term == self.term && (is_same || mistake == Mistake::LooksAtNothing);
                let from = if mistake == Mistake::RenewsAfterLook { now } else { sent };
                let since = if counts { owner.since.max(from) } else { owner.since };
                let owner = Owner { since, renewed: None, ..owner };
                all.push(World { owner, ..self });
            }
        }
        // It answers: its key is written, and what it counts from is no later than its lease's renewal.
        if self.key.is_asked && self.passed.is_none() {
            let key = Key { written: self.key.written + 1, is_asked: false, ..self.key };
            all.push(World { key, owner: Owner { knows: key.written, ..owner }, ..self });
        }
        // It hears that it is first, at any time later.
        if self.key.is_first && owner.until == 0 {
            let since = if mistake == Mistake::CountsFromHearing { now } else { owner.since };
            all.push(World { owner: Owner { until: since + SPAN, ..owner }, ..self });
        }
        all
    }

    fn passer_steps(self, mistake: Mistake) -> Vec<World> {
        let (mut all, passer, now) = (Vec::new(), self.passer, self.now);
        if !self.key.is_first {
            return all;
        }
        let looked = Passer {
            sees: Some((self.key.written, self.term)),
            asked: self.key.is_asked.then_some(now),
            is_silent: passer.is_silent && mistake == Mistake::AsksLate,
            is_sure: passer.is_sure && mistake == Mistake::AsksLate,
        };
        let is_news = passer.sees.is_none_or(|(written, term)| {
            written != self.key.written || (term != self.term && passer.asked.is_none())
        });
        if is_news {
            all.push(World { passer: looked, ..self });
        }
        let Some((written, term)) = passer.sees else { return all };
        if passer.asked.is_none() && written == self.key.written && written < 2 {
            let key = Key { written: written + 1, is_asked: true, ..self.key };
            let passer = Passer { sees: Some((key.written, term)), asked: Some(now), ..passer };
            all.push(World { key, passer, ..self });
        }
        let may_ask_leader =
            passer.asked.is_some() || matches!(mistake, Mistake::AsksNobody | Mistake::AsksLate);
        if may_ask_leader && !passer.is_silent {
            // Who has answered in a term asks no leader of an earlier one.
            for leader in term..=self.term {
                let unrenewed = now.saturating_sub(self.renewed[usize::from(leader)]);
                if unrenewed >= SPAN {
                    let is_sure = mistake == Mistake::BelievesAnyLeader;
                    let passer = Passer { is_silent: true, is_sure, ..passer };
                    all.push(World { passer, ..self });
                }
            }
        }
        if passer.is_silent && !passer.is_sure && term == self.term {
            all.push(World { passer: Passer { is_sure: true, ..passer }, ..self });
        }
        let counted = match mistake {
            Mistake::CountsFromLook => passer.asked.is_some_and(|at| now > at),
            _ => passer.asked.is_some_and(|at| now >= at + SPAN),
        };
        let is_asked = passer.asked.is_some() || mistake == Mistake::AsksNobody;
        let is_over = counted || is_asked && passer.is_silent && passer.is_sure;
        if is_over && written == self.key.written {
            all.push(World { passed: Some(now), ..self });
        }
        all
    }

    /// Two have the lock.
    fn is_broken(&self) -> bool {
        self.passed.is_some() && self.now < self.owner.until
    }
}

/// Whether any way of things leads to two holders, and whether any leads to somebody being passed over.
fn explore(mistake: Mistake) -> (bool, bool, usize) {
    let (mut known, mut left) = (HashSet::new(), vec![World::default()]);
    let (mut is_broken, mut has_passed) = (false, false);
    while let Some(world) = left.pop() {
        if !known.insert(world) {
            continue;
        }
        is_broken |= world.is_broken();
        has_passed |= world.passed.is_some();
        if is_broken && mistake != Mistake::None {
            break;
        }
        left.extend(world.next(mistake));
    }
    (is_broken, has_passed, known.len())
}

#[test]
fn c1_nobody_is_passed_over_who_relies_on_the_lock_whatever_takes_how_long() {
    let (is_broken, has_passed, count) = explore(Mistake::None);
    assert!(!is_broken && has_passed && count > 10_000, "{count} states");
}

#[test]
fn caught_one_who_is_passed_over_and_may_rely_on_the_lock() {
    for mistake in [
        Mistake::AsksNobody,
        Mistake::AsksLate,
        Mistake::BelievesAnyLeader,
        Mistake::CountsFromLook,
        Mistake::CountsFromHearing,
        Mistake::LooksAtNothing,
        Mistake::RenewsAfterLook,
    ] {
        let (is_broken, ..) = explore(mistake);
        assert!(is_broken, "number {} is not noticed", mistake as u8);
    }
}
