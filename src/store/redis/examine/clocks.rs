//! How fast a server answers, and what its clock says: TIME serves for both, which every user of
//! locks may ask.

use std::thread::sleep;
use std::time::Duration;

use redis::Value;

use super::Patient;
use super::probe::{Facts, Probe, items, text, words_of};
use crate::clock::Moment;
use crate::error::Error;
use crate::examination::{APART, Examination, Reading, Subject, kind};

/// A clock that people set by hand may be off by less.
const MOST_APART: Duration = Duration::from_secs(1);

/// Asks again and again; the reading is that of the fastest answer.
pub(super) fn measure(
    probe: &mut Probe,
    subject: Subject<'_>,
    found: &mut Examination,
) -> Result<Option<Reading>, Error> {
    let at = probe.at.clone();
    found.time(&at, subject, || {
        let said = probe.ask(&[words_of(&["TIME"])])?.pop().unwrap_or(Value::Nil);
        let part = |at: usize| text(items(&said).get(at)?)?.parse::<u64>().ok();
        let micros =
            |seconds: u64| Some(seconds.saturating_mul(1_000_000).saturating_add(part(1)?));
        Ok(part(0).and_then(micros))
    })
}

/// Reads all clocks a second time, and looks what the servers have done in between.
pub(in crate::store) fn finish(
    patients: &mut [Patient],
    subject: Subject<'_>,
    found: &mut Examination,
) {
    let readings = patients.iter().filter_map(|patient| patient.reading);
    let Some(last) = readings.map(|reading| reading.moment).max() else { return };
    sleep(last.plus(APART).since(Moment::now()));
    for patient in patients {
        // Of one that has gone away meanwhile there is no more to tell.
        if let (Some(first), Ok(Some(second))) =
            (patient.reading, measure(&mut patient.probe, subject, &mut Examination::default()))
        {
            found.drift(&patient.probe.at, first, second);
        }
        let facts = patient.probe.ask_one(&["INFO", "cpu"]).map(|info| Facts::read(&info));
        let before = patient.facts.cpu().zip(patient.reading);
        if let (Some((before, since)), Some(now)) = (before, facts.ok().and_then(|it| it.cpu())) {
            let span = Moment::now().since(since.moment).as_secs_f64();
            weigh(&patient.probe.at, (now - before) / span, found);
        }
    }
}

/// What part of a core a server uses that serves everybody one after the other.
fn weigh(at: &str, share: f64, found: &mut Examination) {
    if share > 0.8 {
        found.found(at, kind!("redis-busy"), format!("{:.0} % of it", share * 100.0));
    }
}

/// Servers of which one may take another's place, or which vote together, by each other's clocks.
pub(in crate::store) fn agree(patients: &[Patient], found: &mut Examination) {
    let clocks = patients.iter().filter_map(|it| Some((it.at(), it.reading?))).collect();
    found.agree(kind!("redis-clock"), clocks, MOST_APART);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_uses_most_of_its_core_is_busy() {
        for (share, is_busy) in [(0.0, false), (0.7, false), (0.9, true), (1.3, true)] {
            let mut found = Examination::default();
            weigh("here", share, &mut found);
            assert_eq!(found.findings.iter().any(|it| it.id == "redis-busy"), is_busy, "{share}");
        }
    }
}
