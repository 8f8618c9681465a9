//! Whether the file under a name, and the log and the shared memory beside it, are still those that
//! were opened.
//!
//! Other processes find all three by their names, so a process that goes on with one that has lost
//! its name, or with a file that has a second name and so a second log, shares its locks with nobody.
//!
//! Files are only looked at here, and not opened: to close any descriptor of a file drops all locks
//! that this process has on it. The log is no such file, since SQLite locks the two others only.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::disk::about;
use crate::error::{Error, ErrorKind};
use crate::fork::{self, OneProcess};
use crate::sync::Mutex;

/// What this process has open, of all clients. SQLite has one memory beside a log for the whole
/// process: with two logs of one name, one after the other, it would take one for the other.
static OPENED: Mutex<Vec<Weak<Files>>> = Mutex::new(Vec::new());

/// In a forked child: what is open there is the parent's. False where SQLite cannot begin anew.
pub(super) fn begin_anew(used_in: &OneProcess) -> bool {
    let mut opened = OPENED.lock();
    // Another thread may have been faster, and have a file open by now.
    if used_in.is_this() {
        return true;
    }
    if !fork::sqlite::begin_anew() {
        return false;
    }
    opened.clear();
    used_in.take_over();
    true
}

/// The schema that this program reads and writes; 0 while a new file has none yet.
pub(super) const SCHEMA: i32 = 1;

/// Noted as open until this is dropped, which has to be after the connections.
pub(super) struct Files {
    /// As it was given; a symbolic link in it may lead elsewhere by now.
    name: PathBuf,
    /// Where that led.
    pub(super) path: PathBuf,
    log: PathBuf,
    shm: PathBuf,
    seen: Seen,
    lost: AtomicBool,
    /// The log again, to sync it.
    pub(super) syncs: Arc<Syncs>,
}

/// The syncs of one log: of all clients of this process, since the kernel tells of what it could not
/// write once for each time that a file was opened, and all of them have to hear of it.
pub(super) struct Syncs {
    /// How many changes this process has committed to the log.
    committed: AtomicU64,
    known: Mutex<Known>,
}

struct Known {
    log: File,
    /// As many of the changes are on the disk.
    synced: u64,
    /// How many syncs failed. What they were to write may never be on the disk, and the kernel say nothing
    /// of it at the next sync; what comes behind it in the log is lost with it then.
    failed: u64,
    /// As many of those no longer matter, since the log began anew.
    mended: u64,
}

/// Syncs have failed, so many of them.
#[derive(Clone, Copy)]
pub(super) struct Doubt(u64);

impl Syncs {
    fn new(log: File) -> Syncs {
        let known = Mutex::new(Known { log, synced: 0, failed: 0, mended: 0 });
        Syncs { committed: AtomicU64::new(0), known }
    }

    /// Whatever has been committed by now, by this process or another, is on the disk afterwards:
    /// what is no longer in the log has been synced with the file. One sync is for all who wait for one.
    /// With a doubt, nothing is done.
    pub(super) fn sync(&self) -> io::Result<Option<Doubt>> {
        let own = self.committed.fetch_add(1, Ordering::AcqRel) + 1;
        let mut known = self.known.lock();
        if known.synced >= own {
            return Ok(None);
        }
        if known.failed > known.mended {
            return Ok(Some(Doubt(known.failed)));
        }
        let committed = self.committed.load(Ordering::Acquire);
        known.sync()?;
        known.synced = committed;
        Ok(None)
    }

    /// The log was copied into the file, that synced, and the log cut to nothing. False if another sync has
    /// failed since the doubt.
    pub(super) fn begins_anew(&self, Doubt(failed): Doubt) -> io::Result<bool> {
        let mut known = self.known.lock();
        if known.failed > failed {
            return Ok(false);
        }
        // After a crash, the log may else be as long as before.
        known.sync()?;
        known.mended = failed;
        Ok(true)
    }

    /// Syncs another file in the place of the log.
    #[cfg(test)]
    pub(super) fn replace(&self, log: File) -> File {
        std::mem::replace(&mut self.known.lock().log, log)
    }
}

