//! `leasehold init`: declares a new deployment, or makes its tables.

use crate::exit::{Failure, USAGE};
use crate::store::Store;

/// Declare that the servers of a new deployment are new
///
/// Servers that guard against lost data (those of a quorum, or with
/// guard_data_loss=yes in the URL) grant nothing at first, and after each restart:
/// they cannot know whether they have forgotten a lease that somebody relies on,
/// and wait until it must be over, as long as max_ttl. Where nothing has ever been
/// granted there is nothing to wait for. Say so once, before the first lock is
/// taken: all servers have to be reached, and grant locks from then on.
///
/// Never run this whenever a server starts, nor from a unit file or an entry point:
/// a server that has come back empty looks new, and would grant at once what
/// somebody still holds.
///
/// A server that waits already, or has come back with data, is refused, and so are
/// servers of a quorum that look new while others do not. One that grants locks
/// stays as it is.
///
/// A PostgreSQL or a MySQL needs tables for its locks, and a ZooKeeper a node, which no
/// program makes by itself: this prints what makes them, and with --apply makes them.
///
/// Exit status: 0 done, 64 usage or a store without that guard, 69 refused or
/// not reached.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:\n  \
        leasehold init --store redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3\n  \
        leasehold init --store postgres://admin@10.0.0.4/app --apply"
)]
pub(crate) struct Args {
    /// Declare that nobody relies on any lease, whatever the servers know
    ///
    /// When all programs that take locks there were stopped. With one of them still
    /// running, two can hold one lock.
    #[arg(long, verbatim_doc_comment)]
    force: bool,
    /// Make the tables of a PostgreSQL or a MySQL, or the node of a ZooKeeper, where missing
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
