//! `leasehold break`: frees a lock whose holder does not.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;

use leasehold::command::{break_shown, plain};
use leasehold::limits::MAX_FENCE;
use leasehold::{Break, Lock, LockState};
use nix::unistd::{Uid, User, gethostname};
use serde_json::json;

use crate::exit::{Failure, USAGE, print, say};
use crate::show::{human, name_of};
use crate::store::Store;

/// Nothing was broken.
const NOT_DONE: u8 = 1;

/// Free a lock that its holder does not release
///
/// The store hands the lock to the first waiter at once, under a larger fence.
/// Nothing stops the old holder until its next renewal, within a third of its ttl.
/// Until then two processes may work at the same time, and only a resource that
/// compares fences rejects the old one. If you can, stop the holder first. Its
/// event, error and log say who broke its lock.
///
/// On a terminal, break shows who holds the lock and asks. Then it breaks the lease
/// that was shown, and no later one.
///
/// Exit status: 0 broken; 1 the lock is free, or has another fence than --if-fence
/// says, or you answered no; 64 usage; 69 no store.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:\n  \
        leasehold break nightly\n  \
        leasehold break --yes --if-fence 1795455131000000 nightly"
)]
pub(crate) struct Args {
    #[command(flatten)]
    store: Store,
    /// Break only the lease with this fence, as show and ls print it
    #[arg(long, value_name = "N", value_parser = fence, allow_hyphen_values = true)]
    if_fence: Option<u64>,
    /// Do not ask: for scripts
    #[arg(short, long)]
    yes: bool,
    /// Print one line of JSON
    ///
    /// Its keys: name, outcome (broken, not_held, other_fence or declined), fence.
    #[arg(long, verbatim_doc_comment)]
    json: bool,
    /// The lock
    #[arg(value_name = "NAME")]
    name: OsString,
}

fn fence(text: &str) -> Result<u64, String> {
    let fence = text.parse().ok().filter(|fence| (1..=MAX_FENCE).contains(fence));
    fence.ok_or_else(|| {
        "a fence is a whole number of up to 16 digits: leasehold show says the holder's".to_owned()
    })
}

pub(crate) fn main(args: &Args) -> Result<u8, Failure> {
    let asks = !args.yes;
    if asks && !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        let message = "there is no terminal to ask on: --yes breaks without asking";
        return Err(Failure { code: USAGE, message: message.to_owned() });
    }
    let client = args.store.open()?;
    let lock = client.lock(args.name.as_bytes());
    let outcome =
        if asks { ask(args, &lock)? } else { Some(lock.break_held(args.if_fence, &us())?) };
    tell(args, outcome)
}

/// What came of it; `None` where the answer was no.
fn ask(args: &Args, lock: &Lock) -> Result<Option<Break>, Failure> {
    let shown = lock.inspect()?;
    let LockState { holder: Some(holder), .. } = &shown else {
        return Ok(Some(Break::NotHeld));
    };
    say(&human(args.name.as_bytes(), &shown));
    say("its holder continues until its next renewal tells it");
    let _ = write!(io::stderr(), "Break it? [y/N] ");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(|error| Failure::system("standard input", error))?;
    if !matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(None);
    }
    // Of the turns of one lease, only the store knows which fences they have.
    Ok(Some(match args.if_fence {
        Some(_) => lock.break_held(args.if_fence, &us())?,
        None => break_shown(lock, holder, &us())?,
    }))
}

fn tell(args: &Args, outcome: Option<Break>) -> Result<u8, Failure> {
    let name = args.name.as_bytes();
    let (code, word, fence) = match outcome {
        Some(Break::Broken { fence }) => (0, "broken", fence),
        Some(Break::OtherFence { fence }) => (NOT_DONE, "other_fence", fence),
        Some(_) => (NOT_DONE, "not_held", 0),
        None => (NOT_DONE, "declined", 0),
    };
    let line = match args.json {
        true => {
            let mut object = name_of(name);
            object["outcome"] = json!(word);
            object["fence"] = json!((fence != 0).then_some(fence));
            object.to_string()
        }
        false => said(name, outcome),
    };
    print(&(line + "\n"))?;
    Ok(code)
}

/// In a sentence.
pub(crate) fn said(name: &[u8], outcome: Option<Break>) -> String {
    let name = plain(name);
    match outcome {
        Some(Break::Broken { fence }) => {
            format!("{name}: broken, the lease with fence {fence} is over")
        }
        Some(Break::OtherFence { fence }) => {
            format!("{name}: not broken, another lease has it, with fence {fence}")
        }
        Some(_) => format!("{name}: not broken, the lock is free"),
        None => format!("{name}: not broken"),
    }
}

/// Who breaks it, as its holder will be told.
pub(crate) fn us() -> String {
    let uid = Uid::current();
    let user = User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name);
    let host =
        gethostname().map_or_else(|_| "?".into(), |host| host.to_string_lossy().into_owned());
    format!("{user}@{host}")
}
