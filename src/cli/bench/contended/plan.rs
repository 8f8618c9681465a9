//! What is asked for: how many wait, in which processes, for how long.

use std::str::FromStr;
use std::time::Duration;

use super::worker::Way;
use crate::exit::{Failure, USAGE};

/// How waiters are spread over processes: so many processes, or the size of each one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Spread {
    Evenly(usize),
    Sizes(Vec<usize>),
}

impl FromStr for Spread {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Spread, Self::Err> {
        let sizes: Option<Vec<usize>> =
            text.split('+').map(|size| size.parse().ok().filter(|size| *size > 0)).collect();
        match sizes.as_deref() {
            Some([count]) => Ok(Spread::Evenly(*count)),
            Some(sizes) => Ok(Spread::Sizes(sizes.to_vec())),
            None => Err("it is a number of processes, or their sizes, as in 31+1"),
        }
    }
}

impl Spread {
    /// The sizes of the processes of so many waiters.
    pub(super) fn of(&self, waiters: usize) -> Result<Vec<usize>, Failure> {
        match self {
            Spread::Evenly(count) => {
                let count = (*count).min(waiters);
                Ok((0..count)
                    .map(|at| waiters / count + usize::from(at < waiters % count))
                    .collect())
            }
            Spread::Sizes(sizes) if sizes.iter().sum::<usize>() == waiters => Ok(sizes.clone()),
            Spread::Sizes(sizes) => {
                let sum: usize = sizes.iter().sum();
                let message = format!("--processes has {sum} waiters, --contended {waiters}");
                Err(Failure { code: USAGE, message })
            }
        }
    }
}

/// So many waiters for one lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Row {
    pub(super) waiters: usize,
    pub(super) sizes: Vec<usize>,
    pub(super) way: Way,
    pub(super) hold: Duration,
    pub(super) think: Duration,
}

/// The threads of one process that hand a lock over among themselves.
const INSIDE: [usize; 2] = [2, 8];

impl Row {
    #[cfg(test)]
    pub(super) fn of(waiters: usize, sizes: Vec<usize>) -> Row {
        let time = Duration::from_millis(1);
        Row { waiters, sizes, way: Way::Auto, hold: time, think: time }
    }

    /// Whether all waiters are in one process, and there is nobody to hand over to elsewhere.
    pub(super) fn is_inside(&self) -> bool {
        self.sizes.len() == 1
    }

    /// How many waiters each process has, as people would say it.
    pub(super) fn spread(&self) -> String {
        match self.sizes.as_slice() {
            [first, others @ ..] if others.iter().all(|size| size == first) => {
                format!("{} x {first}", self.sizes.len())
            }
            sizes => {
                let sizes: Vec<_> = sizes.iter().map(usize::to_string).collect();
                if sizes.len() > 4 { format!("{} processes", sizes.len()) } else { sizes.join("+") }
            }
        }
    }
}

/// The rows of a measurement: those asked for, and threads of one process that have nothing else
/// to do than to hand over. All of them once more by polling, if that is wanted.
pub(super) fn rows(
    waiters: &[usize],
    spread: Option<&Spread>,
    hold: Duration,
    think: Duration,
    controls: bool,
) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for way in [Way::Auto, Way::Spin].into_iter().take(if controls { 2 } else { 1 }) {
        for waiters in waiters.iter().copied() {
            let sizes = match spread {
                Some(spread) => spread.of(waiters)?,
                None => vec![1; waiters],
            };
            rows.push(Row { waiters, sizes, way, hold, think });
        }
        for waiters in INSIDE {
            let (hold, think) = (Duration::ZERO, Duration::ZERO);
            rows.push(Row { waiters, sizes: vec![waiters], way, hold, think });
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiters_are_spread_evenly_or_as_they_are_told() {
        let spread = |text: &str, waiters| text.parse::<Spread>().unwrap().of(waiters);
        assert_eq!(spread("3", 8).unwrap(), [3, 3, 2]);
        assert_eq!(spread("10", 2).unwrap(), [1, 1]);
        assert_eq!(spread("31+1", 32).unwrap(), [31, 1]);
        assert_eq!(spread("31+1", 8).unwrap_err().code, USAGE);
        for wrong in ["", "0", "4+0", "a", "3+"] {
            assert!(wrong.parse::<Spread>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_spread_is_short_to_read() {
        assert_eq!(Row::of(32, vec![1; 32]).spread(), "32 x 1");
        assert_eq!(Row::of(32, vec![31, 1]).spread(), "31+1");
        assert_eq!(Row::of(8, vec![2, 2, 2, 1, 1]).spread(), "5 processes");
    }

    #[test]
    fn controls_do_the_same_work_by_polling() {
        let time = Duration::from_millis(1);
        let rows = rows(&[2, 8], None, time, time, true).unwrap();
        let (auto, spin) = rows.split_at(4);
        for (auto, spin) in auto.iter().zip(spin) {
            assert_eq!(Row { way: Way::Spin, ..auto.clone() }, *spin);
        }
        assert_eq!(auto.iter().filter(|row| row.is_inside()).count(), 2);
    }
}
