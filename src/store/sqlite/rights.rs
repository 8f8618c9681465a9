//! Several users of one file. SQLite makes the log and the shared memory with the rights of the file,
//! but in a folder that must let each of the users make and delete them.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::stat::{Mode, SFlag, mknod};
use nix::unistd::{AccessFlags, eaccess, geteuid};

use super::disk::about;
use super::files::beside;
use crate::config::Sharing;
use crate::error::{Error, ErrorKind};

/// An empty file, made without opening it: to close a descriptor drops the locks of SQLite
/// connections in other threads, too.
pub(super) fn make_file(path: &Path, sharing: Sharing) -> io::Result<()> {
    match mknod(path, SFlag::S_IFREG, Mode::S_IRUSR | Mode::S_IWUSR, 0) {
        Ok(()) => set(path, sharing, sharing.file()),
        // Another process was faster, and its file is as good.
        Err(Errno::EEXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A folder and those above it.
pub(super) fn make_folder(path: &Path, sharing: Sharing) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(above) = path.parent() {
        make_folder(above, sharing)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => set(path, sharing, sharing.folder()),
        Err(_) if path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whatever the umask is. Who may write to the folder above may have put a link in the way, so the
/// mode is set through a descriptor that leads through none, and has no part in locks.
fn set(path: &Path, sharing: Sharing, mode: u32) -> io::Result<()> {
    if sharing == Sharing::User {
        return Ok(());
    }
    let flags = libc::O_PATH | libc::O_NOFOLLOW;
    let made = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = made.metadata()?;
    let is_new = found.is_dir() || found.is_file() && found.len() == 0 && found.nlink() == 1;
    if !is_new || found.uid() != geteuid().as_raw() {
        return Err(io::Error::other("another user has replaced it while it was made"));
    }
    fs::set_permissions(format!("/proc/self/fd/{}", made.as_raw_fd()), Permissions::from_mode(mode))
}

/// Whether a file that is there, or the folder that it is to be made in, is as shared as the URL says.
pub(super) fn check(path: &Path, sharing: Option<Sharing>) -> Result<(), Error> {
    let Some(sharing) = sharing else { return Ok(()) };
    let mode = |path: &Path| fs::metadata(path).map(|found| found.mode() & 0o7777);
    if let Ok(found) = mode(path)
        && found != sharing.file()
    {
        return Err(refused(
            path,
            sharing,
            &format!("has mode {found:04o}; give the file, its -wal and its -shm the other one"),
        ));
    }
    let Some(folder) = path.parent() else { return Ok(()) };
    match mode(folder) {
        Ok(_) if sharing == Sharing::User => Ok(()),
        Ok(found) if found & 0o1000 != 0 => Err(refused(
            folder,
            sharing,
            "has the sticky bit, and \
            users may not open or delete there what others have made; use a folder of its own",
        )),
        Ok(found) if found & sharing.folder() != sharing.folder() => {
            let wanted = sharing.folder();
            let why = format!("has mode {found:04o}, where users need {wanted:04o} to make files");
            Err(refused(folder, sharing, &why))
        }
        _ => Ok(()),
    }
}

fn refused(path: &Path, sharing: Sharing, why: &str) -> Error {
    let mode = sharing.file();
    about(path, ErrorKind::Permission, format!("it {why} (the URL says mode={mode:04o})"))
}

/// What this user may not do with what is another user's, if that is why a file cannot be opened.
pub(super) fn missing(name: &Path) -> Option<Error> {
    let path = name.canonicalize().unwrap_or_else(|_| name.to_owned());
    let folder = path.parent()?;
    let mut above: Vec<&Path> = folder.ancestors().collect();
    above.reverse();
    let enter = above.into_iter().map(|folder| (folder.to_owned(), AccessFlags::X_OK));
    let write = [(folder.to_owned(), AccessFlags::W_OK)];
    let files: [PathBuf; 3] = [path.clone(), beside(&path, "-wal"), beside(&path, "-shm")];
    let files = files.map(|file| (file, AccessFlags::R_OK | AccessFlags::W_OK));
    let lacks = |(path, access): &(PathBuf, AccessFlags)| {
        eaccess(path.as_path(), *access) == Err(Errno::EACCES)
    };
    let (path, access) = enter.chain(write).chain(files).find(lacks)?;
    let (found, me) = (fs::metadata(&path).ok()?, geteuid());
    if found.uid() == me.as_raw() {
        return None;
    }
    let what = if access == AccessFlags::X_OK { "enter" } else { "write to" };
    let (owner, mode) = (found.uid(), found.mode() & 0o7777);
    let why = format!(
        "user {me} may not {what} it: it is user {owner}'s, with mode {mode:04o}; a file for \
         several users is made, with its folder, by ?mode=0660 in the URL (a group) or ?mode=0666 \
         (all)"
    );
    Some(about(&path, ErrorKind::Permission, why))
}
