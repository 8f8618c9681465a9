//! `leasehold doctor`: whether a store is fit for locks.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use leasehold::command::plain;
use leasehold::{Checkup, Examination, Finding, Measured, Severity, Value, defaults};
use serde_json::{Value as Json, json};

use crate::exit::{Failure, print};
use crate::store::Store;

/// Something is worth a warning.
const UNFIT: u8 = 1;

/// Tell whether a store is fit for locks, and what to type where it is not
///
/// doctor reads settings, rights, replicas and clocks, measures how fast the servers
/// answer, and changes nothing. Then it acquires and releases one lock of its own.
/// It runs for some seconds. docs/reference/findings.md lists all findings.
///
/// Exit status: 0 no warnings; 1 warnings; 64 usage; 69 the store cannot be reached.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:\n  leasehold doctor\n  leasehold doctor --ttl 5s --lock health:doctor\n  \
        leasehold doctor --read-only --json | jq -r '.findings[] | .id + \": \" + .advice'"
)]
pub(crate) struct Args {
    #[command(flatten)]
    store: Store,
    /// Acquire no lock
    #[arg(long)]
    read_only: bool,
    /// The lock to acquire: one that your programs' user may acquire and your programs do not use
    #[arg(long, value_name = "NAME")]
    lock: Option<OsString>,
    /// The ttl of your programs' locks, for comparison with the times of failovers
    #[arg(long, value_name = "TIME", value_parser = crate::run::span)]
    ttl: Option<Duration>,
    /// Print one line of JSON
    ///
    /// Its keys: store, fit, findings (each with id, severity, at, what, why,
    /// advice), and measured (each with at, what, and value or microseconds).
    #[arg(long, verbatim_doc_comment)]
    json: bool,
}

pub(crate) fn main(args: &Args) -> Result<u8, Failure> {
    let client = args.store.open()?;
    let mut checkup = Checkup::default().ttl(args.ttl.unwrap_or(defaults::TTL));
    if let Some(name) = &args.lock {
        checkup = checkup.lock(name.as_bytes());
    }
    if args.read_only {
        checkup = checkup.read_only();
    }
    let found = client.examine(&checkup)?;
    let said = match args.json {
        true => machine(client.store(), &found) + "\n",
        false => human(client.store(), &found, is_coloured()),
    };
    print(&said)?;
    Ok(if found.is_fit() { 0 } else { UNFIT })
}

/// As <https://no-color.org> has it.
pub(crate) fn is_coloured() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty())
}

fn machine(store: &str, found: &Examination) -> String {
    let finding = |Finding { id, severity, at, what, why, advice, .. }: &Finding| {
        let severity = severity.to_string();
        json!({ "id": id, "severity": severity, "at": at, "what": what, "why": why, "advice": advice })
    };
    let measured = |Measured { at, what, value, .. }: &Measured| match value {
        Value::Span(span) => {
            json!({ "at": at, "what": what, "microseconds": span.as_secs_f64() * 1e6 })
        }
        Value::Count(count) => json!({ "at": at, "what": what, "value": count }),
        value => json!({ "at": at, "what": what, "value": value.to_string() }),
    };
    json!({
        "store": store,
        "fit": found.is_fit(),
        "findings": found.findings.iter().map(finding).collect::<Vec<Json>>(),
        "measured": found.measured.iter().map(measured).collect::<Vec<Json>>(),
    })
    .to_string()
}

fn human(store: &str, found: &Examination, is_coloured: bool) -> String {
    let mut out = format!("{}\n", plain(store));
    let mut at = None;
    for Measured { at: here, what, value, .. } in &found.measured {
        let (here, what) = (plain(here), what.replace('_', " "));
        if at.as_ref() != Some(&here) {
            let _ = write!(out, "\n  {here}\n");
            at = Some(here);
        }
        let _ = writeln!(out, "    {what:<26} {}", plain(value.to_string()));
    }
    for Finding { id, severity, at, what, why, advice, .. } in &found.findings {
        let (colour, end) = match severity {
            _ if !is_coloured => ("", ""),
            Severity::Warning => ("\x1b[31m", "\x1b[0m"),
            _ => ("\x1b[33m", "\x1b[0m"),
        };
        let [at, what, advice] = [at, what, advice].map(plain);
        let _ = write!(
            out,
            "\n{colour}{severity}{end} {id} ({at})\n  {what}\n  why:  {why}\n  do:   {advice}\n"
        );
    }
    let of = |severity| found.findings.iter().filter(|it| it.severity == severity).count();
    let (warnings, notes) = (of(Severity::Warning), of(Severity::Note));
    let verdict = if found.is_fit() { "fit for locks" } else { "not fit for locks as it is" };
    let (warnings, notes) = (counted(warnings, "warning"), counted(notes, "note"));
    let _ = writeln!(out, "\n{verdict}: {warnings}, {notes}");
    out
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
