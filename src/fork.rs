//! Knowing that this process is a forked child of the one that opened the client.
//!
//! A child inherits the sockets, the memory and the locked mutexes of its parent, but none of its
//! threads. Any use of them would disturb the parent, or hang. So every entry point asks
//! [`Birth::check`] before it touches a mutex, and what must not be dropped in a child is an
//! [`Owned`].
//!
//! The witness is a page that the kernel wipes in every child (MADV_WIPEONFORK): one load a
//! question, where getpid would be a system call. It also sees a bare `clone`, which
//! `pthread_atfork` would miss.

#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
#[cfg(any(feature = "capi", feature = "sqlite"))]
mod steady;
pub(crate) mod thread;

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use once_cell::race::OnceBox;

#[cfg(feature = "capi")]
pub(crate) use steady::HANDLES;
#[cfg(any(feature = "capi", feature = "sqlite"))]
pub(crate) use steady::keep_steady;
#[cfg(feature = "sqlite")]
pub(crate) use steady::{SQLITE, Steady, forks_wait};
pub(crate) use thread::{is_ours, without_signals};

use crate::error::{Error, ErrorKind};

/// The process, counted in generations of forks, in which something was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Birth(u64);

impl Birth {
    pub(crate) fn here() -> Birth {
        // Ordinary memory: a child inherits the count, and takes a number that no ancestor has.
        static LAST: AtomicU64 = AtomicU64::new(0);
        let Some(page) = witness() else { return Birth(u64::from(std::process::id())) };
        let known = page.load(Ordering::Relaxed);
        if known != 0 {
            return Birth(known);
        }
        let next = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        // Two threads may be first together; the second one takes the first one's.
        let first = page.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed);
        Birth(first.err().unwrap_or(next))
    }

    /// Differs in every process that was forked from this one; small, and never 0.
    #[cfg(feature = "capi")]
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    pub(crate) fn is_here(self) -> bool {
        self == Birth::here()
    }

    pub(crate) fn check(self) -> Result<(), Error> {
        if self.is_here() { Ok(()) } else { Err(Error::bare(ErrorKind::Forked)) }
    }
}

/// A value that is dropped only in the process that made it. In a forked child it is leaked on
/// purpose: dropping a connection there would write to, or lock, what the parent still uses.
pub(crate) struct Owned<T> {
    value: ManuallyDrop<T>,
    pub(crate) birth: Birth,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Owned<T> {
        Owned { value: ManuallyDrop::new(value), birth: Birth::here() }
    }
}

impl<T> Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Drop for Owned<T> {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        if self.birth.is_here() {
            // SAFETY: this is the only place that drops the value, it runs at most once, and
            // nothing can reach the value afterwards, since `self` is going away.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}

/// A value of which each process has its own: a forked child makes it when it first asks. What it
/// inherited stays where it is.
pub(crate) struct PerProcess<T> {
    birth: Birth,
    value: T,
    /// That of a descendant, and on to its own.
    next: OnceBox<PerProcess<T>>,
}

impl<T> PerProcess<T> {
    pub(crate) fn new(value: T) -> PerProcess<T> {
        PerProcess { birth: Birth::here(), value, next: OnceBox::new() }
    }

    /// That of this process, if it has one.
    pub(crate) fn get(&self) -> Option<&T> {
        std::iter::successors(Some(self), |one| one.next.get())
            .find_map(|one| one.birth.is_here().then_some(&one.value))
    }

    /// Of two threads that make it together, one drops what it made.
    pub(crate) fn get_or_make(&self, make: impl Fn() -> Result<T, Error>) -> Result<&T, Error> {
        let mut one = self;
        while !one.birth.is_here() {
            one = one.next.get_or_try_init(|| Ok(Box::new(PerProcess::new(make()?))))?;
        }
        Ok(&one.value)
    }
}

/// Remembers the process that first used a library which keeps hidden state of the process. A
/// forked child inherits that state, and must not use the library, not even anew.
pub(crate) struct OneProcess(AtomicU64);

impl OneProcess {
    pub(crate) const fn new() -> OneProcess {
        OneProcess(AtomicU64::new(0))
    }

    /// True in the process that asks first, false in all that descend from it by forking.
    pub(crate) fn is_this(&self) -> bool {
        let Birth(here) = Birth::here();
        let first = match self.0.load(Ordering::Relaxed) {
            0 => self.0.compare_exchange(0, here, Ordering::Relaxed, Ordering::Relaxed),
            first => Err(first),
        };
        first.is_ok() || first == Err(here)
    }

    /// In a child, which has set that state aside: the library is its own from now on.
    #[cfg(feature = "sqlite")]
    pub(crate) fn take_over(&self) {
        self.0.store(Birth::here().0, Ordering::Relaxed);
    }
}

/// The page that is wiped to zero in a child; none on macOS and before Linux 4.14, where the process
/// id is asked for each time.
fn witness() -> Option<&'static AtomicU64> {
    // Not a OnceLock: a child that is forked while another thread is in it would wait for ever.
    static WITNESS: OnceBox<Option<&'static AtomicU64>> = OnceBox::new();
    *WITNESS.get_or_init(|| Box::new(make_page()))
}

#[cfg(not(target_os = "linux"))]
fn make_page() -> Option<&'static AtomicU64> {
    None
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn make_page() -> Option<&'static AtomicU64> {
    use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous};

    const PAGE: std::num::NonZero<usize> = std::num::NonZero::new(4096).unwrap();
    let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new private anonymous mapping touches no existing memory. It is page-aligned (so
    // aligned for AtomicU64), starts as zeros (a valid AtomicU64) and is
    // never unmapped.
    unsafe {
        let page = mmap_anonymous(None, PAGE, rights, MapFlags::MAP_PRIVATE).ok()?;
        madvise(page, PAGE.get(), MmapAdvise::MADV_WIPEONFORK).ok()?;
        Some(page.cast().as_ref())
    }
}
