//! `leasehold show`: who has a lock.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use leasehold::{Holder, LockState};
use serde_json::json;

use crate::exit::{Failure, plain};
use crate::store::Store;

/// Show who has a lock, without touching it
///
/// Exit status: 0 whether it is held or free, 64 usage, 69 no store.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    store: Store,
    /// Print one line of JSON
    ///
    /// Its keys: name, held, token_prefix, ttl_ms, fence, last_fence; null where
    /// there is nothing to tell.
    #[arg(long, verbatim_doc_comment)]
    json: bool,
    /// The lock
    #[arg(value_name = "NAME")]
    name: OsString,
}

pub(crate) fn main(args: &Args) -> Result<u8, Failure> {
    let name = args.name.as_bytes();
    let shown = args.store.open()?.lock(name).inspect()?;
    let line = if args.json { machine(name, &shown) } else { human(name, &shown) };
    match writeln!(io::stdout(), "{line}") {
        // The reader has closed the pipe: it has enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        Err(error) => Err(Failure::system("standard output", error)),
        Ok(()) => Ok(0),
    }
}

fn machine(name: &[u8], shown: &LockState) -> String {
    let holder = shown.holder.as_ref();
    json!({
        "name": String::from_utf8_lossy(name),
        "held": holder.is_some(),
        "token_prefix": holder.filter(|holder| holder.fence.is_some()).map(|it| &it.token_prefix),
        "ttl_ms": holder.map(|holder| u64::try_from(holder.ttl.as_millis()).unwrap_or(u64::MAX)),
        "fence": holder.and_then(|holder| holder.fence),
        "last_fence": shown.last_fence,
    })
    .to_string()
}

fn human(name: &[u8], shown: &LockState) -> String {
    let name = plain(name);
    match (&shown.holder, shown.last_fence) {
        (Some(holder), _) => {
            let left = seconds(holder.ttl);
            format!("{name}: {}, free in {left} unless renewed", who(holder))
        }
        (None, Some(fence)) => format!("{name}: free, last fence {fence}"),
        (None, None) => format!("{name}: free"),
    }
}

/// Which holder it is, here and on the line of a wait. Without a fence it may be no lock at all, and
/// its value is nobody's business.
pub(crate) fn who(holder: &Holder) -> String {
    match holder.fence {
        Some(fence) => format!("held by {}, fence {fence}", plain(holder.token_prefix.as_bytes())),
        None => {
            "held without a fence: an application's own key, another library's lock, or one that \
                 was left taken for more than a day"
                .into()
        }
    }
}

/// Short and steady in width: tenths only where they matter.
pub(crate) fn seconds(span: Duration) -> String {
    match span.as_secs() {
        0..10 => format!("{:.1}s", span.as_secs_f64()),
        10..600 => format!("{}s", span.as_secs()),
        600..36_000 => format!("{}m", span.as_secs() / 60),
        _ => format!("{}h", span.as_secs() / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short() {
        let said = |seconds: f64| super::seconds(Duration::from_secs_f64(seconds));
        assert_eq!(said(0.25), "0.2s");
        assert_eq!(said(59.9), "59s");
        assert_eq!(said(3600.0), "60m");
        assert_eq!(said(86_400.0), "24h");
    }
}
