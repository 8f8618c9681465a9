//! The figures of a row, out of its slices.

use super::plan::Row;
use super::turns::{Overtaking, Shares, Slice, Went, middle, quantile};
use crate::exit::Failure;

/// With fewer turns each, one turn more or less would decide how fair it was.
const FAIR: f64 = 20.0;

/// What is known about a row when everything is measured; what nothing tells is `None`.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    /// Of hand-overs to another process, in idle round trips.
    pub(super) p50_rtt: Option<f64>,
    pub(super) p99_rtt: Option<f64>,
    /// Of hand-overs inside a process, in microseconds: of all of them, and of those in which a
    /// turn was passed on under the same grant.
    pub(super) inside_us: Option<f64>,
    pub(super) passed_us: Option<f64>,
    /// The share of turns that were passed on under a grant.
    pub(super) passed_share: Option<f64>,
    /// Commands for each turn that came from another process, for each that the server gave, and
    /// for each at all.
    pub(super) commands: Option<f64>,
    pub(super) commands_per_grant: Option<f64>,
    pub(super) commands_per_turn: Option<f64>,
    /// The most turns of one waiter over the fewest of another.
    pub(super) fairness: Option<f64>,
    pub(super) fewest: u32,
    /// The p99 of the wait over what it takes when everybody has one turn.
    pub(super) wait_ratio: Option<f64>,
    pub(super) overtaking: Overtaking,
    /// How long the lock was really held, in microseconds.
    pub(super) hold_us: Option<f64>,
    pub(super) turns: usize,
    pub(super) handovers: usize,
    pub(super) errors: usize,
    /// The waiting processes' share of a core, and what they send in a second, while nobody gets
    /// the lock.
    pub(super) idle_share: Option<f64>,
    pub(super) idle_commands: Option<f64>,
}

/// One slice.
pub(super) struct Sample {
    figures: Figures,
}

impl Sample {
    /// `rtt` is the idle round trip in nanoseconds; from `from` to `until` everybody was at work.
    pub(super) fn of(row: &Row, slice: &Slice, rtt: f64, from: u64, until: u64) -> Sample {
        let mut across = slice.handovers(|went| went == Went::Across);
        let mut all = slice.handovers(|_| true);
        let micros =
            |mut nanos: Vec<u64>| quantile(&mut nanos, 0.5).map(|nanos| nanos as f64 / 1e3);
        let mut in_rtt = |share| {
            quantile(&mut across, share).filter(|_| rtt > 0.0).map(|nanos| nanos as f64 / rtt)
        };
        let (p50_rtt, p99_rtt) = (in_rtt(0.5), in_rtt(0.99));
        let Shares { mean, most, fewest } = slice.shares(row.waiters, from, until);
        let hold_us = micros(slice.holds());
        let round = |handover: u64| {
            row.waiters as f64 * (hold_us.unwrap_or_default() * 1e3 + handover as f64)
        };
        let wait_ratio = quantile(&mut slice.waits(), 0.99)
            .zip(quantile(&mut all, 0.5))
            .map(|(wait, handover)| wait as f64 / round(handover));
        let turns = slice.count();
        Sample {
            figures: Figures {
                p50_rtt,
                p99_rtt,
                inside_us: micros(slice.handovers(|went| went != Went::Across)),
                passed_us: micros(slice.handovers(|went| went == Went::Passed)),
                passed_share: share((turns - slice.granted()) as f64, turns),
                fairness: (mean >= FAIR).then(|| f64::from(most) / f64::from(fewest.max(1))),
                fewest,
                wait_ratio,
                overtaking: slice.overtaking(),
                hold_us,
                turns,
                handovers: all.len(),
                ..Figures::default()
            },
        }
    }
}