impl Known {
    fn sync(&mut self) -> io::Result<()> {
        self.log.sync_data().inspect_err(|_| self.failed += 1)
    }
}

/// Device and inode.
type Identity = (u64, u64);

/// What the file, its log and its shared memory are, and how many links the file has.
type Seen = ([Identity; 3], u64);

impl Files {
    /// Of a file that was read, so that all three are there. `None` if it is not as it was before.
    pub(super) fn note(
        name: &Path,
        path: &Path,
        before: &Metadata,
    ) -> io::Result<Option<Arc<Files>>> {
        let [log, shm] = ["-wal", "-shm"].map(|ending| beside(path, ending));
        let Ok(seen) = see(name, &log, &shm) else { return Ok(None) };
        let ([file, log_seen, shm_seen], links) = seen;
        let is_as_before = (file, links) == (identity(before), before.nlink());
        if !is_as_before || log_seen == file || log_seen == shm_seen {
            return Ok(None);
        }
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&log)?;
        if identity(&opened.metadata()?) != log_seen {
            return Ok(None);
        }
        let others = OPENED.lock().clone();
        let of_other = others.iter().filter_map(Weak::upgrade).find(|files| files.seen == seen);
        let syncs = of_other.map(|files| Arc::clone(&files.syncs));
        let syncs = syncs.unwrap_or_else(|| Arc::new(Syncs::new(opened)));
        let [name, path] = [name, path].map(Path::to_owned);
        let lost = AtomicBool::new(false);
        let files = Arc::new(Files { name, path, log, shm, seen, lost, syncs });
        OPENED.lock().push(Arc::downgrade(&files));
        Ok(Some(files))
    }

    /// Whether a client of this process has connections to what was at this path before.
    pub(super) fn any_lost(path: &Path, found: &Metadata) -> bool {
        let opened = OPENED.lock().clone();
        opened.iter().filter_map(Weak::upgrade).any(|files| {
            let ([file, ..], _) = files.seen;
            (files.path == path || file == identity(found)) && !files.are_there()
        })
    }

    /// False for ever once it was false: meanwhile others may have used files of these names.
    pub(super) fn are_there(&self) -> bool {
        let are_there = !self.lost.load(Ordering::Acquire)
            && see(&self.name, &self.log, &self.shm).is_ok_and(|seen| seen == self.seen);
        if !are_there {
            self.lost.store(true, Ordering::Release);
        }
        are_there
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        self.are_there();
        self.check_noted()
    }

    /// The same by what was seen last, without a look.
    pub(super) fn check_noted(&self) -> Result<(), Error> {
        if !self.lost.load(Ordering::Acquire) {
            return Ok(());
        }
        let what = "it, its -wal or its -shm was moved, deleted or replaced, or it got another link, \
                    while it was open";
        Err(about(&self.path, ErrorKind::Unavailable, what))
    }

    /// The log, where it was left behind for another file, to which SQLite would apply it.
    pub(super) fn orphaned_log(&self) -> Option<&Path> {
        let there = |path| fs::metadata(path).ok().map(|found| identity(&found));
        let ([file, log, _], _) = self.seen;
        let is_replaced = there(&self.path).is_some_and(|now| now != file);
        (is_replaced && there(&self.log) == Some(log)).then_some(&*self.log)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let mut opened = OPENED.lock();
        opened.retain(|files| files.strong_count() > 0);
        // A program that unloads the library gets all of it back.
        opened.shrink_to_fit();
    }
}

fn see(name: &Path, log: &Path, shm: &Path) -> io::Result<Seen> {
    let file = fs::metadata(name)?;
    let (log, shm) = (identity(&fs::metadata(log)?), identity(&fs::metadata(shm)?));
    Ok(([identity(&file), log, shm], file.nlink()))
}

/// What SQLite calls its log and its shared memory.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut beside = OsString::from(path);
    beside.push(ending);
    PathBuf::from(beside)
}

fn identity(found: &Metadata) -> Identity {
    (found.dev(), found.ino())
}
