//! Scripts, each in files of its own.

use once_cell::race::OnceBox;
use redis::ServerError;

use super::fault;
use crate::error::{Error, ErrorKind};

/// A script of these pieces, one behind the other. A piece sees the locals of those in front of it: its
/// head says which it needs, and which it leaves to those behind it.
macro_rules! script {
    ($($file:literal),+) => {
        Script::new(concat!($(include_str!($file)),+))
    };
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

#[cfg(test)]
mod tests {
    use super::*;

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
