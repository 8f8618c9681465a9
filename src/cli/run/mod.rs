//! `leasehold run`: a command while a lock is held.

mod child;
mod guard;
mod progress;
mod terminal;

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use leasehold::command::{Limits, note_run, parse_duration, plain};
use leasehold::{Client, Error, ErrorKind, Events, Lease, Lock, Run, WaitMode, limits};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::getpgrp;

use crate::exit::{self, Failure, LOST, say};
use crate::signals::{self, Signals};
use crate::store::Store;
use child::Child;
pub(crate) use guard::{Finished, Held};
use guard::{Guard, Seen, now};
pub(crate) use progress::Progress;
pub(crate) use terminal::Terminal;

/// Run a command while holding a lock
#[derive(clap::Args)]
#[command(
    override_usage = "leasehold run [OPTIONS] NAME -- COMMAND...",
    after_help = "\
Examples:
  leasehold run nightly -- ./backup.sh
  leasehold run --try deploy -- make deploy || echo 'a deployment runs already'

Exit status: the command's own; 1 if the lock is held; more with --help.",
    after_long_help = "\
leasehold renews the lock for as long as the command runs. If renewals fail until
less than a third of the ttl is left, the command gets SIGTERM, then SIGKILL. (For
a long ttl: until --grace is left.) So the command has ended before another client
can acquire the lock. If leasehold itself dies, the command gets SIGTERM.

A job stopped with ^Z is not renewed: its lock is free after the ttl. If the job is
continued after that, leasehold kills it.

In the command's environment: LEASEHOLD_NAME and LEASEHOLD_FENCE. The fence (fencing
token) is a number that grows from one holder to the next. A resource that rejects
a smaller one than it has seen is safe from late writers.

While it waits, leasehold shows one line on a terminal and nothing elsewhere,
unless the store is in trouble. --verbose prints more.

Exit status: the command's own; 128+n if signal n ended it or the wait; 1 (or
-E) if the lock is held; 64 usage; 69 the store failed; 75 the lock was lost;
126 the command cannot be executed; 127 it was not found.

Examples:
  leasehold run nightly -- ./backup.sh
  leasehold run --try deploy -- make deploy || echo 'a deployment runs already'
  leasehold run --once-per 1h report -- ./report.sh   # on many nodes, runs on one"
)]
pub(crate) struct Args {
    /// Give up at once if the lock is held
    ///
    /// A store that is silent still has its io_timeout to answer, 1s unless its URL
    /// says otherwise. The same holds for a --wait that is shorter.
    #[arg(short = 'n', long = "try", conflicts_with = "wait", verbatim_doc_comment)]
    no_wait: bool,
    /// Give up after this long: 10s, 1h30m, or seconds; the default is never
    #[arg(short, long, value_name = "TIME", value_parser = span, allow_hyphen_values = true)]
    wait: Option<Duration>,
    /// How to wait: auto or spin
    ///
    /// auto waits in a queue, in the order of arrival: a release hands the lock to
    /// the first waiter. If the server forbids what the queue needs, auto polls.
    /// spin always polls: for names that are shared with programs of other
    /// libraries.
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = wait_mode, verbatim_doc_comment)]
    wait_mode: WaitMode,
    /// Exit status when the lock is held
    #[arg(short = 'E', long, value_name = "N", default_value_t = 1)]
    conflict_exit_code: u8,
    /// How soon the lock is free if this machine dies; 100ms to 366d
    ///
    /// Not longer than the store's max_ttl, which is 60s in a quorum unless its
    /// URL says otherwise.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = span,
        allow_hyphen_values = true, verbatim_doc_comment)]
    ttl: Duration,
    #[command(flatten)]
    store: Store,
    /// Leave the lock held until this long after it was acquired
    ///
    /// If the lock is held, leasehold gives up at once, unless --wait is set. A
    /// command that fails uses up the interval too. One that cannot be started does
    /// not. The interval is the ttl as well: 100ms to 366d, and not longer than the
    /// store's max_ttl, which is 60s in a quorum and with guard_data_loss unless the
    /// URL says otherwise. In a file, the interval ends when the machine restarts.
    /// Until then, show prints which machine and process ran the command, when, and
    /// its exit status.
    #[arg(long, value_name = "TIME", conflicts_with = "ttl", value_parser = span,
        allow_hyphen_values = true, verbatim_doc_comment)]
    once_per: Option<Duration>,
    /// How long the command has between SIGTERM and SIGKILL when the lock is at risk
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = span,
        allow_hyphen_values = true)]
    grace: Duration,
    /// The lock; any name
    #[arg(value_name = "NAME")]
    name: OsString,
    /// What to run while the lock is held
    #[arg(value_name = "COMMAND", required = true, last = true)]
    command: Vec<OsString>,
}

