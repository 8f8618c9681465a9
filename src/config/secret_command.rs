//! A command that prints a password.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{bad, secret};
use crate::clock::Deadline;
use crate::error::{Error, ErrorKind};

/// It may ask a cloud for a token, and is tried again.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Between two looks whether it has ended.
const LOOK: u16 = 10;
/// A shell would read them. Whoever writes one expects a shell.
const OF_SHELLS: &[char] = &['\'', '"', '\\', '$', '`', '|', ';', '<', '>', '&', '*'];

/// The words of a command: no shell reads them.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct SecretCommand(Vec<String>);

impl SecretCommand {
    pub(super) fn read(text: &str) -> Result<SecretCommand, Error> {
        if text.contains(OF_SHELLS) {
            return Err(bad(
                "no shell reads it: quotes, variables, pipes and patterns stand in a script, of which \
                 this is the path",
            ));
        }
        let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let Some(program) = words.first_mut() else {
            return Err(bad("it is a command and its arguments, with %20 between them"));
        };
        if program.contains('/') {
            // A program may change its folder before it logs in again.
            let path = std::path::absolute(&*program).ok();
            let path = path.and_then(|path| path.to_str().map(str::to_owned));
            *program = path.ok_or_else(|| bad("it begins with no path"))?;
        }
        Ok(SecretCommand(words))
    }

    /// Its arguments may be secrets.
    pub(super) fn program(&self) -> &str {
        self.0.first().map_or("", String::as_str)
    }

    /// The first line that it prints.
    ///
    /// # Errors
    /// [`ErrorKind::Auth`] with its name and how it ended, and nothing of what it printed.
    pub(super) fn run(&self) -> Result<String, Error> {
        let failed = |why: String| {
            let (program, mend) = (self.program(), "correct it, or password_command=");
            Err(Error::mended(
                ErrorKind::Auth,
                format!("the password command {program} {why}: {mend}"),
            ))
        };
        let spawned = Command::new(self.program())
            .args(self.0.iter().skip(1))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // With what it started, it can be ended as a whole.
            .process_group(0)
            .spawn();
        let mut child = match spawned {
            Ok(child) => child,
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EMFILE | libc::ENFILE | libc::EAGAIN | libc::ENOMEM)
                ) =>
            {
                let what = format!("the password command {}: {error}", self.program());
                return Err(Error::new(ErrorKind::Exhausted, what));
            }
            Err(error) => return failed(format!("cannot be run: {error}")),
        };
        let mut said = Vec::new();
        let ended = child.stdout.take().map_or(Ok(None), |mut out| {
            wait(&mut child, &mut out, &mut said, Deadline::after(TIMEOUT))
        });
        match ended {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                end(&mut child);
                return failed(format!("has not ended within {} s", TIMEOUT.as_secs()));
            }
            Err(error) => {
                end(&mut child);
                return failed(format!("cannot be read: {error}"));
            }
            Ok(Some(status)) if !status.success() => {
                return failed(format!("ended with {status}"));
            }
            // None: the program waits for all of its children itself, and has seen how this one ended.
            Ok(_) => {}
        }
        let Ok(said) = String::from_utf8(said) else { return failed("printed no UTF-8".into()) };
        let line = said.split('\n').next().unwrap_or_default();
        match line.strip_suffix('\r').unwrap_or(line) {
            "" => failed("printed no password in its first line".into()),
            line if line.len() as u64 > secret::MOST_BYTES => {
                failed("printed too long a line".into())
            }
            line => Ok(line.to_owned()),
        }
    }
}

