//! What a server's clock says, as well as that can be known from afar.

use std::time::Duration;

use super::{Examination, Kind, Subject, kind};
use crate::clock::{Moment, wall_micros};
use crate::error::Error;

const ROUNDS: usize = 100;
/// Of a slow server fewer rounds are enough.
const LONGEST: Duration = Duration::from_secs(1);
/// Between two readings of a clock, at least.
pub(crate) const APART: Duration = Duration::from_millis(1200);

/// What a clock said at a moment, which is known up to half a round trip.
#[derive(Clone, Copy)]
pub(crate) struct Reading {
    /// In microseconds, of the server and of this machine.
    server: u64,
    here: u64,
    pub(crate) moment: Moment,
    pub(crate) doubt: Duration,
}

impl Reading {
    /// The clock was asked for when ours said this, and the answer took so long.
    pub(crate) fn new(server: u64, (sent, here): (Moment, u64), took: Duration) -> Reading {
        let doubt = took / 2;
        let half = u64::try_from(doubt.as_micros()).unwrap_or(0);
        Reading { server, here: here.saturating_add(half), moment: sent.plus(doubt), doubt }
    }

    /// Of two, the one that is known better.
    pub(crate) fn better(self, other: Option<Reading>) -> Reading {
        other.filter(|other| other.doubt <= self.doubt).unwrap_or(self)
    }

    /// By how many microseconds the server's clock is ahead of this machine's.
    pub(crate) fn ahead(&self) -> i64 {
        self.server.cast_signed().wrapping_sub(self.here.cast_signed())
    }

    /// What it says now, in microseconds, if it goes as ours does.
    pub(crate) fn now(&self) -> u64 {
        let since = Moment::now().since(self.moment).as_micros();
        self.server.saturating_add(u64::try_from(since).unwrap_or(0))
    }
}

impl Examination {
    /// Times a small request, made again and again. Where its answers tell the server's clock, in
    /// microseconds, the reading is that of the fastest.
    pub(crate) fn time(
        &mut self,
        at: &str,
        subject: Subject<'_>,
        mut ask: impl FnMut() -> Result<Option<u64>, Error>,
    ) -> Result<Option<Reading>, Error> {
        let (mut laps, mut best, begun) = (Vec::new(), None, Moment::now());
        while laps.len() < ROUNDS && Moment::now().since(begun) < LONGEST {
            let (sent, here) = (Moment::now(), wall_micros());
            let clock = ask()?;
            let lap = Moment::now().since(sent);
            laps.push(lap);
            if let Some(clock) = clock {
                best = Some(Reading::new(clock, (sent, here), lap).better(best));
            }
        }
        self.laps(at, laps, subject);
        Ok(best)
    }

    /// The same twice, to see how the clock goes in between.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) fn time_clock(
        &mut self,
        at: &str,
        subject: Subject<'_>,
        mut ask: impl FnMut() -> Result<Option<u64>, Error>,
    ) -> Result<Option<Reading>, Error> {
        let first = self.time(at, subject, &mut ask)?;
        if let Some(first) = first {
            self.clock(at, first);
            std::thread::sleep(APART);
            if let Some(second) = Examination::default().time(at, subject, ask)? {
                self.drift(at, first, second);
            }
        }
        Ok(first)
    }

    /// Takes in how far a clock went between two readings of it.
    pub(crate) fn drift(&mut self, at: &str, first: Reading, second: Reading) {
        let there = second.server.cast_signed().wrapping_sub(first.server.cast_signed()) as f64;
        let here = second.moment.since(first.moment).as_micros() as f64;
        let doubt = (first.doubt + second.doubt).as_micros() as f64;
        let (drift, doubt) = ((there - here) / here, doubt / here);
        if drift.abs() - doubt > 0.01 {
            self.found(
                at,
                kind!("clock-drifts"),
                format!("by {:+.1} % within a second", drift * 100.0),
            );
        }
    }

    /// Holds the clocks of some servers against each other, as far as they are known.
    pub(crate) fn agree(&mut self, kind: Kind, mut clocks: Vec<(&str, Reading)>, most: Duration) {
        clocks.sort_by_key(|(_, reading)| reading.ahead());
        let ([(behind, slow), ..], [.., (at, fast)]) = (&clocks[..], &clocks[..]) else { return };
        let apart = Duration::from_micros(fast.ahead().abs_diff(slow.ahead()));
        let apart = apart.saturating_sub(slow.doubt + fast.doubt);
        if apart > most {
            self.found(at, kind, format_args!("{:.3} s ahead of {behind}", apart.as_secs_f64()));
        }
    }

    pub(crate) fn clock(&mut self, at: &str, reading: Reading) {
        // In whole milliseconds, of which 0 has one sign.
        let ahead = (reading.ahead() as f64 / 1e3).round() as i64;
        let said = format!("{:+.3} s to this machine's", ahead as f64 / 1e3);
        self.text(at, "clock", said);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_differs_by_less_than_is_known_does_not_drift() {
        let at = |millis: u64, server: u64, took: u64| {
            let took = Duration::from_millis(took);
            let sent = Moment::ZERO.plus(Duration::from_millis(1000 + millis) - took / 2);
            Reading::new(server * 1000, (sent, 0), took)
        };
        for (second, drifts) in [
            (at(1000, 1000, 0), false),
            (at(1000, 1009, 0), false),
            (at(1000, 1030, 0), true),
            (at(1000, 960, 0), true),
            (at(1000, 1030, 50), false),
        ] {
            let mut found = Examination::default();
            found.drift("here", at(0, 0, 0), second);
            assert_eq!(!found.is_fit(), drifts, "{:?}", found.findings);
        }
    }
}
