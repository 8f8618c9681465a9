//! What an examination of a store finds: what is so, why it matters to a lock, and what to type.
//! Each store has a table of its kinds of findings, and so has what all stores share, here.

mod clock;

use std::fmt;
use std::time::Duration;

pub(crate) use self::clock::{APART, Reading};
use crate::config::{Config, defaults};

/// What [`Client::examine`](crate::Client::examine) is to look at, and whether it may try a lock.
///
/// ```
/// use std::time::Duration;
/// use leasehold::Checkup;
///
/// let checkup = Checkup::default().lock("stock:doctor").ttl(Duration::from_secs(10)).read_only();
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Checkup {
    pub(crate) name: Vec<u8>,
    pub(crate) ttl: Duration,
    pub(crate) tries: bool,
}

impl Default for Checkup {
    fn default() -> Checkup {
        Checkup { name: b"leasehold-doctor".to_vec(), ttl: defaults::TTL, tries: true }
    }
}

impl Checkup {
    /// The name of the lock that is tried; `leasehold-doctor` by default. It should be one that the
    /// programs' user may take, and that no program takes.
    pub fn lock(mut self, name: impl Into<Vec<u8>>) -> Checkup {
        self.name = name.into();
        self
    }

    /// The ttl that the programs' locks have, against which the times of a failover are held; 30 s
    /// by default.
    pub fn ttl(mut self, ttl: Duration) -> Checkup {
        self.ttl = ttl;
        self
    }

    /// No lock is taken.
    pub fn read_only(mut self) -> Checkup {
        self.tries = false;
        self
    }
}

/// What a store needs to know to be examined.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) config: &'a Config,
    pub(crate) checkup: &'a Checkup,
}

impl Subject<'_> {
    /// An outage for longer than this may end leases: renewal begins at a third of the ttl.
    pub(crate) fn patience(&self) -> Duration {
        self.checkup.ttl * 2 / 3
    }
}

/// What was found, from [`Client::examine`](crate::Client::examine).
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct Examination {
    /// In the order in which they were found; none is the best.
    pub findings: Vec<Finding>,
    /// What was measured or read on the way.
    pub measured: Vec<Measured>,
}

/// Something that is worth knowing before a lock is relied on.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// Stays the same from version to version; `docs/operating.md` lists them.
    pub id: &'static str,
    /// Whether something should be done about it.
    pub severity: Severity,
    /// The server, or the file.
    pub at: String,
    /// What is so.
    pub what: String,
    /// Why it matters to a lock.
    pub why: &'static str,
    /// What to type, or to do.
    pub advice: String,
}

/// How much a finding matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Severity {
    /// It may well be meant so.
    Note,
    /// Locks can fail, be lost, or have two holders.
    Warning,
}

/// A value that was measured, or that a server told.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Measured {
    /// The server, or the file.
    pub at: String,
    /// What was measured: `version`, `round_trip_p50`.
    pub what: &'static str,
    /// What came out.
    pub value: Value,
}

/// What a measurement came to.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Value {
    /// In words.
    Text(String),
    /// A number of things.
    Count(u64),
    /// A span of time.
    Span(Duration),
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
        })
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(text),
            Value::Count(count) => write!(f, "{count}"),
            Value::Span(span) => write!(f, "{:.2} ms", span.as_secs_f64() * 1000.0),
        }
    }
}

/// A kind of findings: what all of them have in common.
pub(crate) struct Kind {
    pub(crate) id: &'static str,
    pub(crate) severity: Severity,
    pub(crate) title: &'static str,
    pub(crate) why: &'static str,
    pub(crate) advice: &'static str,
}

/// A table of kinds: name, severity, id, what is so, why that matters, what to type.
macro_rules! kinds {
    ($all:ident: $($name:ident $severity:ident $id:literal $title:literal $why:literal $advice:literal;)*) => {
        $(pub(super) static $name: $crate::examination::Kind = $crate::examination::Kind {
            id: $id,
            severity: $crate::examination::Severity::$severity,
            title: $title,
            why: $why,
            advice: $advice,
        };)*
        #[cfg(test)]
        pub(crate) static $all: &[&$crate::examination::Kind] = &[$(&$name),*];
    };
}
pub(crate) use kinds;

kinds! { KINDS:
    SLOW Warning "slow" "the store answers slowly"
        "a renewal that takes as long as io_timeout has failed, and each lock waits for two answers"
        "look for what holds it up (the network, other commands, the disk), or raise io_timeout in the URL";
    DRIFT Warning "clock-drifts" "the server's clock goes at another speed"
        "validity allows for 1 percent: with more, a lock is free while its holder relies on it"
        "have its clock slewed and not stepped (chrony's makestep), and see whether its machine is paused";
}

impl Examination {
    /// Whether nothing is worth a warning.
    pub fn is_fit(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity < Severity::Warning)
    }

    /// Takes a finding in, with the details of this one.
    pub(crate) fn found(&mut self, at: &str, kind: &'static Kind, details: impl fmt::Display) {
        self.advise(at, kind, details, kind.advice);
    }

    /// The same where what to type is not always the same.
    pub(crate) fn advise(
        &mut self,
        at: &str,
        kind: &'static Kind,
        details: impl fmt::Display,
        advice: impl Into<String>,
    ) {
        self.findings.push(Finding {
            id: kind.id,
            severity: kind.severity,
            at: at.to_owned(),
            what: format!("{}: {details}", kind.title),
            why: kind.why,
            advice: advice.into(),
        });
    }

    pub(crate) fn measured(&mut self, at: &str, what: &'static str, value: Value) {
        self.measured.push(Measured { at: at.to_owned(), what, value });
    }

    pub(crate) fn text(&mut self, at: &str, what: &'static str, text: impl Into<String>) {
        self.measured(at, what, Value::Text(text.into()));
    }

    /// Takes in how long each of some small requests took.
    pub(crate) fn laps(&mut self, at: &str, mut spans: Vec<Duration>, subject: Subject<'_>) {
        spans.sort_unstable();
        let part = |percent: usize| spans.get(spans.len().saturating_sub(1) * percent / 100);
        let [Some(half), Some(most), Some(max)] = [50, 99, 100].map(part) else { return };
        for (what, span) in
            [("round_trip_p50", half), ("round_trip_p99", most), ("round_trip_max", max)]
        {
            self.measured(at, what, Value::Span(*span));
        }
        self.weigh_lap(at, *most, subject, "for one request in 100");
    }

    /// Warns where something that renewals do took long.
    pub(crate) fn weigh_lap(
        &mut self,
        at: &str,
        took: Duration,
        Subject { config, .. }: Subject<'_>,
        what: &str,
    ) {
        if took >= config.io_timeout / 4 {
            let [took, most] = [took, config.io_timeout].map(Value::Span);
            self.found(at, &SLOW, format!("{took} of an io_timeout of {most}, {what}"));
        }
    }
}

#[cfg(test)]
mod tests;
