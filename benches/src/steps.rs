//! Nothing but cycles, so that a tool can count what a process does for each: tests/steps.

use leasehold::Client;

use crate::limit::take;
use crate::measure::Outcome;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    url: String,
    #[arg(long)]
    cycles: u32,
    /// The release is not waited for
    #[arg(long)]
    deferred: bool,
}

pub(crate) fn run(args: &Args) -> Outcome<()> {
    let lock = Client::open(&args.url)?.lock("steps");
    for _ in 0..args.cycles {
        let lease = take(&lock)?;
        if args.deferred { drop(lease) } else { lease.release()? }
    }
    Ok(())
}
