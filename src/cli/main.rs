//! The `leasehold` command: the lock for shells, with the habits of flock(1).

mod exit;
mod init;
mod run;
mod show;
mod store;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
        leasehold show nightly\n\n\
        The store is --store URL, else $LEASEHOLD_URL (redis://host, rediss://, unix://, \
        sqlite://,\nredis+sentinel://, redis+cluster://, or several with commas),\nelse a file in your own state folder: \
        other users have another one."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// One variant for each subcommand; each has a file of its own.
#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Show(show::Args),
    Init(init::Args),
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
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("error"))
        .format_target(false)
        .init();
    let result = match cli.command {
        Command::Run(args) => run::main(&args),
        Command::Show(args) => show::main(&args),
        Command::Init(args) => init::main(&args),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(Failure { code, message }) => {
            exit::say(&message);
            ExitCode::from(code)
        }
    }
}
