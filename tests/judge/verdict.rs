//! What is wrong with what the leases said.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::time::Duration;

use super::NAMES;
use super::journal::{Cell, Entry, State, read};
use kit::history::judge;
use kit::{Hold, Wrong};

/// The process to which nothing happens: while it waits, the lock must not be left free.
pub const STEADY: &str = "steady";

/// How many mistakes are printed.
const FIRST: usize = 3;

/// From one moment until another one.
pub type Span = (Duration, Duration);

/// When each lock was free.
pub type Free = [Vec<Span>; NAMES.len()];

#[derive(Default)]
pub struct Verdict {
    pub leases: usize,
    pub handed_on: usize,
    pub left_taken: usize,
    /// Held by a process that was killed.
    pub orphaned: usize,
    /// Two leases of one name, and what is wrong with the two.
    pub wrong: Vec<Wrong>,
    /// Leases of one fence of which the first was not handed on before the second was valid.
    pub shared: Vec<(Entry, Entry)>,
    /// Writes of leases that were valid before and after them, and that came too late.
    pub refused: Vec<Entry>,
    /// All entries of the first mistakes.
    story: Vec<(String, Entry)>,
    /// For how long, at most, the steady process waited while nobody had the lock, and until when.
    pub idle: (Duration, Duration),
}

impl Verdict {
    /// `over` is when the last process ended; `free`, where the keys were watched, is when there
    /// were none; `away` is when the store could not be reached.
    pub fn of(dir: &Path, over: Duration, free: Option<&Free>, away: &[Span]) -> Verdict {
        let mut verdict = Verdict::default();
        let entries = read(dir);
        for name in 0..NAMES.len() {
            let of_name = entries.iter().filter(|(_, entry)| entry.name == name);
            let holds = verdict.judge_leases(of_name.clone().map(|(_, entry)| *entry));
            verdict.judge_writes(of_name.clone().map(|(_, entry)| entry), dir, name);
            let waits = of_name
                .filter(|(owner, _)| owner.starts_with(STEADY))
                .map(|(_, entry)| (entry.asked, entry.answered))
                .map(|(asked, end)| (asked, if end.is_zero() { over } else { end }));
            let mut idle = gaps(&holds, over);
            idle.retain(|gap| within(*gap, away).is_zero());
            if let Some(free) = free {
                let parts = idle.iter().flat_map(|gap| common(*gap, &free[name]));
                idle = parts.collect();
            }
            let waits = union(waits.collect());
            let idle = idle.iter().map(|gap| (within(*gap, &waits), gap.1)).max();
            verdict.idle = verdict.idle.max(idle.unwrap_or_default());
        }
        // Overlaps come last: where data is lost, they are no mistakes.
        verdict.wrong.sort_by_key(is_overlap);
        let involved: Vec<_> = verdict.wrong.iter().take(FIRST).flat_map(fences).collect();
        verdict.story = entries;
        verdict.story.retain(|(_, entry)| involved.contains(&entry.fence));
        verdict.story.sort_by_key(|(_, entry)| entry.asked);
        verdict
    }

    pub fn judge_leases(&mut self, entries: impl Iterator<Item = Entry>) -> Vec<Hold> {
        let mut grants = BTreeMap::<_, Vec<Entry>>::new();
        for entry in entries.filter(|entry| entry.fence > 0) {
            self.leases += usize::from(!entry.from.is_zero());
            match entry.state {
                State::HandedOn => self.handed_on += 1,
                State::LeftTaken => self.left_taken += 1,
                State::Held => self.orphaned += 1,
                _ => {}
            }
            grants.entry(entry.fence).or_default().push(entry);
        }
        let mut holds = Vec::new();
        for mut parts in grants.into_values() {
            parts.sort_by_key(|part| part.asked);
            let is_shared = |pair: &&[Entry]| {
                let [one, two] = [pair[0], pair[1]];
                one.state != State::HandedOn || !two.from.is_zero() && one.until > two.from
            };
            let shared = parts.windows(2).filter(is_shared).map(|pair| (pair[0], pair[1]));
            self.shared.extend(shared);
            let valid = parts.iter().filter(|part| !part.from.is_zero());
            let from = valid.clone().map(|part| part.from).min();
            let Some(from) = from else { continue };
            let last = parts.len() - 1;
            let end = |(at, part): (usize, &Entry)| match part.state {
                State::Held | State::LeftTaken => part.word,
                State::HandedOn if at == last => part.word,
                _ => part.until,
            };
            let until = parts.iter().enumerate().map(end).max().unwrap_or(from);
            holds.push(Hold { asked: parts[0].asked, from, until, fence: parts[0].fence });
        }
        self.wrong.extend(judge(&holds));
        holds
    }