fn wait_mode(text: &str) -> Result<WaitMode, String> {
    text.parse().map_err(|error: Error| error.detail().to_owned())
}

/// As flock(1) has it, a bare number is seconds.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let bare = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let unit = if bare { "s" } else { "" };
    parse_duration(&format!("{text}{unit}")).map_err(|error| error.detail().to_owned())
}

impl Args {
    fn ttl(&self) -> Duration {
        self.once_per.unwrap_or(self.ttl)
    }

    /// How long the lock is waited for; zero is one try, and nothing is no limit.
    fn patience(&self) -> Option<Duration> {
        let tries_once = self.no_wait || self.once_per.is_some();
        self.wait.or(tries_once.then_some(Duration::ZERO))
    }
}

/// How all of it ends.
pub(crate) enum End {
    Exit(u8),
    /// ^C ended the wait; our whole job got it.
    InterruptedWait,
    /// ^C ended the command, which was in the foreground. Without us, the script or the pipeline
    /// that we are part of would have got it too.
    InterruptedCommand,
}

impl End {
    /// A signal ended the wait.
    pub(crate) fn of_wait(signal: Signal, terminal: Option<&Terminal>) -> End {
        match signal {
            Signal::SIGINT if terminal.is_some_and(Terminal::is_ours) => End::InterruptedWait,
            signal => End::Exit(exit::of_signal(signal)),
        }
    }
}

/// A command that runs under a lock.
pub(crate) struct Job<'a> {
    pub(crate) name: &'a OsStr,
    pub(crate) command: &'a [OsString],
    pub(crate) limits: Limits,
}

pub(crate) fn main(args: &Args) -> Result<u8, Failure> {
    with_client(&args.store, &args.command, |client, signals, terminal| {
        run(args, client, signals, terminal)
    })
}

/// Opens the store, does the work, and ends as that did.
pub(crate) fn with_client(
    store: &Store,
    command: &[OsString],
    work: impl FnOnce(&Client, &Signals, Option<&Terminal>) -> Result<End, Failure>,
) -> Result<u8, Failure> {
    // First of all: the client starts threads.
    let signals = Signals::watch().map_err(|error| Failure::system("signals", error))?;
    // Without its arguments, which may hold a password.
    let program = command.first().and_then(|word| Path::new(word).file_name());
    let program = program.unwrap_or_default().to_string_lossy();
    let client = Client::with_config(store.config()?.program(program))?;
    let terminal = Terminal::open();
    let end = work(&client, &signals, terminal.as_ref());
    // Sends what is still owed to the store; it can only say that it had been closed already.
    let _ = client.close();
    match end? {
        End::Exit(code) => return Ok(code),
        End::InterruptedWait => {}
        End::InterruptedCommand => {
            let _ = killpg(getpgrp(), Signal::SIGINT);
        }
    }
    signals::end_interrupted();
    Ok(exit::of_signal(Signal::SIGINT))
}

