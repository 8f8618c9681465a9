//! Whether the file under a name, and the log beside it, are still those that were opened.
//!
//! Others find both by their names. Whoever goes on with a file or a log that has lost its name, or
//! with a file that has a second one and so a second log, shares its locks with nobody.
//!
//! Files are only looked at here, never opened: to close any descriptor of a file drops all locks
//! that this process has on it.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, ErrorKind};

pub(super) struct Anchor {
    /// As it was given; a symbolic link in it may lead elsewhere by now.
    name: PathBuf,
    /// Where that led.
    path: PathBuf,
    log: PathBuf,
    seen: Seen,
    lost: AtomicBool,
}

/// Device and inode.
type Identity = (u64, u64);

#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    file: Identity,
    links: u64,
    log: Identity,
}

impl Anchor {
    /// Of a file that is open, and was this one before. `None` if it is not any more.
    pub(super) fn cast(name: &Path, path: &Path, before: &Metadata) -> Option<Anchor> {
        let log = beside(path);
        let seen = see(name, &log).ok().filter(|seen| seen.file == identity(before))?;
        let [name, path] = [name, path].map(Path::to_owned);
        Some(Anchor { name, path, log, seen, lost: AtomicBool::new(false) })
    }

    /// Once it does not, it never does again: meanwhile others may have met elsewhere.
    pub(super) fn holds(&self) -> bool {
        let holds = !self.lost.load(Ordering::Acquire)
            && see(&self.name, &self.log).is_ok_and(|seen| seen == self.seen);
        if !holds {
            self.lost.store(true, Ordering::Release);
        }
        holds
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        if self.holds() { Ok(()) } else { Err(self.gone()) }
    }

    /// The same as far as anybody has seen by now, without a look.
    pub(super) fn recall(&self) -> Result<(), Error> {
        if self.lost.load(Ordering::Acquire) { Err(self.gone()) } else { Ok(()) }
    }

    fn gone(&self) -> Error {
        let what = "it or its log was deleted or replaced while it was open";
        Error::new(ErrorKind::Unavailable, format!("{}: {what}", self.path.display()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether SQLite would take what this one has for a part of what is opened there.
    pub(super) fn concerns(&self, path: &Path, file: &Metadata) -> bool {
        self.path == path || self.seen.file == identity(file)
    }

    /// The log, where it was left behind for another file, to which SQLite would apply it.
    pub(super) fn orphan(&self) -> Option<&Path> {
        let there = |path| fs::metadata(path).ok().map(|found| identity(&found));
        let replaced = there(&self.path).is_some_and(|file| file != self.seen.file);
        (replaced && there(&self.log) == Some(self.seen.log)).then_some(&*self.log)
    }
}

fn see(name: &Path, log: &Path) -> io::Result<Seen> {
    let (file, log) = (fs::metadata(name)?, fs::metadata(log)?);
    Ok(Seen { file: identity(&file), links: file.nlink(), log: identity(&log) })
}

fn identity(found: &Metadata) -> Identity {
    (found.dev(), found.ino())
}

fn beside(path: &Path) -> PathBuf {
    let mut log = OsString::from(path);
    log.push("-wal");
    log.into()
}
