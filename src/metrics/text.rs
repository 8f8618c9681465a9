//! The text that Prometheus reads: its exposition format 0.0.4.

use std::fmt::{Display, Write};

use super::groups::REST_LABEL;
use super::histogram::Histogram;
use super::{ByGroup, CallEnd, Count, Metrics, Series};

/// What is so at this moment, of one group.
#[derive(Clone, Copy, Default)]
pub(crate) struct Now {
    pub(crate) held: u64,
    pub(crate) waiting: u64,
    /// Seconds.
    pub(crate) oldest: f64,
}

/// One group: its labels, its figures, and what is so now.
type Row<'a> = (String, &'a Series, Now);
type CountOf = fn(&Series) -> &Count;
type HistogramOf = fn(&Series) -> &Histogram;
type GaugeOf = fn(&Now) -> f64;

const COUNTERS: [(&str, &str, CountOf); 6] = [
    ("attempts", "Requests to the store for a lock, every try of a wait included.", |all| {
        &all.attempts
    }),
    ("busy", "Requests for a lock that found it taken.", |all| &all.busy),
    ("unknown", "Requests whose outcome stayed unknown.", |all| &all.unknown),
    ("renewed", "Renewals that the store confirmed.", |all| &all.renewed),
    ("lost", "Leases that were lost while held.", |all| &all.lost),
    ("released_late", "Releases that found the lease gone, or could not tell.", |all| {
        &all.released_late
    }),
];

const HISTOGRAMS: [(&str, &str, HistogramOf); 4] = [
    ("wait", "From a call until it has the lock, or gives up.", |all| &all.wait),
    ("hold", "From taking a lock until the lease ends.", |all| &all.hold),
    ("round_trip", "From sending a request until its answer, or until it is given up.", |all| {
        &all.round_trip
    }),
    ("renewal_delay", "How long after its time a renewal was confirmed.", |all| &all.renewal_delay),
];

const GAUGES: [(&str, &str, GaugeOf); 3] = [
    ("held", "Leases that are held now.", |now| now.held as f64),
    ("waiting", "Calls that stand in a queue now.", |now| now.waiting as f64),
    ("oldest_hold_seconds", "Age of the oldest lease that is held; 0 without one.", |now| {
        now.oldest
    }),
];

/// All of it, of a client whose groups have these patterns.
pub(crate) fn text(metrics: &Metrics, patterns: &[String], now: &ByGroup<Now>) -> String {
    let labels = patterns.iter().map(String::as_str).chain([REST_LABEL]);
    let rows = labels.zip(metrics.all()).zip(now.all());
    let rows: Vec<Row<'_>> = rows
        .map(|((label, series), now)| (format!("lock=\"{}\"", escaped(label)), series, *now))
        .collect();
    let mut out = String::new();
    acquisitions(&mut out, &rows);
    for (name, help, count) in COUNTERS {
        let name = head(&mut out, &format!("{name}_total"), "counter", help);
        for (labels, series, _) in &rows {
            line(&mut out, &name, labels, count(series).read());
        }
    }
    for (name, help, histogram) in HISTOGRAMS {
        let name = head(&mut out, &format!("{name}_seconds"), "histogram", help);
        for (labels, series, _) in &rows {
            buckets(&mut out, &name, labels, histogram(series));
        }
    }
    for (name, help, gauge) in GAUGES {
        let name = head(&mut out, name, "gauge", help);
        for (labels, _, now) in &rows {
            line(&mut out, &name, labels, gauge(now));
        }
    }
    out
}

fn acquisitions(out: &mut String, rows: &[Row<'_>]) {
    let help = "Calls that took a lock or tried to, by how they ended.";
    let name = head(out, "acquisitions_total", "counter", help);
    for (labels, series, _) in rows {
        for (end, count) in CallEnd::ALL.iter().zip(&series.calls) {
            let outcome = end.word();
            line(out, &name, &format!("{labels},outcome=\"{outcome}\""), count.read());
        }
    }
}

fn buckets(out: &mut String, name: &str, labels: &str, histogram: &Histogram) {
    let (rows, sum) = histogram.read();
    let mut all = 0;
    for (reach, count) in rows {
        let reach = if reach.is_finite() { reach.to_string() } else { "+Inf".to_owned() };
        line(out, &format!("{name}_bucket"), &format!("{labels},le=\"{reach}\""), count);
        all = count;
    }
    line(out, &format!("{name}_sum"), labels, sum);
    line(out, &format!("{name}_count"), labels, all);
}

/// Two lines before the series of a metric; its whole name.
fn head(out: &mut String, name: &str, kind: &str, help: &str) -> String {
    let name = format!("leasehold_{name}");
    // Writing to a string cannot fail.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    name
}

fn line(out: &mut String, name: &str, labels: &str, value: impl Display) {
    let _ = writeln!(out, "{name}{{{labels}}} {value}");
}

/// What stands between the quotes of a label. Any other character may stand there as it is.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Moment;
    use crate::metrics::Group;

    #[test]
    fn a_label_has_quotes_backslashes_and_line_ends_escaped() {
        let patterns = ["a\"b\\c\nd*".to_owned(), "größe".to_owned()];
        let metrics = Metrics::new(2);
        let group = Group::of(&patterns, b"a\"b\\c\nde");
        metrics.of(group).called(CallEnd::Granted, Moment::ZERO, Moment::from_nanos(2_500_000));
        let text = text(&metrics, &patterns, &ByGroup::new(2));
        for line in [
            r#"leasehold_acquisitions_total{lock="a\"b\\c\nd*",outcome="granted"} 1"#,
            r#"leasehold_wait_seconds_bucket{lock="a\"b\\c\nd*",le="0.001"} 0"#,
            r#"leasehold_wait_seconds_bucket{lock="a\"b\\c\nd*",le="0.003"} 1"#,
            r#"leasehold_wait_seconds_bucket{lock="a\"b\\c\nd*",le="+Inf"} 1"#,
            r#"leasehold_wait_seconds_sum{lock="a\"b\\c\nd*"} 0.0025"#,
            r#"leasehold_wait_seconds_count{lock="*"} 0"#,
            r#"leasehold_held{lock="größe"} 0"#,
            r#"leasehold_held{lock="*"} 0"#,
        ] {
            assert!(text.lines().any(|said| said == line), "{line} in {text}");
        }
        let heads = text.lines().filter(|line| line.starts_with("# TYPE"));
        assert_eq!(heads.count(), 1 + COUNTERS.len() + HISTOGRAMS.len() + GAUGES.len());
    }

    #[test]
    fn the_outcomes_stand_in_the_order_in_which_they_are_counted() {
        for (index, end) in CallEnd::ALL.into_iter().enumerate() {
            assert_eq!(end as usize, index);
        }
    }
}