fn run(
    args: &Args,
    client: &Client,
    signals: &Signals,
    terminal: Option<&Terminal>,
) -> Result<End, Failure> {
    let events = client.events()?;
    let lock = client.lock(args.name.as_bytes()).ttl(args.ttl()).renew(true).no_max_hold();
    let lease = match take(client, &lock.wait_mode(args.wait_mode), args.patience(), signals)? {
        Taken::Lease(lease) => lease,
        Taken::Busy(by) => {
            // As quiet as flock(1) where nothing was waited for, unless a user is there.
            let has_waited = args.patience() != Some(Duration::ZERO);
            if has_waited || !args.no_wait && io::stderr().is_terminal() {
                say(&format!("{} is taken{by}", plain(args.name.as_bytes())));
            }
            return Ok(End::Exit(args.conflict_exit_code));
        }
        Taken::Ended(signal) => return Ok(End::of_wait(signal, terminal)),
    };
    let taken = now();
    let mut run = Run { began: SystemTime::now(), ended: None, exit_status: None };
    if let Some(interval) = args.once_per {
        // Known before it begins, so that one whose machine dies is known, too.
        note_run(client, run, interval)?;
    }
    let limits = Limits::new(args.ttl(), args.grace);
    let job = Job { name: &args.name, command: &args.command, limits };
    let finished = guarded(&job, &lease, &events, signals, terminal)?;
    let left = args.once_per.map(|interval| (taken + interval).saturating_sub(now()));
    let over = match left {
        Some(left) if left >= limits::MIN_TTL => {
            run.ended = Some(SystemTime::now());
            run.exit_status = Some(exit::of_status(finished.status));
            let over = lease.let_expire_in(left);
            note_run(client, run, left)?;
            over
        }
        _ => lease.release(),
    };
    let mut lost = finished.told;
    if let Err(error) = over {
        // The guard that told the command to end may have said why.
        if !finished.explained {
            say(&error.to_string());
        }
        lost |= error.kind() == ErrorKind::Lost;
    }
    Ok(match finished {
        _ if lost => End::Exit(LOST),
        Finished { interrupted: true, .. } => End::InterruptedCommand,
        Finished { status, .. } => End::Exit(exit::of_status(status)),
    })
}

enum Taken {
    Lease(Lease),
    /// By whom, behind a comma, where a wait has found out.
    Busy(String),
    /// A signal ended the wait.
    Ended(Signal),
}

fn take(
    client: &Client,
    lock: &Lock,
    patience: Option<Duration>,
    signals: &Signals,
) -> Result<Taken, Error> {
    let lock = match patience {
        Some(Duration::ZERO) => {
            return Ok(lock
                .try_acquire()?
                .map_or_else(|| Taken::Busy(String::new()), Taken::Lease));
        }
        Some(limit) => lock.clone().wait(limit),
        None => lock.clone().wait_forever(),
    };
    let progress = Progress::start(client, &lock);
    let mut ended_by = None;
    let result = lock.acquire_unless(|| {
        ended_by = ended_by.or_else(|| end_of_wait(signals, &progress));
        ended_by.is_some()
    });
    match (result, ended_by) {
        (Ok(lease), _) => relied_on(lease).map(Taken::Lease),
        (Err(error), Some(signal)) if error.kind() == ErrorKind::Interrupted => {
            Ok(Taken::Ended(signal))
        }
        (Err(error), _) if error.kind() == ErrorKind::Timeout => {
            let named = format!("'{}'", plain(lock.name()));
            Ok(Taken::Busy(error.detail().strip_prefix(&named).unwrap_or_default().to_owned()))
        }
        (Err(error), _) => Err(error),
    }
}

/// A lease that was handed over is valid for the claim window only, until it is claimed in the
/// background; a command is not started on so little.
fn relied_on(lease: Lease) -> Result<Lease, Error> {
    match lease.extend() {
        Err(error) if error.kind() == ErrorKind::Lost => Err(error),
        // What it has is what the guard goes by.
        _ => Ok(lease),
    }
}

/// Does what the signals say that have arrived during a wait, up to one that ends it.
pub(crate) fn end_of_wait(signals: &Signals, progress: &Progress) -> Option<Signal> {
    while let Some(signal) = signals.read() {
        match signal {
            Signal::SIGTSTP => progress.hide_during(signals::suspend),
            Signal::SIGCHLD | Signal::SIGCONT | Signal::SIGWINCH => {}
            signal => return Some(signal),
        }
    }
    None
}

/// Runs the command to its end. A failure means that it did not run; the lease is given back.
pub(crate) fn guarded(
    job: &Job<'_>,
    lease: &dyn Held,
    events: &Events,
    signals: &Signals,
    terminal: Option<&Terminal>,
) -> Result<Finished, Failure> {
    let variables = [
        ("LEASEHOLD_NAME", job.name.to_owned()),
        ("LEASEHOLD_FENCE", lease.fence().to_string().into()),
    ];
    let in_front = terminal.filter(|terminal| terminal.is_wanted());
    let mut child = Child::spawn(job.command, variables, signals, in_front).map_err(|error| {
        Failure { code: exit::of_spawn(&error), message: not_run(job.command, &error) }
    })?;
    let guard = Guard {
        lease,
        events,
        signals,
        terminal,
        child: &mut child,
        in_front: in_front.is_some(),
        limits: job.limits,
        seen: Seen::default(),
    };
    guard.watch().map_err(|error| {
        child.signal(Signal::SIGKILL);
        Failure::system("watching over the command", error)
    })
}

