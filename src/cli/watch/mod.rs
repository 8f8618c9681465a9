//! `leasehold watch`: what becomes of a lock, a line for each change.

mod changes;

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold::{Error, Lock};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};

use crate::exit::{Failure, print};
use crate::local_time::LocalTime;
use crate::show::{millis, name_of};
use crate::store::Store;
use changes::{Change, Note, Seen, Watched};
use leasehold::command::{last_breach, plain};

/// Print a line for each change of a lock
///
/// A line says who acquires the lock, releases it, is handed it, waits for it, stops
/// waiting or breaks it, and when it expires. watch polls the store and changes
/// nothing. It does not see what comes and goes between two polls. It ends when it
/// is interrupted, or when the reader closes its output.
///
/// Exit status: 0 the reader closed its output; 64 usage; 69 no store at the first
/// poll. If the store fails later, one line says so, and watch continues.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:\n  leasehold watch nightly\n  \
        leasehold watch --json nightly | jq -r 'select(.event == \"broken\") | .by'"
)]
pub(crate) struct Args {
    #[command(flatten)]
    store: Store,
    /// Time between two polls; 20ms to 1h
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = interval)]
    every: Duration,
    /// Print one line of JSON for each change
    ///
    /// Its keys: at_ms (since 1970), name, event, fence, token_prefix, ttl_ms, client
    /// (as in show), waiting, by and error. The events: held or free (at the first
    /// poll), taken, handed_over, given_back, expired, broken, passed_unseen, waits,
    /// waits_no_more, waiting (too many to be named) and unseen. A value that
    /// is not known is null.
    #[arg(long, verbatim_doc_comment)]
    json: bool,
    /// The lock
    #[arg(value_name = "NAME")]
    name: OsString,
}

/// Between two looks of those who go on looking.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let span = crate::run::span(text)?;
    let allowed = Duration::from_millis(20)..=Duration::from_secs(3600);
    allowed.contains(&span).then_some(span).ok_or_else(|| "it goes from 20ms to 1h".to_owned())
}

pub(crate) fn main(args: &Args) -> Result<u8, Failure> {
    let name = args.name.as_bytes();
    let lock = args.store.open()?.lock(name);
    let clock = LocalTime::new();
    let mut watched = Watched::default();
    loop {
        let changes = match look(&lock) {
            Ok(seen) => watched.seen(seen, || note(&lock)),
            Err(error) => Err(error),
        };
        let changes = match changes {
            Ok(changes) => changes,
            Err(error) if !watched.has_been_seen() => return Err(error.into()),
            Err(error) => watched.unseen(&error.to_string()).into_iter().collect(),
        };
        let mut lines = String::new();
        for Change { text, json } in changes {
            let line = match args.json {
                true => machine(name, json).to_string(),
                false => format!("{} {}: {text}", clock.now(), plain(name)),
            };
            lines.push_str(&(line + "\n"));
        }
        if !print(&lines)? || !is_read_after(args.every) {
            return Ok(0);
        }
    }
}

fn look(lock: &Lock) -> Result<Seen, Error> {
    let asked = Instant::now();
    let state = lock.inspect()?;
    Ok(Seen { state, asked, answered: Instant::now() })
}

/// A store that does not answer now is asked again; one that never tells knows of none.
fn note(lock: &Lock) -> Result<Option<Note>, Error> {
    let breach = match last_breach(lock) {
        Err(error) if error.is_retriable() => return Err(error),
        told => told.ok().flatten(),
    };
    Ok(breach.map(|breach| Note { token_prefix: breach.token_prefix, by: breach.by }))
}

fn machine(name: &[u8], mut object: Value) -> Value {
    object["at_ms"] = json!(SystemTime::now().duration_since(UNIX_EPOCH).map(millis).ok());
    if let (Value::Object(object), Value::Object(named)) = (&mut object, name_of(name)) {
        object.extend(named);
    }
    object
}

/// Pauses; `false` as soon as nobody has the other end of standard output.
pub(crate) fn is_read_after(pause: Duration) -> bool {
    let (end, out) = (Instant::now() + pause, io::stdout());
    loop {
        let left = end.saturating_duration_since(Instant::now());
        // Asked for nothing, it tells of errors and of the other end alone.
        let mut out = [PollFd::new(out.as_fd(), PollFlags::empty())];
        let limit = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut out, limit) {
            Err(Errno::EINTR) => {}
            Ok(0) if left.is_zero() || end <= Instant::now() => return true,
            Ok(0) => {}
            // It says so without end where nothing can be waited for: it is closed.
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_neither_a_storm_nor_forgotten() {
        assert_eq!(interval("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(interval("2"), Ok(Duration::from_secs(2)));
        assert!(interval("19ms").is_err() && interval("2h").is_err() && interval("soon").is_err());
    }
}
