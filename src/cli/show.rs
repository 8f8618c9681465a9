//! `leasehold show`: who has a lock, and who waits for it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::command::plain;
use leasehold::{ClientInfo, Holder, LockState, Run};
use serde_json::{Value, json};

use crate::exit::{Failure, print};
use crate::local_time::LocalTime;
use crate::store::Store;

/// Show who holds a lock and who waits for it; changes nothing
///
/// Exit status: 0 whether it is held or free, 64 usage, 69 no store.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  leasehold show nightly\n  \
        leasehold show --json nightly | jq -r 'select(.held) | .client.host'")]
pub(crate) struct Args {
    #[command(flatten)]
    store: Store,
    /// Print one line of JSON
    ///
    /// Its keys: name, held, token_prefix, ttl_ms, fence, last_fence, held_ms,
    /// client, waiters (a list with token_prefix, waited_ms and client of each, in
    /// their order) and more_waiters. A client has id, host, pid, program, language,
    /// version, label, started_ms and run: began_ms, ended_ms and exit_status of what
    /// run --once-per has run there. A value that is not known is null.
    #[arg(long, verbatim_doc_comment)]
    json: bool,
    /// The lock
    #[arg(value_name = "NAME")]
    name: OsString,
}

pub(crate) fn main(args: &Args) -> Result<u8, Failure> {
    let name = args.name.as_bytes();
    let shown = args.store.open()?.lock(name).inspect()?;
    let lines = match args.json {
        true => machine(name, &shown).to_string(),
        false => human(name, &shown),
    };
    print(&(lines + "\n"))?;
    Ok(0)
}

fn machine(name: &[u8], shown: &LockState) -> Value {
    let waiters: Vec<_> = shown
        .waiters
        .iter()
        .map(|waiter| {
            json!({
                "token_prefix": waiter.token_prefix,
                "waited_ms": waiter.waited.map(millis),
                "client": waiter.client.as_ref().map(client),
            })
        })
        .collect();
    let mut object = holder_of(name, shown);
    object["waiters"] = json!(waiters);
    object["more_waiters"] = json!(shown.more_waiters);
    object
}

/// The same without those who wait.
pub(crate) fn holder_of(name: &[u8], shown: &LockState) -> Value {
    let holder = shown.holder.as_ref();
    let mut object = name_of(name);
    object["held"] = json!(holder.is_some());
    let token = holder.filter(|holder| holder.fence.is_some()).map(|it| &it.token_prefix);
    object["token_prefix"] = json!(token);
    object["ttl_ms"] = json!(holder.map(|holder| millis(holder.ttl)));
    object["fence"] = json!(holder.and_then(|holder| holder.fence));
    object["last_fence"] = json!(shown.last_fence);
    object["held_ms"] = json!(holder.and_then(|holder| holder.held).map(millis));
    object["client"] = json!(holder.and_then(|holder| holder.client.as_ref()).map(client));
    object
}

/// An object that has a name in full, which may be any bytes.
pub(crate) fn name_of(name: &[u8]) -> Value {
    let mut object = json!({ "name": String::from_utf8_lossy(name) });
    if std::str::from_utf8(name).is_err() {
        let hex: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
        object["name_hex"] = json!(hex);
    }
    object
}

pub(crate) fn client(client: &ClientInfo) -> Value {
    let ClientInfo { id, host, pid, program, language, version, label, started, run, .. } = client;
    let since_1970 = |at: SystemTime| at.duration_since(UNIX_EPOCH).ok().map(millis);
    let run = run.map(|run| {
        json!({
            "began_ms": since_1970(run.began), "ended_ms": run.ended.and_then(since_1970),
            "exit_status": run.exit_status,
        })
    });
    json!({
        "id": id, "host": host, "pid": pid, "program": program, "language": language,
        "version": version, "label": label, "started_ms": started.and_then(since_1970), "run": run,
    })
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// For people, with a line for each who waits.
pub(crate) fn human(name: &[u8], shown: &LockState) -> String {
    let name = plain(name);
    let mut lines = match (&shown.holder, shown.last_fence) {
        (Some(holder), _) => {
            let left = seconds(holder.ttl);
            let id = id(holder.client.as_ref());
            let renewed = if has_ended(holder).is_some() { "" } else { " unless renewed" };
            format!("{name}: {}{id}, free in {left}{renewed}", who(holder))
        }
        (None, Some(fence)) => format!("{name}: free, last fence {fence}"),
        (None, None) => format!("{name}: free"),
    };
    for (waiter, place) in shown.waiters.iter().zip(1..) {
        lines += &format!("\n{place}. waits: {waiter}{}", id(waiter.client.as_ref()));
    }
    if shown.more_waiters > 0 {
        lines += &format!("\nand {} more", shown.more_waiters);
    }
    lines
}

/// The number of a client, where its name stands in its place.
fn id(client: Option<&ClientInfo>) -> String {
    client.map_or_else(String::new, |client| format!(", client {}", client.id))
}

/// Which holder it is, here and on the line of a wait. Without a fence it may be no lock at all, and
/// its value is nobody's business.
pub(crate) fn who(holder: &Holder) -> String {
    match holder.fence {
        Some(fence) => match has_ended(holder) {
            Some((client, run)) => format!("{}, fence {fence}", after(client, run)),
            None => format!("held by {holder}, fence {fence}"),
        },
        None => {
            "held without a fence: an application's own key, another library's lock, or one that \
                 was left taken for more than a day"
                .into()
        }
    }
}

/// The client and its run, where that is over and has left the lock taken.
fn has_ended(holder: &Holder) -> Option<(&ClientInfo, Run)> {
    let client = holder.client.as_ref()?;
    client.run.filter(|run| run.ended.is_some()).map(|run| (client, run))
}

fn after(client: &ClientInfo, run: Run) -> String {
    let clock = LocalTime::new();
    let ended = run.ended.map_or_else(String::new, |ended| clock.at(ended));
    let status = run.exit_status.map_or_else(|| "?".to_owned(), |status| status.to_string());
    let began = clock.at(run.began);
    format!("taken after a run of {client} from {began} to {ended}, exit status {status}")
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
