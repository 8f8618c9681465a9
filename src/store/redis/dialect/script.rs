//! Scripts, each in files of its own.

use once_cell::race::OnceBox;
use redis::ServerError;

use super::fault;
use crate::error::{Error, ErrorKind};

/// A script of these pieces, one behind the other. A piece sees the locals of those in front of it: its
/// head says which it needs, and which it leaves to those behind it. Lines that are comments stay out of
/// what is sent, and out of the library.
macro_rules! script {
    ($($file:literal),+) => {{
        const TEXT: &str = concat!($(include_str!($file)),+);
        const CODE: [u8; Script::code_length(TEXT)] = Script::code(TEXT);
        Script::new(match std::str::from_utf8(&CODE) {
            Ok(code) => code,
            Err(_) => panic!("whole lines of a text are a text"),
        })
    }};
}
pub(in crate::store) use script;

pub(in crate::store) struct Script {
    pub(in crate::store::redis) source: &'static str,
    digest: OnceBox<String>,
    /// It is given the guard's key and arguments.
    pub(super) is_guarded: bool,
    /// Loaded along with it: needed later, when it may be too late to hear that it is missing.
    pub(in crate::store::redis) follower: Option<&'static Script>,
}

impl Script {
    pub(in crate::store) const fn new(source: &'static str) -> Script {
        Script { source, digest: OnceBox::new(), is_guarded: false, follower: None }
    }

    /// How much of the text is no comment line. A line that only looks like one, inside of a string or of a
    /// comment that began before, would be lost: a script that has either does not compile.
    pub(in crate::store) const fn code_length(text: &str) -> usize {
        let (mut rest, mut length) = (text.as_bytes(), 0);
        while !rest.is_empty() {
            let (line, others) = rest.split_at(line_length(rest));
            assert!(
                !may_go_on(line),
                "a string or a comment of a script may not go on in the next line"
            );
            length += if is_comment(line) { 0 } else { line.len() };
            rest = others;
        }
        length
    }

    pub(in crate::store) const fn code<const LENGTH: usize>(text: &str) -> [u8; LENGTH] {
        let (mut rest, mut code, mut length) = (text.as_bytes(), [0; LENGTH], 0);
        while !rest.is_empty() {
            let (line, others) = rest.split_at(line_length(rest));
            if !is_comment(line) {
                let (_, free) = code.split_at_mut(length);
                free.split_at_mut(line.len()).0.copy_from_slice(line);
                length += line.len();
            }
            rest = others;
        }
        code
    }

    pub(in crate::store) const fn guarded(mut self) -> Script {
        self.is_guarded = true;
        self
    }

    pub(in crate::store) const fn leading(mut self, follower: &'static Script) -> Script {
        self.follower = Some(follower);
        self
    }

    pub(in crate::store::redis) fn digest(&self) -> &str {
        self.digest.get_or_init(|| Box::new(redis::Script::new(self.source).get_hash().to_owned()))
    }

    /// An error that it ended with; one about a right says which command lacks it.
    pub(in crate::store) fn explain(&self, error: &ServerError) -> Error {
        let explained = fault::server(error);
        match self.command_of(explained.detail()) {
            Some(command) if explained.kind() == ErrorKind::Permission => {
                fault::forbidden(command, &explained)
            }
            _ => explained,
        }
    }

    /// The command that an error of this script is about. Servers before 7.2 only tell the line
    /// (`@user_script:12`) of a command that they forbid.
    fn command_of(&self, error: &str) -> Option<&'static str> {
        let (_, place) = error.rsplit_once("user_script:")?;
        let digits = place.trim_start();
        let digits = &digits[..digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len())];
        let line = self.source.lines().nth(digits.parse::<usize>().ok()?.checked_sub(1)?)?;
        line.split_once("call('")?.1.split_once('\'').map(|(command, _)| command)
    }
}

/// Of the first line, with its end.
const fn line_length(text: &[u8]) -> usize {
    let mut length = 0;
    while length < text.len() {
        length += 1;
        if text[length - 1] == b'\n' {
            break;
        }
    }
    length
}

const fn is_comment(line: &[u8]) -> bool {
    matches!(line.trim_ascii_start(), [b'-', b'-', ..])
}

/// Whether a string or a comment of Lua may begin in this line that does not end in it: a long bracket (`[[`,
/// `[=[`), or a backslash in front of the end of the line or of a `z`.
const fn may_go_on(line: &[u8]) -> bool {
    if is_comment(line) {
        return matches!(line.trim_ascii_start(), [b'-', b'-', b'[', b'[' | b'=', ..]);
    }
    let mut rest = line;
    while let [first, others @ ..] = rest {
        if matches!(
            (*first, others),
            (b'[', [b'[' | b'=', ..]) | (b'\\', [b'\r' | b'\n' | b'z', ..])
        ) {
            return true;
        }
        rest = others;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_has_no_comment_lines() {
        const TEXT: &str = "-- why\nlocal a = 1 -- so\n\n  -- \u{fc}\nreturn '--'\n--";
        const CODE: [u8; Script::code_length(TEXT)] = Script::code(TEXT);
        assert_eq!(str::from_utf8(&CODE), Ok("local a = 1 -- so\n\nreturn '--'\n"));
        static ALL: Script = script!("lock.lua");
        let text = include_str!("lock.lua");
        let is_code = |line: &&str| !line.trim_start().starts_with("--");
        assert!(text.lines().any(|line| !is_code(&line)));
        assert!(ALL.source.lines().eq(text.lines().filter(is_code)));
    }

    #[test]
    fn a_script_in_which_a_line_only_looks_like_a_comment_does_not_compile() {
        let compiles = |text: &str| std::panic::catch_unwind(|| Script::code_length(text)).is_ok();
        for text in [
            "--[[\nreturn 1\n--]]\nreturn 2",
            "--[==[\n-- so\n]==]",
            "return 1 --[[ and\n-- so ]]",
            "return [[\n-- a text\n]]",
            "return [=[\n--\n]=]",
            "return 'a\\\n-- a text'",
            "return 'a\\z\n  -- a text'",
        ] {
            assert!(!compiles(text), "{text}");
        }
        for text in ["--[ [[", "-- a [[ b ]]\nreturn a[b[1]] -- '--'", "return '\\n--', '^[%[]'"] {
            assert!(compiles(text), "{text}");
        }
    }

    #[test]
    fn a_forbidden_command_is_found_by_its_line() {
        static SCRIPT: Script = Script::new("-- why\nlocal t = redis.pcall('TIME')\nreturn 1");
        let found = |error| SCRIPT.command_of(error);
        assert_eq!(found("can't run this command script: 00ff, on @user_script:2."), Some("TIME"));
        assert_eq!(found("f_00ff): @user_script:2: @user_script: 2: can't run"), Some("TIME"));
        for other in ["", "on @user_script:3.", "on @user_script:99.", "on @user_script:x"] {
            assert_eq!(found(other), None, "{other}");
        }
    }
}
