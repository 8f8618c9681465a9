//! What an examination of a store finds: what is so, why it matters to a lock, and what to type. The
//! sentences are in docs/reference/findings.md; each store has its facts, and what all stores share is here.

mod clock;
mod kind;

use std::fmt;
use std::time::Duration;

pub(crate) use self::clock::{APART, Reading};
pub(crate) use self::kind::{Kind, findings, kind};
use crate::config::{Address, Config, defaults};
use crate::error::Error;

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
    /// Stays the same from version to version; `docs/reference/findings.md` lists them.
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

/// The first numbers of a version; 0 where none is told.
pub(crate) fn level(version: &str) -> [u32; 3] {
    let mut parts = version.split(['.', '-', ',']).map(|part| part.parse().unwrap_or(0));
    [(); 3].map(|()| parts.next().unwrap_or(0))
}

/// What a standby does less against the loss of a grant than its primary: of each setting the values
/// here and there, and all in their order, the weakest first. Another one counts as the first.
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) fn lesser<'a>(
    settings: impl IntoIterator<Item = (&'a str, [&'a str; 2], &'a [&'a str])>,
) -> Vec<String> {
    let is_lesser = |(_, both, order): &(_, [&str; 2], &[&str])| {
        let strength = |value| order.iter().position(|one| one == value).unwrap_or(0);
        strength(&both[0]) < strength(&both[1])
    };
    let lesser = settings.into_iter().filter(is_lesser);
    lesser
        .map(|(name, [on, of], _)| format!("{name} is {on} there, and {of} on the primary"))
        .collect()
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

impl Examination {
    /// Whether nothing is worth a warning.
    pub fn is_fit(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity < Severity::Warning)
    }

    /// Takes a finding in, with the details of this one.
    pub(crate) fn found(&mut self, at: &str, kind: Kind, details: impl fmt::Display) {
        self.advise(at, kind, details, String::new());
    }

    /// The same where what to type is not always the same; nothing stands for what the page has.
    pub(crate) fn advise(
        &mut self,
        at: &str,
        kind: Kind,
        details: impl fmt::Display,
        advice: String,
    ) {
        let (severity, [title, why, usual]) = kind.sentences();
        let advice = if advice.is_empty() { usual.replace("\\|", "|") } else { advice };
        let (at, what) = (at.to_owned(), format!("{title}: {details}"));
        self.findings.push(Finding { id: kind.id, severity, at, what, why, advice });
    }

    /// Takes a finding in where anything is listed.
    pub(crate) fn listed<T: fmt::Display>(
        &mut self,
        at: &str,
        kind: Kind,
        all: &[T],
        between: &str,
    ) {
        if !all.is_empty() {
            let all: Vec<_> = all.iter().map(T::to_string).collect();
            self.found(at, kind, all.join(between));
        }
    }

    /// Takes a finding in where rights are missing, with what grants them.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) fn lacks(&mut self, at: &str, kind: Kind, missing: &str, grants: String) {
        if !grants.is_empty() {
            self.advise(at, kind, missing, grants);
        }
    }

    /// Takes a finding in where at least so many tenths are in use of what there is, if that is told.
    pub(crate) fn crowded(
        &mut self,
        at: &str,
        kind: Kind,
        (used, most): (Option<u64>, Option<u64>),
        tenths: u64,
    ) {
        if let (Some(used), Some(most @ 1..)) = (used, most)
            && used.saturating_mul(10) >= most.saturating_mul(tenths)
        {
            self.found(at, kind, format_args!("{used} of {most}"));
        }
    }

    /// Looks at each host of a URL by itself, and gives what was seen of those that answer. Of another
    /// one, the kind of finding is told with the error. An error means that each of them is `down`.
    pub(crate) fn each_host<T>(
        &mut self,
        hosts: &[Address],
        down: Kind,
        mut look: impl FnMut(&mut Examination, Address) -> (String, Result<T, (Kind, Error)>),
    ) -> Result<Vec<(String, T)>, Error> {
        let (mut seen, mut unreached) = (Vec::new(), Vec::new());
        for host in hosts {
            match look(self, host.clone()) {
                (at, Ok(facts)) => seen.push((at, facts)),
                (at, Err((kind, error))) => {
                    self.found(&at, kind, error.detail());
                    unreached.extend((kind.id == down.id).then_some(error));
                }
            }
        }
        match unreached.pop() {
            Some(error) if unreached.len() + 1 == hosts.len() => Err(error),
            _ => Ok(seen),
        }
    }

    pub(crate) fn measured(&mut self, at: &str, what: &'static str, value: Value) {
        self.measured.push(Measured { at: at.to_owned(), what, value });
    }

    /// Takes in a number that is told.
    pub(crate) fn count(&mut self, at: &str, what: &'static str, count: Option<u64>) {
        count.into_iter().for_each(|count| self.measured(at, what, Value::Count(count)));
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
            self.found(at, kind!("slow"), format!("{took} of an io_timeout of {most}, {what}"));
        }
    }
}
