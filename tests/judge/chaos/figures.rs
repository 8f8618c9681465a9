//! What a run was like, in numbers.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use super::crew::Counts;
use super::storm::{Fault, Kind};
use kit::{Hold, Wrong};

const SPAN: u64 = 10;

pub struct Figures<'a> {
    pub holds: &'a [Hold],
    pub wrong: &'a [Wrong],
    pub faults: &'a [Fault],
    pub counts: Counts,
}

impl Figures<'_> {
    pub fn overlaps(&self) -> usize {
        self.count(|wrong| matches!(wrong, Wrong::Overlap(..)))
    }

    /// The same fence twice is out of order as well.
    pub fn out_of_order(&self) -> usize {
        self.count(|wrong| matches!(wrong, Wrong::OutOfOrder(..) | Wrong::Twice(..)))
    }

    pub fn falling(&self) -> usize {
        self.count(|wrong| matches!(wrong, Wrong::Falling(..)))
    }

    fn count(&self, is_one: impl Fn(&Wrong) -> bool) -> usize {
        self.wrong.iter().filter(|wrong| is_one(wrong)).count()
    }

    /// From each fault to the next time that anybody got the lock, sorted.
    fn recoveries(&self) -> Vec<Duration> {
        let mut granted: Vec<_> = self.holds.iter().map(|hold| hold.from).collect();
        granted.sort();
        let next = |at: Duration| granted.get(granted.partition_point(|from| *from < at)).copied();
        let spans = self.faults.iter().filter_map(|fault| Some(next(fault.at)? - fault.at));
        let mut spans: Vec<_> = spans.collect();
        spans.sort();
        spans
    }
}

impl Display for Figures<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Counts { calls, granted, unknown, overrun } = self.counts;
        writeln!(f, "acquisitions: {granted} of {calls} calls; {} checked", self.holds.len())?;
        // Whether it goes on as it began.
        let start = self.faults.first().map_or(Duration::ZERO, |fault| fault.at);
        let mut by_span = BTreeMap::<u64, usize>::new();
        for hold in self.holds {
            *by_span.entry(hold.from.saturating_sub(start).as_secs() / SPAN).or_default() += 1;
        }
        let last = by_span.keys().next_back().copied().unwrap_or(0);
        let counts: Vec<_> = (0..=last).map(|span| by_span.get(&span).unwrap_or(&0)).collect();
        writeln!(f, "checked in each {SPAN} s: {counts:?}")?;
        let mut kinds = BTreeMap::<Kind, usize>::new();
        for fault in self.faults {
            *kinds.entry(fault.kind).or_default() += 1;
        }
        writeln!(f, "faults: {} {kinds:?}", self.faults.len())?;
        writeln!(f, "overlapping valid leases: {}", self.overlaps())?;
        writeln!(f, "fences out of order: {}", self.out_of_order())?;
        writeln!(f, "smaller fences of later holders, asked for earlier: {}", self.falling())?;
        writeln!(f, "unknown outcomes: {unknown}")?;
        writeln!(f, "worst overrun of a deadline: {overrun:?}")?;
        let recoveries = self.recoveries();
        if let Some(last) = recoveries.len().checked_sub(1) {
            let [half, most] = [50, 99].map(|percent| recoveries[last * percent / 100]);
            writeln!(f, "from a fault to the next acquisition: p50 {half:?}, p99 {most:?}")?;
        }
        Ok(())
    }
}
