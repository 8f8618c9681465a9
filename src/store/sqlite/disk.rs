//! Errors about what is at a path, and what the disk there has to do with them. SQLite says less than
//! the system did: what it could not write to the shared memory is "disk I/O error", whatever the
//! reason.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::sys::statvfs::{FsFlags, Statvfs, statvfs};
use nix::unistd::geteuid;

use crate::error::{Error, ErrorKind};

/// More than SQLite adds at once to its log or the shared memory.
const TRIAL: usize = 256 << 10;

/// An error about what is at a path.
pub(super) fn about(path: &Path, kind: ErrorKind, what: impl Display) -> Error {
    Error::new(kind, format!("{}: {what}", path.display()))
}

/// The same of what the system says.
pub(super) fn failed(path: &Path, error: &io::Error) -> Error {
    let disk = || path.ancestors().find_map(|part| statvfs(part).ok());
    known(path, error, disk).unwrap_or_else(|| {
        let kind = match error.kind() {
            io::ErrorKind::PermissionDenied => ErrorKind::ReadOnly,
            _ => ErrorKind::Storage,
        };
        about(path, kind, error)
    })
}

/// That there is no room, where nobody has said what of.
pub(super) fn full(path: &Path) -> Error {
    about(path, ErrorKind::DiskFull, DISK)
}

/// What keeps the files beside this one from being written to, as far as it is the disk: another file
/// is written to there, which has no name.
pub(super) fn trouble(path: &Path) -> Option<Error> {
    let file = path.canonicalize();
    let folder = file.as_deref().unwrap_or(path).parent()?;
    let disk = statvfs(folder).ok()?;
    let is_read_only = disk.flags().contains(FsFlags::ST_RDONLY);
    let mut trial = OpenOptions::new();
    let written = match trial.write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(folder) {
        _ if is_read_only => Err(io::Error::from_raw_os_error(libc::EROFS)),
        Ok(mut file) => file.write_all(&[1; TRIAL]),
        // Not every file system has such files.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => {
            match has_room(&disk) {
                true => Ok(()),
                false => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            }
        }
        Err(error) => Err(error),
    };
    known(path, &written.err()?, || Some(disk))
}

const DISK: &str = "its disk is full: df says how much is used";

fn known(path: &Path, error: &io::Error, disk: impl FnOnce() -> Option<Statvfs>) -> Option<Error> {
    Some(match error.raw_os_error()? {
        libc::EROFS => {
            let what = "its file system is mounted read-only: mount -o remount,rw";
            about(path, ErrorKind::ReadOnly, what)
        }
        libc::ENOSPC if disk().is_some_and(|disk| lacks_inodes(&disk)) => about(
            path,
            ErrorKind::DiskFull,
            "its disk has no inode left for another file: df -i says how many are used",
        ),
        libc::ENOSPC => full(path),
        libc::EDQUOT => {
            let what = "is used up, in bytes or in files: quota says how much it is";
            let what = format!("the disk quota of user {} {what}", geteuid());
            about(path, ErrorKind::DiskFull, what)
        }
        libc::EMFILE | libc::ENFILE => about(path, ErrorKind::Exhausted, error),
        _ => return None,
    })
}

fn has_room(disk: &Statvfs) -> bool {
    disk.blocks_available() > 0 && !lacks_inodes(disk)
}

/// Some file systems count none.
pub(super) fn lacks_inodes(disk: &Statvfs) -> bool {
    disk.files() > 0 && disk.files_available() == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c13_what_the_system_says_of_a_disk_has_a_kind_and_a_sentence() {
        let path = Path::new("/dev/shm/locks.db");
        for (number, kind, what) in [
            (libc::ENOSPC, ErrorKind::DiskFull, "its disk is full"),
            (libc::EDQUOT, ErrorKind::DiskFull, "the disk quota of user"),
            (libc::EROFS, ErrorKind::ReadOnly, "mounted read-only"),
            (libc::EMFILE, ErrorKind::Exhausted, "oo many open files"),
            (libc::EIO, ErrorKind::Storage, ""),
            (libc::EACCES, ErrorKind::ReadOnly, "ermission denied"),
        ] {
            let error = failed(path, &io::Error::from_raw_os_error(number));
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.detail().contains(what), "{error}");
        }
    }

    #[test]
    fn a_disk_that_takes_what_is_written_is_no_trouble_and_nothing_is_left_on_it() {
        let folder = tempfile::tempdir().unwrap();
        assert!(trouble(&folder.path().join("locks.db")).is_none());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
