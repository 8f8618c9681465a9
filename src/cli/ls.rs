//! `leasehold ls`: what is locked.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use leasehold::Listed;
use serde_json::Value;

use crate::exit::{Failure, print};
use crate::show::{holder_of, human};
use crate::store::Store;

/// List the locks that are held; changes nothing
///
/// Prints one line for each lock that is held: its holder, fence and ttl, and how
/// many wait. Names come in the order of the store. On a Redis they have no order,
/// and a name that only other libraries use is not listed. ls asks for some hundred
/// names at a time, so a busy server bears it.
///
/// Exit status: 0 even if no lock is held, 64 usage, 69 no store.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:\n  leasehold ls\n  leasehold ls 'stock:*' --json | jq .name"
)]
pub(crate) struct Args {
    #[command(flatten)]
    store: Store,
    /// List free names too, as long as the store remembers their fences
    #[arg(short, long)]
    all: bool,
    /// Print one line of JSON for each lock
    ///
    /// Its keys: those of show, but with waiting (how many wait) in place of waiters.
    /// A name that is not UTF-8 has name_hex too.
    #[arg(long, verbatim_doc_comment)]
    json: bool,
    /// Which names: * matches anything, ? one character; a backslash quotes the next one
    #[arg(value_name = "PATTERN", default_value = "*", hide_default_value = true)]
    pattern: OsString,
}

pub(crate) fn main(args: &Args) -> Result<u8, Failure> {
    let client = args.store.open()?;
    let listing = client.list(args.pattern.as_bytes());
    for listed in if args.all { listing.all() } else { listing } {
        let line = line(&listed?, args.json);
        if !print(&(line + "\n"))? {
            return Ok(0);
        }
    }
    Ok(0)
}

fn line(listed: &Listed, json: bool) -> String {
    let Listed { name, state, waiting, .. } = listed;
    if json {
        let mut object = holder_of(name, state);
        object["waiting"] = Value::from(*waiting);
        return object.to_string();
    }
    let waiting = waiting.filter(|count| *count > 0);
    let waiting = waiting.map_or_else(String::new, |count| format!(", {count} waiting"));
    format!("{}{waiting}", human(name, state))
}
