//! How the embedded store is set up.

use std::path::{Path, PathBuf};

use super::bad;
use crate::error::Error;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SqliteConfig {
    pub(crate) path: PathBuf,
    /// `None`: a file that is there stays as it is, and a new one is for this user.
    pub(crate) sharing: Option<Sharing>,
}

/// Whose the file, and a folder that is made for it, are. There is nothing between reading and
/// writing: a token that can be read releases its lock, and without writing there is no log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sharing {
    User = 0o600,
    Group = 0o660,
    All = 0o666,
}

impl Sharing {
    pub(super) fn read(mode: &str) -> Result<Sharing, Error> {
        let is_it = |one: &Sharing| mode.trim_start_matches('0') == format!("{:o}", *one as u32);
        let mut all = [Sharing::User, Sharing::Group, Sharing::All].into_iter();
        all.find(is_it)
            .ok_or_else(|| bad("it is 0600 (this user), 0660 (a group) or 0666 (all users)"))
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn file(self) -> u32 {
        self as u32
    }

    /// In a folder with the set-group-ID bit, what each member of the group makes is the group's.
    #[cfg(feature = "sqlite")]
    pub(crate) fn folder(self) -> u32 {
        match self {
            Sharing::User => 0o700,
            Sharing::Group => 0o2770,
            Sharing::All => 0o777,
        }
    }
}

/// Where the embedded store lives: `$XDG_STATE_HOME/leasehold/locks.db`, one per user.
pub(crate) fn embedded_path() -> Result<PathBuf, Error> {
    let set = |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty());
    // The XDG rules: a relative path there is invalid and ignored.
    let state = set("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || set("HOME").map(|home| Path::new(&home).join(".local/state"));
    state.or_else(home).map(|state| state.join("leasehold/locks.db")).ok_or_else(|| {
        bad("the embedded store needs XDG_STATE_HOME or HOME; set one, or give a URL")
    })
}