    fn judge_writes<'a>(
        &mut self,
        entries: impl Iterator<Item = &'a Entry> + Clone,
        dir: &Path,
        name: usize,
    ) {
        for (fence, moment) in Cell::refused(dir, name) {
            // It was valid when it was asked again after the write.
            let is_valid = |entry: &&Entry| {
                entry.fence == fence && entry.from <= moment && moment < entry.until
            };
            self.refused.extend(entries.clone().find(is_valid));
        }
    }

    pub fn overlaps(&self) -> usize {
        self.wrong.iter().filter(|wrong| is_overlap(wrong)).count() + self.shared.len()
    }

    #[track_caller]
    pub fn assert_exclusion(&self) {
        assert!(self.wrong.is_empty() && self.shared.is_empty() && self.refused.is_empty());
    }

    /// Where two may overlap, a lease that was granted first may be used second: that is no mistake
    /// of the fences.
    pub fn out_of_order(&self) -> usize {
        let has_excuse = |wrong: &&Wrong| matches!(wrong, Wrong::Overlap(..) | Wrong::Falling(..));
        self.wrong.iter().filter(|wrong| !has_excuse(wrong)).count()
    }
}

fn is_overlap(wrong: &Wrong) -> bool {
    matches!(wrong, Wrong::Overlap(..))
}

fn fences(wrong: &Wrong) -> [u64; 2] {
    match wrong {
        Wrong::Overlap(one, two)
        | Wrong::Twice(one, two)
        | Wrong::OutOfOrder(one, two)
        | Wrong::Falling(one, two) => [one.fence, two.fence],
    }
}

/// These spans in their order, those that touch as one.
pub fn union(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort();
    let mut union: Vec<Span> = Vec::new();
    for (from, until) in spans {
        match union.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(until),
            _ => union.push((from, until)),
        }
    }
    union
}

/// What a span has in common with each of these.
fn common(span: Span, others: &[Span]) -> impl Iterator<Item = Span> {
    let common = move |other: &Span| (other.0.max(span.0), other.1.min(span.1));
    others.iter().map(common).filter(|(from, until)| from < until)
}

/// How much of a span is in some that are apart.
pub fn within(span: Span, others: &[Span]) -> Duration {
    common(span, others).map(|(from, until)| until - from).sum()
}

/// When nobody had the lock, after the first one that had it.
pub fn gaps(holds: &[Hold], over: Duration) -> Vec<Span> {
    let held = union(holds.iter().map(|hold| (hold.from, hold.until)).collect());
    let ends = held.iter().map(|span| span.0).skip(1).chain([over]);
    held.iter().map(|span| span.1).zip(ends).collect()
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Verdict { leases, handed_on, left_taken, orphaned, idle, .. } = self;
        writeln!(
            f,
            "{leases} leases: {handed_on} handed on, {left_taken} left taken, {orphaned} of killed \
             processes\n{} overlaps, {} fences out of order, {} writes refused\n\
             free for {:?} while somebody waited, until {:?}",
            self.overlaps(),
            self.out_of_order(),
            self.refused.len(),
            idle.0,
            idle.1,
        )?;
        for (owner, entry) in &self.story {
            writeln!(f, "{owner}: {entry:?}")?;
        }
        for wrong in self.wrong.iter().take(FIRST) {
            writeln!(f, "{wrong:?}")?;
        }
        for (one, two) in self.shared.iter().take(FIRST) {
            writeln!(f, "valid in both: {one:?} {two:?}")?;
        }
        for entry in self.refused.iter().take(FIRST) {
            writeln!(f, "refused: {entry:?}")?;
        }
        Ok(())
    }
}
