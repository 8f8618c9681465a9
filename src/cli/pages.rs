//! `leasehold pages`: the manual pages and what shells complete, for those who make packages.

use std::fs;
use std::path::PathBuf;

use clap::Command;
use clap_complete::Shell;

use crate::exit::Failure;

/// Write manual pages and completions for bash, zsh and fish, for a package
#[derive(clap::Args)]
#[command(hide = true, after_help = "Examples:\n  leasehold pages target/pages")]
pub(crate) struct Args {
    /// Where to; made if it is missing
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

pub(crate) fn main(args: &Args, mut command: Command) -> Result<u8, Failure> {
    let wrong = |error| Failure::system(&args.folder.display().to_string(), error);
    fs::create_dir_all(&args.folder).map_err(wrong)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, "leasehold", &args.folder)
            .map_err(wrong)?;
    }
    clap_mangen::generate_to(command, &args.folder).map_err(wrong)?;
    Ok(0)
}
