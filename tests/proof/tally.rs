//! What an attack was like, in numbers, and what is wrong.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use kit::history::{judge, now};
use kit::{Hold, Wrong};

use super::party::UNWORDED;
use super::trouble::Kind;
use super::verdict::{Span, Verdict, union, within};
use super::{NAMES, Scene};

/// Written by all clients.
#[derive(Default)]
pub(super) struct Tally(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    acquired: BTreeMap<String, u64>,
    /// What came of attempts that got no lock, by language and answer.
    refused: BTreeMap<(String, String), u64>,
    surprises: Vec<String>,
    /// By name: when its lock was somebody's, for all that its clients know.
    taken: [Vec<Span>; NAMES.len()],
    /// By name: when the steady client waited.
    waited: [Vec<Span>; NAMES.len()],
    /// What the steady client waits for, and since when.
    waits: Option<(usize, Duration)>,
    /// By name: when anybody acquired it last.
    last: [Duration; NAMES.len()],
}

impl Tally {
    pub(super) fn acquired(&self, language: &str, name: usize) {
        let mut counts = self.0.lock().unwrap();
        counts.last[name] = now();
        *counts.acquired.entry(language.to_owned()).or_default() += 1;
    }

    pub(super) fn waits(&self, name: usize) {
        self.0.lock().unwrap().waits = Some((name, now()));
    }

    /// Whether the steady client waits for a lock that nobody has acquired for so long.
    pub(super) fn is_stuck(&self, most: Duration) -> bool {
        let counts = self.0.lock().unwrap();
        counts.waits.is_some_and(|(name, since)| now() > since.max(counts.last[name]) + most)
    }

    pub(super) fn refused(&self, language: &str, answer: &str) {
        let key = (language.to_owned(), answer.to_owned());
        *self.0.lock().unwrap().refused.entry(key).or_default() += 1;
    }

    /// Something that no fault explains.
    pub(super) fn surprise(&self, language: &str, asked: &str, answer: &str) {
        self.0.lock().unwrap().surprises.push(format!("{language}: {asked}: {answer}"));
    }

    pub(super) fn taken(&self, name: usize, span: Span) {
        self.0.lock().unwrap().taken[name].push(span);
    }

    pub(super) fn waited(&self, name: usize, span: Span) {
        let mut counts = self.0.lock().unwrap();
        counts.waits = None;
        counts.waited[name].push(span);
    }
}

impl Counts {
    /// For how long, at most, the steady client waited for a lock that nobody had, while the store was
    /// there.
    fn longest_idle(&self, away: &[Span]) -> Duration {
        let idle = |name: usize| {
            let taken = union(self.taken[name].clone());
            let gaps = taken.windows(2).map(|pair| (pair[0].1, pair[1].0));
            let waited = union(self.waited[name].clone());
            gaps.filter(|gap| within(*gap, away).is_zero())
                .map(|gap| within(gap, &waited))
                .max()
                .unwrap_or_default()
        };
        (0..NAMES.len()).map(idle).max().unwrap_or_default()
    }
}

/// Of a run that is over.
pub(super) struct Figures<'a> {
    pub(super) scene: &'a Scene<'a>,
    pub(super) faults: &'a BTreeMap<Kind, u64>,
    pub(super) over: Duration,
    pub(super) stall: Duration,
}

impl Figures<'_> {
    /// A line for each figure, for the program that started this one.
    pub(super) fn say(&self) -> ExitCode {
        let away = self.scene.away.lock().unwrap();
        let verdict = Verdict::of(self.scene.folder, self.over, None, &away);
        let unordered = self.out_of_order_without_word(verdict_holds(self.scene));
        let counts = self.scene.tally.0.lock().unwrap();
        let resource = self.scene.resource.end();

        say("acquisitions", counts.acquired.values().sum::<u64>());
        say("judged_leases", verdict.leases);
        say("judged_orphans", verdict.orphaned);
        say("overlaps", verdict.overlaps());
        say("fences_out_of_order", verdict.out_of_order() + unordered.len());
        say("longest_idle_ms", counts.longest_idle(&union(away.clone())).as_millis());
        say("stall_ms", self.stall.as_millis());
        for (language, count) in &counts.acquired {
            say(&format!("acquired.{language}"), count);
        }
        for ((language, answer), count) in &counts.refused {
            say(&format!("refused.{language}.{answer}"), count);
        }
        for (kind, count) in self.faults {
            say(&format!("faults.{kind:?}"), count);
        }
        for (what, count) in &resource {
            say(&format!("resource.{what}"), count);
        }
        for surprise in &counts.surprises {
            say("surprise", surprise);
        }
        let is_well = verdict.overlaps() + verdict.out_of_order() + unordered.len() == 0;
        if !is_well || !verdict.wrong.is_empty() {
            eprintln!("{verdict}\n{unordered:?}");
        }
        if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// Holds of commands, of which no more than a moment and a fence is known, among all others. That one
    /// is told of later than the next one's is no mistake.
    fn out_of_order_without_word(&self, worded: Vec<Vec<Hold>>) -> Vec<Wrong> {
        let entries = super::journal::read(&self.scene.folder.join(UNWORDED));
        let of_name = |name: usize, mut holds: Vec<Hold>| {
            let mine = entries.iter().map(|(_, entry)| entry);
            let mine = mine.filter(|entry| entry.name == name && entry.fence > 0);
            holds.extend(mine.map(|entry| Hold {
                asked: entry.asked,
                from: entry.from,
                until: entry.from,
                fence: entry.fence,
            }));
            let mut wrong = judge(&holds);
            wrong.retain(|wrong| matches!(wrong, Wrong::OutOfOrder(..) | Wrong::Twice(..)));
            wrong.retain(|wrong| involves(wrong, |hold| hold.from == hold.until));
            wrong
        };
        worded.into_iter().enumerate().flat_map(|(name, holds)| of_name(name, holds)).collect()
    }
}

fn involves(wrong: &Wrong, is_one: impl Fn(&Hold) -> bool) -> bool {
    let (Wrong::Overlap(one, two)
    | Wrong::Twice(one, two)
    | Wrong::OutOfOrder(one, two)
    | Wrong::Falling(one, two)) = wrong;
    is_one(one) || is_one(two)
}

/// By name: of those who can say whether they hold a lock still.
fn verdict_holds(scene: &Scene<'_>) -> Vec<Vec<Hold>> {
    let entries = super::journal::read(scene.folder);
    let of_name = |name| entries.iter().map(|(_, entry)| *entry).filter(move |e| e.name == name);
    (0..NAMES.len()).map(|name| Verdict::default().judge_leases(of_name(name))).collect()
}

fn say(what: &str, value: impl Display) {
    println!("@@ {what} {value}");
}
