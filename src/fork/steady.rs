//! Sections of code that a fork does not cut in two.
//!
//! What the threads of a process share behind mutexes is of use to a forked child only if none of
//! them was changing it at that moment. So they change it in sections, and a fork waits until
//! nobody is in one. A child that came in another way, by a bare `clone` or because somebody stayed
//! in a section for too long, knows that: it and all its descendants are not whole.

use std::cell::Cell;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::sleep;
use std::time::Duration;

use super::Birth;
use crate::clock::Deadline;

/// How many threads are in a section, how many are forking, and, in the upper half, the process
/// of both.
static STATE: AtomicU64 = AtomicU64::new(0);
const INSIDE: u64 = (1 << 20) - 1;
const FORK: u64 = 1 << 20;
const FORKS: u64 = u32::MAX as u64 & !INSIDE;
const PROCESS: u32 = 32;

static BROKEN: AtomicBool = AtomicBool::new(false);

/// A sync of a busy disk may take this long, and a fork waits for it.
const LONGEST_SECTION: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_micros(50);

thread_local! {
    /// A section may be entered within another.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// A section, until it is dropped, by the thread that entered it.
pub(crate) struct Steady(Birth);

pub(crate) fn steady() -> Steady {
    let here = Birth::here();
    while DEPTH.get() == 0 {
        let found = state_of(here);
        if found & FORKS != 0 {
            sleep(PAUSE);
        } else if STATE.compare_exchange(found, found + 1, SeqCst, SeqCst).is_ok() {
            break;
        }
    }
    DEPTH.set(DEPTH.get() + 1);
    Steady(here)
}

impl Drop for Steady {
    fn drop(&mut self) {
        // Else it was forked within the section, and is not counted here.
        if self.0.is_here() {
            DEPTH.set(DEPTH.get() - 1);
            if DEPTH.get() == 0 {
                STATE.fetch_sub(1, SeqCst);
            }
        }
    }
}

/// Whether what this process has inherited is as if no other thread had been there.
pub(crate) fn is_whole() -> bool {
    state_of(Birth::here());
    !BROKEN.load(SeqCst)
}

/// From now on forks wait. Until the first call, every child is not whole.
#[allow(unsafe_code)]
pub(crate) fn keep_steady() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if !DONE.swap(true, SeqCst) {
        // SAFETY: the three are functions of this library, with which the C library forgets them.
        // If there is no memory to note them, children are not whole.
        unsafe { libc::pthread_atfork(Some(before), Some(after), Some(in_child)) };
    }
}

/// What is there of an ancestor is replaced: nobody has told that this is a child.
fn state_of(here: Birth) -> u64 {
    let found = STATE.load(SeqCst);
    if found >> PROCESS == here.0 {
        return found;
    }
    if found != 0 {
        BROKEN.store(true, SeqCst);
    }
    let own = here.0 << PROCESS;
    // Another thread of this process may be faster.
    STATE.compare_exchange(found, own, SeqCst, SeqCst).map_or_else(|now| now, |_| own)
}

extern "C" fn before() {
    state_of(Birth::here());
    STATE.fetch_add(FORK, SeqCst);
    let deadline = Deadline::after(LONGEST_SECTION);
    // A thread that forks within a section, in a signal handler perhaps, would wait for itself.
    while STATE.load(SeqCst) & INSIDE != 0 && DEPTH.get() == 0 && !deadline.has_passed() {
        sleep(PAUSE);
    }
}

extern "C" fn after() {
    STATE.fetch_sub(FORK, SeqCst);
}

extern "C" fn in_child() {
    if STATE.load(SeqCst) & INSIDE != 0 {
        BROKEN.store(true, SeqCst);
    }
    DEPTH.set(0);
    STATE.store(Birth::here().0 << PROCESS, SeqCst);
}
