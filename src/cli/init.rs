//! `leasehold init`: declares a new deployment, or makes its tables.

use crate::exit::{Failure, USAGE};
use crate::store::Store;

/// Declare that the servers of a new deployment are new
///
/// Some servers guard against lost data: those of a quorum, or with
/// guard_data_loss=yes in the URL. They grant nothing at first, and nothing after
/// each restart, for as long as max_ttl. They cannot know whether they have
/// forgotten a lease that a client still relies on. Where no lock was ever granted,
/// they need not wait. Run init once, before the first lock is acquired. It has to
/// reach all servers, and they grant locks from then on.
///
/// Never run init each time a server starts, from a unit file or an entry point. A
/// server that has come back empty looks new, and would grant at once a lock that
/// another client still holds.
///
/// init refuses a server that waits already or has come back with data, and servers
/// of a quorum that look new while others do not. It leaves a server that grants
/// locks as it is.
///
/// A PostgreSQL or a MySQL needs tables for its locks, and a ZooKeeper a node. No
/// program makes them by itself. init prints the statements, and with --apply runs
/// them.
///
/// Exit status: 0 done; 64 usage, or a store without that guard; 69 refused, or not
/// reached.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:\n  \
        leasehold init --store redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3\n  \
        leasehold init --store postgres://admin@10.0.0.4/app --apply"
)]
pub(crate) struct Args {
    /// Declare that no client relies on any lease, whatever the servers know
    ///
    /// Stop all programs that use locks there first. If one still runs, two clients
    /// can hold one lock.
    #[arg(long, verbatim_doc_comment)]
    force: bool,
    /// Make the tables of a PostgreSQL or a MySQL, or the node of a ZooKeeper, if missing
    #[arg(long, conflicts_with = "force")]
    apply: bool,
    #[command(flatten)]
    store: Store,
}

pub(crate) fn main(args: &Args) -> Result<u8, Failure> {
    let client = args.store.open()?;
    match client.schema()? {
        Some(statements) if !args.apply => print!("{statements}"),
        None if args.apply => {
            let none = "--apply makes the tables or nodes that a store needs; this one needs none";
            return Err(Failure { code: USAGE, message: none.to_owned() });
        }
        _ => client.initialize(args.force)?,
    }
    Ok(0)
}