/// Why the command could not be started, and what to type instead.
fn not_run(command: &[OsString], error: &io::Error) -> String {
    let program = command.first().map_or_else(String::new, |word| plain(word.as_bytes()));
    let said = format!("cannot run '{program}': {error}");
    if error.kind() != io::ErrorKind::NotFound {
        return said;
    }
    if let [line] = command
        && let Some(line) = line.to_str().filter(|line| !line.contains(char::is_control))
        && line.contains([' ', ';', '|', '&', '<', '>', '$', '*', '='])
    {
        let quoted = line.replace('\'', "'\\''");
        return format!("{said}; for a line of a shell, write sh -c '{quoted}'");
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use leasehold::Backoff;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parse(words: &[&str]) -> Result<Args, clap::Error> {
        Command::try_parse_from(["run"].iter().chain(words)).map(|run| run.args)
    }

    #[test]
    fn it_waits_as_it_was_told() {
        let patience =
            |words: &[&str]| parse(&[words, &["name", "--", "true"]].concat()).unwrap().patience();
        assert_eq!(patience(&[]), None);
        assert_eq!(patience(&["-n"]), Some(Duration::ZERO));
        assert_eq!(patience(&["-w", "1.5"]), Some(Duration::from_millis(1500)));
        assert_eq!(patience(&["--wait=5m"]), Some(Duration::from_secs(300)));
        assert_eq!(patience(&["--wait", "1m30s"]), Some(Duration::from_secs(90)));
        assert_eq!(patience(&["--once-per", "1h"]), Some(Duration::ZERO));
        assert_eq!(patience(&["--once-per", "1h", "-w5"]), Some(Duration::from_secs(5)));
    }

    #[test]
    fn it_waits_in_the_mode_that_it_was_told() {
        let mode =
            |words: &[&str]| parse(&[words, &["name", "--", "true"]].concat()).unwrap().wait_mode;
        assert_eq!(mode(&[]), WaitMode::Auto);
        assert_eq!(mode(&["--wait-mode", "auto"]), WaitMode::Auto);
        assert_eq!(mode(&["--wait-mode=spin"]), WaitMode::Spin(Backoff::default()));
    }

    #[test]
    fn the_command_keeps_its_own_options_and_dashes() {
        let command = |words: &[&str]| parse(words).unwrap().command;
        assert_eq!(
            command(&["n", "--", "git", "log", "-n", "1", "--", "f"]),
            ["git", "log", "-n", "1", "--", "f"]
        );
        assert!(parse(&["n", "sh", "-c", "true"]).is_err());
    }

    #[test]
    fn a_negative_time_is_refused_as_one() {
        for option in ["-w", "--wait", "--ttl", "--once-per", "--grace"] {
            for time in ["-1s", "-1"] {
                let said = parse(&[option, time, "n", "--", "true"]).err().unwrap().to_string();
                assert!(
                    said.contains(&format!("'{time}' is no duration: it is negative")),
                    "{said}"
                );
            }
        }
    }

    #[test]
    fn an_empty_time_is_refused_as_one() {
        let said = parse(&["--wait", "", "n", "--", "true"]).err().unwrap().to_string();
        assert!(said.contains("'' is no duration: "), "{said}");
    }

    #[test]
    fn contradictions_are_refused() {
        for words in [
            &["-n", "-w", "1s", "n", "--", "true"][..],
            &["-w", "-1s", "n", "--", "true"],
            &["-w", "soon", "n", "--", "true"],
            &["-E", "256", "n", "--", "true"],
            &["--wait-mode", "left", "n", "--", "true"],
            &["--ttl", "1s", "--once-per", "1h", "n", "--", "true"],
            &["n"],
            &["n", "--"],
        ] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }
}
