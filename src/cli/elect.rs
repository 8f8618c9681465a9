//! `leasehold elect`: a command on the one node that leads.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use leasehold::command::Limits;
use leasehold::{Client, Election, Error, ErrorKind, Events, Term};
use nix::sys::signal::Signal;

use crate::exit::{self, Failure, LOST, say};
use crate::run::{End, Job, Progress, Terminal, end_of_wait, guarded, span, with_client};
use crate::signals::Signals;
use crate::store::Store;

/// Run a command on one of many nodes, and on another one if that fails
#[derive(clap::Args)]
#[command(
    override_usage = "leasehold elect [OPTIONS] NAME -- COMMAND...",
    after_help = "\
Examples:
  leasehold elect collector -- ./collect
  leasehold elect --ttl 15s --stand-again scheduler -- ./scheduler

Exit status: the command's own; more with --help.",
    after_long_help = "\
Start this on every node. One of them is elected and runs the command, the others
stand by. If the leader dies, another one is elected after the ttl.

If renewals fail until less than a third of the ttl is left, the command gets
SIGTERM, then SIGKILL. (For a long ttl: until --grace is left.) So the command has
ended before another node can be elected. leasehold then stands again. Between two
terms it rests for about a second, so that other nodes are elected first. It also
waits through an outage of the store, from the start.

When the command ends by itself, leasehold releases the lock and exits as it did.
With --stand-again it stands again instead. SIGTERM, SIGINT and SIGQUIT are passed
on to the command, and end leasehold too when the command has ended.

In the command's environment: LEASEHOLD_NAME and LEASEHOLD_FENCE. The fence (fencing
token) is larger than that of every earlier leader. A resource that rejects a
smaller one than it has seen is safe from late writers.

leasehold show NAME tells who leads. leasehold break NAME ends the leadership.

Exit status: the command's own; 128+n if signal n ended it or the wait; 64 usage;
69 the store failed for good; 75 the lock was lost when the command ended; 126 the
command cannot be executed; 127 it was not found.

Examples:
  leasehold elect collector -- ./collect
  leasehold elect --ttl 15s --stand-again scheduler -- ./scheduler"
)]
pub(crate) struct Args {
    /// How soon another node is elected if this machine dies; 100ms to 366d
    ///
    /// Not longer than the store's max_ttl, which is 60s in a quorum unless its
    /// URL says otherwise.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = span,
        allow_hyphen_values = true, verbatim_doc_comment)]
    ttl: Duration,
    /// How long the command has between SIGTERM and SIGKILL when the lock is at risk
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = span,
        allow_hyphen_values = true)]
    grace: Duration,
    /// Stand again when the command has ended by itself, whatever its exit status
    #[arg(long)]
    stand_again: bool,
    #[command(flatten)]
    store: Store,
    /// The election, a lock of this name; any name
    #[arg(value_name = "NAME")]
    name: OsString,
    /// What to run while this node leads
    #[arg(value_name = "COMMAND", required = true, last = true)]
    command: Vec<OsString>,
}

pub(crate) fn main(args: &Args) -> Result<u8, Failure> {
    with_client(&args.store, &args.command, |client, signals, terminal| {
        let election = client.election(args.name.as_bytes()).ttl(args.ttl).grace(args.grace);
        let events = client.events()?;
        loop {
            let term = match stand(client, &election, signals)? {
                Stood::Elected(term) => term,
                Stood::Ended(signal) => return Ok(End::of_wait(signal, terminal)),
            };
            if let Some(end) = lead(args, term, &events, signals, terminal)? {
                return Ok(end);
            }
        }
    })
}

enum Stood {
    Elected(Term),
    /// A signal ended the wait.
    Ended(Signal),
}

fn stand(client: &Client, election: &Election, signals: &Signals) -> Result<Stood, Error> {
    let progress = Progress::start(client, &client.lock(election.name()));
    let mut ended_by = None;
    let stood = election.stand_unless(|| {
        ended_by = ended_by.or_else(|| end_of_wait(signals, &progress));
        ended_by.is_some()
    });
    match (stood, ended_by) {
        (Err(error), Some(signal)) if error.kind() == ErrorKind::Interrupted => {
            Ok(Stood::Ended(signal))
        }
        (stood, _) => stood.map(Stood::Elected),
    }
}

/// `None` if it is to stand again.
fn lead(
    args: &Args,
    term: Term,
    events: &Events,
    signals: &Signals,
    terminal: Option<&Terminal>,
) -> Result<Option<End>, Failure> {
    let limits = Limits::new(args.ttl, args.grace);
    let job = Job { name: &args.name, command: &args.command, limits };
    let finished = guarded(&job, &term, events, signals, terminal)?;
    let mut lost = finished.told;
    if let Err(error) = term.resign() {
        // The guard that told the command to end may have said why.
        if !finished.explained {
            say(&error.to_string());
        }
        lost |= error.kind() == ErrorKind::Lost;
    }
    Ok(match finished.interrupted {
        true => Some(End::InterruptedCommand),
        false if !finished.stopped && (finished.told || args.stand_again) => None,
        false if lost => Some(End::Exit(LOST)),
        false => Some(End::Exit(exit::of_status(finished.status))),
    })
}
