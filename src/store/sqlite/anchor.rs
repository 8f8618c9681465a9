//! Whether the file under a name, and the log and the shared memory beside it, are still those that
//! were opened.
//!
//! Others find all three by their names. SQLite's own locks are on the shared memory. Whoever goes
//! on with one of them that has lost its name, or with a file that has a second one and so a second
//! log, shares its locks with nobody.
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
    shm: PathBuf,
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
    shm: Identity,
}

impl Anchor {
    /// Of a file that was read, so that all three are there, and was this one before, with as many
    /// links. `None` if it is not any more.
    pub(super) fn cast(name: &Path, path: &Path, before: &Metadata) -> Option<Anchor> {
        let [log, shm] = ["-wal", "-shm"].map(|ending| beside(path, ending));
        let is_same = |seen: &Seen| (seen.file, seen.links) == (identity(before), before.nlink());
        let seen = see(name, &log, &shm).ok().filter(is_same)?;
        let [name, path] = [name, path].map(Path::to_owned);
        Some(Anchor { name, path, log, shm, seen, lost: AtomicBool::new(false) })
    }

    /// Once it does not, it never does again: meanwhile others may have met elsewhere.
    pub(super) fn holds(&self) -> bool {
        let holds = !self.lost.load(Ordering::Acquire)
            && see(&self.name, &self.log, &self.shm).is_ok_and(|seen| seen == self.seen);
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
        let what = "it, its -wal or its -shm was moved, deleted or replaced, or it got another link, \
                    while it was open";
        Error::new(ErrorKind::Unavailable, format!("{}: {what}", self.path.display()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether SQLite would take what this one has for a part of what is opened there.
    pub(super) fn concerns(&self, path: &Path, file: &Metadata) -> bool {
        self.path == path || self.seen.file == identity(file)
    }

    /// The log, where it was left behind for another file, to which SQLite would apply it. (The
    /// shared memory is made anew by whoever opens it while nobody else has it open.)
    pub(super) fn orphan(&self) -> Option<&Path> {
        let there = |path| fs::metadata(path).ok().map(|found| identity(&found));
        let replaced = there(&self.path).is_some_and(|file| file != self.seen.file);
        (replaced && there(&self.log) == Some(self.seen.log)).then_some(&*self.log)
    }
}

fn see(name: &Path, log: &Path, shm: &Path) -> io::Result<Seen> {
    let file = fs::metadata(name)?;
    let (log, shm) = (identity(&fs::metadata(log)?), identity(&fs::metadata(shm)?));
    Ok(Seen { file: identity(&file), links: file.nlink(), log, shm })
}

fn identity(found: &Metadata) -> Identity {
    (found.dev(), found.ino())
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}
