//! Whether a file is fit for locks: its disk, and who else may write to it. What the store refuses
//! by itself (network file systems, several names, missing rights) is an error before this.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::statvfs::statvfs;

use super::SqliteStore;
use super::disk::{lacks_inodes, trouble};
use super::open::is_gone;
use super::owner::Owner;
use crate::clock::{Deadline, Moment};
use crate::config::Sharing;
use crate::error::{Error, ErrorKind};
use crate::examination::{Examination, Subject, Value, kinds};
use crate::store::{Admin, Store};

kinds! { KINDS:
    MISSING Note "sqlite-missing" "there is no file yet"
        "the first lock makes it: a path that was mistyped is another, empty store"
        "compare the path with that of your other programs";
    FULL Warning "sqlite-disk-full" "its disk is full, or nearly so"
        "on a full disk no lock can be taken, renewed or given back"
        "make room there: df says how much is used, df -i how many files there are, and quota what a user may";
    LOCKED Warning "sqlite-locked" "a process that stands still has it locked"
        "until that process goes on, no lock of the file can be taken, renewed or given back"
        "continue it, or end it";
    OPEN Note "sqlite-open" "others may write to it"
        "any of them can end every lease"
        "chmod o-w the file and its folder, or say in the URL that it is meant: ?mode=0666";
}

/// A log grows by some pages for each change until it is written back.
const LEAST: u64 = 64 << 20;
/// The bit of a mode by which everybody may write, and the one that keeps users from others' files.
const OTHERS_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;

impl SqliteStore {
    pub(super) fn look_around(
        &self,
        subject: Subject<'_>,
        found: &mut Examination,
    ) -> Result<(), Error> {
        let path = &*self.file.path;
        let at = path.display().to_string();
        let mut laps = Vec::new();
        for _ in 0..100 {
            let (begun, by) = (Moment::now(), Deadline::after(subject.config.io_timeout));
            self.inspect(&subject.checkup.name, by)?;
            laps.push(Moment::now().since(begun));
        }
        found.laps(&at, laps, subject);
        if is_gone(path) {
            self.ping(Deadline::after(subject.config.io_timeout))?;
            found.found(&at, &MISSING, "it is made by the first lock");
        }
        let folder = path.ancestors().skip(1).find(|folder| folder.exists()).unwrap_or(path);
        if let Ok(disk) = statvfs(folder) {
            let free = disk.blocks_available().saturating_mul(disk.fragment_size());
            found.measured(&at, "disk_free_bytes", Value::Count(free));
            check_room(&at, free, found);
            if lacks_inodes(&disk) {
                found.found(&at, &FULL, "it has no inode left for another file");
            }
        }
        // A quota shows in nothing else. What is no lack of room is no finding of this kind.
        let tried = subject.checkup.tries.then(|| trouble(path)).flatten();
        let is_told = found.findings.iter().any(|finding| finding.id == FULL.id);
        if let Some(error) = tried.filter(|error| error.kind() == ErrorKind::DiskFull && !is_told) {
            found.found(&at, &FULL, error);
        }
        if let Ok(Some(owner)) = Owner::of(path)
            && owner.stands_still()
        {
            found.found(&at, &LOCKED, owner);
        }
        if self.file.sharing != Some(Sharing::All) {
            check_modes(&at, path, found);
        }
        Ok(())
    }
}

fn check_room(at: &str, free: u64, found: &mut Examination) {
    if free < LEAST {
        found.found(at, &FULL, format!("{} MB are left", free >> 20));
    }
}

/// Who may write to the folder of a file can put another one into its place.
fn check_modes(at: &str, path: &Path, found: &mut Examination) {
    let mode = |path: &Path| fs::metadata(path).map_or(0, |found| found.mode());
    let folder = path.parent().map_or(0, mode);
    if mode(path) & OTHERS_WRITE != 0 {
        found.found(at, &OPEN, format!("its mode is {:o}", mode(path) & 0o7777));
    } else if folder & OTHERS_WRITE != 0 && folder & STICKY == 0 {
        found.found(at, &OPEN, format!("the mode of its folder is {:o}", folder & 0o7777));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_with_hardly_any_room_is_found() {
        for (free, is_full) in [(0, true), (LEAST - 1, true), (LEAST, false), (u64::MAX, false)] {
            let mut found = Examination::default();
            check_room("here", free, &mut found);
            assert_eq!(!found.is_fit(), is_full, "{free}");
        }
    }
}
