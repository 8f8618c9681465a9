//! Whether the process of a holder is alive, which the kernel knows, whatever name a process has there.
//!
//! Each process keeps a byte of the file's folder locked through a descriptor that nobody else has, but
//! for children that were forked and have not called exec. It is never closed: whoever has lost a lease,
//! to a garbage collector say, may still rely on its ttl. The kernel unlocks the byte when the last
//! copy is gone. The byte is a random one, locked before any row names it and never again after that,
//! so who is found dead stays dead.
//!
//! It is a byte of the folder: to close any descriptor of the database would drop the locks of SQLite,
//! and a file beside it could be deleted, or made by a user who lets no other read it.

use std::fs::{self, File, Metadata};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::statfs::{FUSE_SUPER_MAGIC, fstatfs};

use crate::fork::Birth;
use crate::sync::Mutex;

/// Those of this process, and what it inherited: one for each folder that it has had a file in.
static STARTED: Mutex<Vec<(Birth, Arc<Pulse>)>> = Mutex::new(Vec::new());

pub(super) struct Pulse {
    folder: File,
    /// The folder's device and inode: what was locked in another one, which may have had this one's
    /// path before, cannot be asked after in this one.
    place: String,
    byte: i64,
}

impl Pulse {
    /// Of this process, for a file at this path. `None` where the kernel cannot tell: the locks that are
    /// taken then last for their ttl, and so does, for this process, what others have.
    pub(super) fn of_process(path: &Path) -> Option<Arc<Pulse>> {
        let (here, found) = (Birth::here(), fs::metadata(path.parent()?).ok()?);
        let mut started = STARTED.lock();
        let mut known = started.iter().filter(|(birth, _)| *birth == here);
        if let Some((_, pulse)) = known.find(|(_, pulse)| pulse.place == place_of(&found)) {
            return Some(Arc::clone(pulse));
        }
        let pulse = Arc::new(Pulse::start(path)?);
        started.push((here, Arc::clone(&pulse)));
        Some(pulse)
    }

    pub(super) fn start(path: &Path) -> Option<Pulse> {
        let folder = File::open(path.parent()?).ok()?;
        // There, one folder may be two to the kernel. With 32 bits, its numbers are not `libc`'s.
        let is_fuse = fstatfs(&folder).ok()?.filesystem_type() == FUSE_SUPER_MAGIC;
        if is_fuse || cfg!(not(target_pointer_width = "64")) {
            return None;
        }
        let place = place_of(&folder.metadata().ok()?);
        let byte = i64::from_ne_bytes(getrandom::u64().ok()?.to_ne_bytes()) & (i64::MAX >> 1);
        fcntl(&folder, FcntlArg::F_OFD_SETLK(&lock(byte, libc::F_RDLCK))).ok()?;
        // What cannot be seen from elsewhere would let others take what is held.
        let elsewhere = File::open(path.parent()?).ok()?;
        is_locked(&elsewhere, byte).then_some(Pulse { folder, place, byte })
    }

    /// What a row says of a lock that this process has under a token.
    pub(super) fn of(&self, token: &str) -> String {
        format!("{token} {}{}", self.place, self.byte)
    }

    /// Whether the process is dead that took a lock under this token, by what the row says. A program
    /// that knows no pulses leaves there what was said of an earlier token.
    pub(super) fn has_stopped(&self, token: &str, said: &str) -> bool {
        let byte = said.split_once(' ').filter(|(of, _)| *of == token);
        let byte = byte.and_then(|(_, at)| at.strip_prefix(&self.place)?.parse().ok());
        byte.is_some_and(|byte| byte != self.byte && !is_locked(&self.folder, byte))
    }
}

fn place_of(folder: &Metadata) -> String {
    format!("{}:{}:", folder.dev(), folder.ino())
}

/// Whether anybody has it locked, except through this descriptor.
fn is_locked(folder: impl AsFd, byte: i64) -> bool {
    let mut found = lock(byte, libc::F_WRLCK);
    let asked = fcntl(folder, FcntlArg::F_OFD_GETLK(&mut found));
    asked.is_err() || i32::from(found.l_type) != libc::F_UNLCK
}

fn lock(byte: i64, kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as _,
        l_whence: libc::SEEK_SET as _,
        l_start: byte as _,
        l_len: 1,
        l_pid: 0,
    }
}
