//! How the command ends: exit codes as of sysexits(3), shells and flock(1), and what it says then.

use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use leasehold::{Error, ErrorKind};
use nix::sys::signal::Signal;

/// The command line or a URL is wrong.
pub(crate) const USAGE: u8 = 64;
/// The store, or something that this process needs, is not to be had.
const UNAVAILABLE: u8 = 69;
/// The lease was lost, so the command was stopped or ran without protection at its end.
pub(crate) const LOST: u8 = 75;

/// Why nothing was done: the exit code and a sentence.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { code: of_kind(error.kind()), message: error.to_string() }
    }
}

fn of_kind(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::BadArgument => USAGE,
        ErrorKind::Lost => LOST,
        _ => UNAVAILABLE,
    }
}

impl Failure {
    pub(crate) fn system(what: &str, error: impl Into<io::Error>) -> Failure {
        Failure { code: UNAVAILABLE, message: format!("{what}: {}", error.into()) }
    }
}

/// The code for a command that could not be started, as a shell has it.
pub(crate) fn of_spawn(error: &io::Error) -> u8 {
    match error.kind() {
        io::ErrorKind::NotFound => 127,
        _ => 126,
    }
}

/// The code for a command that ended, as a shell has it.
pub(crate) fn of_status(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

pub(crate) fn of_signal(signal: Signal) -> u8 {
    128 + signal as u8
}

/// Whether somebody reads it: who has closed the pipe has enough, and that is no failure.
pub(crate) fn print(lines: &str) -> Result<bool, Failure> {
    let mut out = io::stdout();
    match out.write_all(lines.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        written => {
            written.map(|()| true).map_err(|error| Failure::system("standard output", error))
        }
    }
}

/// One line on standard error; nobody can be told of an error there.
pub(crate) fn say(message: &str) {
    let _ = writeln!(io::stderr(), "leasehold: {message}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold::Client;

    #[test]
    fn codes_are_those_of_a_shell() {
        assert_eq!(of_status(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(of_status(ExitStatus::from_raw(0)), 0);
        assert_eq!(of_status(ExitStatus::from_raw(15)), 143);
        // A real-time signal, with a core dump.
        assert_eq!(of_status(ExitStatus::from_raw(64 | 0x80)), 192);
        assert_eq!(of_spawn(&io::Error::from_raw_os_error(libc::ENOENT)), 127);
        assert_eq!(of_spawn(&io::Error::from_raw_os_error(libc::EACCES)), 126);
    }

    #[test]
    fn a_wrong_url_is_a_mistake_of_usage() {
        let failure = Failure::from(Client::open("gopher://there").unwrap_err());
        assert_eq!(failure.code, USAGE);
    }

    #[test]
    fn a_store_that_is_not_all_there_is_no_mistake_of_usage() {
        for kind in [ErrorKind::NoQuorum, ErrorKind::NotReplicated] {
            assert_eq!(of_kind(kind), UNAVAILABLE);
        }
    }
}
