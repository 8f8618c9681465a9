//! Sections of code that a fork does not cut in two.
//!
//! What the threads of a process share behind mutexes is of use to a forked child only if none of
//! them was changing it at that moment. So they change it in sections, and a fork waits until
//! nobody is in one. A child that came in another way, by a bare `clone` or because somebody stayed
//! in a section for too long, knows that: it and all its descendants are not whole. The handles of C
//! and SQLite are apart: a slow disk spoils no handle.

use std::cell::Cell;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::{LocalKey, sleep};
use std::time::Duration;

use super::Birth;
use crate::clock::Deadline;

/// What sections are of.
pub(crate) struct Shared {
    /// How many threads are in a section, how many fork, and in the upper half the process of both.
    state: AtomicU64,
    broken: AtomicBool,
    /// Sections of this thread: one may be entered within another.
    depth: &'static LocalKey<Cell<u32>>,
}

#[cfg(feature = "capi")]
pub(crate) static HANDLES: Shared = Shared::new(&IN_HANDLES);
#[cfg(feature = "sqlite")]
pub(crate) static SQLITE: Shared = Shared::new(&IN_SQLITE);

thread_local! {
    #[cfg(feature = "capi")]
    static IN_HANDLES: Cell<u32> = const { Cell::new(0) };
    #[cfg(feature = "sqlite")]
    static IN_SQLITE: Cell<u32> = const { Cell::new(0) };
}

/// In the order in which a fork waits for them: a section of SQLite may have one of handles in it, in
/// a logger that calls the library, and meanwhile every call enters one of handles.
static ALL: &[&Shared] = &[
    #[cfg(feature = "sqlite")]
    &SQLITE,
    #[cfg(feature = "capi")]
    &HANDLES,
];

const INSIDE: u64 = (1 << 20) - 1;
const FORK: u64 = 1 << 20;
const FORKS: u64 = u32::MAX as u64 & !INSIDE;
const PROCESS: u32 = 32;

/// A sync of a busy disk may take this long, and a fork waits for it.
const LONGEST_SECTION: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_micros(50);
/// For how many pauses a thread waits for a fork that waits for sections: as long as that does. Where
/// nobody is in one, a pause counts 20 times, so that 0.1 s are the end: the fork may be waiting for a
/// mutex that this thread has, in a handler of the program's. Pauses, not time: what stops this
/// thread, a full machine or the kernel's work for the fork, stops the fork too.
const MOST_PAUSES: u32 = 40_000;
const PAUSE_FOR_NOBODY: u32 = 20;

/// A section, until it is dropped, by the thread that entered it.
pub(crate) struct Steady {
    shared: &'static Shared,
    here: Birth,
}

impl Drop for Steady {
    fn drop(&mut self) {
        // Else it was forked within the section, and is not counted here.
        if self.here.is_here() {
            let depth = self.shared.depth.get() - 1;
            self.shared.depth.set(depth);
            if depth == 0 {
                self.shared.state.fetch_sub(1, SeqCst);
            }
        }
    }
}

impl Shared {
    const fn new(depth: &'static LocalKey<Cell<u32>>) -> Shared {
        Shared { state: AtomicU64::new(0), broken: AtomicBool::new(false), depth }
    }

    /// Of a thread that is in one as a child is made, the child is not whole.
    pub(crate) fn steady(&'static self) -> Steady {
        let here = Birth::here();
        let mut pauses = 0;
        while self.depth.get() == 0 {
            let found = self.state_of(here);
            if found & FORKS != 0 && pauses < MOST_PAUSES {
                pauses += if found & INSIDE == 0 { PAUSE_FOR_NOBODY } else { 1 };
                sleep(PAUSE);
            } else if self.state.compare_exchange(found, found + 1, SeqCst, SeqCst).is_ok() {
                break;
            }
        }
        self.depth.set(self.depth.get() + 1);
        Steady { shared: self, here }
    }

    /// Whether what this process has inherited is as if no other thread had been there.
    pub(crate) fn is_whole(&self) -> bool {
        self.state_of(Birth::here());
        !self.broken.load(SeqCst)
    }

    /// What is there of an ancestor is replaced: nobody has told that this is a child.
    fn state_of(&self, here: Birth) -> u64 {
        let found = self.state.load(SeqCst);
        if found >> PROCESS == here.0 {
            return found;
        }
        if found != 0 {
            self.broken.store(true, SeqCst);
        }
        let own = here.0 << PROCESS;
        // Another thread of this process may be faster.
        self.state.compare_exchange(found, own, SeqCst, SeqCst).map_or_else(|now| now, |_| own)
    }

    fn before(&self) {
        self.state_of(Birth::here());
        self.state.fetch_add(FORK, SeqCst);
        let deadline = Deadline::after(LONGEST_SECTION);
        // A thread that forks within a section, in a signal handler perhaps, would wait for itself.
        while self.state.load(SeqCst) & INSIDE != 0
            && self.depth.get() == 0
            && !deadline.has_passed()
        {
            sleep(PAUSE);
        }
    }

    fn in_child(&self) {
        if self.state.load(SeqCst) & INSIDE != 0 {
            self.broken.store(true, SeqCst);
        }
        self.depth.set(0);
        self.state.store(Birth::here().0 << PROCESS, SeqCst);
    }
}

/// Whether it was asked for.
static WAITING: AtomicBool = AtomicBool::new(false);

#[cfg(feature = "sqlite")]
pub(crate) fn forks_wait() -> bool {
    WAITING.load(SeqCst)
}

/// From now on forks wait. Until the first call, every child is not whole.
#[allow(unsafe_code)]
pub(crate) fn keep_steady() {
    // In a program in Rust nothing of this goes on in a child: see `sqlite`.
    if cfg!(feature = "capi") && !WAITING.swap(true, SeqCst) {
        // SAFETY: the three are functions of this library, with which the C library forgets them.
        // If there is no memory to note them, children are not whole.
        unsafe { libc::pthread_atfork(Some(before), Some(after), Some(in_child)) };
    }
}

extern "C" fn before() {
    ALL.iter().for_each(|shared| shared.before());
}

extern "C" fn after() {
    ALL.iter().for_each(|shared| {
        shared.state.fetch_sub(FORK, SeqCst);
    });
}

extern "C" fn in_child() {
    ALL.iter().for_each(|shared| shared.in_child());
}