impl Figures {
    /// The median of each figure over the slices; of what may never happen, the worst.
    pub(super) fn of(samples: &[Sample]) -> Figures {
        let median = |figure: fn(&Figures) -> Option<f64>| {
            middle(samples.iter().map(|sample| figure(&sample.figures)))
        };
        let all = || samples.iter().map(|sample| &sample.figures);
        Figures {
            p50_rtt: median(|figures| figures.p50_rtt),
            p99_rtt: median(|figures| figures.p99_rtt),
            inside_us: median(|figures| figures.inside_us),
            passed_us: median(|figures| figures.passed_us),
            passed_share: median(|figures| figures.passed_share),
            fairness: median(|figures| figures.fairness),
            fewest: all().map(|figures| figures.fewest).min().unwrap_or(0),
            wait_ratio: median(|figures| figures.wait_ratio),
            overtaking: all()
                .fold(Overtaking::default(), |worst, figures| worst.or_worse(figures.overtaking)),
            hold_us: median(|figures| figures.hold_us),
            turns: all().map(|figures| figures.turns).sum(),
            handovers: all().map(|figures| figures.handovers).sum(),
            ..Figures::default()
        }
    }

    /// Adds what so many commands in a slice say.
    pub(super) fn count(&mut self, commands: u64, slice: &Slice) {
        let commands = commands as f64;
        self.commands = share(commands, slice.crossed());
        self.commands_per_grant = share(commands, slice.granted());
        self.commands_per_turn = share(commands, slice.count());
    }
}

fn share(part: f64, whole: usize) -> Option<f64> {
    (whole > 0).then(|| part / whole as f64)
}

/// Counts errors, and keeps the first one's words.
#[derive(Default)]
pub(super) struct Errors {
    pub(super) count: usize,
    pub(super) first: Option<String>,
}

impl Errors {
    pub(super) fn add(&mut self, errors: Vec<String>) {
        self.count += errors.len();
        self.first = self.first.take().or_else(|| errors.into_iter().next());
    }

    /// A row in which nobody ever had the lock has no figures.
    pub(super) fn explain(&self, turns: usize) -> Result<(), Failure> {
        match &self.first {
            Some(first) if turns == 0 => Err(Failure::unavailable(first.clone())),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::Row;
    use super::super::turns::Turn;
    use super::*;

    /// Two waiters that hand a lock to and fro: held for 1000 ns, handed over in 200.
    fn to_and_fro(turns: u64) -> Slice {
        let turn = |number: u64| {
            let granted = number * 1200;
            let called = granted.saturating_sub(1100);
            let who = ((number % 2) as usize, 0);
            Turn { who, fence: 1 + number * 64, called, granted, released: granted + 1000 }
        };
        Slice::new((0..turns).map(turn).collect()).unwrap()
    }

    #[test]
    fn figures_are_medians_in_round_trips() {
        let row = Row::of(2, vec![1, 1]);
        let slice = to_and_fro(100);
        let samples = [100.0, 50.0, 400.0].map(|rtt| Sample::of(&row, &slice, rtt, 0, 200_000));
        let mut figures = Figures::of(&samples);
        assert_eq!(figures.p50_rtt, Some(2.0));
        assert_eq!(figures.p99_rtt, Some(2.0));
        assert_eq!(figures.fairness, Some(1.0));
        assert_eq!((figures.fewest, figures.turns, figures.handovers), (50, 300, 297));
        assert_eq!(figures.hold_us, Some(1.0));
        // One turn of the other, and what is left of it.
        assert_eq!(figures.wait_ratio, Some(1100.0 / 2400.0));
        assert_eq!((figures.inside_us, figures.passed_us), (None, None));
        figures.count(300, &slice);
        assert_eq!(figures.commands, Some(3.0));
        assert_eq!(figures.commands_per_grant, Some(3.0));
    }

    #[test]
    fn too_few_turns_tell_nothing_about_fairness() {
        let row = Row::of(2, vec![1, 1]);
        let sample = Sample::of(&row, &to_and_fro(39), 100.0, 0, 200_000);
        assert_eq!(sample.figures.fairness, None);
        // A waiter without a turn counts as one with a single turn, so that there is a figure.
        let row = Row::of(3, vec![1, 1, 1]);
        let sample = Sample::of(&row, &to_and_fro(60), 100.0, 0, 200_000);
        assert_eq!((sample.figures.fairness, sample.figures.fewest), (Some(30.0), 0));
    }
}
