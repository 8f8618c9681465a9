//! The `leasehold` command: the lock for shells, with the habits of flock(1).

mod breaking;
mod doctor;
mod elect;
mod exit;
mod init;
mod local_time;
mod ls;
mod pages;
mod run;
mod show;
mod signals;
mod store;
mod top;
mod watch;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use env_logger::Logger;
use log::{Level, Log, Metadata, Record};

use exit::{Failure, USAGE};

/// One lock for programs on many machines
#[derive(Parser)]
#[command(
    name = "leasehold",
    version,
    disable_help_subcommand = true,
    after_help = "Examples:\n  \
        leasehold run nightly -- ./backup.sh\n  \
        leasehold run --wait 5s stock:sku-17 -- sh -c './charge --fence \"$LEASEHOLD_FENCE\"'\n  \
        leasehold elect collector -- ./collect\n  \
        leasehold show nightly\n  \
        leasehold ls 'stock:*'\n  \
        leasehold watch nightly\n  \
        leasehold break nightly\n\n\
        The store is --store URL, else $LEASEHOLD_URL (redis://host, rediss://, unix://, \
        sqlite://,\npostgres://, mysql://, zookeeper://, etcd://, redis+sentinel://, redis+cluster://, or several with\ncommas), else the url of \
        /etc/leasehold.conf, else, as with --local, a file in your own state folder:\nother users have another one. \
        LEASEHOLD_REQUIRE_URL=1 makes a missing URL an error."
)]
struct Cli {
    /// Print more on standard error: connections, and releases that are still to be confirmed
    #[arg(short, long, global = true)]
    verbose: bool,
    #[command(subcommand)]
    command: Command,
}

/// One variant for each subcommand; each has a file of its own.
#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Elect(elect::Args),
    Show(show::Args),
    Ls(ls::Args),
    Watch(watch::Args),
    Top(top::Args),
    #[command(name = "break")]
    Break(breaking::Args),
    Init(init::Args),
    Doctor(doctor::Args),
    Pages(pages::Args),
}

/// The keeper's warnings are of the lease that `run` watches over, and says itself.
const USUAL: &str = "error,leasehold=warn,leasehold::keeper=error";

/// Says on standard error what the library logs; RUST_LOG may ask for more, not for less.
struct Listener {
    usual: Logger,
    asked: Logger,
}

impl Log for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.usual.enabled(metadata) || self.asked.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        let log = if self.usual.matches(record) { &self.usual } else { &self.asked };
        log.log(record);
    }

    fn flush(&self) {}
}

fn listen_to_the_log(verbose: bool) {
    // The line of a wait is cleared first; it is drawn again soon.
    let clear = if io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
    let logger = |filters: &str| {
        let mut log = env_logger::Builder::new();
        log.parse_filters(filters).format(move |out, record| match record.level() {
            Level::Error | Level::Warn => writeln!(out, "{clear}leasehold: {}", record.args()),
            level => writeln!(out, "{clear}leasehold: {level}: {}", record.args()),
        });
        log.build()
    };
    let usual = logger(if verbose { "error,leasehold=debug" } else { USUAL });
    let asked = logger(&std::env::var("RUST_LOG").unwrap_or_default());
    log::set_max_level(usual.filter().max(asked.filter()));
    // It is the first and only one.
    let _ = log::set_boxed_logger(Box::new(Listener { usual, asked }));
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // An error while writing an error has nowhere to go.
            let _ = error.print();
            // Help and version are asked for; everything else is a mistake.
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    listen_to_the_log(cli.verbose);
    let result = match cli.command {
        Command::Run(args) => run::main(&args),
        Command::Elect(args) => elect::main(&args),
        Command::Show(args) => show::main(&args),
        Command::Ls(args) => ls::main(&args),
        Command::Watch(args) => watch::main(&args),
        Command::Top(args) => top::main(&args),
        Command::Break(args) => breaking::main(&args),
        Command::Init(args) => init::main(&args),
        Command::Doctor(args) => doctor::main(&args),
        Command::Pages(args) => pages::main(&args, Cli::command()),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(Failure { code, message }) => {
            exit::say(&message);
            ExitCode::from(code)
        }
    }
}