/// Reads what it prints until it has ended; what is too much is not kept.
fn wait(
    child: &mut Child,
    out: &mut ChildStdout,
    said: &mut Vec<u8>,
    deadline: Deadline,
) -> io::Result<Option<ExitStatus>> {
    let (mut room, mut is_open) = ([0; 4096], true);
    loop {
        let ended = match child.try_wait() {
            Ok(ended) => ended.map(Some),
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Some(None),
            Err(error) => return Err(error),
        };
        // What it has printed by its end lies in the pipe; who inherited that may print for ever.
        let look = if ended.is_some() { PollTimeout::ZERO } else { PollTimeout::from(LOOK) };
        loop {
            let mut fds = [PollFd::new(out.as_fd(), PollFlags::POLLIN)];
            let fds = if is_open { &mut fds[..] } else { &mut [] };
            if !poll(fds, look).is_ok_and(|ready| ready > 0)
                || said.len() as u64 > 2 * secret::MOST_BYTES
            {
                break;
            }
            match out.read(&mut room)? {
                0 => is_open = false,
                count if said.len() as u64 <= secret::MOST_BYTES => {
                    said.extend_from_slice(&room[..count]);
                }
                _ => {}
            }
            if ended.is_none() {
                break;
            }
        }
        if let Some(status) = ended {
            return Ok(status);
        }
        if deadline.has_passed() {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

fn end(child: &mut Child) {
    if let Ok(group) = i32::try_from(child.id()) {
        let group = nix::unistd::Pid::from_raw(group);
        let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
    }
    let _ = child.wait();
}

/// Its arguments may be secrets.
impl std::fmt::Debug for SecretCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretCommand")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another process writes it: where this one has it open, so has for a moment whatever other tests
    /// start just now, and what is open for writing cannot be run.
    fn script(folder: &std::path::Path, text: &str) -> SecretCommand {
        let path = folder.join("script");
        let write = r#"printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod 700 "$1""#;
        let mut shell = Command::new("sh");
        shell.args(["-c", write, "sh"]).arg(&path).arg(text);
        assert!(shell.status().unwrap().success());
        SecretCommand::read(&format!("{} a  b", path.display())).unwrap()
    }

    #[test]
    fn a_password_is_the_first_line_that_a_command_prints() {
        let folder = tempfile::tempdir().unwrap();
        for (text, password) in [
            ("echo s3cret", "s3cret"),
            ("printf 'c\\r\\nmore\\n'", "c"),
            ("printf \"$# $2\"", "2 b"),
            ("echo $(head -c 20 | wc -c); echo second; echo third >&2", "0"),
            // What it left behind keeps the pipe open.
            ("sleep 60 & echo early", "early"),
            ("echo first; head -c 300000 /dev/zero", "first"),
        ] {
            let said = script(folder.path(), text).run();
            assert_eq!(said.unwrap(), password, "{text}");
        }
        assert_eq!(SecretCommand::read("echo in the path").unwrap().run().unwrap(), "in the path");
    }

    #[test]
    fn a_command_that_fails_is_named_with_its_status_and_nothing_that_it_printed_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        for (text, why) in [
            ("echo hunter2; exit 3", "ended with exit status: 3"),
            ("echo hunter2; kill -9 $$", "ended with signal: 9"),
            (":", "printed no password in its first line"),
            ("echo; echo hunter2", "printed no password in its first line"),
            ("printf 'hunter2\\377'", "printed no UTF-8"),
            ("head -c 70000 /dev/zero | tr '\\0' h", "printed too long a line"),
        ] {
            let error = script(folder.path(), text).run().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Auth);
            let said = error.to_string();
            assert!(said.contains(&format!("script {why}")), "{said}");
            assert!(!said.contains("hunter2") && !said.contains("hhh"), "{said}");
        }
        let missing = SecretCommand::read("/no/such/command hunter2").unwrap().run().unwrap_err();
        let said = missing.to_string();
        assert!(said.contains("/no/such/command cannot be run: No such file"), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }

    #[test]
    fn no_shell_reads_a_command_and_who_expects_one_is_told() {
        for text in ["echo $HOME", "vault 'a b'", "a | b", "a; b", "echo *", "a > b", "`a`"] {
            let error = SecretCommand::read(text).unwrap_err();
            assert!(error.detail().contains("no shell reads it"), "{text}: {error}");
        }
        assert!(SecretCommand::read(" ").unwrap_err().detail().contains("a command"));
    }
}
