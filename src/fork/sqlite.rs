//! A new beginning for SQLite in a forked child.
//!
//! SQLite lists the files that its process has open, by device and inode, and asks the kernel only
//! for locks that are not in the list. A child inherits the list and none of the locks. So each
//! process of a line of forks tells its SQLite other inode numbers: what the child opens is not in
//! the list, and what it has inherited is never touched. That the numbers are wrong shows nowhere:
//! SQLite compares them with one another only.
//!
//! The C library does that: its SQLite is its own, of which the process sees no symbol and nobody else
//! has a file open. A program in Rust has one SQLite for all that it links: other numbers would take
//! its own databases their locks, and one of its threads may be in SQLite as it forks. There, a file
//! stays refused in a child.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::mem::transmute;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::ffi::{SQLITE_OK, sqlite3_vfs_find};

use super::Birth;

/// What the inode numbers of this process are mixed with.
static MIX: AtomicU64 = AtomicU64::new(0);
/// 2^64 over the golden ratio: mixed numbers of two processes meet by chance only.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// In a child, before it opens a file; twice does no harm. False where it cannot be done.
pub(crate) fn begin_anew() -> bool {
    // With 32 bits, SQLite may have been compiled for another `struct stat` than `libc` knows.
    if cfg!(not(all(feature = "capi", target_pointer_width = "64"))) {
        return false;
    }
    MIX.store(Birth::here().0.wrapping_mul(SPREAD), Ordering::Relaxed);
    // SAFETY: SQLite calls them as what they are, since these are the types that it has under these
    // names; no other thread is in SQLite, which is the library's own (`nm -D` shows none of it): the
    // caller has the mutex, and nothing was opened in this process.
    unsafe {
        let vfs = sqlite3_vfs_find(c"unix".as_ptr());
        let Some(set) = vfs.as_ref().and_then(|vfs| vfs.xSetSystemCall) else { return false };
        let by_path = transmute::<unsafe extern "C" fn(_, _) -> _, unsafe extern "C" fn()>(stat);
        let by_file = transmute::<unsafe extern "C" fn(_, _) -> _, unsafe extern "C" fn()>(fstat);
        set(vfs, c"stat".as_ptr(), Some(by_path)) == SQLITE_OK
            && set(vfs, c"fstat".as_ptr(), Some(by_file)) == SQLITE_OK
    }
}

unsafe extern "C" fn stat(path: *const c_char, found: *mut libc::stat) -> c_int {
    // SAFETY: SQLite calls it as the function of this name, and so it has written what was found.
    unsafe { mixed(libc::stat(path, found), found) }
}

unsafe extern "C" fn fstat(file: c_int, found: *mut libc::stat) -> c_int {
    // SAFETY: as above.
    unsafe { mixed(libc::fstat(file, found), found) }
}

unsafe fn mixed(status: c_int, found: *mut libc::stat) -> c_int {
    if status == 0 {
        // SAFETY: the call has succeeded, so this is a `struct stat` that was written.
        unsafe { (*found).st_ino ^= MIX.load(Ordering::Relaxed) as libc::ino_t };
    }
    status
}
